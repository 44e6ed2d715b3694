//! What the program says of itself: its steps, their phases and tokens, and the model that it trains.
//!
//! The Python package `stepscope` calls these functions, from any thread, with PyTorch or without, and before CUDA begins or
//! after. What is said before there is a recording is kept as far as it holds on: the place and the model. A process that is
//! a fork of a recorded one is not heard.
//!
//! | file | idea |
//! |---|---|
//! | `annotations.rs` | which steps and phases are open, on each thread, and how many tokens a step has |
//! | `model.rs` | the model, told to each recording |

mod annotations;
mod model;

use std::{
    ffi::{c_char, c_int},
    panic::{UnwindSafe, catch_unwind},
    ptr, slice,
};

use stepscope_traces::{Counter, Step};

use crate::{process, recording::recorder};

pub(crate) use model::{find as find_model, shape, tell as tell_model};

/// Runs what the program asks for, unless it is a fork of the one that is recorded. No panic gets out.
fn for_program<R: Default>(action: impl FnOnce() -> R + UnwindSafe) -> R {
    process::be_quiet();
    process::settle();
    if process::is_fork() { R::default() } else { catch_unwind(action).unwrap_or_default() }
}

/// Opens a step on this thread. A number below zero means the next one.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn stepscope_program_begin_step(number: i64) {
    let number = (number >= 0).then(|| Step(i32::try_from(number).unwrap_or(i32::MAX)));
    for_program(|| annotations::begin_step(number));
}

/// Opens a phase of a step on this thread. A name that is none of ours is a range.
///
/// # Safety
///
/// The name has so many bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stepscope_program_begin_phase(name: *const c_char, length: usize) {
    // SAFETY: as the caller promises.
    let name = unsafe { text(name, length, annotations::LONGEST_NAME) };
    for_program(|| annotations::begin_phase(&name));
}

/// Closes the newest step or phase of this thread.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn stepscope_program_end() {
    for_program(annotations::end);
}

/// Says that the whole job trains on so many more tokens in this step.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn stepscope_program_tokens(count: f64) {
    for_program(|| annotations::add_tokens(count));
}

/// Says what the loss is.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn stepscope_program_loss(loss: f64) {
    for_program(|| recorder().into_iter().for_each(|recorder| recorder.count(Counter::Loss, loss)));
}

/// Says what is trained, in JSON, on sequences of so many tokens; none, if that is not known. Says 0 if it is understood,
/// and otherwise why not, in a place for a text of C's of so many bytes.
///
/// # Safety
///
/// The description has so many bytes, and so has the place.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stepscope_program_model(
    description: *const c_char,
    length: usize,
    sequence_length: u64,
    why: *mut c_char,
    room: usize,
) -> c_int {
    // SAFETY: as the caller promises.
    let description = unsafe { text(description, length, model::LONGEST) };
    let refusal = for_program(|| model::say(&description, sequence_length).err());
    if let Some(refusal) = &refusal {
        // SAFETY: as the caller promises.
        unsafe { put(refusal, why, room) };
    }
    c_int::from(refusal.is_some())
}

/// As much of a text as is read.
///
/// # Safety
///
/// It is null, or has so many bytes.
unsafe fn text(text: *const c_char, length: usize, longest: usize) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as the caller promises.
    let bytes = unsafe { slice::from_raw_parts(text.cast::<u8>(), length.min(longest)) };
    String::from_utf8_lossy(bytes).into_owned()
}

/// Writes as much of a text as there is room for, with a zero behind it.
///
/// # Safety
///
/// The place is null, or has so many bytes.
unsafe fn put(text: &str, place: *mut c_char, room: usize) {
    let Some(most) = room.checked_sub(1).filter(|_| !place.is_null()) else { return };
    let length = text.floor_char_boundary(most);
    // SAFETY: there is room for these bytes and the zero.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr(), place.cast::<u8>(), length);
        *place.add(length) = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use stepscope_traces::Phase;

    use super::*;
    use crate::place::{self, Source, StepAndPhase};

    fn begin_phase(name: &str) {
        // SAFETY: it has so many bytes.
        unsafe { stepscope_program_begin_phase(name.as_ptr().cast(), name.len()) };
    }

    fn place() -> (Option<i32>, Option<Phase>) {
        let StepAndPhase { step, phase } = place::said_by(Source::Program);
        (step.map(|step| step.0), phase)
    }

    /// Why a description is refused, in as much room.
    fn say(description: &str, room: usize) -> Option<String> {
        let mut why = vec![1; room];
        let (text, length) = (description.as_ptr().cast(), description.len());
        // SAFETY: both have so many bytes.
        let refused = unsafe { stepscope_program_model(text, length, 1024, why.as_mut_ptr().cast(), room) };
        let why: Vec<u8> = why.into_iter().map(|byte: c_char| byte as u8).collect();
        (refused != 0).then(|| {
            CStr::from_bytes_until_nul(&why).map_or_else(|_| String::new(), |why| why.to_string_lossy().into())
        })
    }

    #[test]
    fn the_program_is_where_it_says() {
        let _alone = place::alone_and_nowhere();
        stepscope_program_begin_step(5);
        assert_eq!(place(), (Some(5), None));
        begin_phase("forward");
        assert_eq!(place(), (Some(5), Some(Phase::Forward)));
        begin_phase("attention");
        stepscope_program_begin_step(9);
        assert_eq!(place(), (Some(5), Some(Phase::Forward)), "both are ranges inside of it");
        stepscope_program_tokens(100.0);
        (0..3).for_each(|_| stepscope_program_end());
        assert_eq!(place(), (Some(5), None));
        (0..3).for_each(|_| stepscope_program_end());
        assert_eq!(place(), (None, None));
        stepscope_program_begin_step(-1);
        assert_eq!(place(), (Some(6), None));
        stepscope_program_end();
        stepscope_program_begin_step(i64::MAX);
        assert_eq!(place(), (Some(i32::MAX), None), "beyond all numbers, and no harm");
        stepscope_program_end();
    }

    #[test]
    fn nonsense_is_harmless() {
        let _alone = place::alone_and_nowhere();
        // SAFETY: null is allowed.
        unsafe { stepscope_program_begin_phase(ptr::null(), 7) };
        stepscope_program_end();
        [f64::NAN, f64::INFINITY, -1.0].into_iter().for_each(|count| stepscope_program_tokens(count));
        (0..10_000).for_each(|_| begin_phase("deep"));
        (0..10_001).for_each(|_| stepscope_program_end());
        assert_eq!(place(), (None, None));
    }

    #[test]
    fn a_model_is_understood_or_refused_in_words() {
        let model = r#"{"layers": 2, "hidden": 64, "heads": 4, "ffn": 128, "vocabulary": 100}"#;
        assert_eq!(say(model, 100), None);
        let why = say("{}", 200).unwrap();
        assert!(why.ends_with("it has no model_type"), "{why}");
        assert_eq!(say("{}", 11).unwrap(), why[..10]);
        assert_eq!(say("{}", 0).unwrap(), "", "there is no room to say why");
        // SAFETY: null is allowed.
        let refused = unsafe { stepscope_program_model(ptr::null(), 5, 0, ptr::null_mut(), 5) };
        assert_eq!(refused, 1);
    }
}
