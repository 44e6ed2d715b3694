//! Numbers for streams: those the program gives, and others for the rest.

use std::collections::HashMap;

use stepscope_traces::Stream;

/// Lower numbers are for the program to give.
const FIRST_NUMBER: u32 = 16;

/// A stream of a context, by CUPTI's numbers for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CuptiStream {
    pub(crate) context: u32,
    pub(crate) stream: u32,
}

/// The numbers of streams, and whose they are.
#[derive(Default)]
pub(crate) struct Streams {
    numbers: HashMap<(u64, CuptiStream), Stream>,
    owners: HashMap<CuptiStream, u64>,
}

impl Streams {
    /// Says that a stream is this recorder's, and its number there.
    pub(crate) fn name(&mut self, recorder: u64, place: CuptiStream, number: Stream) {
        self.numbers.insert((recorder, place), number);
        self.owners.insert(place, recorder);
    }

    /// Whose a stream is, as far as somebody said so or launched something there.
    pub(crate) fn owner(&self, place: CuptiStream) -> Option<u64> {
        self.owners.get(&place).copied()
    }

    /// The number of a stream in a recording.
    pub(crate) fn number(&mut self, recorder: u64, place: CuptiStream) -> Stream {
        if let Some(number) = self.numbers.get(&(recorder, place)) {
            return *number;
        }
        let others = self.numbers.iter().filter(|((other, _), number)| *other == recorder && number.0 >= FIRST_NUMBER);
        let number = Stream(FIRST_NUMBER + others.count() as u32);
        self.numbers.insert((recorder, place), number);
        self.owners.entry(place).or_insert(recorder);
        number
    }

    /// Forgets a recorder.
    pub(crate) fn forget(&mut self, recorder: u64) {
        self.numbers.retain(|(other, _), _| *other != recorder);
        self.owners.retain(|_, other| *other != recorder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_streams_have_their_names_and_others_differ() {
        let [a, b, c] = [(1, 7), (1, 13), (2, 7)].map(|(context, stream)| CuptiStream { context, stream });
        let mut streams = Streams::default();
        streams.name(5, a, Stream(1));
        assert_eq!([a, b, c, b].map(|place| streams.number(5, place).0), [1, 16, 17, 16]);
        assert_eq!(streams.number(6, b), Stream(16), "another recording has its own numbers");
        assert_eq!((streams.owner(a), streams.owner(b)), (Some(5), Some(5)));
        streams.forget(5);
        assert_eq!(streams.owner(a), None);
    }
}
