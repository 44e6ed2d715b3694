//! Loading machine code and starting kernels: all that the compiler cannot check about them.

#![allow(unsafe_code, reason = "calls the driver's C interface, with arguments that only the kernels' text declares")]

use std::ffi::{CString, c_void};

use cudarc::driver::{
    result,
    sys::{CUfunction, CUfunction_attribute, CUmodule, CUstream},
};

use super::super::array::Array;
use crate::error::TrainError;

/// What a kernel may use of an SM's shared memory without asking.
const SHARED_WITHOUT_ASKING: usize = 48 << 10;

/// Machine code on a device.
pub(super) struct Module(CUmodule);

// SAFETY: a handle that the driver lets any thread use whose context is the one it was loaded in.
unsafe impl Send for Module {}
// SAFETY: the driver lets several threads use a module at once, in the context it was loaded in.
unsafe impl Sync for Module {}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: it was loaded by `load` and its functions go with it. There is nobody to tell of a failure, which
        // is what there is when the context went first.
        let _ = unsafe { result::module::unload(self.0) };
    }
}

impl Module {
    /// Loads into the current context.
    pub(super) fn load(name: &str, code: &[u8]) -> Result<Module, TrainError> {
        // SAFETY: the driver reads the image's own header, and refuses what is not one.
        unsafe { result::module::load_data(code.as_ptr().cast::<c_void>()) }
            .map(Module)
            .map_err(TrainError::device(format!("load {name}")))
    }

    /// A kernel by its name, ready for so much dynamic shared memory.
    pub(super) fn function(&self, name: &str, shared_bytes: usize) -> Result<Function, TrainError> {
        let action = || format!("find kernel {name}");
        let label = CString::new(name).map_err(TrainError::device(action()))?;
        // SAFETY: the module is loaded.
        let function = unsafe { result::module::get_function(self.0, label) }.map_err(TrainError::device(action()))?;
        if shared_bytes > SHARED_WITHOUT_ASKING {
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is of a loaded module.
            unsafe { result::function::set_function_attribute(function, attribute, shared_bytes as i32) }
                .map_err(TrainError::device(format!("give {shared_bytes} bytes of shared memory to {name}")))?;
        }
        Ok(Function(function))
    }
}

/// A kernel of a module that stays loaded.
#[derive(Clone, Copy)]
pub(super) struct Function(CUfunction);

// SAFETY: as `Module`.
unsafe impl Send for Function {}
// SAFETY: as `Module`.
unsafe impl Sync for Function {}

/// The shape of a launch, and the arguments so far, in the order of the kernel's declaration.
pub(super) struct Launch {
    grid: [usize; 3],
    threads: usize,
    shared_bytes: usize,
    /// Each in the lower bytes of a slot: what the kernel declares says how many of them it reads.
    slots: Vec<u64>,
    /// The slot that each argument begins with: a structure takes several.
    arguments: Vec<usize>,
}

impl Launch {
    /// A grid of blocks and threads.
    pub(super) fn new(blocks: usize, threads: usize) -> Launch {
        Launch::grid([blocks, 1, 1], threads)
    }

    /// Blocks in three dimensions.
    pub(super) fn grid(grid: [usize; 3], threads: usize) -> Launch {
        Launch { grid, threads, shared_bytes: 0, slots: Vec::with_capacity(16), arguments: Vec::with_capacity(16) }
    }

    /// With shared memory that the launch decides on.
    pub(super) fn shared(mut self, bytes: usize) -> Launch {
        self.shared_bytes = bytes;
        self
    }

    /// How much shared memory that is.
    pub(super) fn shared_bytes(&self) -> usize {
        self.shared_bytes
    }

    /// A pointer.
    pub(super) fn array(self, array: Array) -> Launch {
        self.slot(array.address)
    }

    /// A pointer that may be null.
    pub(super) fn optional(self, array: Option<Array>) -> Launch {
        self.slot(array.map_or(0, |array| array.address))
    }

    /// A `long long`, an `int` or an `unsigned`.
    pub(super) fn size(self, size: usize) -> Launch {
        self.slot(size as u64)
    }

    /// A `float`.
    pub(super) fn float(self, value: f32) -> Launch {
        self.slot(u64::from(value.to_bits()))
    }

    /// A `double`.
    pub(super) fn double(self, value: f64) -> Launch {
        self.slot(value.to_bits())
    }

    /// A structure of nothing but numbers of eight bytes.
    pub(super) fn structure(mut self, numbers: &[u64]) -> Launch {
        self.arguments.push(self.slots.len());
        self.slots.extend_from_slice(numbers);
        self
    }

    fn slot(self, bits: u64) -> Launch {
        self.structure(&[bits])
    }

    /// Queues the kernel; an empty grid is nothing to do.
    pub(super) fn start(mut self, name: &str, function: Function, stream: CUstream) -> Result<(), TrainError> {
        if self.grid.contains(&0) {
            return Ok(());
        }
        let action = || format!("launch {name}");
        let [Ok(x), Ok(y), Ok(z)] = self.grid.map(u32::try_from) else {
            return Err(TrainError::device(action())(self.grid));
        };
        let first = self.slots.as_mut_ptr();
        let mut pointers: Vec<*mut c_void> =
            self.arguments.iter().map(|slot| first.wrapping_add(*slot).cast()).collect();
        let (threads, shared) = (self.threads as u32, self.shared_bytes as u32);
        // SAFETY: the pointers are to slots that outlive the call, as many and in the order that the kernel declares
        // them, which the tests of each kernel show; what arrays point to is kept until the stream is past this.
        unsafe { result::launch_kernel(function.0, (x, y, z), (threads, 1, 1), shared, stream, &mut pointers) }
            .map_err(TrainError::device(action()))
    }
}
