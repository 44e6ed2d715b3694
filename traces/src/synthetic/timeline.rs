//! One step in true time: what each stage does, and when.

use fastrand::Rng;
use stepscope_plan::{Axis, Pass as Direction, Schedule, Work};

use super::{Pipeline, PipelineTruth, Recipe};
use crate::{
    ids::{Layer, MicroBatch, Nanos, Sequence, Stage, Step, Stream},
    vocabulary::{Phase, SpanKind},
};

/// What stages do in a step, one after another.
pub(super) struct StepTimeline {
    pub(super) step: Step,
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) stages: Vec<StageTimeline>,
}

/// What one stage does in a step.
#[derive(Default)]
pub(super) struct StageTimeline {
    pub(super) activities: Vec<PlannedActivity>,
    /// When each pass of each micro-batch ran.
    pub(super) passes: Vec<PlannedPass>,
}

/// One pass of one micro-batch, from its first kernel to its last.
pub(super) struct PlannedPass {
    pub(super) work: Work,
    pub(super) start: i64,
    pub(super) end: i64,
    /// Each layer's part of it, in the order of the pass.
    pub(super) layers: Vec<(Layer, i64, i64)>,
}

/// One thing on a stream.
#[derive(Clone, Copy)]
pub(super) struct PlannedActivity {
    pub(super) kind: SpanKind,
    /// Which of the names of its kind.
    pub(super) name: u32,
    pub(super) stream: Stream,
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) micro_batch: Option<MicroBatch>,
    pub(super) phase: Phase,
    pub(super) layer: Option<Layer>,
    /// Along what the ranks talk, if they do.
    pub(super) axis: Option<Axis>,
    pub(super) bytes: u64,
    pub(super) flops: Option<u64>,
    /// How much earlier a rank may begin to wait in it.
    pub(super) earlier: i64,
    /// Its number in its group, if ranks talk.
    pub(super) sequence: Option<Sequence>,
}

/// How much was said in earlier steps: numbers go on from there.
struct SequenceCounts {
    /// By each stage about its gradients.
    reduces: Vec<u64>,
    /// From stage to stage.
    messages: u64,
}

/// Bytes of gradient of one layer.
pub(super) const GRADIENT_BYTES: u64 = 25 << 20;

impl Recipe {
    /// The first stream after those with kernels: collectives, then sends, then copies.
    fn side_stream(&self, which: u32) -> Stream {
        Stream(self.compute_streams.max(1) + which)
    }

    /// Every step in turn. The same each time it is asked for.
    pub(super) fn timeline(&self) -> impl Iterator<Item = StepTimeline> + '_ {
        let mut start = 1_000_000;
        let mut said = SequenceCounts { reduces: vec![0; self.stages() as usize], messages: 0 };
        (0..self.steps).map(move |step| {
            let step = self.step(step, start, &mut said);
            start = step.end + 50_000;
            step
        })
    }

    fn step(&self, step: u32, start: i64, said: &mut SequenceCounts) -> StepTimeline {
        let mut rng = Rng::with_seed(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(u64::from(step)));
        let (stages, chunks) = (u64::from(self.stages()), u64::from(self.chunks()));
        let schedule = self.pipeline.map_or(Schedule::Gpipe, |pipeline| pipeline.schedule);
        let transfer = self.pipeline.map_or(0, |pipeline| pipeline.transfer.0);
        let orders: Vec<Vec<Work>> =
            (0..stages).map(|stage| schedule.order(stage, stages, u64::from(self.micro_batches), chunks)).collect();

        let mut builders: Vec<StageBuilder> =
            (0..self.stages()).map(|stage| StageBuilder::begin(self, stage, start, said)).collect();
        // Work is placed in rounds: each stage does what its order says next as soon as its input is there.
        let mut placed = true;
        while placed {
            placed = false;
            for stage in 0..stages as usize {
                let Some(&work) = orders[stage].get(builders[stage].timeline.passes.len()) else { continue };
                let ready = match schedule.input(work, stage as u64, stages, chunks) {
                    None => start,
                    Some((from, input)) => {
                        let from = from as usize;
                        let Some(end) = builders[from].pass_end(input) else { continue };
                        let sent = if from == stage { 0 } else { transfer };
                        if sent > 0 {
                            let number = Sequence(said.messages);
                            builders[from].transfer(SpanKind::Send, input, (end, end + sent), number);
                            builders[stage].transfer(SpanKind::Receive, input, (end, end + sent), number);
                            said.messages += 1;
                        }
                        end + sent
                    }
                };
                builders[stage].pass(&mut rng, work, ready);
                placed = true;
            }
        }
        said.reduces = builders.iter().map(|builder| builder.reduces).collect();
        let stages: Vec<StageTimeline> = builders.into_iter().map(|builder| builder.finish(&mut rng)).collect();
        let ends = stages.iter().flat_map(|stage| &stage.activities).map(|activity| activity.end);
        StepTimeline { step: Step(step as i32), start, end: ends.max().unwrap_or(start), stages }
    }

    /// What the passes say of the pipeline.
    pub(super) fn pipeline_truth(&self, pipeline: Pipeline) -> PipelineTruth {
        let [stages, micro_batches, chunks] = [pipeline.stages, self.micro_batches, pipeline.chunks].map(u64::from);
        let ideal_bubble = pipeline.schedule.ideal_bubble(stages, micro_batches, chunks);
        let mut truth = PipelineTruth { ideal_bubble, window: Vec::new(), idle: Vec::new() };
        for step in self.timeline() {
            let passes = || step.stages.iter().flat_map(|stage| &stage.passes);
            let first = passes().map(|pass| pass.start).min().unwrap_or(0);
            let last = passes().map(|pass| pass.end).max().unwrap_or(0);
            let busy = |stage: &StageTimeline| stage.passes.iter().map(|pass| pass.end - pass.start).sum::<i64>();
            truth.window.push(Nanos(last - first));
            truth.idle.push(step.stages.iter().map(|stage| Nanos(last - first - busy(stage))).collect());
        }
        truth
    }
}

/// Places the work of one stage.
struct StageBuilder<'a> {
    recipe: &'a Recipe,
    stage: u32,
    /// When the first stream is free.
    free: i64,
    /// How many gradients were reduced.
    reduces: u64,
    timeline: StageTimeline,
}

impl<'a> StageBuilder<'a> {
    /// A stage begins with its copy of the batch.
    fn begin(recipe: &'a Recipe, stage: u32, start: i64, said: &SequenceCounts) -> StageBuilder<'a> {
        let reduces = said.reduces[stage as usize];
        let mut builder = StageBuilder { recipe, stage, free: start, reduces, timeline: StageTimeline::default() };
        let copy = builder.activity(SpanKind::Copy, 0, recipe.side_stream(2), (start, start + 20_000), Phase::Data);
        builder.timeline.activities.push(PlannedActivity { bytes: 1 << 20, ..copy });
        builder.free = copy.end;
        builder
    }

    fn activity(
        &self,
        kind: SpanKind,
        name: u32,
        stream: Stream,
        (start, end): (i64, i64),
        phase: Phase,
    ) -> PlannedActivity {
        PlannedActivity {
            kind,
            name,
            stream,
            start,
            end,
            micro_batch: None,
            phase,
            layer: None,
            axis: None,
            bytes: 0,
            flops: None,
            earlier: 0,
            sequence: None,
        }
    }

    fn pass_end(&self, work: Work) -> Option<i64> {
        self.timeline.passes.iter().find(|pass| pass.work == work).map(|pass| pass.end)
    }

    /// One pass of one micro-batch, not before `ready`.
    fn pass(&mut self, rng: &mut Rng, work: Work, ready: i64) {
        let recipe = self.recipe;
        self.free = self.free.max(ready);
        let start = self.free;
        let backward = work.pass != Direction::Forward;
        let last_pass = if recipe.splits_backward() { Direction::Weights } else { Direction::Backward };
        let reduces = work.pass == last_pass && work.micro_batch + 1 == u64::from(recipe.micro_batches);
        let chunk_layers = recipe.layers / recipe.chunks();
        let first_layer = (work.chunk as u32 * recipe.stages() + self.stage) * chunk_layers;
        let mut layers = Vec::new();
        for position in 0..chunk_layers {
            let index = if backward { chunk_layers - 1 - position } else { position };
            let layer = Layer((first_layer + index) as i32);
            let layer_start = self.free;
            for kernel in 0..recipe.kernels_per_layer {
                let last = kernel + 1 == recipe.kernels_per_layer;
                self.kernel(rng, work, layer, kernel);
                if last && reduces && recipe.replicas > 1 {
                    self.reduce_gradients(rng, layer);
                }
                // No gap after the last kernel: a pass takes from its first kernel to its last.
                if !(last && position + 1 == chunk_layers) {
                    self.free += rng.i64(0..=recipe.largest_gap.0);
                }
            }
            layers.push((layer, layer_start, self.free));
        }
        self.timeline.passes.push(PlannedPass { work, start, end: self.free, layers });
    }

    fn kernel(&mut self, rng: &mut Rng, work: Work, layer: Layer, kernel: u32) {
        let recipe = self.recipe;
        let backward = work.pass != Direction::Forward;
        // From 5 to 77 microseconds, and twice that for the backward pass, unless that is two.
        let base = (5_000 + 8_000 * i64::from(kernel % 10)) * if backward && !recipe.splits_backward() { 2 } else { 1 };
        let length = (base as f64 * (1.0 + recipe.jitter * normal(rng))).max(1_000.0) as i64;
        let interval = (self.free, self.free + length);
        let name = kernel + if backward { recipe.kernels_per_layer } else { 0 };
        let kernel = PlannedActivity {
            micro_batch: Some(MicroBatch(work.micro_batch as i32)),
            layer: Some(layer),
            bytes: base as u64 * 1_500,
            flops: (!kernel.is_multiple_of(3)).then_some(base as u64 * 400_000),
            ..self.activity(SpanKind::Kernel, name, Stream(0), interval, phase_of(work))
        };
        self.timeline.activities.push(kernel);
        // The other streams run inside: they change no union.
        for stream in 1..recipe.compute_streams {
            if rng.u32(0..8) == 0 {
                let (start, end) = (interval.0 + length / 10, interval.1 - length / 10);
                self.timeline.activities.push(PlannedActivity { stream: Stream(stream), start, end, ..kernel });
            }
        }
        self.free = interval.1;
    }

    /// Lets the gradient of a layer be reduced: as much of it as was chosen while the kernel that just ended ran, the
    /// rest after it, while compute waits.
    fn reduce_gradients(&mut self, rng: &mut Rng, layer: Layer) {
        let recipe = self.recipe;
        let Some(kernel) = self.timeline.activities.iter().rev().find(|activity| activity.stream == Stream(0)) else {
            return;
        };
        let room = kernel.end - kernel.start;
        let length = room * 6 / 10 + rng.i64(0..=room / 20);
        let hidden = (length as f64 * recipe.overlap.clamp(0.0, 1.0)).round() as i64;
        let interval = (self.free - hidden, self.free - hidden + length);
        let reduce = PlannedActivity {
            layer: Some(layer),
            micro_batch: kernel.micro_batch,
            axis: Some(Axis::Data),
            bytes: GRADIENT_BYTES,
            sequence: Some(Sequence(self.reduces)),
            earlier: (room as f64 * recipe.waiting.clamp(0.0, 0.3)) as i64,
            ..self.activity(SpanKind::AllReduce, 0, recipe.side_stream(0), interval, Phase::Backward)
        };
        self.timeline.activities.push(reduce);
        self.reduces += 1;
        self.free = interval.1;
    }

    /// A send to another stage, or the receive on the other side.
    fn transfer(&mut self, kind: SpanKind, work: Work, interval: (i64, i64), number: Sequence) {
        let transfer = PlannedActivity {
            micro_batch: Some(MicroBatch(work.micro_batch as i32)),
            axis: Some(Axis::Pipeline),
            bytes: 8 << 20,
            sequence: Some(number),
            ..self.activity(kind, 0, self.recipe.side_stream(1), interval, phase_of(work))
        };
        self.timeline.activities.push(transfer);
    }

    /// A step ends with the update of the weights.
    fn finish(mut self, rng: &mut Rng) -> StageTimeline {
        let set = (self.free, self.free + 5_000);
        let set = self.activity(SpanKind::Set, 0, self.recipe.side_stream(2), set, Phase::Optimizer);
        self.timeline.activities.push(PlannedActivity { bytes: 4_096, ..set });
        self.free = set.end - 2_000;
        for _ in 0..2 {
            let length = 150_000 + rng.i64(0..5_000);
            let update = (self.free, self.free + length);
            let name = 2 * self.recipe.kernels_per_layer;
            let update = self.activity(SpanKind::Kernel, name, Stream(0), update, Phase::Optimizer);
            self.timeline.activities.push(PlannedActivity { bytes: 400 << 20, ..update });
            self.free = update.end;
        }
        self.timeline
    }
}

/// The phase some work belongs to.
pub(super) fn phase_of(work: Work) -> Phase {
    match work.pass {
        Direction::Forward => Phase::Forward,
        Direction::Backward | Direction::Weights => Phase::Backward,
    }
}

/// Stage of a rank, where there is a pipeline.
pub(super) fn stage_of(recipe: &Recipe, rank: u32) -> Option<Stage> {
    recipe.pipeline.map(|_| Stage((rank / recipe.replicas) as i16))
}

/// A normal deviate, near enough: the sum of twelve even ones.
fn normal(rng: &mut Rng) -> f64 {
    (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0
}
