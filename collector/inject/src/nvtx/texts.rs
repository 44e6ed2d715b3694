//! Texts of the program: read within bounds, and kept where NVTX has us keep them.

use std::{
    borrow::Cow,
    ffi::c_void,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use super::attributes::{EventAttributes, MESSAGE_REGISTERED, MESSAGE_TEXT, MESSAGE_WIDE};
use crate::c_text::{self, LONGEST};

/// How many texts are kept for the program: it may make them without end.
const MOST_KEPT: usize = 1 << 16;

/// What a wide character is on the systems that have CUDA.
pub(crate) type Wide = u32;

/// # Safety
///
/// It is null, or ends in a zero.
pub(crate) unsafe fn read_wide(text: *const Wide) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: there is a zero, and nothing behind it is read.
    let characters = (0..LONGEST).map(|at| unsafe { *text.add(at) }).take_while(|character| *character != 0);
    characters.map(|character| char::from_u32(character).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

/// What a range is called.
///
/// # Safety
///
/// It is null, or attributes as NVTX has them.
pub(crate) unsafe fn message<'a>(attributes: *const EventAttributes) -> Cow<'a, str> {
    // SAFETY: as the caller promises.
    let Some(attributes) = (unsafe { attributes.as_ref() }) else { return Cow::Borrowed("") };
    if usize::from(attributes.size) < size_of::<EventAttributes>() {
        return Cow::Borrowed("");
    }
    // SAFETY: the type says which of these it is; what was registered, we have made.
    unsafe {
        match attributes.message_type {
            MESSAGE_TEXT => c_text::read(attributes.message.cast()),
            MESSAGE_WIDE => Cow::Owned(read_wide(attributes.message.cast())),
            MESSAGE_REGISTERED => Cow::Borrowed(kept(attributes.message)),
            _ => Cow::Borrowed(""),
        }
    }
}

/// Keeps a text for the life of the process: what NVTX then calls it. Null when there are too many.
pub(crate) fn keep(text: &str) -> *const c_void {
    static KEPT: AtomicUsize = AtomicUsize::new(0);
    if KEPT.fetch_add(1, Relaxed) >= MOST_KEPT {
        KEPT.fetch_sub(1, Relaxed);
        return std::ptr::null();
    }
    std::ptr::from_ref(Box::leak(Box::new(text.to_owned()))).cast()
}

/// A text that is kept.
///
/// # Safety
///
/// It is null, or what [`keep`] said.
pub(crate) unsafe fn kept(text: *const c_void) -> &'static str {
    // SAFETY: as the caller promises; it is never freed.
    unsafe { text.cast::<String>().as_ref() }.map_or("", String::as_str)
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn wide_texts_are_read_within_bounds() {
        let long = [Wide::from(b'a'); 4 * LONGEST];
        // SAFETY: each is null, ends in a zero, or is longer than is read.
        unsafe {
            assert_eq!(read_wide(long.as_ptr()).len(), LONGEST);
            let wide: Vec<Wide> = "größer\0 behind".chars().map(u32::from).collect();
            assert_eq!(read_wide(wide.as_ptr()), "größer");
            assert_eq!(read_wide([0xd800, 0].as_ptr()), "\u{fffd}");
            assert_eq!(read_wide(ptr::null()), "");
        }
    }

    #[test]
    fn a_message_is_what_its_type_says() {
        let wide = ['w', '\0'].map(u32::from);
        let said = |message_type, message, size| EventAttributes {
            version: 3,
            size,
            category: 0,
            colour_type: 0,
            colour: 0,
            payload_type: 0,
            reserved: 0,
            payload: 0,
            message_type,
            message,
        };
        for (attributes, expected) in [
            (said(MESSAGE_TEXT, c"text".as_ptr().cast(), 48), "text"),
            (said(MESSAGE_WIDE, wide.as_ptr().cast(), 48), "w"),
            (said(MESSAGE_REGISTERED, keep("registered"), 48), "registered"),
            (said(MESSAGE_REGISTERED, ptr::null(), 48), ""),
            (said(0, c"text".as_ptr().cast(), 48), ""),
            (said(MESSAGE_TEXT, c"text".as_ptr().cast(), 32), ""),
        ] {
            // SAFETY: as it should be.
            assert_eq!(unsafe { message(&attributes) }, expected);
        }
        // SAFETY: it is null.
        assert_eq!(unsafe { message(ptr::null()) }, "");
    }
}
