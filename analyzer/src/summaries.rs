//! Summaries of ranks: made once, and read instead of what was recorded.
//!
//! A rank's summary is what the analysis makes of that rank alone, so it is the same whoever makes it, and with which others:
//! ranks are put together when the run is analyzed. It is read where somebody asks for what it says, which is the default: the
//! steps that count, of all of the recording. A rank that counts other steps than the job does is read again.

use stepscope_traces::{Rank, RankDirectory, RunInfo, State, SummaryError, SummaryUse, TraceError};

use crate::{
    each_rank::each_rank,
    error::AnalysisError,
    rank::{
        axes::Axes,
        reading::{Counting, read_rank},
        result::{Detail, RankResult},
        summary::{FORMAT, PARTS, REST, STEPS, result_of, sections},
    },
    selection::{Selection, StepChoice},
};

/// A summary that was made.
#[derive(Debug)]
pub struct Summarized {
    /// Of which rank.
    pub rank: Rank,
    /// How long its file is, and how many steps it has; or why there is none.
    pub outcome: Result<(u64, usize), AnalysisError>,
}

/// Makes the summaries of some ranks, each in the directory of its rank, where there is none of what is there. A rank that is
/// still recorded has none yet. `progress` is told how many ranks are done, from the threads that do them.
pub fn summarize(
    run: &RunInfo,
    ranks: &[&RankDirectory],
    progress: &(dyn Fn(usize) + Sync),
) -> Result<Vec<Summarized>, AnalysisError> {
    each_rank(ranks, progress, |rank| Summarized { rank: rank.info.rank, outcome: summarize_rank(run, rank) })
}

fn summarize_rank(run: &RunInfo, rank: &RankDirectory) -> Result<(u64, usize), AnalysisError> {
    if rank.state == State::Recording {
        return Err(AnalysisError::StillRecorded { rank: rank.info.rank });
    }
    if let (Ok(Some(there)), Some(bytes)) = (from_summary(run, rank, Detail::Parts), rank.summary_bytes()) {
        return Ok((bytes, there.steps.len()));
    }
    // One without a recording would say that there was nothing to record.
    if !rank.has_recording() {
        return Err(TraceError::NoRecording { path: rank.path.clone() }.into());
    }
    let alone = Counting::Alone(StepChoice::Counted);
    let result = read_rank(run, rank, &Selection::default(), alone, Detail::Parts)?;
    let steps = result.steps.len();
    let bytes = rank.write_summary(run, FORMAT, &sections(result, &Axes::of(&run.groups)))?;
    Ok((bytes, steps))
}

/// What a rank comes to by itself: as its summary says, where that can be, or as it was recorded.
pub(crate) fn summary_or_reading(
    run: &RunInfo,
    rank: &RankDirectory,
    selection: &Selection,
    detail: Detail,
) -> Result<RankResult, AnalysisError> {
    // A summary has no other steps, and no part of a recording.
    if selection.steps == StepChoice::Counted && selection.reads_all() && rank.state != State::Recording {
        match from_summary(run, rank, detail) {
            Ok(Some(result)) => {
                rank.note_summary_use(SummaryUse::Read);
                return Ok(result);
            }
            Ok(None) => {}
            Err(why) => {
                if !rank.has_recording() {
                    return Err(TraceError::UselessSummary { path: rank.path.clone(), why }.into());
                }
                rank.note_summary_use(SummaryUse::PassedOver(why));
            }
        }
    }
    read_rank(run, rank, selection, Counting::Alone(selection.steps), detail)
}

fn from_summary(run: &RunInfo, rank: &RankDirectory, detail: Detail) -> Result<Option<RankResult>, SummaryError> {
    let Some(mut summary) = rank.summary(run, FORMAT)? else { return Ok(None) };
    let (steps, rest) = (summary.section(STEPS)?, summary.section(REST)?);
    let parts = if detail == Detail::Parts { Some(summary.section(PARTS)?) } else { None };
    let known = (&rank.info, rank.state);
    let result = result_of([&steps, &rest], parts.as_deref(), known, &Axes::of(&run.groups));
    match result.map_err(|_| SummaryError::Damaged)? {
        Some(result) => Ok(Some(result)),
        None => Err(SummaryError::OtherDescription),
    }
}
