//! What a thread says of the work it is about to launch, since only it knows.

use std::{
    num::NonZeroU64,
    sync::{
        Mutex, Once,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed},
    },
};

use stepscope_traces::{Group, NameId, Nanos, Sequence, Span, SpanKind};

/// What a thread launches next. What is left out is what the device says of it.
///
/// A library may launch several kernels for it: one to prepare, one to compute, one to add up. All this is then said of
/// the one that runs longest, as far as they run on one stream; the others have where in the training they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchInfo {
    /// What it is. A copy or a fill is said of one of those; everything else of a kernel.
    pub kind: Option<SpanKind>,
    /// Its name.
    pub name: Option<NameId>,
    /// The bytes it moves; of a collective, the message's.
    pub bytes: Option<u64>,
    /// The floating-point operations it does.
    pub flops: Option<u64>,
    /// The process group of a collective, and the collective's number in it, if it has one.
    pub collective: Option<(Group, Option<Sequence>)>,
}

impl LaunchInfo {
    /// Whether it is meant for a launch of a kernel, or of a copy or a fill.
    pub(crate) fn is_for(&self, kernel: bool) -> bool {
        self.kind.is_some_and(SpanKind::is_copy) != kernel
    }

    /// Adds it to what the device says.
    pub(crate) fn apply(&self, span: &mut Span) {
        span.kind = self.kind.unwrap_or(span.kind);
        span.name = self.name.unwrap_or(span.name);
        span.bytes = self.bytes.or(span.bytes);
        span.flops = self.flops;
        span.group = self.collective.map(|(group, _)| group);
        span.sequence = self.collective.and_then(|(_, sequence)| sequence);
    }
}

/// The number of a guard, among all of a recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guard(NonZeroU64);

impl Guard {
    /// The one before the first of a thread. No thread comes to the numbers of another.
    pub(crate) fn before_first(thread: u32) -> Guard {
        Guard(NonZeroU64::MIN.saturating_add(u64::from(thread) << 40))
    }

    pub(crate) fn next(self) -> Guard {
        Guard(self.0.saturating_add(1))
    }
}

/// What a thread says of what it launches now.
#[derive(Clone, Copy, Default)]
pub(crate) struct OpenLaunch {
    pub(crate) guard: Option<Guard>,
    /// Until a launch it is meant for has carried it away.
    pub(crate) info: Option<LaunchInfo>,
}

/// A recording's launches, as seen when they run.
pub(crate) struct WatchedLaunches {
    /// Whether anybody does, so that it is worth saying what they are.
    pub(crate) watched: AtomicBool,
    /// How many nothing is known of: threads that record nothing made them, or what they said was lost.
    pub(crate) unannotated: AtomicU64,
    least_delay_ns: AtomicI64,
    /// Whether memory events are to be placed between launches, which tell their time.
    pub(crate) order_memory: AtomicBool,
    /// How many of those have the host's time all the same.
    pub(crate) memory_by_host: AtomicU64,
    /// Whether it was noted that some of them are told from others.
    pub(crate) origins_inferred: Once,
    /// Hands over the memory events that wait for their time, before the recording ends.
    pub(crate) before_end: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Default for WatchedLaunches {
    fn default() -> WatchedLaunches {
        WatchedLaunches {
            watched: AtomicBool::new(false),
            unannotated: AtomicU64::new(0),
            least_delay_ns: AtomicI64::new(i64::MAX),
            order_memory: AtomicBool::new(false),
            memory_by_host: AtomicU64::new(0),
            origins_inferred: Once::new(),
            before_end: Mutex::default(),
        }
    }
}

impl WatchedLaunches {
    /// Adds the time from a launch to its beginning on the device.
    pub(crate) fn add_delay(&self, delay: Nanos) {
        self.least_delay_ns.fetch_min(delay.0, Relaxed);
    }

    /// The least such time, if there was a launch: below zero, the clocks disagree by as much.
    pub(crate) fn least_delay(&self) -> Option<Nanos> {
        Some(self.least_delay_ns.load(Relaxed)).filter(|least| *least != i64::MAX).map(Nanos)
    }
}
