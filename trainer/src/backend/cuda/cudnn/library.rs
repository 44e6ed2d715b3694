//! The functions of cuDNN that are called, and the handle they are called with.
//!
//! They are declared here with plain numbers: an enum of today's bindings cannot hold a status that a later cuDNN
//! returns. Names of attributes and kinds only go in, so those are taken from the bindings.
#![allow(unsafe_code, reason = "cuDNN is a C library")]

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    sync::Arc,
};

use cudarc::driver::sys::CUstream;
use stepscope_collector::libraries;

use crate::error::TrainError;

/// Before it, attention had known bugs.
const OLDEST: Version = Version(91002);

/// What is tried, in errors.
pub(super) const ATTENTION: &str = "run attention through cuDNN";

const SUCCESS: c_int = 0;

/// A version, as cuDNN numbers itself: 9.10.2 is 91002.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(pub(super) usize);

impl std::fmt::Display for Version {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}.{}.{}", self.0 / 10_000, self.0 / 100 % 100, self.0 % 100)
    }
}

/// cuDNN, loaded.
pub(super) struct Library {
    pub(super) version: Version,
    pub(super) create_descriptor: unsafe extern "C" fn(c_uint, *mut *mut c_void) -> c_int,
    pub(super) destroy_descriptor: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub(super) set_attribute: unsafe extern "C" fn(*mut c_void, c_uint, c_uint, i64, *const c_void) -> c_int,
    pub(super) get_attribute: unsafe extern "C" fn(*mut c_void, c_uint, c_uint, i64, *mut i64, *mut c_void) -> c_int,
    pub(super) finalize: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub(super) execute: unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void) -> c_int,
    create: unsafe extern "C" fn(*mut *mut c_void) -> c_int,
    destroy: unsafe extern "C" fn(*mut c_void) -> c_int,
    set_stream: unsafe extern "C" fn(*mut c_void, CUstream) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    last_error: unsafe extern "C" fn(*mut c_char, usize),
    /// The functions are gone when it is closed.
    _file: libloading::Library,
}

impl Library {
    /// Opens the very file that was found: another cuDNN may be on the loader's path.
    pub(super) fn open() -> Result<Arc<Library>, TrainError> {
        let found = libraries::open(libraries::Library::Cudnn)?;
        let load = || -> Result<Library, libloading::Error> {
            // SAFETY: cuDNN's initialisers need nothing of us, and each type is that of the function in cuDNN 9's
            // headers.
            unsafe {
                let file = libloading::Library::new(&found.path)?;
                let version: unsafe extern "C" fn() -> usize = *file.get(b"cudnnGetVersion")?;
                Ok(Library {
                    version: Version(version()),
                    create_descriptor: *file.get(b"cudnnBackendCreateDescriptor")?,
                    destroy_descriptor: *file.get(b"cudnnBackendDestroyDescriptor")?,
                    set_attribute: *file.get(b"cudnnBackendSetAttribute")?,
                    get_attribute: *file.get(b"cudnnBackendGetAttribute")?,
                    finalize: *file.get(b"cudnnBackendFinalize")?,
                    execute: *file.get(b"cudnnBackendExecute")?,
                    create: *file.get(b"cudnnCreate")?,
                    destroy: *file.get(b"cudnnDestroy")?,
                    set_stream: *file.get(b"cudnnSetStream")?,
                    error_string: *file.get(b"cudnnGetErrorString")?,
                    last_error: *file.get(b"cudnnGetLastErrorString")?,
                    _file: file,
                })
            }
        };
        let library = load().map_err(|error| refused("open cuDNN", error))?;
        if library.version < OLDEST {
            let why = format!("{} is version {}, older than {OLDEST}", found.path.display(), library.version);
            return Err(refused("use cuDNN", why));
        }
        Ok(Arc::new(library))
    }

    /// Turns a status into what was tried and what cuDNN says about it.
    pub(super) fn check(&self, action: &str, status: c_int) -> Result<(), TrainError> {
        if status == SUCCESS {
            return Ok(());
        }
        let mut details = [0_u8; 1024];
        // SAFETY: the text of a status is a constant, and no more than `details` holds is written to it, ended by zero.
        let (name, details) = unsafe {
            let name = (self.error_string)(status);
            let name = if name.is_null() { c"unknown" } else { CStr::from_ptr(name) };
            (self.last_error)(details.as_mut_ptr().cast(), details.len());
            (name, CStr::from_bytes_until_nul(&details).unwrap_or_default())
        };
        Err(refused(action, format!("{} ({status}) {}", name.to_string_lossy(), details.to_string_lossy().trim())))
    }
}

/// An error of cuDNN.
pub(super) fn refused(action: &str, why: impl std::fmt::Display) -> TrainError {
    TrainError::Device { action: action.into(), why: why.to_string() }
}

/// What cuDNN knows of the device that was current when it was made.
pub(super) struct Handle {
    pub(super) library: Arc<Library>,
    pub(super) raw: *mut c_void,
}

// SAFETY: a handle is bound to a device and to no thread; only one thread uses it at a time, since it is not `Sync`.
unsafe impl Send for Handle {}

impl Handle {
    pub(super) fn new(library: Arc<Library>) -> Result<Handle, TrainError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: it writes one pointer.
        library.check("start cuDNN", unsafe { (library.create)(&mut raw) })?;
        Ok(Handle { library, raw })
    }

    /// Lets what is executed next be done in order of a stream.
    pub(super) fn set_stream(&self, stream: CUstream) -> Result<(), TrainError> {
        // SAFETY: the handle lives, and the caller's stream does too.
        self.library.check("set cuDNN's stream", unsafe { (self.library.set_stream)(self.raw, stream) })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: nothing uses it any more. That it could not be given back is of no use to anyone.
        unsafe { (self.library.destroy)(self.raw) };
    }
}
