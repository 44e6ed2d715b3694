//! A rank's ends of its lines, and the thread that watches over them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak, mpsc},
    thread,
    time::{Duration, Instant},
};

use super::{call::Call, flights::Flights, library::Member};
use crate::{
    backend::cuda::{CudaBackend, Mark},
    comm::trouble::LOOK_EVERY,
    error::TrainError,
    lock::{lock, lock_until},
    rendezvous::{Channel, Link},
};
use cudarc::driver::sys::CUstream;

/// How long to wait until NCCL is let go of.
const ABORTED_WITHIN: Duration = Duration::from_secs(3);

/// A rank's ends of its lines, and what it has asked of them.
pub(super) struct Members {
    link: Arc<Link>,
    backend: Weak<CudaBackend>,
    /// Nothing in a channel's place when NCCL has been let go of.
    members: HashMap<Channel, Arc<Mutex<Option<Member>>>>,
    pub(super) flights: Flights<Mark>,
    ended: Mutex<bool>,
}

impl Members {
    pub(super) fn new(link: &Arc<Link>, backend: &Arc<CudaBackend>, members: Vec<(Channel, Member)>) -> Members {
        Members {
            link: link.clone(),
            backend: Arc::downgrade(backend),
            members: members
                .into_iter()
                .map(|(channel, member)| (channel, Arc::new(Mutex::new(Some(member)))))
                .collect(),
            flights: Flights::default(),
            ended: Mutex::new(false),
        }
    }

    /// Queues calls of tensors' arrays on a stream of their device; they are done as one.
    #[allow(unsafe_code, reason = "NCCL takes addresses")]
    pub(super) fn call(&self, channel: &Channel, calls: &[Call], stream: CUstream) -> Result<(), String> {
        let member = self.members.get(channel).map(|member| lock(member));
        match member.as_deref() {
            // SAFETY: arrays of tensors are the device's memory, and whoever queues an operation keeps its tensors until
            // the stream is past it.
            Some(Some(member)) => unsafe { member.call_together(calls, stream) },
            Some(None) => Err("NCCL has been let go of".into()),
            None => Err(format!("this rank has no part in {channel:?}")),
        }
    }

    /// Follows what the device does, until the rank ends or there is trouble.
    pub(super) fn watch(&self) {
        while !*lock(&self.ended) {
            if let Err(error) = self.link.trouble.check() {
                // Before kernels are let go of, so that nobody takes what they leave for a result.
                if let Some(backend) = self.backend.upgrade() {
                    backend.fail(error);
                }
                return self.abort();
            }
            // What the device says is wrong the rank hears too, and can tell more of.
            if self.flights.look(&self.link.progress, Mark::is_past).is_err() {
                return;
            }
            let members = self.members.values().filter_map(|member| member.try_lock().ok());
            let trouble = members.filter_map(|member| member.as_ref().and_then(Member::trouble)).next();
            if let Some(why) = trouble {
                let error = TrainError::Device { action: "talk to other ranks".into(), why };
                self.link.fail(&self.link.cause_of(error));
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Ends the watch.
    pub(super) fn end(&self) {
        *lock(&self.ended) = true;
    }

    /// Lets go of NCCL, whatever is queued: of all lines at once, since giving back the memory of one waits for the kernels
    /// of all. What takes longer than it should, since it waits for other ranks, is left behind.
    pub(super) fn abort(&self) {
        let deadline = Instant::now() + ABORTED_WITHIN;
        let (tell, hear) = mpsc::channel();
        for member in self.members.values() {
            let (member, tell) = (member.clone(), tell.clone());
            let abort = move || {
                // A call that does not end keeps it. Whoever comes second waits for the first.
                if let Some(mut member) = lock_until(&member, deadline) {
                    member.take().into_iter().for_each(Member::abort);
                }
                drop(tell);
            };
            // Without a thread it stays as it is, and goes with the process.
            drop(thread::Builder::new().name("letting go".into()).spawn(abort));
        }
        drop(tell);
        // Nothing is ever said: it ends when all threads have.
        let _: Result<(), _> = hear.recv_timeout(ABORTED_WITHIN);
    }
}
