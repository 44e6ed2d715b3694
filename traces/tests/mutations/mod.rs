//! Damages a file again and again. Whatever comes of it, reading ends with a run or an error.

use std::{fs, path::Path};

use fastrand::Rng;
use stepscope_traces::{Run, Window};

/// How often a file is damaged, unless `STEPSCOPE_MUTATIONS` says otherwise.
const COUNT: u64 = 2_000;

/// Reads damaged copies of a file.
pub(crate) fn read_damaged(whole: &[u8], name: &str) {
    let count = std::env::var("STEPSCOPE_MUTATIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(COUNT);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    let mut rng = Rng::with_seed(7);
    let mut read = 0;
    for _ in 0..count {
        fs::write(&path, damaged(whole, &mut rng)).unwrap();
        read += u64::from(reads(&path));
    }
    // Most damage costs an event or two.
    assert!(read > count / 20, "only {read} of {count} damaged files can be read");
}

/// Whether there is something to read; all of it is.
fn reads(path: &Path) -> bool {
    let Ok(run) = Run::of_source(path) else { return false };
    run.ranks.iter().all(|rank| rank.read(Window::ALL).is_ok())
}

fn damaged(whole: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for _ in 0..rng.usize(1..4) {
        let at = rng.usize(..bytes.len().max(1));
        match rng.u8(..8) {
            _ if bytes.is_empty() => {}
            0..=3 => bytes[at] ^= 1 << rng.u8(..8),
            4 | 5 => bytes[at] = *rng.choice(&[0, 1, 0x7f, 0x80, 0xff, b'"', b'{', b']', b'-']).unwrap_or(&0),
            6 => bytes.truncate(at),
            _ => {
                let from = rng.usize(..bytes.len());
                let piece = bytes[from..bytes.len().min(from + rng.usize(1..40))].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}
