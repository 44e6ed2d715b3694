//! What a thread says of the work it is about to launch, since only it knows.

use std::marker::PhantomData;

use stepscope_traces::{Group, NameId, Sequence, SpanKind};

use crate::{lane, shared::Shared};

/// What the next launch of a thread is. What is left out is what the device says of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchInfo {
    /// What it is. A copy or a fill is for the next of those; everything else is for the next kernel.
    pub kind: Option<SpanKind>,
    /// Its name.
    pub name: Option<NameId>,
    /// The bytes it moves; of a collective, the message's.
    pub bytes: Option<u64>,
    /// The floating-point operations it does.
    pub flops: Option<u64>,
    /// The process group of a collective, and the collective's number in it.
    pub collective: Option<(Group, Sequence)>,
}

impl LaunchInfo {
    /// Whether it is meant for a launch of a kernel, or of a copy or a fill.
    pub(crate) fn is_for(&self, kernel: bool) -> bool {
        self.kind.is_some_and(SpanKind::is_copy) != kernel
    }
}

/// Says what this thread launches next, until it is dropped.
#[must_use = "what is launched after this is dropped is not described by it"]
pub struct Launching<'a> {
    /// What was said before.
    outer: Option<(&'a Shared, Option<LaunchInfo>)>,
    /// Belongs to the thread it was opened on.
    thread: PhantomData<*const ()>,
}

impl<'a> Launching<'a> {
    #[inline]
    pub(crate) fn open(shared: Option<&'a Shared>, info: LaunchInfo) -> Launching<'a> {
        let outer = shared.and_then(|shared| Some((shared, lane::describe_launch(shared, Some(info))?)));
        Launching { outer, thread: PhantomData }
    }
}

impl Drop for Launching<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some((shared, outer)) = self.outer {
            lane::describe_launch(shared, outer);
        }
    }
}
