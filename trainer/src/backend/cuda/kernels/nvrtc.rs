//! NVIDIA's compiler for kernels, called on text.

#![allow(unsafe_code, reason = "calls the compiler's C interface")]

use std::ffi::{CStr, CString, c_char};

use cudarc::nvrtc::{
    result::{self, NvrtcError},
    sys,
};
use stepscope_collector::libraries::{self, Library, Missing};

use crate::error::TrainError;

/// Makes sure that the compiler is loaded, from wherever it is found.
pub(super) fn open() -> Result<(), Missing> {
    libraries::open(Library::Nvrtc).map(drop).or_else(|missing| {
        // SAFETY: it only asks the loader whether the library can be opened.
        if unsafe { sys::is_culib_present() } { Ok(()) } else { Err(missing) }
    })
}

/// Which compiler it is: what one makes of a text another may not.
pub(super) fn version() -> Result<(i32, i32), TrainError> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both places are there to be written.
    unsafe { sys::nvrtcVersion(&mut major, &mut minor) }
        .result()
        .map_err(TrainError::device("ask for the version of the compiler"))?;
    Ok((major, minor))
}

/// A program that goes when it is dropped.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: it was made by `compile` and is destroyed only here. There is nobody to tell of a failure.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

/// Compiles a text to machine code; the error has what the compiler said.
pub(super) fn compile(name: &str, text: &str, options: &[String]) -> Result<Vec<u8>, TrainError> {
    let action = || format!("compile {name}");
    let (text, label) = (CString::new(text), CString::new(name));
    let (Ok(text), Ok(label)) = (text, label) else {
        return Err(TrainError::device(action())("a zero in its text"));
    };
    let program = Program(result::create_program(&text, Some(&label)).map_err(TrainError::device(action()))?);
    // SAFETY: the program is alive, and its text outlives it.
    if unsafe { result::compile_program(program.0, options) }.is_err() {
        return Err(TrainError::Device { action: action(), why: log(&program) });
    }
    machine_code(&program).map_err(TrainError::device(action()))
}

fn log(program: &Program) -> String {
    // SAFETY: the program is alive.
    let log = unsafe { result::get_program_log(program.0) }.unwrap_or_default();
    let bytes: Vec<u8> = log.iter().map(|character| character.cast_unsigned()).collect();
    CStr::from_bytes_until_nul(&bytes).map_or_else(|_| String::new(), |log| log.to_string_lossy().into_owned())
}

fn machine_code(program: &Program) -> Result<Vec<u8>, NvrtcError> {
    let mut bytes = 0;
    // SAFETY: the program is alive and has been compiled.
    unsafe { sys::nvrtcGetCUBINSize(program.0, &mut bytes) }.result()?;
    let mut code = vec![0_u8; bytes];
    // SAFETY: the place is as long as the compiler said.
    unsafe { sys::nvrtcGetCUBIN(program.0, code.as_mut_ptr().cast::<c_char>()) }.result()?;
    Ok(code)
}
