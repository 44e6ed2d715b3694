//! The library, as programs call it.

use std::{
    env,
    ffi::{CStr, c_char, c_int, c_void},
    path::{Path, PathBuf},
    ptr,
};

use libloading::os::unix::{Library, Symbol};
use stepscope_collector::injection::LIBRARY_FILE;

use crate::nvtx::nvtx_tables;

/// The library, loaded as the driver and NVTX do it.
pub(crate) struct Injected(pub(crate) Library);

impl Injected {
    pub(crate) fn path() -> PathBuf {
        let beside = env::current_exe().unwrap();
        let folders = [beside.parent().unwrap(), beside.parent().and_then(Path::parent).unwrap()];
        let path = folders.map(|folder| folder.join(LIBRARY_FILE)).into_iter().find(|path| path.exists());
        path.expect("cargo builds the library for its tests")
    }

    pub(crate) fn load() -> Injected {
        // SAFETY: it does nothing when it is loaded.
        Injected(unsafe { Library::new(Injected::path()) }.unwrap())
    }

    pub(crate) fn cuda_begins(&self) {
        // SAFETY: that is its type.
        let initialize: Symbol<unsafe extern "C" fn() -> c_int> =
            unsafe { self.0.get(b"InitializeInjection") }.unwrap();
        // SAFETY: the driver may call it at any time.
        assert_eq!(unsafe { initialize() }, 1);
    }

    pub(crate) fn nvtx_begins(&self) {
        type Initialize = unsafe extern "C" fn(unsafe extern "C" fn(u32) -> *const c_void) -> c_int;
        // SAFETY: that is its type.
        let initialize: Symbol<Initialize> = unsafe { self.0.get(b"InitializeInjectionNvtx2") }.unwrap();
        // SAFETY: the tables are as NVTX has them.
        assert_eq!(unsafe { initialize(nvtx_tables) }, 1);
    }

    pub(crate) fn begin_step(&self, number: i64) {
        // SAFETY: that is its type, and any number will do.
        unsafe { self.0.get::<unsafe extern "C" fn(i64)>(b"stepscope_program_begin_step").unwrap()(number) };
    }

    pub(crate) fn begin_phase(&self, name: &str) {
        type BeginPhase = unsafe extern "C" fn(*const c_char, usize);
        // SAFETY: that is its type, and the name is so long.
        unsafe {
            self.0.get::<BeginPhase>(b"stepscope_program_begin_phase").unwrap()(name.as_ptr().cast(), name.len());
        }
    }

    pub(crate) fn end(&self) {
        // SAFETY: that is its type.
        unsafe { self.0.get::<unsafe extern "C" fn()>(b"stepscope_program_end").unwrap()() };
    }

    pub(crate) fn profiles(&self, profiled: impl FnOnce()) {
        let call = |name: &[u8]| {
            // SAFETY: that is its type.
            unsafe { self.0.get::<unsafe extern "C" fn()>(name).unwrap()() };
        };
        call(b"stepscope_torch_profiler_begins");
        profiled();
        call(b"stepscope_torch_profiler_ends");
    }

    pub(crate) fn add_tokens(&self, count: f64) {
        // SAFETY: that is its type, and any number will do.
        unsafe { self.0.get::<unsafe extern "C" fn(f64)>(b"stepscope_program_tokens").unwrap()(count) };
    }

    /// What the module in Python sees, by its numbers.
    pub(crate) fn mark(&self, events: &[u32]) {
        type Mark = unsafe extern "C" fn(u32, u64, u64) -> u32;
        // SAFETY: that is its type, and any numbers will do.
        let mark = unsafe { self.0.get::<Mark>(b"stepscope_torch_mark").unwrap() };
        // SAFETY: any numbers will do, and the library stays loaded.
        events.iter().for_each(|event| _ = unsafe { mark(*event, 7, 0) });
    }

    /// What it has found out, and whether that is understood.
    pub(crate) fn found(&self, what: &[u8], json: &str) -> bool {
        type Found = unsafe extern "C" fn(*const c_char, usize) -> u32;
        // SAFETY: that is its type, and the text is so long.
        unsafe { self.0.get::<Found>(what).unwrap()(json.as_ptr().cast(), json.len()) == 1 }
    }

    pub(crate) fn count_tokens(&self, tokens: f64) {
        // SAFETY: that is its type, and any number will do.
        unsafe { self.0.get::<unsafe extern "C" fn(f64)>(b"stepscope_torch_tokens").unwrap()(tokens) };
    }

    pub(crate) fn failed(&self, source: &CStr, why: &CStr) {
        type Failed = unsafe extern "C" fn(*const c_char, *const c_char);
        // SAFETY: that is its type, and both are texts.
        unsafe { self.0.get::<Failed>(b"stepscope_torch_failed").unwrap()(source.as_ptr(), why.as_ptr()) };
    }

    pub(crate) fn say_model(&self, json: &str, sequence_length: u64) {
        type Say = unsafe extern "C" fn(*const c_char, usize, u64, *mut c_char, usize) -> c_int;
        // SAFETY: that is its type; the text is so long, and there is no place for another.
        let refused = unsafe {
            let say = self.0.get::<Say>(b"stepscope_program_model").unwrap();
            say(json.as_ptr().cast(), json.len(), sequence_length, ptr::null_mut(), 0)
        };
        assert_eq!(refused, 0);
    }
}
