//! Faults that are put into runs, and whether they are found first.
//!
//! The runs are those of a small program: ranks that go forward and backward through some layers, sum gradients in buckets
//! meanwhile, and update. What each fault costs is known, since the same program ran without it; nothing here knows how
//! findings are made.

use std::{collections::BTreeMap, path::Path};

use fastrand::Rng;
use stepscope_plan::Axis;
use stepscope_traces::{
    ClockRecord, ClockSnapshot, Correlation, CounterId, CounterSample, Device, FIRST_NAME, Group, GroupInfo,
    MemoryCategory, MemoryEvent, MemoryOperation, NameId, Nanos, Phase, Rank, RankInfo, RankWriter, Run, RunInfo,
    Sequence, Span, SpanKind, Step, Stream,
};

use crate::{Selection, analyze, figures::Analysis};

/// Two switches, two hosts below each, two GPUs in each.
const RANKS: usize = 8;
const STEPS: i32 = 8;
const LAYERS: i64 = 12;
const LAYERS_OF_A_BUCKET: i64 = 3;
const FORWARD: f64 = 100_000.0;
const BUCKET: f64 = 90_000.0;
const UPDATE: f64 = 300_000.0;
/// How long a step is about, of which strengths are shares.
const STEP: f64 = 4_000_000.0;

const NAMES: [&str; 8] = [
    "layer",
    "ncclDevKernel_AllReduce",
    "Memcpy DtoH (Device -> Pageable)",
    "Memcpy HtoD (Pageable -> Device)",
    "cudaLaunchKernel",
    "cudaMalloc",
    "cudaStreamSynchronize",
    "Activity Buffer Request",
];

fn name(place: u32) -> NameId {
    NameId(FIRST_NAME.0 + place)
}

/// What is wrong with a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    None,
    SlowRank,
    SlowHostOfARank,
    SlowGpuIndex,
    SlowNode,
    SlowSwitch,
    SlowLink,
    LateInput,
    Synchronization,
    SlowLaunches,
    LateStarts,
    Copies,
    Recomputation,
    Allocation,
    Throttled,
    Checkpoints,
    Recorder,
}

impl Fault {
    const ALL: [Fault; 16] = [
        Fault::SlowRank,
        Fault::SlowHostOfARank,
        Fault::SlowGpuIndex,
        Fault::SlowNode,
        Fault::SlowSwitch,
        Fault::SlowLink,
        Fault::LateInput,
        Fault::Synchronization,
        Fault::SlowLaunches,
        Fault::LateStarts,
        Fault::Copies,
        Fault::Recomputation,
        Fault::Allocation,
        Fault::Throttled,
        Fault::Checkpoints,
        Fault::Recorder,
    ];

    /// What should be found.
    fn kind(self) -> &'static str {
        match self {
            Fault::None => "",
            Fault::SlowRank | Fault::SlowHostOfARank | Fault::SlowGpuIndex | Fault::SlowNode | Fault::SlowSwitch => {
                "slow-rank"
            }
            Fault::SlowLink => "exposed-communication",
            Fault::LateInput => "data-loading",
            Fault::Synchronization => "sync-points",
            Fault::SlowLaunches => "host-bound",
            Fault::LateStarts => "late-starts",
            Fault::Copies => "exposed-copies",
            Fault::Recomputation => "recomputation",
            Fault::Allocation => "allocator-thrashing",
            Fault::Throttled => "throttled",
            Fault::Checkpoints => "checkpointing",
            Fault::Recorder => "recording-cost",
        }
    }

    /// Whose fault it is, if it is that of some ranks.
    fn ranks(self) -> Vec<usize> {
        match self {
            Fault::SlowRank => vec![2],
            Fault::SlowHostOfARank => vec![1],
            Fault::SlowGpuIndex => vec![1, 3, 5, 7],
            Fault::SlowNode => vec![4, 5],
            Fault::SlowSwitch => vec![4, 5, 6, 7],
            _ => Vec::new(),
        }
    }
}

/// A program, run on paper: when each rank's streams are free.
struct Program {
    rng: Rng,
    fault: Fault,
    /// A share of a step.
    strength: f64,
    compute: [i64; RANKS],
    spans: Vec<Vec<Span>>,
    sequence: u64,
    step: i32,
}

impl Program {
    fn length(&mut self, mean: f64) -> i64 {
        // A little noise, as the sum of a few.
        let noise: f64 = (0..4).map(|_| self.rng.f64() - 0.5).sum::<f64>() * 0.02;
        (mean * (1.0 + noise)) as i64
    }

    fn push(&mut self, rank: usize, kind: SpanKind, named: u32, stream: u32, phase: Phase, (start, end): (i64, i64)) {
        self.spans[rank].push(Span {
            stream: Some(Stream(stream)),
            step: Some(Step(self.step)),
            phase: Some(phase),
            ..Span::new(kind, name(named), Nanos(start), Nanos(end - start))
        });
    }

    /// Runs a kernel on a rank, after a gap.
    fn kernel(&mut self, rank: usize, phase: Phase, mean: f64, gap: i64) {
        let slow = match self.fault {
            Fault::SlowRank | Fault::SlowGpuIndex | Fault::SlowNode if self.fault.ranks().contains(&rank) => {
                1.0 + self.strength
            }
            Fault::Throttled => 1.0 + self.strength,
            _ => 1.0,
        };
        let mut gap = gap + 1_000;
        let launches_late = matches!(self.fault, Fault::SlowHostOfARank | Fault::SlowSwitch);
        if launches_late && self.fault.ranks().contains(&rank) {
            gap += (self.strength * STEP / (2 * LAYERS + 1) as f64) as i64;
        }
        if matches!(self.fault, Fault::SlowLaunches | Fault::LateStarts) {
            gap += (self.strength * STEP / (2 * LAYERS + 1) as f64) as i64;
        }
        let start = self.compute[rank] + gap;
        let end = start + self.length(mean * slow);
        // It is launched when the device is about to be free, or long before that.
        let is_late = gap > 2_000 && self.fault != Fault::LateStarts;
        let launched = if is_late { start - 900 } else { start - gap - 50_000 };
        let call = Correlation(self.spans[rank].len() as u64 + 1);
        self.push(rank, SpanKind::Launch, 4, 100, phase, (launched, launched + 500));
        self.push(rank, SpanKind::Kernel, 0, 0, phase, (start, end));
        self.spans[rank].iter_mut().rev().take(2).for_each(|span| span.correlation = Some(call));
        self.compute[rank] = end;
    }

    fn run_step(&mut self) {
        let begins = self.compute;
        for rank in 0..RANKS {
            let from = self.compute[rank];
            let cost = (self.strength * STEP) as i64;
            match self.fault {
                Fault::LateInput => {
                    self.push(rank, SpanKind::Phase, 0, 100, Phase::Data, (from, from + cost));
                    self.compute[rank] += cost;
                }
                Fault::Copies => {
                    self.push(rank, SpanKind::Copy, 3, 0, Phase::Forward, (from + 1_000, from + cost));
                    self.compute[rank] += cost;
                }
                Fault::Checkpoints => {
                    self.push(rank, SpanKind::Phase, 0, 100, Phase::Checkpoint, (from, from + cost));
                    self.compute[rank] += cost;
                }
                Fault::Allocation | Fault::Recorder => {
                    let called = if self.fault == Fault::Recorder { 7 } else { 5 };
                    self.push(rank, SpanKind::Launch, called, 100, Phase::Forward, (from + 500, from + cost));
                    self.compute[rank] += cost;
                }
                _ => {}
            }
            for layer in 0..LAYERS {
                self.kernel(rank, Phase::Forward, FORWARD, 0);
                if self.fault == Fault::Synchronization && layer % 4 == 3 {
                    let from = self.compute[rank] + 1_000;
                    self.push(rank, SpanKind::Copy, 2, 0, Phase::Forward, (from, from + 2_000));
                    // The host was ahead by so much, waits for the copy, and then is no longer ahead.
                    let wait = (self.strength * STEP / 3.0) as i64;
                    self.spans[rank].push(Span {
                        stream: Some(Stream(100)),
                        step: Some(Step(self.step)),
                        ..Span::new(SpanKind::Launch, name(6), Nanos(from - wait), Nanos(wait + 4_000))
                    });
                    self.compute[rank] = from + 2_000 + wait;
                }
            }
        }
        let mut free = 0;
        for layer in 0..LAYERS {
            for rank in 0..RANKS {
                if self.fault == Fault::Recomputation {
                    self.kernel(rank, Phase::Recompute, self.strength * STEP / LAYERS as f64, 0);
                }
                self.kernel(rank, Phase::Backward, 2.0 * FORWARD, 0);
            }
            if layer % LAYERS_OF_A_BUCKET == LAYERS_OF_A_BUCKET - 1 {
                free = self.bucket(free);
            }
        }
        for (rank, begin) in begins.into_iter().enumerate() {
            self.compute[rank] = self.compute[rank].max(free);
            self.kernel(rank, Phase::Optimizer, UPDATE, 0);
            let span = (begin, self.compute[rank]);
            self.push(rank, SpanKind::Step, 0, 100, Phase::Forward, span);
            if let Some(annotation) = self.spans[rank].last_mut() {
                annotation.phase = None;
            }
        }
        self.step += 1;
    }

    /// Sums a bucket of gradients over all ranks; says when that is over.
    fn bucket(&mut self, free: i64) -> i64 {
        let slow = if self.fault == Fault::SlowLink { 1.0 + 45.0 * self.strength } else { 1.0 };
        let starts: Vec<i64> = (0..RANKS).map(|rank| free.max(self.compute[rank]) + 1_000).collect();
        let end = starts.iter().max().unwrap_or(&0) + self.length(BUCKET * slow);
        for (rank, start) in starts.into_iter().enumerate() {
            self.push(rank, SpanKind::AllReduce, 1, 7, Phase::Backward, (start, end));
            if let Some(span) = self.spans[rank].last_mut() {
                (span.group, span.sequence) = (Some(Group(0)), Some(Sequence(self.sequence)));
                span.bytes = Some(1 << 20);
            }
        }
        self.sequence += 1;
        end
    }

    /// What the device says of its clock: before it is hot, it is at its highest.
    fn sample_clock(&self, writer: &mut RankWriter) {
        const EVERY: i64 = 100_000;
        const COUNTERS: [(CounterId, &str); 2] =
            [(CounterId(100), "gpu.sm_clock_mhz"), (CounterId(101), "gpu.throttle.thermal")];
        let is_hot = self.fault == Fault::Throttled;
        for (id, name) in COUNTERS {
            writer.push_name(NameId(u32::from(id.0)), name).unwrap();
        }
        for time in (0..self.compute[0]).step_by(EVERY as usize) {
            let held = f64::from(u8::from(is_hot && time > 0));
            let clock = 1980.0 / (1.0 + held * self.strength);
            for (counter, value) in COUNTERS.map(|(id, _)| id).into_iter().zip([clock, held]) {
                writer.push_counter(&CounterSample { time_ns: Nanos(time), counter, value }).unwrap();
            }
        }
    }

    /// The whole run, and how long a step takes.
    fn run(fault: Fault, strength: f64, seed: u64, path: &Path) -> (Analysis, f64) {
        let mut program = Program {
            rng: Rng::with_seed(seed),
            fault,
            strength,
            compute: [0; RANKS],
            spans: vec![Vec::new(); RANKS],
            sequence: 0,
            step: 0,
        };
        (0..STEPS).for_each(|_| program.run_step());
        let step = *program.compute.iter().max().unwrap_or(&0) as f64 / f64::from(STEPS);
        let mut info = RunInfo::of_this_process("injected");
        let all = (0..RANKS as u32).map(Rank).collect();
        info.groups = vec![GroupInfo { group: Group(0), axis: Axis::Data, ranks: all }];
        info.create(path).unwrap();
        for (rank, spans) in program.spans.iter().enumerate() {
            let mut info = RankInfo::of_this_process(Rank(rank as u32));
            info.clock = ClockRecord {
                source: "shared".into(),
                snapshots: vec![ClockSnapshot { rank_ns: Nanos(0), wall_ns: Nanos(0) }],
            };
            let (node, gpu) = (rank as u32 / 2, rank as u32 % 2);
            info.host = format!("node{node}");
            info.topology.node = Some(node);
            info.topology.gpu.index = Some(gpu);
            info.topology.switches = vec!["spine".into(), format!("leaf{}", node / 2)];
            info.device = Some(Device { name: "a GPU".into(), memory_bytes: Some(80 << 30), peak_flops: None });
            let mut writer = RankWriter::create(path, info).unwrap();
            for (place, text) in (0..).zip(NAMES) {
                writer.push_name(name(place), text).unwrap();
            }
            spans.iter().for_each(|span| writer.push_span(span).unwrap());
            let event = MemoryEvent {
                time_ns: Nanos(1),
                op: MemoryOperation::Alloc,
                address: 1,
                bytes: Some(20 << 30),
                category: Some(MemoryCategory::Parameters),
                step: None,
                phase: None,
                layer: None,
                pool: None,
                site: None,
            };
            writer.push_memory(&event).unwrap();
            program.sample_clock(&mut writer);
            writer.finish().unwrap();
        }
        (analyze(&Run::open(path).unwrap(), &Selection::default(), &|_| ()).unwrap(), step)
    }
}

/// How often a fault of some strength is found.
#[derive(Default)]
struct Tally {
    runs: u32,
    first: u32,
    cost: f64,
    /// How far the step without it is from the truth, as a share of the step, at most.
    wrong: f64,
}

#[test]
fn a_fault_that_costs_five_percent_is_the_first_finding() {
    const SEEDS: u64 = 3;
    let directory = tempfile::tempdir().unwrap();
    let mut runs = 0;
    let mut next = || {
        runs += 1;
        directory.path().join(runs.to_string())
    };
    let mut silent = 0;
    let clean: Vec<f64> = (0..5 * SEEDS)
        .map(|seed| {
            let (analysis, step) = Program::run(Fault::None, 0.0, seed, &next());
            let kinds: Vec<_> = analysis.findings.iter().map(|finding| (finding.kind, &finding.summary)).collect();
            silent += u32::from(kinds.is_empty());
            if !kinds.is_empty() {
                println!("clean: {kinds:?}");
            }
            step
        })
        .collect();
    let base = clean.iter().sum::<f64>() / clean.len() as f64;
    let mut table: BTreeMap<(Fault, u32), Tally> = BTreeMap::new();
    for fault in Fault::ALL {
        for percent in [6, 10, 20, 40] {
            for seed in 0..SEEDS {
                let (analysis, step) = Program::run(fault, f64::from(percent) / 100.0, seed, &next());
                let tally = table.entry((fault, percent)).or_default();
                let first = analysis.findings.first();
                tally.runs += 1;
                tally.cost += (step / base - 1.0) / SEEDS as f64;
                let at_fault: Vec<Rank> = fault.ranks().into_iter().map(|rank| Rank(rank as u32)).collect();
                let is_it = first.is_some_and(|finding| {
                    finding.kind == fault.kind() && (at_fault.is_empty() || finding.evidence.ranks == at_fault)
                });
                tally.first += u32::from(is_it);
                // No step is replayed without a slow place: what the others lose is what it would win.
                let lost = first.and_then(|finding| finding.lost_ns).map(|lost| step as i64 - lost);
                let without = first.and_then(|finding| finding.step_without_ns).or(lost);
                tally.wrong = tally.wrong.max(without.map_or(1.0, |without| (without as f64 - base).abs() / step));
                if !is_it {
                    println!(
                        "{fault:?} {percent}%: {:?}",
                        first.map(|finding| (finding.kind, &finding.summary, &finding.evidence.ranks))
                    );
                }
            }
        }
    }
    println!("fault, share of a step | costs | found first | step without it is off by, at most");
    let (mut costly, mut found) = (0, 0);
    for ((fault, percent), tally) in &table {
        println!(
            "{fault:?} {percent}% | {:.1}% | {} of {} | {:.1}%",
            100.0 * tally.cost,
            tally.first,
            tally.runs,
            100.0 * tally.wrong
        );
        if tally.cost >= 0.05 {
            costly += tally.runs;
            found += tally.first;
            assert!(tally.wrong <= 0.1, "{fault:?} {percent}%: what it would win is off by {:.3}", tally.wrong);
        }
    }
    println!(
        "clean runs without a finding: {silent} of {}; costly faults found first: {found} of {costly}",
        clean.len()
    );
    assert!(f64::from(found) >= 0.95 * f64::from(costly) && costly >= 100);
    assert!(f64::from(silent) >= 0.95 * clean.len() as f64);
}
