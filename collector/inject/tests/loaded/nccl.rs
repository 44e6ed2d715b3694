//! NCCL's part: what it does with the table of functions that it finds in the library.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr,
};

use libloading::os::unix::Symbol;

use crate::injected::Injected;

/// What NCCL finds: a name, and five functions.
#[repr(C)]
struct ProfilerTable {
    name: *const c_char,
    init: *const c_void,
    start: unsafe extern "C" fn(*mut c_void, *mut *const c_void, *const c_void) -> c_int,
    stop: unsafe extern "C" fn(*const c_void) -> c_int,
    record_state: unsafe extern "C" fn(*const c_void, c_int, *const c_void) -> c_int,
    finalize: unsafe extern "C" fn(*mut c_void) -> c_int,
}

type Begin = unsafe extern "C" fn(*mut *mut c_void, *mut c_int) -> c_int;
type BeginV4 =
    unsafe extern "C" fn(*mut *mut c_void, *mut c_int, *const c_char, u64, c_int, c_int, c_int, *const c_void) -> c_int;
type BeginV5 =
    unsafe extern "C" fn(*mut *mut c_void, u64, *mut c_int, *const c_char, c_int, c_int, c_int, *const c_void) -> c_int;

/// NCCL's part, as a version of its interface has it: a communicator with a plan of a collective and a message.
pub(crate) fn communicate(injected: &Injected, version: c_int) {
    let symbol = format!("ncclProfiler_v{version}");
    // SAFETY: that is what NCCL takes it for, and how it calls it.
    unsafe {
        let table: Symbol<*const ProfilerTable> = injected.0.get(symbol.as_bytes()).unwrap();
        let ProfilerTable { name, init, start, stop, record_state, finalize } = ptr::read(*table);
        assert_eq!(CStr::from_ptr(name), c"stepscope");
        let (mut context, mut wanted) = (ptr::null_mut(), 0);
        let (mesh, hash, log) = (c"mesh_tp".as_ptr(), 1 << version, ptr::null());
        let begun = match version {
            2 | 3 => std::mem::transmute::<*const c_void, Begin>(init)(&mut context, &mut wanted),
            4 => {
                let begin = std::mem::transmute::<*const c_void, BeginV4>(init);
                begin(&mut context, &mut wanted, mesh, hash, 1, version, 3, log)
            }
            _ => {
                let begin = std::mem::transmute::<*const c_void, BeginV5>(init);
                begin(&mut context, hash, &mut wanted, mesh, 1, version, 3, log)
            }
        };
        assert_eq!((begun, wanted, context.is_null()), (0, 0b110, false));
        // A collective has its function in the second, fourth or fifth word behind the head, and a message before that: all
        // of these are texts here, which no version takes for anything but a text, a number or an address.
        let word = c"Send".as_ptr() as u64;
        let mut begin = |kind: u64| {
            let mut descriptor = [word; 32];
            descriptor[0] = kind;
            descriptor[2] = 3;
            let mut handle = ptr::dangling::<c_void>();
            assert_eq!(start(context, &mut handle, descriptor.as_ptr().cast()), 0);
            handle
        };
        let calls = if version >= 5 { begin(1 << 8) } else { ptr::null() };
        assert_eq!(calls.is_null(), version < 5);
        let plan = begin(1);
        assert!(!plan.is_null(), "without a handle, NCCL before 2.28 says nothing of the plan");
        let others = [1 << 1, 1 << 2, 1 << 3].into_iter().chain((version >= 5).then_some(1 << 11));
        assert!(others.map(&mut begin).all(|handle| handle.is_null()));
        assert_eq!((record_state(plan, 7, ptr::null()), stop(plan), stop(calls)), (0, 0, 0));
        assert_eq!(finalize(context), 0);
    }
}
