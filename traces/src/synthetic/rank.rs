//! One rank of a synthetic run: the timeline in its own clock, into its own files.

use std::path::Path;

use fastrand::Rng;

use super::{
    Figures, RankTruth, Recipe, StepTruth,
    memory::{self, Balance},
    timeline::{PlannedActivity, StageTimeline, StepTimeline, phase_of, stage_of},
};
use crate::{
    clock::{ClockRecord, ClockSnapshot},
    error::TraceError,
    ids::{Correlation, NameId, Nanos, Rank, Stage},
    names::FIRST_NAME,
    rank_info::RankInfo,
    tables::{CounterSample, Span},
    vocabulary::{Counter, SpanKind},
    writer::RankWriter,
};

/// The time of day at true time zero.
const WALL_ZERO: i64 = 1_790_000_000 * Nanos::SECOND.0;

/// How a rank sees true time.
#[derive(Clone, Copy)]
struct BentClock {
    offset: i64,
    drift: i64,
    wall_error: i64,
}

impl BentClock {
    fn of(recipe: &Recipe, rng: &mut Rng) -> BentClock {
        let mut draw = |largest: i64| rng.i64(-largest..=largest);
        let clocks = recipe.clocks;
        BentClock {
            offset: draw(clocks.largest_offset.0),
            drift: draw(clocks.largest_drift),
            wall_error: draw(clocks.largest_wall_error.0),
        }
    }

    fn at(self, true_time: i64) -> Nanos {
        let gained = i128::from(true_time) * i128::from(self.drift) / i128::from(Nanos::SECOND.0);
        Nanos(true_time + self.offset + gained as i64)
    }

    fn snapshot(self, true_time: i64) -> ClockSnapshot {
        ClockSnapshot { rank_ns: self.at(true_time), wall_ns: Nanos(WALL_ZERO + true_time + self.wall_error) }
    }
}

/// The names of everything a recipe makes.
struct NameTable {
    texts: Vec<String>,
}

impl NameTable {
    fn of(recipe: &Recipe) -> NameTable {
        let families = ["rms_norm", "gemm_bf16_128x256x64", "flash_attention", "rotary", "silu_mul", "residual_add"];
        let kernels = ["forward", "backward"].into_iter().flat_map(|pass| {
            (0..recipe.kernels_per_layer)
                .map(move |kernel| format!("{}_{kernel}_{pass}", families[kernel as usize % families.len()]))
        });
        let others = SpanKind::ALL.iter().map(|kind| kind.word().to_owned());
        NameTable { texts: others.chain(kernels).chain(["adamw_update".to_owned()]).collect() }
    }

    fn id(kind: SpanKind, which: u32) -> NameId {
        let index = if kind == SpanKind::Kernel { SpanKind::ALL.len() as u32 + which } else { kind as u32 };
        NameId(FIRST_NAME.0 + index)
    }
}

impl Recipe {
    /// Writes one rank and tells the truth about it.
    pub(super) fn write_rank(&self, path: &Path, rank: Rank) -> Result<RankTruth, TraceError> {
        let mut rng = Rng::with_seed(self.seed ^ (u64::from(rank.0) + 1) << 32);
        let clock = BentClock::of(self, &mut rng);
        let stage = stage_of(self, rank.0);
        let mut info = RankInfo::of_this_process(rank);
        info.stage = stage;
        if let Some(cluster) = self.cluster {
            cluster.place(&mut info);
        }
        info.clock = ClockRecord { source: format!("synthetic-{rank}"), snapshots: vec![clock.snapshot(0)] };
        let mut rank_writer = RankBuilder {
            writer: RankWriter::create(path, info)?,
            clock,
            stage,
            rng,
            correlation: 0,
            last_flush: 0,
            activity: Vec::new(),
            balance: Balance::default(),
            truth: RankTruth {
                rank,
                stage,
                clock_offset: Nanos(clock.offset),
                clock_drift: clock.drift,
                spans: 0,
                kernels: 0,
                memory_events: 0,
                counter_samples: 0,
                steps: Vec::new(),
                memory: super::MemoryTruth::default(),
                waited: Nanos(0),
            },
        };
        for (index, text) in NameTable::of(self).texts.iter().enumerate() {
            rank_writer.writer.push_name(NameId(FIRST_NAME.0 + index as u32), text)?;
        }
        for event in memory::standing(self, 0) {
            rank_writer.memory(event)?;
        }
        let index = stage.map_or(0, |stage| stage.0 as usize);
        let straggler = u64::from(rank.0 % self.replicas);
        for step in self.timeline() {
            rank_writer.step(self, &step, &step.stages[index], straggler)?;
        }
        rank_writer.finish()
    }
}

/// Writes one rank.
struct RankBuilder {
    writer: RankWriter,
    clock: BentClock,
    stage: Option<Stage>,
    rng: Rng,
    correlation: u64,
    last_flush: i64,
    /// What streams did in each step, in the rank's clock.
    activity: Vec<Vec<(SpanKind, Nanos, Nanos)>>,
    balance: Balance,
    truth: RankTruth,
}

impl RankBuilder {
    fn step(
        &mut self,
        recipe: &Recipe,
        step: &StepTimeline,
        stage: &StageTimeline,
        replica: u64,
    ) -> Result<(), TraceError> {
        self.activity.push(Vec::new());
        self.annotations(step, stage)?;
        let mut activities: Vec<PlannedActivity> = stage.activities.clone();
        activities.sort_by_key(|activity| activity.start);
        for mut activity in activities {
            // One replica in turn comes last to a collective, or those below a slow switch do; the others wait for it.
            let collective = activity.layer.unwrap_or_default().0 as u64 + step.step.0 as u64;
            let slow = recipe.cluster.and_then(|cluster| cluster.is_slow(self.truth.rank));
            let is_last = slow.unwrap_or(collective % u64::from(recipe.replicas) == replica);
            if activity.earlier > 0 && !is_last {
                let waited = self.rng.i64(activity.earlier / 2..=activity.earlier);
                activity.start -= waited;
                self.truth.waited = self.truth.waited + Nanos(waited);
            }
            self.activity(recipe, step, &activity)?;
            if activity.end - self.last_flush > recipe.flush_every.0 {
                self.writer.flush()?;
                self.last_flush = activity.end;
            }
        }
        for event in memory::of_step(step, stage) {
            self.memory(event)?;
        }
        let loss = 2.0 + 8.0 / (1.0 + f64::from(step.step.0) / 10.0) + self.rng.f64() / 10.0;
        let tokens = f64::from(recipe.micro_batches * recipe.replicas * super::SEQUENCE_LENGTH);
        for (counter, value) in [(Counter::Loss, loss), (Counter::Tokens, tokens)] {
            let time_ns = self.clock.at(step.end);
            self.writer.push_counter(&CounterSample { time_ns, counter: counter.id(), value })?;
            self.truth.counter_samples += 1;
        }
        self.writer.add_clock_snapshot(self.clock.snapshot(step.end));
        let start = Nanos(0);
        self.truth.steps.push(StepTruth { step: step.step, start, figures: Figures::default(), loss, tokens });
        Ok(())
    }

    fn annotations(&mut self, step: &StepTimeline, stage: &StageTimeline) -> Result<(), TraceError> {
        let mut annotate = |kind, (start, end): (i64, i64), phase, micro_batch, layer| {
            let (start, end) = (self.clock.at(start), self.clock.at(end));
            let span = Span::new(kind, NameTable::id(kind, 0), start, end - start);
            self.truth.spans += 1;
            let step = Some(step.step);
            self.writer.push_span(&Span { step, phase, micro_batch, layer, stage: self.stage, ..span })
        };
        annotate(SpanKind::Step, (step.start, step.end), None, None, None)?;
        for pass in &stage.passes {
            let phase = Some(phase_of(pass.work));
            let micro_batch = Some(crate::ids::MicroBatch(pass.work.micro_batch as i32));
            annotate(SpanKind::MicroBatch, (pass.start, pass.end), phase, micro_batch, None)?;
            annotate(SpanKind::Phase, (pass.start, pass.end), phase, micro_batch, None)?;
            for &(layer, from, to) in &pass.layers {
                annotate(SpanKind::Layer, (from, to), phase, micro_batch, Some(layer))?;
            }
        }
        Ok(())
    }

    fn activity(&mut self, recipe: &Recipe, step: &StepTimeline, activity: &PlannedActivity) -> Result<(), TraceError> {
        let (start, end) = (self.clock.at(activity.start), self.clock.at(activity.end));
        // Other calls come between two launches.
        self.correlation += self.rng.u64(1..=3);
        let name = NameTable::id(activity.kind, activity.name);
        self.writer.push_span(&Span {
            stream: Some(activity.stream),
            correlation: Some(Correlation(self.correlation)),
            step: Some(step.step),
            micro_batch: activity.micro_batch,
            phase: Some(activity.phase),
            layer: activity.layer,
            stage: self.stage,
            bytes: Some(activity.bytes),
            group: activity.axis.map(|axis| recipe.group(axis, self.truth.rank)),
            sequence: activity.sequence,
            flops: activity.flops,
            ..Span::new(activity.kind, name, start, end - start)
        })?;
        self.truth.spans += 1;
        self.truth.kernels += u64::from(!activity.kind.is_copy());
        self.activity.last_mut().into_iter().for_each(|step| step.push((activity.kind, start, end)));
        Ok(())
    }

    fn memory(&mut self, mut event: crate::tables::MemoryEvent) -> Result<(), TraceError> {
        event.time_ns = self.clock.at(event.time_ns.0);
        self.balance.add(&event, event.step);
        self.truth.memory_events += 1;
        self.writer.push_memory(&event)
    }

    /// Ends the rank. A step's window ends where the next one's begins, so its figures are counted only now; nothing
    /// goes on across that border.
    fn finish(mut self) -> Result<RankTruth, TraceError> {
        self.writer.finish()?;
        let mut borders: Vec<Nanos> =
            self.activity.iter().filter_map(|step| step.iter().map(|(_, start, _)| *start).min()).collect();
        borders.extend(self.activity.iter().flatten().map(|(_, _, end)| *end).max());
        for (index, step) in self.truth.steps.iter_mut().enumerate() {
            let (from, to) = (borders[index], borders[index + 1]);
            step.start = from;
            step.figures = Figures::count(&self.activity[index], from, to);
        }
        self.truth.memory = self.balance.truth();
        Ok(self.truth)
    }
}
