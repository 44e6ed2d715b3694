//! Where time goes: the figures of a window, which add up to its length.
//!
//! For users, it is defined in `docs/src/metrics.md#the-time-of-a-rank`.
//!
//! Over one rank's activity in a window, with C, N and M the unions of its compute kernels, its communication, and its
//! copies and fills: compute is |C|, exposed communication |N \ C|, exposed copies |M \ (C ∪ N)|, and idle is what no
//! activity covers. Together they are the window.

use crate::{figures::Partition, rank::sweep::Slice};

/// Adds a stretch of time to a window.
pub(crate) fn add_slice(partition: &mut Partition, slice: &Slice<'_>) {
    let length = slice.length();
    let [compute, communication, copy] = slice.active.map(|spans| !spans.is_empty());
    partition.span_ns += length;
    if compute {
        partition.compute_ns += length;
    }
    if communication {
        partition.communication_ns += length;
        *(if compute {
            &mut partition.overlapped_communication_ns
        } else {
            &mut partition.exposed_communication_ns
        }) += length;
    }
    if copy {
        partition.copy_ns += length;
    }
    match (compute || communication, copy) {
        (false, true) => partition.exposed_copy_ns += length,
        (false, false) => partition.idle_ns += length,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stepscope_traces::{NameId, Nanos, Span, SpanKind, Spans};

    use super::*;
    use crate::{
        figures::Share,
        rank::{activity::Activities, breakdown::BreakdownSum, sweep::sweep},
    };

    const TIME: i64 = 60;
    const KINDS: [SpanKind; 4] = [SpanKind::Kernel, SpanKind::AllReduce, SpanKind::Copy, SpanKind::Step];

    fn any_spans() -> impl Strategy<Value = Vec<(usize, i64, i64)>> {
        prop::collection::vec((0..KINDS.len(), 0..TIME, 0..9_i64), 0..14)
    }

    fn activities(spans: &[(usize, i64, i64)], offset: i64) -> Activities {
        let mut table = Spans::default();
        for (kind, start, duration) in spans {
            table.push(&Span::new(KINDS[*kind], NameId(4096), Nanos(start + offset), Nanos(*duration)));
        }
        let mut activities = Activities::new(&[]);
        activities.take(&table);
        activities.sort();
        activities
    }

    /// Looks at every nanosecond.
    fn brute_force(spans: &[(usize, i64, i64)], from: i64, to: i64) -> Partition {
        let mut partition = Partition::default();
        for time in from..to {
            let on = |kind: usize| {
                spans
                    .iter()
                    .any(|(other, start, duration)| *other == kind && (*start..start + duration).contains(&time))
            };
            let (compute, communication, copy) = (on(0), on(1), on(2));
            partition.span_ns += 1;
            partition.compute_ns += i64::from(compute);
            partition.communication_ns += i64::from(communication);
            partition.overlapped_communication_ns += i64::from(communication && compute);
            partition.exposed_communication_ns += i64::from(communication && !compute);
            partition.copy_ns += i64::from(copy);
            partition.exposed_copy_ns += i64::from(copy && !compute && !communication);
            partition.idle_ns += i64::from(!copy && !compute && !communication);
        }
        partition.finished()
    }

    proptest! {
        #[test]
        fn figures_are_what_every_nanosecond_says(
            spans in any_spans(),
            mut borders in prop::collection::vec(0..TIME + 9, 0..4),
            offset in prop::sample::select(&[0, 1 << 62, -(1 << 62)][..]),
        ) {
            let activities = activities(&spans, offset);
            borders.sort_unstable();
            let shifted: Vec<i64> = borders.iter().map(|border| border + offset).collect();
            let (mut whole, mut pieces) = (Partition::default(), Vec::<(i64, i64)>::new());
            let mut breakdown = BreakdownSum::new(&activities);
            sweep(&activities, &shifted, |slice| {
                add_slice(&mut whole, slice);
                breakdown.add(slice, &activities);
                pieces.push((slice.start, slice.end));
            });
            let whole = whole.finished();
            let activity = spans.iter().filter(|(kind, ..)| *kind < 3);
            let from = activity.clone().map(|(_, start, _)| *start).min().unwrap_or(0);
            let to = activity.map(|(_, start, duration)| start + duration).max().unwrap_or(0);
            prop_assert_eq!(whole, brute_force(&spans, from, to));
            prop_assert!(whole.adds_up());
            prop_assert!(pieces.windows(2).all(|pair| pair[0].1 == pair[1].0), "without holes");
            let crosses = |border: &i64| pieces.iter().any(|(start, end)| start < border && border < end);
            prop_assert!(!shifted.iter().any(crosses), "cut at every border");
            let breakdown = breakdown.finish(&activities);
            let sum = |of: fn(&Share) -> i64| breakdown.phases.iter().map(|phase| of(&phase.share)).sum::<i64>();
            prop_assert_eq!(sum(|share| share.compute_ns), whole.compute_ns);
            prop_assert_eq!(sum(|share| share.exposed_communication_ns), whole.exposed_communication_ns);
            prop_assert_eq!(sum(|share| share.exposed_copy_ns), whole.exposed_copy_ns);
            prop_assert_eq!(breakdown.axes.iter().map(|axis| axis.exposed_ns).sum::<i64>(), whole.exposed_communication_ns);
        }
    }
}
