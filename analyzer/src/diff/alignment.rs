//! Which kernels of one run are which of another.
//!
//! Kernels of one name are the same. Where a name is new or gone, the kernels of one step of both runs are laid beside each
//! other, place by place (rank of the replica, phase, layer) in the order in which they ran; where one name stands in the
//! place of another, of the same family and asked for the same work (FLOPs, else bytes, where they are known), it is that
//! kernel under another name: another tile for the same matrix product, for example. A kernel may be renamed in a part of
//! its places only; then both names are compared together.

use std::collections::{BTreeMap, BTreeSet};

use similar::{Algorithm, DiffOp, capture_diff_slices};

use super::launches::{Launch, LaunchPlace};
use crate::figures::Class;

/// Kernels that are compared with each other: their names in both runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Aligned {
    pub(crate) base: BTreeSet<String>,
    pub(crate) other: BTreeSet<String>,
}

/// How often each name is launched in a step, in both runs.
pub(crate) type Calls = BTreeMap<String, [f64; 2]>;

/// Which names are new or gone: only then it matters what stands in whose place.
pub(crate) fn has_new_and_gone(calls: &Calls) -> bool {
    let on_one_side = |side: usize| calls.values().any(|calls| calls[side] > 0.0 && calls[1 - side] == 0.0);
    on_one_side(0) && on_one_side(1)
}

/// Puts names together that are the same kernel.
pub(crate) fn align(calls: &Calls, renamed: &BTreeSet<(String, String)>) -> Vec<Aligned> {
    let mut groups: Vec<Aligned> = Vec::new();
    for (name, [base, other]) in calls {
        let on = |calls: &f64| if *calls > 0.0 { BTreeSet::from([name.clone()]) } else { BTreeSet::new() };
        groups.push(Aligned { base: on(base), other: on(other) });
    }
    for (base, other) in renamed {
        let Some(from) = groups.iter().position(|group| group.base.contains(base)) else { continue };
        let moved = groups.swap_remove(from);
        match groups.iter_mut().find(|group| group.other.contains(other)) {
            Some(group) => {
                group.base.extend(moved.base);
                group.other.extend(moved.other);
            }
            None => groups.push(moved),
        }
    }
    groups
}

/// Pairs of names of which the second stands where the first did.
pub(crate) fn renamed(
    calls: &Calls,
    base: &BTreeMap<LaunchPlace, Vec<Launch>>,
    other: &BTreeMap<LaunchPlace, Vec<Launch>>,
) -> BTreeSet<(String, String)> {
    let changed =
        |launch: &Launch, side: usize| calls.get(&launch.name).is_some_and(|calls| calls[side] > calls[1 - side]);
    let mut pairs: BTreeMap<(String, String), usize> = BTreeMap::new();
    let (mut fell, mut rose) = (BTreeMap::<String, usize>::new(), BTreeMap::<String, usize>::new());
    for (place, base) in base {
        let Some(other) = other.get(place) else { continue };
        let names = |launches: &[Launch]| launches.iter().map(|launch| launch.name.clone()).collect::<Vec<_>>();
        for operation in capture_diff_slices(Algorithm::Myers, &names(base), &names(other)) {
            let DiffOp::Replace { old_index, old_len, new_index, new_len } = operation else { continue };
            let old: Vec<&Launch> =
                base[old_index..old_index + old_len].iter().filter(|launch| changed(launch, 0)).collect();
            let mut new: Vec<&Launch> =
                other[new_index..new_index + new_len].iter().filter(|launch| changed(launch, 1)).collect();
            old.iter().for_each(|launch| *fell.entry(launch.name.clone()).or_default() += 1);
            new.iter().for_each(|launch| *rose.entry(launch.name.clone()).or_default() += 1);
            for launch in old {
                if let Some(found) = new.iter().position(|other| is_same_work(launch, other)) {
                    let found = new.remove(found);
                    *pairs.entry((launch.name.clone(), found.name.clone())).or_default() += 1;
                }
            }
        }
    }
    // What happens in less than half of the places is chance.
    let is_usual = |((base, other), count): &(&(String, String), &usize)| {
        let least = fell.get(base).into_iter().chain(rose.get(other)).min().copied().unwrap_or(0);
        2 * **count >= least
    };
    pairs.iter().filter(is_usual).map(|(pair, _)| pair.clone()).collect()
}

/// Whether two kernels that stand in the same place do the same.
fn is_same_work(one: &Launch, other: &Launch) -> bool {
    let family = |launch: &Launch| Class::Compute.family(&launch.name);
    let known = |amount: Option<u64>| amount.filter(|amount| *amount > 0);
    let same = |one: Option<u64>, other: Option<u64>| known(one).zip(known(other)).map(|(one, other)| one == other);
    let work = same(one.flops, other.flops).or_else(|| same(one.bytes, other.bytes));
    family(one) == family(other) && work.unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launches(of: &[(&str, u64)]) -> BTreeMap<LaunchPlace, Vec<Launch>> {
        let launch = |(name, flops): &(&str, u64)| Launch { name: (*name).into(), flops: Some(*flops), bytes: None };
        BTreeMap::from([(LaunchPlace::ANY, of.iter().map(launch).collect())])
    }

    fn calls(of: &[(&str, [f64; 2])]) -> Calls {
        of.iter().map(|(name, calls)| ((*name).to_owned(), *calls)).collect()
    }

    fn pairs(calls: &Calls, base: &[(&str, u64)], other: &[(&str, u64)]) -> Vec<(String, String)> {
        renamed(calls, &launches(base), &launches(other)).into_iter().collect()
    }

    #[test]
    fn a_name_in_the_place_of_another_is_the_same_kernel_if_it_does_the_same() {
        let calls = calls(&[("gemm_a", [2.0, 1.0]), ("gemm_b", [0.0, 1.0]), ("norm", [1.0, 1.0])]);
        let base = [("gemm_a", 5), ("norm", 1), ("gemm_a", 7)];
        let found = pairs(&calls, &base, &[("gemm_a", 5), ("norm", 1), ("gemm_b", 7)]);
        assert_eq!(found, [("gemm_a".to_owned(), "gemm_b".to_owned())]);
        assert!(pairs(&calls, &base, &[("gemm_a", 5), ("norm", 1), ("gemm_b", 8)]).is_empty(), "it does more");
        assert!(pairs(&calls, &base, &[("gemm_a", 5), ("norm", 1), ("rope", 7)]).is_empty(), "it does something else");
    }

    #[test]
    fn a_kernel_that_is_renamed_in_a_part_of_its_places_is_compared_under_both_names() {
        let calls = calls(&[("a", [2.0, 1.0]), ("b", [0.0, 1.0]), ("c", [1.0, 1.0]), ("d", [1.0, 0.0])]);
        let groups = align(&calls, &BTreeSet::from([("a".to_owned(), "b".to_owned())]));
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let group = |base: &[&str], other: &[&str]| Aligned { base: set(base), other: set(other) };
        assert_eq!(groups.len(), 3);
        for expected in [group(&["a"], &["a", "b"]), group(&["c"], &["c"]), group(&["d"], &[])] {
            assert!(groups.contains(&expected), "{groups:?}");
        }
        assert!(!has_new_and_gone(&self::calls(&[("a", [1.0, 1.0]), ("b", [0.0, 1.0])])), "only new");
    }
}
