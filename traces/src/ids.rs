//! Typed identities: what would otherwise be bare integers passed in the wrong order.

use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

use crate::columns::{Cell, Number};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($number:ty) $(is $noise:ident)?;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $number);

        impl Cell for $name {
            type Number = $number;

            fn data_type() -> arrow_schema::DataType {
                <$number as Number>::TYPE
            }

            fn is_noise() -> bool {
                false $(|| stringify!($noise) == "noise")?
            }

            fn to_number(self) -> $number {
                self.0
            }

            fn from_number(number: $number) -> Option<Self> {
                Some(Self(number))
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

ids! {
    /// A point in time, or a length of time, in nanoseconds of one rank's clock.
    Nanos(i64) is noise;
    /// A process of the training job, as `RANK` numbers it.
    Rank(u32);
    /// An optimizer step.
    Step(i32);
    /// A micro-batch within a step.
    MicroBatch(i32);
    /// A pipeline stage.
    Stage(i16);
    /// A layer of the model.
    Layer(i32);
    /// A queue of work that runs in order: a CUDA stream, or a worker thread of the CPU backend.
    Stream(u32);
    /// A process group.
    Group(u32);
    /// A memory pool of an allocator.
    Pool(u32);
    /// Ties a launch to what it launched.
    Correlation(u64) is noise;
    /// The number of a collective in its group.
    Sequence(u64);
    /// An interned name: its text is in the rank's strings table.
    NameId(u32);
    /// An interned counter name: its text is in the rank's strings table.
    CounterId(u16);
}

impl Group {
    /// A group without a number, named by a hash that all of its ranks share; distinct from counted numbers.
    pub fn hashed(hash: u32) -> Group {
        Group(hash | 1 << 31)
    }
}

/// The number of a message, which is no other's in its group, and the same on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageNumber {
    /// Which of the messages between these two.
    pub count: u32,
    /// The rank that sends it, by its place in the group.
    pub from: u16,
    /// The rank that receives it.
    pub to: u16,
}

impl From<MessageNumber> for Sequence {
    fn from(MessageNumber { count, from, to }: MessageNumber) -> Sequence {
        Sequence(u64::from(count) << 32 | u64::from(from) << 16 | u64::from(to))
    }
}

impl From<Sequence> for MessageNumber {
    fn from(Sequence(number): Sequence) -> MessageNumber {
        MessageNumber { count: (number >> 32) as u32, from: (number >> 16) as u16, to: number as u16 }
    }
}

impl Nanos {
    /// One second.
    pub const SECOND: Nanos = Nanos(1_000_000_000);

    /// This time in seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Whether what begins at this time and takes so long ends at a time that can be told. Nothing begins at the last time
    /// there is: no window holds it.
    pub(crate) fn has_end(self, duration: Nanos) -> bool {
        self.0 < i64::MAX && self.0.checked_add(duration.0.max(0)).is_some()
    }
}

impl Add for Nanos {
    type Output = Nanos;

    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl Sub for Nanos {
    type Output = Nanos;

    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
}
