//! An NVIDIA GPU as a device: streams, memory by category, cuBLASLt, and kernels of our own.

mod array;
mod attention;
mod cache;
mod cudnn;
mod device;
mod experts;
mod grouped;
mod kernels;
mod mark;
mod matmul;
mod memory;
mod transfer;

use std::sync::{Arc, Mutex, OnceLock};

use cudarc::driver::sys::CUstream;
use half::bf16;
use stepscope_collector::{LaunchInfo, Recorder};
use stepscope_traces::{CollectorNote, MemoryCategory};

pub(crate) use self::{array::Array, device::Device, kernels::Part, mark::Mark};
use self::{
    array::AttentionArrays,
    attention::Attention,
    grouped::Grouped,
    kernels::{Kernels, OptimizerArrays, Targets},
    matmul::{Matmul, WORKSPACE_BYTES},
    memory::{Block, Memory},
    transfer::Uploads,
};
use crate::{
    backend::{
        AdamW, AttentionTensors, Backend, Columns, DType, Direction, Event, Heads, LossWeights, OptimizerTensors,
        Product, Stream, Tensor, Vocabulary,
        work::{self, Work},
    },
    error::TrainError,
    lock::lock,
};

/// The oldest compute capability that has what the kernels use.
const OLDEST: (u32, u32) = (8, 0);

/// One rank's GPU.
pub struct CudaBackend {
    kernels: Kernels,
    matmul: Matmul,
    /// What multiplies the matrices of experts at once, if there is something; looked for when it is first needed.
    grouped: OnceLock<Option<Grouped>>,
    attention: Attention,
    /// What cuBLASLt uses beside the matrices; taken when it is first needed.
    matmul_workspace: OnceLock<Block>,
    memory: Arc<Memory>,
    uploads: Uploads,
    recorder: Recorder,
    failure: Mutex<Failure>,
    device: Device,
}

/// What went wrong first. What comes after it is not tried.
#[derive(Default)]
enum Failure {
    #[default]
    None,
    Untold(TrainError),
    Told,
}

impl CudaBackend {
    /// Loads what it takes to compute, and takes no memory yet. What is repeatable is the same to the last bit each time.
    pub(crate) fn start(device: Device, recorder: Recorder, repeatable: bool) -> Result<CudaBackend, TrainError> {
        device.enter()?;
        let capability = device.capability()?;
        if capability < OLDEST {
            let why = format!("compute capability {}.{} is too old; 8.0 is needed", capability.0, capability.1);
            return Err(TrainError::Settings(why));
        }
        let attention = Attention::open(capability, repeatable);
        recorder.note(CollectorNote::Attention(attention.note()));
        let memory = Memory::new(device.stream(Stream::Compute).clone(), recorder.clone());
        Ok(CudaBackend {
            kernels: Kernels::load(capability, device.shared_room()?)?,
            matmul: Matmul::open()?,
            grouped: OnceLock::new(),
            attention,
            matmul_workspace: OnceLock::new(),
            memory,
            uploads: Uploads::default(),
            recorder,
            failure: Mutex::default(),
            device,
        })
    }

    /// What went wrong, if anything did; the whole of it only once.
    fn tell(&self) -> Result<(), TrainError> {
        let mut failure = lock(&self.failure);
        match *failure {
            Failure::None => Ok(()),
            Failure::Told => Err(TrainError::FailedBefore),
            Failure::Untold(_) => match std::mem::replace(&mut *failure, Failure::Told) {
                Failure::Untold(error) => Err(error),
                _ => Err(TrainError::FailedBefore),
            },
        }
    }

    /// The GPU itself.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    fn stream(&self) -> CUstream {
        self.device.stream(Stream::Compute).cu_stream()
    }

    /// Queues work, unless something has failed before; remembers why, if this does.
    pub(crate) fn attempt(&self, work: impl FnOnce() -> Result<(), TrainError>) {
        if !matches!(*lock(&self.failure), Failure::None) {
            return;
        }
        // Whichever thread this is.
        if let Err(error) = self.device.enter().and_then(|()| work()) {
            self.fail(error);
        }
    }

    /// Remembers what went wrong, unless something has before.
    pub(crate) fn fail(&self, error: TrainError) {
        let mut failure = lock(&self.failure);
        if matches!(*failure, Failure::None) {
            *failure = Failure::Untold(error);
        }
    }

    /// As [`CudaBackend::attempt`], of kernels that take so much.
    fn launch(&self, takes: Work, work: impl FnOnce(CUstream) -> Result<(), TrainError>) {
        let (flops, bytes) = (Some(takes.flops), Some(takes.bytes));
        let _launching = self.recorder.launching(LaunchInfo { flops, bytes, ..LaunchInfo::default() });
        self.attempt(|| work(self.stream()));
    }

    /// Reads memory of the device, which waits for the compute stream.
    fn read<T>(&self, read: impl FnOnce(CUstream) -> Result<T, TrainError>) -> Result<T, TrainError> {
        self.tell()?;
        self.device.enter()?;
        let values = read(self.stream())?;
        // They are on the stream that was waited for.
        self.uploads.clear();
        // What came of work that was given up meanwhile is nothing to go on with.
        self.tell().map(|()| values)
    }

    /// Memory for the duration of an operation.
    fn scratch(&self, bytes: usize) -> Result<(Block, Array), TrainError> {
        let elements = bytes.div_ceil(DType::F32.bytes());
        let block = self.memory.allocate((elements * DType::F32.bytes()) as u64, MemoryCategory::Workspace)?;
        let array = Array { address: block.address(), elements, dtype: DType::F32 };
        Ok((block, array))
    }

    fn matmul_workspace(&self) -> Result<Array, TrainError> {
        let block = match self.matmul_workspace.get() {
            Some(block) => block,
            None => {
                let block = self.memory.allocate(WORKSPACE_BYTES as u64, MemoryCategory::Workspace)?;
                self.matmul_workspace.get_or_init(|| block)
            }
        };
        Ok(Array { address: block.address(), elements: WORKSPACE_BYTES / 4, dtype: DType::F32 })
    }
}

/// Where a tensor's numbers are.
///
/// # Panics
/// When another backend made it: tensors never leave the rank they belong to.
pub(crate) fn array(tensor: &Tensor) -> Array {
    match tensor.block::<Block>() {
        Some((block, range)) => {
            let dtype = tensor.dtype();
            Array { address: block.address() + (range.start * dtype.bytes()) as u64, elements: range.len(), dtype }
        }
        None => panic!("a tensor of another backend"),
    }
}

fn attention_arrays(of: AttentionTensors<'_>) -> AttentionArrays {
    AttentionArrays { qkv: array(of.qkv), out: array(of.out), lse: array(of.lse) }
}

fn targets(vocabulary: Vocabulary<'_>) -> Targets {
    Targets { tokens: array(vocabulary.targets), first: vocabulary.first }
}

/// None where the device refused to make one, which has been noted.
fn event(event: &Event) -> Option<&Mark> {
    match event.0.downcast_ref::<Option<Mark>>() {
        Some(event) => event.as_ref(),
        None => panic!("an event of another backend"),
    }
}

impl Drop for CudaBackend {
    fn drop(&mut self) {
        // Memory goes back in order of the stream; what is still queued may use what the fields hold.
        drop(self.device.synchronize());
    }
}

impl Backend for CudaBackend {
    fn allocate(&self, elements: usize, dtype: DType, category: MemoryCategory) -> Tensor {
        let mut block = None;
        self.attempt(|| {
            block = Some(self.memory.allocate((elements * dtype.bytes()) as u64, category)?);
            Ok(())
        });
        // After a failure nothing looks at it.
        let block = block.unwrap_or_else(|| self.memory.nothing());
        Tensor::new(Arc::new(block), elements, dtype)
    }

    fn upload(&self, values: Vec<f32>, to: &Tensor) {
        self.attempt(|| match to.dtype() {
            DType::F32 => self.uploads.upload(self.stream(), values, array(to)),
            DType::Bf16 => {
                let values: Vec<bf16> = values.iter().map(|value| bf16::from_f32(*value)).collect();
                self.uploads.upload(self.stream(), values, array(to))
            }
            other => Err(TrainError::Disagreement(format!("{other:?} on a GPU"))),
        });
    }

    fn upload_tokens(&self, tokens: Vec<u32>, to: &Tensor) {
        self.attempt(|| self.uploads.upload(self.stream(), tokens, array(to)));
    }

    fn download(&self, from: &Tensor) -> Result<Vec<f64>, TrainError> {
        let array = array(from);
        self.read(|stream| match from.dtype() {
            DType::F32 => Ok(transfer::download::<f32>(stream, array)?.into_iter().map(f64::from).collect()),
            DType::Bf16 => Ok(transfer::download::<bf16>(stream, array)?.into_iter().map(f64::from).collect()),
            other => Err(TrainError::Disagreement(format!("{other:?} on a GPU"))),
        })
    }

    fn copy(&self, from: &Tensor, to: &Tensor) {
        self.attempt(|| match (array(from), array(to)) {
            (from, to) if from.elements != to.elements => {
                Err(TrainError::Disagreement(format!("{} numbers into {}", from.elements, to.elements)))
            }
            (from, to) if from.dtype == to.dtype => transfer::copy(self.stream(), from, to),
            (from, to) => self.kernels.convert(self.stream(), from, to),
        });
    }

    fn zero(&self, tensor: &Tensor) {
        self.attempt(|| transfer::zero(self.stream(), array(tensor)));
    }

    fn record(&self, stream: Stream) -> Event {
        let mut event = None;
        self.attempt(|| {
            event = Some(self.device.record(stream)?);
            Ok(())
        });
        Event(Arc::new(event))
    }

    fn wait(&self, stream: Stream, event: &Event) {
        self.attempt(|| self::event(event).map_or(Ok(()), |event| self.device.wait(stream, event)));
    }

    fn synchronize(&self) -> Result<(), TrainError> {
        self.tell()?;
        self.device.enter()?;
        self.device.synchronize()?;
        self.uploads.clear();
        self.tell()
    }

    fn tell_later(&self, error: TrainError) {
        let mut failure = lock(&self.failure);
        if !matches!(*failure, Failure::Untold(_)) && !matches!(error, TrainError::FailedBefore) {
            *failure = Failure::Untold(error);
        }
    }

    fn matmul(&self, product: Product, a: &Tensor, b: &Tensor, out: &Tensor) {
        self.launch(work::matmul(product, a, b, out), |stream| {
            let arrays = (array(a), array(b), array(out));
            self.matmul.launch(stream, product, arrays, self.matmul_workspace()?)
        });
    }

    fn add(&self, target: &Tensor, other: &Tensor) {
        self.launch(work::add(target, other), |stream| self.kernels.add(stream, array(target), array(other)));
    }

    fn rms_norm(&self, x: &Tensor, weight: &Tensor, y: &Tensor) {
        self.launch(work::rms_norm(x, weight, y), |stream| {
            self.kernels.rms_norm(stream, array(x), array(weight), array(y))
        });
    }

    fn rms_norm_backward(&self, x: &Tensor, weight: &Tensor, d_y: &Tensor, d_x: &Tensor, d_weight: &Tensor) {
        self.launch(work::rms_norm_backward(x, weight, d_y, d_x, d_weight), |stream| {
            let [x, weight, d_y, d_x, d_weight] = [x, weight, d_y, d_x, d_weight].map(array);
            let rows = x.elements / weight.elements.max(1);
            let (_scratch, sums) = self.scratch(Kernels::rms_norm_backward_workspace_bytes(rows, weight.elements))?;
            self.kernels.rms_norm_backward(stream, x, weight, d_y, d_x, d_weight, sums)
        });
    }

    fn columns(&self, columns: Columns, from: &Tensor, to: &Tensor) {
        self.launch(work::columns(columns, from, to), |stream| {
            self.kernels.columns(stream, columns, array(from), array(to))
        });
    }

    fn rope(&self, heads: Heads, first: usize, qkv: &Tensor, direction: Direction) {
        self.launch(work::rope(&heads, qkv), |stream| self.kernels.rope(stream, heads, first, array(qkv), direction));
    }

    fn attention(&self, heads: Heads, qkv: &Tensor, out: &Tensor, lse: &Tensor) {
        self.launch(work::attention(&heads, qkv, out, lse), |stream| {
            let arrays = attention_arrays(AttentionTensors { qkv, out, lse });
            let (_scratch, workspace) = self.scratch(self.attention.workspace(heads, qkv.dtype()).forward)?;
            self.attention.forward(&self.kernels, stream, heads, arrays, workspace)
        });
    }

    fn attention_backward(&self, heads: Heads, of: AttentionTensors<'_>, d_out: &Tensor, d_qkv: &Tensor) {
        self.launch(work::attention_backward(&heads, of, d_out, d_qkv), |stream| {
            let gradients = (array(d_out), array(d_qkv));
            let (_scratch, workspace) = self.scratch(self.attention.workspace(heads, d_out.dtype()).backward)?;
            self.attention.backward(&self.kernels, stream, heads, attention_arrays(of), gradients, workspace)
        });
    }

    fn merge_attention(&self, heads: Heads, of: [&Tensor; 2], more: [&Tensor; 2]) {
        self.launch(work::merge_attention(of, more), |stream| {
            self.kernels.merge_attention(stream, heads, of.map(array), more.map(array))
        });
    }

    fn swiglu(&self, gate_up: &Tensor, product: &Tensor, width: usize) {
        self.launch(work::swiglu(gate_up, product), |stream| {
            self.kernels.swiglu(stream, array(gate_up), array(product), width)
        });
    }

    fn swiglu_backward(&self, gate_up: &Tensor, d_product: &Tensor, d_gate_up: &Tensor, width: usize) {
        self.launch(work::swiglu_backward(gate_up, d_product, d_gate_up), |stream| {
            self.kernels.swiglu_backward(stream, array(gate_up), array(d_product), array(d_gate_up), width)
        });
    }

    fn embedding(&self, tokens: &Tensor, table: &Tensor, out: &Tensor, width: usize, first: u32) {
        self.launch(work::embedding(tokens, out), |stream| {
            self.kernels.embedding(stream, array(tokens), array(table), array(out), width, first)
        });
    }

    fn embedding_backward(&self, tokens: &Tensor, d_out: &Tensor, d_table: &Tensor, width: usize, first: u32) {
        self.launch(work::embedding_backward(tokens, d_out), |stream| {
            self.kernels.embedding_backward(stream, array(tokens), array(d_out), array(d_table), width, first)
        });
    }

    fn row_maxima(&self, logits: &Tensor, maxima: &Tensor) {
        self.launch(work::row_maxima(logits, maxima), |stream| {
            self.kernels.row_maxima(stream, array(logits), array(maxima))
        });
    }

    fn row_sums(&self, logits: &Tensor, vocabulary: Vocabulary<'_>, maxima: &Tensor, sums: &Tensor) {
        self.launch(work::row_sums(logits, vocabulary.targets, maxima, sums), |stream| {
            self.kernels.row_sums(stream, array(logits), targets(vocabulary), array(maxima), array(sums))
        });
    }

    fn loss(&self, maxima: &Tensor, sums: &Tensor, weights: LossWeights, total: &Tensor) {
        self.launch(work::loss(maxima, sums, total), |stream| {
            self.kernels.loss(stream, array(maxima), array(sums), weights, array(total))
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
        self.launch(work::loss_backward(logits, vocabulary.targets, (maxima, sums), d_logits), |stream| {
            let [logits, maxima, sums, d_logits] = [logits, maxima, sums, d_logits].map(array);
            self.kernels.loss_backward(stream, logits, targets(vocabulary), (maxima, sums), weights, d_logits)
        });
    }

    fn add_squares(&self, values: &Tensor, total: &Tensor) {
        self.launch(work::add_squares(values, total), |stream| {
            let (values, total) = (array(values), array(total));
            let (_scratch, sums) = self.scratch(Kernels::sum_of_squares_workspace_bytes(values.elements))?;
            self.kernels.add_sum_of_squares(stream, values, total, sums)
        });
    }

    fn adamw(&self, settings: AdamW, tensors: OptimizerTensors<'_>) {
        self.launch(work::adamw(&tensors), |stream| {
            let arrays = OptimizerArrays {
                gradients: array(tensors.gradients),
                parameters: array(tensors.parameters),
                master: tensors.master.map(array),
                first_moment: array(tensors.first_moment),
                second_moment: array(tensors.second_moment),
                squares: array(tensors.squares),
            };
            self.kernels.adamw(stream, settings, arrays)
        });
    }
}
