//! What cuDNN's graph interface is made of: descriptors with attributes, owned.
#![allow(unsafe_code, reason = "cuDNN is a C library")]

use std::{
    ffi::{c_int, c_void},
    sync::Arc,
};

use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type, cudnnBackendDescriptorType_t as Kind,
    cudnnBackendHeurMode_t, cudnnDataType_t, cudnnPointwiseMode_t, cudnnReduceTensorOp_t,
};

use super::library::{ATTENTION, Handle, Library};
use crate::error::TrainError;

/// What an attribute can hold.
///
/// # Safety
///
/// cuDNN reads values of `TYPE` as values of this type.
pub(super) unsafe trait Attribute {
    const TYPE: Type;
}

// SAFETY: cuDNN's integers are of 64 bits.
unsafe impl Attribute for i64 {
    const TYPE: Type = Type::CUDNN_TYPE_INT64;
}
// SAFETY: cuDNN's floats are C's `float`.
unsafe impl Attribute for f32 {
    const TYPE: Type = Type::CUDNN_TYPE_FLOAT;
}
// SAFETY: cuDNN's booleans are C++'s `bool`: a byte that is 0 or 1.
unsafe impl Attribute for bool {
    const TYPE: Type = Type::CUDNN_TYPE_BOOLEAN;
}
// SAFETY: cuDNN reads its own enum, as wide as C has it here.
unsafe impl Attribute for cudnnDataType_t {
    const TYPE: Type = Type::CUDNN_TYPE_DATA_TYPE;
}
// SAFETY: cuDNN reads its own enum, as wide as C has it here.
unsafe impl Attribute for cudnnPointwiseMode_t {
    const TYPE: Type = Type::CUDNN_TYPE_POINTWISE_MODE;
}
// SAFETY: cuDNN reads its own enum, as wide as C has it here.
unsafe impl Attribute for cudnnReduceTensorOp_t {
    const TYPE: Type = Type::CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
}
// SAFETY: cuDNN reads its own enum, as wide as C has it here.
unsafe impl Attribute for cudnnBackendHeurMode_t {
    const TYPE: Type = Type::CUDNN_TYPE_HEUR_MODE;
}
/// An address: of the device, or of a number of the host that outlives the call it is passed to.
// SAFETY: cuDNN reads one address.
unsafe impl Attribute for *const c_void {
    const TYPE: Type = Type::CUDNN_TYPE_VOID_PTR;
}

/// One descriptor.
pub(super) struct Descriptor {
    library: Arc<Library>,
    raw: *mut c_void,
}

// SAFETY: a descriptor belongs to no thread; only one thread uses it at a time, since it is not `Sync`.
unsafe impl Send for Descriptor {}

impl Descriptor {
    pub(super) fn new(library: &Arc<Library>, kind: Kind) -> Result<Descriptor, TrainError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: it writes one pointer.
        let status = unsafe { (library.create_descriptor)(kind as u32, &mut raw) };
        library.check(&format!("create {kind:?}"), status)?;
        Ok(Descriptor { library: library.clone(), raw })
    }

    /// Sets an attribute.
    pub(super) fn with<A: Attribute>(self, name: Name, values: &[A]) -> Result<Descriptor, TrainError> {
        self.set(name, A::TYPE, values)?;
        Ok(self)
    }

    /// Lets an attribute name other descriptors, which must live as long as this one.
    pub(super) fn with_descriptors(self, name: Name, others: &[&Descriptor]) -> Result<Descriptor, TrainError> {
        let raw: Vec<*mut c_void> = others.iter().map(|other| other.raw).collect();
        self.set(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &raw)?;
        Ok(self)
    }

    /// Lets an attribute name the handle.
    pub(super) fn with_handle(self, name: Name, handle: &Handle) -> Result<Descriptor, TrainError> {
        self.set(name, Type::CUDNN_TYPE_HANDLE, &[handle.raw])?;
        Ok(self)
    }

    /// Checks what was set; only then can it be used.
    pub(super) fn finalize(self) -> Result<Descriptor, TrainError> {
        // SAFETY: the descriptor lives.
        let status = unsafe { (self.library.finalize)(self.raw) };
        self.library.check("finalize a descriptor", status)?;
        Ok(self)
    }

    /// A number that cuDNN worked out.
    pub(super) fn number(&self, name: Name) -> Result<i64, TrainError> {
        let (mut value, mut count) = (0_i64, 0_i64);
        // SAFETY: one number is asked for, and there is room for one.
        let status = unsafe { self.get(name, Type::CUDNN_TYPE_INT64, 1, &mut count, (&raw mut value).cast()) };
        self.library.check(&format!("get {name:?}"), status)?;
        Ok(value)
    }

    /// Descriptors that cuDNN filled in.
    pub(super) fn results(&self, name: Name, kind: Kind) -> Result<Vec<Descriptor>, TrainError> {
        let (action, of) = (format!("get {name:?}"), Type::CUDNN_TYPE_BACKEND_DESCRIPTOR);
        let mut count = 0;
        // SAFETY: only the count is asked for.
        self.library.check(&action, unsafe { self.get(name, of, 0, &mut count, std::ptr::null_mut()) })?;
        let mut results = Vec::new();
        for _ in 0..count {
            results.push(Descriptor::new(&self.library, kind)?);
        }
        let mut raw: Vec<*mut c_void> = results.iter().map(|result| result.raw).collect();
        let room = count;
        // SAFETY: there are as many descriptors as are asked for, of the kind that this attribute gives.
        self.library.check(&action, unsafe { self.get(name, of, room, &mut count, raw.as_mut_ptr().cast()) })?;
        results.truncate(usize::try_from(count).unwrap_or(0));
        Ok(results)
    }

    /// Queues the work of an execution plan on the handle's stream.
    ///
    /// # Safety
    ///
    /// The addresses of `variant_pack` are those of memory as the plan's tensors describe it, and stay so until the
    /// stream has done the work.
    pub(super) unsafe fn execute(&self, handle: &Handle, variant_pack: &Descriptor) -> Result<(), TrainError> {
        // SAFETY: all three live; the rest is the caller's.
        let status = unsafe { (self.library.execute)(handle.raw, self.raw, variant_pack.raw) };
        self.library.check(ATTENTION, status)
    }

    fn set<V>(&self, name: Name, of: Type, values: &[V]) -> Result<(), TrainError> {
        // SAFETY: cuDNN copies as many values as there are; the callers see to it that they are of that type.
        let status = unsafe {
            (self.library.set_attribute)(self.raw, name as u32, of as u32, values.len() as i64, values.as_ptr().cast())
        };
        self.library.check(&format!("set {name:?}"), status)
    }

    /// # Safety
    ///
    /// `to` has room for `room` values of that type.
    unsafe fn get(&self, name: Name, of: Type, room: i64, count: &mut i64, to: *mut c_void) -> c_int {
        // SAFETY: the descriptor lives; the rest is the caller's.
        unsafe { (self.library.get_attribute)(self.raw, name as u32, of as u32, room, count, to) }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: nothing uses it any more.
        unsafe { (self.library.destroy_descriptor)(self.raw) };
    }
}
