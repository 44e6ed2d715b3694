//! Names of C++ as people write them, by the C++ library of the program itself: every demangler writes some of them in its
//! own way, and this is the one that PyTorch's profiler asks.
#![allow(unsafe_code)]

use std::{
    borrow::Cow,
    ffi::{CStr, c_char, c_int},
    ptr,
};

use libloading::os::unix::{Library, RTLD_LAZY, Symbol};
use nix::libc::{self, RTLD_NOLOAD};

/// `char* __cxa_demangle(const char* mangled, char* buffer, size_t* length, int* status)`.
type CxaDemangle = unsafe extern "C" fn(*const c_char, *mut c_char, *mut usize, *mut c_int) -> *mut c_char;

/// What the program has to demangle names with, if anything.
pub(crate) struct Demangler {
    demangle: Option<Symbol<CxaDemangle>>,
    /// Keeps the function there.
    _library: Option<Library>,
}

impl Demangler {
    /// Looks whether the program has the C++ library. It is not loaded if not.
    pub(crate) fn find() -> Demangler {
        // SAFETY: nothing is loaded that is not there already, so nothing of it runs.
        let library = unsafe { Library::open(Some("libstdc++.so.6"), RTLD_NOLOAD | RTLD_LAZY) }.ok();
        // SAFETY: the C++ ABI gives the function this type.
        let demangle = library.as_ref().and_then(|library| unsafe { library.get(c"__cxa_demangle".to_bytes()) }.ok());
        Demangler { demangle, _library: library }
    }

    /// A name as people write it; as it is, if it is none of C++ or there is nothing to read it with.
    pub(crate) fn demangle<'name>(&self, name: &'name CStr) -> Cow<'name, str> {
        let mangled = name.to_bytes().starts_with(b"_Z");
        let demangled = self.demangle.as_ref().filter(|_| mangled).and_then(|demangle| call(demangle, name));
        demangled.map_or_else(|| name.to_string_lossy(), Cow::Owned)
    }
}

fn call(demangle: &Symbol<CxaDemangle>, name: &CStr) -> Option<String> {
    // SAFETY: the name is a C string; without a buffer, what comes back is one that `malloc` gave, or null.
    let text = unsafe { demangle(name.as_ptr(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut()) };
    if text.is_null() {
        return None;
    }
    // SAFETY: it is a C string, and ours.
    let demangled = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    // SAFETY: `malloc` gave it, and it is not used any more.
    unsafe { libc::free(text.cast()) };
    Some(demangled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skipped::skipped;

    #[test]
    fn names_are_as_the_library_of_the_program_writes_them() {
        // SAFETY: it is the C++ library of this machine, which does nothing but set itself up.
        let there = unsafe { Library::new("libstdc++.so.6") };
        let demangler = Demangler::find();
        let mangled = c"_Z1fILm4096ELb1EEvPfPFvvE";
        match there {
            Ok(_library) => assert_eq!(demangler.demangle(mangled), "void f<4096ul, true>(float*, void (*)())"),
            Err(error) => {
                skipped("tools", &format!("there is no C++ library: {error}"));
                assert_eq!(demangler.demangle(mangled), mangled.to_str().unwrap());
            }
        }
        assert_eq!(demangler.demangle(c"_Z"), "_Z");
        assert_eq!(demangler.demangle(c"gemm"), "gemm");
    }
}
