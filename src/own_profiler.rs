//! That the program's own profiler ran, while nothing was recorded of the GPU.

use stepscope_analyzer::Paused;
use stepscope_plan::text;

/// How often, for how long, and what came of it.
pub(crate) fn words(paused: &Paused) -> String {
    let Paused { count, paused_ns, ranks_without_kernels } = paused;
    let times = text::counted(*count, "time");
    // A pause has a length once it is over.
    let long = text::duration(i64::try_from(*paused_ns).unwrap_or(i64::MAX));
    let long = if *paused_ns > 0 { format!(", {long} in all,") } else { String::new() };
    let paused = format!("recording paused {times}{long} while the program's own profiler ran");
    let ranks: Vec<String> = ranks_without_kernels.iter().map(ToString::to_string).collect();
    if ranks.is_empty() {
        return paused;
    }
    let on = format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, ranks.join(", "));
    format!(
        "{paused}; no kernels after the first time on {on}: the profiler keeps CUPTI, which before CUDA 12.5 serves no other"
    )
}

#[cfg(test)]
mod tests {
    use stepscope_analyzer::paused;
    use stepscope_traces::{Nanos, Pauses, Rank, RankInfo};

    use super::*;

    fn rank(number: u32, pauses: Option<Pauses>) -> RankInfo {
        let mut info = RankInfo::of_this_process(Rank(number));
        info.collector.other_profiler = pauses;
        info
    }

    #[test]
    fn pauses_are_said_with_what_is_missing_after_them() {
        let said = |ranks: &[RankInfo]| paused(ranks.iter()).as_ref().map(words);
        assert_eq!(said(&[rank(0, None)]), None);
        let short = Pauses { count: 1, nanos: 20_000_000, missing_since: None };
        let long = Pauses { count: 2, nanos: 3_120_000_000, missing_since: None };
        let paused = "recording paused 2 times, 3.12 s in all, while the program's own profiler ran";
        assert_eq!(said(&[rank(0, Some(short)), rank(1, Some(long)), rank(2, None)]).unwrap(), paused);
        let missing = Pauses { missing_since: Some(Nanos(5)), ..long };
        let said = said(&[rank(0, Some(short)), rank(1, Some(missing)), rank(3, Some(missing))]).unwrap();
        let why = "the profiler keeps CUPTI, which before CUDA 12.5 serves no other";
        assert_eq!(said, format!("{paused}; no kernels after the first time on ranks 1, 3: {why}"));
        let never_over = Pauses { nanos: 0, ..missing };
        let said = words(&stepscope_analyzer::paused([&rank(0, Some(never_over))].into_iter()).unwrap());
        assert!(said.starts_with("recording paused 2 times while the program's own profiler ran; "), "{said}");
    }
}
