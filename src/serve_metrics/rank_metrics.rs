//! Metrics of each rank: as many times as there are ranks, so only of jobs that have few.

use stepscope_analyzer::{Analysis, RankMemory};

use super::{
    family::{Family, Sample, Unit},
    job_metrics::{gauge, labelled},
    reading::Reading,
};

/// What is known of each rank.
pub(super) fn families(reading: &Reading) -> Vec<Family> {
    let Some(analysis) = reading.analysis.as_deref() else { return Vec::new() };
    let mut families = of_time(analysis);
    families.extend(of_memory(reading, analysis));
    families
}

fn of_time(analysis: &Analysis) -> Vec<Family> {
    let counted = || analysis.counted.iter().filter(|time| time.partition.span_ns > 0);
    let steps = counted().filter(|time| !analysis.window.whole && time.windows > 0);
    let steps = steps.map(|time| of(time.rank.0, time.mean(|time| time.span_ns) as f64 / 1e9));
    let parts = counted().flat_map(|time| {
        let rank = time.rank.0.to_string();
        let share = |(part, ns): (&'static str, i64)| {
            labelled(&[("rank", &*rank), ("part", part)], ns as f64 / time.partition.span_ns as f64)
        };
        time.partition.parts().map(share)
    });
    let per_step = analysis.step_time.as_ref().map(|time| 1e-9 / time.count.max(1) as f64);
    let waits = |ns: fn(&stepscope_analyzer::Straggler) -> i64| {
        let waits = analysis.stragglers.iter().zip(per_step.into_iter().cycle());
        waits.map(|(wait, per_step)| of(wait.rank.0, ns(wait) as f64 * per_step)).collect()
    };
    vec![
        Family {
            samples: steps.collect(),
            ..gauge("stepscope_rank_step_seconds", Unit::Seconds, "The rank's mean time of a counted step.", None)
        },
        Family {
            samples: parts.collect(),
            ..gauge(
                "stepscope_rank_time_ratio",
                Unit::Ratio,
                "Where the rank's time goes, over the counted steps; parts add up to 1.",
                None,
            )
        },
        Family {
            samples: waits(|wait| wait.wait_ns),
            ..gauge(
                "stepscope_rank_wait_seconds",
                Unit::Seconds,
                "How long the rank waits in collectives for others, per counted step.",
                None,
            )
        },
        Family {
            samples: waits(|wait| wait.caused_wait_ns),
            ..gauge(
                "stepscope_rank_caused_wait_seconds",
                Unit::Seconds,
                "How long others wait in collectives for the rank, per counted step.",
                None,
            )
        },
    ]
}

fn of_memory(reading: &Reading, analysis: &Analysis) -> Vec<Family> {
    let each = |value: &dyn Fn(&RankMemory) -> Option<u64>| {
        let known = reading.memory.iter().filter_map(|memory| Some(of(memory.rank.0, value(memory)? as f64)));
        known.collect::<Vec<Sample>>()
    };
    let now = reading.memory.iter().flat_map(|memory| {
        let rank = memory.rank.0.to_string();
        let of_category = memory.at_end.iter();
        of_category
            .map(move |(category, bytes)| labelled(&[("rank", &*rank), ("category", category.word())], *bytes as f64))
    });
    vec![
        Family {
            samples: now.collect(),
            ..gauge(
                "stepscope_rank_memory_bytes",
                Unit::Bytes,
                "What the rank has allocated after its newest event, by category.",
                None,
            )
        },
        Family {
            samples: each(&|memory| Some(memory.peak_bytes)),
            ..gauge(
                "stepscope_rank_memory_peak_bytes",
                Unit::Bytes,
                "The most that the rank has had allocated at once.",
                None,
            )
        },
        Family {
            samples: each(&|memory| memory.reserved_peak_bytes),
            ..gauge(
                "stepscope_rank_memory_reserved_peak_bytes",
                Unit::Bytes,
                "The most that the rank's allocator has taken from the device at once.",
                None,
            )
        },
        Family {
            samples: each(&|memory| analysis.headroom_bytes(memory)),
            ..gauge(
                "stepscope_rank_memory_headroom_bytes",
                Unit::Bytes,
                "Memory of the rank's device that was never used.",
                None,
            )
        },
    ]
}

fn of(rank: u32, value: f64) -> Sample {
    labelled(&[("rank", &*rank.to_string())], value)
}
