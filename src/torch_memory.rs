//! How PyTorch's memory was recorded, in words.

use std::collections::BTreeMap;

use stepscope_plan::text;
use stepscope_traces::{RankInfo, TorchNotes};

/// What there is to say of the ranks of a run: what it cost at the most, and why there is none of some.
pub(crate) fn lines<'ranks>(ranks: impl IntoIterator<Item = &'ranks RankInfo>) -> Vec<String> {
    let mut recorded: Vec<TorchNotes> = Vec::new();
    let mut others: BTreeMap<String, u64> = BTreeMap::new();
    for rank in ranks {
        match TorchNotes::of(rank) {
            Some(notes) if notes.is_recorded() => recorded.push(TorchNotes {
                // What a rank that did not end well noted is of its first moments.
                time_ns: notes.time_ns.filter(|_| rank.written.is_some()),
                ..notes
            }),
            Some(notes) => *others.entry(notes.state).or_default() += 1,
            None => {}
        }
    }
    let of_ranks = |number: u64| text::ranks(number, None);
    let others = others.iter().map(|(why, number)| format!("{}: {}", of_ranks(*number), text::printable(why)));
    let most = |figure: fn(&TorchNotes) -> Option<f64>| recorded.iter().filter_map(figure).reduce(f64::max);
    let cost = most(TorchNotes::cost).zip(most(TorchNotes::beside)).map(|(cost, beside)| {
        format!(
            "; it took {} of the program's time, and {} of a processor beside it",
            text::fine_percent(cost),
            text::fine_percent(beside)
        )
    });
    let gaps: u64 = recorded.iter().filter_map(|notes| notes.gaps).sum();
    let gaps = (gaps > 0).then(|| format!("; {} in it, since events came too fast", text::counted(gaps, "gap")));
    let by_category = (!recorded.is_empty()).then(|| {
        let what = format!("PyTorch's by category, of {}", of_ranks(recorded.len() as u64));
        [Some(what), cost, gaps].into_iter().flatten().collect::<String>()
    });
    by_category.into_iter().chain(others).collect()
}

#[cfg(test)]
mod tests {
    use stepscope_traces::{Rank, Written};

    use super::*;

    fn rank(notes: Option<TorchNotes>) -> RankInfo {
        let mut info = RankInfo::of_this_process(Rank(0));
        let notes = notes.iter().flat_map(TorchNotes::notes);
        info.collector.extend(notes.map(|(key, note)| (key.to_owned(), note.into())));
        info.written = Some(Written::default());
        info
    }

    #[test]
    fn what_it_cost_and_what_is_missing_is_said() {
        assert_eq!(lines(&[rank(None)]), [""; 0]);
        let recorded = |cost, gaps| {
            let notes = TorchNotes::recorded("2.11.0");
            rank(Some(TorchNotes {
                cost_ns: Some(cost),
                beside_ns: Some(21_000),
                time_ns: Some(1_000_000),
                gaps: Some(gaps),
                ..notes
            }))
        };
        let refused = || rank(Some(TorchNotes::refused("not recorded: \x1b[31mno")));
        let said = lines(&[recorded(300, 0), recorded(410, 2), refused(), refused(), rank(None)]);
        let expected = [
            "PyTorch's by category, of 2 ranks; it took 0.041% of the program's time, and 2.1% of a processor beside it; \
             2 gaps in it, since events came too fast",
            "2 ranks: not recorded: \u{fffd}[31mno",
        ];
        assert_eq!(said, expected);
        let mut killed = recorded(600_000, 0);
        killed.written = None;
        assert_eq!(lines(&[killed]), ["PyTorch's by category, of 1 rank"]);
    }
}
