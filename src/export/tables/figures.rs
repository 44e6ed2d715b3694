//! Figures of the analysis, as tables. Each has the names and the values of `analyze --format json`, in which it is a list or
//! an object; nothing is computed here.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;
use serde_json::{Map, Value, json};
use stepscope_analyzer::{Analysis, StepFigures};
use stepscope_traces::{Rank, Run, Step};

use super::{field::Field, partition::Partition, table_file::TableFile};

/// A row: figures by name.
type Row = Map<String, Value>;

/// Columns: what each is called, and what is in it.
type Columns = Vec<(&'static str, Kind)>;

/// What is in a column.
#[derive(Clone, Copy)]
enum Kind {
    Integer,
    Number,
    Truth,
    Text,
}

use Kind::{Integer, Number, Text, Truth};

/// Where time goes.
const PARTITION: [(&str, Kind); 9] = [
    ("span_ns", Integer),
    ("compute_ns", Integer),
    ("communication_ns", Integer),
    ("overlapped_communication_ns", Integer),
    ("exposed_communication_ns", Integer),
    ("copy_ns", Integer),
    ("exposed_copy_ns", Integer),
    ("idle_ns", Integer),
    ("overlap", Number),
];

/// How fast kernels are.
const RATES: [(&str, Kind); 6] = [
    ("flops_per_second", Number),
    ("peak_share", Number),
    ("bytes_per_second", Number),
    ("arithmetic_intensity", Number),
    ("bound", Text),
    ("roof_share", Number),
];

/// A table of the whole run.
struct Table {
    name: &'static str,
    columns: Columns,
    rows: Vec<Row>,
}

/// Writes the tables of the whole run.
pub(super) fn write(run: &Run, analysis: &Analysis, partition: &Partition<'_>) -> Result<()> {
    let tables = [
        runs(run, analysis),
        counted(analysis),
        axes(analysis),
        phases(analysis),
        idle(analysis),
        kernels(analysis),
        collectives(analysis),
        stragglers(analysis),
        peaks(analysis),
        peak_categories(analysis),
        findings(analysis),
    ];
    tables.iter().try_for_each(|Table { name, columns, rows }| write_table(name, columns, rows, partition))
}

/// The steps of each rank.
pub(super) struct Steps<'a> {
    of_ranks: BTreeMap<Rank, Vec<&'a StepFigures>>,
    analysis: &'a Analysis,
}

impl<'a> Steps<'a> {
    pub(super) fn of(analysis: &'a Analysis) -> Steps<'a> {
        let mut of_ranks: BTreeMap<Rank, Vec<&StepFigures>> = BTreeMap::new();
        analysis.steps.iter().for_each(|step| of_ranks.entry(step.rank).or_default().push(step));
        Steps { of_ranks, analysis }
    }

    /// Writes those of a rank that are wanted.
    pub(super) fn write(&self, rank: Rank, is_wanted: impl Fn(Step) -> bool, partition: &Partition<'_>) -> Result<()> {
        let window = &self.analysis.window;
        let steps = self.of_ranks.get(&rank).into_iter().flatten().filter(|step| is_wanted(step.step));
        let row = |step: &&'a StepFigures| {
            let also = json!({
                "counted": window.has(Some(step.step)),
                "warm_up": window.warm_up.contains(&step.step),
                "cut_off": window.cut_off.contains(&step.step),
            });
            merged([object(step), object(&also)])
        };
        let before =
            [("step", Integer), ("start_ns", Integer), ("aligned_start_ns", Integer), ("duration_ns", Integer)];
        let after = [
            ("host_ns", Integer),
            ("host_data_ns", Integer),
            ("loss", Number),
            ("evaluation_loss", Number),
            ("gradient_noise_scale", Number),
            ("tokens", Number),
            ("tokens_per_second", Number),
            ("mfu", Number),
            ("hfu", Number),
            ("includes", Text),
            ("counted", Truth),
            ("warm_up", Truth),
            ("cut_off", Truth),
        ];
        let columns = [&before[..], &PARTITION, &after].concat();
        write_table("steps", &columns, &steps.map(row).collect::<Vec<_>>(), partition)
    }
}

/// The run itself, in one row.
fn runs(run: &Run, analysis: &Analysis) -> Table {
    let info = &run.info;
    let summary = &analysis.run;
    let time = analysis.step_time.as_ref();
    let pipeline = analysis.pipeline.as_ref();
    let also = json!({
        "started": info.started,
        "host": info.host,
        "command": info.command,
        "device": summary.device.as_ref().map(|device| &device.name),
        "first_step": time.map(|time| time.first_step),
        "last_step": time.map(|time| time.last_step),
        "steps": time.map(|time| time.count),
        "median_step_ns": time.map(|time| time.median_ns),
        "tokens_per_second": time.and_then(|time| time.tokens_per_second),
        "mfu": analysis.mfu.as_ref().and_then(|mfu| mfu.value),
        "hfu": analysis.mfu.as_ref().and_then(|mfu| mfu.hfu),
        "bubble": pipeline.and_then(|pipeline| pipeline.bubble),
        "ideal_bubble": pipeline.map(|pipeline| pipeline.ideal_bubble),
        "aligned_by": analysis.clock.aligned_by,
        "residual_ns": analysis.clock.residual_ns,
        "stepscope": env!("CARGO_PKG_VERSION"),
    });
    let named = json!({ "name": summary.name, "source": summary.source, "state": summary.state.word() });
    let ranks = json!({ "world_size": summary.world_size });
    let columns = vec![
        ("name", Text),
        ("source", Text),
        ("state", Text),
        ("world_size", Integer),
        ("started", Text),
        ("host", Text),
        ("command", Text),
        ("device", Text),
        ("first_step", Integer),
        ("last_step", Integer),
        ("steps", Integer),
        ("median_step_ns", Integer),
        ("tokens_per_second", Number),
        ("mfu", Number),
        ("hfu", Number),
        ("bubble", Number),
        ("ideal_bubble", Number),
        ("aligned_by", Text),
        ("residual_ns", Integer),
        ("dropped_events", Integer),
        ("unreadable_bytes", Integer),
        ("unreadable_events", Integer),
        ("stepscope", Text),
    ];
    let row = merged([object(&named), object(&ranks), object(&also), object(&analysis.data_loss)]);
    Table { name: "runs", columns, rows: vec![row] }
}

/// Where each rank's time goes in the steps that count.
fn counted(analysis: &Analysis) -> Table {
    let host = |rank: Rank| analysis.ranks.iter().find(|figures| figures.rank == rank)?.host.clone();
    let row = |time| {
        let row: Row = object(time);
        let rank = row.get("rank").and_then(Value::as_u64).and_then(|rank| rank.try_into().ok());
        merged([row, object(&json!({ "host": rank.and_then(|rank| host(Rank(rank))) }))])
    };
    let before = [("rank", Integer), ("host", Text), ("windows", Integer)];
    let after = [("kernel_count", Integer), ("recomputation_ns", Integer)];
    let columns = [&before[..], &PARTITION, &after].concat();
    Table { name: "counted", columns, rows: analysis.counted.iter().map(row).collect() }
}

/// Each rank's communication by axis, in the steps that count.
fn axes(analysis: &Analysis) -> Table {
    let columns = vec![
        ("rank", Integer),
        ("axis", Text),
        ("communication_ns", Integer),
        ("overlapped_ns", Integer),
        ("exposed_ns", Integer),
    ];
    let of = analysis.counted.iter().map(|time| (time.rank, &time.breakdown.axes));
    Table { name: "axes", columns, rows: of.flat_map(|(rank, axes)| of_rank(rank, axes)).collect() }
}

/// Each rank's time by phase, in the steps that count.
fn phases(analysis: &Analysis) -> Table {
    let columns = vec![
        ("rank", Integer),
        ("phase", Text),
        ("compute_ns", Integer),
        ("exposed_communication_ns", Integer),
        ("exposed_copy_ns", Integer),
    ];
    let of = analysis.counted.iter().map(|time| (time.rank, &time.breakdown.phases));
    Table { name: "phases", columns, rows: of.flat_map(|(rank, phases)| of_rank(rank, phases)).collect() }
}

/// Each rank's idle time by reason, in the steps that count.
fn idle(analysis: &Analysis) -> Table {
    let columns = vec![("rank", Integer), ("reason", Text), ("time_ns", Integer)];
    let of = analysis.counted.iter().map(|time| (time.rank, &time.idle));
    Table { name: "idle", columns, rows: of.flat_map(|(rank, idle)| of_rank(rank, idle)).collect() }
}

fn kernels(analysis: &Analysis) -> Table {
    let before = [
        ("name", Text),
        ("family", Text),
        ("library", Text),
        ("precision", Text),
        ("tile", Text),
        ("count", Integer),
        ("total_ns", Integer),
        ("mean_ns", Number),
        ("share", Number),
        ("least_rank_ns", Integer),
        ("most_rank_ns", Integer),
    ];
    Table { name: "kernels", columns: [&before[..], &RATES].concat(), rows: rows(&analysis.kernels) }
}

fn collectives(analysis: &Analysis) -> Table {
    let columns = vec![
        ("operation", Text),
        ("axis", Text),
        ("group_size", Integer),
        ("count", Integer),
        ("bytes", Integer),
        ("busy_ns", Integer),
        ("exposed_ns", Integer),
        ("own_ns", Integer),
        ("waiting_ns", Integer),
        ("algorithm_bandwidth", Number),
        ("bus_bandwidth", Number),
    ];
    Table { name: "collectives", columns, rows: rows(&analysis.collectives) }
}

fn stragglers(analysis: &Analysis) -> Table {
    let columns = vec![("rank", Integer), ("wait_ns", Integer), ("caused_wait_ns", Integer)];
    Table { name: "stragglers", columns, rows: rows(&analysis.stragglers) }
}

/// The peak of each rank's memory.
fn peaks(analysis: &Analysis) -> Table {
    let columns = vec![
        ("rank", Integer),
        ("peak_bytes", Integer),
        ("peak_time_ns", Integer),
        ("peak_step", Integer),
        ("peak_phase", Text),
        ("reserved_peak_bytes", Integer),
        ("fragmentation_bytes", Integer),
        ("growth_bytes_per_step", Number),
        ("one_moment", Truth),
        ("inferred", Truth),
        ("unmatched_events", Integer),
        ("gaps", Integer),
    ];
    Table { name: "peaks", columns, rows: rows(&analysis.memory) }
}

/// What each rank has allocated at its peak and at its end, by category.
fn peak_categories(analysis: &Analysis) -> Table {
    let columns = vec![("rank", Integer), ("category", Text), ("at_peak", Integer), ("at_end", Integer)];
    let mut rows = Vec::new();
    for memory in &analysis.memory {
        let mut categories: Vec<_> = memory.at_peak.keys().chain(memory.at_end.keys()).collect();
        categories.sort();
        categories.dedup();
        rows.extend(categories.into_iter().map(|category| {
            object(&json!({
                "rank": memory.rank,
                "category": category,
                "at_peak": memory.at_peak.get(category).unwrap_or(&0),
                "at_end": memory.at_end.get(category).unwrap_or(&0),
            }))
        }));
    }
    Table { name: "peak_categories", columns, rows }
}

fn findings(analysis: &Analysis) -> Table {
    let columns = vec![
        ("kind", Text),
        ("share", Number),
        ("summary", Text),
        ("lost_ns", Integer),
        ("step_without_ns", Integer),
        ("advice", Text),
    ];
    Table { name: "findings", columns, rows: rows(&analysis.findings) }
}

/// The rows of figures that are a list.
fn rows(figures: &[impl Serialize]) -> Vec<Row> {
    figures.iter().map(object).collect()
}

/// The rows of a list that a rank has, each with the rank.
fn of_rank(rank: Rank, figures: &[impl Serialize]) -> Vec<Row> {
    let rank = object(&json!({ "rank": rank }));
    figures.iter().map(|figures| merged([rank.clone(), object(figures)])).collect()
}

fn object(figures: &(impl Serialize + ?Sized)) -> Row {
    match serde_json::to_value(figures) {
        Ok(Value::Object(row)) => row,
        _ => Row::new(),
    }
}

fn merged(rows: impl IntoIterator<Item = Row>) -> Row {
    rows.into_iter().flatten().collect()
}

fn write_table(
    table: &'static str,
    columns: &[(&'static str, Kind)],
    rows: &[Row],
    partition: &Partition<'_>,
) -> Result<()> {
    let fields = columns.iter().map(|(name, kind)| field(name, *kind)).collect();
    let mut file = TableFile::create(table, &partition.file(table)?, fields)?;
    file.write(rows, &())?;
    file.finish().map(drop)
}

fn field(name: &'static str, kind: Kind) -> Field<Row, ()> {
    match kind {
        Integer => Field::integer(name, move |row: &Row, ()| row.get(name)?.as_i64()),
        Number => Field::number(name, move |row: &Row, ()| row.get(name)?.as_f64()),
        Truth => Field::truth(name, move |row: &Row, ()| row.get(name)?.as_bool()),
        Text => Field::text(name, move |row: &Row, ()| Some(words(row.get(name)?)?.as_str().into())),
    }
}

/// A text; of a list its words, with a space between them.
fn words(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(several) if several.is_empty() => None,
        Value::Array(several) => Some(several.iter().filter_map(words).collect::<Vec<_>>().join(" ")),
        other => Some(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_words_and_nothing_is_null() {
        for (value, expected) in [
            (json!(null), None),
            (json!([]), None),
            (json!("matmul"), Some("matmul")),
            (json!(["evaluation", "checkpoint"]), Some("evaluation checkpoint")),
            (json!([128, 64]), Some("128 64")),
        ] {
            assert_eq!(words(&value).as_deref(), expected);
        }
    }
}
