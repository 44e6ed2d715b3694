//! Machine code of the kernels: compiled on first use, and kept on disk for the next start.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};
use stepscope_collector::cache;

use super::{nvrtc, source::Unit};
use crate::error::TrainError;

/// Compiles for one kind of GPU.
pub(super) struct Compiler {
    architecture: String,
    version: (i32, i32),
    cache: Option<PathBuf>,
}

impl Compiler {
    /// For GPUs of this compute capability; what it made before is looked for in `cache`.
    pub(super) fn new(major: u32, minor: u32, cache: Option<PathBuf>) -> Result<Compiler, TrainError> {
        nvrtc::open()?;
        Ok(Compiler { architecture: format!("sm_{major}{minor}"), version: nvrtc::version()?, cache })
    }

    /// The machine code that is kept on disk, if it is whole.
    pub(super) fn cached(&self, unit: &Unit) -> Option<Vec<u8>> {
        read(&self.place(unit)?)
    }

    /// Compiles, and keeps the result. A cache that cannot be written only makes the next start slower.
    pub(super) fn compile(&self, unit: &Unit) -> Result<Vec<u8>, TrainError> {
        let code = nvrtc::compile(unit.source.name(), &unit.source.text(), &self.options(unit))?;
        if let Some(place) = self.place(unit) {
            let _ = write(&place, &code);
        }
        Ok(code)
    }

    fn options(&self, unit: &Unit) -> Vec<String> {
        let constants = unit.constants.iter().map(|(name, value)| format!("-D{name}={value}"));
        let fixed = [format!("--gpu-architecture={}", self.architecture), "--std=c++17".to_owned()];
        fixed.into_iter().chain(constants).collect()
    }

    fn place(&self, unit: &Unit) -> Option<PathBuf> {
        let mut hasher = DefaultHasher::new();
        (unit.source.text(), self.options(unit), self.version).hash(&mut hasher);
        let name = format!("{}-{:016x}.cubin", unit.source.name().trim_end_matches(".cu"), hasher.finish());
        Some(self.cache.as_ref()?.join(name))
    }
}

/// Where machine code is kept between runs, if this user has a place for such things.
pub(super) fn cache_directory() -> Option<PathBuf> {
    cache::in_folder("kernels", |folder| Ok(folder.to_owned())).ok()
}

/// Bytes of the checksum that a file begins with.
const CHECKSUM: usize = 32;

fn checksum(code: &[u8]) -> [u8; CHECKSUM] {
    Sha256::digest(code).into()
}

fn read(place: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    cache::open_own(place).ok()?.read_to_end(&mut bytes).ok()?;
    let (sum, code) = bytes.split_first_chunk::<CHECKSUM>()?;
    (*sum == checksum(code)).then(|| code.to_vec())
}

/// Whole or not at all, also when several processes write the same file.
fn write(place: &Path, code: &[u8]) -> io::Result<()> {
    let temporary = place.with_extension(format!("{}.{:?}", std::process::id(), std::thread::current().id()));
    let written = cache::create_own(&temporary)?.write_all(&[&checksum(code), code].concat());
    written.and_then(|()| fs::rename(&temporary, place)).inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn what_is_written_is_read_and_damage_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("code.cubin");
        assert_eq!(read(&place), None);
        write(&place, b"machine code").unwrap();
        assert_eq!(read(&place).unwrap(), b"machine code");
        assert_eq!(fs::read_dir(place.parent().unwrap()).unwrap().count(), 1);
        let whole = fs::read(&place).unwrap();
        for cut in 0..whole.len() {
            fs::write(&place, &whole[..cut]).unwrap();
            assert_eq!(read(&place), None, "cut to {cut}");
        }
        let mut flipped = whole.clone();
        flipped[CHECKSUM + 3] ^= 1;
        fs::write(&place, &flipped).unwrap();
        assert_eq!(read(&place), None);
        // Where others can write, they may have put it there.
        fs::write(&place, &whole).unwrap();
        assert!(read(&place).is_some());
        fs::set_permissions(&place, Permissions::from_mode(0o666)).unwrap();
        assert_eq!(read(&place), None);
    }
}
