//! The rank that the name of a file tells.

use std::path::Path;

use crate::ids::Rank;

/// The number behind `rank` in the name of a file.
pub(super) fn rank_in_name(path: &Path) -> Option<Rank> {
    let name = path.file_name()?.to_string_lossy().to_lowercase();
    let behind = name.rsplit_once("rank")?.1.trim_start_matches(['-', '_', '.', ' ', '=']);
    let digits = behind.find(|letter: char| !letter.is_ascii_digit()).map_or(behind, |end| &behind[..end]);
    digits.parse().ok().map(Rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_in_the_names_of_files() {
        for (name, rank) in [
            ("rank0.json.gz", Some(0)),
            ("trace_rank-12.json", Some(12)),
            ("Rank_3.pt.trace.json", Some(3)),
            ("job-rank7-step10.json", Some(7)),
            ("ddp-rank0.pickle", Some(0)),
            ("trace.json", None),
            ("ranking.json", None),
            ("rank99999999999.json", None),
        ] {
            assert_eq!(rank_in_name(Path::new(name)), rank.map(Rank), "{name}");
        }
    }
}
