//! What is recorded of this process, and when: one recording, in which windows open and close.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use stepscope_collector::{
    Recorder,
    cupti::{Activity, Traced},
    nvml::{LeftOut, SAMPLE_EVERY, Sampler},
};
use stepscope_traces::{CollectorNote, Nanos, NvmlNote, PeakFlopsFrom, RECORDED_WINDOW, Span, SpanKind, now};

use crate::{
    gpu::{self, Gpu},
    nccl, place,
    process::{self, Given},
    program, rank_assignment,
    recording::{self, recorder},
    torch,
};

/// How long work may take to end on the device after a window closes: the host runs ahead of it.
const SETTLE: Duration = Duration::from_secs(1);

/// The recording, and the window that is open.
pub(crate) struct Session {
    run: PathBuf,
    gpu: Option<Gpu>,
    window: Option<Window>,
    /// Whether nothing can be recorded, which was said.
    failed: bool,
}

/// Whatever of it there is: what cannot be watched is noted in the recording.
struct Window {
    began: Nanos,
    activity: Option<Activity>,
    sampler: Option<Sampler>,
    /// Since when nothing new is traced.
    closing: Option<(Instant, Nanos)>,
}

impl Session {
    pub(crate) fn new(run: &Path) -> Session {
        Session { run: run.to_owned(), gpu: None, window: None, failed: false }
    }

    /// Opens a window or closes it, as is asked for; finds out on which GPU.
    pub(crate) fn look(&mut self, is_open: bool) {
        match self.window.as_ref().map(|window| window.closing) {
            None if is_open => self.open(),
            None => {}
            Some(None) if is_open => {
                self.find_gpu();
                recorder().into_iter().for_each(nccl::tell);
            }
            Some(None) => self.begin_to_close(),
            Some(Some((since, _))) if since.elapsed() < SETTLE => {}
            Some(Some(_)) => self.close(),
        }
    }

    /// Begins to record, or to record again.
    pub(crate) fn open(&mut self) {
        if self.failed {
            return;
        }
        let recorder = match recorder() {
            Some(recorder) => {
                recorder.resume();
                recorder
            }
            None => match rank_assignment::take(&self.run, Given::of_this_process()) {
                Ok(recorder) => recording::begin(recorder),
                Err(error) => {
                    self.failed = true;
                    return process::complain(&error.to_string());
                }
            },
        };
        // If that cannot be, the recording says why.
        // What PyTorch takes from the driver it says itself, and what for.
        let activity = Activity::start_with(recorder, Traced { memory: !torch::is_expected() }).ok();
        torch::open_window();
        // All of this may have been said before there was anybody to tell.
        place::tell();
        program::tell_model(recorder);
        torch::tell(recorder);
        self.window = Some(Window { began: now(), activity, sampler: None, closing: None });
        self.sample();
    }

    /// Which GPU a process uses shows only some time after CUDA began.
    fn find_gpu(&mut self) {
        if self.gpu.is_some() {
            return;
        }
        self.gpu = Gpu::in_use();
        if let (Some(gpu), Some(recorder)) = (&self.gpu, recorder()) {
            recorder.set_device(gpu.description.clone());
            if gpu.description.peak_flops.is_some() {
                recorder.note(CollectorNote::PeakFlops(PeakFlopsFrom::AssumedBf16));
            }
            if gpu.beside > 0 {
                recorder.note(CollectorNote::OtherGpus(gpu.beside as u64));
            }
            self.sample();
        }
    }

    fn sample(&mut self) {
        let (Some(gpu), Some(window), Some(recorder)) = (&self.gpu, &mut self.window, recorder()) else { return };
        match Sampler::start(&self.run, recorder, &gpu.selector, SAMPLE_EVERY) {
            Ok(sampler) => window.sampler = sampler,
            Err(why) => recorder.note(CollectorNote::Nvml(NvmlNote::NotSampled { why: why.to_string() })),
        }
    }

    fn begin_to_close(&mut self) {
        if let Some(window) = &mut self.window {
            window.activity.iter().for_each(Activity::stop_tracing);
            window.closing = Some((Instant::now(), now()));
            torch::begin_to_close_window();
        }
    }

    fn close(&mut self) {
        if let (Some(window), Some(recorder)) = (self.window.take(), recorder()) {
            nccl::tell(recorder);
            torch::close_window();
            window.end(recorder, Activity::finish);
            recorder.pause();
        }
    }

    /// Records what is left, and ends the recording: the process ends.
    pub(crate) fn finish(mut self) {
        let Some(recorder) = recorder() else { return };
        torch::end();
        if let Some(window) = self.window.take() {
            nccl::tell(recorder);
            gpu::wait_until_done();
            window.end(recorder, Activity::finish_with_process);
        }
        // The writer has said on stderr what went wrong, if anything did.
        drop(recorder.clone().finish());
    }
}

impl Window {
    fn end(self, recorder: &Recorder, finish: impl FnOnce(Activity)) {
        let left_out = self.sampler.map_or_else(Vec::new, Sampler::finish);
        if let Some(note) = LeftOut::note(&left_out) {
            recorder.note(note);
        }
        self.activity.map(finish);
        // What lies between windows was not idle: nobody looked. What is launched after tracing stops is not seen, either.
        let ended = self.closing.map_or_else(now, |(_, time)| time);
        recorder.record(Span::new(SpanKind::Range, recorder.name(RECORDED_WINDOW), self.began, ended - self.began));
    }
}
