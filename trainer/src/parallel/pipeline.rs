//! Pipeline parallelism: each stage does its part of the schedule, which is data, and passes on what comes of it.
//!
//! A stage receives on the compute stream, which has nothing better to do than to wait for its input, and sends on a
//! stream of its own while it computes on. Between processes on GPUs a message is sent only when it is taken: stages
//! must not wait for each other in a circle then either, which is tested for every schedule.

use std::{collections::VecDeque, sync::Arc};

use stepscope_collector::Recorder;
use stepscope_plan::{ModelShape, ParallelLayout, Pass, Work};
use stepscope_traces::{MemoryCategory, MicroBatch, Phase};

use crate::{
    backend::{Backend, Event, Stream, Tensor},
    comm::{Communicator, ProcessGroup},
    error::TrainError,
    model::{Batch, Stage},
    state::{OfStep, State},
};

/// Messages that may be on their way out while the stage computes on. With one, stages of an interleaved schedule, where
/// the last one sends to the first, would wait for each other in a circle.
const MOST_SENDING: usize = 2;

/// One stage's place in the pipeline.
pub(crate) struct Pipeline {
    backend: Arc<dyn Backend>,
    communicator: Arc<dyn Communicator>,
    recorder: Recorder,
    model: ModelShape,
    layout: ParallelLayout,
    stage: u64,
    /// Where activations go, and where gradients go; nowhere, if there is one stage.
    groups: Option<(ProcessGroup, ProcessGroup)>,
    sending: VecDeque<(Tensor, Event)>,
}

impl Pipeline {
    pub(crate) fn new(
        (backend, communicator, recorder): (Arc<dyn Backend>, Arc<dyn Communicator>, Recorder),
        (model, layout): (ModelShape, ParallelLayout),
        stage: u64,
        groups: Option<(ProcessGroup, ProcessGroup)>,
    ) -> Pipeline {
        Pipeline { backend, communicator, recorder, model, layout, stage, groups, sending: VecDeque::new() }
    }

    /// Does a step's forward and backward passes of this stage, in the order of the schedule.
    pub(crate) fn run(
        &mut self,
        stage: &mut Stage,
        state: &mut State,
        batch: &dyn Fn(u64) -> Result<Batch, TrainError>,
    ) -> Result<(), TrainError> {
        let micro_batches = self.layout.micro_batches;
        for work in self.expected(state, |_| true) {
            // Of what this work opens nothing stays open behind it.
            let recorder = self.recorder.clone();
            let _micro_batch = recorder.micro_batch(MicroBatch(work.micro_batch as i32));
            let place = (work.chunk as usize, work.micro_batch);
            // Micro-batches go back through a chunk in their order.
            let at = OfStep { is_first: work.micro_batch == 0, is_last: work.micro_batch + 1 == micro_batches };
            let output = match work.pass {
                Pass::Forward => {
                    let batch = {
                        let _phase = recorder.phase(Phase::Data);
                        batch(work.micro_batch)?
                    };
                    let _phase = recorder.phase(Phase::Forward);
                    let input = self.receive(work, stage, MemoryCategory::Activations);
                    stage.forward(state, place, input, &batch)
                }
                Pass::Backward => {
                    let _phase = recorder.phase(Phase::Backward);
                    let gradient = self.receive(work, stage, MemoryCategory::Communication);
                    stage.backward(state, place, gradient, at)
                }
                Pass::Weights => {
                    let _phase = recorder.phase(Phase::Backward);
                    stage.weights_backward(state, place, at);
                    None
                }
            };
            if let Some(output) = output {
                self.send(work.pass, output);
            }
        }
        self.settle(0);
        Ok(())
    }

    /// Does the forward passes of a step, and nothing else.
    pub(crate) fn evaluate(
        &mut self,
        stage: &mut Stage,
        state: &mut State,
        batch: &dyn Fn(u64) -> Result<Batch, TrainError>,
    ) -> Result<(), TrainError> {
        for work in self.expected(state, |pass| pass == Pass::Forward) {
            let place = (work.chunk as usize, work.micro_batch);
            let input = self.receive(work, stage, MemoryCategory::Activations);
            let output = stage.forward(state, place, input, &batch(work.micro_batch)?);
            stage.forget(place);
            if let Some(output) = output {
                self.send(work.pass, output);
            }
        }
        self.settle(0);
        Ok(())
    }

    /// The work of a step, as far as it is done, in the order of the schedule; the state is told what it needs.
    fn expected(&self, state: &mut State, is_done: impl Fn(Pass) -> bool) -> Vec<Work> {
        let ParallelLayout { schedule, pp, micro_batches, chunks, .. } = self.layout;
        let mut order = schedule.order(self.stage, pp, micro_batches, chunks);
        order.retain(|work| is_done(work.pass));
        let needs = order.iter().flat_map(|work| self.layout.needs(&self.model, self.stage, *work));
        state.expect(&needs.collect::<Vec<_>>());
        order
    }

    /// What another stage has made for this work.
    fn receive(&self, work: Work, stage: &Stage, category: MemoryCategory) -> Option<Tensor> {
        let (forward, backward) = self.groups.as_ref()?;
        let ParallelLayout { schedule, pp, chunks, .. } = self.layout;
        let (from, _) = schedule.input(work, self.stage, pp, chunks)?;
        if from == self.stage {
            return None;
        }
        let input = stage.incoming(category);
        let group = if work.pass == Pass::Forward { forward } else { backward };
        self.communicator.receive(group, Stream::Compute, &input, from as usize);
        Some(input)
    }

    /// Passes on what this stage has made, to the next stage or back to the one before.
    fn send(&mut self, pass: Pass, output: Tensor) {
        let Some((forward, backward)) = &self.groups else { return };
        let stages = self.layout.pp;
        let (group, to) = if pass == Pass::Forward {
            (forward, (self.stage + 1) % stages)
        } else {
            (backward, (self.stage + stages - 1) % stages)
        };
        let computed = self.backend.record(Stream::Compute);
        self.backend.wait(Stream::Messages, &computed);
        self.communicator.send(group, Stream::Messages, &output, to as usize);
        self.sending.push_back((output, self.backend.record(Stream::Messages)));
        self.settle(MOST_SENDING);
    }

    /// Frees sent messages until this many are left.
    fn settle(&mut self, left: usize) {
        while self.sending.len() > left {
            if let Some((_, sent)) = self.sending.pop_front() {
                self.backend.wait(Stream::Compute, &sent);
            }
        }
    }
}
