//! Where in the training a thread is, and what an annotation changes of that.

use stepscope_traces::{Layer, MicroBatch, NameId, Phase, Span, Stage, Step};

/// Where in the training a thread is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The step.
    pub step: Option<Step>,
    /// The micro-batch.
    pub micro_batch: Option<MicroBatch>,
    /// The phase.
    pub phase: Option<Phase>,
    /// The layer.
    pub layer: Option<Layer>,
    /// The pipeline stage.
    pub stage: Option<Stage>,
    /// Who launches, as an origin's name.
    pub origin: Option<NameId>,
}

impl Context {
    /// Writes this context into a span.
    #[inline]
    pub fn apply(&self, span: &mut Span) {
        span.step = self.step;
        span.micro_batch = self.micro_batch;
        span.phase = self.phase;
        span.layer = self.layer;
        span.stage = self.stage;
        span.origin = self.origin;
    }
}

/// What an annotation changes of where a thread is.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    Step(Step),
    MicroBatch(MicroBatch),
    Phase(Phase),
    Layer(Layer),
    Stage(Stage),
    Origin(NameId),
    Everything(Context),
    Nothing,
}

impl Change {
    pub(crate) fn apply(self, context: Context) -> Context {
        match self {
            Change::Step(step) => Context { step: Some(step), ..context },
            Change::MicroBatch(micro_batch) => Context { micro_batch: Some(micro_batch), ..context },
            Change::Phase(phase) => Context { phase: Some(phase), ..context },
            Change::Layer(layer) => Context { layer: Some(layer), ..context },
            Change::Stage(stage) => Context { stage: Some(stage), ..context },
            Change::Origin(origin) => Context { origin: Some(origin), ..context },
            Change::Everything(context) => context,
            Change::Nothing => context,
        }
    }
}
