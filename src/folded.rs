//! Messages of many ranks in a few lines: ranks with the same message share one.

use std::collections::BTreeMap;

use stepscope_traces::Rank;

use stepscope_plan::text;

/// At most this many lines.
const MOST_LINES: usize = 5;

/// What several ranks say.
pub(crate) struct RanksMessage {
    pub(crate) ranks: Vec<Rank>,
    pub(crate) what: String,
}

/// What ranks say, each thing once: what most say comes first. What is left out, few ranks say.
pub(crate) struct Folded {
    pub(crate) said: Vec<RanksMessage>,
    /// How many ranks say something else.
    pub(crate) others: usize,
}

impl Folded {
    pub(crate) fn of(said: impl IntoIterator<Item = (Rank, String)>) -> Folded {
        let mut by_what: BTreeMap<String, Vec<Rank>> = BTreeMap::new();
        for (rank, what) in said {
            by_what.entry(what).or_default().push(rank);
        }
        let mut said: Vec<RanksMessage> =
            by_what.into_iter().map(|(what, ranks)| RanksMessage { ranks, what }).collect();
        said.iter_mut().for_each(|said| said.ranks.sort());
        said.sort_by_key(|said| (std::cmp::Reverse(said.ranks.len()), said.ranks.first().copied()));
        let others = said.iter().skip(MOST_LINES).map(|said| said.ranks.len()).sum();
        said.truncate(MOST_LINES);
        Folded { said, others }
    }

    /// A line for each, and one for what is left out.
    pub(crate) fn lines(&self) -> Vec<String> {
        let each =
            self.said.iter().map(|RanksMessage { ranks, what }| format!("{}: {}", named(ranks), text::printable(what)));
        let others =
            (self.others > 0).then(|| format!("{}: other reasons", text::counted(self.others as u64, "more rank")));
        each.chain(others).collect()
    }
}

/// Ranks by their numbers, those beside each other as a range.
pub(crate) fn named(ranks: &[Rank]) -> String {
    text::named_ranks(&ranks.iter().map(|rank| rank.0).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(said: impl Iterator<Item = (u32, String)>) -> Vec<String> {
        Folded::of(said.map(|(rank, what)| (Rank(rank), what))).lines()
    }

    #[test]
    fn what_many_say_is_one_line() {
        let said = |rank: u32| match rank {
            3 | 5 => Some("out of memory"),
            10..=259 => Some("no kernels: CUPTI is missing"),
            _ => None,
        };
        let said = (0..500).filter_map(|rank| Some((rank, said(rank)?.to_owned())));
        assert_eq!(lines(said), ["ranks 10-259: no kernels: CUPTI is missing", "ranks 3, 5: out of memory"]);
        assert_eq!(lines([(7, "it\x1bended".to_owned())].into_iter()), ["rank 7: it\u{fffd}ended"]);
        assert_eq!(lines(std::iter::empty()), [""; 0]);
    }

    #[test]
    fn however_much_is_said_there_are_few_lines() {
        let all_differ = lines((0..500).map(|rank| (rank, format!("process {rank} was killed"))));
        assert_eq!(all_differ.len(), MOST_LINES + 1);
        assert_eq!(all_differ[MOST_LINES], "495 more ranks: other reasons");
        let every_other = lines((0..500).map(|rank| (2 * rank, "killed".to_owned())));
        assert_eq!(every_other, ["ranks 0, 2, 4, 6 and 496 more: killed"]);
        assert_eq!(lines([(u32::MAX, "killed".to_owned())].into_iter()), [format!("rank {}: killed", u32::MAX)]);
    }
}
