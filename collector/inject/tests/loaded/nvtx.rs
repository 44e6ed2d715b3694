//! NVTX, as far as a program has it in itself: tables of functions, which the library enters its own into.

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    ptr,
    sync::atomic::{AtomicPtr, Ordering::SeqCst},
    thread,
};

/// As NVTX has them: where its functions are, which begin as null.
static FUNCTIONS: [AtomicPtr<c_void>; 16] = [const { AtomicPtr::new(ptr::null_mut()) }; 16];
static PLACES: [AtomicPtr<c_void>; 16] = [const { AtomicPtr::new(ptr::null_mut()) }; 16];

#[repr(C)]
struct Callbacks {
    size: usize,
    module: unsafe extern "C" fn(c_uint, *mut *const c_void, *mut c_uint) -> c_int,
}

unsafe extern "C" fn nvtx_module(module: c_uint, table: *mut *const c_void, size: *mut c_uint) -> c_int {
    if module != 1 {
        return 0;
    }
    for (place, function) in PLACES.iter().zip(&FUNCTIONS) {
        place.store(function.as_ptr().cast(), SeqCst);
    }
    // SAFETY: there are places to write to.
    unsafe {
        *table = PLACES.as_ptr().cast();
        *size = 16;
    }
    1
}

pub(crate) unsafe extern "C" fn nvtx_tables(number: u32) -> *const c_void {
    static CALLBACKS: Callbacks = Callbacks { size: size_of::<Callbacks>(), module: nvtx_module };
    if number == 1 { ptr::from_ref(&CALLBACKS).cast() } else { ptr::null() }
}

pub(crate) fn push(name: &CStr) {
    // SAFETY: that is what is entered there.
    unsafe {
        let push: unsafe extern "C" fn(*const c_char) -> c_int = std::mem::transmute(FUNCTIONS[9].load(SeqCst));
        push(name.as_ptr());
    }
}

pub(crate) fn pop() {
    // SAFETY: that is what is entered there.
    unsafe {
        let pop: unsafe extern "C" fn() -> c_int = std::mem::transmute(FUNCTIONS[11].load(SeqCst));
        pop();
    }
}

/// Starts a range, and ends it on another thread.
pub(crate) fn across_threads(name: &'static CStr) {
    // SAFETY: that is what is entered there.
    unsafe {
        let start: unsafe extern "C" fn(*const c_char) -> u64 = std::mem::transmute(FUNCTIONS[5].load(SeqCst));
        let end: unsafe extern "C" fn(u64) = std::mem::transmute(FUNCTIONS[7].load(SeqCst));
        let id = start(name.as_ptr());
        thread::spawn(move || end(id)).join().unwrap();
    }
}
