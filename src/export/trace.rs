//! A run as a trace: analyzed, and written with as much detail as fits.

use std::{
    fs::File,
    io::{BufWriter, Seek, Write},
};

use anyhow::{Result, bail};
use flate2::{Compression, write::GzEncoder};
use stepscope_analyzer::{Analysis, Overlay, RankOverlay, Selection, StepFigures, analyze_with_overlay};
use stepscope_traces::{
    Nanos, Run, SpanKind,
    export::perfetto::{Detail, ExportError, Level, Series, Trace, TracePlan, Unit, Written},
};

use super::{
    Chosen, marks,
    rank::RankParts,
    reach::{self, Reach},
};
use crate::{progress, text};

/// When a trace begins. Not at zero: older versions of the UI fail where a counter has a value there.
const BEGINNING: i64 = 1_000_000;

/// How a trace is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// Not at all.
    None,
    /// With gzip.
    Gzip,
}

/// What was exported.
pub(crate) struct Exported {
    name: String,
    ranks: u64,
    world_size: Option<u32>,
    written: Written,
    left_out: &'static [Level],
    reach: Reach,
    /// Of the file, packed or not.
    file_bytes: u64,
    max_size: u64,
}

/// Writes a run into an empty file.
pub(crate) fn export(run: &Run, chosen: &Chosen, packing: Packing, file: &mut File) -> Result<Exported> {
    let mut selection = chosen.of(run);
    let reach = reach::bound(run, &mut selection)?;
    let wanted = |rank: &&_| wanted(&selection, rank);
    let ranks = run.ranks.iter().filter(wanted);
    let (analysis, overlay) = progress::shown(ranks, |progress| analyze_with_overlay(run, &selection, progress))?;
    let mut detail = Some(largest_that_may_fit(&overlay, chosen.max_size));
    let source = Source { run, selection: &selection, analysis: &analysis, overlay: &overlay, reach };
    while let Some(tried) = detail {
        match source.write(tried, chosen.max_size, (packing, &mut *file)) {
            Ok(written) => {
                return Ok(Exported {
                    name: run.info.name.clone(),
                    ranks: overlay.ranks.len() as u64,
                    world_size: run.info.world_size,
                    written,
                    left_out: tried.left_out(),
                    reach,
                    file_bytes: file.metadata()?.len(),
                    max_size: chosen.max_size,
                });
            }
            Err(ExportError::TooLarge) => detail = tried.less(),
            Err(ExportError::Trace(error)) => return Err(error.into()),
            // A closed pipe is told by this.
            Err(ExportError::Write(error)) => return Err(error.into()),
        }
    }
    bail!(
        "even the steps alone are larger than {}; --steps or --ranks chooses some of them",
        text::bytes(chosen.max_size)
    )
}

fn wanted(selection: &Selection, rank: &stepscope_traces::RankDirectory) -> bool {
    selection.ranks.is_empty() || selection.ranks.contains(&rank.info.rank)
}

/// What is exported, and what is known of it.
struct Source<'a> {
    run: &'a Run,
    selection: &'a Selection,
    analysis: &'a Analysis,
    overlay: &'a Overlay,
    reach: Reach,
}

impl Source<'_> {
    /// Writes a trace in some detail, from the beginning of a file.
    fn write(&self, detail: Detail, limit: u64, (packing, file): (Packing, &mut File)) -> Result<Written, ExportError> {
        file.set_len(0).map_err(ExportError::Write)?;
        file.rewind().map_err(ExportError::Write)?;
        let plan = self.plan(detail, limit);
        let mut into: Box<dyn Write> = match packing {
            Packing::None => Box::new(&mut *file),
            Packing::Gzip => Box::new(GzEncoder::new(BufWriter::new(&mut *file), Compression::fast())),
        };
        let mut trace = Trace::begin(&mut into, &plan);
        let mut ranks: Vec<&RankOverlay> = self.overlay.ranks.iter().collect();
        ranks.sort_by_key(|rank| RankParts::place(self.run, rank));
        for (place, overlay) in (0..).zip(ranks) {
            RankParts::of(self.run, self.selection, self.analysis, overlay).write(&mut trace, place)?;
        }
        trace.finish()
    }

    /// What is written of all ranks together.
    fn plan(&self, detail: Detail, limit: u64) -> TracePlan {
        let ranks = &self.overlay.ranks;
        let first = ranks.iter().filter_map(begins).min().unwrap_or(0);
        let last = ranks.iter().filter_map(|rank| Some(rank.clock.at(rank.extent?.1))).max().unwrap_or(first);
        let analyzed = ("stepscope.analyzed".into(), self.reach.words());
        let metadata = marks::metadata(self.run, self.analysis, detail, limit);
        TracePlan {
            name: format!("{} · all ranks", self.run.info.name),
            metadata: metadata
                .chain([analyzed])
                .chain(time_of_day(self.overlay, first.saturating_sub(BEGINNING)))
                .collect(),
            shift: BEGINNING.saturating_sub(first),
            marks: marks::of_findings(self.analysis, (first, last)),
            series: self.series(),
            detail,
            limit,
            next_flow: self.overlay.links + 1,
        }
    }

    /// Figures of each step of the whole job: those of the rank on which it takes longest.
    fn series(&self) -> Vec<Series> {
        let steps = &self.analysis.steps;
        let mut longest: Vec<(i64, &StepFigures)> = Vec::new();
        for ranks in steps.chunk_by(|one, other| one.step == other.step) {
            let begins = ranks.iter().map(|step| step.aligned_start_ns).min();
            longest.extend(begins.zip(ranks.iter().max_by_key(|step| step.duration_ns)));
        }
        if self.reach != Reach::All {
            // The analysis ends in the middle of it.
            longest.pop();
        }
        longest.sort_by_key(|(begins, _)| *begins);
        let loss =
            |step: &StepFigures| steps.iter().filter(|other| other.step == step.step).find_map(|other| other.loss);
        let of = |name: &str, unit: &str, figure: &dyn Fn(&StepFigures) -> Option<f64>| {
            let values: Vec<_> = longest.iter().filter_map(|(begins, step)| Some((*begins, figure(step)?))).collect();
            (!values.is_empty()).then(|| Series { name: name.into(), unit: Unit::Named(unit.into()), values })
        };
        let all = [
            of("tokens/s", "tokens/s", &|step| step.tokens_per_second),
            of("MFU", "%", &|step| step.mfu.map(|mfu| 100.0 * mfu)),
            of("step time", "ms", &|step| Some(step.duration_ns as f64 / 1e6)),
            of("loss", "", &loss),
        ];
        all.into_iter().flatten().collect()
    }
}

/// The most detail that is not surely too large, by what events take at least.
fn largest_that_may_fit(overlay: &Overlay, limit: u64) -> Detail {
    const SLICE: u64 = 30;
    const ARGUMENTS: u64 = 8;
    const MEMORY_EVENT: u64 = 30;
    let spans = |kinds: &dyn Fn(SpanKind) -> bool| {
        let of = |rank: &RankOverlay| {
            SpanKind::ALL.iter().zip(rank.spans).filter(|(kind, _)| kinds(**kind)).map(|(_, count)| count).sum::<u64>()
        };
        overlay.ranks.iter().map(of).sum::<u64>()
    };
    let kernels = spans(&|kind| kind == SpanKind::Kernel || kind.is_copy());
    let least = |level: &Level| match level {
        Level::Host => SLICE * spans(&|kind| matches!(kind, SpanKind::Range | SpanKind::Launch)),
        Level::Arguments => ARGUMENTS * kernels,
        Level::Memory => MEMORY_EVENT * overlay.ranks.iter().map(|rank| rank.memory_events).sum::<u64>(),
        Level::Layers => SLICE * spans(&|kind| kind == SpanKind::Layer),
        Level::Kernels => SLICE * kernels,
        Level::Communication => SLICE * spans(&SpanKind::is_communication),
        Level::Phases => SLICE * spans(&|kind| matches!(kind, SpanKind::MicroBatch | SpanKind::Phase)),
    };
    let mut detail = Detail::ALL;
    while Level::ALL.iter().filter(|level| detail.has(**level)).map(least).sum::<u64>() > limit {
        let Some(less) = detail.less() else { break };
        detail = less;
    }
    detail
}

/// The time of day when the trace's clock is zero, in nanoseconds since 1970.
fn time_of_day(overlay: &Overlay, zero: i64) -> Option<(String, String)> {
    let anchor = |rank: &RankOverlay| {
        let anchor = rank.info.clock.snapshots.first()?;
        anchor.wall_ns.0.checked_add(zero.checked_sub(rank.clock.at(anchor.rank_ns.0))?)
    };
    overlay.ranks.iter().find_map(anchor).map(|wall| ("stepscope.time_of_day_ns".into(), wall.to_string()))
}

/// When a rank begins, in the clock that all ranks share. What was recorded long before any activity is damaged, and is
/// shown at the beginning.
fn begins(rank: &RankOverlay) -> Option<i64> {
    const LONG: i64 = 86_400 * Nanos::SECOND.0;
    let first = match (rank.extent, rank.first_other) {
        (Some((first, _)), Some(other)) if other >= first.saturating_sub(LONG) => first.min(other),
        (Some((first, _)), _) => first,
        (None, other) => other?,
    };
    Some(rank.clock.at(first))
}

impl Exported {
    /// What was exported, and what was left out, for people.
    pub(crate) fn summary(&self) -> String {
        let ranks = text::ranks(self.ranks, self.world_size);
        let spans = text::counted(self.written.all_spans(), "span");
        let name = text::printable(&self.name);
        let mut summary = format!("exported  {name}, {ranks}: {spans}, {}\n", text::bytes(self.file_bytes));
        if !self.left_out.is_empty() {
            let levels = self.left_out.iter().map(|level| level.words()).collect::<Vec<_>>().join("; ");
            let size = text::bytes(self.max_size);
            summary += &format!(
                "left out  {levels}\n          to stay within {size}: --max-size, --steps or --ranks leaves room for more\n"
            );
        }
        if self.reach != Reach::All {
            let part = self.reach.words();
            summary +=
                &format!("analyzed  {part}: bubbles, flows, MFU and findings are of that; --steps chooses others\n");
        }
        if self.written.clipped > 0 {
            let clipped = text::counted(self.written.clipped, "span");
            summary += &format!("clipped   {clipped} that overlap too many others of their stream\n");
        }
        summary
    }
}
