//! How to record your own program: a two-layer network, trained by two data-parallel ranks, here as threads.
//!
//! Everything about recording is a call of `recorder`; the rest is the program.

use std::{
    error::Error,
    path::Path,
    process::ExitCode,
    sync::{Barrier, Mutex},
    thread,
};

use stepscope_collector::Recorder;
use stepscope_traces::{
    Counter, Group, Layer, MemoryCategory, NameId, Phase, Rank, RankInfo, RunInfo, Sequence, SpanKind, Step, Stream,
};

const RANKS: u32 = 2;
const STEPS: i32 = 60;
const BATCH: usize = 128;
const INPUT: usize = 192;
const HIDDEN: usize = 384;
const OUTPUT: usize = 64;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut info = RunInfo::of_this_process("toy-training");
    info.world_size = Some(RANKS);
    info.configuration.insert("steps".into(), STEPS.into());
    let path = info.default_path();
    info.create(&path)?;

    let (path, ring) = (&path, &Ring { sum: Mutex::new(Vec::new()), barrier: Barrier::new(RANKS as usize) });
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..RANKS).map(|rank| scope.spawn(move || train(Rank(rank), path, ring))).collect();
        ranks.into_iter().try_for_each(|rank| rank.join().unwrap_or_else(|_| Err("a rank panicked".into())))
    })?;
    println!("recorded {}", path.display());
    Ok(())
}

fn train(rank: Rank, path: &Path, ring: &Ring) -> Result<(), Box<dyn Error + Send + Sync>> {
    let recorder = Recorder::start(path, RankInfo::of_this_process(rank))?;
    let kernels = Kernels::new(&recorder);
    // Every rank starts from the same weights and sees its own data.
    let mut noise = Noise(42);
    let mut weights = [noise.matrix(INPUT * HIDDEN, 0.1), noise.matrix(HIDDEN * OUTPUT, 0.1)];
    let teacher = noise.matrix(INPUT * OUTPUT, 0.1);
    weights.iter().for_each(|weight| kernels.allocate(weight, MemoryCategory::Parameters));
    let mut data = Noise(1000 + u64::from(rank.0));

    for step in 0..STEPS {
        let _step = recorder.step(Step(step));
        let input = data.matrix(BATCH * INPUT, 1.0);
        let target = kernels.matmul(&input, &teacher, [BATCH, INPUT, OUTPUT], MemoryCategory::Inputs);

        let forward = recorder.phase(Phase::Forward);
        let layer = recorder.layer(Layer(0));
        let mut hidden = kernels.matmul(&input, &weights[0], [BATCH, INPUT, HIDDEN], MemoryCategory::Activations);
        kernels.run("relu", || hidden.iter_mut().for_each(|value| *value = value.max(0.0)));
        drop(layer);
        let layer = recorder.layer(Layer(1));
        let output = kernels.matmul(&hidden, &weights[1], [BATCH, HIDDEN, OUTPUT], MemoryCategory::Activations);
        drop((layer, forward));

        let backward = recorder.phase(Phase::Backward);
        let error: Vec<f32> = output.iter().zip(&target).map(|(output, target)| output - target).collect();
        let layer = recorder.layer(Layer(1));
        let hidden_t = transposed(&hidden, BATCH);
        let output_gradient = kernels.matmul(&hidden_t, &error, [HIDDEN, BATCH, OUTPUT], MemoryCategory::Gradients);
        let weight_t = transposed(&weights[1], HIDDEN);
        let mut through = kernels.matmul(&error, &weight_t, [BATCH, OUTPUT, HIDDEN], MemoryCategory::Activations);
        drop(layer);
        let layer = recorder.layer(Layer(0));
        kernels.run("relu_backward", || {
            through.iter_mut().zip(&hidden).for_each(|(gradient, value)| *gradient *= f32::from(*value > 0.0));
        });
        let input_t = transposed(&input, BATCH);
        let input_gradient = kernels.matmul(&input_t, &through, [INPUT, BATCH, HIDDEN], MemoryCategory::Gradients);
        drop((layer, backward));

        let _optimizer = recorder.phase(Phase::Optimizer);
        let mut gradients = [input_gradient, output_gradient];
        for (index, (weight, gradient)) in weights.iter_mut().zip(&mut gradients).enumerate() {
            kernels.all_reduce(gradient, ring, step as u64 * 2 + index as u64);
            kernels.run("sgd", || {
                weight.iter_mut().zip(gradient).for_each(|(weight, slope)| *weight -= 0.1 / BATCH as f32 * *slope);
            });
        }
        let loss = error.iter().map(|error| error * error).sum::<f32>() / error.len() as f32;
        recorder.count(Counter::Loss, loss.into());
        recorder.count(Counter::Tokens, (BATCH * RANKS as usize) as f64);
        [&target, &hidden, &output, &through].into_iter().chain(&gradients).for_each(|matrix| kernels.free(matrix));
        if rank == Rank(0) && step % 10 == 0 {
            println!("step {step:>2}  loss {loss:.4}");
        }
    }
    drop(kernels);
    Ok(recorder.finish()?)
}

/// The operations of the program, each recorded as it runs.
struct Kernels {
    recorder: Recorder,
    matmul: NameId,
    all_reduce: NameId,
}

impl Kernels {
    fn new(recorder: &Recorder) -> Kernels {
        let (matmul, all_reduce) = (recorder.name("matmul"), recorder.name("all_reduce"));
        Kernels { recorder: recorder.clone(), matmul, all_reduce }
    }

    fn run(&self, name: &str, work: impl FnOnce()) {
        let _span = self.recorder.span(SpanKind::Kernel, self.recorder.name(name)).stream(Stream(0));
        work();
    }

    /// `left` is rows × inner, `right` is inner × columns.
    fn matmul(&self, left: &[f32], right: &[f32], shape: [usize; 3], category: MemoryCategory) -> Vec<f32> {
        let [rows, inner, columns] = shape;
        let mut product = vec![0.0; rows * columns];
        self.allocate(&product, category);
        let flops = 2 * (rows * inner * columns) as u64;
        let _span = self.recorder.span(SpanKind::Kernel, self.matmul).stream(Stream(0)).flops(flops);
        for (row, out) in left.chunks(inner).zip(product.chunks_mut(columns)) {
            for (factor, other) in row.iter().zip(right.chunks(columns)) {
                out.iter_mut().zip(other).for_each(|(sum, value)| *sum += factor * value);
            }
        }
        product
    }

    /// Replaces each rank's values by their mean over the ranks.
    fn all_reduce(&self, values: &mut [f32], ring: &Ring, sequence: u64) {
        let bytes = size_of_val(values) as u64;
        let span = self.recorder.span(SpanKind::AllReduce, self.all_reduce).stream(Stream(1));
        let _span = span.bytes(bytes).collective(Group(0), Sequence(sequence));
        let lock = || ring.sum.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if ring.barrier.wait().is_leader() {
            *lock() = vec![0.0; values.len()];
        }
        ring.barrier.wait();
        lock().iter_mut().zip(&*values).for_each(|(sum, value)| *sum += value / RANKS as f32);
        ring.barrier.wait();
        values.copy_from_slice(&lock());
        ring.barrier.wait();
    }

    fn allocate(&self, matrix: &[f32], category: MemoryCategory) {
        self.recorder.allocate(matrix.as_ptr() as u64, size_of_val(matrix) as u64, category);
    }

    fn free(&self, matrix: &[f32]) {
        self.recorder.free(matrix.as_ptr() as u64);
    }
}

/// What the ranks share.
struct Ring {
    sum: Mutex<Vec<f32>>,
    barrier: Barrier,
}

fn transposed(matrix: &[f32], rows: usize) -> Vec<f32> {
    let columns = matrix.len() / rows;
    (0..matrix.len()).map(|index| matrix[index % rows * columns + index / rows]).collect()
}

/// Numbers that look random, the same each time.
struct Noise(u64);

impl Noise {
    fn matrix(&mut self, length: usize, scale: f32) -> Vec<f32> {
        let mut next = || {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0) * scale
        };
        (0..length).map(|_| next()).collect()
    }
}
