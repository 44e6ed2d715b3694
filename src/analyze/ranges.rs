//! Steps and ranks as people type them: `10..20`, `0,2-5`.

use std::ops::RangeInclusive;

use stepscope_analyzer::{StepChoice, StepRange};
use stepscope_traces::{Rank, Run, Step};

/// Reads the steps to count: `all`, or a range.
pub(crate) fn choice(text: &str) -> Result<StepChoice, String> {
    if text == "all" { Ok(StepChoice::All) } else { steps(text).map(StepChoice::from) }
}

/// Reads a range of steps: `A..B`, `A..`, `..B` or `N`.
pub(crate) fn steps(text: &str) -> Result<StepRange, String> {
    let number =
        |part: &str| part.parse::<i32>().map_err(|_| format!("`{part}` is not a step; use A..B, A.., ..B or N"));
    let Some((from, to)) = text.split_once("..") else {
        let step = number(text)?;
        return Ok(StepRange { from: Some(Step(step)), to: step.checked_add(1).map(Step) });
    };
    let side = |part: &str| if part.is_empty() { Ok(None) } else { number(part).map(|step| Some(Step(step))) };
    match (side(from)?, side(to)?) {
        (Some(from), Some(to)) if from >= to => Err(format!("{from}..{to} contains no step")),
        (from, to) => Ok(StepRange { from, to }),
    }
}

/// Ranks that were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RankList(Vec<RangeInclusive<u32>>);

/// Reads ranks and ranges of ranks with commas between them.
pub(crate) fn ranks(text: &str) -> Result<RankList, String> {
    let number =
        |part: &str| part.parse::<u32>().map_err(|_| format!("`{part}` is not a rank; use a list such as 0,2-5"));
    let range = |part: &str| match part.split_once('-') {
        None => number(part).map(|rank| rank..=rank),
        Some((from, to)) => match (number(from)?, number(to)?) {
            (from, to) if from > to => Err(format!("{from}-{to} contains no rank")),
            (from, to) => Ok(from..=to),
        },
    };
    text.split(',').map(range).collect::<Result<_, _>>().map(RankList)
}

impl RankList {
    /// Whether a rank was asked for.
    pub(crate) fn has(&self, rank: u32) -> bool {
        self.0.iter().any(|ranks| ranks.contains(&rank))
    }

    /// The ranks, each once. Stops at the first one that the run does not have, so a long range costs nothing.
    pub(crate) fn among(&self, run: &Run) -> Vec<Rank> {
        let mut ranks = Vec::new();
        for rank in self.0.iter().cloned().flatten().map(Rank) {
            if !ranks.contains(&rank) {
                ranks.push(rank);
            }
            if run.rank(rank).is_none() {
                break;
            }
        }
        ranks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_type_steps_in_a_few_ways() {
        let range = |from: Option<i32>, to: Option<i32>| Ok(StepRange { from: from.map(Step), to: to.map(Step) });
        assert_eq!(steps("3..7"), range(Some(3), Some(7)));
        assert_eq!(steps("3.."), range(Some(3), None));
        assert_eq!(steps("..7"), range(None, Some(7)));
        assert_eq!(steps(".."), range(None, None));
        assert_eq!(steps("5"), range(Some(5), Some(6)));
        for text in ["", "x", "7..3", "3..3", "1..2..3", "1-3", "99999999999"] {
            assert!(steps(text).is_err(), "{text}");
        }
    }

    #[test]
    fn people_type_ranks_in_a_few_ways() {
        assert_eq!(ranks("0,2-5"), Ok(RankList(vec![0..=0, 2..=5])));
        for text in ["", ",", "a", "5-2", "-1", "1..3", "0,,1"] {
            assert!(ranks(text).is_err(), "{text}");
        }
    }
}
