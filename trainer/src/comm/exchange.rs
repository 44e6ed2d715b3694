//! What goes where in an all-to-all.

use std::ops::Range;

/// What a rank sends to each member and receives from each, as parts of its two tensors in elements. What one member sends is as
/// long as what the other receives of it; parts may be as many and as long as they like, and are put together in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// By member, this one included.
    pub sent: Vec<Vec<Range<usize>>>,
    /// By member, this one included.
    pub received: Vec<Vec<Range<usize>>>,
}

impl Exchange {
    /// The way back.
    pub fn reversed(&self) -> Exchange {
        Exchange { sent: self.received.clone(), received: self.sent.clone() }
    }
}
