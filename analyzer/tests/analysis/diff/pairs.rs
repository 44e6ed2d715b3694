//! Runs of data-parallel ranks with one thing about them that can be changed.

use std::path::Path;

use stepscope_analyzer::{Diff, Selection, compare, profile};
use stepscope_plan::Axis;
use stepscope_traces::{
    Group, GroupInfo, Layer, MemoryCategory, MemoryEvent, MemoryOperation, MicroBatch, NameId, Nanos, Phase, Rank, Run,
    RunInfo, Sequence, Span, SpanKind, Step, Stream,
};
use tempfile::TempDir;

use crate::support::{Hand, write};

/// What a run of a pair is like.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) ranks: u32,
    pub(super) steps: i32,
    /// A kernel that takes so many times as long.
    pub(super) slow_kernel: Option<(&'static str, f64)>,
    /// A rank whose kernels take so many times as long.
    pub(super) slow_rank: Option<(usize, f64)>,
    /// How much of an all-reduce is hidden.
    pub(super) hidden_ns: i64,
    pub(super) all_reduces: u32,
    pub(super) activations: u32,
    /// What the matrix product of the forward pass is called.
    pub(super) product: &'static str,
    pub(super) recomputes: bool,
    /// Standard deviation of a step's speed, and of a kernel's, as shares.
    pub(super) noise: f64,
    pub(super) seed: u64,
}

impl Default for Job {
    fn default() -> Job {
        Job {
            ranks: 2,
            steps: 8,
            slow_kernel: None,
            slow_rank: None,
            hidden_ns: 200_000,
            all_reduces: 1,
            activations: 3,
            product: "matmul_nn",
            recomputes: false,
            noise: 0.0,
            seed: 1,
        }
    }
}

const ALL_REDUCE_NS: i64 = 300_000;
pub(super) const ACTIVATION_BYTES: u64 = 48 << 20;

impl Job {
    fn kernels(&self) -> Vec<(&'static str, Phase, i64)> {
        let mut kernels = vec![
            ("rms_norm", Phase::Forward, 50_000),
            (self.product, Phase::Forward, 400_000),
            ("attention", Phase::Forward, 200_000),
        ];
        if self.recomputes {
            kernels.push((self.product, Phase::Recompute, 400_000));
        }
        kernels.extend([("attention_backward", Phase::Backward, 300_000), ("matmul_nt", Phase::Backward, 700_000)]);
        kernels
    }

    /// Writes the run.
    pub(super) fn write(&self) -> TempDir {
        let mut info = RunInfo::of_this_process("made");
        info.world_size = Some(self.ranks);
        let ranks = (0..self.ranks).map(Rank).collect();
        info.groups = vec![GroupInfo { group: Group(0), axis: Axis::Data, ranks }];
        let mut hands: Vec<Hand> = (0..self.ranks).map(|_| Hand::default()).collect();
        let mut random = fastrand::Rng::with_seed(self.seed);
        let mut now = vec![1_000_000_i64; self.ranks as usize];
        let mut said = 0;
        for step in 0..self.steps {
            self.step(step, &mut hands, &mut now, &mut said, &mut random);
        }
        write(info, &hands)
    }

    fn step(&self, step: i32, hands: &mut [Hand], now: &mut [i64], said: &mut u64, random: &mut fastrand::Rng) {
        let place = |span: Span, phase: Phase| Span {
            step: Some(Step(step)),
            phase: Some(phase),
            layer: Some(Layer(0)),
            micro_batch: Some(MicroBatch(0)),
            ..span
        };
        let span = |kind, stream, start: i64, end: i64| Span {
            stream: Some(Stream(stream)),
            ..Span::new(kind, NameId(0), Nanos(start), Nanos(end - start))
        };
        let speed = 1.0 + self.noise * normal(random);
        let began = now.to_vec();
        for (rank, hand) in hands.iter_mut().enumerate() {
            let copied = now[rank] + 20_000;
            hand.add("copy", place(span(SpanKind::Copy, 2, now[rank], copied), Phase::Data));
            now[rank] = copied;
            for (name, phase, length) in self.kernels() {
                let slow_kernel = self.slow_kernel.filter(|(slow, _)| *slow == name).map_or(1.0, |(_, times)| times);
                let slow_rank = self.slow_rank.filter(|(slow, _)| *slow == rank).map_or(1.0, |(_, times)| times);
                let length = length as f64 * speed * slow_kernel * slow_rank * (1.0 + self.noise * normal(random));
                let end = now[rank] + length as i64;
                let kernel = Span { flops: Some(1_000_000), ..place(span(SpanKind::Kernel, 0, now[rank], end), phase) };
                hand.add(name, kernel);
                now[rank] = end + 5_000;
            }
            now[rank] -= 5_000;
        }
        for _ in 0..self.all_reduces {
            // They begin where each rank is ready, and end together.
            let starts: Vec<i64> = now.iter().map(|ready| ready - self.hidden_ns).collect();
            let length = (ALL_REDUCE_NS as f64 * speed) as i64;
            let end = starts.iter().max().unwrap() + length;
            for (rank, hand) in hands.iter_mut().enumerate() {
                let reduce = place(span(SpanKind::AllReduce, 1, starts[rank], end), Phase::Backward);
                let (group, sequence, bytes) = (Some(Group(0)), Some(Sequence(*said)), Some(1 << 20));
                hand.add("all_reduce", Span { group, sequence, bytes, ..reduce });
                now[rank] = now[rank].max(end);
            }
            *said += 1;
        }
        for (rank, hand) in hands.iter_mut().enumerate() {
            let end = now[rank] + (150_000.0 * speed) as i64;
            hand.add("adamw", place(span(SpanKind::Kernel, 0, now[rank], end), Phase::Optimizer));
            self.remember(step, hand, began[rank], end);
            now[rank] = end + 30_000;
        }
    }

    /// Memory of a step, and of what stays.
    fn remember(&self, step: i32, hand: &mut Hand, from: i64, to: i64) {
        let event = |time: i64, op, address: u64, bytes, category| MemoryEvent {
            time_ns: Nanos(time),
            op,
            address,
            bytes,
            category,
            step: Some(Step(step)),
            phase: Some(Phase::Forward),
            layer: None,
            pool: None,
            site: None,
        };
        let alloc =
            |time, address, bytes, category| event(time, MemoryOperation::Alloc, address, Some(bytes), Some(category));
        if step == 0 {
            hand.memory.push(alloc(from - 10, 1, 100 << 20, MemoryCategory::Parameters));
            hand.memory.push(alloc(from - 10, 2, 600 << 20, MemoryCategory::OptimizerState));
        }
        let addresses = || (0..self.activations).map(|block| 10 + u64::from(block));
        hand.memory.extend(addresses().map(|at| alloc(from, at, ACTIVATION_BYTES, MemoryCategory::Activations)));
        hand.memory.extend(addresses().map(|at| event(to, MemoryOperation::Free, at, None, None)));
    }
}

/// A normal deviate, near enough: the sum of twelve even ones.
fn normal(random: &mut fastrand::Rng) -> f64 {
    (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
}

/// Compares two runs; whatever they are, it adds up.
pub(super) fn compared(base: &Path, other: &Path) -> Diff {
    let runs = [base, other].map(|path| Run::open(path).unwrap());
    let [base, other] = [(&runs[0], "base"), (&runs[1], "other")]
        .map(|(run, name)| profile(run, name, &Selection::default(), &|_| {}).unwrap());
    let diff = compare(&base, &other).unwrap();
    assert_adds_up(&diff);
    diff
}

/// Compares two jobs.
pub(super) fn diff(base: &Job, other: &Job) -> Diff {
    let (base, other) = (base.write(), other.write());
    compared(&base.path().join("run"), &other.path().join("run"))
}

/// What must hold of every comparison.
pub(super) fn assert_adds_up(diff: &Diff) {
    if let Some(time) = &diff.step_time {
        let sum = |of: fn(&stepscope_analyzer::TimeCause) -> i64| time.causes.iter().map(of).sum::<i64>();
        assert_eq!(sum(|cause| cause.change_ns), time.change_ns);
        assert_eq!((sum(|cause| cause.base_ns), sum(|cause| cause.other_ns)), (time.base_ns, time.other_ns));
        assert_eq!(time.other_ns - time.base_ns, time.change_ns);
        for cause in &time.causes {
            let kernels: Vec<_> = diff.kernels.iter().filter(|kernel| kernel.cause == cause.cause).collect();
            if !kernels.is_empty() {
                assert_eq!(kernels.iter().map(|kernel| kernel.change_ns).sum::<i64>(), cause.change_ns, "{cause:?}");
            }
        }
        for kernel in &diff.kernels {
            assert_eq!(kernel.count_effect_ns + kernel.duration_effect_ns, kernel.change_ns, "{kernel:?}");
        }
    }
    if let Some(memory) = &diff.peak_memory {
        let sum = |of: fn(&stepscope_analyzer::MemoryCause) -> i64| memory.causes.iter().map(of).sum::<i64>();
        assert_eq!(sum(|cause| cause.change_bytes), memory.change_bytes);
        assert_eq!(
            (sum(|cause| cause.base_bytes), sum(|cause| cause.other_bytes)),
            (memory.base_bytes, memory.other_bytes)
        );
        for cause in memory.causes.iter().filter(|cause| !cause.parts.is_empty()) {
            assert_eq!(cause.parts.iter().map(|part| part.change_bytes).sum::<i64>(), cause.change_bytes, "{cause:?}");
        }
    }
}
