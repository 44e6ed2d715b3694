//! Makes a library known by a second name.
//!
//! Whoever opens `libnccl.so` does not get the `libnccl.so.2` that is loaded, and may get another file that the loader
//! knows. An object of a few hundred bytes that is called `libnccl.so` and needs the file that was found settles both: the
//! loader takes what is loaded under a name before it looks for files, and looks up symbols in what an object needs, too.

use std::{
    ffi::CString,
    io,
    io::Write,
    os::fd::{AsRawFd, IntoRawFd},
    path::Path,
};

use nix::sys::memfd::{MFdFlags, memfd_create};

/// A file in memory. It is held for as long as the object is loaded: the loader knows objects by the path they were opened
/// by, and would take the next file of the same number for this one.
pub(super) struct Alias(std::fs::File);

impl Alias {
    /// An object called `name` that stands for the library at `path`.
    pub(super) fn new(name: &str, path: &Path) -> io::Result<Alias> {
        let label = CString::new(name)?;
        let mut file = std::fs::File::from(memfd_create(label.as_c_str(), MFdFlags::MFD_CLOEXEC)?);
        file.write_all(&object(name, path.as_os_str().as_encoded_bytes()))?;
        Ok(Alias(file))
    }

    /// Where the loader can open it.
    pub(super) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }

    /// Holds it for the life of the process.
    pub(super) fn keep(self) {
        let _ = self.0.into_raw_fd();
    }
}

const HEADER_BYTES: u64 = 64;
const PROGRAM_HEADER_BYTES: u64 = 56;
const SYMBOL_BYTES: u64 = 24;
/// The largest page of any machine this may run on.
const ALIGNMENT: u64 = 1 << 16;

/// A shared object without code: a name, what it needs, and tables with nothing in them, as the ELF specification lays
/// them out.
fn object(name: &str, needed: &[u8]) -> Vec<u8> {
    const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    const LOAD: u32 = 1;
    const DYNAMIC: u32 = 2;
    const STACK: u32 = 0x6474_e551;
    const READ_AND_WRITE: u32 = 6;

    // The empty string stands first; a symbol without a name has that.
    let strings = [b"\0", name.as_bytes(), b"\0", needed, b"\0"].concat();
    let (name_at, needed_at) = (1, 2 + name.len() as u64);
    let dynamic_at = HEADER_BYTES + 3 * PROGRAM_HEADER_BYTES;
    let dynamic_bytes = 8 * 16;
    let symbols_at = dynamic_at + dynamic_bytes;
    let hash_at = symbols_at + SYMBOL_BYTES;
    let strings_at = hash_at + 16;
    let total = strings_at + strings.len() as u64;
    // Tag and value: needed, name, hash table, symbols, the size of one, strings, their size, the end.
    let dynamic: [[u64; 2]; 8] = [
        [1, needed_at],
        [14, name_at],
        [4, hash_at],
        [6, symbols_at],
        [11, SYMBOL_BYTES],
        [5, strings_at],
        [10, strings.len() as u64],
        [0, 0],
    ];

    let mut out = Bytes(Vec::with_capacity(total as usize));
    // 64 bits, little endian, version 1; a shared object of version 1 without an entry.
    out.raw(b"\x7fELF\x02\x01\x01").raw(&[0; 9]).half(3).half(MACHINE).word(1).wide(0);
    // The program headers follow; there are no sections and no flags.
    out.wide(HEADER_BYTES).wide(0).word(0).half(HEADER_BYTES as u16);
    out.half(PROGRAM_HEADER_BYTES as u16).half(3).half(64).half(0).half(0);
    for (kind, at, bytes, alignment) in
        [(LOAD, 0, total, ALIGNMENT), (DYNAMIC, dynamic_at, dynamic_bytes, 8), (STACK, 0, 0, 16)]
    {
        // Where in the file, where in memory (twice), how long there (twice).
        out.word(kind).word(READ_AND_WRITE).wide(at).wide(at).wide(at).wide(bytes).wide(bytes).wide(alignment);
    }
    dynamic.iter().flatten().for_each(|value| {
        out.wide(*value);
    });
    // One bucket and one symbol, the one that stands for none.
    out.raw(&[0; SYMBOL_BYTES as usize]).word(1).word(1).word(0).word(0).raw(&strings);
    out.0
}

/// Numbers one after another, in little endian.
struct Bytes(Vec<u8>);

impl Bytes {
    fn raw(&mut self, bytes: &[u8]) -> &mut Bytes {
        self.0.extend_from_slice(bytes);
        self
    }

    fn half(&mut self, value: u16) -> &mut Bytes {
        self.raw(&value.to_le_bytes())
    }

    fn word(&mut self, value: u32) -> &mut Bytes {
        self.raw(&value.to_le_bytes())
    }

    fn wide(&mut self, value: u64) -> &mut Bytes {
        self.raw(&value.to_le_bytes())
    }
}
