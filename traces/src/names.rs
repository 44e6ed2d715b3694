//! The texts behind interned names.

use std::collections::BTreeMap;

use cpp_demangle::DemangleOptions;

use crate::ids::{CounterId, NameId};

/// Ids below this are counters, so that one table holds both and a counter's id fits in 16 bits.
pub const FIRST_NAME: NameId = NameId(4096);

/// The names of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    texts: BTreeMap<NameId, String>,
}

impl Names {
    /// The text of a name, unless it was lost.
    pub fn get(&self, id: NameId) -> Option<&str> {
        self.texts.get(&id).map(String::as_str)
    }

    /// The name of a counter, unless it was lost.
    pub fn counter(&self, id: CounterId) -> Option<&str> {
        self.get(NameId(u32::from(id.0)))
    }

    /// Every name.
    pub fn iter(&self) -> impl Iterator<Item = (NameId, &str)> {
        self.texts.iter().map(|(id, text)| (*id, text.as_str()))
    }

    pub(crate) fn extend<'a>(&mut self, names: impl Iterator<Item = (NameId, &'a str)>) {
        self.texts.extend(names.map(|(id, text)| (id, readable(text))));
    }
}

/// A name as people write it, without parameters: compilers mangle those of C++, and recording leaves them as they are.
fn readable(text: &str) -> String {
    let mangled = text.starts_with("_Z").then(|| cpp_demangle::Symbol::new(text).ok()).flatten();
    let options = DemangleOptions::new().no_params().no_return_type().recursion_limit(MOST_NESTED);
    mangled.and_then(|symbol| symbol.demangle_with_options(&options).ok()).unwrap_or_else(|| text.to_owned())
}

/// How deep a mangled name may nest: files may come from anyone.
const MOST_NESTED: u32 = 96;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_people_write_them() {
        for (name, readable_name) in [
            ("rms_norm", "rms_norm"),
            ("_Z3addIfEvPT_S1_", "add<float>"),
            ("_ZN2at6native6kernelILi4EEEv", "at::native::kernel<4>"),
            ("_Znot a name", "_Znot a name"),
            ("_Z", "_Z"),
        ] {
            assert_eq!(readable(name), readable_name);
        }
        let deep = format!("_Z{}", "N".repeat(100_000));
        assert_eq!(readable(&deep), deep);
    }
}
