//! What the kernels of one rank come to, name by name.

use std::collections::HashMap;

use polars::prelude::*;
use stepscope_traces::{NameId, Names, Spans};

use crate::{
    error::AnalysisError,
    figures::{Class, Family},
    selection::StepRange,
};

/// Sums of a rank's kernels, by name.
#[derive(Default)]
pub(crate) struct KernelSums {
    sums: HashMap<(NameId, Class), KernelSum>,
}

/// What the kernels of one name come to.
#[derive(Clone, Copy, Default)]
pub(crate) struct KernelSum {
    pub(crate) count: u64,
    pub(crate) total_ns: i64,
    pub(crate) flops: f64,
    pub(crate) flops_ns: i64,
    pub(crate) bytes: f64,
    pub(crate) bytes_ns: i64,
    /// FLOPs and bytes where both are known.
    pub(crate) both: (f64, f64),
}

impl KernelSum {
    /// FLOP/s while those ran whose FLOPs are known.
    pub(crate) fn flops_per_second(&self) -> Option<f64> {
        (self.flops_ns > 0).then(|| self.flops / (self.flops_ns as f64 / 1e9))
    }

    /// Bytes a second while those ran whose bytes are known.
    pub(crate) fn bytes_per_second(&self) -> Option<f64> {
        (self.bytes_ns > 0).then(|| self.bytes / (self.bytes_ns as f64 / 1e9))
    }

    /// FLOPs for each byte, of those of which both are known.
    pub(crate) fn arithmetic_intensity(&self) -> Option<f64> {
        let (flops, bytes) = self.both;
        (bytes > 0.0).then(|| flops / bytes)
    }
}

impl KernelSums {
    pub(crate) fn take(&mut self, spans: &Spans, steps: StepRange) {
        for row in 0..spans.len() {
            let Some(class) = Class::of(spans.kind.get(row)) else { continue };
            if !steps.has(spans.step.get(row)) {
                continue;
            }
            let sum = self.sums.entry((spans.name.get(row), class)).or_default();
            let duration = spans.duration_ns.get(row).0.max(0);
            sum.count += 1;
            sum.total_ns += duration;
            let flops = spans.flops.get(row).filter(|flops| *flops > 0).map(|flops| flops as f64);
            // Of communication they are the message's, and its time is not its own.
            let bytes = spans.bytes.get(row).filter(|bytes| *bytes > 0 && class != Class::Communication);
            let bytes = bytes.map(|bytes| bytes as f64);
            if let Some(flops) = flops {
                sum.flops += flops;
                sum.flops_ns += duration;
            }
            if let Some(bytes) = bytes {
                sum.bytes += bytes;
                sum.bytes_ns += duration;
            }
            if let (Some(flops), Some(bytes)) = (flops, bytes) {
                sum.both = (sum.both.0 + flops, sum.both.1 + bytes);
            }
        }
    }

    /// How many kernels there were, those that communicate included.
    pub(crate) fn kernel_count(&self) -> u64 {
        self.sums.iter().filter(|((_, class), _)| *class != Class::Copy).map(|(_, sum)| sum.count).sum()
    }

    /// A row for each name.
    pub(crate) fn table(&self, names: &Names) -> Result<DataFrame, AnalysisError> {
        let rows: Vec<_> = self.sums.iter().collect();
        let name = |id: NameId| names.get(id).unwrap_or("unnamed");
        let family = |(id, class): (NameId, Class)| Family::of(class, name(id)).word();
        Ok(df!(
            "name" => rows.iter().map(|((id, _), _)| name(*id)).collect::<Vec<_>>(),
            "family" => rows.iter().map(|(key, _)| family(**key)).collect::<Vec<_>>(),
            "count" => rows.iter().map(|(_, sum)| sum.count).collect::<Vec<u64>>(),
            "total_ns" => rows.iter().map(|(_, sum)| sum.total_ns).collect::<Vec<i64>>(),
            "flops" => rows.iter().map(|(_, sum)| sum.flops).collect::<Vec<f64>>(),
            "flops_ns" => rows.iter().map(|(_, sum)| sum.flops_ns).collect::<Vec<i64>>(),
            "bytes" => rows.iter().map(|(_, sum)| sum.bytes).collect::<Vec<f64>>(),
            "bytes_ns" => rows.iter().map(|(_, sum)| sum.bytes_ns).collect::<Vec<i64>>(),
            "both_flops" => rows.iter().map(|(_, sum)| sum.both.0).collect::<Vec<f64>>(),
            "both_bytes" => rows.iter().map(|(_, sum)| sum.both.1).collect::<Vec<f64>>(),
        )?)
    }
}
