//! Bytes to, from and within a device.
#![allow(unsafe_code, reason = "memory is an address to the driver")]

use std::{any::Any, sync::Mutex};

use bytemuck::Pod;
use cudarc::driver::{result, sys::CUstream};

use super::array::Array;
use crate::{error::TrainError, lock::lock};

/// Numbers of the host that are on their way, kept until they are there: some devices read the host's memory themselves,
/// long after the call.
#[derive(Default)]
pub(crate) struct Uploads(Mutex<(Vec<Box<dyn Any + Send>>, usize)>);

/// So many bytes are kept at most.
const MOST_KEPT: usize = 256 << 20;

impl Uploads {
    /// Copies numbers of the host.
    pub(crate) fn upload<T: Pod + Send>(&self, stream: CUstream, values: Vec<T>, to: Array) -> Result<(), TrainError> {
        let bytes = size_of_val(values.as_slice());
        check(bytes, to)?;
        let mut kept = lock(&self.0);
        // SAFETY: the array is as large as the values, which are kept until the stream is past this.
        unsafe { result::memcpy_htod_async(to.address, &values, stream) }.map_err(TrainError::device("upload"))?;
        kept.0.push(Box::new(values));
        kept.1 += bytes;
        if kept.1 > MOST_KEPT {
            // SAFETY: the stream lives as long as the device.
            unsafe { result::stream::synchronize(stream) }.map_err(TrainError::device("upload"))?;
            *kept = Default::default();
        }
        Ok(())
    }

    /// Lets go of all of them. The device has done its work.
    pub(crate) fn clear(&self) {
        *lock(&self.0) = Default::default();
    }
}

/// Waits for the stream, and copies numbers to the host.
pub(crate) fn download<T: Pod>(stream: CUstream, from: Array) -> Result<Vec<T>, TrainError> {
    let mut values = vec![T::zeroed(); from.elements];
    check(size_of_val(values.as_slice()), from)?;
    // SAFETY: the array is as large as the values, which live until the stream is done.
    let copied = unsafe {
        result::memcpy_dtoh_async(&mut values, from.address, stream).and_then(|()| result::stream::synchronize(stream))
    };
    copied.map_err(TrainError::device("download"))?;
    Ok(values)
}

/// Copies numbers of the device that are stored alike.
pub(crate) fn copy(stream: CUstream, from: Array, to: Array) -> Result<(), TrainError> {
    check(from.bytes(), to)?;
    // SAFETY: both arrays are that large, and live until the stream is past this.
    unsafe { result::memcpy_dtod_async(to.address, from.address, from.bytes(), stream) }
        .map_err(TrainError::device("copy"))
}

/// Fills with zeros.
pub(crate) fn zero(stream: CUstream, array: Array) -> Result<(), TrainError> {
    // SAFETY: the array is that large, and lives until the stream is past this.
    unsafe { result::memset_d8_async(array.address, 0, array.bytes(), stream) }.map_err(TrainError::device("fill"))
}

fn check(bytes: usize, array: Array) -> Result<(), TrainError> {
    if bytes == array.bytes() {
        return Ok(());
    }
    Err(TrainError::Disagreement(format!("{bytes} bytes into {}", array.bytes())))
}
