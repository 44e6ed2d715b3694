//! Communication that did not end.

use stepscope_plan::text;
use stepscope_traces::{OperationState, Rank};

use super::{Check, Found};
use crate::figures::{Analysis, Hang, HangCause, PendingOperation, RankOperation, WaitingRank};

/// How many ranks are told one by one.
const MOST_TOLD: usize = 4;

/// Ranks that wait in communication when their recorder writes down what it knows.
pub(super) struct HangingJob;

impl Check for HangingJob {
    const KIND: &'static str = "hang";

    fn find(analysis: &Analysis) -> Option<Found> {
        let hang = analysis.hang.as_ref()?;
        let HangWords { summary, elsewhere, evidence, advice } = HangWords::of(hang);
        let (evidence, ranks) = ([elsewhere, evidence].concat().join("; "), hang.ranks.clone());
        Some(Found { share: 1.0, summary, evidence, advice, ranks, ..Found::default() })
    }
}

/// What is said of a hang.
pub(crate) struct HangWords {
    pub(crate) summary: String,
    /// Where the ranks are that did not come.
    pub(crate) elsewhere: Vec<String>,
    pub(crate) evidence: Vec<String>,
    pub(crate) advice: String,
}

impl HangWords {
    pub(crate) fn of(hang: &Hang) -> HangWords {
        HangWords { summary: what(hang), elsewhere: elsewhere(hang), evidence: evidence(hang), advice: advice(hang) }
    }
}

fn what(hang: &Hang) -> String {
    let (ranks, at) = (ranks(&hang.ranks), named(&hang.operation));
    match hang.cause {
        HangCause::Absent => format!("{ranks} did not {}: {}", come_to(&hang.operation), waiters(hang)),
        HangCause::NoDump => {
            let one = if hang.waiting.len() == 1 { "" } else { ", one of them" };
            format!("nothing is known of {ranks}: {}{one} in {at}", waiters(hang))
        }
        HangCause::Mismatch if hang.operation.peer.is_some() => {
            format!("{ranks} send and receive different sizes or types in {}", hang.operation.group)
        }
        HangCause::Mismatch if is_one_name(hang) => format!("{at} has another size or type on {ranks}"),
        HangCause::Mismatch => {
            format!("{ranks} call another collective as #{} of {}", hang.operation.sequence, hang.operation.group)
        }
        HangCause::Deadlock => format!("{ranks} wait for each other in a circle"),
        HangCause::AllCame => format!("{at} does not end, though all of its ranks came: {ranks}"),
    }
}

/// What somebody did not do, for others to go on.
fn come_to(operation: &PendingOperation) -> String {
    match operation.peer {
        Some(_) if operation.operation == "recv" => format!("send in {}, which is waited for", operation.group),
        Some(_) => format!("receive in {}, which is waited for", operation.group),
        None => format!("come to {}", named(operation)),
    }
}

/// Who waits because of the cause, as the subject of a sentence.
fn waiters(hang: &Hang) -> String {
    let waiting = hang.waiting.len();
    if waiting == 1 { "1 rank waits".to_owned() } else { format!("{waiting} ranks wait") }
}

fn elsewhere(hang: &Hang) -> Vec<String> {
    let absent = hang.elsewhere.iter().filter(|elsewhere| hang.ranks.contains(&elsewhere.rank)).take(MOST_TOLD);
    let told = absent.map(|elsewhere| match (elsewhere.place(), &elsewhere.last) {
        (Some(place), _) => format!("rank {} is at {place}", elsewhere.rank),
        (None, Some(last)) => format!("rank {} last finished {}{}", elsewhere.rank, named(last), at(last)),
        (None, None) => format!("nothing says what rank {} does instead", elsewhere.rank),
    });
    told.collect()
}

fn evidence(hang: &Hang) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    let told = if hang.differing.is_empty() { told_waiting(hang) } else { told_differing(hang) };
    parts.extend(told.iter().map(|(_, words)| words.clone()));
    let more = hang.waiting.iter().filter(|one| told.iter().all(|(rank, _)| *rank != one.rank)).count();
    if more > 0 {
        let wait = if more == 1 { "waits" } else { "wait" };
        parts.push(format!("{} {wait}", text::counted(more as u64, "more rank")));
    }
    if !hang.without_dump.is_empty() && hang.cause != HangCause::NoDump {
        parts.push(format!("nothing is known of {}", ranks(&hang.without_dump)));
    }
    parts
}

/// The ranks that wait for the cause itself, each with what is said of it. One whose GPU has not begun comes first.
fn told_waiting(hang: &Hang) -> Vec<(Rank, String)> {
    let mut told: Vec<&WaitingRank> = hang.waiting.iter().filter(|one| is_next(hang, one)).collect();
    told.sort_by_key(|one| (!is_at(hang, one), one.operation.state != Some(OperationState::Scheduled)));
    let words = |waiting: &WaitingRank| {
        let operation = &waiting.operation;
        let given = match hang.cause {
            HangCause::Mismatch => format!(" of {}", given(operation)),
            HangCause::Deadlock => format!(" for {}", ranks(&waiting.waits_for)),
            _ => String::new(),
        };
        format!("rank {} waits in {}{given}{}{}", waiting.rank, named(operation), at(operation), begun(operation))
    };
    told.into_iter().take(MOST_TOLD).map(|waiting| (waiting.rank, words(waiting))).collect()
}

/// The ranks that do something else than others in a collective, and one of those.
fn told_differing(hang: &Hang) -> Vec<(Rank, String)> {
    let (differ, right): (Vec<&RankOperation>, Vec<_>) =
        hang.differing.iter().partition(|one| hang.ranks.contains(&one.rank));
    let words = |RankOperation { rank, operation }: &RankOperation| {
        let did = match operation.state {
            Some(OperationState::Completed) => "finished",
            _ => "waits in",
        };
        format!("rank {rank} {did} {} of {}{}{}", named(operation), given(operation), at(operation), begun(operation))
    };
    let room = MOST_TOLD - right.len().min(1);
    differ.into_iter().take(room).chain(right.into_iter().take(1)).map(|one| (one.rank, words(one))).collect()
}

/// Whether the GPU has begun what its rank waits in, where that is known.
fn begun(operation: &PendingOperation) -> &'static str {
    match operation.state {
        Some(OperationState::Scheduled) => ", which its GPU has not begun",
        Some(OperationState::Started) => ", which its GPU has begun",
        Some(OperationState::Completed) | None => "",
    }
}

/// Whether a rank waits for the cause itself, and not for others that do.
fn is_next(hang: &Hang, waiting: &WaitingRank) -> bool {
    match hang.cause {
        HangCause::Absent | HangCause::NoDump => waiting.waits_for.iter().any(|rank| hang.ranks.contains(rank)),
        HangCause::Mismatch | HangCause::Deadlock | HangCause::AllCame => hang.ranks.contains(&waiting.rank),
    }
}

/// Whether a rank waits in the operation that does not end.
fn is_at(hang: &Hang, waiting: &WaitingRank) -> bool {
    let PendingOperation { group, group_ranks, sequence, .. } = &hang.operation;
    (&waiting.operation.group, &waiting.operation.group_ranks, waiting.operation.sequence)
        == (group, group_ranks, *sequence)
}

/// Whether all ranks of the operation call it by one name.
fn is_one_name(hang: &Hang) -> bool {
    hang.differing.iter().all(|one| one.operation.operation == hang.operation.operation)
}

fn advice(hang: &Hang) -> String {
    match hang.cause {
        HangCause::Absent => {
            let last = hang.elsewhere.iter().find(|elsewhere| hang.ranks.contains(&elsewhere.rank));
            let behind = last.and_then(|elsewhere| elsewhere.last.as_ref()).map_or_else(String::new, |last| {
                last.caller().map_or_else(String::new, |caller| format!(" after {caller}"))
            });
            let is_known = hang.elsewhere.iter().any(|elsewhere| elsewhere.place().is_some());
            let how = if is_known { "" } else { ": `py-spy dump --pid PID` while it hangs, or its log" };
            format!("look at what {} does{behind}{how}", ranks(&hang.ranks))
        }
        HangCause::NoDump => {
            format!("look for an error in the log of {}, or add its dump if there is one", ranks(&hang.ranks))
        }
        HangCause::Mismatch => {
            "make all ranks of the group call the same collectives in the same order, with the same sizes".into()
        }
        HangCause::Deadlock => "make all ranks use their groups in the same order".into(),
        HangCause::AllCame => {
            "check the network and the GPUs of these ranks: NCCL_DEBUG=WARN, Xid errors in dmesg, link counters".into()
        }
    }
}

/// An operation by its number and group.
fn named(operation: &PendingOperation) -> String {
    let PendingOperation { operation: name, group, sequence, peer, group_ranks, .. } = operation;
    match peer {
        Some(peer) if name == "recv" => format!("recv from rank {peer} in {group}"),
        Some(peer) => format!("{name} to rank {peer} in {group}"),
        None => format!("{name} #{sequence} of {group} ({})", ranks(group_ranks)),
    }
}

/// What an operation was given.
fn given(operation: &PendingOperation) -> String {
    let sizes = operation.input_sizes.iter().map(|sizes| format!("{sizes:?}"));
    format!("{} {}", sizes.collect::<Vec<_>>().join(" "), operation.types.join(" ")).trim().to_owned()
}

fn at(operation: &PendingOperation) -> String {
    operation.caller().map_or_else(String::new, |caller| format!(" at {caller}"))
}

fn ranks(ranks: &[Rank]) -> String {
    text::named_ranks(&ranks.iter().map(|rank| rank.0).collect::<Vec<_>>())
}
