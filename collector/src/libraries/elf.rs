//! Whether a library's file is all there. The loader maps what the file says it has, and touching what is not there ends
//! the process: a download that broke off, or a disk that was full.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

/// Bytes of the header, and of one program header, of a 64-bit object.
const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;

/// Says what is wrong with a file that ends before what it should hold.
pub(super) fn check_whole(path: &Path) -> Result<(), String> {
    let wrong = |why: &str| format!("{}: {why}", path.display());
    let file = File::open(path).map_err(|error| wrong(&error.to_string()))?;
    match is_whole(file) {
        Ok(true) => Ok(()),
        Ok(false) => Err(wrong("the file is truncated")),
        Err(error) => Err(wrong(&error.to_string())),
    }
}

/// The loader judges what is no 64-bit object of this byte order.
fn is_whole(mut file: File) -> io::Result<bool> {
    let length = file.metadata()?.len();
    let mut header = [0; HEADER];
    if file.read_exact(&mut header).is_err() || !header.starts_with(b"\x7fELF\x02\x01") {
        return Ok(true);
    }
    let (place, count) = (wide(&header, 32), u16::from_le_bytes([header[56], header[57]]));
    file.seek(SeekFrom::Start(place))?;
    for _ in 0..count {
        let mut program = [0; PROGRAM_HEADER];
        if file.read_exact(&mut program).is_err() {
            return Ok(false);
        }
        // Where in the file it begins, and how long it is there.
        let end = wide(&program, 8).checked_add(wide(&program, 32));
        if end.is_none_or(|end| end > length) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn wide(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_library_that_is_cut_short_is_not_whole() {
        let program = fs::read("/proc/self/exe").unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("libcuda.so.1");
        fs::write(&path, &program).unwrap();
        assert_eq!(check_whole(&path), Ok(()));
        // What a debugger reads comes last, and the loader does not need it.
        for length in [64 << 10, 4096, 100] {
            fs::write(&path, &program[..length]).unwrap();
            assert!(check_whole(&path).unwrap_err().ends_with("the file is truncated"), "{length}");
        }
        for text in ["", "no library", "\x7fELF"] {
            fs::write(&path, text).unwrap();
            assert_eq!(check_whole(&path), Ok(()), "the loader says what that is");
        }
    }
}
