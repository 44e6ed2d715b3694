//! What is opened here is what other crates get.

#![allow(unsafe_code)]

use stepscope_collector::libraries::{self, Library};

#[test]
fn a_library_that_was_opened_is_there_for_those_who_know_only_its_plain_name() {
    match libraries::open(Library::Nvrtc) {
        Err(missing) => println!("skipped: {missing}"),
        Ok(found) => {
            let (mut major, mut minor) = (0, 0);
            // SAFETY: both numbers are there to be written to.
            let result = unsafe { cudarc::nvrtc::sys::nvrtcVersion(&mut major, &mut minor) };
            assert_eq!(result, cudarc::nvrtc::sys::nvrtcResult::NVRTC_SUCCESS);
            assert!(major >= 12, "{}", found.path.display());
            assert_eq!(libraries::open(Library::Nvrtc), Ok(found));
        }
    }
    // Whatever is on this machine: asking for it neither fails nor panics.
    for library in Library::ALL {
        match libraries::open(library) {
            Ok(found) => println!("{}: {}", library.name(), found.path.display()),
            Err(missing) => println!("{missing}; {}", missing.hint()),
        }
    }
}
