//! What members of a collective have to agree on.

use serde::{Deserialize, Serialize};
use stepscope_traces::{Rank, SpanKind};

use super::Reduction;
use crate::{
    backend::{DType, Tensor},
    error::TrainError,
};

/// What a rank takes a collective for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Terms {
    pub(crate) operation: SpanKind,
    /// What a reduction makes, or from whom a broadcast comes.
    pub(crate) how: Option<How>,
    pub(crate) elements: usize,
    pub(crate) dtype: DType,
}

/// What there is to say besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum How {
    Reduce(Reduction),
    From(usize),
}

impl Terms {
    pub(crate) fn of(operation: SpanKind, how: Option<How>, offered: &Tensor) -> Terms {
        Terms { operation, how, elements: offered.elements(), dtype: offered.dtype() }
    }

    /// Says it when two ranks take it for different things; the same words on both.
    pub(crate) fn agree(one: (Rank, &Terms), other: (Rank, &Terms)) -> Result<(), TrainError> {
        if one.1 == other.1 {
            return Ok(());
        }
        let say = |(rank, terms): (Rank, &Terms)| {
            let Terms { operation, elements, dtype, .. } = terms;
            format!("rank {} has an {operation} of {elements} {dtype:?}", rank.0)
        };
        let (first, second) = if one.0 < other.0 { (one, other) } else { (other, one) };
        Err(TrainError::Disagreement(format!("{}, {}", say(first), say(second))))
    }
}

/// Says it when a message is not as long as what it is for.
pub(crate) fn check_length(from: Rank, sent: usize, expected: u64) -> Result<(), TrainError> {
    if sent as u64 == expected {
        return Ok(());
    }
    Err(TrainError::Disagreement(format!("rank {} sent {sent} bytes instead of {expected}", from.0)))
}
