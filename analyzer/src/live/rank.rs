//! One rank of a run that grows: the spans of its last steps, and what is left of the others.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    path::PathBuf,
    sync::Arc,
};

use stepscope_traces::{
    CounterSamples, Follower, Loss, Rank, RankData, RankDirectory, RankInfo, RankReport, RunInfo, SpanKind, Spans,
    State, Step,
};

use crate::{
    error::AnalysisError,
    figures::{Class, RankMemory},
    rank::{
        device_samples::{self, DeviceSamples},
        memory::MemoryReplay,
        reading::{Counting, RankReading, memory_has_times_of_host, steps_alone},
        result::{Detail, RankResult, RankStep},
        step_extras::StepExtras,
        step_windows::{StepExtents, StepWindow},
    },
};

/// How many memory events wait for the spans around them, at most.
const MOST_WAITING: usize = 200_000;

/// One rank of a run that grows.
pub(super) struct LiveRank {
    pub(super) path: PathBuf,
    pub(super) info: RankInfo,
    pub(super) state: State,
    /// What was recorded so long before the newest is there.
    late_ns: i64,
    follower: Follower,
    /// Names, and counters of late.
    data: RankData,
    /// Spans of late, as they came in.
    pieces: VecDeque<Piece>,
    /// How many spans those are.
    pub(super) rows: usize,
    /// Where steps begin, from the first one that anything is asked of.
    extents: StepExtents,
    /// Steps whose annotation has ended.
    finished: BTreeSet<Step>,
    /// Where those annotations are: the steps of memory, where that has the host's times.
    annotated: StepExtents,
    /// Steps before this one are done with.
    settled_to: Option<Step>,
    /// The end of the newest activity.
    pub(super) newest: Option<i64>,
    memory: MemoryReplay,
    /// The newest event of memory, and whether there may be more to read.
    newest_memory: i64,
    more_memory: bool,
    /// What memory came to when it was asked last, and whether there is something new since.
    memory_figures: Option<Arc<RankMemory>>,
    memory_is_stale: bool,
    /// Whether what each step did is told when it is let go of.
    pub(super) tells_extras: bool,
}

/// A step that is let go of.
pub(super) struct SettledStep {
    pub(super) step: RankStep,
    pub(super) extras: StepExtras,
    pub(super) allocated_bytes: Option<u64>,
    pub(super) devices: BTreeMap<String, f64>,
}

/// Spans that came in together.
struct Piece {
    spans: Spans,
    /// When the first of them begins.
    from: i64,
    /// When the last of them ends.
    to: i64,
}

impl LiveRank {
    pub(super) fn follow(rank: &RankDirectory, late_ns: i64) -> Result<LiveRank, AnalysisError> {
        Ok(LiveRank {
            path: rank.path.clone(),
            info: rank.info.clone(),
            state: rank.state,
            late_ns,
            follower: rank.follow()?,
            data: RankData::default(),
            pieces: VecDeque::new(),
            rows: 0,
            extents: StepExtents::default(),
            finished: BTreeSet::new(),
            annotated: StepExtents::default(),
            settled_to: None,
            newest: None,
            memory: MemoryReplay::default(),
            newest_memory: i64::MIN,
            more_memory: false,
            memory_figures: None,
            memory_is_stale: false,
            tells_extras: false,
        })
    }

    pub(super) fn rank(&self) -> Rank {
        self.info.rank
    }

    /// Reads up to this many new bytes; returns whether there was anything, and whether there is more.
    pub(super) fn read(&mut self, run: &RunInfo, bytes: u64) -> Result<(bool, bool), AnalysisError> {
        let memory_too = self.memory.pending() < MOST_WAITING;
        let more = self.follower.poll_some(&mut self.data, bytes, memory_too)?;
        self.more_memory = more.memory;
        Ok((self.take(run), more.spans || more.memory))
    }

    /// Reads what can still be read when no more will be written.
    pub(super) fn finish(&mut self, run: &RunInfo) {
        self.follower.finish(&mut self.data);
        self.take(run);
    }

    /// Takes in what was read; says whether that was anything.
    fn take(&mut self, run: &RunInfo) -> bool {
        let spans = mem::take(&mut self.data.spans);
        let events = mem::take(&mut self.data.memory);
        let (mut from, mut to) = (i64::MAX, i64::MIN);
        for row in 0..spans.len() {
            let (kind, step) = (spans.kind.get(row), spans.step.get(row));
            let start = spans.start_ns.get(row).0;
            let end = start.saturating_add(spans.duration_ns.get(row).0.max(0));
            (from, to) = (start.min(from), end.max(to));
            if kind == SpanKind::Step {
                if let Some(step) = step {
                    self.finished.insert(step);
                    self.annotated.add(step, start, end);
                }
            } else if Class::of(kind).is_some() {
                self.newest = self.newest.max(Some(end));
                if let Some(step) = step {
                    self.extents.add(step, start, end);
                }
            }
        }
        let anything = !spans.is_empty() || !events.is_empty();
        self.memory_is_stale |= anything;
        self.memory.take(&events);
        self.newest_memory = events.time_ns.iter().map(|time| time.0).fold(self.newest_memory, i64::max);
        if !spans.is_empty() {
            self.rows += spans.len();
            self.pieces.push_back(Piece { spans, from, to });
        }
        self.settle_memory(run);
        anything
    }

    /// Plays for good what memory has before anything that may still come in.
    fn settle_memory(&mut self, run: &RunInfo) {
        if self.memory.pending() >= MOST_WAITING {
            // There is no more room to wait, whatever may still come in.
            let steps = self.steps_of_memory(run);
            return self.memory.settle(self.newest_memory.saturating_add(1), &steps);
        }
        let Some(newest) = self.newest else { return };
        let newest = if self.more_memory { newest.min(self.newest_memory) } else { newest };
        let steps = self.steps_of_memory(run);
        let mut before = newest.saturating_sub(self.late_ns);
        if memory_has_times_of_host(run, &self.info) && self.memory.pending() < MOST_WAITING {
            // An annotation is there once it has ended: when the step after those that have began is not known.
            before = before.min(steps.last().map_or(i64::MIN, |last| last.end));
        }
        self.memory.settle(before, &steps);
    }

    /// The steps, in the time that memory has.
    fn steps_of_memory(&self, run: &RunInfo) -> Vec<StepWindow> {
        let of_host = memory_has_times_of_host(run, &self.info);
        if of_host { self.annotated.windows() } else { self.extents.windows() }
    }

    /// The last step that is whole: its annotation has ended, where there are any, and another one has begun.
    pub(super) fn last_whole(&self) -> Option<Step> {
        let newest = self.extents.steps().next_back()?;
        let whole = |step: &Step| *step < newest && (self.finished.is_empty() || self.finished.contains(step));
        self.extents.steps().rev().find(whole)
    }

    /// The first step of which all is there.
    pub(super) fn first_whole(&self) -> Option<Step> {
        self.extents.steps().find(|step| self.settled_to.is_none_or(|settled| *step >= settled))
    }

    /// The step that it is in, and how long it has been in that.
    pub(super) fn running(&self) -> Option<(Step, i64)> {
        let step = self.extents.steps().next_back()?;
        let newest = self.newest?;
        (!self.finished.contains(&step)).then(|| Some((step, newest.saturating_sub(self.extents.start(step)?))))?
    }

    /// The steps of which all is there and that are whole.
    pub(super) fn whole_steps(&self) -> impl Iterator<Item = Step> {
        let (first, last) = (self.first_whole(), self.last_whole());
        self.extents.steps().filter(move |step| Some(*step) >= first && Some(*step) <= last)
    }

    /// Lets go of the spans of steps before one, and of what is only theirs; gives what those steps come to. The last whole
    /// one stays, and so does what may not be whole yet.
    pub(super) fn settle(&mut self, run: &RunInfo, first: Step) -> Vec<SettledStep> {
        let (Some(last), Some(newest)) = (self.last_whole(), self.newest) else { return Vec::new() };
        let is_sure =
            |step: &Step| self.extents.start(*step).is_some_and(|start| newest.saturating_sub(start) >= self.late_ns);
        let first = self.extents.steps().rev().find(|step| *step <= first.min(last) && is_sure(step));
        let Some((first, cut)) = first.and_then(|first| Some((first, self.extents.start(first)?))) else {
            return Vec::new();
        };
        if self.settled_to >= Some(first) {
            return Vec::new();
        }
        // What begins later is not of those steps, nor the beginning of the one after them.
        let steps = self.told(run, cut, |step| step < first);
        self.settled_to = Some(first);
        self.drop_before(cut);
        self.finished = self.finished.split_off(&first);
        // Memory still asks for those that it has not come to.
        let played = if self.memory.taken().count == 0 { i64::MAX } else { self.memory.settled_to() };
        let coming = self.steps_of_memory(run).into_iter().find(|window| window.start > played);
        let forgotten = coming.map_or(first, |coming| coming.step.min(first));
        self.extents.forget_before(forgotten);
        self.annotated.forget_before(forgotten);
        self.forget_counters(cut);
        steps
    }

    /// What the steps come to that are left.
    pub(super) fn rest(&mut self, run: &RunInfo) -> Vec<SettledStep> {
        self.told(run, i64::MAX, |_| true)
    }

    /// What those of the steps come to that are still to be told, by the spans that begin until a time.
    fn told(&self, run: &RunInfo, until: i64, is_meant: impl Fn(Step) -> bool) -> Vec<SettledStep> {
        let needed = self.pieces.iter().filter(|piece| piece.from <= until).map(|piece| &piece.spans);
        let (needed, counters, names): (Vec<&Spans>, _, _) = (needed.collect(), &self.data.counters, &self.data.names);
        let (steps, mut extras) = steps_alone(run, &needed, counters, names, self.tells_extras);
        let device = self.tells_extras.then(|| DeviceSamples::of(counters, names, self.info.sharing().is_some()));
        let is_told = |step: Step| is_meant(step) && self.settled_to.is_none_or(|settled| step >= settled);
        let settled = |step: RankStep| SettledStep {
            extras: extras.remove(&step.0.step).unwrap_or_default(),
            allocated_bytes: self.memory.at_end_of(step.0.step),
            devices: device.as_ref().map_or_else(BTreeMap::new, |device| device.means_in(&step.0)),
            step,
        };
        steps.into_iter().filter(|(window, ..)| is_told(window.step)).map(settled).collect()
    }

    /// Lets go of the oldest spans, whatever they are of: steps that are cut by this are never told of.
    pub(super) fn drop_oldest(&mut self) {
        if let Some(piece) = self.pieces.pop_front() {
            self.rows -= piece.spans.len();
            self.settled_to = self.extents.steps().next_back().or(self.settled_to).max(self.settled_to);
            self.forget_counters(piece.to);
        }
    }

    fn drop_before(&mut self, cut: i64) {
        while let Some(piece) = self.pieces.pop_front_if(|piece| piece.to <= cut) {
            self.rows -= piece.spans.len();
        }
    }

    fn forget_counters(&mut self, before: i64) {
        let before = before.min(self.newest.map_or(i64::MIN, |newest| newest.saturating_sub(self.late_ns)));
        let moments = self.memory.moments();
        let mut kept = CounterSamples::default();
        let all = &self.data.counters;
        let needed = device_samples::needed_for_ledger(all, &self.data.names, moments);
        for (row, sample) in all.rows().enumerate() {
            if sample.time_ns.0 >= before || needed.contains(&row) {
                kept.push(&sample);
            }
        }
        self.data.counters = kept;
    }

    /// What its spans come to in some steps.
    pub(super) fn result(&mut self, run: &RunInfo, counting: Counting<'_>) -> Result<RankResult, AnalysisError> {
        let mut reading = RankReading::new(run, counting, Detail::Figures);
        self.pieces.iter().for_each(|piece| reading.take(&self.data.names, &piece.spans));
        let memory = self.memory(run);
        reading
            .finish(run, self.report(), &self.data, self.memory.taken(), |_, _| memory.map(|memory| (*memory).clone()))
    }

    /// What filled its memory when that was asked last.
    pub(super) fn last_memory(&self) -> Option<Arc<RankMemory>> {
        self.memory_figures.clone()
    }

    /// What fills its memory, over all of the run.
    pub(super) fn memory(&mut self, run: &RunInfo) -> Option<Arc<RankMemory>> {
        if !self.memory_is_stale {
            return self.memory_figures.clone();
        }
        let device = DeviceSamples::of(&self.data.counters, &self.data.names, self.info.sharing().is_some());
        let figures =
            self.memory.figures(run, &self.info, &self.steps_of_memory(run), &device, &self.data.names).map(Arc::new);
        self.memory_is_stale = false;
        self.memory_figures.clone_from(&figures);
        figures
    }

    fn report(&self) -> RankReport {
        RankReport::new(self.info.clone(), self.state, self.loss())
    }

    /// What of it is lost.
    pub(super) fn loss(&self) -> Loss {
        self.follower.loss(&self.info, self.state)
    }
}
