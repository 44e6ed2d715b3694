//! Findings about pipelines.

use stepscope_plan::{Schedule, text};

use super::{Check, Found, time::worth};
use crate::figures::{Analysis, Cause, PipelineFigures};

/// How long stages are idle for a share of the passes, of a step.
fn lost(pipeline: &PipelineFigures, share: f64, analysis: &Analysis) -> i64 {
    let counted = pipeline.per_step.iter().filter(|step| analysis.window.has(Some(step.step)));
    let (windows, steps) = counted.fold((0, 0), |(sum, steps), step| (sum + step.window_ns, steps + 1));
    let stages = pipeline.per_stage.len().max(1) as i64;
    (share * (windows / steps.max(1) / stages) as f64) as i64
}

/// Marks figures that are inferred.
fn doubt(pipeline: &PipelineFigures) -> &'static str {
    if pipeline.inferred { " (inferred)" } else { "" }
}

/// Stages with more work than others.
pub(super) struct UnevenStages;

impl Check for UnevenStages {
    const KIND: &'static str = "uneven-stages";

    fn find(analysis: &Analysis) -> Option<Found> {
        let pipeline = analysis.pipeline.as_ref()?;
        let (more, slowest) = (imbalance(pipeline)?, pipeline.slowest_stage?);
        let excess = pipeline.bubble.zip(pipeline.balanced_bubble).map_or(0.0, |(bubble, even)| bubble - even);
        let lost = lost(pipeline, excess.max(0.0), analysis);
        let share = worth(analysis, &[Cause::UnevenStages], lost)?;
        let ranks = pipeline.per_stage.iter().filter(|stage| stage.stage == slowest).map(|stage| stage.rank);
        Some(Found {
            share,
            summary: format!("stage {slowest} has {} more work than the mean", text::rough_percent(more)),
            evidence: match (pipeline.bubble, pipeline.balanced_bubble) {
                (Some(bubble), Some(even)) => format!(
                    "the bubble is {}; with even stages it would be {}{}",
                    text::rough_percent(bubble),
                    text::rough_percent(even),
                    doubt(pipeline)
                ),
                _ => format!("by the time of its passes{}", doubt(pipeline)),
            },
            advice: format!("move layers off stage {slowest}: the embedding and the loss are work too"),
            ranks: ranks.collect(),
            lost_ns: Some(lost),
            causes: vec![Cause::UnevenStages],
            ..Found::default()
        })
    }
}

/// A bubble far above what the schedule leaves.
pub(super) struct LargeBubble;

impl Check for LargeBubble {
    const KIND: &'static str = "large-bubble";

    fn find(analysis: &Analysis) -> Option<Found> {
        const LEAST_EXCESS: f64 = 0.05;
        const LEAST_TIMES: f64 = 0.5;
        let pipeline = analysis.pipeline.as_ref()?;
        let (bubble, ideal) = (pipeline.bubble?, pipeline.ideal_bubble);
        let slowest = pipeline.slowest_stage?;
        // That is why, then.
        if UnevenStages::find(analysis).is_some() {
            return None;
        }
        (bubble - ideal >= LEAST_EXCESS.max(LEAST_TIMES * ideal)).then(|| Found {
            share: bubble - ideal,
            lost_ns: Some(lost(pipeline, bubble - ideal, analysis)),
            summary: format!(
                "the pipeline bubble is {}; the schedule needs only {}",
                text::rough_percent(bubble),
                text::rough_percent(ideal)
            ),
            evidence: match imbalance(pipeline) {
                Some(more) => format!(
                    "stage {slowest} has {} more work than the mean; with balanced stages the bubble would be {}{}",
                    text::rough_percent(more),
                    pipeline.balanced_bubble.map_or("smaller".into(), text::rough_percent),
                    doubt(pipeline)
                ),
                None => format!(
                    "stages have nearly the same work, so they wait for messages or the host{}",
                    doubt(pipeline)
                ),
            },
            advice: match imbalance(pipeline) {
                Some(_) => format!("move layers off stage {slowest}, or check what the stages wait for"),
                None => "check what the stages wait for: slow links, small messages, the host".into(),
            },
            ..Found::default()
        })
    }
}

/// By how much the stage with the most work exceeds the mean; nothing, where that explains no bubble.
fn imbalance(pipeline: &PipelineFigures) -> Option<f64> {
    const LEAST: f64 = 0.05;
    let work: Vec<f64> = pipeline.per_stage.iter().map(|stage| stage.work_ns as f64).collect();
    let mean = work.iter().sum::<f64>() / work.len().max(1) as f64;
    let most = work.iter().copied().fold(0.0, f64::max);
    (mean > 0.0).then(|| most / mean - 1.0).filter(|more| *more >= LEAST)
}

/// Too few micro-batches to fill a pipeline.
pub(super) struct FewMicroBatches;

impl Check for FewMicroBatches {
    const KIND: &'static str = "few-micro-batches";

    fn find(analysis: &Analysis) -> Option<Found> {
        const LEAST_IDEAL: f64 = 0.2;
        let pipeline = analysis.pipeline.as_ref()?;
        let (bubble, ideal) = (pipeline.bubble?, pipeline.ideal_bubble);
        (ideal >= LEAST_IDEAL).then(|| Found {
            share: ideal.min(bubble),
            lost_ns: Some(lost(pipeline, ideal.min(bubble), analysis)),
            summary: format!("{} micro-batches are too few for {} stages", pipeline.micro_batches, pipeline.stages),
            evidence: format!(
                "the schedule alone leaves a bubble of {}; measured: {}{}",
                text::rough_percent(ideal),
                text::rough_percent(bubble),
                doubt(pipeline)
            ),
            advice: match pipeline.schedule {
                Schedule::Interleaved | Schedule::ZeroBubble | Schedule::DualPipe | Schedule::DualPipeV => {
                    "use more, smaller micro-batches, or fewer stages".into()
                }
                // An interleaved one needs a multiple of the stages.
                Schedule::Gpipe | Schedule::OneForwardOneBackward
                    if pipeline.micro_batches.is_multiple_of(pipeline.stages) =>
                {
                    "use more, smaller micro-batches, or an interleaved or zero-bubble schedule".into()
                }
                Schedule::Gpipe | Schedule::OneForwardOneBackward => {
                    "use more, smaller micro-batches, or a zero-bubble schedule".into()
                }
            },
            ..Found::default()
        })
    }
}
