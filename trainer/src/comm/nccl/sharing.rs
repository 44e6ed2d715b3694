//! Several ranks on one GPU: not how anyone trains, but enough to develop with, where NCCL allows it.

use std::path::{Path, PathBuf};

use super::library;
use crate::{backend::Stream, error::TrainError};

/// The first version of NCCL that lets ranks share a GPU.
const FROM: (i32, i32) = (2, 30);
/// What it wants to be told for that.
const ENABLE: &str = "NCCL_MULTI_RANK_GPU_ENABLE";
/// How many blocks a kernel of NCCL has. Such a kernel waits for those of other ranks and keeps a processor of the GPU for
/// each block meanwhile: if all are kept, what the others wait for never runs.
const BLOCKS: &str = "NCCL_MAX_CTAS";
/// More does not make it faster.
const MOST_BLOCKS: u64 = 8;
/// Processors that may be kept at a time: half of those of a GPU that people train on.
const KEPT: u64 = 64;
/// Where MPS listens.
const PIPES: (&str, &str) = ("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps");

/// What ranks have to find in their environment to share a GPU.
pub(crate) fn variables(ranks_on_one: u64) -> [(&'static str, u64); 2] {
    let kernels = ranks_on_one * Stream::ALL.len() as u64;
    [(ENABLE, 1), (BLOCKS, (KEPT / kernels).clamp(1, MOST_BLOCKS))]
}

/// Says when this NCCL, which has to be loaded, does not let ranks share a GPU.
pub(crate) fn check_version(ranks_on_one: u64) -> Result<(), TrainError> {
    let version = library::version();
    let version = version.map_err(|why| TrainError::Device { action: "ask for NCCL's version".into(), why })?;
    too_old(version, ranks_on_one).map_or(Ok(()), |why| Err(TrainError::Settings(why)))
}

/// Says when NCCL is not told that ranks share a GPU. Whoever starts ranks has to: NCCL reads it when it loads.
pub(crate) fn check_environment(ranks_on_one: u64) -> Result<(), TrainError> {
    let wanted = variables(ranks_on_one);
    let [enabled, blocks] = wanted.map(|(name, _)| std::env::var(name).ok().and_then(|value| value.parse().ok()));
    if enabled.is_some_and(|enabled: u64| enabled > 0) && blocks.is_some_and(|blocks| blocks <= MOST_BLOCKS) {
        return Ok(());
    }
    let wanted = wanted.map(|(name, value)| format!("{name}={value}")).join(" ");
    let why = format!("{ranks_on_one} ranks share a GPU, which NCCL allows only with {wanted} set");
    Err(TrainError::Settings(why))
}

fn too_old((major, minor, patch): (i32, i32, i32), ranks: u64) -> Option<String> {
    let (needed_major, needed_minor) = FROM;
    ((major, minor) < FROM).then(|| {
        format!(
            "{ranks} ranks would share a GPU, which NCCL {major}.{minor}.{patch} does not support; use {needed_major}.{needed_minor} or newer (pip install nvidia-nccl-cu13)"
        )
    })
}

/// What to say of it to a person.
pub(crate) fn warning(ranks_on_one: u64) -> String {
    let turns = match is_mps_there(&pipes()) {
        true => "",
        false => "; they take turns on it unless MPS is running (nvidia-cuda-mps-control -d)",
    };
    format!("{ranks_on_one} ranks share one GPU, so times do not reflect {ranks_on_one} GPUs{turns}")
}

fn pipes() -> PathBuf {
    std::env::var_os(PIPES.0).map_or_else(|| PIPES.1.into(), PathBuf::from)
}

fn is_mps_there(pipes: &Path) -> bool {
    pipes.join("control").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sharing_takes_a_new_nccl() {
        let old = too_old((2, 28, 9), 2).unwrap();
        assert!(old.starts_with("2 ranks would share a GPU, which NCCL 2.28.9 does not support; use 2.30"), "{old}");
        assert_eq!((too_old((2, 30, 0), 4), too_old((3, 0, 0), 4)), (None, None));
    }

    #[test]
    fn more_ranks_have_fewer_blocks_each() {
        assert_eq!(variables(2), [(ENABLE, 1), (BLOCKS, 8)]);
        assert_eq!([4, 8, 200].map(|ranks| variables(ranks)[1].1), [5, 2, 1]);
    }

    #[test]
    fn mps_is_there_when_it_listens() {
        let directory = tempfile::tempdir().unwrap();
        assert!(!is_mps_there(directory.path()));
        std::fs::write(directory.path().join("control"), "").unwrap();
        assert!(is_mps_there(directory.path()));
    }
}
