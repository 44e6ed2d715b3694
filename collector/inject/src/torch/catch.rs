//! Calls a function of C++, and catches what it throws.
//!
//! Rust lets an exception of C++ through a function that says so (`C-unwind`), and cannot catch it: that ends the process,
//! which is not ours to end. So the call is made by a few instructions that have a handler. The unwinder asks the frame's
//! [`personality`] what to do with an exception; it says "it is caught here", and the call returns the exception.
//!
//! A process may have several unwinders, one of them inside this library. Exceptions of C++ are thrown by the one that
//! `libstdc++` uses, and it alone knows its frames.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    mem::ManuallyDrop,
    sync::OnceLock,
};

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use nix::libc::RTLD_NOLOAD;

const LIBRARY: &str = "libstdc++.so.6";
const UNWINDER: &str = "libgcc_s.so.1";

/// A function that returns a value in the place that it is given.
pub(super) type Returning = unsafe extern "C-unwind" fn(*mut c_void);

/// An exception of C++, as the unwinder has it.
type Exception = *mut c_void;

/// What the unwinder asks of a frame, as bits.
const SEARCH: c_int = 1;
const IS_HANDLER: c_int = 4;
const FORCED: c_int = 8;
/// What a frame answers.
const HANDLER_FOUND: c_int = 6;
const INSTALL_CONTEXT: c_int = 7;
const CONTINUE: c_int = 8;
/// The register in which functions return.
const RESULT: c_int = 0;

std::arch::global_asm!(
    ".pushsection .data.rel.ro.stepscope_personality, \"aw\", @progbits",
    ".p2align 3",
    "stepscope_personality: .quad {personality}",
    ".popsection",
    ".pushsection .text.stepscope_call_catching, \"ax\", @progbits",
    ".globl stepscope_call_catching",
    ".hidden stepscope_call_catching",
    ".type stepscope_call_catching, @function",
    "stepscope_call_catching:",
    ".cfi_startproc",
    // Four bytes from here to the word that has the function's address.
    ".cfi_personality 0x9b, stepscope_personality",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "mov rax, rdi",
    "mov rdi, rsi",
    "call rax",
    "xor eax, eax",
    // An exception arrives here, in the register in which functions return.
    ".globl stepscope_call_caught",
    ".hidden stepscope_call_caught",
    "stepscope_call_caught:",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size stepscope_call_catching, . - stepscope_call_catching",
    ".popsection",
    personality = sym personality,
);

unsafe extern "C" {
    /// Calls a function with a place for its result: the exception that it threw, or null.
    fn stepscope_call_catching(function: Returning, result: *mut c_void) -> Exception;
    /// Where that goes on when one was thrown.
    fn stepscope_call_caught();
}

/// The unwinder of C++ in this process, once it was looked for.
static FOUND: OnceLock<Option<Unwinder>> = OnceLock::new();

/// What the unwinder calls for the frame above, to look for a handler and then to go there.
unsafe extern "C" fn personality(
    _version: c_int,
    asks: c_int,
    _class: u64,
    exception: Exception,
    context: *mut c_void,
) -> c_int {
    // A thread that is cancelled is to go on unwinding.
    if asks & FORCED != 0 {
        return CONTINUE;
    }
    if asks & SEARCH != 0 {
        return HANDLER_FOUND;
    }
    let (Some(Some(unwinder)), true) = (FOUND.get(), asks & IS_HANDLER != 0) else { return CONTINUE };
    // SAFETY: the context is that of a call of `stepscope_call_catching`, whose stack is at `stepscope_call_caught` as it was
    // at its call.
    unsafe {
        (unwinder.set_register)(context, RESULT, exception as usize);
        (unwinder.set_address)(context, stepscope_call_caught as *const () as usize);
    }
    INSTALL_CONTEXT
}

/// Calls a function with a place for its result, or says what it threw; there is no result then.
///
/// # Safety
///
/// The function returns its result in a place, and this one is large enough.
pub(super) unsafe fn call(function: Returning, result: *mut c_void) -> Result<(), String> {
    let Some(unwinder) = FOUND.get_or_init(Unwinder::find) else {
        return Err(format!("{UNWINDER} is not loaded, so nothing that C++ throws could be caught"));
    };
    // SAFETY: as the caller promises.
    let thrown = unsafe { stepscope_call_catching(function, result) };
    if thrown.is_null() { Ok(()) } else { Err(forget(thrown, unwinder)) }
}

/// Lets go of an exception, as a handler of C++ does; its type, as C++ names it.
fn forget(thrown: Exception, unwinder: &Unwinder) -> String {
    let unknown = || "a C++ exception".to_owned();
    let Some(Handler { begin, end, current_type }) = Handler::find() else {
        // SAFETY: it was thrown, and nobody else has caught it.
        unsafe { (unwinder.delete)(thrown) };
        return unknown();
    };
    // SAFETY: it was thrown, and nobody else has caught it; its type's name ends in a zero, and is there until the
    // exception goes.
    unsafe {
        begin(thrown);
        let name = current_type().as_ref().map(|of| CStr::from_ptr(of.name).to_string_lossy().into_owned());
        end();
        name.map_or_else(unknown, |name| format!("a C++ exception, {name}"))
    }
}

/// What a handler of C++ calls.
struct Handler {
    begin: unsafe extern "C" fn(Exception) -> *mut c_void,
    end: unsafe extern "C" fn(),
    current_type: unsafe extern "C" fn() -> *const TypeInfo,
}

/// The head of a `std::type_info`.
#[repr(C)]
struct TypeInfo {
    methods: *const c_void,
    name: *const c_char,
}

impl Handler {
    /// Finds it in the library of C++ that is loaded: whoever threw uses it.
    fn find() -> Option<Handler> {
        let library = loaded(LIBRARY)?;
        // SAFETY: functions of these names have these types, by the rules of C++ on this system.
        unsafe {
            Some(Handler {
                begin: *library.get(b"__cxa_begin_catch").ok()?,
                end: *library.get(b"__cxa_end_catch").ok()?,
                current_type: *library.get(b"__cxa_current_exception_type").ok()?,
            })
        }
    }
}

/// What a frame asks of the unwinder.
struct Unwinder {
    set_register: unsafe extern "C" fn(*mut c_void, c_int, usize),
    set_address: unsafe extern "C" fn(*mut c_void, usize),
    delete: unsafe extern "C" fn(Exception),
}

impl Unwinder {
    fn find() -> Option<Unwinder> {
        let library = loaded(UNWINDER)?;
        // SAFETY: functions of these names have these types, by the rules of C++ on this system.
        unsafe {
            Some(Unwinder {
                set_register: *library.get(b"_Unwind_SetGR").ok()?,
                set_address: *library.get(b"_Unwind_SetIP").ok()?,
                delete: *library.get(b"_Unwind_DeleteException").ok()?,
            })
        }
    }
}

/// A library that is loaded already, and stays.
fn loaded(name: &str) -> Option<ManuallyDrop<Library>> {
    // SAFETY: nothing is loaded that is not there, so nothing of it runs.
    unsafe { Library::open(Some(name), RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD) }.ok().map(ManuallyDrop::new)
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    unsafe extern "C-unwind" fn returns(place: *mut c_void) {
        // SAFETY: the test gives it a number.
        unsafe { *place.cast::<u64>() = 42 };
    }

    #[test]
    fn what_returns_has_returned() {
        let mut number = 0_u64;
        // SAFETY: it writes one number, to a place for one.
        let called = unsafe { call(returns, (&raw mut number).cast()) };
        assert_eq!((called, number), (Ok(()), 42));
    }

    #[test]
    fn what_is_thrown_is_caught_and_let_go_of() {
        // SAFETY: the C++ library is made to be loaded by anyone, and does nothing but set itself up.
        let library = unsafe { Library::open(Some(LIBRARY), RTLD_LAZY | RTLD_LOCAL) }.unwrap();
        // SAFETY: they have these types; what is passed to the first is ignored.
        let (throw, uncaught) = unsafe {
            let throw = *library.get::<Returning>(b"_ZSt17__throw_bad_allocv").unwrap();
            let uncaught = *library.get::<unsafe extern "C" fn() -> c_int>(b"_ZSt19uncaught_exceptionsv").unwrap();
            (throw, uncaught)
        };
        for _ in 0..1000 {
            // SAFETY: nothing is returned.
            let thrown = unsafe { call(throw, ptr::null_mut()) };
            assert_eq!(thrown, Err("a C++ exception, St9bad_alloc".to_owned()));
            // SAFETY: it takes nothing.
            assert_eq!(unsafe { uncaught() }, 0, "C++ has forgotten it");
        }
    }
}
