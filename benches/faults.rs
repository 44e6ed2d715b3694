//! Faults that are put into runs of the reference trainer, and what is found of them: `cargo bench --bench faults`.
//!
//! Each run with a fault is followed by the same one without it. So it is measured what a step takes without its cause, beside
//! what its finding predicts. Machines are faster at one moment than at another: times without the fault are brought to the
//! speed that the machine had meanwhile, by the kernels that both runs have.

mod figures;

use std::{
    error::Error,
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::figures::{Estimate, Table};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// How often each fault is put in.
const ROUNDS: usize = 3;
const STEPS: &str = "14";
/// How often a rank is held up, and goes on.
const PERIOD: Duration = Duration::from_millis(20);
/// A fault that costs less than this need not be found.
const LEAST_COST: f64 = 0.05;

/// What is wrong with a run.
struct Fault {
    name: &'static str,
    /// The finding that should come first.
    kind: &'static str,
    /// Settings of both runs, and those of the one with the fault.
    settings: &'static [&'static str],
    wrong: &'static [&'static str],
    /// The share of the time for which the last rank is stopped.
    stopped: f64,
    /// Whether its remedy takes the fault away, and does not make the best of it.
    is_removed: bool,
}

const FAULTS: [Fault; 7] = [
    Fault {
        name: "recomputation",
        kind: "recomputation",
        settings: &[],
        wrong: &["--recompute=full"],
        stopped: 0.0,
        is_removed: true,
    },
    Fault {
        name: "a checkpoint a step",
        kind: "checkpointing",
        settings: &[],
        wrong: &["--save-every=1"],
        stopped: 0.0,
        is_removed: true,
    },
    Fault {
        name: "a rank that is stopped for 15%",
        kind: "slow-rank",
        settings: &["--dp=2", "--processes"],
        wrong: &[],
        stopped: 0.15,
        is_removed: true,
    },
    Fault {
        name: "a rank that is stopped for 30%",
        kind: "slow-rank",
        settings: &["--dp=2", "--processes"],
        wrong: &[],
        stopped: 0.3,
        is_removed: true,
    },
    Fault {
        name: "a rank that is stopped for 50%",
        kind: "slow-rank",
        settings: &["--dp=2", "--processes"],
        wrong: &[],
        stopped: 0.5,
        is_removed: true,
    },
    Fault {
        name: "a stage that is stopped for 30%",
        kind: "uneven-stages",
        settings: &["--pp=2", "--micro-batches=8", "--processes"],
        wrong: &[],
        stopped: 0.3,
        // Layers are moved, so that the slow stage has fewer.
        is_removed: false,
    },
    Fault {
        name: "gradients reduced at the end",
        kind: "exposed-communication",
        settings: &["--dp=2", "--processes"],
        wrong: &["--reduction=naive"],
        stopped: 0.0,
        is_removed: true,
    },
];

/// What is found of a run.
struct Seen {
    step_ms: f64,
    /// How long one matrix product, always the same one, takes on the rank that it takes least.
    kernel_ns: f64,
    findings: Vec<(String, Option<f64>)>,
}

/// All rounds of one fault.
#[derive(Default)]
struct Rounds {
    with: Vec<f64>,
    without: Vec<f64>,
    /// How far predictions are off, of the step with the fault.
    off: Vec<f64>,
    first: Vec<String>,
    /// What is found of the runs without it.
    clean: Vec<String>,
}

fn main() -> Outcome<()> {
    let scratch = tempfile::tempdir()?;
    let mut all: Vec<(&Fault, Rounds)> = FAULTS.iter().map(|fault| (fault, Rounds::default())).collect();
    for round in 0..ROUNDS {
        for (place, (fault, rounds)) in all.iter_mut().enumerate() {
            let directory = scratch.path().join(format!("{round}-{place}"));
            let (wrong, right) = (directory.join("wrong"), directory.join("right"));
            let with = run(&wrong, &[fault.settings, fault.wrong].concat(), fault.stopped)?;
            let without = run(&right, fault.settings, 0.0)?;
            rounds.add(fault, &with, &without);
        }
    }
    println!("{:<31} {:>9} {:>9} {:>7} {:>10}  first finding", "fault", "step, ms", "without", "costs", "predicted");
    all.iter().for_each(|(fault, rounds)| rounds.print(fault));
    let mut table = Table::default();
    let costly = || all.iter().filter(|(_, rounds)| rounds.cost() >= LEAST_COST);
    let firsts: Vec<bool> =
        costly().flat_map(|(fault, rounds)| rounds.first.iter().map(|kind| kind == fault.kind)).collect();
    let share =
        |of: &[bool]| Estimate::exact(100.0 * of.iter().filter(|is| **is).count() as f64 / of.len().max(1) as f64);
    table.at_least("faults that cost 5%, found first", "%", 95.0, share(&firsts));
    let clean: Vec<bool> =
        all.iter().flat_map(|(_, rounds)| rounds.clean.iter().map(|found| found.is_empty())).collect();
    table.at_least("runs without a fault or a finding", "%", 95.0, share(&clean));
    let off: Vec<f64> =
        costly().filter(|(fault, _)| fault.is_removed).filter_map(|(_, rounds)| median(&rounds.off)).collect();
    if !off.is_empty() {
        table.at_most("prediction off, of a step", "%", 10.0, Estimate::of(off, |sorted| sorted[sorted.len() - 1]));
    }
    println!("\n{table}\n");
    for (fault, rounds) in &all {
        let found: Vec<&String> = rounds.clean.iter().filter(|found| !found.is_empty()).collect();
        if !found.is_empty() {
            println!("without {}: {found:?}", fault.name);
        }
    }
    table.end()
}

impl Rounds {
    fn add(&mut self, fault: &Fault, with: &Seen, without: &Seen) {
        let step_ms = without.step_ms * with.kernel_ns / without.kernel_ns;
        self.with.push(with.step_ms);
        self.without.push(step_ms);
        let predicted = with.findings.iter().find(|(kind, _)| kind == fault.kind).and_then(|(_, without)| *without);
        self.off.extend(predicted.map(|predicted| 100.0 * (predicted - step_ms).abs() / with.step_ms));
        self.first.push(with.findings.first().map_or_else(String::new, |(kind, _)| kind.clone()));
        let kinds: Vec<&str> = without.findings.iter().map(|(kind, _)| kind.as_str()).collect();
        self.clean.push(kinds.join(" "));
    }

    /// The share of a step that the fault takes.
    fn cost(&self) -> f64 {
        let (Some(with), Some(without)) = (median(&self.with), median(&self.without)) else { return 0.0 };
        1.0 - without / with
    }

    fn print(&self, fault: &Fault) {
        let (with, without) = (median(&self.with).unwrap_or(0.0), median(&self.without).unwrap_or(0.0));
        let off = median(&self.off).map_or_else(|| "-".to_owned(), |off| format!("±{off:.1}%"));
        let (name, cost, first) = (fault.name, 100.0 * self.cost(), self.first.join(", "));
        println!("{name:<31} {with:>9.1} {without:>9.1} {cost:>6.1}% {off:>10}  {first}");
    }
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

/// Trains with some settings, while the last rank is stopped for a share of the time; and says what is found of it.
fn run(directory: &Path, settings: &[&str], stopped: f64) -> Outcome<Seen> {
    let mut training = Command::new(env!("CARGO_BIN_EXE_stepscope"));
    training.args(["train", "--backend=cpu", "--steps", STEPS, "--run"]).arg(directory).args(settings);
    let mut training = training.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    if stopped > 0.0 {
        hold_up(&mut training, stopped)?;
    }
    if !training.wait()?.success() {
        return Err(format!("training with {settings:?} failed").into());
    }
    let mut analysis = Command::new(env!("CARGO_BIN_EXE_stepscope"));
    let output = analysis.arg("analyze").arg(directory).args(["--format", "json"]).stderr(Stdio::inherit()).output()?;
    seen(&serde_json::from_slice(&output.stdout)?)
}

fn seen(report: &Value) -> Outcome<Seen> {
    let step_ms = report["step_time"]["median_ns"].as_f64().ok_or("the run has no steps")? / 1e6;
    let findings = report["findings"].as_array().into_iter().flatten().map(|finding| {
        let kind = finding["kind"].as_str().unwrap_or_default().to_owned();
        (kind, finding["step_without_ns"].as_f64().map(|without| without / 1e6))
    });
    let ranks = report["ranks"].as_array().map_or(0, Vec::len) as f64;
    let kernels = report["kernels"].as_array().into_iter().flatten();
    let products = kernels.filter(|kernel| kernel["family"] == "matmul");
    let kernel = products.min_by_key(|kernel| kernel["name"].as_str()).ok_or("no matrix product ran")?;
    let (least, count) = (kernel["least_rank_ns"].as_f64(), kernel["count"].as_f64());
    let kernel_ns = least.zip(count).map(|(least, count)| least * ranks / count).ok_or("the kernel has no times")?;
    Ok(Seen { step_ms, kernel_ns, findings: findings.collect() })
}

/// Stops the last rank of a training again and again, until it is over.
fn hold_up(training: &mut Child, share: f64) -> Outcome<()> {
    let mut rank: Option<Pid> = None;
    while training.try_wait()?.is_none() {
        rank = rank.or_else(|| last_child(training.id()));
        // A rank that has just ended is not there any more.
        rank.map(|rank| kill(rank, Signal::SIGSTOP));
        thread::sleep(PERIOD.mul_f64(share));
        rank.map(|rank| kill(rank, Signal::SIGCONT));
        thread::sleep(PERIOD.mul_f64(1.0 - share));
    }
    Ok(())
}

/// The process that another one started last, once there are two.
fn last_child(parent: u32) -> Option<Pid> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    let children: Vec<i32> = children.split_whitespace().filter_map(|child| child.parse().ok()).collect();
    (children.len() >= 2).then(|| children.last().copied().map(Pid::from_raw))?
}
