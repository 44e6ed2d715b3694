//! What is recorded of this process, and when: one recording, in which windows open and close.

use std::{
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use stepscope_collector::{
    Recorder,
    cupti::{Activity, Traced, Unavailable},
    nvml::{LeftOut, SAMPLE_EVERY, Sampler},
};
use stepscope_traces::{CollectorNote, Nanos, NvmlNote, Pauses, PeakFlopsFrom, RECORDED_WINDOW, Span, SpanKind, now};

use crate::{
    gpu::{self, Gpu},
    gpu_window::{Attempt, GpuRecorded, GpuWindow, Stretch, Tracer, Wishes},
    nccl, other_profiler, place,
    process::{self, Given},
    program, rank_assignment,
    recording::{self, recorder},
    torch,
};

/// How long work may take to end on the device after it was last traced, since the host runs ahead of it; and the program to
/// come by and end its history.
const SETTLE: Duration = Duration::from_secs(1);

/// What is to be recorded now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Nothing,
    /// Steps, phases and samples of the GPU: recording rests.
    OnlySteps,
    All,
}

/// The recording, and the window that is open.
pub(crate) struct Session {
    run: PathBuf,
    whole_graphs: bool,
    gpu: Option<Gpu>,
    window: Option<Window>,
    /// Those of the windows before.
    pauses: Pauses,
    /// Whether nothing can be recorded, which was said.
    failed: bool,
}

/// Whatever of it there is: what cannot be watched is noted in the recording.
struct Window {
    gpu: GpuWindow<Cupti>,
    sampler: Option<Sampler>,
    /// Since when nothing new is recorded.
    closing: Option<Instant>,
}

impl Session {
    /// Of a run, in which graphs are recorded as a whole or not.
    pub(crate) fn new(run: &Path, whole_graphs: bool) -> Session {
        let (run, pauses) = (run.to_owned(), Pauses::default());
        Session { run, whole_graphs, gpu: None, window: None, pauses, failed: false }
    }

    /// Opens a window or closes it, as is asked for; finds out on which GPU.
    pub(crate) fn look(&mut self, wish: Wish) {
        let is_open = wish != Wish::Nothing;
        self.share_cupti(is_open, wish == Wish::OnlySteps);
        match self.window.as_ref().map(|window| window.closing) {
            None if is_open => self.open(),
            None => {}
            Some(None) if is_open => {
                self.find_gpu();
                recorder().into_iter().for_each(nccl::tell);
            }
            Some(None) => self.begin_to_close(),
            Some(Some(_)) if is_open => {
                self.close();
                self.open();
            }
            Some(Some(since)) if since.elapsed() < SETTLE => {}
            Some(Some(_)) => self.close(),
        }
    }

    /// How much of the GPU is recorded now.
    pub(crate) fn recorded(&self) -> GpuRecorded {
        let open = self.window.as_ref().filter(|window| window.closing.is_none());
        open.map_or(GpuRecorded::Unknown, |window| window.gpu.recorded())
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
                Ok(recorder) => {
                    recorder.when_asked(answer);
                    recording::begin(recorder)
                }
                Err(error) => {
                    self.failed = true;
                    return process::complain(&error.to_string());
                }
            },
        };
        // Some of this may have been said before there was anybody to tell. Whatever is recorded is in its step.
        place::tell();
        let wishes = Wishes { own_profiler: other_profiler::is_wanted(), rest: false };
        let gpu = GpuWindow::open(Cupti { recorder, whole_graphs: self.whole_graphs }, self.pauses, wishes, now);
        torch::open_window();
        program::tell_model(recorder);
        torch::tell(recorder);
        self.window = Some(Window { gpu, sampler: None, closing: None });
        self.note_pauses();
        self.sample();
    }

    /// Lets the program's own profiler have CUPTI while it runs, and has it rest as is asked for. Steps and phases are recorded on,
    /// and memory while that profiler runs; only the GPU's time then belongs to no window.
    fn share_cupti(&mut self, is_open: bool, rest: bool) {
        let (Some(window), Some(recorder)) = (&mut self.window, recorder()) else { return };
        let is_wanted = other_profiler::is_wanted();
        // A window that closes anyway takes nothing back.
        if !is_wanted && (!is_open || window.closing.is_some()) {
            return;
        }
        if let Some(stretch) = window.gpu.look(Wishes { own_profiler: is_wanted, rest }, now) {
            record_window(recorder, stretch);
        }
        if window.closing.is_none() {
            torch::rest(rest);
        }
        self.note_pauses();
    }

    /// Says how often the program's own profiler ran, if that is news.
    fn note_pauses(&mut self) {
        let pauses = self.window.as_ref().map_or(self.pauses, |window| window.gpu.pauses);
        if let Some(recorder) = recorder().filter(|_| pauses != self.pauses) {
            self.pauses = pauses;
            recorder.note(CollectorNote::OtherProfiler(pauses));
        }
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
            recorder.note(CollectorNote::GpuUuid(gpu.selector.to_string()));
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
        if let (Some(window), Some(recorder)) = (&mut self.window, recorder()) {
            // The program runs at its own speed from here on, not when all else is done.
            if let Some(stretch) = window.gpu.stop(now) {
                record_window(recorder, stretch);
            }
            window.closing = Some(Instant::now());
            torch::close_window();
        }
    }

    fn close(&mut self) {
        if let (Some(window), Some(recorder)) = (self.window.take(), recorder()) {
            nccl::tell(recorder);
            self.end(window, recorder, Activity::finish);
            other_profiler::let_go();
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
            self.end(window, recorder, Activity::finish_with_process);
        }
        // The writer has said on stderr what went wrong, if anything did.
        drop(recorder.clone().finish());
    }

    fn end(&mut self, window: Window, recorder: &Recorder, finish: impl FnOnce(Activity)) {
        let left_out = window.sampler.map_or_else(Vec::new, Sampler::finish);
        if let Some(note) = LeftOut::note(&left_out) {
            recorder.note(note);
        }
        let (stretch, activity, pauses) = window.gpu.end(now());
        activity.map(finish);
        stretch.into_iter().for_each(|stretch| record_window(recorder, stretch));
        if pauses != self.pauses {
            self.pauses = pauses;
            recorder.note(CollectorNote::OtherProfiler(pauses));
        }
    }
}

/// Says what NCCL was asked for last, when somebody asks, and has Python say where it is, if it can.
fn answer(asked: Nanos) -> bool {
    if let (Some(recorder), Some(in_flight)) = (recorder(), nccl::in_flight()) {
        recorder.note(CollectorNote::InFlight(in_flight));
    }
    torch::ask(asked)
}

/// What lies between windows was not idle: nobody looked.
fn record_window(recorder: &Recorder, (start, end): Stretch) {
    recorder.record(Span::new(SpanKind::Range, recorder.name(RECORDED_WINDOW), start, end - start));
}

/// CUPTI, for the recording of this process.
struct Cupti {
    recorder: &'static Recorder,
    whole_graphs: bool,
}

impl Tracer for Cupti {
    type Attached = Activity;

    fn attach(&self, again: bool) -> Attempt<Activity> {
        if !other_profiler::take() {
            return Attempt::IsTaken;
        }
        // What PyTorch takes from the driver it says itself, and what for.
        let traced = Traced { memory: !torch::is_expected(), whole_graphs: self.whole_graphs };
        // If that cannot be, the recording says why.
        let start = if again { Activity::start_again } else { Activity::start_with };
        start(self.recorder, traced).map_or_else(
            |unavailable| match unavailable {
                Unavailable::AnotherClient => {
                    other_profiler::let_go();
                    Attempt::IsTaken
                }
                _ => Attempt::IsMissing,
            },
            Attempt::Attached,
        )
    }

    fn rest(&self, activity: &Activity) {
        activity.stop_tracing();
        if activity.sees_graphs() {
            thread::sleep(SETTLE);
        } else {
            gpu::wait_until_done_within(SETTLE);
        }
        activity.rest();
        other_profiler::let_go();
    }

    fn go_on(&self, activity: &Activity) -> bool {
        other_profiler::take() && activity.go_on().inspect_err(|_| other_profiler::let_go()).is_ok()
    }

    fn let_go(&self, activity: Option<Activity>) {
        if let Some(activity) = activity {
            activity.stop_tracing();
            // What has been launched is still recorded, unless that takes long.
            gpu::wait_until_done_within(SETTLE);
            activity.let_go();
        }
        other_profiler::let_go();
    }
}
