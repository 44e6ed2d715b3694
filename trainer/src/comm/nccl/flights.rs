//! Operations on their way: queued by the host, done by the device, and watched so that one that never ends is noticed.

use std::{collections::VecDeque, sync::Mutex};

use crate::{
    backend::Stream,
    lock::lock,
    rendezvous::{Operation, Progress},
};

/// The operations that streams have been given, in their order. `E` marks a place in a stream.
pub(super) struct Flights<E>(Mutex<[VecDeque<Flight<E>>; Stream::ALL.len()]>);

struct Flight<E> {
    operation: Operation,
    /// The stream comes here before the operation, and there after it.
    before: E,
    after: E,
    has_begun: bool,
}

impl<E> Default for Flights<E> {
    fn default() -> Flights<E> {
        Flights(Mutex::new(Stream::ALL.map(|_| VecDeque::new())))
    }
}

impl<E> Flights<E> {
    /// Notes that an operation is queued, between two marks.
    pub(super) fn add(&self, stream: Stream, operation: Operation, (before, after): (E, E)) {
        lock(&self.0)[stream as usize].push_back(Flight { operation, before, after, has_begun: false });
    }

    /// Notes which operations have begun and which are done, now that the streams have come to some marks.
    pub(super) fn look<F>(&self, progress: &Progress, is_past: impl Fn(&E) -> Result<bool, F>) -> Result<(), F> {
        for flights in lock(&self.0).iter_mut() {
            while let Some(flight) = flights.front_mut() {
                if !flight.has_begun {
                    if !is_past(&flight.before)? {
                        break;
                    }
                    progress.start(flight.operation.clone());
                    flight.has_begun = true;
                }
                if !is_past(&flight.after)? {
                    break;
                }
                progress.finish(&flight.operation);
                flights.pop_front();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, time::Duration};

    use stepscope_traces::{Group, SpanKind};

    use super::*;
    use crate::rendezvous::Channel;

    fn operation(number: u64) -> Operation {
        Operation { channel: Channel::Collective(Group(0)), number, kind: SpanKind::AllReduce }
    }

    #[test]
    fn what_streams_have_come_to_is_what_has_begun_and_ended() {
        let (flights, progress) = (Flights::default(), Progress::default());
        // Marks are times; the second operation begins where the first ends.
        flights.add(Stream::Communication, operation(0), (10, 20));
        flights.add(Stream::Communication, operation(1), (20, 30));
        flights.add(Stream::Compute, operation(2), (5, 40));
        let now = Cell::new(0);
        let look = || {
            flights.look(&progress, |mark| Ok::<_, ()>(*mark <= now.get())).unwrap();
            let report = progress.report();
            let open: Vec<u64> = report.open.iter().map(|open| open.number).collect();
            (open, report.finished.map(|finished| finished.number))
        };
        assert_eq!(look(), (vec![], None));
        assert!(progress.stuck(Duration::ZERO).is_none(), "what waits for its turn is not stuck");
        now.set(12);
        assert_eq!(look(), (vec![2, 0], None));
        now.set(25);
        assert_eq!(look(), (vec![2, 1], Some(0)));
        now.set(30);
        assert_eq!(look(), (vec![2], Some(1)));
        assert_eq!(progress.stuck(Duration::ZERO), Some(operation(2)));
        now.set(50);
        assert_eq!(look(), (vec![], Some(2)));
    }

    #[test]
    fn a_device_that_fails_is_heard_of() {
        let flights = Flights::default();
        flights.add(Stream::Compute, operation(0), (1, 2));
        assert_eq!(flights.look(&Progress::default(), |_| Err("lost")), Err("lost"));
    }
}
