//! Many matrix products at once, by cuBLAS: those of all experts of a layer.
#![allow(unsafe_code, reason = "cuBLAS is a C library")]

use std::{
    ffi::{c_int, c_void},
    ptr,
};

use cudarc::{
    cublas::{
        result::CublasError,
        sys::{
            self, cublasComputeType_t as ComputeType, cublasOperation_t as Operation, cudaDataType,
            libraryPropertyType_t as Property,
        },
    },
    driver::sys::CUstream,
};
use stepscope_collector::libraries::{self, Library};

use super::{array::Array, matmul::check};
use crate::{
    backend::{DType, Product},
    error::TrainError,
};

/// The first version that has it: major and minor.
const FIRST: (c_int, c_int) = (12, 5);
/// What the matrices of a group have to lie at multiples of.
const ALIGNMENT: u64 = 16;

/// FLOPs of a product, on an average, up to which they are faster at once: larger ones fill the device by themselves. On an H200, a
/// step with 64 experts takes 0.72 and 0.87 of the time at once with 0.1 and 0.4 GFLOPs each; one with 8 experts takes 1.06 and
/// 1.23 times as long with 1.6 and 13.
const MOST_FLOPS: usize = 1_000_000_000;

/// A product and its arrays: both factors and the result.
pub(crate) type OfArrays = (Product, [Array; 3]);

/// cuBLAS, on the stream that it was opened for.
pub(crate) struct Grouped(sys::cublasHandle_t);

// SAFETY: any thread may use a handle of cuBLAS.
unsafe impl Send for Grouped {}
// SAFETY: only the thread of a rank multiplies, and handles have no state that calls change.
unsafe impl Sync for Grouped {}

impl Grouped {
    /// Opens cuBLAS for a stream, with memory of ours to work in; nothing where it is not there, or too old.
    pub(crate) fn open(stream: CUstream, workspace: Array) -> Result<Option<Grouped>, TrainError> {
        if libraries::open(Library::Cublas).is_err() || version().is_none_or(|version| version < FIRST) {
            return Ok(None);
        }
        let mut handle = ptr::null_mut();
        // SAFETY: the address is written to before this returns.
        unsafe { sys::cublasCreate_v2(&raw mut handle) }.result().map_err(failed("start cuBLAS"))?;
        let grouped = Grouped(handle);
        // SAFETY: the handle is alive. The memory is the device's, and there for as long as the handle; that of another stream
        // would be forgotten, so the stream comes first.
        let set = unsafe {
            sys::cublasSetStream_v2(handle, stream.cast()).result().and_then(|()| {
                let (memory, bytes) = (workspace.address as *mut c_void, workspace.bytes());
                sys::cublasSetWorkspace_v2(handle, memory, bytes).result()
            })
        };
        set.map_err(failed("start cuBLAS"))?;
        Ok(Some(grouped))
    }

    /// Whether it does these at once, and fast. It knows no results in another precision, and reads many numbers at once. Sums over
    /// rows it does one after the other.
    pub(crate) fn takes(products: &[OfArrays]) -> bool {
        let Some((_, [first, ..])) = products.first() else { return false };
        let fits = |array: &Array| array.dtype == first.dtype && array.address.is_multiple_of(ALIGNMENT);
        let is_over_rows = products.iter().any(|(product, _)| product.transpose_a);
        let flops = |(Product { rows, columns, inner, .. }, _): &OfArrays| 2 * rows * columns * inner;
        let is_small = products.iter().map(flops).sum::<usize>() <= MOST_FLOPS * products.len();
        is_small && !is_over_rows && products.iter().flat_map(|(_, arrays)| arrays).all(fits)
    }

    /// What [`Grouped::launch`] has to find in the device's memory: where the second factors are, the first ones, and the results.
    pub(crate) fn addresses(products: &[OfArrays]) -> Vec<u64> {
        let of = |place: usize| products.iter().map(move |(_, arrays)| arrays[place].address);
        of(1).chain(of(0)).chain(of(2)).collect()
    }

    /// Queues products that it takes, with their addresses in the device's memory.
    pub(crate) fn launch(&self, products: &[OfArrays], addresses: Array) -> Result<(), TrainError> {
        products.iter().try_for_each(|(product, arrays)| check(*product, *arrays))?;
        let Some((_, [first, ..])) = products.first() else { return Ok(()) };
        let Sizes { m, n, k, a, b, out, transpose_a, transpose_b, alpha, beta, group } = Sizes::of(products);
        let dtype = match first.dtype {
            DType::Bf16 => cudaDataType::CUDA_R_16BF,
            DType::F32 => cudaDataType::CUDA_R_32F,
            other => return Err(TrainError::Disagreement(format!("the GPU does not compute with {other:?}"))),
        };
        let bytes = (products.len() * size_of::<u64>()) as u64;
        let [a_pointers, b_pointers, out_pointers] = [0, 1, 2].map(|third| addresses.address + third * bytes);
        // SAFETY: the handle is alive; the host's arrays have as many members as there are groups, and are read before this
        // returns; the device's have as many pointers, to matrices that are as large as was looked at, and all live until the
        // stream is past this.
        let launched = unsafe {
            sys::cublasGemmGroupedBatchedEx(
                self.0,
                transpose_a.as_ptr(),
                transpose_b.as_ptr(),
                m.as_ptr(),
                n.as_ptr(),
                k.as_ptr(),
                alpha.as_ptr().cast(),
                a_pointers as *const *const c_void,
                dtype,
                a.as_ptr(),
                b_pointers as *const *const c_void,
                dtype,
                b.as_ptr(),
                beta.as_ptr().cast(),
                out_pointers as *const *mut c_void,
                dtype,
                out.as_ptr(),
                products.len() as c_int,
                group.as_ptr(),
                ComputeType::CUBLAS_COMPUTE_32F,
            )
        };
        launched.result().map_err(failed("multiply the matrices of experts"))
    }
}

impl Drop for Grouped {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more.
        let _ = unsafe { sys::cublasDestroy_v2(self.0) };
    }
}

/// Products as cuBLAS wants them, each a group of one. It counts by columns, so what lies row by row is to it the transpose: it is
/// asked for outᵀ = bᵀ · aᵀ.
#[derive(Default)]
struct Sizes {
    m: Vec<c_int>,
    n: Vec<c_int>,
    k: Vec<c_int>,
    /// How far apart columns are.
    a: Vec<c_int>,
    b: Vec<c_int>,
    out: Vec<c_int>,
    transpose_a: Vec<Operation>,
    transpose_b: Vec<Operation>,
    alpha: Vec<f32>,
    beta: Vec<f32>,
    group: Vec<c_int>,
}

impl Sizes {
    fn of(products: &[OfArrays]) -> Sizes {
        let mut sizes = Sizes::default();
        let operation = |transposed| if transposed { Operation::CUBLAS_OP_T } else { Operation::CUBLAS_OP_N };
        for (Product { rows, columns, inner, transpose_a, transpose_b, accumulate }, _) in products {
            sizes.m.push(*columns as c_int);
            sizes.n.push(*rows as c_int);
            sizes.k.push(*inner as c_int);
            sizes.a.push(if *transpose_b { *inner } else { *columns } as c_int);
            sizes.b.push(if *transpose_a { *rows } else { *inner } as c_int);
            sizes.out.push(*columns as c_int);
            sizes.transpose_a.push(operation(*transpose_b));
            sizes.transpose_b.push(operation(*transpose_a));
            sizes.alpha.push(1.0);
            sizes.beta.push(if *accumulate { 1.0 } else { 0.0 });
            sizes.group.push(1);
        }
        sizes
    }
}

/// Major and minor version of the library, which is loaded.
fn version() -> Option<(c_int, c_int)> {
    let number = |property| {
        let mut number = 0;
        // SAFETY: the library is loaded, and the number is there to be written to.
        unsafe { sys::cublasGetProperty(property, &raw mut number) }.result().ok().map(|()| number)
    };
    Some((number(Property::MAJOR_VERSION)?, number(Property::MINOR_VERSION)?))
}

fn failed(action: &'static str) -> impl Fn(CublasError) -> TrainError {
    move |error| TrainError::device(action)(error)
}
