//! Who keeps everyone waiting.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use stepscope_traces::{Group, Rank};

use super::{
    message::Health,
    progress::{Channel, Operation},
};
use crate::comm::Reason;

/// Which ranks an operation needs.
pub(crate) fn members(operation: &Operation, groups: &HashMap<Group, Vec<Rank>>, world: usize) -> Vec<Rank> {
    match &operation.channel {
        Channel::Collective(group) => groups.get(group).cloned().unwrap_or_default(),
        Channel::Message { from, to, .. } => vec![*from, *to],
        Channel::Exchange(_) => (0..world as u32).map(Rank).collect(),
    }
}

/// Why `rank` does not get out of an operation: whoever has not come to it; or, where that one waits too, whoever it
/// waits for.
pub(crate) fn blame(
    rank: Rank,
    operation: &Operation,
    health: &[Health],
    groups: &HashMap<Group, Vec<Rank>>,
    bound: Duration,
) -> Reason {
    let mut seen = HashSet::from([rank]);
    let mut late = None;
    let mut waits_for = operation.clone();
    loop {
        let needed = members(&waits_for, groups, health.len());
        let missing =
            |rank: &Rank| health.get(rank.0 as usize).is_some_and(|health| !health.report.has_started(&waits_for));
        // Likeliest is whoever has been silent for longest; then whoever does not wait itself.
        let missing = needed.into_iter().filter(|rank| !seen.contains(rank)).filter(missing);
        let Some(next) = missing.max_by_key(|rank| likelihood(&health[rank.0 as usize])) else { break };
        seen.insert(next);
        late = Some((next, waits_for.clone()));
        match health[next.0 as usize].report.open.first() {
            Some(open) => waits_for = open.clone(),
            None => break,
        }
    }
    let seconds = bound.as_secs_f64();
    match late {
        Some((rank, operation)) => {
            let Health { report, silent_ms } = &health[rank.0 as usize];
            let mut why = format!("has not reached {operation} for {seconds} s; ");
            why += &match &report.finished {
                Some(finished) => format!("last finished operation: {finished}"),
                None => "it has not finished any operation".into(),
            };
            if *silent_ms >= 2000 {
                why += &format!(", and no answer for {} s", silent_ms / 1000);
            }
            Reason::Late { rank, why }
        }
        None => {
            let why = format!("has been in {operation} for {seconds} s, although every rank has reached it");
            Reason::Late { rank, why }
        }
    }
}

fn likelihood(health: &Health) -> (u64, bool) {
    (health.silent_ms / 1000, health.report.open.is_empty())
}

#[cfg(test)]
mod tests {
    use stepscope_traces::SpanKind;

    use super::{super::progress::Report, *};

    fn all_reduce(group: u32, number: u64) -> Operation {
        Operation { channel: Channel::Collective(Group(group)), number, kind: SpanKind::AllReduce }
    }

    fn message(from: u32, to: u32, number: u64) -> Operation {
        let channel = Channel::Message { group: Group(9), from: Rank(from), to: Rank(to) };
        Operation { channel, number, kind: SpanKind::Receive }
    }

    /// A rank that is in an operation, or has finished one.
    fn waiting_in(operation: &Operation, finished: Option<&Operation>) -> Health {
        let (started, open) = (vec![operation.clone()], vec![operation.clone()]);
        Health { report: Report { started, open, finished: finished.cloned() }, silent_ms: 100 }
    }

    fn after(finished: Option<&Operation>) -> Health {
        let started = finished.into_iter().cloned().collect();
        Health { report: Report { started, open: Vec::new(), finished: finished.cloned() }, silent_ms: 100 }
    }

    fn verdict(operation: &Operation, health: &[Health]) -> (Rank, String) {
        let members = [(0, vec![0, 1, 2]), (1, vec![1, 2]), (2, vec![0, 1])];
        let groups = members.map(|(group, ranks)| (Group(group), ranks.into_iter().map(Rank).collect())).into();
        match blame(Rank(0), operation, health, &groups, Duration::from_secs(60)) {
            Reason::Late { rank, why } | Reason::Gone { rank, why } => (rank, why),
        }
    }

    #[test]
    fn whoever_did_not_come_is_named() {
        let (now, before) = (all_reduce(0, 17), all_reduce(0, 16));
        let waiting = waiting_in(&now, Some(&before));
        let mut hanging = after(Some(&before));
        let (late, why) = verdict(&now, &[waiting.clone(), waiting.clone(), hanging.clone()]);
        assert_eq!(late, Rank(2));
        assert_eq!(
            why,
            "has not reached all_reduce 17 of group 0 for 60 s; last finished operation: all_reduce 16 of group 0"
        );
        hanging.silent_ms = 5000;
        let (_, why) = verdict(&now, &[waiting.clone(), waiting.clone(), hanging]);
        assert!(why.ends_with("and no answer for 5 s"), "{why}");
        let (late, why) = verdict(&now, &[waiting.clone(), waiting.clone(), waiting]);
        assert_eq!((late, why.contains("although every rank has reached it")), (Rank(0), true));
    }

    #[test]
    fn who_waits_is_not_to_blame() {
        let (now, inner, awaited) = (all_reduce(2, 3), all_reduce(1, 8), message(2, 1, 5));
        let zero = waiting_in(&now, None);
        for open in [inner, awaited] {
            let one = waiting_in(&open, None);
            let two = after(None);
            let (late, why) = verdict(&now, &[zero.clone(), one, two]);
            assert_eq!(late, Rank(2));
            assert!(
                why.contains(&format!("has not reached {open} for 60 s; it has not finished any operation")),
                "{why}"
            );
        }
    }

    #[test]
    fn ranks_that_wait_in_a_circle_are_an_answer_too() {
        let (left, right) = (message(1, 0, 0), message(0, 1, 0));
        let zero = waiting_in(&left, None);
        let one = waiting_in(&right, None);
        assert_eq!(verdict(&left, &[zero, one]).0, Rank(1));
    }
}
