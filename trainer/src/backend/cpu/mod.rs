//! The CPU as a device: streams, memory that is taken and freed in their order, and kernels that anyone can read.

mod element;
mod experts;
pub(crate) mod kernels;
mod memory;
mod peak;
mod stream;

use std::{
    sync::{Arc, Mutex},
    thread::JoinHandle,
};

use half::bf16;
use stepscope_collector::Recorder;
use stepscope_traces::{Device, Group, MemoryCategory, Sequence, SpanKind};

pub use self::peak::{available_memory, measured_peak};
pub(crate) use self::{element::Element, memory::View};
use self::{
    memory::{Memory, Pool},
    stream::{Signal, SpanOf, Streams},
};
use crate::{
    backend::{
        AdamW, AttentionTensors, Backend, Columns, DType, Direction, Event, Heads, LossWeights, OptimizerTensors,
        Product, Stream, Tensor, Vocabulary,
        operations::{NORM_EPSILON, ROPE_BASE},
        work::{self, Work},
    },
    error::TrainError,
    lock::lock,
};

/// Runs an expression with `$element` as the type that stores a [`DType`].
macro_rules! with_element {
    ($dtype:expr, $element:ident => $body:expr) => {
        match $dtype {
            DType::Bf16 => {
                type $element = bf16;
                $body
            }
            DType::F32 => {
                type $element = f32;
                $body
            }
            DType::F64 => {
                type $element = f64;
                $body
            }
            DType::U32 => Err(TrainError::Disagreement("tokens are not numbers to compute with".into())),
        }
    };
}
pub(crate) use with_element;

/// As `with_element`, for the type that computes and the type that stores gradients.
macro_rules! with_elements {
    ($dtypes:expr, ($element:ident, $gradient:ident) => $body:expr) => {
        match $dtypes {
            (DType::Bf16, DType::F32) => {
                type $element = bf16;
                type $gradient = f32;
                $body
            }
            (dtype, gradient) if dtype == gradient => with_element!(dtype, Same => {
                type $element = Same;
                type $gradient = Same;
                $body
            }),
            (dtype, gradient) => {
                Err(TrainError::Disagreement(format!("{gradient:?} cannot hold what {dtype:?} computes")))
            }
        }
    };
}

/// One rank's share of the CPU.
pub struct CpuBackend {
    streams: Arc<Streams>,
    pool: Arc<Pool>,
    scratch: Arc<RecordedScratch>,
    threads: Vec<JoinHandle<()>>,
}

/// Room for the compute stream's intermediate values, recorded as it grows.
struct RecordedScratch {
    recorder: Recorder,
    room: Mutex<kernels::Scratch>,
}

impl Drop for RecordedScratch {
    fn drop(&mut self) {
        let room = self.room.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        room.place().into_iter().for_each(|place| self.went(place));
    }
}

impl RecordedScratch {
    fn lend(&self, work: impl FnOnce(&mut kernels::Scratch)) {
        let mut room = lock(&self.room);
        let before = room.place();
        work(&mut room);
        let after = room.place();
        if before != after {
            before.into_iter().for_each(|place| self.went(place));
            if let Some((address, bytes)) = after {
                self.recorder.reserve(address, bytes);
                self.recorder.allocate(address, bytes, MemoryCategory::Workspace);
            }
        }
    }

    fn went(&self, (address, _): (u64, u64)) {
        self.recorder.free(address);
        self.recorder.release(address);
    }
}

/// A block as the host holds it: freed, in order of the compute stream, when it is dropped. Queued work holds only the
/// memory, and so may end after that.
struct Block {
    memory: Arc<Memory>,
    streams: Arc<Streams>,
}

impl Drop for Block {
    fn drop(&mut self) {
        let (memory, recorder) = (self.memory.clone(), self.streams.recorder.clone());
        self.streams.launch(Stream::Compute, None, move || {
            memory.address().into_iter().for_each(|address| recorder.free(address));
            Ok(())
        });
    }
}

impl CpuBackend {
    /// A device of its own, on the cores of this machine.
    pub fn start(recorder: Recorder) -> Result<CpuBackend, TrainError> {
        let (streams, threads) = Streams::start(recorder.clone())?;
        let scratch = Arc::new(RecordedScratch { recorder: recorder.clone(), room: Mutex::default() });
        Ok(CpuBackend { streams, pool: Pool::new(recorder), scratch, threads })
    }

    /// What a rank's share of this machine is.
    pub fn describe(peak_flops: f64) -> Device {
        Device::core(&peak::cpu_name(), peak::memory_bytes(), peak_flops)
    }

    /// Says whom to tell, at once, when work on a stream has failed.
    pub(crate) fn on_failure(&self, tell: impl Fn(&TrainError) + Send + Sync + 'static) {
        self.streams.on_failure(tell);
    }

    /// Queues communication, which is recorded with its group and its number in it.
    pub(crate) fn communicate(
        &self,
        stream: Stream,
        (kind, bytes): (SpanKind, u64),
        collective: (Group, Sequence),
        work: impl FnOnce() -> Result<(), TrainError> + Send + 'static,
    ) {
        let name = self.streams.recorder.name(kind.word());
        let span = SpanOf { kind, name, bytes, flops: None, collective: Some(collective) };
        self.streams.launch(stream, Some(span), work);
    }

    fn launch(&self, name: &str, takes: Work, work: impl FnOnce() -> Result<(), TrainError> + Send + 'static) {
        let Work { flops, bytes } = takes;
        self.launch_as(SpanKind::Kernel, name, Some(flops), bytes, work);
    }

    fn launch_as(
        &self,
        kind: SpanKind,
        name: &str,
        flops: Option<u64>,
        bytes: u64,
        work: impl FnOnce() -> Result<(), TrainError> + Send + 'static,
    ) {
        let span = SpanOf { kind, name: self.streams.recorder.name(name), bytes, flops, collective: None };
        self.streams.launch(Stream::Compute, Some(span), work);
    }
}

impl Drop for CpuBackend {
    fn drop(&mut self) {
        self.streams.stop();
        for thread in self.threads.drain(..) {
            // A stream catches the panics of its work.
            drop(thread.join());
        }
        self.pool.close();
    }
}

/// The elements of a tensor that this backend made.
///
/// # Panics
/// When another backend made it: tensors never leave the rank they belong to.
pub(crate) fn view(tensor: &Tensor) -> View {
    match tensor.block::<Block>() {
        Some((block, range)) => View { memory: block.memory.clone(), range },
        None => panic!("a tensor of another backend"),
    }
}

fn signal(event: &Event) -> Arc<Signal> {
    match event.0.clone().downcast() {
        Ok(signal) => signal,
        Err(_) => panic!("an event of another backend"),
    }
}

impl Backend for CpuBackend {
    fn allocate(&self, elements: usize, dtype: DType, category: MemoryCategory) -> Tensor {
        let bytes = elements * dtype.bytes();
        let memory = Arc::new(Memory::new(bytes, self.pool.clone()));
        let (taken, recorder) = (memory.clone(), self.streams.recorder.clone());
        self.streams.launch(Stream::Compute, None, move || {
            let address = taken.materialize();
            if bytes > 0 {
                recorder.allocate(address, bytes as u64, category);
            }
            Ok(())
        });
        Tensor::new(Arc::new(Block { memory, streams: self.streams.clone() }), elements, dtype)
    }

    fn upload(&self, values: Vec<f32>, to: &Tensor) {
        let (dtype, target) = (to.dtype(), view(to));
        self.launch_as(SpanKind::Copy, "upload", None, to.bytes(), move || {
            with_element!(dtype, E => {
                kernels::convert::<f32, E>(&values, &mut target.write()?);
                Ok(())
            })
        });
    }

    fn upload_tokens(&self, tokens: Vec<u32>, to: &Tensor) {
        let target = view(to);
        self.launch_as(SpanKind::Copy, "upload", None, to.bytes(), move || {
            target.write::<u32>()?.copy_from_slice(&tokens);
            Ok(())
        });
    }

    fn download(&self, from: &Tensor) -> Result<Vec<f64>, TrainError> {
        self.streams.synchronize_compute()?;
        with_element!(from.dtype(), E => {
            let mut values = vec![0.0; from.elements()];
            kernels::convert::<E, f64>(&view(from).read::<E>()?, &mut values);
            Ok(values)
        })
    }

    fn copy(&self, from: &Tensor, to: &Tensor) {
        let (source, target) = (view(from), view(to));
        let (from_dtype, to_dtype) = (from.dtype(), to.dtype());
        self.launch_as(SpanKind::Copy, "copy", None, from.bytes() + to.bytes(), move || {
            with_element!(from_dtype, A => with_element!(to_dtype, B => {
                kernels::convert::<A, B>(&source.read::<A>()?, &mut target.write::<B>()?);
                Ok(())
            }))
        });
    }

    fn zero(&self, tensor: &Tensor) {
        let (dtype, target) = (tensor.dtype(), view(tensor));
        self.launch_as(SpanKind::Set, "zero", None, tensor.bytes(), move || {
            with_element!(dtype, E => {
                target.write::<E>()?.fill(E::default());
                Ok(())
            })
        });
    }

    fn record(&self, stream: Stream) -> Event {
        Event(self.streams.signal(stream))
    }

    fn wait(&self, stream: Stream, event: &Event) {
        self.streams.wait(stream, signal(event));
    }

    fn synchronize(&self) -> Result<(), TrainError> {
        self.streams.synchronize()
    }

    fn tell_later(&self, error: TrainError) {
        self.streams.tell_later(error);
    }

    fn matmul(&self, product: Product, a: &Tensor, b: &Tensor, out: &Tensor) {
        let name = match (product.transpose_a, product.transpose_b) {
            (false, false) => "matmul_nn",
            (false, true) => "matmul_nt",
            (true, false) => "matmul_tn",
            (true, true) => "matmul_tt",
        };
        let dtypes = (a.dtype(), out.dtype());
        let [a_view, b_view, out_view] = [a, b, out].map(view);
        let scratch = self.scratch.clone();
        self.launch(name, work::matmul(product, a, b, out), move || {
            with_elements!(dtypes, (E, O) => {
                let (a, b, mut out) = (a_view.read::<E>()?, b_view.read::<E>()?, out_view.write::<O>()?);
                scratch.lend(|scratch| kernels::matmul(&product, &a, &b, &mut out, scratch));
                Ok(())
            })
        });
    }

    fn add(&self, target: &Tensor, other: &Tensor) {
        let (dtype, sum, more) = (target.dtype(), view(target), view(other));
        self.launch("add", work::add(target, other), move || {
            with_element!(dtype, E => {
                kernels::add(&mut sum.write::<E>()?, &more.read::<E>()?);
                Ok(())
            })
        });
    }

    fn rms_norm(&self, x: &Tensor, weight: &Tensor, y: &Tensor) {
        let dtype = x.dtype();
        let [x_view, weight_view, y_view] = [x, weight, y].map(view);
        self.launch("rms_norm", work::rms_norm(x, weight, y), move || {
            with_element!(dtype, E => {
                let (x, weight) = (x_view.read::<E>()?, weight_view.read::<E>()?);
                kernels::rms_norm(&x, &weight, &mut y_view.write::<E>()?, NORM_EPSILON);
                Ok(())
            })
        });
    }

    fn rms_norm_backward(&self, x: &Tensor, weight: &Tensor, d_y: &Tensor, d_x: &Tensor, d_weight: &Tensor) {
        let dtypes = (x.dtype(), d_weight.dtype());
        let [x_view, weight_view, d_y_view, d_x_view, d_weight_view] = [x, weight, d_y, d_x, d_weight].map(view);
        let takes = work::rms_norm_backward(x, weight, d_y, d_x, d_weight);
        self.launch("rms_norm_backward", takes, move || {
            with_elements!(dtypes, (E, G) => {
                let (x, weight, d_y) = (x_view.read::<E>()?, weight_view.read::<E>()?, d_y_view.read::<E>()?);
                let (mut d_x, mut d_weight) = (d_x_view.write::<E>()?, d_weight_view.write::<G>()?);
                kernels::rms_norm_backward(&x, &weight, &d_y, &mut d_x, &mut d_weight, NORM_EPSILON);
                Ok(())
            })
        });
    }

    fn columns(&self, columns: Columns, from: &Tensor, to: &Tensor) {
        let (from_dtype, to_dtype) = (from.dtype(), to.dtype());
        let [source, target] = [from, to].map(view);
        let name = if columns.accumulate { "add_columns" } else { "copy_columns" };
        self.launch(name, work::columns(columns, from, to), move || {
            with_element!(from_dtype, A => with_element!(to_dtype, B => {
                kernels::columns::<A, B>(columns, &source.read::<A>()?, &mut target.write::<B>()?);
                Ok(())
            }))
        });
    }

    fn rope(&self, heads: Heads, first: usize, qkv: &Tensor, direction: Direction) {
        let (dtype, qkv_view) = (qkv.dtype(), view(qkv));
        let name = match direction {
            Direction::Forward => "rope",
            Direction::Backward => "rope_backward",
        };
        self.launch(name, work::rope(&heads, qkv), move || {
            with_element!(dtype, E => {
                kernels::rope(&heads, first, &mut qkv_view.write::<E>()?, direction, ROPE_BASE);
                Ok(())
            })
        });
    }

    fn attention(&self, heads: Heads, qkv: &Tensor, out: &Tensor, lse: &Tensor) {
        let dtype = qkv.dtype();
        let [qkv_view, out_view, lse_view] = [qkv, out, lse].map(view);
        let scratch = self.scratch.clone();
        self.launch("attention", work::attention(&heads, qkv, out, lse), move || {
            with_element!(dtype, E => {
                let (mut out, mut lse) = (out_view.write::<E>()?, lse_view.write::<<E as Element>::Sum>()?);
                let qkv = qkv_view.read::<E>()?;
                scratch.lend(|scratch| kernels::attention(&heads, &qkv, &mut out, &mut lse, scratch));
                Ok(())
            })
        });
    }

    fn attention_backward(&self, heads: Heads, of: AttentionTensors<'_>, d_out: &Tensor, d_qkv: &Tensor) {
        let dtype = d_out.dtype();
        let AttentionTensors { qkv, out, lse } = of;
        let [qkv_view, out_view, lse_view, d_out_view, d_qkv_view] = [qkv, out, lse, d_out, d_qkv].map(view);
        let scratch = self.scratch.clone();
        self.launch("attention_backward", work::attention_backward(&heads, of, d_out, d_qkv), move || {
            with_element!(dtype, E => {
                let (qkv, out, d_out) = (qkv_view.read::<E>()?, out_view.read::<E>()?, d_out_view.read::<E>()?);
                let lse = lse_view.read::<<E as Element>::Sum>()?;
                let mut d_qkv = d_qkv_view.write::<E>()?;
                scratch.lend(|scratch| {
                    kernels::attention_backward(&heads, &qkv, &out, &lse, &d_out, &mut d_qkv, scratch);
                });
                Ok(())
            })
        });
    }

    fn merge_attention(&self, heads: Heads, of: [&Tensor; 2], more: [&Tensor; 2]) {
        let dtype = more[0].dtype();
        let [out_view, lse_view] = of.map(view);
        let [more_view, more_lse_view] = more.map(view);
        self.launch("merge_attention", work::merge_attention(of, more), move || {
            with_element!(dtype, E => {
                type Sum = <E as Element>::Sum;
                let (more, more_lse) = (more_view.read::<E>()?, more_lse_view.read::<Sum>()?);
                let (mut out, mut lse) = (out_view.write::<Sum>()?, lse_view.write::<Sum>()?);
                kernels::merge_attention::<E>(heads.head_dim, (&mut out, &mut lse), (&more, &more_lse));
                Ok(())
            })
        });
    }

    fn swiglu(&self, gate_up: &Tensor, product: &Tensor, width: usize) {
        let (dtype, gate_up_view, product_view) = (product.dtype(), view(gate_up), view(product));
        self.launch("swiglu", work::swiglu(gate_up, product), move || {
            with_element!(dtype, E => {
                kernels::swiglu(&gate_up_view.read::<E>()?, &mut product_view.write::<E>()?, width);
                Ok(())
            })
        });
    }

    fn swiglu_backward(&self, gate_up: &Tensor, d_product: &Tensor, d_gate_up: &Tensor, width: usize) {
        let dtype = d_product.dtype();
        let [gate_up_view, d_product_view, d_gate_up_view] = [gate_up, d_product, d_gate_up].map(view);
        self.launch("swiglu_backward", work::swiglu_backward(gate_up, d_product, d_gate_up), move || {
            with_element!(dtype, E => {
                let (gate_up, d_product) = (gate_up_view.read::<E>()?, d_product_view.read::<E>()?);
                kernels::swiglu_backward(&gate_up, &d_product, &mut d_gate_up_view.write::<E>()?, width);
                Ok(())
            })
        });
    }

    fn embedding(&self, tokens: &Tensor, table: &Tensor, out: &Tensor, width: usize, first: u32) {
        let dtype = out.dtype();
        let [tokens_view, table_view, out_view] = [tokens, table, out].map(view);
        self.launch("embedding", work::embedding(tokens, out), move || {
            with_element!(dtype, E => {
                let (tokens, table) = (tokens_view.read::<u32>()?, table_view.read::<E>()?);
                kernels::embedding(&tokens, &table, &mut out_view.write::<E>()?, width, first);
                Ok(())
            })
        });
    }

    fn embedding_backward(&self, tokens: &Tensor, d_out: &Tensor, d_table: &Tensor, width: usize, first: u32) {
        let dtypes = (d_out.dtype(), d_table.dtype());
        let [tokens_view, d_out_view, d_table_view] = [tokens, d_out, d_table].map(view);
        self.launch("embedding_backward", work::embedding_backward(tokens, d_out), move || {
            with_elements!(dtypes, (E, G) => {
                let (tokens, d_out) = (tokens_view.read::<u32>()?, d_out_view.read::<E>()?);
                kernels::embedding_backward::<E, G>(&tokens, &d_out, &mut d_table_view.write::<G>()?, width, first);
                Ok(())
            })
        });
    }

    fn row_maxima(&self, logits: &Tensor, maxima: &Tensor) {
        let (dtype, logits_view, maxima_view) = (logits.dtype(), view(logits), view(maxima));
        self.launch("row_maxima", work::row_maxima(logits, maxima), move || {
            with_element!(dtype, E => {
                let mut maxima = maxima_view.write::<<E as Element>::Sum>()?;
                let logits = logits_view.read::<E>()?;
                let columns = logits.len() / maxima.len().max(1);
                kernels::row_maxima(&logits, columns, &mut maxima);
                Ok(())
            })
        });
    }

    fn row_sums(&self, logits: &Tensor, vocabulary: Vocabulary<'_>, maxima: &Tensor, sums: &Tensor) {
        let (dtype, first) = (logits.dtype(), vocabulary.first);
        let [logits_view, targets_view, maxima_view, sums_view] = [logits, vocabulary.targets, maxima, sums].map(view);
        self.launch("row_sums", work::row_sums(logits, vocabulary.targets, maxima, sums), move || {
            with_element!(dtype, E => {
                let (logits, targets) = (logits_view.read::<E>()?, targets_view.read::<u32>()?);
                let maxima = maxima_view.read::<<E as Element>::Sum>()?;
                let columns = logits.len() / maxima.len().max(1);
                kernels::row_sums(&logits, columns, &maxima, &targets, first, &mut sums_view.write()?);
                Ok(())
            })
        });
    }

    fn loss(&self, maxima: &Tensor, sums: &Tensor, weights: LossWeights, total: &Tensor) {
        let dtype = maxima.dtype();
        let [maxima_view, sums_view, total_view] = [maxima, sums, total].map(view);
        self.launch("loss", work::loss(maxima, sums, total), move || {
            with_element!(dtype, E => {
                let (maxima, sums) = (maxima_view.read()?, sums_view.read()?);
                kernels::loss::<<E as Element>::Sum>(&maxima, &sums, weights, &mut total_view.write()?);
                Ok(())
            })
        });
    }

    fn loss_backward(
        &self,
        logits: &Tensor,
        vocabulary: Vocabulary<'_>,
        (maxima, sums): (&Tensor, &Tensor),
        weights: LossWeights,
        d_logits: &Tensor,
    ) {
        let (dtype, first) = (logits.dtype(), vocabulary.first);
        let [logits_view, targets_view, d_logits_view] = [logits, vocabulary.targets, d_logits].map(view);
        let [maxima_view, sums_view] = [maxima, sums].map(view);
        let takes = work::loss_backward(logits, vocabulary.targets, (maxima, sums), d_logits);
        self.launch("loss_backward", takes, move || {
            with_element!(dtype, E => {
                let (logits, targets) = (logits_view.read::<E>()?, targets_view.read::<u32>()?);
                let (maxima, sums) = (maxima_view.read()?, sums_view.read()?);
                let columns = logits.len() / maxima.len().max(1);
                let mut d_logits = d_logits_view.write::<E>()?;
                kernels::loss_backward(&logits, columns, &maxima, &sums, &targets, first, weights, &mut d_logits);
                Ok(())
            })
        });
    }

    fn add_squares(&self, values: &Tensor, total: &Tensor) {
        let (dtype, [values_view, total_view]) = (values.dtype(), [values, total].map(view));
        self.launch("squares", work::add_squares(values, total), move || {
            with_element!(dtype, E => {
                kernels::add_squares::<E>(&values_view.read()?, &mut total_view.write()?);
                Ok(())
            })
        });
    }

    fn adamw(&self, settings: AdamW, tensors: OptimizerTensors<'_>) {
        let takes = work::adamw(&tensors);
        let OptimizerTensors { gradients, parameters, master, first_moment, second_moment, squares } = tensors;
        let dtypes = (parameters.dtype(), gradients.dtype());
        let [gradients_view, parameters_view] = [gradients, parameters].map(view);
        let [first_view, second_view] = [first_moment, second_moment].map(view);
        let (master_view, squares_view) = (master.map(view), view(squares));
        self.launch("adamw", takes, move || {
            with_elements!(dtypes, (E, G) => {
                let gradients = gradients_view.read::<G>()?;
                let (mut parameters, mut first) = (parameters_view.write::<E>()?, first_view.write()?);
                let (mut second, mut master) = (second_view.write()?, master_view.map(|view| view.write()).transpose()?);
                let master = master.as_deref_mut();
                let squares = squares_view.read()?[0];
                kernels::adamw((&settings, squares), &gradients, &mut parameters, master, &mut first, &mut second);
                Ok(())
            })
        });
    }
}
