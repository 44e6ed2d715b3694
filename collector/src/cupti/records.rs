//! The records CUPTI writes, in either of their forms.
#![allow(unsafe_code)]

mod memory;
mod short;
mod whole;

use std::ffi::{CStr, c_char};

use super::{calls::Call, memory::MemoryChange, record_form::RecordForm, repeated::LaunchShape, streams::CuptiStream};

/// What a record says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    Kernel {
        work: Work,
        name: &'a CStr,
        shape: LaunchShape,
        /// What is set aside for the stacks of kernels.
        local_memory: u64,
    },
    Copy {
        work: Work,
        bytes: u64,
        direction: u8,
    },
    Set {
        work: Work,
        bytes: u64,
    },
    /// A graph that ran as a whole.
    Graph {
        work: Work,
        number: u32,
    },
    Memory(MemoryChange),
    Call(Call),
    /// Of a kind that is not asked for.
    Other,
}

/// Something that ran on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) place: CuptiStream,
    pub(crate) correlation: u32,
}

/// Where the next record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// So many bytes from the beginning of the buffer.
    At(usize),
    /// There are no more.
    End,
    /// What follows cannot be read.
    Broken,
}

/// Reads a buffer of records of one form. Where the record after the one at an offset is, `next` says: the length of records differs between
/// versions. `each` gets `None` for what cannot be read.
///
/// # Safety
///
/// The bytes are records of CUPTI, which is still there, or made like them: the names they point to are there.
pub(crate) unsafe fn read(
    bytes: &[u8],
    form: &RecordForm,
    mut next: impl FnMut(Option<usize>) -> Next,
    mut each: impl FnMut(Option<Record<'_>>),
) {
    let mut offset = None;
    loop {
        match next(offset) {
            Next::At(at) => {
                // SAFETY: as the caller promises.
                each(unsafe { read_one(bytes, form, at) });
                offset = Some(at);
            }
            Next::End => return,
            Next::Broken => return each(None),
        }
    }
}

/// # Safety
///
/// As for [`read`].
unsafe fn read_one<'a>(bytes: &'a [u8], form: &RecordForm, at: usize) -> Option<Record<'a>> {
    let bytes = bytes.get(at..)?;
    // SAFETY: as the caller promises.
    unsafe {
        match form {
            RecordForm::Whole => whole::record(bytes),
            RecordForm::Short(layouts) => short::record(bytes, layouts),
        }
    }
}

/// What a kernel is called.
///
/// # Safety
///
/// It is what CUPTI says, which is still there, or null.
unsafe fn kernel_name<'a>(name: *const c_char) -> &'a CStr {
    // SAFETY: as the caller promises.
    if name.is_null() { c"(unnamed)" } else { unsafe { CStr::from_ptr(name) } }
}

#[cfg(test)]
pub(crate) mod tests;
