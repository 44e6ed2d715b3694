//! Reads the pickles of plain data, and runs nothing.
//!
//! A pickle is a program for a small stack machine. This one knows the instructions that make numbers, texts, lists,
//! dicts and tuples; those that look up or call something are refused by name. Containers lie side by side in one
//! arena and name each other by number, so that what is shared stays shared, and neither depth nor a loop costs
//! anything. Lengths that a file claims are believed only as far as bytes follow.
//!
//! What repeats a million times is folded by the caller ([`Fold`]) as soon as it is whole, so that memory holds few
//! bytes of each.

mod instruction;
mod machine;
mod plain;
mod source;
mod store;
mod value;

pub(super) use machine::{Ending, read};
pub(super) use plain::PlainPickle;
pub(super) use value::{Fold, List, Objects, TextId, Value};

/// The versions of the format that have a mark of their own at the beginning.
const PROTOCOLS: std::ops::RangeInclusive<u8> = 2..=5;

/// Whether something that begins so may be a pickle.
pub(super) fn begins_like_a_pickle(head: &[u8]) -> bool {
    matches!(head, [instruction::PROTO, protocol, ..] if PROTOCOLS.contains(protocol))
}
