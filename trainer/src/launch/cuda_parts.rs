//! What a rank on a GPU runs on, from the first to the last: its device, its way to the others, and who watches.

use std::{path::Path, sync::Arc};

use stepscope_collector::Recorder;

use super::{cuda::Seat, watch::Watch};
use crate::{
    backend::{
        Backend,
        cuda::{CudaBackend, Device},
    },
    comm::{Communicator, Groups, alone::Alone, nccl::NcclCommunicator},
    config::TrainConfig,
    error::TrainError,
    parts::RankParts,
    rendezvous::Link,
};

/// What a rank on a GPU runs on. What comes first here is let go of first.
pub(super) struct CudaParts {
    others: Option<Others>,
    watch: Option<Watch>,
    pub(super) backend: Arc<CudaBackend>,
    recorder: Recorder,
}

/// A rank's way to others.
struct Others {
    communicator: Arc<NcclCommunicator>,
    link: Arc<Link>,
}

impl CudaParts {
    /// Loads what it takes, and connects to the other ranks.
    pub(super) fn start(
        config: &TrainConfig,
        device: Device,
        seat: Seat,
        run: Option<&Path>,
        recorder: &Recorder,
    ) -> Result<CudaParts, TrainError> {
        let backend = Arc::new(CudaBackend::start(device, recorder.clone(), config.deterministic)?);
        let mut parts = CudaParts { others: None, watch: None, backend, recorder: recorder.clone() };
        if let Some(link) = seat.link {
            let groups = Groups::of(&config.layout, seat.rank);
            match NcclCommunicator::connect(&link, &groups, &parts.backend, recorder) {
                Ok(communicator) => parts.others = Some(Others { communicator: Arc::new(communicator), link }),
                Err(error) => {
                    let error = link.cause_of(error);
                    link.fail(&error);
                    return Err(parts.fail(error));
                }
            }
        }
        // After what libraries do and take for themselves, and before what the rank does.
        if let Some(run) = run {
            parts.watch(run)?;
        }
        Ok(parts)
    }

    /// What the training is given of it.
    pub(super) fn for_training(&self) -> RankParts {
        let communicator: Arc<dyn Communicator> = match &self.others {
            Some(others) => others.communicator.clone(),
            None => Arc::new(Alone(self.backend.clone())),
        };
        RankParts { backend: self.backend.clone(), communicator, recorder: self.recorder.clone() }
    }

    /// Tells everyone why this rank cannot go on, and lets go of what would wait for them: the reason, if another rank is
    /// behind it.
    pub(super) fn fail(&mut self, error: TrainError) -> TrainError {
        let error = match &self.others {
            Some(Others { communicator, link }) => {
                let error = link.cause_of(error);
                link.fail(&error);
                communicator.abort();
                error
            }
            None => error,
        };
        self.end_watch();
        self.recorder.clone().abandon(&error.to_string());
        error
    }

    /// Ends it while the device is still there, which what it has not read yet is of.
    fn end_watch(&mut self) {
        // Whatever it says, nothing runs after this.
        drop(self.backend.device().synchronize());
        self.watch.take().into_iter().for_each(Watch::finish);
    }

    /// Watches again, if it does not.
    pub(super) fn watch(&mut self, run: &Path) -> Result<(), TrainError> {
        if self.watch.is_none() {
            self.recorder.resume();
            let device = self.backend.device();
            let mut watch = Watch::start(&self.recorder, device);
            watch.sample(run, &device.selector()?);
            self.watch = Some(watch);
        }
        Ok(())
    }

    /// Records nothing from now on.
    pub(super) fn unwatch(&mut self) {
        self.watch.take().into_iter().for_each(Watch::finish);
        self.recorder.pause();
    }

    /// Waits until this rank has finished and no other rank needs it.
    pub(super) fn settle(&self) -> Result<(), TrainError> {
        self.backend.synchronize()?;
        match &self.others {
            Some(others) => others.link.exchange("the end of communication", Vec::new()).map(drop),
            None => Ok(()),
        }
    }

    /// Gives everything back, and ends the recording.
    pub(super) fn finish(mut self) {
        self.end_watch();
        let CudaParts { others, backend, recorder, .. } = self;
        drop(others);
        drop(backend);
        super::end_recording(recorder);
    }
}
