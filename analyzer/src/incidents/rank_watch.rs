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

    /// For how long its process stood still in a step, as far as that is remembered.
    pub(super) fn stood_still_ns(&self, step: Step) -> i64 {
        let index = self.began.iter().rposition(|(began, _)| *began == step);
        let times = index.and_then(|index| Some((self.began[index].1, self.began.get(index + 1)?.1)));
        times.map_or(0, |(from, to)| within(&self.standstills, from, to))
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
