//! Asks the libraries themselves.

// Their interfaces are C's.
#![allow(unsafe_code)]

use std::{
    ffi::{CStr, c_void},
    mem::MaybeUninit,
    ptr,
};

use cudarc::{
    cublas, cublaslt, cudnn,
    cupti::{
        self,
        sys::{CUpti_CallbackDomain, CUptiResult},
    },
    driver::{
        result::{self as driver, DriverError},
        sys::CUdevice_attribute,
    },
    nccl, nvrtc,
};
use serde::Serialize;

use super::visible_devices;
use crate::{
    libraries::{self, Library},
    nvml::{self, Gpu},
};

/// The version that a loaded library says it has.
pub(super) fn version(library: Library) -> Option<String> {
    libraries::open(library).ok()?;
    match library {
        Library::Cuda => libraries::driver_version().map(|(major, minor)| format!("{major}.{minor}")),
        Library::Nvml => nvml::library_version(),
        Library::Cupti => {
            let mut api = 0;
            // SAFETY: the library is loaded, and the number is there to be written to.
            let result = unsafe { cupti::sys::cuptiGetVersion(&mut api) };
            (result == CUptiResult::CUPTI_SUCCESS).then(|| cupti_version(api))
        }
        Library::Nvrtc => {
            let (mut major, mut minor) = (0, 0);
            // SAFETY: the library is loaded, and both numbers are there to be written to.
            let result = unsafe { nvrtc::sys::nvrtcVersion(&mut major, &mut minor) };
            (result == nvrtc::sys::nvrtcResult::NVRTC_SUCCESS).then(|| format!("{major}.{minor}"))
        }
        // SAFETY: the library is loaded.
        Library::CublasLt => Some(in_hundreds(unsafe { cublaslt::sys::cublasLtGetVersion() } as u64)),
        Library::Cublas => {
            use cublas::sys::libraryPropertyType_t::{MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL};
            let [major, minor, patch] = [MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL].map(|property| {
                let mut number = 0;
                // SAFETY: the library is loaded, and the number is there to be written to.
                let result = unsafe { cublas::sys::cublasGetProperty(property, &mut number) };
                (result == cublas::sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS).then_some(number)
            });
            Some(format!("{}.{}.{}", major?, minor?, patch?))
        }
        // SAFETY: the library is loaded.
        Library::Cudnn => Some(in_hundreds(unsafe { cudnn::sys::cudnnGetVersion() } as u64)),
        Library::Nccl => {
            let mut number = 0;
            // SAFETY: the library is loaded, and the number is there to be written to.
            let result = unsafe { nccl::sys::ncclGetVersion(&mut number) };
            (result == nccl::sys::ncclResult_t::ncclSuccess).then(|| in_hundreds(number as u64))
        }
    }
}

/// 91301 is 9.13.1.
fn in_hundreds(number: u64) -> String {
    format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100)
}

/// Until CUDA 13 CUPTI counted its interfaces, and since then it has the toolkit's version.
fn cupti_version(number: u32) -> String {
    if number < 10_000 { format!("API {number}") } else { in_hundreds(number.into()) }
}

/// Whether CUDA works.
#[derive(Clone, Debug, Serialize)]
pub struct Cuda {
    /// The newest toolkit that the driver can run.
    pub version: Option<String>,
    /// How many devices it gives this process.
    pub devices: Option<u32>,
    /// What `CUDA_VISIBLE_DEVICES` says, if it is set.
    pub visible_devices: Option<String>,
    /// Why it does not start.
    pub error: Option<String>,
}

impl Cuda {
    /// Starts CUDA; its library is open.
    pub(super) fn start() -> Cuda {
        let count = driver::init().and_then(|()| driver::device::get_count());
        let (devices, error) = match count {
            Ok(count) => (u32::try_from(count).ok(), None),
            Err(error) => (None, Some(told(error))),
        };
        Cuda { version: version(Library::Cuda), devices, visible_devices: visible_devices(), error }
    }

    /// Whether there is a device to run on.
    pub fn works(&self) -> bool {
        self.devices.is_some_and(|devices| devices > 0)
    }
}

fn told(error: DriverError) -> String {
    let text = |text: Result<&CStr, DriverError>| text.map(|text| text.to_string_lossy().into_owned()).ok();
    let (name, meaning) = (text(error.error_name()), text(error.error_string()));
    match name.zip(meaning) {
        Some((name, meaning)) => format!("{meaning} ({name})"),
        None => format!("error {}", error.0 as u32),
    }
}

/// What CUDA itself tells of its devices, where NVML does not.
pub(super) fn gpus() -> Vec<Gpu> {
    let count = driver::device::get_count().unwrap_or(0);
    let describe = |ordinal| {
        let device = driver::device::get(ordinal).ok()?;
        // SAFETY: the device is one that CUDA has just given.
        let attribute = |attribute| unsafe { driver::device::get_attribute(device, attribute) }.ok();
        let major = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
        let minor = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
        Some(Gpu {
            name: driver::device::get_name(device).ok()?,
            uuid: None,
            pci_bus: None,
            // SAFETY: the device is one that CUDA has just given.
            memory_bytes: unsafe { driver::device::total_mem(device) }.ok().map(|bytes| bytes as u64),
            compute_capability: major.zip(minor).map(|(major, minor)| format!("{major}.{minor}")),
            readings: Vec::new(),
            left_out: Vec::new(),
        })
    };
    (0..count).filter_map(describe).collect()
}

/// Whether kernels can be recorded.
#[derive(Clone, Debug, Serialize)]
pub struct Cupti {
    /// Whether CUPTI took a subscriber; unknown where that was not tried.
    pub subscribable: Option<bool>,
    /// Why not, or why it was not tried.
    pub reason: Option<String>,
}

impl Cupti {
    /// Subscribes and unsubscribes.
    pub(super) fn try_out(cuda: Option<&Cuda>) -> Cupti {
        let not_tried = |reason: String| Cupti { subscribable: None, reason: Some(reason) };
        if let Err(missing) = libraries::open(Library::Cupti) {
            return not_tried(missing.to_string());
        }
        if !cuda.is_some_and(Cuda::works) {
            return not_tried("there is no GPU".into());
        }
        let mut subscriber = MaybeUninit::uninit();
        // SAFETY: the callback takes anything, uses nothing and lives for ever; the handle is there to be written to.
        let result = unsafe { cupti::sys::cuptiSubscribe(subscriber.as_mut_ptr(), Some(ignore), ptr::null_mut()) };
        match result {
            CUptiResult::CUPTI_SUCCESS => {
                // SAFETY: the handle was written, since subscribing went well, and is used no more.
                let result = unsafe { cupti::sys::cuptiUnsubscribe(subscriber.assume_init()) };
                let failed = result != CUptiResult::CUPTI_SUCCESS;
                let reason = failed.then(|| format!("its subscription cannot be closed ({result:?})"));
                Cupti { subscribable: Some(true), reason }
            }
            CUptiResult::CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED => {
                let reason = "another profiler uses it in this process; is CUDA_INJECTION64_PATH set?".into();
                Cupti { subscribable: Some(false), reason: Some(reason) }
            }
            other => Cupti { subscribable: Some(false), reason: Some(format!("{other:?}")) },
        }
    }
}

unsafe extern "C" fn ignore(_: *mut c_void, _: CUpti_CallbackDomain, _: u32, _: *const c_void) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_people_write_them() {
        assert_eq!(in_hundreds(91301), "9.13.1");
        assert_eq!(in_hundreds(22803), "2.28.3");
        assert_eq!(in_hundreds(130002), "13.0.2");
        assert_eq!((cupti_version(26), cupti_version(130000)), ("API 26".into(), "13.0.0".into()));
    }
}
