//! An NVIDIA GPU as a device.

mod array;
mod kernels;
