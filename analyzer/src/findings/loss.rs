//! Training that goes wrong, by its loss.

use stepscope_plan::text;
use stepscope_traces::Step;

use super::{Check, Found};
use crate::figures::Analysis;

/// A loss that is no number any more.
pub(super) struct NotFinite;

impl Check for NotFinite {
    const KIND: &'static str = "loss-not-finite";

    fn find(analysis: &Analysis) -> Option<Found> {
        let losses = analysis.counted_losses();
        let first = losses.iter().position(|(_, loss)| !loss.is_finite())?;
        let (step, loss) = losses[first];
        let before = match first.checked_sub(1).map(|before| losses[before]) {
            Some((step, loss)) => format!("it was {} in step {step}", text::training_loss(loss)),
            None if losses.len() == 1 => "of no other step it is known".into(),
            None => {
                let lost = losses.iter().filter(|(_, loss)| !loss.is_finite()).count();
                format!("so it is in {} of which it is known", text::counted(lost as u64, "step"))
            }
        };
        Some(Found {
            share: 1.0,
            summary: format!("the loss is {loss} in step {step}"),
            evidence: before,
            advice:
                "lower the learning rate, clip gradients, warm up longer, and look for overflow in fp16 or in the data"
                    .into(),
            steps: vec![step],
            ..Found::default()
        })
    }
}

/// A loss that rises.
pub(super) struct Rising;

impl Check for Rising {
    const KIND: &'static str = "loss-rising";

    fn find(analysis: &Analysis) -> Option<Found> {
        const LEAST_STEPS: usize = 4;
        const LEAST_RISE: f64 = 0.05;
        let losses = analysis.counted_losses();
        if losses.len() < LEAST_STEPS || losses.iter().any(|(_, loss)| !loss.is_finite()) {
            return None;
        }
        let quarter = (losses.len() / 4).max(1);
        let mean = |losses: &[(Step, f64)]| losses.iter().map(|(_, loss)| loss).sum::<f64>() / losses.len() as f64;
        let (begins, ends) = (mean(&losses[..quarter]), mean(&losses[losses.len() - quarter..]));
        let rise = ends / begins - 1.0;
        (begins > 0.0 && rise >= LEAST_RISE).then(|| Found {
            share: rise.min(1.0),
            summary: format!("the loss rises from {} to {}", text::training_loss(begins), text::training_loss(ends)),
            evidence: match quarter {
                1 => format!("in the first and the last of {} steps", losses.len()),
                _ => format!("in the mean of the first and the last {quarter} of {} steps", losses.len()),
            },
            advice: "lower the learning rate, warm up longer, or clip gradients".into(),
            ..Found::default()
        })
    }
}
