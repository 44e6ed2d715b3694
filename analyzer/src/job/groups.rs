//! What ranks tell of the groups of their run: by what they say of them, and by how they use them.

use stepscope_traces::{GroupInfo, RunInfo, groups_told};

use crate::{job::group_use::groups_by_use, rank::result::RankResult};

/// The run with what its ranks tell of its groups, if that is more than it says itself.
pub(crate) fn described(info: &RunInfo, ranks: &[RankResult]) -> Option<RunInfo> {
    let said = said(info, ranks);
    let with = |groups: Vec<GroupInfo>| RunInfo { groups, ..info.clone() };
    match said {
        Some(groups) => {
            let said = with(groups);
            Some(groups_by_use(&said, ranks).map_or(said, with))
        }
        None => groups_by_use(info, ranks).map(with),
    }
}

/// How many ranks a run has, of which so many are there: as it says, or as many as its largest group has.
pub(crate) fn world_size(info: &RunInfo, there: usize, ranks: &[RankResult]) -> u32 {
    let largest = ranks.iter().flat_map(|rank| &rank.info.groups).map(|own| own.size).max();
    info.world_size.unwrap_or_else(|| largest.unwrap_or(0).max(u32::try_from(there).unwrap_or(u32::MAX)))
}

/// Whether what is known of the groups of a run is more than it and its ranks say.
pub(crate) fn are_inferred(info: &RunInfo, ranks: &[RankResult], known: &[GroupInfo]) -> bool {
    said(info, ranks).as_ref().unwrap_or(&info.groups) != known
}

/// The groups of a run with those that only its ranks name, if there are any.
fn said(info: &RunInfo, ranks: &[RankResult]) -> Option<Vec<GroupInfo>> {
    let is_new = |group: &GroupInfo| info.groups.iter().all(|known| known.group != group.group);
    let told = groups_told(ranks.iter().map(|rank| &rank.info), info.world_size);
    let news: Vec<GroupInfo> = told.into_iter().filter(is_new).collect();
    (!news.is_empty()).then(|| [info.groups.as_slice(), &news].concat())
}
