use hashbrown::HashMap;
use stepscope_plan::{Axis, Costs, Pass, Schedule, Simulation, Zero};
use stepscope_traces::{MessageNumber, Phase, Span, SpanKind, Step, Stream};

use crate::{
    figures::Analysis,
    test_runs::{TestRun, ranks, span, talk},
};

const FORWARD: f64 = 10_000.0;
const BACKWARD: f64 = 20_000.0;
const MESSAGE: i64 = 500;
const STEPS: i32 = 4;
const MEGABYTE: u64 = 1 << 20;

/// A job of somebody else's: nothing names its groups or its micro-batches.
#[derive(Clone, Copy, Debug)]
struct Job {
    schedule: Schedule,
    stages: u64,
    micro_batches: u64,
    chunks: u64,
    /// Ranks that share each matrix.
    shards: u64,
    replicas: u64,
    /// Whether a send and the receive after it are one kernel.
    is_coalesced: bool,
}

const JOB: Job = Job {
    schedule: Schedule::OneForwardOneBackward,
    stages: 4,
    micro_batches: 8,
    chunks: 1,
    shards: 1,
    replicas: 1,
    is_coalesced: false,
};

impl Job {
    fn simulation(&self) -> Simulation {
        let costs = Costs {
            forward: FORWARD,
            backward: BACKWARD,
            weights: BACKWARD / 2.0,
            both: FORWARD + BACKWARD,
            transfer: 2.0 * MESSAGE as f64,
        };
        Simulation::run(self.schedule, self.stages, self.micro_batches, self.chunks, costs).unwrap()
    }

    /// What one rank does in every step: kernels, messages in the group of its pipeline, sums among shards in each pass and
    /// among replicas at the end.
    fn spans(&self, stage: u64, replica: u64, shard: u64) -> Vec<Span> {
        let simulation = self.simulation();
        let length = simulation.duration() as i64 + 50_000;
        let mut spans = Vec::new();
        let mut counts: HashMap<(u64, u64), u32> = HashMap::new();
        for step in 0..STEPS {
            let (base, first) = (i64::from(step) * length, spans.len());
            let mut number = |from: u64, to: u64| {
                let count = counts.entry((from, to)).or_default();
                *count += 1;
                MessageNumber { count: *count, from: from as u16, to: to as u16 }.into()
            };
            let pipeline = (100 + replica * self.shards + shard) as u32;
            for timed in &simulation.stages[stage as usize] {
                let (start, end) = (base + timed.start as i64, base + timed.end as i64);
                let phase = if timed.work.pass == Pass::Forward { Phase::Forward } else { Phase::Backward };
                let message = |kind, sequence, start| Span {
                    sequence: Some(sequence),
                    bytes: Some(MEGABYTE),
                    ..talk(kind, pipeline, 0, start, start + MESSAGE)
                };
                let input =
                    self.schedule.input(timed.work, stage, self.stages, self.chunks).filter(|(from, _)| *from != stage);
                if let Some((from, _)) = input {
                    let receive = message(SpanKind::Receive, number(from, stage), start - MESSAGE);
                    match spans.last_mut() {
                        Some(last) if self.is_coalesced && is_send(last) => {
                            *last = Span { duration_ns: receive.interval().1 - last.start_ns, ..*last };
                            *last = Span {
                                kind: SpanKind::Communication,
                                sequence: None,
                                bytes: Some(2 * MEGABYTE),
                                ..*last
                            };
                        }
                        _ => spans.push(receive),
                    }
                }
                for kernel in 0..4 {
                    let part = (end - start) / 4;
                    let kernel = span(SpanKind::Kernel, start + kernel * part, start + (kernel + 1) * part - 100);
                    spans.push(Span { phase: Some(phase), ..kernel });
                }
                if self.shards > 1 {
                    let group = (200 + stage * self.replicas + replica) as u32;
                    let sum = talk(SpanKind::AllReduce, group, 0, start + 100, start + 200);
                    let sum = Span { sequence: None, bytes: Some(MEGABYTE), phase: Some(phase), ..sum };
                    spans.extend([Span { stream: Some(Stream(2)), ..sum }; 3]);
                }
                if let Some(to) = self.next(stage, timed.work) {
                    spans.push(message(SpanKind::Send, number(stage, to), end));
                }
            }
            let end = base + simulation.duration() as i64 + 10_000;
            if self.replicas > 1 {
                let group = (300 + stage * self.shards + shard) as u32;
                let sum = talk(SpanKind::ReduceScatter, group, 0, end, end + 1000);
                let sum = Span { sequence: None, bytes: Some(64 * MEGABYTE), phase: Some(Phase::Backward), ..sum };
                let gather = Span { kind: SpanKind::AllGather, phase: Some(Phase::Optimizer), ..sum };
                spans.extend([sum, gather]);
            }
            let update = span(SpanKind::Kernel, end + 2000, end + 8000);
            spans.push(Span { phase: Some(Phase::Optimizer), ..update });
            spans[first..].iter_mut().for_each(|span| span.step = Some(Step(step)));
        }
        spans
    }

    /// To which other stage what comes of some work goes.
    fn next(&self, stage: u64, work: stepscope_plan::Work) -> Option<u64> {
        let wants = |other: &u64| {
            let order = self.schedule.order(*other, self.stages, self.micro_batches, self.chunks);
            order.iter().any(|then| self.schedule.input(*then, *other, self.stages, self.chunks) == Some((stage, work)))
        };
        (0..self.stages).filter(|other| *other != stage).find(wants)
    }

    /// Ranks as Megatron has them: shards are nearest to each other, then replicas, then stages.
    fn analyze(&self) -> Analysis {
        let mut all: Vec<Vec<Span>> = Vec::new();
        for stage in 0..self.stages {
            for replica in 0..self.replicas {
                all.extend((0..self.shards).map(|shard| self.spans(stage, replica, shard)));
            }
        }
        let all: Vec<&[Span]> = all.iter().map(Vec::as_slice).collect();
        TestRun::of(&[], &ranks(&all)).analyze()
    }

    #[track_caller]
    fn check(&self) -> Analysis {
        let analysis = self.analyze();
        let pipeline = analysis.pipeline.clone().unwrap_or_else(|| panic!("no pipeline: {self:?}"));
        assert!(pipeline.inferred);
        assert_eq!(
            (pipeline.stages, pipeline.micro_batches, pipeline.schedule, pipeline.chunks),
            (self.stages, self.micro_batches, self.schedule, self.chunks),
            "{self:?}"
        );
        let bubble = pipeline.bubble.unwrap();
        assert!(
            (bubble - self.simulation().bubble()).abs() < 0.02,
            "{bubble} and {}: {self:?}",
            self.simulation().bubble()
        );
        let layout = analysis.run.layout.unwrap();
        assert!(layout.inferred);
        assert_eq!((layout.dp, layout.tp, layout.pp), (self.replicas, self.shards, self.stages));
        assert_eq!((layout.schedule, layout.micro_batches), (Some(self.schedule), Some(self.micro_batches)));
        let of_ranks = pipeline.per_stage.iter().map(|stage| stage.stage);
        let expected = (0..self.stages).flat_map(|stage| vec![stage; (self.shards * self.replicas) as usize]);
        assert!(of_ranks.eq(expected), "{:?}", pipeline.per_stage);
        analysis
    }
}

fn is_send(span: &Span) -> bool {
    span.kind == SpanKind::Send
}

#[test]
fn schedules_are_told_from_messages() {
    for stages in [2, 3, 4] {
        for is_coalesced in [false, true] {
            for schedule in [Schedule::Gpipe, Schedule::OneForwardOneBackward] {
                Job { schedule, stages, is_coalesced, ..JOB }.check();
            }
            let interleaved = Job { schedule: Schedule::Interleaved, chunks: 2, stages, is_coalesced, ..JOB };
            Job { micro_batches: 2 * stages, ..interleaved }.check();
        }
    }
}

#[test]
fn shards_and_replicas_are_pipelines_of_their_own() {
    let analysis = Job { stages: 2, shards: 2, replicas: 2, is_coalesced: true, ..JOB }.check();
    assert_eq!(analysis.run.layout.unwrap().zero, Some(Zero::One));
    assert!(analysis.run.axes_inferred);
    let axes = |operation| {
        let of = analysis.collectives.iter().filter(|figures| figures.operation == operation);
        of.map(|figures| figures.axis).collect::<Vec<_>>()
    };
    assert_eq!(axes(SpanKind::AllReduce), [Some(Axis::Tensor)]);
    assert_eq!(axes(SpanKind::ReduceScatter), [Some(Axis::Data)]);
    assert_eq!(axes(SpanKind::AllGather), [Some(Axis::Data)]);
    assert_eq!(axes(SpanKind::Send), [Some(Axis::Pipeline)]);
    assert_eq!(axes(SpanKind::Communication), [Some(Axis::Pipeline)]);
}

#[test]
fn a_ring_is_no_pipeline() {
    // Each rank sends to the next one and receives from the one before, in every layer.
    let of_rank = |_: u64| {
        let mut spans = Vec::new();
        for step in 0..3 {
            for layer in 0..8 {
                let start = i64::from(step) * 100_000 + layer * 10_000;
                let phase = if layer < 4 { Phase::Forward } else { Phase::Backward };
                let kernel = Span { phase: Some(phase), ..span(SpanKind::Kernel, start, start + 9_000) };
                let ring = talk(SpanKind::Communication, 7, 0, start + 1_000, start + 5_000);
                let ring = Span { sequence: None, bytes: Some(MEGABYTE), ..ring };
                spans.extend([kernel, ring].map(|span| Span { step: Some(Step(step)), ..span }));
            }
        }
        spans
    };
    let all: Vec<Vec<Span>> = (0..4).map(of_rank).collect();
    let all: Vec<&[Span]> = all.iter().map(Vec::as_slice).collect();
    let analysis = TestRun::of(&[], &ranks(&all)).analyze();
    assert_eq!(analysis.pipeline, None);
    assert_eq!(analysis.collectives[0].axis, Some(Axis::Context));
    assert_eq!(analysis.run.layout.map(|layout| (layout.cp, layout.dp)), Some((4, 1)));
    assert_eq!(analysis.collectives[0].group_size, Some(4));
}
