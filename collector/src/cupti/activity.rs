//! What a program holds while its kernels are recorded.

use std::{
    sync::{
        Arc, Mutex,
        atomic::Ordering::{Relaxed, Release},
    },
    thread::JoinHandle,
};

use cudarc::driver::CudaStream;
use stepscope_traces::{CollectorNote, CuptiNote, Stream};

use super::{
    buffers::BUFFERS,
    drain::{LaunchesBy, Session},
    latest_kernel::TOLD_LATER,
    library,
    traced::Traced,
    unavailable::Unavailable,
    watched_calls,
};
use crate::{lock::lock, quiet_thread, recorder::Recorder, shared::Shared};

/// Records what runs on the process's GPUs, until it is finished or dropped.
///
/// Several recorders of one process, ranks that are threads, can each have one. A kernel is then the recorder's whose
/// thread launched it.
pub struct Activity {
    shared: Arc<Shared>,
    session: Arc<Session>,
    is_over: bool,
}

/// What becomes of CUPTI when the last of a process's recordings ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Afterwards {
    Detached,
    /// Still in the process, and free to be used by another profiler.
    LetGo,
    /// As it is: the process ends.
    Kept,
}

/// CUPTI is attached to a process once.
static CURRENT: Mutex<Option<Current>> = Mutex::new(None);

struct Current {
    session: Arc<Session>,
    thread: JoinHandle<()>,
    version: u32,
}

impl Activity {
    /// Attaches CUPTI and records kernels, copies and fills. If that cannot be, the recording goes on without, and says
    /// why.
    pub fn start(recorder: &Recorder) -> Result<Activity, Unavailable> {
        Activity::start_with(recorder, Traced::default())
    }

    /// Records other things too.
    pub fn start_with(recorder: &Recorder, traced: Traced) -> Result<Activity, Unavailable> {
        let shared = recorder.shared_arc().filter(|shared| !shared.is_forked()).ok_or(Unavailable::NotRecording)?;
        let attached = attach(shared, traced, LaunchesBy::Notes);
        if let Err(Unavailable::AlreadyStarted) = attached {
            return Err(Unavailable::AlreadyStarted);
        }
        let note = match &attached {
            Ok((_, version)) => CuptiNote::Recorded { api_version: *version },
            Err(unavailable) => CuptiNote::NotRecorded { why: unavailable.to_string() },
        };
        shared.note(CollectorNote::Cupti(note));
        attached.map(|(session, _)| Activity { shared: shared.clone(), session, is_over: false })
    }

    /// Records again after [`Activity::let_go`], also while another profiler keeps its subscription and traces nothing. If that
    /// cannot be, the recording has what it has, and says nothing new.
    pub fn start_again(recorder: &Recorder, traced: Traced) -> Result<Activity, Unavailable> {
        let shared = recorder.shared_arc().filter(|shared| !shared.is_forked()).ok_or(Unavailable::NotRecording)?;
        let (session, api_version) = match attach(shared, traced, LaunchesBy::Notes) {
            Err(Unavailable::AnotherClient) => attach(shared, traced, LaunchesBy::Records)?,
            attached => attached?,
        };
        shared.note(CollectorNote::Cupti(CuptiNote::Recorded { api_version }));
        Ok(Activity { shared: shared.clone(), session, is_over: false })
    }

    /// Says which number a stream has in the recording. Streams without one get numbers from 16 on.
    pub fn name_stream(&self, stream: &CudaStream, number: Stream) -> Result<(), Unavailable> {
        let place = library::numbers_of(stream)?;
        self.session.translator().streams.name(self.shared.id, place, number);
        Ok(())
    }

    /// Says that the program hands out memory in order of a stream. What it records of its memory from now on then has the
    /// time at which that is so on the device: an allocation where the next launch there begins, and a free where the
    /// last one before it ended. Where that cannot be known, it is the host's time.
    ///
    /// Launches and memory events are in order within a thread. So the thread that records a block's memory is the one
    /// that launches what uses it.
    pub fn order_memory_by(&self, stream: &CudaStream) -> Result<(), Unavailable> {
        let place = library::numbers_of(stream)?;
        self.session.translator().order_memory(&self.shared, place);
        Ok(())
    }

    /// Records what is left; the last one detaches CUPTI, and the program runs as if it had never been there.
    ///
    /// To be called after the work has been waited for, and before the recorder is finished: a kernel that has not ended
    /// counts as dropped. With several recorders, when all their work has been waited for.
    pub fn finish(self) {
        drop(self);
    }

    /// Traces nothing that is launched from now on, unless for another recorder. What runs by then comes as it ends: for
    /// a program that is not waited for, some time before [`Activity::finish`].
    pub fn stop_tracing(&self) {
        if !self.shared.is_forked() && !self.session.rests() && self.session.translator().has_only(&self.shared) {
            library::disable();
        }
    }

    /// Whether the program has graphs, or records one. Then nobody may wait for its device: that ends what is recorded.
    pub fn sees_graphs(&self) -> bool {
        watched_calls::has_graphs()
    }

    /// Records what is left and detaches CUPTI, for a while: see [`Activity::go_on`]. The program runs as if it had never been
    /// there. To be called some time after [`Activity::stop_tracing`]. Does nothing if CUPTI serves another recorder too.
    pub fn rest(&self) {
        let _current = lock(&CURRENT);
        if self.shared.is_forked() || !self.session.translator().has_only(&self.shared) || self.session.rests() {
            return;
        }
        library::disable();
        self.session.rest();
        library::detach();
        BUFFERS.clear();
    }

    /// Attaches CUPTI again after [`Activity::rest`].
    pub fn go_on(&self) -> Result<(), Unavailable> {
        let _current = lock(&CURRENT);
        if self.shared.is_forked() || !self.session.rests() {
            return Ok(());
        }
        library::attach(self.session.traced)?;
        TOLD_LATER.store(false, Relaxed);
        self.session.go_on();
        Ok(())
    }

    /// Records what is left, and leaves CUPTI where it is: for the end of a process, where detaching gains nothing.
    pub fn finish_with_process(mut self) {
        self.end(Afterwards::Kept);
    }

    /// Records what is left, and leaves CUPTI to another profiler of this process. It is not detached: what the program has
    /// prepared while it was there, such as graphs, runs on as it is.
    pub fn let_go(mut self) {
        self.end(Afterwards::LetGo);
    }

    fn end(&mut self, afterwards: Afterwards) {
        if std::mem::replace(&mut self.is_over, true) || self.shared.is_forked() {
            // CUPTI is the parent's, and so is whoever may hold the locks.
            return;
        }
        let mut current = lock(&CURRENT);
        let is_last = self.session.translator().has_only(&self.shared);
        // While it rests there is nothing to record, and nobody to ask for it.
        let is_attached = !self.session.rests();
        if is_attached {
            if is_last {
                library::disable();
            }
            library::flush(true);
            self.session.drain_all();
        }
        let is_used = self.session.translator().leave(&self.shared);
        if let Some(Current { thread, .. }) = current.take_if(|_| !is_used) {
            self.session.ending.store(true, Release);
            thread.thread().unpark();
            // If it panicked, what it would have done was done above.
            drop(thread.join());
            match afterwards {
                _ if !is_attached => {}
                Afterwards::Detached => library::detach(),
                Afterwards::LetGo => library::unsubscribe(),
                Afterwards::Kept => return,
            }
            BUFFERS.clear();
        }
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        self.end(Afterwards::Detached);
    }
}

/// Joins the session there is, or begins one.
fn attach(shared: &Arc<Shared>, traced: Traced, launches_by: LaunchesBy) -> Result<(Arc<Session>, u32), Unavailable> {
    let mut current = lock(&CURRENT);
    if let Some(Current { session, version, .. }) = &*current {
        library::enable(traced)?;
        let is_new = session.listen(shared);
        return if is_new { Ok((session.clone(), *version)) } else { Err(Unavailable::AlreadyStarted) };
    }
    // Nothing of a session before this one is to be read.
    BUFFERS.clear();
    let session = Arc::new(Session::new(launches_by, traced));
    let version = match launches_by {
        LaunchesBy::Notes => library::attach(traced),
        LaunchesBy::Records => library::attach_beside(traced),
    }?;
    TOLD_LATER.store(launches_by == LaunchesBy::Records, Relaxed);
    // The first reading of the clocks, before the first kernel.
    session.drain();
    let for_thread = session.clone();
    let thread = quiet_thread::spawn("stepscope-cupti", move || for_thread.run()).map_err(|_| {
        library::detach();
        Unavailable::NoThread
    })?;
    session.listen(shared);
    *current = Some(Current { session: session.clone(), thread, version });
    Ok((session, version))
}
