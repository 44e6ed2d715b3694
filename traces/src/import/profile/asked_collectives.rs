//! Which collective a kernel is, where the trace does not say it of the kernel.
//!
//! Traces of older versions of PyTorch have the kernels of NCCL by name alone, and one name is of several operations. But each
//! is launched inside of a range on the host that says what is asked for: `nccl:all_to_all`, with the tensors, where shapes
//! are recorded. The group is not in it.

use super::rows::{Activity, AskedCollective, Call};
use crate::vocabulary::SpanKind;

/// Tells kernels of which nothing is said what they were asked for, by which call launched each.
pub(super) fn tell(
    activities: &mut [Activity],
    calls: &[Call],
    call_of: &[Option<u32>],
    mut asked: Vec<AskedCollective>,
) {
    asked.sort_by_key(|asked| (asked.thread, asked.start));
    let asked_for = |(activity, call): (&Activity, &Option<u32>)| {
        let span = &activity.span;
        let is_open = span.kind.is_communication() && span.group.is_none() && span.bytes.is_none();
        let call = &calls[call.filter(|_| is_open)? as usize];
        // The last one that began is the innermost.
        let begun = asked.partition_point(|asked| (asked.thread, asked.start) <= (call.thread, call.start));
        let last = begun.checked_sub(1)?;
        let is_around = asked[last].thread == call.thread && call.start < asked[last].start + asked[last].duration;
        is_around.then_some(last)
    };
    let told = activities.iter().zip(call_of).enumerate();
    let told = told.filter_map(|(index, launched)| Some((asked_for(launched)?, index)));
    let mut told: Vec<(usize, usize)> = told.collect();
    told.sort_unstable();
    for kernels in told.chunk_by(|one, other| one.0 == other.0) {
        let AskedCollective { kind, bytes, .. } = asked[kernels[0].0];
        for (_, index) in kernels {
            let span = &mut activities[*index].span;
            if span.kind == SpanKind::Communication {
                span.kind = kind;
            }
            // What several kernels share, none has alone.
            span.bytes = bytes.filter(|_| kernels.len() == 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ids::{Group, NameId, Nanos},
        tables::Span,
    };

    #[test]
    fn kernels_are_what_the_range_around_their_launch_says() {
        use SpanKind::{AllReduce, AllToAll, Communication, Kernel};
        let asked = |thread, start, duration, kind, bytes| AskedCollective {
            thread: Some(thread),
            start: Nanos(start),
            duration: Nanos(duration),
            kind,
            bytes,
        };
        let launched = |thread: u32, start: i64, kind: SpanKind| {
            let span = Span::new(kind, NameId(0), Nanos(1_000 + start), Nanos(5));
            let (start, duration) = (Nanos(start), Nanos(1));
            let call = Call { correlation: 0, start, duration, thread: Some(thread), name: NameId(0) };
            (Activity { span, device: None, external: None }, call)
        };
        let (mut activities, calls): (Vec<Activity>, Vec<Call>) = [
            launched(7, 15, Communication),
            launched(7, 16, Kernel),
            launched(8, 15, Communication),
            launched(7, 20, Communication),
            launched(7, 35, AllReduce),
            launched(7, 36, Communication),
            launched(7, 15, Communication),
        ]
        .into_iter()
        .unzip();
        activities[6].span.group = Some(Group(1));
        tell(
            &mut activities,
            &calls,
            &[0, 1, 2, 3, 4, 5, 6].map(Some),
            // Out of order, and one around another.
            vec![
                asked(7, 30, 10, AllToAll, Some(90)),
                asked(7, 5, 15, AllReduce, None),
                asked(7, 10, 10, AllToAll, Some(70)),
            ],
        );
        let told: Vec<_> = activities.iter().map(|activity| (activity.span.kind, activity.span.bytes)).collect();
        assert_eq!(
            told,
            [
                (AllToAll, Some(70)),
                (Kernel, None),
                (Communication, None),
                (Communication, None),
                (AllReduce, None),
                (AllToAll, None),
                (Communication, None),
            ]
        );
    }
}
