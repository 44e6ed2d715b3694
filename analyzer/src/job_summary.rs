//! What all ranks of a run come to together: kept beside the run, and read instead of their summaries.
//!
//! It is made of what each rank comes to, as the analysis makes it, and says of which summaries. So it is the same in whatever
//! order, by whomever and in however many parts ranks were summarized, and nobody takes one of ranks that have changed.

use std::mem;

use stepscope_plan::Assumptions;
use stepscope_traces::{Rank, RankDirectory, RankInfo, Run, SummaryError, SummaryUse};

use crate::{
    each_rank::each_rank,
    error::AnalysisError,
    figures::{Analysis, WaterfallRow},
    findings::findings,
    job::{mfu::TrainedModel, plan_score::plan_score, roofline::roofline, segments::segments},
    rank::summary,
    selection::Selection,
    stored::{fields, restored, stored},
};

/// The version of what it says: another one, whenever the same ranks come to something else together.
const FORMAT: u32 = 1;

/// What all ranks come to.
pub(crate) struct JobFigures {
    /// The ranks of the first pipeline, by their place among all.
    first_pipeline: Option<Vec<usize>>,
    /// Of each rank, from the peak to MFU.
    waterfalls: Vec<Vec<WaterfallRow>>,
    analysis: Analysis,
}

fields!(JobFigures { first_pipeline, waterfalls, analysis });

impl JobFigures {
    pub(crate) fn of(mut analysis: Analysis, first_pipeline: Option<Vec<usize>>) -> JobFigures {
        // What is kept of a rank's time has none, since ranks alone have none.
        let waterfalls = analysis.counted.iter_mut().map(|time| mem::take(&mut time.waterfall)).collect();
        JobFigures { first_pipeline, waterfalls, analysis }
    }
}

/// The checksum of every rank's summary; none, where a rank has none of what is there.
pub(crate) fn checksums(run: &Run) -> Result<Option<Vec<(Rank, u32)>>, AnalysisError> {
    let ranks: Vec<&RankDirectory> = run.ranks.iter().collect();
    let of_rank = |rank: &RankDirectory| {
        let summary = rank.summary(&run.info, summary::FORMAT).ok()??;
        Some((rank.info.rank, summary.checksum()))
    };
    Ok(each_rank(&ranks, &|_| {}, of_rank)?.into_iter().collect())
}

/// What ranks with these summaries come to, where it is kept, and how long the file is.
fn kept(run: &Run, checksums: &[(Rank, u32)]) -> Result<Option<(JobFigures, u64)>, SummaryError> {
    let Some(mut summary) = run.job_summary(checksums, FORMAT)? else { return Ok(None) };
    let figures = restored(&summary.section()?).map_err(|_| SummaryError::Damaged)?;
    Ok(Some((figures, summary.bytes())))
}

/// How long the file is in which that is kept already.
pub(crate) fn kept_bytes(run: &Run, checksums: &[(Rank, u32)]) -> Option<u64> {
    kept(run, checksums).ok().flatten().map(|(_, bytes)| bytes)
}

/// Keeps what ranks with these summaries come to; says how long the file is.
pub(crate) fn write(run: &Run, checksums: &[(Rank, u32)], figures: &JobFigures) -> Result<u64, AnalysisError> {
    Ok(run.write_job_summary(checksums, FORMAT, &stored(figures))?)
}

/// What the ranks of a run come to, where it is kept, and what is asked for is in it.
pub(crate) fn read(run: &Run, selection: &Selection) -> Option<Analysis> {
    if !(selection.words_only && selection.is_usual() && run.has_job_summary()) {
        return None;
    }
    // Whatever is wrong with it, the ranks can be read.
    let (figures, _) = kept(run, &checksums(run).ok()??).ok()??;
    run.ranks.iter().for_each(|rank| rank.note_summary_use(SummaryUse::OfJob));
    Some(with_what_the_run_says(figures, run))
}

/// Adds what is not kept.
fn with_what_the_run_says(figures: JobFigures, run: &Run) -> Analysis {
    let JobFigures { first_pipeline, waterfalls, mut analysis } = figures;
    analysis.counted.iter_mut().zip(waterfalls).for_each(|(time, waterfall)| time.waterfall = waterfall);
    let ranks: Vec<&RankInfo> = run.ranks.iter().map(|rank| &rank.info).collect();
    let model = TrainedModel::of(&run.info, &ranks, first_pipeline.as_deref(), &Selection::default());
    analysis.run.sequence_length = model.as_ref().and_then(|model| model.sequence_length);
    analysis.run.model = model.map(|model| model.model);
    analysis.run.device = ranks.iter().find_map(|rank| rank.device.clone());
    analysis.run.segments = segments(run);
    let device = analysis.run.device.as_ref().filter(|_| analysis.run.ranks_on_a_device.is_none());
    analysis.roofline = device.and_then(|device| roofline(None, Some(device)));
    analysis.prediction = plan_score(&analysis, Assumptions::of);
    analysis.findings = findings(&analysis);
    analysis
}
