//! The library that programs load, carried inside this program.
//!
//! Cargo builds it before it builds this program, which it is a dependency of; `build.rs` says where. It is a part of the
//! machine code and not a constant, so that what only checks the code need not build it.
#![allow(unsafe_code, reason = "the bytes are known to the linker alone")]

use std::{arch::global_asm, slice};

global_asm!(
    ".pushsection .rodata.stepscope_inject, \"a\"",
    ".balign 16",
    ".hidden stepscope_inject_begin",
    ".globl stepscope_inject_begin",
    "stepscope_inject_begin:",
    concat!(".incbin \"", env!("STEPSCOPE_INJECT_FILE"), "\""),
    ".hidden stepscope_inject_end",
    ".globl stepscope_inject_end",
    "stepscope_inject_end:",
    ".popsection",
    options(raw)
);

unsafe extern "C" {
    static stepscope_inject_begin: u8;
    static stepscope_inject_end: u8;
}

/// All of it.
pub(super) fn bytes() -> &'static [u8] {
    // SAFETY: both are ends of one stretch of read-only bytes, which is there as long as the program is.
    unsafe {
        let (begin, end) = (&raw const stepscope_inject_begin, &raw const stepscope_inject_end);
        slice::from_raw_parts(begin, end.offset_from_unsigned(begin))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_a_library() {
        assert!(super::bytes().starts_with(b"\x7fELF"));
    }
}
