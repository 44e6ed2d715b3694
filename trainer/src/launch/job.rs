//! A job of several processes, as one of them sees it.

use std::{fmt::Display, path::PathBuf, sync::Arc};

use stepscope_plan::ParallelLayout;
use stepscope_traces::Rank;

use super::{last_resort::LastResort, launcher::die_with_launcher};
use crate::{
    comm::Groups,
    config::TrainConfig,
    error::TrainError,
    rendezvous::{Hub, Link, RankAssignment},
};

/// A job that this process has joined. When it is in trouble and the process does not get out of it, the process is ended.
pub struct Job {
    link: Arc<Link>,
    last_resort: LastResort,
    hub: Option<Hub>,
    ended: bool,
}

impl Job {
    /// Joins the other ranks; comes back when all are there, or says which are not.
    pub fn join(assignment: &RankAssignment, config: &TrainConfig) -> Result<Job, TrainError> {
        config.check()?;
        let ranks = config.layout.world_size();
        if ranks != u64::from(assignment.world) {
            let (world, ParallelLayout { dp, cp, tp, pp, .. }) = (assignment.world, config.layout);
            let why =
                format!("{world} processes were started, but dp {dp} × cp {cp} × tp {tp} × pp {pp} needs {ranks}");
            return Err(TrainError::Settings(why));
        }
        die_with_launcher()?;
        let (settings, patience) = (config.settings(), config.patience);
        let hub = match assignment.rank {
            Rank(0) => Some(Hub::start(assignment, &settings, patience)?),
            _ => None,
        };
        match Link::join(assignment, &settings, Groups::describe(&config.layout), patience) {
            Ok(link) => Ok(Job { last_resort: LastResort::prepare(&link), link, hub, ended: false }),
            Err(error) => {
                hub.into_iter().for_each(Hub::close);
                Err(error)
            }
        }
    }

    /// Which rank this is.
    pub fn rank(&self) -> Rank {
        self.link.rank
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    pub(super) fn last_resort(&self) -> &LastResort {
        &self.last_resort
    }

    /// The path that rank 0 has for something.
    pub fn agree(&self, name: &str, path: PathBuf) -> Result<PathBuf, TrainError> {
        let text = serde_json::to_vec(&path).map_err(|error| TrainError::Settings(format!("{name}: {error}")))?;
        let paths = self.link.exchange(name, text)?;
        serde_json::from_slice(&paths[0]).map_err(|error| TrainError::Disagreement(format!("{name}: {error}")))
    }

    /// Waits until every rank is here.
    pub fn meet(&self, name: &str) -> Result<(), TrainError> {
        self.link.exchange(name, Vec::new()).map(drop)
    }

    /// Leaves the job: after everyone has done its part, or at once, telling them why.
    pub fn end<E: Display + From<TrainError>>(mut self, outcome: Result<(), E>) -> Result<(), E> {
        let outcome = outcome.and_then(|()| Ok(self.link.part()?));
        match &outcome {
            Ok(()) => self.last_resort.call_off(),
            Err(error) => self.link.leave(error.to_string()),
        }
        self.ended = true;
        outcome
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if !self.ended {
            let why = if std::thread::panicking() { "it panicked" } else { "it exited early" };
            self.link.leave(why.into());
        }
        self.link.close();
        self.hub.take().into_iter().for_each(Hub::close);
    }
}
