//! The fault campaign: what becomes of jobs, recordings, trainings and readers when disks, processes, clocks and networks fail.
//!
//! `cargo test --release --workspace --test faults` inflicts each fault once, and prints what came of it. Words behind `--` choose
//! faults by their names; `STEPSCOPE_FAULT_ROUNDS=100` inflicts each so many times, at other moments.
//!
//! What must hold: the job computes what it computes without us and ends with the same status, nothing is lost that readers
//! had seen, readers say what is wrong, and nobody panics or hangs.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on has failed")]

/// Clocks that step, and that differ between ranks.
mod clocks;
/// The dashboard in a terminal.
mod dashboard;
/// Disks and network file systems, under the recorder.
mod disks;
/// What a fault is, and how it is inflicted.
mod fault;
/// Strangers at the ports of `train` and `open`.
mod network;
/// What happens to processes that are recorded, and what they do.
mod processes;
/// Disks under whoever reads runs and writes reports.
mod readers;
/// What is recorded of a job, as its reader sees it.
mod recorded;
/// Where a fault is inflicted: a folder, and the programs for it.
mod scene;
/// Says that a test did nothing.
#[path = "../support/skipped.rs"]
mod skipped;
/// The trainer: its ranks, data and checkpoints.
mod training;

use std::{
    env,
    process::ExitCode,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use fault::{Came, Fault};
use scene::Kit;
use skipped::skipped;

/// How often each fault is inflicted.
const ROUNDS: &str = "STEPSCOPE_FAULT_ROUNDS";
/// Faults that are inflicted at once: most of them wait.
const AT_ONCE: usize = 6;
/// Options of test programs that take a value, which chooses no fault.
const WITH_VALUE: [&str; 5] = ["--color", "--format", "--logfile", "--skip", "--test-threads"];

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let is_value =
        |place: usize| place.checked_sub(1).is_some_and(|before| WITH_VALUE.contains(&words[before].as_str()));
    let chosen: Vec<&String> = words
        .iter()
        .enumerate()
        .filter(|(place, word)| !word.starts_with('-') && !is_value(*place))
        .map(|word| word.1)
        .collect();
    let is_chosen = |fault: &Fault| chosen.is_empty() || chosen.iter().any(|word| fault.name.contains(word.as_str()));
    let mut faults = Vec::new();
    for of in [
        disks::faults,
        processes::faults,
        clocks::faults,
        training::faults,
        readers::faults,
        dashboard::faults,
        network::faults,
    ] {
        faults.extend(of().into_iter().filter(is_chosen));
    }
    if words.iter().any(|word| word == "--list") {
        faults.iter().for_each(|fault| println!("{}: test", fault.name));
        return ExitCode::SUCCESS;
    }
    if faults.is_empty() {
        return ExitCode::SUCCESS;
    }
    let Some(kit) = Kit::build() else {
        skipped("tools", &"there is no C compiler (cc)");
        return ExitCode::SUCCESS;
    };
    let rounds = env::var(ROUNDS).map_or(1, |rounds| rounds.parse().unwrap());
    let began = Instant::now();
    let came = inflict(&faults, &kit, rounds);
    let broken = print(&faults, &came);
    println!(
        "\n{} faults, {rounds} times each, in {:.0} s: {broken} broke a promise\n",
        faults.len(),
        began.elapsed().as_secs_f64()
    );
    ExitCode::from(u8::from(broken > 0))
}

/// What came of each fault, in its worst round.
fn inflict(faults: &[Fault], kit: &Kit, rounds: u64) -> Vec<(Came, Duration)> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some((place, fault)) =
            Some(next.fetch_add(1, Relaxed)).and_then(|place| Some((place, faults.get(place)?)))
        {
            let began = Instant::now();
            let mut worst = Came::Held("it was not inflicted".into());
            for round in 0..rounds {
                worst = fault.inflict(kit, round);
                if !matches!(worst, Came::Held(_)) {
                    break;
                }
            }
            done.push((place, (worst, began.elapsed())));
        }
        done
    };
    let mut came: Vec<(usize, (Came, Duration))> = thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    came.sort_by_key(|(place, _)| *place);
    came.into_iter().map(|(_, came)| came).collect()
}

/// Prints the table; how many promises are broken.
fn print(faults: &[Fault], came: &[(Came, Duration)]) -> usize {
    println!("\n{:<10} {:<48} {:>6}  what came of it", "hits", "fault", "took");
    let mut broken = 0;
    for (fault, (came, took)) in faults.iter().zip(came) {
        broken += usize::from(matches!(came, Came::Broke(_)));
        println!("{:<10} {:<48} {:>4.1} s  {came}", fault.hits, fault.name, took.as_secs_f64());
    }
    broken
}
