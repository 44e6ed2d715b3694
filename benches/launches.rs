//! What recording adds to one launch, part by part: `cargo bench --bench launches`.
//!
//! A program that does nothing but launch an empty kernel takes turns between states, each of which adds a part to the one
//! before, in one process. A figure is the median over all rounds of the difference within a round.
#![allow(unsafe_code, reason = "whoever launches a kernel says that it is right")]

mod figures;

use std::{error::Error, sync::Arc, time::Instant};

use cudarc::{
    driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig},
    nvrtc::Ptx,
};
use stepscope_collector::{LaunchInfo, Recorder, cupti::Activity};
use stepscope_traces::{MemoryCategory, Phase, Rank, RankInfo, RunInfo, Step};
use stepscope_trainer::look_for_gpu;

use crate::figures::Estimate;

type Outcome<T> = Result<T, Box<dyn Error>>;

const ROUNDS: usize = 24;
/// A device takes so many launches before its host has to wait.
const LAUNCHES: usize = 500;
const BATCHES: usize = 8;

const EMPTY: &str = ".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry nothing() { ret; }";

/// What is added, in this order.
const PARTS: [&str; 5] = [
    "the launch itself",
    "CUPTI, attached and tracing nothing",
    "CUPTI's records and callbacks, our note",
    "what the program says of the launch",
    "a block of memory, taken and given back",
];

fn main() -> Outcome<()> {
    if let Err(why) = look_for_gpu(1) {
        println!("SKIPPED, nothing was measured: {why}");
        return Ok(());
    }
    let program = Program::new()?;
    let directory = tempfile::tempdir()?;
    let run = directory.path().join("run");
    RunInfo::of_this_process("launches").create(&run)?;
    let recorder = Recorder::start(&run, RankInfo::of_this_process(Rank(0)))?;
    program.round(&recorder, 0)?;
    let mut parts = [(); PARTS.len()].map(|()| Vec::new());
    for round in 0..ROUNDS {
        recorder.set_process_context(Some(Step(round as i32)), Some(Phase::Forward));
        let mut took = [0.0; PARTS.len()];
        // Every second round goes the other way, so that a machine that becomes slower favors none.
        for turn in 0..PARTS.len() {
            let state = if round % 2 == 0 { turn } else { PARTS.len() - 1 - turn };
            took[state] = program.round(&recorder, state)?;
        }
        for (part, times) in parts.iter_mut().enumerate() {
            times.push(took[part] - if part == 0 { 0.0 } else { took[part - 1] });
        }
    }
    recorder.finish()?;
    println!("{:<42} {:>10} {:>20}", "part", "ns/launch", "quartiles");
    for (name, times) in PARTS.iter().zip(parts) {
        let Estimate { value, .. } = Estimate::of(times.clone(), |sorted| sorted[sorted.len() / 2]);
        let quartile =
            |numerator: usize| Estimate::of(times.clone(), |sorted| sorted[(sorted.len() - 1) * numerator / 4]).value;
        println!("{name:<42} {value:>10.0} {:>20}", format!("{:.0} to {:.0}", quartile(1), quartile(3)));
    }
    Ok(())
}

/// A program that launches.
struct Program {
    stream: Arc<CudaStream>,
    kernel: CudaFunction,
}

impl Program {
    fn new() -> Outcome<Program> {
        let context = CudaContext::new(0)?;
        let kernel = context.load_module(Ptx::from_src(EMPTY))?.load_function("nothing")?;
        Ok(Program { stream: context.new_stream()?, kernel })
    }

    /// Nanoseconds of a launch, with the parts up to a state.
    fn round(&self, recorder: &Recorder, state: usize) -> Outcome<f64> {
        let activity = if state > 0 { Some(Activity::start(recorder)?) } else { None };
        if let (1, Some(activity)) = (state, &activity) {
            activity.stop_tracing();
        }
        let mut batches = Vec::new();
        for _ in 0..BATCHES {
            let began = Instant::now();
            for launch in 0..LAUNCHES as u64 {
                if state >= 4 {
                    recorder.allocate(launch << 12, 4096, MemoryCategory::Activations);
                }
                let info = LaunchInfo { flops: Some(launch), ..LaunchInfo::default() };
                let said = (state >= 3).then(|| recorder.launching(info));
                self.launch()?;
                drop(said);
                if state >= 4 {
                    recorder.free(launch << 12);
                }
            }
            batches.push(began.elapsed().as_nanos() as f64 / LAUNCHES as f64);
            self.stream.synchronize()?;
        }
        activity.into_iter().for_each(Activity::finish);
        Ok(Estimate::of(batches, |sorted| sorted[sorted.len() / 2]).value)
    }

    fn launch(&self) -> Outcome<()> {
        let one = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
        let mut launch = self.stream.launch_builder(&self.kernel);
        // SAFETY: it takes nothing and does nothing.
        unsafe { launch.launch(one) }?;
        Ok(())
    }
}
