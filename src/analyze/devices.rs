//! Device counters in a report.

use std::fmt::Write;

use stepscope_analyzer::{Analysis, DeviceFigures};
use stepscope_plan::text;

use crate::render::table::{Table, Topic};

/// How a counter is written.
type Written = fn(f64) -> String;

/// Counters that a table shows, what each is called there, and how it is written.
const COLUMNS: [(&str, &str, Written); 8] = [
    ("gpu.tensor_activity", ">tensor cores", percent),
    ("gpu.sm_activity", ">SMs", percent),
    ("gpu.dram_activity", ">memory traffic", percent),
    ("gpu.power", ">power", text::watts),
    ("gpu.sm_clock_mhz", ">SM clock", text::megahertz),
    ("gpu.temperature", ">temperature", text::celsius),
    ("gpu.memory_used", ">memory used", bytes),
    ("pcie.rx", ">PCIe in", rate),
];

/// The device, and the counters of the first one during the counted steps.
pub(super) fn summary(analysis: &Analysis) -> Option<String> {
    let mut says = analysis.run.device.as_ref()?.name.clone();
    if let Some(ranks) = analysis.run.ranks_on_a_device {
        let _ = write!(says, ", shared by {ranks} ranks, so times do not reflect {ranks} GPUs");
    }
    if let Some(figures) = analysis.devices.first() {
        let measured = [("tensor cores", 0), ("SMs", 1), ("memory traffic", 2), ("power", 3)].map(|(word, column)| {
            let (counter, _, written) = COLUMNS[column];
            mean(figures, counter).map(|value| format!("{word} {}", written(value)))
        });
        let measured: Vec<String> = measured.into_iter().flatten().collect();
        if !measured.is_empty() {
            let _ = write!(says, "; measured: {}", measured.join(", "));
        }
    }
    Some(says)
}

/// A row for each device.
pub(super) fn table(analysis: &Analysis) -> Table {
    let there = |counter: &str| analysis.devices.iter().any(|device| device.counters.contains_key(counter));
    let columns: Vec<_> = COLUMNS.iter().filter(|(counter, ..)| there(counter)).collect();
    let row = |device: &DeviceFigures| {
        let cells = columns.iter().map(|(counter, _, written)| mean(device, counter).map_or("-".into(), written));
        std::iter::once(device.rank.to_string()).chain(cells).collect()
    };
    let counters = analysis.devices.iter().flat_map(|device| device.counters.values());
    let samples = counters.map(|figures| figures.samples).max().unwrap_or(0);
    Table {
        topic: Topic::Devices,
        title: format!("Devices (mean of {} during the counted steps)", text::counted(samples, "sample")),
        headers: std::iter::once(">rank").chain(columns.iter().map(|(_, header, _)| *header)).collect(),
        rows: analysis.devices.iter().map(row).collect(),
        detail: false,
    }
}

fn mean(device: &DeviceFigures, counter: &str) -> Option<f64> {
    device.counters.get(counter).map(|figures| figures.mean)
}

fn percent(value: f64) -> String {
    text::percent(value / 100.0)
}

fn bytes(value: f64) -> String {
    text::bytes(value.max(0.0) as u64)
}

fn rate(value: f64) -> String {
    text::bandwidth(value.max(0.0))
}
