//! A run as a trace: analyzed, and written with as much detail as fits.

use std::{
    fs::File,
    io::{BufWriter, Seek, Write},
};

use anyhow::Result;
use flate2::{Compression, write::GzEncoder};
use stepscope_analyzer::{Analysis, Overlay, RankOverlay, Selection, StepFigures, analyze_with_overlay, chosen_ranks};
use stepscope_plan::text;
use stepscope_traces::{
    Nanos, Run,
    export::perfetto::{Detail, ExportError, Level, Series, Trace, TracePlan, Unit, Written},
};

use super::{
    Wanted, critical_path,
    estimate::Estimate,
    findings, marks, missing,
    rank::RankParts,
    reach::{self, Reach},
    steps,
};
use crate::{failure::WithHint, progress};

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
    left_out: Vec<Level>,
    reach: Reach,
    /// What the run should have and does not.
    missing: Vec<(&'static str, String)>,
    /// Of the file, packed or not.
    file_bytes: u64,
    /// With more detail it would have been larger than this.
    limit: u64,
}

/// Writes a run into an empty file.
pub(crate) fn export(run: &Run, wanted: &Wanted, packing: Packing, file: &mut File) -> Result<Exported> {
    chosen_ranks(run, &wanted.ranks)?;
    let mut selection = wanted.selection.clone();
    let reach = reach::bound(run, &mut selection)?;
    let analyzed = |progress: &(dyn Fn(usize) + Sync)| analyze_with_overlay(run, &selection, progress);
    let (analysis, mut overlay) =
        if wanted.shows_progress { progress::shown(run.ranks.iter(), analyzed)? } else { analyzed(&|_| {})? };
    // Figures are of all ranks, whichever are drawn.
    overlay.leave(|rank| wanted.draws(rank));
    let limit = |detail: Detail| wanted.limit(detail);
    let estimate = Estimate::of(&overlay);
    let mut detail = Some(estimate.most(limit));
    let source = Source {
        run,
        wanted,
        selection: &selection,
        analysis: &analysis,
        overlay: &overlay,
        estimate: &estimate,
        reach,
    };
    while let Some(tried) = detail {
        match source.write_file(tried, limit(tried), (packing, &mut *file)) {
            Ok(written) => {
                return Ok(Exported {
                    name: run.info.name.clone(),
                    ranks: overlay.ranks.len() as u64,
                    world_size: run.info.world_size,
                    written,
                    left_out: source.left_out(tried),
                    reach,
                    missing: missing::lines(run, &analysis, &overlay, "the trace covers"),
                    file_bytes: file.metadata()?.len(),
                    limit: tried.more().map_or(u64::MAX, limit),
                });
            }
            Err(ExportError::TooLarge) => detail = tried.less(),
            Err(ExportError::Trace(error)) => return Err(error.into()),
            // A closed pipe is told by this.
            Err(ExportError::Write(error)) => return Err(error.into()),
        }
    }
    let least = source.least()?;
    let what = format!("the trace takes at least {}", text::bytes(least));
    let hint = format!("raise --max-size to {least}, or choose fewer --steps or --ranks");
    Err(WithHint { what, hint }.into())
}

/// What is exported, and what is known of it.
struct Source<'a> {
    run: &'a Run,
    wanted: &'a Wanted,
    selection: &'a Selection,
    analysis: &'a Analysis,
    overlay: &'a Overlay,
    estimate: &'a Estimate<'a>,
    reach: Reach,
}

impl Source<'_> {
    /// What of a run is left out with so much detail.
    fn left_out(&self, detail: Detail) -> Vec<Level> {
        detail.left_out().iter().copied().filter(|level| self.estimate.has(*level)).collect()
    }

    /// Writes a trace in some detail, from the beginning of a file.
    fn write_file(
        &self,
        detail: Detail,
        limit: u64,
        (packing, file): (Packing, &mut File),
    ) -> Result<Written, ExportError> {
        file.set_len(0).map_err(ExportError::Write)?;
        file.rewind().map_err(ExportError::Write)?;
        match packing {
            Packing::None => self.write(detail, limit, file),
            Packing::Gzip => {
                let mut packed = GzEncoder::new(BufWriter::new(file), Compression::fast());
                let written = self.write(detail, limit, &mut packed)?;
                packed.finish().and_then(|mut file| file.flush()).map_err(ExportError::Write)?;
                Ok(written)
            }
        }
    }

    /// Writes a trace in some detail.
    fn write(&self, detail: Detail, limit: u64, into: &mut dyn Write) -> Result<Written, ExportError> {
        let plan = self.plan(detail, limit);
        let beginning = BEGINNING.saturating_sub(plan.shift);
        let mut trace = Trace::begin(into, &plan);
        let mut ranks: Vec<&RankOverlay> = self.overlay.ranks.iter().collect();
        ranks.sort_by_key(|rank| RankParts::place(self.run, rank));
        for (place, overlay) in (0..).zip(ranks) {
            RankParts::of(self.run, self.selection, self.analysis, overlay).write(&mut trace, place, beginning)?;
        }
        trace.finish()
    }

    /// The smallest limit that a trace fits into: it says its limit itself, so one with fewer digits may be smaller.
    fn least(&self) -> Result<u64, ExportError> {
        let mut least = u64::MAX;
        loop {
            let wanted = self.wanted.up_to(least);
            match (Source { wanted: &wanted, ..*self }).write(Detail::LEAST, least, &mut std::io::sink()) {
                Ok(written) if written.bytes < least => least = written.bytes,
                Ok(_) | Err(ExportError::TooLarge) => return Ok(least),
                Err(error) => return Err(error),
            }
        }
    }

    /// What is written of all ranks together.
    fn plan(&self, detail: Detail, limit: u64) -> TracePlan {
        let ranks = &self.overlay.ranks;
        let first = ranks.iter().filter_map(begins).min().unwrap_or(0);
        let last = ranks.iter().filter_map(|rank| Some(rank.clock.at(rank.extent?.1))).max().unwrap_or(first);
        let view = steps::counted(self.analysis);
        let analyzed = ("stepscope.analyzed".into(), self.reach.words());
        let left_out = self.left_out(detail);
        let beyond = detail.more().filter(|_| !left_out.is_empty()).map(|more| self.wanted.limit(more));
        let metadata = marks::metadata(self.run, self.analysis, (&left_out, beyond), limit);
        TracePlan {
            name: format!("{} · {}", self.run.info.name, self.ranks()),
            metadata: metadata
                .chain([analyzed])
                .chain(time_of_day(self.overlay, first.saturating_sub(BEGINNING)))
                .collect(),
            shift: BEGINNING.saturating_sub(first),
            view,
            steps: steps::of_run(self.analysis, self.selection.steps),
            marks: marks::of_run(self.run, first),
            stretches: vec![
                findings::of_run(self.analysis, view.unwrap_or((first, last))),
                critical_path::of_run(self.analysis),
            ],
            series: self.series(),
            detail,
            limit,
            next_flow: self.overlay.links + 1,
        }
    }

    /// Which ranks are written, in words.
    fn ranks(&self) -> String {
        if self.overlay.ranks.len() == self.run.ranks.len() {
            return "all ranks".into();
        }
        text::named_ranks(&self.overlay.ranks.iter().map(|rank| rank.rank.0).collect::<Vec<u32>>())
    }

    /// Figures of each step of the whole job that counts: those of the rank on which it takes longest. The loss is of all.
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
        let losses = self.analysis.losses();
        let loss = |step: &StepFigures| losses.get(&step.step).copied();
        let counts = |step: &&StepFigures| self.analysis.window.counts(step.step);
        let of = |name: &str, unit: &str, figure: &dyn Fn(&StepFigures) -> Option<f64>| {
            let values: Vec<_> = longest.iter().filter_map(|(begins, step)| Some((*begins, figure(step)?))).collect();
            (!values.is_empty()).then(|| Series { name: name.into(), unit: Unit::Named(unit.into()), values })
        };
        let all = [
            of("tokens/s", "tokens/s", &|step| Some(step).filter(counts)?.tokens_per_second),
            of("MFU", "%", &|step| Some(100.0 * Some(step).filter(counts)?.mfu?)),
            of("step time", "ms", &|step| Some(Some(step).filter(counts)?.duration_ns as f64 / 1e6)),
            of("loss", "", &loss),
        ];
        all.into_iter().flatten().collect()
    }
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
    /// How large the file is.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// What was exported, and what was left out, for people.
    pub(crate) fn summary(&self) -> String {
        let ranks = text::ranks(self.ranks, self.world_size);
        let spans = text::counted(self.written.all_spans(), "span");
        let name = text::printable(&self.name);
        let mut summary = format!("exported  {name}, {ranks}: {spans}, {}\n", text::bytes(self.file_bytes));
        if !self.left_out.is_empty() {
            let levels = self.left_out.iter().map(|level| level.words()).collect::<Vec<_>>().join("; ");
            let size = text::bytes(self.limit);
            summary += &format!(
                "omitted   {levels}\n          to stay within {size}; raise --max-size, or choose fewer --steps or --ranks\n"
            );
        }
        for (what, says) in &self.missing {
            summary += &format!("{what:<10}{says}\n");
        }
        if self.reach != Reach::All {
            let part = self.reach.words();
            summary += &format!(
                "analyzed  {part}; bubbles, flows, MFU and findings cover only that (--steps chooses another part)\n"
            );
        }
        if self.written.clipped > 0 {
            let clipped = text::counted(self.written.clipped, "span");
            summary += &format!("clipped   {clipped} that overlap too many others on their stream\n");
        }
        summary
    }
}
