//! What the program's threads leave for ours, within bounds.

use std::sync::{Mutex, PoisonError};

use stepscope_traces::{FollowedMemory, Mark, Observation};

/// So many marks and addresses may wait; what comes then is left out, and what it would say is inferred.
const MOST: usize = 1 << 20;

static INBOX: Mutex<Inbox> = Mutex::new(Inbox::EMPTY);

/// What was left.
#[derive(Debug)]
pub(super) struct Inbox {
    marks: Vec<Mark>,
    observations: Vec<Observation>,
    addresses: usize,
    pub(super) buffers: Vec<u64>,
    pub(super) device: Option<u32>,
    /// Whether the history began anew before all of this.
    began_anew: bool,
}

impl Inbox {
    const EMPTY: Inbox = Inbox {
        marks: Vec::new(),
        observations: Vec::new(),
        addresses: 0,
        buffers: Vec::new(),
        device: None,
        began_anew: false,
    };

    pub(super) fn mark(&mut self, mark: Mark) {
        if self.marks.len() < MOST {
            self.marks.push(mark);
        }
    }

    pub(super) fn observe(&mut self, observation: Observation) {
        self.addresses += observation.addresses.len();
        if self.addresses < MOST {
            self.observations.push(observation);
        }
    }

    /// Hands everything to the code that assigns memory categories.
    pub(super) fn give_to(self, memory: &mut FollowedMemory) {
        if self.began_anew {
            memory.break_off();
        }
        self.device.into_iter().for_each(|device| memory.follow_device(device));
        self.marks.into_iter().for_each(|mark| memory.mark(mark));
        self.observations.iter().for_each(|observation| memory.observe(observation));
        memory.expect_buffers(self.buffers);
    }
}

/// Leaves something.
pub(super) fn leave(what: impl FnOnce(&mut Inbox)) {
    what(&mut INBOX.lock().unwrap_or_else(PoisonError::into_inner));
}

/// Forgets what was left, and says that the history begins anew.
pub(super) fn begin_anew() {
    leave(|inbox| *inbox = Inbox { began_anew: true, ..Inbox::EMPTY });
}

/// Takes what was left.
pub(super) fn take() -> Inbox {
    std::mem::replace(&mut INBOX.lock().unwrap_or_else(PoisonError::into_inner), Inbox::EMPTY)
}
