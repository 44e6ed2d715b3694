//! What is opened here is what other crates get.

#![allow(unsafe_code)]

use stepscope_collector::libraries::{self, Library};

/// Says that a test did nothing.
#[path = "../../tests/support/skipped.rs"]
mod skipped;

use skipped::skipped;

#[test]
fn a_library_that_was_opened_is_there_for_those_who_know_only_its_plain_name() {
    match libraries::open(Library::Nvrtc) {
        Err(missing) => skipped("cuda-libraries", &missing),
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
        let opened = libraries::open(library);
        assert_eq!(libraries::open(library), opened, "it is looked for once");
        match opened {
            Ok(found) => assert!(found.path.file_name().is_some(), "{found:?}"),
            Err(missing) => assert!(missing.library == library && !missing.hint().is_empty(), "{missing}"),
        }
    }
}
