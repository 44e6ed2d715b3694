//! A program that records itself, for tests that do it harm: `recording_child RUN MODE`.

use std::{
    env,
    path::PathBuf,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::{
        resource::{Resource, setrlimit},
        wait::waitpid,
    },
    unistd::{ForkResult, fork},
};
use stepscope_collector::Recorder;
use stepscope_traces::{MemoryCategory, Phase, Rank, RankInfo, RunInfo, SpanKind, Step, Stream};

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut arguments = env::args().skip(1);
    let (Some(path), Some(mode)) = (arguments.next(), arguments.next()) else {
        return Err("usage: recording_child RUN MODE".into());
    };
    let path = PathBuf::from(path);
    RunInfo::of_this_process("child").create(&path)?;
    let recorder = Recorder::start(&path, RankInfo::of_this_process(Rank(0)))?;
    match mode.as_str() {
        "for-ever" => record_for_ever(&recorder),
        "idle" => record_and_idle(&recorder),
        "full-disk" => {
            setrlimit(Resource::RLIMIT_FSIZE, 100_000, 100_000)?;
            record_for(&recorder, Duration::from_secs(2));
            let ended = recorder.finish();
            println!("finished: {}", ended.is_ok());
        }
        "panic" => {
            record_for(&recorder, Duration::from_millis(20));
            let _step = recorder.step(Step(99));
            panic!("the program's own fault");
        }
        "fork" => {
            record_for(&recorder, Duration::from_millis(20));
            #[expect(unsafe_code, reason = "there is no other way to fork")]
            // SAFETY: the child only records, drops the recorder and exits, which is what is tested.
            match unsafe { fork() }? {
                ForkResult::Child => {
                    (0..1000).for_each(|_| step(&recorder, 1_000_000));
                    drop(recorder);
                    return Ok(ExitCode::from(7));
                }
                ForkResult::Parent { child } => println!("child: {:?}", waitpid(child, None)?),
            }
            println!("finished: {}", recorder.finish().is_ok());
        }
        "no-finish" => record_for(&recorder, Duration::from_millis(20)),
        other => return Err(format!("no such mode: {other}").into()),
    }
    // Not a status any runtime has by itself: the program's own.
    Ok(ExitCode::from(42))
}

/// One step of work that is not there.
fn step(recorder: &Recorder, number: u64) {
    let _step = recorder.step(Step(number as i32));
    let _phase = recorder.phase(Phase::Forward);
    let kernel = recorder.name("kernel");
    recorder.allocate(number, 1024, MemoryCategory::Activations);
    for index in 0..8 {
        drop(recorder.span(SpanKind::Kernel, kernel).stream(Stream(0)).bytes(number * 8 + index));
    }
    recorder.free(number);
}

/// Records at a pace at which nothing is dropped.
fn record_for(recorder: &Recorder, time: Duration) {
    let began = Instant::now();
    for number in 0.. {
        step(recorder, number);
        thread::sleep(Duration::from_micros(100));
        if began.elapsed() >= time {
            return;
        }
    }
}

/// Says on stdout that the first step was recorded, and goes on.
fn record_for_ever(recorder: &Recorder) {
    for number in 0.. {
        step(recorder, number);
        if number == 0 {
            println!("1");
        }
        if number % 16 == 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Says on stdout how many steps were recorded, and does nothing more.
fn record_and_idle(recorder: &Recorder) {
    let recorded = 500;
    (0..recorded).for_each(|number| step(recorder, number));
    println!("{recorded}");
    loop {
        thread::park();
    }
}
