//! What a rank recorded, as tables: spans, memory, counters. Rows pass by, so that a row group is in memory and not the rank.

use std::{cell::RefCell, ops::AddAssign};

use anyhow::Result;
use parquet::data_type::ByteArray;
use stepscope_analyzer::RankOverlay;
use stepscope_traces::{CounterSample, MemoryEvent, NameId, Names, RankDirectory, Span, Step, Window};

use super::{
    field::Field,
    partition::Partition,
    table_file::{InTime, TableFile},
    words::{OriginWords, Words},
};
use crate::{
    export::{Wanted, chosen::chosen_window},
    output::WholeDirectory,
};

/// How many rows were written.
#[derive(Clone, Copy, Default)]
pub(super) struct Rows {
    pub(super) spans: u64,
    pub(super) memory: u64,
    pub(super) counters: u64,
}

impl AddAssign for Rows {
    fn add_assign(&mut self, more: Rows) {
        self.spans += more.spans;
        self.memory += more.memory;
        self.counters += more.counters;
    }
}

/// An event of memory, and which one it is of those that were recorded: of several at one time, the order counts.
struct NumberedEvent {
    number: i64,
    event: MemoryEvent,
}

/// Writes what a rank recorded, of what is wanted.
pub(super) fn write(
    rank: &RankDirectory,
    overlay: &RankOverlay,
    wanted: &Wanted,
    partition: &Partition<'_>,
) -> Result<Rows> {
    let directory = partition.directory;
    let window = chosen_window(wanted.selection.steps, overlay);
    let is_wanted = |step: Option<Step>, interval| {
        if step.is_some() { wanted.selection.steps.may_have(step) } else { window.touches(interval) }
    };
    let state = RefCell::new(Passing { words: Words::new(overlay.clock), names: None, failed: None });
    let mut spans =
        InTime::new(TableFile::create("spans", &partition.file("spans")?, span_fields())?, |span| span.start_ns);
    let mut memory =
        InTime::new(TableFile::create("memory", &partition.file("memory")?, memory_fields())?, |row| row.event.time_ns);
    let mut number = 0;
    let (data, _) = rank.read_in_pieces(
        Window::ALL,
        |data, piece| {
            state.borrow_mut().pass(directory, |Passing { words, names, .. }| {
                // All that is read of a rank comes after the first of its spans, and has no names beside it.
                names.get_or_insert_with(|| data.names.clone());
                piece.rows().filter(|span| is_wanted(span.step, span.interval())).try_for_each(|span| {
                    words.learn_name(span.name, &data.names);
                    span.origin.into_iter().for_each(|origin| words.learn_origin(origin, &data.names));
                    spans.push(span, words)
                })
            });
        },
        |events| {
            state.borrow_mut().pass(directory, |Passing { words, names, .. }| {
                events.rows().try_for_each(|event| {
                    number += 1;
                    if !window.touches(event.interval()) {
                        return Ok(());
                    }
                    event.site.into_iter().zip(&*names).for_each(|(site, names)| words.learn_name(site, names));
                    memory.push(NumberedEvent { number, event }, words)
                })
            });
        },
    )?;
    let Passing { mut words, failed, .. } = state.into_inner();
    failed.map_or(Ok(()), Err)?;
    let mut samples: Vec<CounterSample> = data.counters.rows().collect();
    samples.retain(|sample| window.touches(sample.interval()));
    samples.sort_by_key(|sample| sample.time_ns);
    samples.iter().for_each(|sample| words.learn_name(NameId(sample.counter.0.into()), &data.names));
    let mut counters = TableFile::create("counters", &partition.file("counters")?, counter_fields())?;
    counters.write(&samples, &words)?;
    Ok(Rows { spans: spans.finish(&words)?, memory: memory.finish(&words)?, counters: counters.finish()? })
}

/// What is kept while a rank passes by.
struct Passing {
    words: Words,
    /// The names of the rank, once some of it has been read.
    names: Option<Names>,
    /// Why nothing more is written.
    failed: Option<anyhow::Error>,
}

impl Passing {
    /// Takes a piece, unless something has failed.
    fn pass(&mut self, directory: &WholeDirectory, take: impl FnOnce(&mut Passing) -> Result<()>) {
        directory.end_if_interrupted();
        if self.failed.is_none() {
            self.failed = take(self).err();
        }
    }
}

/// A number as Spark has it, if it does.
fn signed(number: impl TryInto<i64>) -> Option<i64> {
    number.try_into().ok()
}

fn span_fields() -> Vec<Field<Span, Words>> {
    type Column = Field<Span, Words>;
    fn origin(name: &'static str, part: impl Fn(&OriginWords) -> &Option<ByteArray> + 'static) -> Column {
        Column::text(name, move |span, words| part(words.origin(span.origin?)?).clone())
    }
    vec![
        Column::rising("start_ns", |span, _| Some(span.start_ns.0)),
        Column::integer("duration_ns", |span, _| Some(span.duration_ns.0)),
        Column::rising("aligned_start_ns", |span, words| Some(words.aligned(span.start_ns))),
        Column::text("kind", |span, words| words.kind(span.kind)),
        Column::text("name", |span, words| words.name(span.name)),
        Column::integer("stream", |span, _| signed(span.stream?.0)),
        Column::rising("correlation", |span, _| signed(span.correlation?.0)),
        Column::integer("step", |span, _| signed(span.step?.0)),
        Column::integer("micro_batch", |span, _| signed(span.micro_batch?.0)),
        Column::text("phase", |span, words| words.phase(span.phase?)),
        Column::integer("layer", |span, _| signed(span.layer?.0)),
        Column::integer("stage", |span, _| signed(span.stage?.0)),
        Column::integer("bytes", |span, _| signed(span.bytes?)),
        Column::integer("group_id", |span, _| signed(span.group?.0)),
        Column::integer("sequence", |span, _| signed(span.sequence?.0)),
        Column::integer("flops", |span, _| signed(span.flops?)),
        origin("operator", |origin| &origin.operator),
        origin("shapes", |origin| &origin.shapes),
        origin("module", |origin| &origin.module),
        origin("source", |origin| &origin.source),
    ]
}

fn memory_fields() -> Vec<Field<NumberedEvent, Words>> {
    type Column = Field<NumberedEvent, Words>;
    vec![
        Column::rising("time_ns", |row, _| Some(row.event.time_ns.0)),
        Column::rising("aligned_time_ns", |row, words| Some(words.aligned(row.event.time_ns))),
        Column::rising("event", |row, _| Some(row.number)),
        Column::text("op", |row, words| words.operation(row.event.op)),
        Column::integer("address", |row, _| signed(row.event.address)),
        Column::integer("bytes", |row, _| signed(row.event.bytes?)),
        Column::text("category", |row, words| words.category(row.event.category?)),
        Column::integer("step", |row, _| signed(row.event.step?.0)),
        Column::text("phase", |row, words| words.phase(row.event.phase?)),
        Column::integer("layer", |row, _| signed(row.event.layer?.0)),
        Column::integer("pool", |row, _| signed(row.event.pool?.0)),
        Column::text("site", |row, words| words.name(row.event.site?)),
    ]
}

fn counter_fields() -> Vec<Field<CounterSample, Words>> {
    type Column = Field<CounterSample, Words>;
    vec![
        Column::rising("time_ns", |sample, _| Some(sample.time_ns.0)),
        Column::rising("aligned_time_ns", |sample, words| Some(words.aligned(sample.time_ns))),
        Column::text("counter", |sample, words| words.name(NameId(sample.counter.0.into()))),
        Column::number("value", |sample, _| Some(sample.value)),
    ]
}
