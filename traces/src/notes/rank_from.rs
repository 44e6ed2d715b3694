//! How a process that is recorded as it is found its number.

use super::field::NoteText;
use crate::ids::Rank;

const ORDER: &str = "order";
const TAKEN: (&str, &str) = ("order, since ", " was taken");

/// How a process that is recorded as it is found its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RankFrom {
    /// A launcher said it, in this variable.
    Variable(String),
    /// It was the next that was free.
    Order,
    /// It was the next that was free, since another process had the one that a launcher said.
    Taken {
        /// The launcher's variable.
        variable: String,
        /// The number it says.
        wanted: Rank,
    },
}

impl NoteText for RankFrom {
    fn read(text: &str) -> Option<RankFrom> {
        if text == ORDER {
            return Some(RankFrom::Order);
        }
        let Some(taken) = text.strip_prefix(TAKEN.0) else { return Some(RankFrom::Variable(text.to_owned())) };
        let (variable, wanted) = taken.strip_suffix(TAKEN.1)?.split_once('=')?;
        Some(RankFrom::Taken { variable: variable.to_owned(), wanted: Rank(wanted.parse().ok()?) })
    }

    fn write(&self) -> String {
        match self {
            RankFrom::Variable(variable) => variable.clone(),
            RankFrom::Order => ORDER.to_owned(),
            RankFrom::Taken { variable, wanted } => format!("{}{variable}={}{}", TAKEN.0, wanted.0, TAKEN.1),
        }
    }
}
