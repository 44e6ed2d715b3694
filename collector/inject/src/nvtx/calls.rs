//! What NVTX calls, on the program's threads. None of it blocks for long or panics.

use std::{
    ffi::{c_char, c_int, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
};

use super::{
    attributes::EventAttributes,
    ranges::{self, Domain},
    texts::{self, Wide},
};
use crate::c_text;

/// What a pop says that found nothing, or a push that could not be done.
const NO_RANGE: c_int = -2;

fn push(domain: Domain, name: &str) -> c_int {
    catch_unwind(AssertUnwindSafe(|| ranges::push(domain, name))).unwrap_or(NO_RANGE)
}

fn pop(domain: Domain) -> c_int {
    catch_unwind(|| ranges::pop(domain)).ok().flatten().unwrap_or(NO_RANGE)
}

fn start(domain: Domain, name: &str) -> u64 {
    catch_unwind(AssertUnwindSafe(|| ranges::start(domain, name))).unwrap_or(0)
}

/// # Safety
///
/// All of these are called by NVTX, with what the program gave it, which is as NVTX wants it.
pub(super) unsafe extern "C" fn range_push(name: *const c_char) -> c_int {
    // SAFETY: NVTX passes on what the program gave it: null, or a text that ends in a zero.
    push(Domain::NONE, &unsafe { c_text::read(name) })
}

pub(super) unsafe extern "C" fn range_push_wide(name: *const Wide) -> c_int {
    // SAFETY: NVTX passes on what the program gave it: null, or wide characters that end in a zero.
    push(Domain::NONE, &unsafe { texts::read_wide(name) })
}

pub(super) unsafe extern "C" fn range_push_with(attributes: *const EventAttributes) -> c_int {
    // SAFETY: NVTX passes on what the program gave it: null, or attributes that say how large they are.
    push(Domain::NONE, &unsafe { texts::message(attributes) })
}

pub(super) unsafe extern "C" fn range_pop() -> c_int {
    pop(Domain::NONE)
}

pub(super) unsafe extern "C" fn domain_range_push(domain: *const c_void, attributes: *const EventAttributes) -> c_int {
    // SAFETY: NVTX passes on what the program gave it: null, or attributes that say how large they are; and a domain
    // that we made.
    push(Domain(domain.addr()), &unsafe { named(domain, attributes) })
}

pub(super) unsafe extern "C" fn domain_range_pop(domain: *const c_void) -> c_int {
    pop(Domain(domain.addr()))
}

pub(super) unsafe extern "C" fn range_start(name: *const c_char) -> u64 {
    // SAFETY: NVTX passes on what the program gave it: null, or a text that ends in a zero.
    start(Domain::NONE, &unsafe { c_text::read(name) })
}

pub(super) unsafe extern "C" fn range_start_wide(name: *const Wide) -> u64 {
    // SAFETY: NVTX passes on what the program gave it: null, or wide characters that end in a zero.
    start(Domain::NONE, &unsafe { texts::read_wide(name) })
}

pub(super) unsafe extern "C" fn range_start_with(attributes: *const EventAttributes) -> u64 {
    // SAFETY: NVTX passes on what the program gave it: null, or attributes that say how large they are.
    start(Domain::NONE, &unsafe { texts::message(attributes) })
}

pub(super) unsafe extern "C" fn domain_range_start(domain: *const c_void, attributes: *const EventAttributes) -> u64 {
    // SAFETY: NVTX passes on what the program gave it: null, or attributes that say how large they are; and a domain
    // that we made.
    start(Domain(domain.addr()), &unsafe { named(domain, attributes) })
}

pub(super) unsafe extern "C" fn range_end(id: u64) {
    drop(catch_unwind(|| ranges::end(id)));
}

pub(super) unsafe extern "C" fn domain_range_end(_: *const c_void, id: u64) {
    drop(catch_unwind(|| ranges::end(id)));
}

pub(super) unsafe extern "C" fn register_text(_: *const c_void, text: *const c_char) -> *const c_void {
    // SAFETY: NVTX passes on what the program gave it: null, or a text that ends in a zero.
    texts::keep(&unsafe { c_text::read(text) })
}

pub(super) unsafe extern "C" fn register_wide_text(_: *const c_void, text: *const Wide) -> *const c_void {
    // SAFETY: NVTX passes on what the program gave it: null, or wide characters that end in a zero.
    texts::keep(&unsafe { texts::read_wide(text) })
}

pub(super) unsafe extern "C" fn create_domain(name: *const c_char) -> *const c_void {
    // SAFETY: NVTX passes on what the program gave it: null, or a text that ends in a zero.
    texts::keep(&unsafe { c_text::read(name) })
}

pub(super) unsafe extern "C" fn create_wide_domain(name: *const Wide) -> *const c_void {
    // SAFETY: NVTX passes on what the program gave it: null, or wide characters that end in a zero.
    texts::keep(&unsafe { texts::read_wide(name) })
}

/// The name of a range, with that of its domain, which is a library's.
///
/// # Safety
///
/// As above.
unsafe fn named(domain: *const c_void, attributes: *const EventAttributes) -> String {
    // SAFETY: as the caller promises: domains are texts that we keep for good, and attributes say how large they are.
    let (domain, name) = unsafe { (texts::kept(domain), texts::message(attributes)) };
    if domain.is_empty() { name.into_owned() } else { format!("{domain}: {name}") }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn ranges_nest_by_domain() {
        // SAFETY: as NVTX would.
        unsafe {
            let domain = create_domain(c"NCCL".as_ptr());
            assert_eq!(range_push(c"outer".as_ptr()), 0);
            assert_eq!(domain_range_push(domain, ptr::null()), 0, "its own depth");
            assert_eq!(range_push(c"inner".as_ptr()), 1);
            assert_eq!(domain_range_pop(domain), 0);
            assert_eq!((range_pop(), range_pop()), (1, 0));
            assert_eq!((range_pop(), domain_range_pop(domain)), (NO_RANGE, NO_RANGE));
            assert_eq!(named(domain, ptr::null()), "NCCL: ");
            let (first, second) = (range_start(c"a".as_ptr()), range_start(c"b".as_ptr()));
            assert!(first != 0 && second > first);
            range_end(first);
            range_end(first);
            range_end(999);
            domain_range_end(domain, second);
        }
    }
}
