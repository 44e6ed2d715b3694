//! Texts of the program, read within bounds.

use std::{borrow::Cow, ffi::c_char};

/// As much of a name as is kept.
pub(crate) const LONGEST: usize = 512;

/// # Safety
///
/// It is null, or ends in a zero.
pub(crate) unsafe fn read<'a>(text: *const c_char) -> Cow<'a, str> {
    if text.is_null() {
        return Cow::Borrowed("");
    }
    // SAFETY: there is a zero, and nothing behind it is read.
    let length = (0..LONGEST).find(|at| unsafe { *text.add(*at) } == 0).unwrap_or(LONGEST);
    // SAFETY: so many bytes are there.
    String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(text.cast(), length) })
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn texts_are_read_within_bounds() {
        let long = [b'a' as c_char; 4 * LONGEST];
        // SAFETY: each is null, ends in a zero, or is longer than is read.
        unsafe {
            assert_eq!(read(ptr::null()), "");
            assert_eq!(read(c"step 5".as_ptr()), "step 5");
            assert_eq!(read(c"\xff".as_ptr()), "\u{fffd}");
            assert_eq!(read(long.as_ptr()).len(), LONGEST);
        }
    }
}
