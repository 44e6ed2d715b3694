//! A file of tensors, read one by one.
//!
//! It is not mapped: a file that is cut short while it is read is an error, where reading a map would end the process.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use safetensors::{Dtype, tensor::Metadata};
use stepscope_traces::open_regular;

use crate::{data::read_exactly, error::TrainError};

/// How many bytes say how long the head is.
const LENGTH: u64 = 8;
/// The longest head that the format allows.
const MOST_HEAD: u64 = 100_000_000;

/// A file of which all is there that its head says.
pub(super) struct TensorFile {
    path: PathBuf,
    file: File,
    tensors: Metadata,
    /// Where the first tensor begins.
    begin: u64,
}

impl TensorFile {
    pub(super) fn open(path: &Path) -> Result<TensorFile, TrainError> {
        let file = open_regular(path).map_err(TrainError::file("open", path))?;
        let (tensors, begin) = read_head(&file).map_err(TrainError::file("read", path))?;
        Ok(TensorFile { path: path.to_owned(), file, tensors, begin })
    }

    /// Reads a matrix, which has this shape.
    pub(super) fn read(&self, name: &str, shape: [usize; 2], values: &mut [f32]) -> Result<(), TrainError> {
        let refused = |why: String| TrainError::File { action: "resume from", path: self.path.clone(), why };
        let tensor = self.tensors.info(name).ok_or_else(|| refused(format!("it has no {name}")))?;
        if tensor.dtype != Dtype::F32 || tensor.shape != shape {
            let (shape, dtype) = (&tensor.shape, tensor.dtype);
            return Err(refused(format!("{name} has unexpected type {dtype:?} or shape {shape:?}")));
        }
        let place = self.begin + tensor.data_offsets.0 as u64;
        let read = read_exactly(&self.file, bytemuck::cast_slice_mut(values), place);
        read.map_err(TrainError::file("read", &self.path))
    }
}

/// What tensors there are, and where the first begins.
fn read_head(file: &File) -> io::Result<(Metadata, u64)> {
    let length = file.metadata()?.len();
    let mut head = [0; LENGTH as usize];
    read_exactly(file, &mut head, 0)?;
    let begin = LENGTH.saturating_add(u64::from_le_bytes(head));
    if begin > length.min(MOST_HEAD) {
        return Err(io::Error::other(format!("its head has {begin} bytes, and the file has {length}")));
    }
    let mut head = vec![0; (begin - LENGTH) as usize];
    read_exactly(file, &mut head, LENGTH)?;
    let tensors: Metadata = serde_json::from_slice(&head)?;
    let expected = begin.saturating_add(tensors.data_len() as u64);
    if expected != length {
        return Err(io::Error::other(format!("it has {length} bytes, and its head tells of {expected}")));
    }
    Ok((tensors, begin))
}
