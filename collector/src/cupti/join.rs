//! Finds the note of the launch that a record is of.

use std::collections::HashMap;

use super::notes::Note;

/// How many notes a generation has.
const GENERATION: usize = 32 << 10;

/// The notes of the latest launches.
///
/// A record comes soon after its launch, and one launch can have many records: a graph's. So a note is kept, used or not,
/// until so many others have come. The oldest generation then goes as a whole.
#[derive(Default)]
pub(crate) struct Launches {
    young: HashMap<u32, Note>,
    old: HashMap<u32, Note>,
}

impl Launches {
    pub(crate) fn add(&mut self, note: Note) {
        if self.young.len() >= GENERATION {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
        self.young.insert(note.correlation, note);
    }

    /// The note of a launch. What its guard says for a kernel, or else for a copy or fill, is told once.
    pub(crate) fn find(&mut self, correlation: u32, kernel: bool) -> Option<Note> {
        let note = self.young.get_mut(&correlation).or_else(|| self.old.get_mut(&correlation))?;
        let info = note.launched.info.take_if(|info| info.is_for(kernel));
        let mut found = *note;
        found.launched.info = info;
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use stepscope_traces::{SpanKind, Step};

    use super::*;
    use crate::{context::Context, lane::Launched, launch::LaunchInfo};

    fn note(correlation: u32, info: Option<LaunchInfo>) -> Note {
        let context = Context { step: Some(Step(correlation as i32)), ..Context::default() };
        Note { correlation, time: None, launched: Launched { recorder: 0, context, guard: None, info } }
    }

    #[test]
    fn every_kernel_of_a_launch_has_its_context_and_what_is_said_is_told_once() {
        let info = LaunchInfo { flops: Some(64), ..LaunchInfo::default() };
        let mut launches = Launches::default();
        launches.add(note(5, Some(info)));
        assert!(launches.find(6, true).is_none());
        let copy = launches.find(5, false).unwrap().launched;
        assert_eq!((copy.context.step, copy.info), (Some(Step(5)), None), "not meant for a copy");
        let kernels = [(); 3].map(|()| launches.find(5, true).unwrap().launched);
        assert_eq!(kernels.map(|kernel| kernel.info), [Some(info), None, None]);
        assert_eq!(kernels.map(|kernel| kernel.context.step), [Some(Step(5)); 3]);
    }

    #[test]
    fn what_is_said_of_a_copy_is_for_a_copy() {
        let info = LaunchInfo { kind: Some(SpanKind::Copy), ..LaunchInfo::default() };
        let mut launches = Launches::default();
        launches.add(note(5, Some(info)));
        assert_eq!(launches.find(5, true).unwrap().launched.info, None);
        assert_eq!(launches.find(5, false).unwrap().launched.info, Some(info));
    }

    #[test]
    fn the_oldest_go_and_the_latest_stay() {
        let mut launches = Launches::default();
        let last = 5 * GENERATION as u32;
        (0..=last).for_each(|correlation| launches.add(note(correlation, None)));
        assert!(launches.young.len() + launches.old.len() <= 2 * GENERATION);
        assert!((last - GENERATION as u32..=last).all(|correlation| launches.find(correlation, true).is_some()));
        assert!(launches.find(0, true).is_none());
    }
}
