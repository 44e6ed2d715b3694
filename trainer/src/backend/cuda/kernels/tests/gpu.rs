//! A GPU to test on, where there is one.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use cudarc::driver::{
    CudaContext, CudaSlice, CudaStream, DevicePtr,
    sys::{self, CUdevice_attribute, CUstream},
};
use stepscope_collector::libraries::{self, Library};

use super::{super::compile::Compiler, Kernels, Stored};
use crate::{
    backend::{DType, cuda::array::Array},
    skipped::skipped,
};

/// A device, its default stream, and the kernels loaded on it.
pub(super) struct Gpu {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    pub(super) kernels: Kernels,
}

/// Memory of the GPU that goes when it is dropped.
pub(super) struct Buffer {
    memory: CudaSlice<u8>,
    pub(super) array: Array,
}

/// The GPU, or a line that says why a test was skipped.
pub(super) fn gpu() -> Option<&'static Gpu> {
    static GPU: OnceLock<Result<Gpu, String>> = OnceLock::new();
    match GPU.get_or_init(Gpu::open) {
        Ok(gpu) => {
            gpu.context.bind_to_thread().unwrap();
            Some(gpu)
        }
        Err(why) => {
            skipped("gpu", why);
            None
        }
    }
}

#[expect(unsafe_code, reason = "asks for a library that may not be there")]
fn has_driver() -> bool {
    // SAFETY: it only asks the loader whether the library can be opened.
    libraries::open(Library::Cuda).is_ok() || unsafe { sys::is_culib_present() }
}

fn capability(context: &CudaContext) -> (u32, u32) {
    let attribute = |attribute| context.attribute(attribute).unwrap() as u32;
    (
        attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
    )
}

/// Shared memory that a block can ask for.
fn room(context: &CudaContext) -> usize {
    let most = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    context.attribute(most).unwrap() as usize
}

impl Gpu {
    fn open() -> Result<Gpu, String> {
        if !has_driver() {
            return Err("no NVIDIA driver".into());
        }
        let context = CudaContext::new(0).map_err(|error| format!("no GPU: {error:?}"))?;
        let (major, minor) = capability(&context);
        let kernels = Kernels::load((major, minor), room(&context)).map_err(|error| error.to_string())?;
        Ok(Gpu { stream: context.default_stream(), context, kernels })
    }

    /// Loads the kernels once more, with a cache of its own.
    pub(super) fn load_kernels(&self, cache: Option<PathBuf>) -> Kernels {
        let (major, minor) = capability(&self.context);
        Kernels::load_with(Compiler::new(major, minor, cache).unwrap(), room(&self.context)).unwrap()
    }

    pub(super) fn stream(&self) -> CUstream {
        self.stream.cu_stream()
    }

    pub(super) fn synchronize(&self) {
        self.stream.synchronize().unwrap();
    }

    fn buffer(&self, bytes: &[u8], elements: usize, dtype: DType) -> Buffer {
        // An allocation has at least one byte, and nothing is at an address that others have.
        let memory = self.stream.clone_htod(if bytes.is_empty() { &[0][..] } else { bytes }).unwrap();
        let (address, _) = memory.device_ptr(&self.stream);
        Buffer { array: Array { address, elements, dtype }, memory }
    }

    pub(super) fn upload<E: Stored>(&self, values: &[E]) -> Buffer {
        self.buffer(bytemuck::cast_slice(values), values.len(), E::DTYPE)
    }

    /// The same at an address that no vector can be read from.
    pub(super) fn upload_misaligned<E: Stored>(&self, values: &[E]) -> Buffer {
        let shifted: Vec<E> = [E::default()].iter().chain(values).copied().collect();
        let mut buffer = self.upload(&shifted);
        buffer.array.address += size_of::<E>() as u64;
        buffer.array.elements = values.len();
        buffer
    }

    pub(super) fn upload_tokens(&self, tokens: &[u32]) -> Buffer {
        self.buffer(bytemuck::cast_slice(tokens), tokens.len(), DType::U32)
    }

    /// Room in which every number is NaN until it is written.
    pub(super) fn poisoned<E: Stored>(&self, elements: usize) -> Buffer {
        self.buffer(&vec![0xff; elements * size_of::<E>()], elements, E::DTYPE)
    }

    /// Room that is only large enough, also full of NaN.
    pub(super) fn workspace(&self, bytes: usize) -> Buffer {
        self.poisoned::<f32>(bytes.div_ceil(size_of::<f32>()))
    }

    /// Waits, and reads the numbers.
    pub(super) fn download<E: Stored>(&self, buffer: &Buffer) -> Vec<E> {
        self.read(buffer)
    }

    pub(super) fn download_tokens(&self, buffer: &Buffer) -> Vec<u32> {
        self.read(buffer)
    }

    fn read<T: bytemuck::AnyBitPattern>(&self, buffer: &Buffer) -> Vec<T> {
        let bytes = self.stream.clone_dtoh(&buffer.memory).unwrap();
        let (begin, _) = buffer.memory.device_ptr(&self.stream);
        let skipped = (buffer.array.address - begin) as usize;
        let wanted = &bytes[skipped..][..buffer.array.elements * size_of::<T>()];
        wanted.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
    }
}
