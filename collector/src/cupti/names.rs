//! Names of kernels: looked up by where they lie in memory, and sorted into kinds once.

use std::{
    collections::HashMap,
    ffi::{CStr, CString},
};

use stepscope_traces::{KernelKind, NameId, SpanKind};

use super::demangle::Demangler;
use crate::shared::Shared;

/// When there are more, all are looked up anew.
const MOST_NAMES: usize = 8192;

/// Names that have been seen, for each recorder.
#[derive(Default)]
pub(crate) struct KernelNames {
    demangler: Option<Demangler>,
    seen: HashMap<(usize, u64), KnownKernel>,
}

struct KnownKernel {
    text: CString,
    id: NameId,
    kind: SpanKind,
}

impl KernelNames {
    /// Whether a kernel of this name has been seen.
    pub(crate) fn has(&self, shared: &Shared, name: &CStr) -> bool {
        self.seen.get(&(name.as_ptr() as usize, shared.id)).is_some_and(|seen| seen.text.as_c_str() == name)
    }

    /// The id of a name, as people write it, and what a kernel of that name does.
    pub(crate) fn look_up(&mut self, shared: &Shared, name: &CStr) -> (NameId, SpanKind) {
        let key = (name.as_ptr() as usize, shared.id);
        // Where a module was unloaded, another one may have its name now.
        if let Some(seen) = self.seen.get(&key).filter(|seen| seen.text.as_c_str() == name) {
            return (seen.id, seen.kind);
        }
        if self.seen.len() >= MOST_NAMES {
            self.seen.clear();
        }
        let text = self.demangler.get_or_insert_with(Demangler::find).demangle(name);
        let (id, kind) = (shared.names().name(&text), KernelKind::communication(&text).unwrap_or(SpanKind::Kernel));
        self.seen.insert(key, KnownKernel { text: name.to_owned(), id, kind });
        (id, kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn a_place_that_has_another_name_now_is_noticed() {
        let shared = Shared::new(Settings::default());
        let mut names = KernelNames::default();
        let mut place = *b"first\0";
        let mut look_up = |place: &[u8]| names.look_up(&shared, CStr::from_bytes_with_nul(place).unwrap()).0;
        let first = look_up(&place);
        assert_eq!(look_up(&place), first);
        place[..5].copy_from_slice(b"other");
        let other = look_up(&place);
        assert_ne!(other, first);
        let known = ["first", "other"].map(|name| shared.names().name(name));
        assert_eq!(known, [first, other]);
    }
}
