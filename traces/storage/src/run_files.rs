//! Which files of a run matter to whoever reads it. Checkpoints, locks and logs lie beside them.

/// How a file of a run comes to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// It is appended to.
    Appended,
    /// It is whole at every moment, and another one takes its place.
    Replaced,
}

/// How a file of a run grows; none of what no reader needs.
pub(crate) fn growth(path: &str) -> Option<Growth> {
    if path.split('/').any(|folder| folder == "checkpoints") {
        return None;
    }
    if is_summary(path) {
        return Some(Growth::Replaced);
    }
    match path.rsplit_once('.')?.1 {
        "arrows" => Some(Growth::Appended),
        "json" | "jsonl" => Some(Growth::Replaced),
        _ => None,
    }
}

/// Whether a file is what a rank was reduced to.
fn is_summary(path: &str) -> bool {
    path.rsplit('/').next() == Some("summary.bin")
}

/// Whether a file is in the ring of a black box, from which old time goes.
pub(crate) fn is_in_ring(path: &str) -> bool {
    path.split('/').any(|folder| folder == "ring")
}

/// The rank whose directory a file is in.
pub(crate) fn rank_of(path: &str) -> Option<u32> {
    path.split('/').find_map(|folder| folder.strip_prefix("rank-")?.parse().ok())
}

/// The segment that a file is in, of a run that jobs continue, and where it is in there.
pub(crate) fn segment_of(path: &str) -> Option<(u32, &str)> {
    let (number, inside) = path.strip_prefix("segments/")?.split_once('/')?;
    Some((number.parse().ok()?, inside))
}

/// The folder of a segment.
pub(crate) fn segment_folder(number: u32) -> String {
    format!("segments/{number}/")
}

/// Whether reading some ranks of a run needs a file. What was kept of incidents are runs of their own.
pub(crate) fn is_needed(path: &str, is_chosen: &dyn Fn(u32) -> bool) -> bool {
    let Some(growth) = growth(path) else { return false };
    let is_small = growth == Growth::Replaced && !is_summary(path);
    let is_of_incident = path.starts_with("incidents/") && rank_of(path).is_some();
    !is_of_incident && (is_small || rank_of(path).is_none_or(is_chosen))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_need_a_part_of_a_run() {
        let needed = |path: &str| is_needed(path, &|rank| rank == 0);
        for path in ["run.json", "rank-00000/spans.arrows", "rank-00001/rank.json", "incidents/0001-hang/incident.json"]
        {
            assert!(needed(path), "{path}");
        }
        assert!(needed("rank-00000/summary.bin") && growth("rank-00000/summary.bin") == Some(Growth::Replaced));
        for path in [
            "rank-00001/summary.bin",
            "rank-00001/spans.arrows",
            "incidents/0001-hang/rank-00000/spans.arrows",
            "checkpoints/step-5/meta.json",
            "sampler-h-1.lock",
            "train.log",
        ] {
            assert!(!needed(path), "{path}");
        }
        assert_eq!(segment_of("segments/12/run.json"), Some((12, "run.json")));
        assert_eq!(segment_of("segments/x/run.json"), None);
    }
}
