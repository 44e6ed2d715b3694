//! Profiles of XLA, as JAX and TensorFlow write them: `*.xplane.pb`, which are protobuf messages of the type XSpace.
//!
//! A profile is of one host. It has a plane for each device, with what the device did, and one for the host's threads. Each
//! device is a rank. The file is kept as it is and its events are decoded one at a time, so that memory is the file's size and
//! what is made of it.

mod device;
mod hlo;
mod host;
mod message;
mod plane;
mod protobuf;
mod read;
mod wire;

pub(crate) use protobuf::{Protobuf, kind_of_protobuf};
pub(crate) use read::read;
