//! Which messages a kernel carries.
//!
//! NCCL has one kernel for sends and receives, and for any number of them together, so that its name tells nothing. What a
//! program asked for is in the operators of the host: PyTorch notes each send and receive, with the group, the other rank
//! and the size, and launches the kernel after the last one of those that go together. So a kernel carries what the thread
//! that launched it asked for since the last one.
//!
//! A kernel with one message is that message. Its number is that of the messages from one rank to another in a step, which
//! is the same on both sides. Several messages in one kernel have no number that a span could hold.

use std::collections::HashMap;

use super::rows::{Activity, AskedMessage, Call};
use crate::{
    ids::{Group, MessageNumber, Nanos, Step},
    vocabulary::SpanKind,
};

/// Gives each kernel for messages what it carries, by which call launched each.
pub(crate) fn carry(
    activities: &mut [Activity],
    calls: &[Call],
    call_of: &[Option<u32>],
    mut asked: Vec<AskedMessage>,
) {
    if asked.is_empty() {
        return;
    }
    asked.sort_by_key(|message| (message.thread, message.start));
    let is_carrier = |kind: SpanKind| matches!(kind, SpanKind::Send | SpanKind::Receive | SpanKind::Communication);
    let launch = |(activity, call): (&Activity, &Option<u32>)| {
        let call = &calls[call.filter(|_| is_carrier(activity.span.kind))? as usize];
        Some((call.thread, call.start))
    };
    let launches = activities.iter().zip(call_of).enumerate();
    let launches = launches.filter_map(|(index, launched)| Some((launch(launched)?, index)));
    let mut launches: Vec<((Option<u32>, Nanos), usize)> = launches.collect();
    launches.sort_unstable();
    let mut numbers = Numbers::default();
    let mut next = 0;
    for ((thread, start), index) in launches {
        next += asked[next..].partition_point(|message| message.thread < thread);
        let count = asked[next..].partition_point(|message| (message.thread, message.start) <= (thread, start));
        put(&mut activities[index], &asked[next..next + count], &mut numbers);
        next += count;
    }
}

fn put(Activity { span, .. }: &mut Activity, carried: &[AskedMessage], numbers: &mut Numbers) {
    let Some((first, others)) = carried.split_first() else { return };
    let same = |of: fn(&AskedMessage, &AskedMessage) -> bool| others.iter().all(|other| of(first, other));
    span.kind = if same(|one, other| one.kind == other.kind) { first.kind } else { SpanKind::Communication };
    span.group = first.group.filter(|_| same(|one, other| one.group == other.group));
    span.bytes = carried.iter().try_fold(0_u64, |sum, message| sum.checked_add(message.bytes?));
    // All are counted, since the other side may have them in kernels of their own.
    let numbered: Vec<Option<MessageNumber>> = carried.iter().map(|message| numbers.next(message, span.step)).collect();
    if let [Some(number)] = numbered.as_slice() {
        span.sequence = Some((*number).into());
    }
}

/// How many messages there were from one rank to another in each step.
#[derive(Default)]
struct Numbers(HashMap<(Group, (u16, u16), Step), u16>);

impl Numbers {
    /// The number of the next one. Without steps ranks may have begun anywhere.
    fn next(&mut self, message: &AskedMessage, step: Option<Step>) -> Option<MessageNumber> {
        let (group, ends, step) = (message.group?, message.ends?, step?);
        let count = self.0.entry((group, ends, step)).or_default();
        let number = *count;
        *count = count.checked_add(1)?;
        let of_step = u32::from(step.0 as u16) << 16 | u32::from(number);
        Some(MessageNumber { count: of_step, from: ends.0, to: ends.1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ids::{NameId, Sequence},
        tables::Span,
    };

    const THREAD: Option<u32> = Some(3);

    fn asked(kind: SpanKind, start: i64, ends: (u16, u16)) -> AskedMessage {
        let (group, bytes) = (Some(Group(7)), Some(100));
        AskedMessage { thread: THREAD, start: Nanos(start), kind, group, bytes, ends: Some(ends) }
    }

    /// A kernel and the call that launched it.
    fn launched(start: i64) -> (Activity, Call) {
        let span = Span::new(SpanKind::Communication, NameId(0), Nanos(start + 50), Nanos(5));
        let span = Span { step: Some(Step(2)), ..span };
        let call = Call { correlation: 0, start: Nanos(start), duration: Nanos(1), thread: THREAD, name: NameId(0) };
        (Activity { span, device: None, external: None }, call)
    }

    #[test]
    fn a_kernel_carries_what_was_asked_for_since_the_last_one() {
        use SpanKind::{Communication, Receive, Send};
        let (mut activities, calls): (Vec<Activity>, Vec<Call>) = [10, 20, 30, 40].map(launched).into_iter().unzip();
        let elsewhere = AskedMessage { thread: Some(9), ..asked(Receive, 5, (5, 6)) };
        let messages = vec![
            asked(Receive, 28, (0, 1)),
            asked(Send, 27, (1, 2)),
            asked(Receive, 8, (0, 1)),
            asked(Send, 18, (1, 2)),
            elsewhere,
        ];
        carry(&mut activities, &calls, &[0, 1, 2, 3].map(Some), messages);
        let number = |count: u32, from, to| Some(Sequence::from(MessageNumber { count: 2 << 16 | count, from, to }));
        let carried: Vec<_> =
            activities.iter().map(|Activity { span, .. }| (span.kind, span.bytes, span.sequence)).collect();
        assert_eq!(
            carried,
            [
                (Receive, Some(100), number(0, 0, 1)),
                (Send, Some(100), number(0, 1, 2)),
                (Communication, Some(200), None),
                (Communication, None, None),
            ]
        );
        assert!(activities[..3].iter().all(|activity| activity.span.group == Some(Group(7))));
        assert_eq!(activities[3].span.group, None, "nothing says what it carries");
    }
}
