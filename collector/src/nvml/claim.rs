//! One sampler per node and device: the first process that claims a device samples it. Every process samples its own memory.

use std::{
    fs::{File, TryLockError},
    io,
    path::Path,
    sync::{Mutex, PoisonError},
};

use stepscope_traces::open_lock_file;

/// The right to sample a device, as long as it is held. It goes with the process, however that ends.
pub(super) struct Claim {
    _file: File,
}

impl Claim {
    /// Claims a device of this node for a run; `None` when somebody else has it.
    pub(super) fn take(run: &Path, host: &str, device: &str) -> io::Result<Option<Claim>> {
        let plain = |text: &str| -> String {
            text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '.' { c } else { '_' }).collect()
        };
        let path = run.join(format!("sampler-{}-{}.lock", plain(host), plain(device)));
        let file = open_lock_file(&path)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Ok(None),
            // Where a file system has no locks, being sampled twice is better than not at all.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Some(Claim { _file: file })),
        }
    }
}

/// The right to sample what this process has of a device, of which ranks that are threads have one.
pub(super) struct ProcessClaim {
    device: String,
}

/// The devices that this process samples.
static SAMPLED: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl ProcessClaim {
    /// Claims a device for this process; `None` when another rank of it has it.
    pub(super) fn take(device: &str) -> Option<ProcessClaim> {
        let mut sampled = SAMPLED.lock().unwrap_or_else(PoisonError::into_inner);
        if sampled.iter().any(|other| other == device) {
            return None;
        }
        sampled.push(device.to_owned());
        Some(ProcessClaim { device: device.to_owned() })
    }
}

impl Drop for ProcessClaim {
    fn drop(&mut self) {
        SAMPLED.lock().unwrap_or_else(PoisonError::into_inner).retain(|device| *device != self.device);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_claimed_once_at_a_time() {
        let run = tempfile::tempdir().unwrap();
        let take = |host, device| Claim::take(run.path(), host, device).unwrap();
        let first = take("node", "GPU-1");
        assert!(first.is_some());
        assert!(take("node", "GPU-1").is_none());
        assert!(take("node", "GPU-2").is_some());
        assert!(take("../other node", "GPU-1").is_some());
        drop(first);
        assert!(take("node", "GPU-1").is_some());
    }

    #[test]
    fn a_process_samples_its_memory_once() {
        let first = ProcessClaim::take("GPU-of-this-test");
        assert!(first.is_some() && ProcessClaim::take("GPU-of-this-test").is_none());
        drop(first);
        assert!(ProcessClaim::take("GPU-of-this-test").is_some());
    }
}
