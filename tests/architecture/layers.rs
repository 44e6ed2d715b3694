//! The layers of a crate. An arrow goes from what uses to what is used, and never up.

use std::collections::{BTreeMap, BTreeSet};

use crate::modules::{Arrow, Modules};

/// The layers of a crate.
pub(crate) struct Layers {
    /// The folder of its `lib.rs`.
    pub(crate) source: &'static str,
    /// The module that is in layers; none of them, where it is the whole crate.
    pub(crate) within: &'static [&'static str],
    /// Modules right inside of it by layer, the lowest first. Those of one layer do not use each other.
    pub(crate) layers: &'static [&'static [&'static str]],
    /// Names that several types have all the same. There are to be no more of them.
    pub(crate) shared_names: &'static [&'static str],
}

impl Layers {
    /// What is wrong with a crate: arrows that go up or are hidden, circles, modules in no layer, types of one name.
    pub(crate) fn wrong(&self, modules: &Modules) -> Vec<String> {
        let arrows = modules.arrows();
        let mut wrong = self.not_in_both(modules);
        wrong.extend(arrows.iter().filter_map(|arrow| self.goes_up(arrow)));
        wrong.extend(modules.extensions().iter().filter_map(|arrow| self.is_hidden(arrow)));
        wrong.extend(self.shared(modules));
        for parent in modules.paths().filter(|path| self.has(path)) {
            wrong.extend(circle(parent, &arrows));
        }
        wrong
    }

    /// Whether a module is in layers, or the one that has them.
    fn has(&self, path: &[String]) -> bool {
        path.len() >= self.within.len() && path.iter().zip(self.within).all(|(one, other)| one == other)
    }

    /// The module in a layer that another one is or is in.
    fn in_layer<'a>(&self, path: &'a [String]) -> Option<&'a str> {
        path.get(self.within.len()).filter(|_| self.has(path)).map(String::as_str)
    }

    fn layer(&self, module: &str) -> Option<usize> {
        self.layers.iter().position(|layer| layer.contains(&module))
    }

    fn not_in_both(&self, modules: &Modules) -> Vec<String> {
        let within: Vec<String> = self.within.iter().map(|segment| (*segment).to_owned()).collect();
        let there = modules.children(&within);
        let listed: BTreeSet<&str> = self.layers.iter().copied().flatten().copied().collect();
        let unlisted = there.difference(&listed).map(|module| format!("{module} is in no layer"));
        unlisted.chain(listed.difference(&there).map(|module| format!("there is no {module}"))).collect()
    }

    /// What is wrong with an arrow. The root of a crate re-exports its public names, and may use everything; nothing may
    /// use what the root itself defines.
    fn goes_up(&self, Arrow { from, to, path }: &Arrow) -> Option<String> {
        let user = self.in_layer(from)?;
        if to.is_empty() {
            return Some(format!("{} uses the root: {path}", from.join("::")));
        }
        let used = self.in_layer(to)?;
        let is_below = self.layer(used).zip(self.layer(user)).is_none_or(|(used, user)| used < user);
        (user != used && !is_below).then(|| format!("{} uses {}: {path}", from.join("::"), to.join("::")))
    }

    /// A call of a method names no module. So the methods of a type must be in its own layer, or the arrow from the
    /// caller to them would not be seen.
    fn is_hidden(&self, Arrow { from, to, path }: &Arrow) -> Option<String> {
        let (user, used) = self.in_layer(from).zip(self.in_layer(to))?;
        (user != used).then(|| format!("{} gives methods to {path} of {}", from.join("::"), to.join("::")))
    }

    /// Names that several types have and should not, or should have and do not any more.
    fn shared(&self, modules: &Modules) -> Vec<String> {
        let types = modules.types();
        let places = |name: &str| -> Vec<String> {
            let places = types.get(name).into_iter().flatten().filter(|place| self.has(place));
            places.map(|place| place.join("::")).collect()
        };
        let unlisted = types.keys().filter(|name| !self.shared_names.contains(name)).filter_map(|name| {
            let places = places(name);
            (places.len() > 1).then(|| format!("{name} is several types: in {}", places.join(", ")))
        });
        let stale = self.shared_names.iter().filter(|name| places(name).len() < 2);
        unlisted.chain(stale.map(|name| format!("{name} is not several types any more"))).collect()
    }
}

/// Modules side by side that use each other in a circle, with all that is inside of them.
fn circle(parent: &[String], arrows: &[Arrow]) -> Option<String> {
    let mut uses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for Arrow { from, to, .. } in arrows {
        if !(from.starts_with(parent) && to.starts_with(parent)) {
            continue;
        }
        if let (Some(from), Some(to)) = (from.get(parent.len()), to.get(parent.len()))
            && from != to
        {
            uses.entry(from).or_default().insert(to);
        }
    }
    // Who uses nobody that is left is in no circle, and neither is whom nobody uses.
    loop {
        let used: BTreeSet<&str> = uses.values().flatten().copied().collect();
        let users: BTreeSet<&str> = uses.keys().copied().collect();
        let before = uses.values().map(BTreeSet::len).sum::<usize>();
        uses.retain(|user, _| used.contains(user));
        uses.values_mut().for_each(|used| used.retain(|module| users.contains(module)));
        uses.retain(|_, used| !used.is_empty());
        if before == uses.values().map(BTreeSet::len).sum::<usize>() {
            break;
        }
    }
    let parent = if parent.is_empty() { "the crate".into() } else { parent.join("::") };
    let uses: Vec<String> = uses
        .iter()
        .map(|(user, used)| format!("{user} uses {}", used.iter().copied().collect::<Vec<_>>().join(", ")))
        .collect();
    (!uses.is_empty()).then(|| format!("a circle in {parent}: {}", uses.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRATE: Layers =
        Layers { source: "", within: &[], layers: &[&["low"], &["middle"], &["high", "beside"]], shared_names: &[] };

    /// What is wrong with a crate that has these sources in place of its own.
    fn wrong(sources: &[(&str, &str)]) -> Vec<String> {
        wrong_in(&CRATE, sources)
    }

    fn wrong_in(layers: &Layers, sources: &[(&str, &str)]) -> Vec<String> {
        let empty = [
            ("lib.rs", "mod low; mod middle; mod high; mod beside; pub use high::Thing;"),
            ("low.rs", ""),
            ("middle/mod.rs", "mod part; mod other; pub(crate) use part::Part;"),
            ("middle/part.rs", "pub(crate) struct Part;"),
            ("middle/other.rs", ""),
            ("high.rs", "use crate::{low, middle::Part}; pub struct Thing(Part);"),
            ("beside.rs", ""),
        ];
        let source = |file: &str| {
            let all = sources.iter().chain(&empty);
            all.clone().find(|(name, _)| *name == file).map(|(_, text)| (*text).to_owned())
        };
        layers.wrong(&Modules::of(&source))
    }

    #[test]
    fn arrows_that_go_down_are_fine() {
        assert_eq!(wrong(&[]), [""; 0]);
    }

    #[test]
    fn an_arrow_that_goes_up_is_found_however_it_is_written() {
        for (source, written) in [
            ("use crate::high::Thing;", "crate::high::Thing"),
            ("use std::fmt; use crate::{low, high::{self, Thing}};", "crate::high"),
            ("use super::super::high::Thing as Other;", "super::super::high::Thing"),
            ("fn made() -> u32 { vec![crate::high::make()].len() }", "crate::high::make"),
            ("impl Part { fn at(&self) { if true { super::super::high::make() } } }", "super::super::high::make"),
            ("use crate::Thing;", "crate::Thing"),
            ("use crate::*; mod inside { fn made() { crate::high::make() } }", "crate::high::make"),
        ] {
            let found = wrong(&[("middle/part.rs", source)]);
            assert!(
                found.iter().any(|line| line.contains("uses high") && line.ends_with(written)),
                "{source}: {found:?}"
            );
        }
    }

    #[test]
    fn layers_beside_each_other_do_not_use_each_other() {
        let found = wrong(&[("beside.rs", "use crate::high::Thing;")]);
        assert_eq!(found, ["beside uses high: crate::high::Thing"]);
    }

    #[test]
    fn layers_may_be_those_of_one_module() {
        let middle = Layers { source: "", within: &["middle"], layers: &[&["part"], &["other"]], shared_names: &[] };
        let other = ("middle/other.rs", "use super::part::Part; use crate::high::Thing;");
        assert_eq!(wrong_in(&middle, &[other]), [""; 0], "others of the crate are none of its layers");
        let up = ("middle/part.rs", "pub(crate) struct Part(super::other::Other);");
        assert_eq!(wrong_in(&middle, &[up]), ["middle::part uses middle::other: super::other::Other"]);
    }

    #[test]
    fn tests_may_use_everything() {
        let tests = "
            #[cfg(test)] use crate::high::{Thing, make};
            #[cfg(test)] mod tests { use crate::high::Thing; }
            #[cfg(test)] impl Part { fn of(_: crate::high::Thing) {} }
            #[cfg(not(test))] use crate::low;";
        assert_eq!(wrong(&[("middle/part.rs", tests)]), [""; 0]);
        assert_eq!(wrong(&[("lib.rs", "mod low; mod middle; mod high; mod beside; #[cfg(test)] mod made;")]), [""; 0]);
    }

    #[test]
    fn a_circle_inside_a_layer_is_found() {
        let (part, other) = ("use super::other::Other; struct Part;", "use crate::middle::Part; struct Other;");
        let found = wrong(&[("middle/part.rs", part), ("middle/other.rs", other)]);
        assert_eq!(found, ["a circle in middle: other uses part; part uses other"]);
        let to_parent = "use super::PARTS;";
        assert_eq!(wrong(&[("middle/part.rs", to_parent)]), [""; 0], "a module and the one it is in are one thing");
    }

    #[test]
    fn methods_that_a_type_has_from_another_layer_are_found() {
        let methods = "use crate::middle::Part; impl Part { fn high(&self) {} } impl Clone for Part {}";
        assert_eq!(wrong(&[("high.rs", methods)]), ["high gives methods to Part of middle::part"]);
        let own = "struct Own<T>(T); impl<T: Clone> Own<T> where T: Copy { fn own(&self) {} }";
        assert_eq!(wrong(&[("high.rs", own)]), [""; 0]);
    }

    #[test]
    fn types_of_one_name_are_found() {
        let found = wrong(&[("low.rs", "enum Part { One }"), ("beside.rs", "fn of() { struct Inside; }")]);
        assert_eq!(found, ["Part is several types: in low, middle::part"]);
        let listed = Layers { shared_names: &["Part"], ..CRATE };
        assert_eq!(wrong_in(&listed, &[("low.rs", "enum Part { One }")]), [""; 0]);
        assert_eq!(wrong_in(&listed, &[]), ["Part is not several types any more"]);
    }

    #[test]
    fn every_module_is_in_a_layer_and_every_layer_is_there() {
        let found = wrong(&[("lib.rs", "mod low; mod middle; mod high; mod more;"), ("more.rs", "")]);
        assert_eq!(found, ["more is in no layer", "there is no beside"]);
    }
}
