//! The library that the binary carries for `record`: unpacked by a binary that is all alone, and what programs get with it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use object::{
    Endianness, FileKind, Object, ObjectSymbol,
    elf::{DT_NEEDED, FileHeader64},
    read::elf::{Dyn, ElfFile64, FileHeader, SectionHeader},
};

use crate::binary::text;

/// What the driver, NVTX, NCCL and our Python modules call; nothing else of it is to be seen in a program.
const ENTRY_POINTS: [&str; 5] =
    ["InitializeInjection", "InitializeInjectionNvtx2", "ncclProfiler_v", "stepscope_torch_", "stepscope_program_"];
/// What every Linux with glibc has.
const EVERYWHERE: [&str; 7] =
    ["libc.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"];

/// Has a binary record a command, and finds the library that it unpacked for it.
pub(crate) fn unpacked_by(binary: &Path, directory: &Path) -> PathBuf {
    let cache = directory.join("cache");
    let mut command = Command::new(binary);
    command.current_dir(directory).args(["record", "--run", "run", "--", "sh", "-c", "echo $CUDA_INJECTION64_PATH"]);
    let output = command.env("XDG_CACHE_HOME", &cache).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let library = PathBuf::from(text(&output.stdout).trim());
    assert!(library.starts_with(&cache), "{library:?}");
    library
}

/// What a library needs and shows.
pub(crate) struct Interface {
    pub(crate) exports: Vec<String>,
    pub(crate) needs: Vec<String>,
    /// The newest version of glibc that it needs anything of.
    pub(crate) glibc: (u32, u32),
}

impl Interface {
    pub(crate) fn of(library: &Path) -> Interface {
        let bytes = fs::read(library).unwrap();
        assert_eq!(FileKind::parse(&*bytes).unwrap(), FileKind::Elf64);
        let file = ElfFile64::<Endianness>::parse(&*bytes).unwrap();
        let defined = file.dynamic_symbols().filter(|symbol| symbol.is_definition());
        let exports = defined.map(|symbol| symbol.name().unwrap().to_owned()).collect();
        let header = FileHeader64::<Endianness>::parse(&*bytes).unwrap();
        let endian = header.endian().unwrap();
        let sections = header.sections(endian, &*bytes).unwrap();
        let (entries, strings) = sections.dynamic(endian, &*bytes).unwrap().unwrap();
        let strings = sections.strings(endian, &*bytes, strings).unwrap();
        let needs = entries.iter().filter(|entry| entry.tag32(endian) == Some(DT_NEEDED));
        let needs = needs.map(|entry| text(entry.string(endian, strings).unwrap())).collect();
        let mut glibc = (0, 0);
        for section in sections.iter() {
            let Some((mut files, link)) = section.gnu_verneed(endian, &*bytes).unwrap() else { continue };
            let strings = sections.strings(endian, &*bytes, link).unwrap();
            while let Some((_, mut versions)) = files.next().unwrap() {
                while let Some(version) = versions.next().unwrap() {
                    let name = text(version.name(endian, strings).unwrap());
                    let Some(number) = name.strip_prefix("GLIBC_") else { continue };
                    let parts: Vec<u32> = number.split('.').map(|part| part.parse().unwrap()).collect();
                    glibc = glibc.max((parts[0], parts[1]));
                }
            }
        }
        Interface { exports, needs, glibc }
    }

    #[track_caller]
    pub(crate) fn is_modest(&self) {
        for export in &self.exports {
            assert!(ENTRY_POINTS.iter().any(|entry| export.starts_with(entry)), "{export} is seen in programs");
        }
        assert!(self.exports.iter().any(|export| export == ENTRY_POINTS[0]), "{:?}", self.exports);
        for need in &self.needs {
            assert!(EVERYWHERE.contains(&need.as_str()), "{need} may be missing");
        }
    }
}

#[test]
fn a_copied_binary_has_all_that_record_needs() {
    let directory = tempfile::tempdir().unwrap();
    let binary = directory.path().join("alone");
    fs::copy(env!("CARGO_BIN_EXE_stepscope"), &binary).unwrap();
    let library = unpacked_by(&binary, directory.path());
    Interface::of(&library).is_modest();
}
