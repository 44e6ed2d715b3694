//! What was allocated at a moment, as a tree of the calls that led to it.

use std::{cmp::Reverse, collections::BTreeMap};

use stepscope_traces::MemoryCategory;

use super::call_sites::{CallSite, is_of_libraries};

/// Calls that led to less than one part in so many of all bytes are summed.
const LEAST: u64 = 500;
/// No more calls of a stack are told, the outermost of them.
const MOST_CALLS: usize = 64;

/// Memory by what it is for, and by the calls that led to it.
///
/// Of the calls, those of the program itself are told, the outermost first, and then the innermost, whoever's it is. What
/// PyTorch and Python call in between is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallTree<'a> {
    /// All of it.
    pub bytes: u64,
    /// How many blocks that is.
    pub blocks: u64,
    /// Each category that has something, the most first. They add up to all of it.
    pub categories: Vec<CategoryCalls<'a>>,
}

/// The memory of one category.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CategoryCalls<'a> {
    /// Which one.
    pub category: MemoryCategory,
    /// How much.
    pub bytes: u64,
    /// How many blocks that is.
    pub blocks: u64,
    /// The outermost calls, the most first. They add up to the category.
    pub calls: Vec<CallNode<'a>>,
}

/// What a call led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallNode<'a> {
    /// Which call.
    pub name: CallName<'a>,
    /// How much, with all that calls inside of it asked for.
    pub bytes: u64,
    /// How many blocks that is.
    pub blocks: u64,
    /// The calls inside of it, the most first. What they do not add up to, it asked for itself.
    pub inner: Vec<CallNode<'a>>,
}

/// Which call it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallName<'a> {
    /// A file with its line, and the function.
    Known(&'a str),
    /// Nobody knows who asked.
    Unknown,
    /// So many calls, each with too little to be told.
    Others(u64),
}

impl CallTree<'_> {
    /// The tree of some call sites; none where there are none.
    pub fn of(sites: &[CallSite]) -> Option<CallTree<'_>> {
        let mut categories: BTreeMap<MemoryCategory, Growing<'_>> = BTreeMap::new();
        for site in sites {
            let mut node = categories.entry(site.category).or_default();
            node.add(site);
            for name in names(&site.stack) {
                node = node.inner.entry(name).or_default();
                node.add(site);
            }
        }
        let bytes = categories.values().map(|category| category.bytes).sum();
        let blocks = categories.values().map(|category| category.blocks).sum();
        let mut categories: Vec<CategoryCalls<'_>> = categories
            .into_iter()
            .map(|(category, grown)| CategoryCalls {
                category,
                bytes: grown.bytes,
                blocks: grown.blocks,
                calls: grown.finished(bytes / LEAST),
            })
            .collect();
        categories.sort_by_key(|category| Reverse(category.bytes));
        (bytes > 0).then_some(CallTree { bytes, blocks, categories })
    }
}

/// The calls of a stack that are told, the outermost first.
fn names(stack: &[String]) -> Vec<CallName<'_>> {
    let is_told = |(place, call): &(usize, &String)| *place == 0 || !is_of_libraries(call);
    let told = stack.iter().enumerate().filter(is_told).map(|(_, call)| CallName::Known(call));
    let mut names: Vec<CallName<'_>> = told.collect();
    names.reverse();
    names.truncate(MOST_CALLS);
    if names.is_empty() {
        names.push(CallName::Unknown);
    }
    names
}

/// A part of the tree while it is made.
#[derive(Default)]
struct Growing<'a> {
    bytes: u64,
    blocks: u64,
    inner: BTreeMap<CallName<'a>, Growing<'a>>,
}

impl<'a> Growing<'a> {
    fn add(&mut self, site: &CallSite) {
        self.bytes += site.bytes;
        self.blocks += site.blocks;
    }

    /// The calls inside, the most first; those below a size as one.
    fn finished(self, least: u64) -> Vec<CallNode<'a>> {
        let (told, small): (Vec<_>, Vec<_>) = self.inner.into_iter().partition(|(_, inner)| inner.bytes >= least);
        let node = |(name, inner): (CallName<'a>, Growing<'a>)| CallNode {
            name,
            bytes: inner.bytes,
            blocks: inner.blocks,
            inner: inner.finished(least),
        };
        let mut nodes: Vec<CallNode<'_>> = told.into_iter().map(node).collect();
        nodes.sort_by_key(|node| Reverse(node.bytes));
        if !small.is_empty() {
            nodes.push(CallNode {
                name: CallName::Others(small.len() as u64),
                bytes: small.iter().map(|(_, inner)| inner.bytes).sum(),
                blocks: small.iter().map(|(_, inner)| inner.blocks).sum(),
                inner: Vec::new(),
            });
        }
        nodes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn site(category: MemoryCategory, bytes: u64, stack: &[&str]) -> CallSite {
        CallSite { category, blocks: 1, bytes, stack: stack.iter().map(|call| (*call).to_owned()).collect() }
    }

    #[test]
    fn calls_of_the_program_and_the_innermost_are_told() {
        use MemoryCategory::{Activations, Parameters};
        let module = "torch/nn/modules/module.py:1 _call_impl";
        let sites = [
            site(
                Activations,
                600,
                &["torch/nn/functional.py:5 linear", module, "model.py:9 forward", module, "train.py:2 main"],
            ),
            site(Activations, 300, &["model.py:9 forward", "train.py:2 main"]),
            site(Activations, 90, &["train.py:3 main"]),
            site(Activations, 1, &["a.py:1 a"]),
            site(Activations, 1, &["b.py:1 b"]),
            site(Parameters, 2000, &[]),
        ];
        let tree = CallTree::of(&sites).unwrap();
        assert_eq!((tree.bytes, tree.blocks), (2992, 6));
        let [parameters, activations] = &tree.categories[..] else { panic!("{tree:?}") };
        assert_eq!(
            (parameters.category, parameters.bytes, parameters.calls[0].name),
            (Parameters, 2000, CallName::Unknown)
        );
        assert_eq!((activations.category, activations.bytes), (Activations, 992));
        let named: Vec<_> = activations.calls.iter().map(|node| (node.name, node.bytes, node.blocks)).collect();
        let expected = [
            (CallName::Known("train.py:2 main"), 900, 2),
            (CallName::Known("train.py:3 main"), 90, 1),
            (CallName::Others(2), 2, 2),
        ];
        assert_eq!(named, expected);
        let [forward] = &activations.calls[0].inner[..] else { panic!("{activations:?}") };
        assert_eq!((forward.name, forward.bytes), (CallName::Known("model.py:9 forward"), 900));
        let [linear] = &forward.inner[..] else { panic!("{forward:?}") };
        assert_eq!((linear.name, linear.bytes), (CallName::Known("torch/nn/functional.py:5 linear"), 600));
        assert_eq!(CallTree::of(&[]), None);
    }

    proptest! {
        #[test]
        fn parts_add_up_to_the_byte(
            sites in prop::collection::vec((0..3_usize, 1..5000_u64, prop::collection::vec(0..4_u8, 0..6)), 1..60),
        ) {
            let sites: Vec<CallSite> = sites.iter().map(|(category, bytes, stack)| {
                let stack: Vec<String> = stack.iter().map(|call| format!("{call}.py:1 f")).collect();
                CallSite { category: MemoryCategory::ALL[*category], blocks: 2, bytes: *bytes, stack }
            }).collect();
            let tree = CallTree::of(&sites).unwrap();
            prop_assert_eq!(tree.bytes, sites.iter().map(|site| site.bytes).sum::<u64>());
            prop_assert_eq!(tree.blocks, 2 * sites.len() as u64);
            prop_assert_eq!(tree.categories.iter().map(|category| category.bytes).sum::<u64>(), tree.bytes);
            let sum = |nodes: &[CallNode<'_>]| nodes.iter().map(|node| node.bytes).sum::<u64>();
            let mut open: Vec<&CallNode<'_>> = Vec::new();
            for category in &tree.categories {
                prop_assert_eq!(sum(&category.calls), category.bytes);
                open.extend(&category.calls);
            }
            while let Some(node) = open.pop() {
                prop_assert!(sum(&node.inner) <= node.bytes);
                let least = tree.bytes / LEAST;
                prop_assert!(node.bytes >= least || matches!(node.name, CallName::Others(_)));
                open.extend(&node.inner);
            }
        }
    }
}
