//! Finds the notes of the launch that a record is of.

use std::collections::HashMap;

use super::memory_order::Position;
use crate::{launch::LaunchInfo, launch_notes::LaunchNote};

/// How many notes a generation has.
const GENERATION: usize = 32 << 10;

/// The notes of the latest launches.
///
/// A record comes soon after its launch, and one launch can have many records: a graph's. So a note is kept, used or not,
/// until so many others have come. The oldest generation then goes as a whole.
#[derive(Default)]
pub(crate) struct Launches {
    launches: Latest<NotedLaunch>,
    operations: Latest<LaunchInfo>,
}

/// A launch, as the thread that made it left it.
#[derive(Clone, Copy)]
pub(crate) struct NotedLaunch {
    pub(crate) note: LaunchNote,
    /// Its place among the memory events of the thread, if they are to be in order of launches.
    pub(crate) position: Option<Position>,
}

impl Launches {
    pub(crate) fn add(&mut self, note: LaunchNote, position: Option<Position>) {
        self.launches.add(note.correlation, NotedLaunch { note, position });
    }

    /// Says what a kernel was that has been launched.
    pub(crate) fn describe(&mut self, correlation: u32, info: LaunchInfo) {
        self.operations.add(correlation, info);
    }

    /// What a kernel was, if somebody said so: told once.
    pub(crate) fn operation(&mut self, correlation: u32) -> Option<LaunchInfo> {
        self.operations.take(correlation)
    }

    /// A launch. What its guard says for a kernel, or else for a copy or fill, is told once.
    pub(crate) fn find(&mut self, correlation: u32, kernel: bool) -> Option<NotedLaunch> {
        let launch = self.launches.find(correlation)?;
        let info = launch.note.launched.info.take_if(|info| info.is_for(kernel));
        let mut found = *launch;
        found.note.launched.info = info;
        Some(found)
    }
}

/// What is known of the latest calls, by their numbers.
struct Latest<T> {
    young: HashMap<u32, T>,
    old: HashMap<u32, T>,
}

impl<T> Default for Latest<T> {
    fn default() -> Latest<T> {
        Latest { young: HashMap::new(), old: HashMap::new() }
    }
}

impl<T> Latest<T> {
    fn add(&mut self, correlation: u32, known: T) {
        if self.young.len() >= GENERATION {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
        self.young.insert(correlation, known);
    }

    fn find(&mut self, correlation: u32) -> Option<&mut T> {
        self.young.get_mut(&correlation).or_else(|| self.old.get_mut(&correlation))
    }

    fn take(&mut self, correlation: u32) -> Option<T> {
        self.young.remove(&correlation).or_else(|| self.old.remove(&correlation))
    }
}

#[cfg(test)]
mod tests {
    use stepscope_traces::{SpanKind, Step};

    use super::*;
    use crate::{context::Context, launch::LaunchInfo, thread_state::Launched};

    fn note(correlation: u32, info: Option<LaunchInfo>) -> LaunchNote {
        let context = Context { step: Some(Step(correlation as i32)), ..Context::default() };
        LaunchNote {
            correlation,
            time: None,
            launched: Launched { recorder: 0, context, guard: None, info, position: None },
        }
    }

    #[test]
    fn every_kernel_of_a_launch_has_its_context_and_what_is_said_is_told_once() {
        let info = LaunchInfo { flops: Some(64), ..LaunchInfo::default() };
        let mut launches = Launches::default();
        launches.add(note(5, Some(info)), None);
        assert!(launches.find(6, true).is_none());
        let copy = launches.find(5, false).unwrap().note.launched;
        assert_eq!((copy.context.step, copy.info), (Some(Step(5)), None), "not meant for a copy");
        let kernels = [(); 3].map(|()| launches.find(5, true).unwrap().note.launched);
        assert_eq!(kernels.map(|kernel| kernel.info), [Some(info), None, None]);
        assert_eq!(kernels.map(|kernel| kernel.context.step), [Some(Step(5)); 3]);
    }

    #[test]
    fn what_is_said_of_a_copy_is_for_a_copy() {
        let info = LaunchInfo { kind: Some(SpanKind::Copy), ..LaunchInfo::default() };
        let mut launches = Launches::default();
        launches.add(note(5, Some(info)), None);
        assert_eq!(launches.find(5, true).unwrap().note.launched.info, None);
        assert_eq!(launches.find(5, false).unwrap().note.launched.info, Some(info));
    }

    #[test]
    fn the_oldest_go_and_the_latest_stay() {
        let mut launches = Launches::default();
        let last = 5 * GENERATION as u32;
        (0..=last).for_each(|correlation| launches.add(note(correlation, None), None));
        assert!(launches.launches.young.len() + launches.launches.old.len() <= 2 * GENERATION);
        assert!((last - GENERATION as u32..=last).all(|correlation| launches.find(correlation, true).is_some()));
        assert!(launches.find(0, true).is_none());
    }
}
