//! What a program says of a range: the structure that NVTX hands on.

use std::ffi::c_void;

/// What a range is called, among other things.
#[repr(C)]
pub(crate) struct EventAttributes {
    pub(crate) version: u16,
    pub(crate) size: u16,
    pub(crate) category: u32,
    pub(crate) colour_type: i32,
    pub(crate) colour: u32,
    pub(crate) payload_type: i32,
    pub(crate) reserved: i32,
    pub(crate) payload: u64,
    pub(crate) message_type: i32,
    pub(crate) message: *const c_void,
}

/// What [`EventAttributes::message`] is.
pub(crate) const MESSAGE_TEXT: i32 = 1;
pub(crate) const MESSAGE_WIDE: i32 = 2;
pub(crate) const MESSAGE_REGISTERED: i32 = 3;

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn attributes_lie_where_nvtx_has_them() {
        assert_eq!(offset_of!(EventAttributes, size), 2);
        assert_eq!(offset_of!(EventAttributes, payload), 24);
        assert_eq!(offset_of!(EventAttributes, message_type), 32);
        assert_eq!(offset_of!(EventAttributes, message), 40);
        assert_eq!(size_of::<EventAttributes>(), 48);
    }
}
