//! How well PyTorch's memory was recorded.

use stepscope_plan::text;
use stepscope_traces::{Rank, RankInfo, TorchNotes};

use crate::folded::Folded;

/// The highest cost over all ranks, and why some ranks have no categories.
pub(crate) fn lines<'ranks>(ranks: impl IntoIterator<Item = &'ranks RankInfo>) -> Vec<String> {
    let mut recorded: Vec<TorchNotes> = Vec::new();
    let mut others: Vec<(Rank, String)> = Vec::new();
    for rank in ranks {
        match rank.collector.torch_memory.clone() {
            Some(notes) if notes.is_recorded() => recorded.push(TorchNotes {
                // What a rank that did not end well noted is of its first moments.
                time_ns: notes.time_ns.filter(|_| rank.written.is_some()),
                ..notes
            }),
            Some(notes) => others.push((rank.rank, notes.state.to_string())),
            None => {}
        }
    }
    let most = |figure: fn(&TorchNotes) -> Option<f64>| recorded.iter().filter_map(figure).reduce(f64::max);
    let cost = most(TorchNotes::cost).zip(most(TorchNotes::beside)).map(|(cost, beside)| {
        format!(
            "; recording it took {} of the program's time and {} of one CPU core",
            text::fine_percent(cost),
            text::fine_percent(beside)
        )
    });
    let gaps = recorded.iter().filter_map(|notes| notes.gaps).fold(0_u64, u64::saturating_add);
    let gaps = (gaps > 0).then(|| format!("; it has {}, because events came too fast", text::counted(gaps, "gap")));
    let by_category = (!recorded.is_empty()).then(|| {
        let what = format!("PyTorch memory by category on {}", text::ranks(recorded.len() as u64, None));
        [Some(what), cost, gaps].into_iter().flatten().collect::<String>()
    });
    by_category.into_iter().chain(Folded::of(others).lines()).collect()
}

#[cfg(test)]
mod tests {
    use stepscope_traces::{TorchMemory, Written};

    use super::*;

    fn rank(notes: Option<TorchNotes>) -> RankInfo {
        let mut info = RankInfo::of_this_process(Rank(0));
        info.collector.torch_memory = notes;
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
        let refused = |number| {
            let mut info = rank(Some(TorchNotes::of_state(TorchMemory::NotRecorded { why: "\x1b[31mno".into() })));
            info.rank = Rank(number);
            info
        };
        let said = lines(&[recorded(300, 0), recorded(410, 2), refused(2), refused(3), rank(None)]);
        let expected = [
            "PyTorch memory by category on 2 ranks; recording it took 0.041% of the program's time and 2.1% of one CPU core; \
             it has 2 gaps, because events came too fast",
            "ranks 2-3: not recorded: \u{fffd}[31mno",
        ];
        assert_eq!(said, expected);
        let mut killed = recorded(600_000, 0);
        killed.written = None;
        assert_eq!(lines(&[killed]), ["PyTorch memory by category on 1 rank"]);
    }
}
