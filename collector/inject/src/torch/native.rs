//! PyTorch's own function that writes the history of its allocator as a pickle, in C++.
//!
//! Python has one too, which makes a dict of every event while it holds Python's lock: as much as a tenth of a step. This one
//! needs no Python. It is exported by every PyTorch since 2.0, takes nothing, and returns a `std::string`, whose layout
//! says the function's name. What it throws is caught.
//!
//! How a string is returned is known for x86-64 alone: elsewhere nothing is read.

use std::{ffi::c_void, ptr, slice};

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use nix::libc::RTLD_NOLOAD;

use super::catch::{self, Returning};

/// Where the function is, if PyTorch is one that has CUDA.
const LIBRARY: &str = "libtorch_cuda.so";

/// A `std::string`, of whichever layout.
type Text = [*mut c_void; 4];

/// How a `std::string` is laid out: as of C++11, or as before, which PyTorch's packages had until 2.6.
#[derive(Clone, Copy, Debug)]
enum Layout {
    /// Where it is, and how long.
    Cxx11,
    /// Where it is; its length is before that.
    Before,
}

/// The function's name and its string's destructor, for each layout.
const FUNCTIONS: [(Layout, &[u8], &[u8]); 2] = [
    (
        Layout::Cxx11,
        b"_ZN5torch4cuda24_memory_snapshot_pickledB5cxx11Ev",
        b"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEED1Ev",
    ),
    (Layout::Before, b"_ZN5torch4cuda24_memory_snapshot_pickledEv", b"_ZNSsD1Ev"),
];

/// The function.
pub(super) struct Snapshots {
    layout: Layout,
    /// Returns its string in the place that it is given.
    take: Returning,
    destroy: unsafe extern "C" fn(*mut Text),
}

impl Snapshots {
    /// Finds it in the PyTorch that is loaded, or says why there is none.
    pub(super) fn find() -> Result<Snapshots, &'static str> {
        let missing = "does not export what writes its history";
        // SAFETY: nothing is loaded that is not there, so nothing of it runs.
        let library = unsafe { Library::open(Some(LIBRARY), RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD) };
        let library = library.map_err(|_| missing)?;
        let found = FUNCTIONS.iter().find_map(|&(layout, take, destroy)| {
            // SAFETY: a function with these names has these types, by the rules of C++ on this system: a string is returned
            // in a place whose address comes first.
            unsafe {
                let take = *library.get::<Returning>(take).ok()?;
                let destroy = *library.get::<unsafe extern "C" fn(*mut Text)>(destroy).ok()?;
                Some(Snapshots { layout, take, destroy })
            }
        });
        // PyTorch is never unloaded; and if it were, not by us.
        std::mem::forget(library);
        found.ok_or(missing)
    }

    /// Has the history written, and reads it; or says what PyTorch threw instead. To be called only while it keeps one.
    pub(super) fn read<R>(&self, reader: impl FnOnce(&[u8]) -> R) -> Result<R, String> {
        let mut text: Text = [ptr::null_mut(); 4];
        // SAFETY: there is a place to return to, which is as large as the largest of its strings.
        unsafe { catch::call(self.take, (&raw mut text).cast()) }?;
        let written = Written { text: &mut text, destroy: self.destroy };
        // SAFETY: it is a string of this layout until it is destroyed.
        let bytes = unsafe {
            let begin = written.text[0].cast::<u8>();
            let length = match self.layout {
                Layout::Cxx11 => written.text[1] as usize,
                Layout::Before => begin.cast::<usize>().sub(3).read(),
            };
            slice::from_raw_parts(begin, length)
        };
        Ok(reader(bytes))
    }
}

/// Destroys a string when it goes. It stays where it was made: a short one points into itself.
struct Written<'place> {
    text: &'place mut Text,
    destroy: unsafe extern "C" fn(*mut Text),
}

impl Drop for Written<'_> {
    fn drop(&mut self) {
        // SAFETY: it was made by the function that goes with this one.
        unsafe { (self.destroy)(self.text) };
    }
}
