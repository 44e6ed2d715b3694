//! How long ranks wait for each other.

use std::time::Duration;

/// How long ranks wait for each other before they give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For everyone to join.
    pub join: Duration,
    /// For any sign of life of a rank.
    pub silence: Duration,
    /// For the others to come to a collective.
    pub collective: Duration,
}

/// A rank of which nothing is heard for less than this may just be slow.
const SHORTEST_SILENCE: Duration = Duration::from_secs(5);

impl Patience {
    /// A bound for everything, half of it for a rank that is silent.
    pub fn of(bound: Duration) -> Patience {
        Patience { join: bound, silence: (bound / 2).max(SHORTEST_SILENCE), collective: bound }
    }
}

impl Default for Patience {
    fn default() -> Patience {
        Patience::of(Duration::from_secs(60))
    }
}
