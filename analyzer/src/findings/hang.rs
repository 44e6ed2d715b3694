//! Communication that did not end.

use stepscope_plan::text;
use stepscope_traces::Rank;

use super::{Check, Found};
use crate::figures::{Analysis, Hang as Figures, HangCause, PendingOperation, WaitingRank};

/// How many ranks are told one by one.
const MOST_TOLD: usize = 4;

/// Ranks that wait in communication when their recorder writes down what it knows.
pub(super) struct Hang;

impl Check for Hang {
    const KIND: &'static str = "hang";

    fn find(analysis: &Analysis) -> Option<Found> {
        let hang = analysis.hang.as_ref()?;
        Some(Found { share: 1.0, what: what(hang), evidence: evidence(hang), advice: advice(hang) })
    }
}

fn what(hang: &Figures) -> String {
    let (ranks, at) = (ranks(&hang.ranks), named(&hang.operation));
    match hang.cause {
        HangCause::Absent => format!("{ranks} did not come to {at}: {} for it", waiters(hang)),
        HangCause::NoDump => format!("there is no dump of {ranks}: {} for it in {at}", waiters(hang)),
        HangCause::Mismatch if is_one_name(hang) => format!("{ranks} call {at} with different sizes or types"),
        HangCause::Mismatch => {
            format!("{ranks} call different collectives as #{} of {}", hang.operation.sequence, hang.operation.group)
        }
        HangCause::Deadlock => format!("{ranks} wait for each other in a circle"),
        HangCause::AllCame => format!("{at} does not end, though all of its ranks came: {ranks}"),
    }
}

/// Who waits because of the cause, as the subject of a sentence.
fn waiters(hang: &Figures) -> String {
    let waiting = hang.waiting.len();
    if waiting == 1 { "1 rank waits".to_owned() } else { format!("{waiting} ranks wait") }
}

fn evidence(hang: &Figures) -> String {
    let mut parts: Vec<String> = Vec::new();
    for elsewhere in hang.elsewhere.iter().filter(|elsewhere| hang.ranks.contains(&elsewhere.rank)).take(MOST_TOLD) {
        parts.push(match &elsewhere.last {
            Some(last) => format!("rank {} last finished {}{}", elsewhere.rank, named(last), at(last)),
            None => format!("the dump does not say what rank {} did before", elsewhere.rank),
        });
    }
    let (told, behind): (Vec<&WaitingRank>, Vec<&WaitingRank>) =
        hang.waiting.iter().partition(|one| is_next(hang, one));
    for waiting in told.iter().take(MOST_TOLD) {
        let operation = &waiting.operation;
        let given = match hang.cause {
            HangCause::Mismatch => format!(" of {}", given(operation)),
            HangCause::Deadlock => format!(" for {}", ranks(&waiting.waits_for)),
            _ => String::new(),
        };
        parts.push(format!("rank {} waits in {}{given}{}", waiting.rank, named(operation), at(operation)));
    }
    let more = behind.len() + told.len().saturating_sub(MOST_TOLD);
    if more > 0 {
        parts.push(format!("{} behind them", text::counted(more as u64, "more rank")));
    }
    if !hang.without_dump.is_empty() && hang.cause != HangCause::NoDump {
        parts.push(format!("there is no dump of {}", ranks(&hang.without_dump)));
    }
    parts.join("; ")
}

/// Whether a rank waits for the cause itself, and not for others that do.
fn is_next(hang: &Figures, waiting: &WaitingRank) -> bool {
    match hang.cause {
        HangCause::Absent | HangCause::NoDump => waiting.waits_for.iter().any(|rank| hang.ranks.contains(rank)),
        HangCause::Mismatch | HangCause::Deadlock | HangCause::AllCame => hang.ranks.contains(&waiting.rank),
    }
}

/// Whether the ranks whose fault it is call the same collective.
fn is_one_name(hang: &Figures) -> bool {
    let at_fault = hang.waiting.iter().filter(|waiting| hang.ranks.contains(&waiting.rank));
    at_fault.map(|waiting| &waiting.operation.operation).all(|name| *name == hang.operation.operation)
}

fn advice(hang: &Figures) -> String {
    match hang.cause {
        HangCause::Absent => {
            let last = hang.elsewhere.iter().find(|elsewhere| hang.ranks.contains(&elsewhere.rank));
            let behind = last.and_then(|elsewhere| elsewhere.last.as_ref()).map_or_else(String::new, |last| {
                last.caller().map_or_else(String::new, |caller| format!(" after {caller}"))
            });
            format!(
                "look at what {} does{behind}: `py-spy dump --pid PID` while it hangs, or its log",
                ranks(&hang.ranks)
            )
        }
        HangCause::NoDump => {
            format!("look at the log of {}: it may have died; or add its dump", ranks(&hang.ranks))
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
