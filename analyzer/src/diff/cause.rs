//! What a change of time is put down to.

use serde::Serialize;
use stepscope_plan::Axis;
use stepscope_traces::SpanKind;

use super::profile::StepPart;
use stepscope_traces::Family;

/// What kind of cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum CauseKind {
    /// Kernels of a family.
    Compute {
        /// Which one.
        family: Family,
    },
    /// Kernels that compute again what was computed before.
    Recomputation,
    /// Communication that no compute hides.
    ExposedCommunication {
        /// Which operation.
        operation: SpanKind,
        /// Along which axis, where that is known.
        axis: Option<Axis>,
    },
    /// Copies and fills that nothing hides.
    ExposedCopies,
    /// A stage waits for another.
    PipelineBubble,
    /// Nothing runs.
    Idle,
}

impl CauseKind {
    pub(super) fn of(part: &StepPart) -> CauseKind {
        match part {
            StepPart::Kernel { recomputes: true, .. } => CauseKind::Recomputation,
            StepPart::Kernel { family, .. } => CauseKind::Compute { family: *family },
            StepPart::Exposed { operation, axis } => {
                CauseKind::ExposedCommunication { operation: *operation, axis: *axis }
            }
            StepPart::Copies => CauseKind::ExposedCopies,
            StepPart::Bubble => CauseKind::PipelineBubble,
            StepPart::Idle => CauseKind::Idle,
        }
    }

    /// It, in words.
    pub fn words(&self) -> String {
        match self {
            CauseKind::Compute { family } => format!("{} kernels", family.word()),
            CauseKind::Recomputation => "recomputation".into(),
            CauseKind::ExposedCommunication { operation, axis } => {
                let operation = operation.word().replace('_', "-");
                let axis = axis.map_or_else(String::new, |axis| format!(" ({})", axis.short_name()));
                format!("exposed {operation}{axis}")
            }
            CauseKind::ExposedCopies => "exposed copies".into(),
            CauseKind::PipelineBubble => "pipeline bubble".into(),
            CauseKind::Idle => "idle".into(),
        }
    }
}
