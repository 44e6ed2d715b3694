//! Matrix products by cuBLASLt: an algorithm is picked once for each shape.
#![allow(unsafe_code, reason = "cuBLASLt is a C library")]

use std::{
    collections::{HashMap, hash_map::Entry},
    ffi::c_void,
    mem::size_of_val,
    sync::Mutex,
};

use cudarc::{
    cublaslt::{
        result::{self, CublasError},
        sys::{
            self, cublasComputeType_t as ComputeType, cublasLtMatmulDescAttributes_t as DescAttribute,
            cublasLtMatmulPreferenceAttributes_t as Preference, cudaDataType,
        },
    },
    driver::sys::CUstream,
};
use stepscope_collector::libraries::{self, Library};

use super::array::Array;
use crate::{
    backend::{DType, Product},
    error::TrainError,
    lock::lock,
};

/// What cuBLASLt may use beside the matrices: what it recommends for Hopper.
pub(crate) const WORKSPACE_BYTES: usize = 32 << 20;

/// cuBLASLt, and what it has picked so far.
pub(crate) struct Matmul {
    handle: sys::cublasLtHandle_t,
    plans: Mutex<HashMap<Key, Plan>>,
}

// SAFETY: a handle of cuBLASLt may be used from any thread, and plans are used under the lock.
unsafe impl Send for Matmul {}
// SAFETY: cuBLASLt lets several threads use a handle at once, and plans are used under the lock.
unsafe impl Sync for Matmul {}

/// What an algorithm is picked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    product: Product,
    inputs: DType,
    out: DType,
    /// Of a, b and the result.
    alignments: [u32; 3],
}

impl Key {
    fn of(product: Product, [a, b, out]: [Array; 3]) -> Key {
        let alignments = [a, b, out].map(|array| 1 << array.address.trailing_zeros().min(8));
        Key { product, inputs: a.dtype, out: out.dtype, alignments }
    }

    /// For about as many tokens. What is multiplied has a token in each row, or in each column where it is transposed: then they
    /// are summed over.
    fn about(self) -> Key {
        let about = |tokens: usize| tokens.next_multiple_of((tokens.next_power_of_two() / 8).max(16));
        let Product { rows, inner, transpose_a, .. } = self.product;
        let product = match transpose_a {
            true => Product { inner: about(inner), ..self.product },
            false => Product { rows: about(rows), ..self.product },
        };
        Key { product, ..self }
    }
}

/// A product, and the algorithm for it.
struct Plan {
    description: Description,
    algorithm: sys::cublasLtMatmulAlgo_t,
}

/// A product as cuBLASLt wants it described.
struct Description {
    product: Descriptor<sys::cublasLtMatmulDescOpaque_t>,
    /// Of `b`, `a` and the result: see [`Description::new`].
    layouts: [Descriptor<sys::cublasLtMatrixLayoutOpaque_t>; 3],
}

/// Something that cuBLASLt made and takes back.
struct Descriptor<T> {
    pointer: *mut T,
    destroy: unsafe fn(*mut T) -> Result<(), CublasError>,
}

impl<T> Drop for Descriptor<T> {
    fn drop(&mut self) {
        // SAFETY: it was made by the function that goes with `destroy`, and is not used again.
        let _ = unsafe { (self.destroy)(self.pointer) };
    }
}

impl Matmul {
    pub(crate) fn open() -> Result<Matmul, TrainError> {
        libraries::open(Library::CublasLt)?;
        let handle = result::create_handle().map_err(TrainError::device("start cuBLASLt"))?;
        Ok(Matmul { handle, plans: Mutex::default() })
    }

    /// Queues a product. Arrays hold what the product says.
    pub(crate) fn launch(
        &self,
        stream: CUstream,
        product: Product,
        (a, b, out): (Array, Array, Array),
        workspace: Array,
    ) -> Result<(), TrainError> {
        let arrays = [a, b, out];
        check(product, arrays)?;
        self.planned(Key::of(product, arrays), |plan| {
            plan.description.launch((self.handle, stream), product, arrays, &plan.algorithm, workspace)
        })
    }

    /// The same for a product of which each has another number of tokens: the algorithm is the one for about as many, so that it
    /// is neither looked for nor kept for each number.
    pub(crate) fn launch_one_of_many(
        &self,
        stream: CUstream,
        product: Product,
        arrays: [Array; 3],
        workspace: Array,
    ) -> Result<(), TrainError> {
        check(product, arrays)?;
        let key = Key::of(product, arrays);
        let description = Description::new(key).map_err(TrainError::device(format!("plan {product:?}")))?;
        let launch = |algorithm: &sys::cublasLtMatmulAlgo_t| {
            description.launch((self.handle, stream), product, arrays, algorithm, workspace)
        };
        if self.planned(key.about(), |plan| launch(&plan.algorithm)).is_ok() {
            return Ok(());
        }
        // It is not for this one.
        let multiplied = pick(self.handle, &description, key.alignments).and_then(|algorithm| launch(&algorithm));
        multiplied.map_err(TrainError::device(format!("multiply {product:?}")))
    }

    /// Does something with the plan for a product, which is made when it is first needed.
    fn planned(&self, key: Key, work: impl FnOnce(&Plan) -> Result<(), CublasError>) -> Result<(), TrainError> {
        let mut plans = lock(&self.plans);
        let plan = match plans.entry(key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let plan = Plan::new(self.handle, key);
                entry.insert(plan.map_err(TrainError::device(format!("plan {:?}", key.product)))?)
            }
        };
        work(plan).map_err(TrainError::device(format!("multiply {:?}", key.product)))
    }
}

/// Arrays have to hold what the product says.
pub(super) fn check(product: Product, [a, b, out]: [Array; 3]) -> Result<(), TrainError> {
    let Product { rows, columns, inner, .. } = product;
    let sizes = [(a.elements, rows * inner), (b.elements, inner * columns), (out.elements, rows * columns)];
    if sizes.iter().any(|(there, wanted)| there != wanted) || a.dtype != b.dtype {
        return Err(TrainError::Disagreement(format!("{a:?}, {b:?} and {out:?} for {product:?}")));
    }
    Ok(())
}

impl Drop for Matmul {
    fn drop(&mut self) {
        lock(&self.plans).clear();
        // SAFETY: nobody uses it any more.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

impl Plan {
    fn new(handle: sys::cublasLtHandle_t, key: Key) -> Result<Plan, CublasError> {
        let description = Description::new(key)?;
        let algorithm = pick(handle, &description, key.alignments)?;
        Ok(Plan { description, algorithm })
    }
}

impl Description {
    /// cuBLASLt counts by columns, so what lies row by row is to it the transpose: it is asked for outᵀ = bᵀ · aᵀ.
    fn new(key: Key) -> Result<Description, CublasError> {
        let Product { rows, columns, inner, transpose_a, transpose_b, .. } = key.product;
        let description = result::create_matmul_desc(ComputeType::CUBLAS_COMPUTE_32F, cudaDataType::CUDA_R_32F)?;
        let product = Descriptor { pointer: description, destroy: result::destroy_matmul_desc };
        for (attribute, transposed) in [
            (DescAttribute::CUBLASLT_MATMUL_DESC_TRANSA, transpose_b),
            (DescAttribute::CUBLASLT_MATMUL_DESC_TRANSB, transpose_a),
        ] {
            let value = i32::from(transposed);
            // SAFETY: the attribute is a `cublasOperation_t`, an int of which 0 is N and 1 is T; it is copied.
            unsafe {
                let (value, bytes) = ((&raw const value).cast(), size_of_val(&value));
                result::set_matmul_desc_attribute(product.pointer, attribute, value, bytes)?;
            }
        }
        let layout = |dtype, length: usize, lines: usize| {
            let layout = result::create_matrix_layout(data_type(dtype), length as u64, lines as u64, length as i64)?;
            Ok(Descriptor { pointer: layout, destroy: result::destroy_matrix_layout })
        };
        let b = if transpose_b { (inner, columns) } else { (columns, inner) };
        let a = if transpose_a { (rows, inner) } else { (inner, rows) };
        let layouts = [layout(key.inputs, b.0, b.1)?, layout(key.inputs, a.0, a.1)?, layout(key.out, columns, rows)?];
        Ok(Description { product, layouts })
    }

    /// Queues the product of arrays that hold what it says.
    fn launch(
        &self,
        (handle, stream): (sys::cublasLtHandle_t, CUstream),
        product: Product,
        [a, b, out]: [Array; 3],
        algorithm: &sys::cublasLtMatmulAlgo_t,
        workspace: Array,
    ) -> Result<(), CublasError> {
        let (alpha, beta) = (1_f32, if product.accumulate { 1_f32 } else { 0.0 });
        let [b_layout, a_layout, out_layout] = self.layouts.each_ref().map(|layout| layout.pointer);
        let pointer = |array: Array| array.address as *mut c_void;
        // SAFETY: the arrays are as large as the layouts say, and live until the stream is past this; scalars are read
        // at once.
        unsafe {
            result::matmul(
                handle,
                self.product.pointer,
                (&raw const alpha).cast(),
                (&raw const beta).cast(),
                pointer(b),
                b_layout,
                pointer(a),
                a_layout,
                pointer(out),
                out_layout,
                pointer(out),
                out_layout,
                algorithm,
                pointer(workspace),
                workspace.elements * workspace.dtype.bytes(),
                stream.cast(),
            )
        }
    }
}

/// What cuBLASLt takes to be the fastest.
fn pick(
    handle: sys::cublasLtHandle_t,
    Description { product, layouts }: &Description,
    [a, b, out]: [u32; 3],
) -> Result<sys::cublasLtMatmulAlgo_t, CublasError> {
    let preference = Descriptor { pointer: result::create_matmul_pref()?, destroy: result::destroy_matmul_pref };
    let set = |attribute: Preference, value: *const c_void, bytes: usize| {
        // SAFETY: the attribute is of this type, and is copied.
        unsafe { result::set_matmul_pref_attribute(preference.pointer, attribute, value, bytes) }
    };
    let workspace = WORKSPACE_BYTES;
    let bytes = size_of_val(&workspace);
    set(Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (&raw const workspace).cast(), bytes)?;
    for (attribute, alignment) in [
        (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, b),
        (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, a),
        (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, out),
        (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, out),
    ] {
        set(attribute, (&raw const alignment).cast(), size_of_val(&alignment))?;
    }
    let [b_layout, a_layout, out_layout] = layouts.each_ref().map(|layout| layout.pointer);
    // SAFETY: all of them are alive.
    let picked = unsafe {
        let (product, preference) = (product.pointer, preference.pointer);
        result::get_matmul_algo_heuristic(handle, product, b_layout, a_layout, out_layout, out_layout, preference)
    };
    Ok(picked?.algo)
}

fn data_type(dtype: DType) -> cudaDataType {
    match dtype {
        DType::Bf16 => cudaDataType::CUDA_R_16BF,
        DType::F32 => cudaDataType::CUDA_R_32F,
        DType::F64 => cudaDataType::CUDA_R_64F,
        DType::U32 => cudaDataType::CUDA_R_32U,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(rows: usize, inner: usize, transpose_a: bool) -> Key {
        let product = Product { rows, columns: 96, inner, transpose_a, transpose_b: false, accumulate: transpose_a };
        Key { product, inputs: DType::Bf16, out: DType::Bf16, alignments: [256; 3] }
    }

    #[test]
    fn algorithms_are_for_about_as_many_tokens() {
        let mut numbers = Vec::new();
        for tokens in 1..10_000 {
            let about = key(tokens, 128, false).about().product;
            assert_eq!((about.columns, about.inner), (96, 128));
            let added = about.rows - tokens;
            assert!(added < 16 || added * 4 < tokens, "{tokens}: {}", about.rows);
            numbers.push(about.rows);
            let summed = key(128, tokens, true).about().product;
            assert_eq!((summed.rows, summed.inner), (128, about.rows));
        }
        assert!(numbers.is_sorted());
        numbers.dedup();
        assert!(numbers.len() < 50, "{numbers:?}");
    }
}
