//! Kernels that were looked up before. All ranks of a job have the same ones, and a dashboard asks again and again.

use std::sync::{LazyLock, PoisonError, RwLock};

use hashbrown::HashMap;

use super::KernelKind;

/// So many names are remembered at most, and none that is longer. No program has as many; who makes some up fills no memory.
const MOST_NAMES: usize = 1 << 14;
const LONGEST: usize = 1 << 12;

static KNOWN: LazyLock<RwLock<HashMap<Box<str>, KernelKind>>> = LazyLock::new(RwLock::default);

/// What a name was found to be before, or what it is found to be now.
pub(super) fn known(name: &str, find: impl FnOnce() -> KernelKind) -> KernelKind {
    if let Some(kind) = KNOWN.read().unwrap_or_else(PoisonError::into_inner).get(name) {
        return *kind;
    }
    let kind = find();
    if name.len() <= LONGEST {
        let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() < MOST_NAMES {
            known.insert(name.into(), kind);
        }
    }
    kind
}
