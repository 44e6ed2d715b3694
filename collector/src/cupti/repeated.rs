//! Who launched the kernels of steps in which nobody asked: steps repeat each other.
//!
//! In some steps the program's framework says which operator launches each kernel, which costs too much to have it always.
//! What a thread launches in such a step is kept, launch by launch. A launch of another step that is at the same place in its
//! phase, has the same name, and the same grid, is of the same operator and does the same work.
//!
//! Records come in any order, so places are those that launching threads count.

use std::collections::HashMap;

use stepscope_traces::{NameId, Span};

use crate::thread_state::LaunchPosition;

/// No more launches of a step are kept.
const MOST_LAUNCHES: usize = 1 << 17;

/// How a kernel is launched: its grid, its blocks, and their shared memory. All zero of what is no kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaunchShape(pub(crate) [u32; 8]);

/// How something was launched.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SeenLaunch {
    pub(crate) shape: LaunchShape,
    pub(crate) position: Option<LaunchPosition>,
}

/// The launches of the newest step of which somebody said who made them.
#[derive(Default)]
pub(crate) struct Repeated {
    known: HashMap<(u64, LaunchPosition), KnownLaunch>,
}

/// A launch, and what is known of it.
#[derive(Clone, Copy)]
struct KnownLaunch {
    name: NameId,
    shape: LaunchShape,
    origin: NameId,
    flops: Option<u64>,
    bytes: Option<u64>,
}

impl Repeated {
    /// Says of a kernel who launched it, if that is known from another step; tells whether it was.
    pub(crate) fn complete(&mut self, recorder: u64, span: &mut Span, launch: SeenLaunch) -> bool {
        let Some(position) = launch.position.filter(|_| span.step.is_some()) else {
            return false;
        };
        let (key, Span { name, flops, bytes, .. }) = ((recorder, position), *span);
        if let Some(origin) = span.origin {
            if self.known.len() < MOST_LAUNCHES || self.known.contains_key(&key) {
                self.known.insert(key, KnownLaunch { name, shape: launch.shape, origin, flops, bytes });
            }
            return false;
        }
        let same = self.known.get(&key).filter(|known| (known.name, known.shape) == (name, launch.shape));
        if let Some(KnownLaunch { origin, flops, bytes, .. }) = same {
            span.origin = Some(*origin);
            span.flops = span.flops.or(*flops);
            span.bytes = span.bytes.or(*bytes);
        }
        same.is_some()
    }
}

#[cfg(test)]
mod tests {
    use stepscope_traces::{Nanos, Phase, SpanKind, Step};

    use super::*;

    const RECORDER: u64 = 3;

    /// A step of kernels by letters, those in capitals with a larger grid, each with who launched it, if that is said; tells
    /// who launched each in the end.
    fn run(repeated: &mut Repeated, step: i32, kernels: &str, told: bool) -> String {
        let mut launched = String::new();
        for (number, kernel) in kernels.chars().enumerate() {
            let name = NameId(u32::from(kernel.to_ascii_lowercase()));
            let mut span = Span {
                step: Some(Step(step)),
                origin: told.then_some(NameId(5000 + number as u32)),
                flops: told.then_some(number as u64),
                ..Span::new(SpanKind::Kernel, name, Nanos(0), Nanos(1))
            };
            let shape = LaunchShape([u32::from(kernel.is_ascii_uppercase()); 8]);
            let position = Some(LaunchPosition::of_test(7, Some(Phase::Forward), number as u32));
            let inferred = repeated.complete(RECORDER, &mut span, SeenLaunch { shape, position });
            assert_eq!(inferred, !told && span.origin.is_some());
            assert_eq!(span.flops.is_some(), span.origin.is_some());
            launched.push(span.origin.map_or('-', |origin| (b'0' + (origin.0 - 5000) as u8) as char));
        }
        launched
    }

    #[test]
    fn steps_that_repeat_one_are_of_the_same_operators() {
        let mut repeated = Repeated::default();
        assert_eq!(run(&mut repeated, 0, "abcab", false), "-----", "nothing is known yet");
        assert_eq!(run(&mut repeated, 1, "abcab", true), "01234");
        assert_eq!(run(&mut repeated, 2, "abcab", false), "01234");
        assert_eq!(run(&mut repeated, 3, "abCab", false), "01-34", "in another shape it is other work");
        assert_eq!(run(&mut repeated, 4, "axcab", false), "0-234", "another kernel is something else");
        assert_eq!(run(&mut repeated, 5, "abcabc", false), "01234-", "there was no such launch");
        assert_eq!(run(&mut repeated, 6, "xyz", true), "012");
        assert_eq!(run(&mut repeated, 7, "xyzab", false), "01234", "the newest one counts, where it says something");
    }
}
