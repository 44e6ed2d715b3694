//! What GPUs were sampled for: `--gpu-metrics-devices`.
//!
//! Metrics that Stepscope has a counter for become samples of the ranks on that GPU. All are percentages.

use std::collections::HashMap;

use super::super::sqlite::{Database, TableColumn};
use crate::{
    ids::{CounterId, NameId, Nanos},
    rank_data::RankData,
    tables::CounterSample,
    vocabulary::Counter,
};

pub(super) const METRICS: &str = "GPU_METRICS";
const NAMES: &str = "TARGET_INFO_GPU_METRICS";

/// How many metrics are told apart, and how many samples are kept.
const MOST_METRICS: usize = 1 << 16;
const MOST_SAMPLES: usize = 1 << 24;

/// The GPU of a kind of samples is in its lowest bits.
const GPU: i64 = 0xff;

/// The counters.
const COUNTERS: [&str; 4] = ["gpu.sm_activity", "gpu.tensor_activity", "gpu.sm_occupancy", "gpu.dram_activity"];

/// The samples of each GPU, by its number in the session.
#[derive(Default)]
pub(super) struct GpuMetrics {
    of_gpus: HashMap<i64, Vec<CounterSample>>,
    /// Samples for which there was no room.
    pub(super) dropped: u64,
}

impl GpuMetrics {
    /// Reads them.
    pub(super) fn of(database: &mut Database) -> GpuMetrics {
        let mut counters: HashMap<(i64, i64), CounterId> = HashMap::new();
        database.scan(NAMES, &["typeId", "metricId", "metricName"].map(TableColumn::Value), |row| {
            let counter = row.text(2).and_then(|name| counter(&name));
            let numbers = row.integer(0).zip(row.integer(1)).filter(|_| counters.len() < MOST_METRICS);
            counters.extend(numbers.zip(counter));
        });
        let mut metrics = GpuMetrics::default();
        let mut left = MOST_SAMPLES;
        database.scan(METRICS, &["typeId", "metricId", "timestamp", "value"].map(TableColumn::Value), |row| {
            let Some((kind, metric)) = row.integer(0).zip(row.integer(1)) else { return };
            let Some(counter) = counters.get(&(kind, metric)).copied() else { return };
            let Some((time, value)) = row.integer(2).zip(row.real(3)) else { return };
            if left == 0 {
                metrics.dropped += 1;
                return;
            }
            left -= 1;
            let sample = CounterSample { time_ns: Nanos(time), counter, value };
            metrics.of_gpus.entry(kind & GPU).or_default().push(sample);
        });
        metrics.of_gpus.values_mut().for_each(add_up);
        metrics
    }

    /// Whether there are samples of any GPU.
    pub(super) fn is_empty(&self) -> bool {
        self.of_gpus.is_empty()
    }

    /// Gives a rank the samples of its GPU, in a session that began then.
    pub(super) fn tell(&self, gpu: i64, began: i64, data: &mut RankData) {
        let Some(samples) = self.of_gpus.get(&gpu) else { return };
        data.names.extend((0..).zip(COUNTERS).map(|(index, name)| (NameId(u32::from(number(index).0)), name)));
        for sample in samples {
            let time_ns = Nanos(sample.time_ns.0.saturating_add(began));
            data.counters.push(&CounterSample { time_ns, ..*sample });
        }
    }
}

/// Reads and writes are told apart, and the counter is of both.
fn add_up(samples: &mut Vec<CounterSample>) {
    samples.sort_by_key(|sample| (sample.time_ns, sample.counter));
    samples.dedup_by(|next, one| {
        let is_same = (next.time_ns, next.counter) == (one.time_ns, one.counter);
        if is_same {
            one.value += next.value;
        }
        is_same
    });
}

/// The counter of a metric, by its name without its unit.
fn counter(metric: &str) -> Option<CounterId> {
    let (name, unit) = metric.split_once(" [").unwrap_or((metric, "Throughput %]"));
    let index = match name {
        "SMs Active" | "SM Active" => 0,
        "Tensor Active" | "Tensor Active / FP16 Active" => 1,
        "Compute Warps in Flight" | "Compute Warps In Flight" => 2,
        "DRAM Read Bandwidth" | "DRAM Write Bandwidth" => 3,
        _ => return None,
    };
    unit.starts_with("Throughput").then(|| number(index))
}

/// The number that a counter has behind those of every run.
fn number(index: u16) -> CounterId {
    CounterId(Counter::ALL.len() as u16 + index)
}
