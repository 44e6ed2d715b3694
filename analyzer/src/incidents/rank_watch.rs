//! The steps and the loss of one rank, followed.

use std::{collections::VecDeque, path::PathBuf, time::Instant};

use stepscope_traces::{
    Counter, Follower, Phase, RankData, RankDirectory, STOOD_STILL, SpanKind, Spans, Step, TraceError,
};

use super::step_pace::StepPace;

/// How much of a file is read at once.
const BYTES_AT_ONCE: u64 = 4 << 20;
/// How many beginnings of steps are remembered, and how many pauses.
const MOST_REMEMBERED: usize = 4096;

/// One rank, followed.
pub(super) struct RankWatch {
    pub(super) path: PathBuf,
    follower: Follower,
    data: RankData,
    /// When the last steps began, on the rank's clock.
    began: VecDeque<(Step, i64)>,
    /// When it did something else than train: evaluate, save.
    pauses: VecDeque<(i64, i64)>,
    /// When its process stood still.
    standstills: VecDeque<(i64, i64)>,
    pace: StepPace,
    is_loss_finite: bool,
    /// When anything was heard of it last, and when another step.
    pub(super) heard: Option<Instant>,
    pub(super) stepped: Option<Instant>,
}

/// What is not as it should be, with one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Noticed {
    Slow { step: Step, took_ns: i64, usual_ns: i64 },
    LossNotFinite { step: Option<Step>, loss: f64 },
}

impl RankWatch {
    pub(super) fn new(rank: &RankDirectory) -> Result<RankWatch, TraceError> {
        Ok(RankWatch {
            path: rank.path.clone(),
            follower: rank.follow()?,
            data: RankData::default(),
            began: VecDeque::new(),
            pauses: VecDeque::new(),
            standstills: VecDeque::new(),
            pace: StepPace::default(),
            is_loss_finite: true,
            heard: None,
            stepped: None,
        })
    }

    /// The last step that it has made.
    pub(super) fn last_step(&self) -> Option<Step> {
        self.began.back().map(|(step, _)| *step)
    }

    /// For how long its process stood still in a step or one beside it, as far as that is remembered. Ranks are a little apart:
    /// one that stands still after it has sent what others need keeps them waiting in their next step.
    pub(super) fn stood_still_ns(&self, step: Step) -> i64 {
        let Some(index) = self.began.iter().rposition(|(began, _)| *began == step) else { return 0 };
        let from = self.began[index.saturating_sub(1)].1;
        let to = self.began.get(index + 2).map_or(i64::MAX, |(_, began)| *began);
        within(&self.standstills, from, to)
    }

    /// Forgets how slow steps were.
    pub(super) fn forgive(&mut self) {
        self.pace.forgive();
    }

    pub(super) fn usual_ns(&self) -> Option<i64> {
        self.pace.usual()
    }

    /// Reads what is new, and tells what is not as it should be.
    pub(super) fn look(&mut self) -> Result<Vec<Noticed>, TraceError> {
        let mut noticed = Vec::new();
        loop {
            let more = self.follower.poll_some(&mut self.data, BYTES_AT_ONCE, true)?;
            let (spans, counters) = (std::mem::take(&mut self.data.spans), std::mem::take(&mut self.data.counters));
            drop(std::mem::take(&mut self.data.memory));
            noticed.extend(self.steps(&spans));
            let lost = counters.rows().find(|sample| sample.counter == Counter::Loss.id() && !sample.value.is_finite());
            if let Some(lost) = lost.filter(|_| self.is_loss_finite) {
                self.is_loss_finite = false;
                let step = self.began.iter().rev().find(|(_, began)| *began <= lost.time_ns.0).map(|(step, _)| *step);
                noticed.push(Noticed::LossNotFinite { step, loss: lost.value });
            }
            if !(more.spans || more.memory) {
                return Ok(noticed);
            }
        }
    }

    fn steps(&mut self, spans: &Spans) -> Vec<Noticed> {
        let mut made = Vec::new();
        for row in 0..spans.len() {
            let start = spans.start_ns.get(row).0;
            match (spans.kind.get(row), spans.phase.get(row), spans.step.get(row)) {
                (SpanKind::Phase, Some(Phase::Evaluation | Phase::Checkpoint), _) => {
                    remember(&mut self.pauses, (start, start.saturating_add(spans.duration_ns.get(row).0)));
                }
                (SpanKind::Step, _, Some(step)) => made.push((step, start)),
                (SpanKind::Range, ..) if self.data.names.get(spans.name.get(row)) == Some(STOOD_STILL) => {
                    remember(&mut self.standstills, (start, start.saturating_add(spans.duration_ns.get(row).0)));
                }
                _ => {}
            }
        }
        if !spans.is_empty() {
            self.heard = Some(Instant::now());
        }
        // A thread of the program's tells them in order; what a batch holds is put in another.
        made.sort_by_key(|(_, start)| *start);
        made.into_iter().filter_map(|(step, start)| self.step(step, start)).collect()
    }

    fn step(&mut self, step: Step, start: i64) -> Option<Noticed> {
        let before = self.began.back().copied();
        remember(&mut self.began, (step, start));
        self.stepped = Some(Instant::now());
        // Those that were not recorded are in between, or numbers begin anew.
        let (before, began) = before.filter(|(before, _)| before.0.checked_add(1) == Some(step.0))?;
        let took = start - began - within(&self.pauses, began, start);
        let usual_ns = self.pace.take(took)?;
        Some(Noticed::Slow { step: before, took_ns: took, usual_ns })
    }
}

/// How much of some intervals lies between two times.
fn within(intervals: &VecDeque<(i64, i64)>, from: i64, to: i64) -> i64 {
    intervals
        .iter()
        .rev()
        .take_while(|(_, end)| *end > from)
        .map(|(start, end)| (to.min(*end) - from.max(*start)).max(0))
        .sum()
}

fn remember<T>(last: &mut VecDeque<T>, one: T) {
    if last.len() >= MOST_REMEMBERED {
        last.pop_front();
    }
    last.push_back(one);
}

#[cfg(test)]
mod tests {
    use stepscope_traces::{FIRST_NAME, NameId, Nanos, Rank, RankInfo, RankWriter, Run, RunInfo, Span};

    use super::*;

    const STEP: i64 = 10_000_000;

    #[test]
    fn a_standstill_counts_for_the_steps_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        RunInfo::of_this_process("test").create(directory.path()).unwrap();
        let mut writer = RankWriter::create(directory.path(), RankInfo::of_this_process(Rank(0))).unwrap();
        writer.push_name(FIRST_NAME, STOOD_STILL).unwrap();
        // The fifth of ten steps takes a hundred times as long as the others.
        let starts = (0..10).map(|step| step * STEP + if step > 5 { 100 * STEP } else { 0 });
        for (step, start) in (0..).zip(starts) {
            let span = Span::new(SpanKind::Step, NameId(0), Nanos(start), Nanos(STEP));
            writer.push_span(&Span { step: Some(Step(step)), ..span }).unwrap();
        }
        let (since, time) = (Nanos(5 * STEP + STEP / 2), Nanos(100 * STEP));
        writer.push_span(&Span::new(SpanKind::Range, FIRST_NAME, since, time)).unwrap();
        writer.flush().unwrap();
        let mut watch = RankWatch::new(&Run::open(directory.path()).unwrap().ranks[0]).unwrap();
        watch.look().unwrap();
        let stood = |step| watch.stood_still_ns(Step(step));
        assert_eq!([3, 4, 5, 6, 7].map(stood), [0, time.0, time.0, time.0, 0]);
        assert_eq!(stood(30), 0, "there is no such step");
    }
}
