//! Opens libraries, once and for good.

// The loader is a C interface, and opening a library runs code of its own.
#![allow(unsafe_code)]

use std::{
    error::Error,
    ffi::{CStr, OsStr, c_int, c_void},
    mem::MaybeUninit,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use libloading::os::unix::{Library as Handle, RTLD_LAZY, RTLD_LOCAL};
use nix::libc::{self, RTLD_NOLOAD};

use super::{Found, Library, Missing, alias::Alias, elf, search::Candidate};

/// Opens the first candidate that is the library, and keeps it.
pub(super) fn load(library: Library, candidates: &[Candidate]) -> Result<Found, Missing> {
    let symbol = library.traits().symbol;
    let mut reason = None;
    for candidate in candidates {
        let opened = match candidate {
            Candidate::Loaded(name) => open(name.as_ref(), RTLD_NOLOAD),
            Candidate::Name(name) => open(name.as_ref(), 0),
            Candidate::File(path) => elf::check_whole(path).and_then(|()| open(path.as_os_str(), 0)),
        };
        let located = opened.and_then(|handle| Ok((locate(&handle, symbol)?, handle)));
        match located {
            Ok((path, handle)) => {
                keep(handle);
                let named = name_it(&library.plain_file(), symbol, &path);
                let because = |reason| Missing { library, reason: Some(reason) };
                return named.map(|()| Found { path }).map_err(because);
            }
            // What the loader does not find is no reason; a file that is there and does not open is one.
            Err(error) if matches!(candidate, Candidate::File(_)) => reason = reason.or(Some(error)),
            Err(_) => {}
        }
    }
    Err(Missing { library, reason })
}

/// Opens the files beside a library whose names begin so, and keeps them; whoever needs one says if it is missing.
pub(super) fn load_beside(path: &Path, beginning: &str) {
    let folder = path.parent().and_then(|folder| folder.read_dir().ok());
    let files = folder.into_iter().flatten().filter_map(Result::ok);
    let beside = files.filter(|file| file.file_name().to_string_lossy().starts_with(beginning));
    for file in beside.map(|file| file.path()) {
        let opened = elf::check_whole(&file).and_then(|()| open(file.as_os_str(), 0));
        opened.into_iter().for_each(keep);
    }
}

fn open(name: &OsStr, flags: c_int) -> Result<Handle, String> {
    // SAFETY: these libraries' initialisers have no conditions; they are made to be loaded by any program.
    unsafe { Handle::open(Some(name), RTLD_LAZY | RTLD_LOCAL | flags) }.map_err(|error| told(&error))
}

/// What the loader itself says, which stands behind the error.
fn told(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// Never to be closed: others hold what they looked up in it.
fn keep(handle: Handle) {
    handle.into_raw();
}

/// The file that a symbol of a library comes from.
fn locate(handle: &Handle, symbol: &[u8]) -> Result<PathBuf, String> {
    // SAFETY: the symbol is not used as what it is, only its address is taken.
    let address = unsafe { handle.get::<*const c_void>(symbol) }.map_err(|error| told(&error))?.into_raw();
    let mut information = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked for, and the structure is there to be written to.
    let known = unsafe { libc::dladdr(address, information.as_mut_ptr()) } != 0;
    // SAFETY: all zeroes are a valid value of it, a null pointer for a name.
    let name = unsafe { information.assume_init() }.dli_fname;
    if !known || name.is_null() {
        return Err("unknown where it was loaded from".into());
    }
    // SAFETY: the loader's names end in a zero and live as long as the library, which is open.
    let name = unsafe { CStr::from_ptr(name) };
    Ok(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// Lets everyone who opens the plain name of a library get the one at `path`.
fn name_it(name: &str, symbol: &[u8], path: &Path) -> Result<(), String> {
    if open(name.as_ref(), RTLD_NOLOAD).map(keep).is_err() {
        let alias =
            Alias::new(name, path).map_err(|error| format!("{} cannot be named {name}: {error}", path.display()))?;
        open(alias.path().as_ref(), 0).map(keep)?;
        alias.keep();
    }
    let named = open(name.as_ref(), RTLD_NOLOAD).and_then(|handle| locate(&handle, symbol))?;
    if named == path { Ok(()) } else { Err(format!("{name} is already {}", named.display())) }
}

/// What `cuDriverGetVersion` says: thousands of the major version and tens of the minor one.
pub(super) fn driver_version() -> Option<u32> {
    let mut version = 0;
    // SAFETY: the driver's library is loaded, and the number is there to be written to.
    let result = unsafe { cudarc::driver::sys::cuDriverGetVersion(&mut version) };
    let known = result == cudarc::driver::sys::CUresult::CUDA_SUCCESS;
    known.then(|| u32::try_from(version).ok()).flatten().filter(|version| *version > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A library that is on every machine, and a symbol of it.
    fn some_library() -> PathBuf {
        let handle = open("libm.so.6".as_ref(), 0).unwrap();
        locate(&handle, b"cos\0").unwrap()
    }

    #[test]
    fn libraries_are_found_by_the_names_they_were_given() {
        let path = some_library();
        for name in ["libstepscope-one.so", "libstepscope-another.so", "libstepscope-third.so"] {
            assert!(open(name.as_ref(), 0).is_err());
            name_it(name, b"cos\0", &path).unwrap();
            let handle = open(name.as_ref(), 0).unwrap();
            assert_eq!(locate(&handle, b"cos\0").unwrap(), path);
            name_it(name, b"cos\0", &path).unwrap();
        }
    }

    #[test]
    fn a_name_that_stands_for_another_library_is_told() {
        let reason = name_it("libc.so.6", b"malloc\0", &some_library()).unwrap_err();
        assert!(reason.starts_with("libc.so.6 is already /"), "{reason}");
    }

    #[test]
    fn a_file_that_does_not_load_is_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("libnccl.so.2");
        std::fs::write(&path, "no library").unwrap();
        let nothing = [Candidate::Loaded("libnot-there.so".into()), Candidate::Name("libnot-there.so".into())];
        assert_eq!(load(Library::Nccl, &nothing), Err(Missing { library: Library::Nccl, reason: None }));
        let missing = load(Library::Nccl, &[Candidate::File(path.clone())]).unwrap_err();
        assert!(missing.reason.unwrap().contains(&*path.to_string_lossy()));
    }

    #[test]
    fn a_file_that_is_another_library_is_passed_over() {
        let missing = load(Library::Nccl, &[Candidate::File(some_library())]).unwrap_err();
        assert!(missing.reason.unwrap().contains("ncclGetVersion"));
    }
}
