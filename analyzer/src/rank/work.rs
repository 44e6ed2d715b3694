//! The work of a pipeline stage: which micro-batch went through it, which way, and when.
//!
//! Where nothing numbers micro-batches, work is told from messages: a stage works on one micro-batch after another, and
//! passes it on. What a stage computes in one pass of a step, until the other pass begins, is divided where something was
//! received, since the next micro-batch has come; or where something was sent, if that happened more often meanwhile, as on
//! the stage that begins the pass. The first piece is of the first micro-batch. What is of one pass and takes next to no
//! time beside the others is a helper's, and does not interrupt the other pass. What comes after a step's last backward pass is
//! of no micro-batch.

use std::collections::BTreeMap;

use stepscope_traces::{MicroBatch, Phase, SpanKind, Step};

use crate::{
    figures::Class,
    rank::{
        activity::{Activities, ActivityPlace},
        axes::{is_hand_over, may_be_of_stages},
    },
    stored::{fields, one_of},
};

/// Forward or backward; what is computed again belongs to the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pass {
    /// Forward.
    Forward,
    /// Backward.
    Backward,
    /// The gradients of weights, where a schedule puts them off.
    Weights,
}

one_of!(Pass: [Pass::Forward, Pass::Backward, Pass::Weights]);

impl Pass {
    fn of(phase: Option<Phase>) -> Option<Pass> {
        match phase? {
            Phase::Forward => Some(Pass::Forward),
            Phase::Backward | Phase::Recompute => Some(Pass::Backward),
            _ => None,
        }
    }
}

/// One pass of one micro-batch, from its first kernel's start to its last kernel's end, in the rank's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkItem {
    /// In which step.
    pub step: Step,
    /// Of which micro-batch.
    pub micro_batch: MicroBatch,
    /// Which way.
    pub pass: Pass,
    /// When it begins.
    pub start: i64,
    /// When it ends.
    pub end: i64,
}

fields!(WorkItem { step, micro_batch, pass, start, end });

/// The work of a rank, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Work {
    pub(crate) items: Vec<WorkItem>,
    /// Whether micro-batches were told from messages.
    pub(crate) is_inferred: bool,
}

/// The work of a rank. The activities are sorted by start.
pub(crate) fn of_activities(activities: &Activities) -> Work {
    of(activities.items.iter().map(|activity| (activity.start, activity.end, activities.place(activity))))
}

/// The work of a rank. Each activity begins no earlier than the one before it.
pub(crate) fn of<'a>(activities: impl Iterator<Item = (i64, i64, &'a ActivityPlace)> + Clone) -> Work {
    match numbered(activities.clone()) {
        items if items.is_empty() => Work { items: between_messages(activities), is_inferred: true },
        items => Work { items, is_inferred: false },
    }
}

/// Work of which the program says the micro-batch: runs of kernels that belong together, since a stage does one thing after
/// another.
fn numbered<'a>(activities: impl Iterator<Item = (i64, i64, &'a ActivityPlace)>) -> Vec<WorkItem> {
    let mut items: Vec<WorkItem> = Vec::new();
    for (start, end, place) in activities {
        let (Class::Compute, Some(step), Some(micro_batch), Some(pass)) =
            (place.class, place.step, place.micro_batch, Pass::of(place.phase))
        else {
            continue;
        };
        match items.last_mut() {
            Some(last) if (last.step, last.micro_batch, last.pass) == (step, micro_batch, pass) => {
                last.end = end.max(last.end);
            }
            _ => items.push(WorkItem { step, micro_batch, pass, start, end }),
        }
    }
    items
}

/// Kernels of one pass of a step, until the other pass begins.
struct PassRun {
    step: Step,
    pass: Pass,
    kernels: Vec<(i64, i64)>,
}

impl PassRun {
    /// Whether it takes next to no time beside the usual one of its pass.
    fn is_helper(&self, usual: &[i64; 2]) -> bool {
        const NEXT_TO_NOTHING: i64 = 20;
        self.time() < usual[self.pass as usize] / NEXT_TO_NOTHING
    }

    fn time(&self) -> i64 {
        self.kernels.iter().fold(0, |sum, (start, end)| sum.saturating_add(end.saturating_sub(*start)))
    }
}

fn between_messages<'a>(activities: impl Iterator<Item = (i64, i64, &'a ActivityPlace)>) -> Vec<WorkItem> {
    let (mut runs, mut received, mut sent): (Vec<PassRun>, Vec<i64>, Vec<i64>) = Default::default();
    let mut first_messages: BTreeMap<Step, (SpanKind, i64)> = BTreeMap::new();
    for (start, end, place) in activities {
        match (place.class, place.step, Pass::of(place.phase)) {
            (Class::Compute, Some(step), Some(pass)) => add_kernel(&mut runs, step, pass, (start, end)),
            (Class::Communication, ..) if may_be_of_stages(place.axis) => {
                let operation = place.operation.filter(|operation| is_hand_over(*operation));
                // One kernel may do both.
                sent.extend(operation.filter(|operation| *operation != SpanKind::Receive).map(|_| start));
                received.extend(operation.filter(|operation| *operation != SpanKind::Send).map(|_| end));
                if let (Some(step), Some(operation)) = (place.step, operation) {
                    first_messages.entry(step).or_insert((operation, end));
                }
            }
            _ => {}
        }
    }
    if received.is_empty() && sent.is_empty() {
        return Vec::new();
    }
    received.sort_unstable();
    // A stage that begins by receiving has nothing to do before: that prepares a step.
    let is_prepared = |step: Step| match first_messages.get(&step) {
        Some((SpanKind::Receive, end)) => *end,
        _ => i64::MIN,
    };
    for run in runs.iter_mut().filter(|run| run.pass == Pass::Forward) {
        let begin = is_prepared(run.step);
        run.kernels.retain(|(start, _)| *start >= begin);
    }
    runs.retain(|run| !run.kernels.is_empty());
    let mut pieces: Vec<PassRun> = Vec::new();
    for PassRun { step, pass, kernels } in without_ends_of_steps(without_helpers(runs)) {
        let (first, last) = (kernels[0].0, kernels[kernels.len() - 1].0);
        let inside = |times: &[i64]| {
            let from = times.partition_point(|time| *time <= first);
            times[from..times.partition_point(|time| *time <= last).max(from)].to_vec()
        };
        let (received, sent) = (inside(&received), inside(&sent));
        let cuts = if sent.len() > received.len() { sent } else { received };
        let piece = |kernel: &(i64, i64)| cuts.partition_point(|cut| *cut <= kernel.0);
        let divided = kernels.chunk_by(|one, other| piece(one) == piece(other));
        pieces.extend(divided.map(|kernels| PassRun { step, pass, kernels: kernels.to_vec() }));
    }
    let usual = usual_times(&pieces);
    let mut items: Vec<WorkItem> = Vec::new();
    let mut counts = (None, [0; 2]);
    // What prepares a step, or comes after its last pass, is of no micro-batch.
    for PassRun { step, pass, kernels } in pieces.into_iter().filter(|piece| !piece.is_helper(&usual)) {
        if counts.0 != Some(step) {
            counts = (Some(step), [0; 2]);
        }
        let count = &mut counts.1[pass as usize];
        let end = kernels.iter().map(|(_, end)| *end).max().unwrap_or(kernels[0].1);
        items.push(WorkItem { step, micro_batch: MicroBatch(*count), pass, start: kernels[0].0, end });
        *count += 1;
    }
    items
}

fn add_kernel(runs: &mut Vec<PassRun>, step: Step, pass: Pass, kernel: (i64, i64)) {
    match runs.last_mut() {
        Some(last) if (last.step, last.pass) == (step, pass) => last.kernels.push(kernel),
        _ => runs.push(PassRun { step, pass, kernels: vec![kernel] }),
    }
}

/// The usual time of each pass among some runs.
fn usual_times(runs: &[PassRun]) -> [i64; 2] {
    [Pass::Forward, Pass::Backward].map(|pass| {
        let mut times: Vec<i64> = runs.iter().filter(|run| run.pass == pass).map(PassRun::time).collect();
        times.sort_unstable();
        // Helpers may be as many as passes are.
        times.get(times.len() * 3 / 4).copied().unwrap_or(0)
    })
}

/// The runs that take more than next to no time beside the usual one of their pass.
fn without_helpers(runs: Vec<PassRun>) -> Vec<PassRun> {
    let usual = usual_times(&runs);
    let mut kept: Vec<PassRun> = Vec::new();
    for run in runs.into_iter().filter(|run| !run.is_helper(&usual)) {
        match kept.last_mut() {
            Some(last) if (last.step, last.pass) == (run.step, run.pass) => last.kernels.extend(run.kernels),
            _ => kept.push(run),
        }
    }
    kept
}

/// The runs but for what comes after the last backward pass of a step: no micro-batch goes forward that does not come back.
fn without_ends_of_steps(mut runs: Vec<PassRun>) -> Vec<PassRun> {
    let steps: Vec<Step> = runs.iter().map(|run| run.step).collect();
    let is_of = |step: Step, at: Option<usize>| at.and_then(|at| steps.get(at)) == Some(&step);
    let mut at = 0_usize;
    runs.retain(|run| {
        let is_end =
            run.pass == Pass::Forward && is_of(run.step, at.checked_sub(1)) && !is_of(run.step, at.checked_add(1));
        at += 1;
        !is_end
    });
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: ActivityPlace = ActivityPlace {
        class: Class::Compute,
        step: Some(Step(0)),
        micro_batch: None,
        phase: None,
        layer: None,
        operation: None,
        axis: None,
    };

    /// What a stage does: letters, each for 10 ns, one after another. `F` and `B` are kernels of a pass, `f` one that
    /// takes next to no time, `s`, `r` and `x` a send, a receive and both in one; a space is time.
    fn work(text: &str) -> Vec<(Pass, i32, i64, i64)> {
        let place = |letter: char| {
            let talk = |operation| ActivityPlace { class: Class::Communication, operation: Some(operation), ..BASE };
            match letter {
                'F' | 'f' => ActivityPlace { phase: Some(Phase::Forward), ..BASE },
                'B' => ActivityPlace { phase: Some(Phase::Backward), ..BASE },
                's' => talk(SpanKind::Send),
                'r' => talk(SpanKind::Receive),
                _ => talk(SpanKind::Communication),
            }
        };
        let letters = (0..).zip(text.chars()).filter(|(_, letter)| *letter != ' ');
        let places: Vec<(i64, i64, ActivityPlace)> = letters
            .map(|(index, letter)| (index * 1000, index * 1000 + if letter == 'f' { 1 } else { 1000 }, place(letter)))
            .collect();
        let work = of(places.iter().map(|(start, end, place)| (*start, *end, place)));
        assert!(work.is_inferred);
        work.items.iter().map(|item| (item.pass, item.micro_batch.0, item.start / 1000, item.end / 1000)).collect()
    }

    #[test]
    fn micro_batches_are_told_from_messages() {
        use Pass::{Backward as B, Forward as F};
        // The first, a middle and the last stage of GPipe with two micro-batches.
        assert_eq!(work("FFsFFs  rBBrBB"), [(F, 0, 0, 2), (F, 1, 3, 5), (B, 0, 9, 11), (B, 1, 12, 14)]);
        assert_eq!(work("rFFsrFFsrBBsrBBs"), [(F, 0, 1, 3), (F, 1, 5, 7), (B, 0, 9, 11), (B, 1, 13, 15)]);
        assert_eq!(work("rFFrFFBBsBBs"), [(F, 0, 1, 3), (F, 1, 4, 6), (B, 0, 6, 8), (B, 1, 9, 11)]);
        // Of 1F1B with three, the first stage of two, which has no messages between backward and forward, and the last.
        assert_eq!(
            work("FFsFFxBBFFxBBrBB"),
            [(F, 0, 0, 2), (F, 1, 3, 5), (B, 0, 6, 8), (F, 2, 8, 10), (B, 1, 11, 13), (B, 2, 14, 16)]
        );
        assert_eq!(work("rFFBBxFFBBs"), [(F, 0, 1, 3), (B, 0, 3, 5), (F, 1, 6, 8), (B, 1, 8, 10)]);
    }

    #[test]
    fn what_takes_next_to_no_time_is_no_pass() {
        use Pass::{Backward as B, Forward as F};
        assert_eq!(work("rFFsrBfBBsrBfBs"), [(F, 0, 1, 3), (B, 0, 5, 9), (B, 1, 11, 14)]);
        // What prepares a step, before the first message, however long it takes.
        assert_eq!(work("FFrFFsrBBs"), [(F, 0, 3, 5), (B, 0, 7, 9)]);
        assert_eq!(work("frFFsrFFsrBBsrBBs"), [(F, 0, 2, 4), (F, 1, 6, 8), (B, 0, 10, 12), (B, 1, 14, 16)]);
    }

    #[test]
    fn what_comes_after_the_last_backward_pass_is_of_no_micro_batch() {
        use Pass::{Backward as B, Forward as F};
        assert_eq!(work("rFFsrBBsFF"), [(F, 0, 1, 3), (B, 0, 5, 7)]);
        assert_eq!(work("rFFsrFF"), [(F, 0, 1, 3), (F, 1, 5, 7)], "nothing comes back here");
    }

    #[test]
    fn without_messages_there_is_no_work_to_tell() {
        assert_eq!(work("FFBB"), []);
    }
}
