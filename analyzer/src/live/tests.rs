use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};

use proptest::prelude::*;
use stepscope_traces::{
    CollectorNotes, MemoryEvent, MemoryOperation, MemoryTimes, RankInfo, RankWriter,
    synthetic::{Pipeline, Recipe, Schedule},
};
use tempfile::TempDir;

use super::*;
use crate::analyze;

/// So little that a small run is too much to keep. What is made up comes in order of time, up to a batch.
const SMALL: Bounds = Bounds { wanted_rows: 2_000, most_rows: 100_000, late_ns: 20_000_000 };

/// A copy of a run, whose files grow.
struct GrowingFiles {
    directory: TempDir,
    /// Each file: what it is to be, and how much of it is there.
    files: Vec<(PathBuf, Vec<u8>, usize)>,
}

impl GrowingFiles {
    /// Begins with what is written once.
    fn of(run: &Path) -> GrowingFiles {
        let (directory, mut files) = (TempDir::new().unwrap(), Vec::new());
        let mut look = vec![PathBuf::new()];
        while let Some(inside) = look.pop() {
            fs::create_dir_all(directory.path().join(&inside)).unwrap();
            for entry in fs::read_dir(run.join(&inside)).unwrap().map(Result::unwrap) {
                let path = inside.join(entry.file_name());
                if entry.path().is_dir() {
                    look.push(path);
                } else if path.extension().is_some_and(|extension| extension == "arrows") {
                    files.push((path, fs::read(entry.path()).unwrap(), 0));
                } else {
                    fs::copy(entry.path(), directory.path().join(&path)).unwrap();
                }
            }
        }
        GrowingFiles { directory, files }
    }

    /// Lets each file grow by a share of what it is to be. Readers look at spans first, so the others are a little ahead.
    fn grow(&mut self, share: f64) {
        for (path, bytes, there) in &mut self.files {
            let is_ahead = *there == 0 && !path.ends_with("spans.arrows");
            let share = if is_ahead { share + 0.1 } else { share };
            let to = (*there + (bytes.len() as f64 * share) as usize + 1).min(bytes.len());
            let path = self.directory.path().join(path);
            File::options().create(true).append(true).open(path).unwrap().write_all(&bytes[*there..to]).unwrap();
            *there = to;
        }
    }

    fn is_whole(&self) -> bool {
        self.files.iter().all(|(_, bytes, there)| bytes.len() == *there)
    }
}

/// Has every rank say that its memory has the host's times, as the trainer does.
fn say_that_memory_has_times_of_host(run: &Path) {
    for rank in Run::open(run).unwrap().ranks {
        let file = rank.path.join("rank.json");
        let mut info: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let mut notes: CollectorNotes = serde_json::from_value(info["collector"].take()).unwrap();
        notes.memory_times = Some(MemoryTimes::Host { why: Some("CUPTI is not attached".into()) });
        info["collector"] = serde_json::to_value(notes).unwrap();
        fs::write(file, info.to_string()).unwrap();
    }
}

/// Follows a run while it grows by such shares, again and again, and compares what it says with the analysis of the whole.
fn compare(recipe: &Recipe, memory_of_host: bool, shares: &[f64]) {
    let made = TempDir::new().unwrap();
    let path = made.path().join("run");
    recipe.write(&path).unwrap();
    if memory_of_host {
        say_that_memory_has_times_of_host(&path);
    }
    let whole = analyze(&Run::open(&path).unwrap(), &Selection::default(), &|_| {}).unwrap();
    let mut files = GrowingFiles::of(&path);
    let mut live = LiveRun::within(SMALL, files.directory.path()).unwrap();
    for share in shares.iter().cycle() {
        files.grow(*share);
        live.look().unwrap();
        while live.read().unwrap() {}
        if live.has_news() {
            live.analyze().unwrap();
        }
        live.play_memory();
        if files.is_whole() {
            break;
        }
    }
    live.finish();
    live.analyze().unwrap();
    let (first, last) = live.recent_steps().unwrap();
    let snapshot = live.snapshot();
    assert!(snapshot.settled.len() > recipe.steps as usize / 2, "{} are settled", snapshot.settled.len());
    let summaries = &whole.job_steps;
    let told = snapshot.steps();
    assert_eq!(told, summaries[..told.len()], "{} of {}", told.len(), summaries.len());
    assert!(told.len() + 1 >= summaries.len(), "{} of {}", told.len(), summaries.len());
    for (memory, whole) in snapshot.memory.iter().zip(&whole.memory) {
        let (mut memory, mut whole) = ((**memory).clone(), whole.clone());
        assert_eq!(std::mem::take(&mut memory.timeline), std::mem::take(&mut whole.timeline));
        assert_eq!(memory, whole);
    }
    assert_eq!(snapshot.memory.len(), whole.memory.len());
    let range = StepRange { from: Some(first), to: Some(Step(last.0 + 1)) };
    let steps = range.into();
    let chosen = Selection { steps, ..Selection::default() };
    let mut recent = analyze(&Run::open(&path).unwrap(), &chosen, &|_| {}).unwrap();
    let mut analysis = (*snapshot.analysis.unwrap()).clone();
    // Of what came before it has less, and says so of every step.
    recent.steps.retain(|step| range.has(Some(step.step)));
    for pipeline in recent.pipeline.iter_mut().chain(&mut analysis.pipeline) {
        pipeline.per_step.retain(|bubble| range.has(Some(bubble.step)));
    }
    assert_eq!(analysis.steps, recent.steps);
    assert_eq!(analysis.window, recent.window);
    assert_eq!(analysis.counted, recent.counted);
    assert_eq!(analysis.step_time, recent.step_time);
    assert_eq!(analysis.collectives, recent.collectives);
    assert_eq!(analysis.stragglers, recent.stragglers);
    assert_eq!(analysis.kernels, recent.kernels);
    assert_eq!(analysis.pipeline, recent.pipeline);
    assert_eq!(analysis.mfu, recent.mfu);
    assert!(live.ranks.values().map(|rank| rank.rows).sum::<usize>() < SMALL.most_rows);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn what_grows_says_what_the_whole_says(
        seed in 0..1000_u64,
        replicas in 1..4_u32,
        stages in 1..3_u32,
        memory_of_host: bool,
        shares in prop::collection::vec(0.001..0.05, 1..5),
    ) {
        let schedule = Schedule::OneForwardOneBackward;
        let pipeline = (stages > 1).then_some(Pipeline { stages, schedule, chunks: 1, transfer: Nanos(10_000) });
        let flush_every = Nanos(5_000_000);
        let recipe = Recipe { seed, replicas, pipeline, steps: 60, flush_every, ..Recipe::default() };
        compare(&recipe, memory_of_host, &shares);
    }
}

#[test]
fn a_step_that_does_not_fit_is_not_told_of() {
    let made = TempDir::new().unwrap();
    let path = made.path().join("run");
    Recipe { steps: 4, micro_batches: 50, ..Recipe::default() }.write(&path).unwrap();
    let bounds = Bounds { wanted_rows: 100, most_rows: 500, late_ns: 0 };
    let mut live = LiveRun::within(bounds, &path).unwrap();
    while live.read().unwrap() {}
    live.analyze().unwrap();
    assert!(live.ranks.values().all(|rank| rank.rows <= 500));
    assert!(live.snapshot().settled.is_empty());
}

#[test]
fn a_run_that_has_only_begun_says_nothing() {
    let directory = TempDir::new().unwrap();
    stepscope_traces::RunInfo::of_this_process("begun").create(directory.path()).unwrap();
    let mut live = LiveRun::open(directory.path()).unwrap();
    assert!(!live.read().unwrap() && !live.has_news());
    live.analyze().unwrap();
    let snapshot = live.snapshot();
    assert!(snapshot.analysis.is_none() && snapshot.memory.is_empty() && snapshot.running.is_none());
}

#[test]
fn memory_that_nothing_runs_beside_is_read_to_its_end() {
    let directory = tempfile::tempdir().unwrap();
    RunInfo::of_this_process("test").create(directory.path()).unwrap();
    let mut writer = RankWriter::create(directory.path(), RankInfo::of_this_process(Rank(0))).unwrap();
    for number in 0..500_000 {
        let (time, address) = (Nanos(number), number.cast_unsigned());
        writer.push_memory(&MemoryEvent::new(time, MemoryOperation::Alloc, address, Some(1))).unwrap();
    }
    writer.flush().unwrap();
    let mut live = LiveRun::open(directory.path()).unwrap();
    let reads = (0..10_000).take_while(|_| live.read().unwrap()).count();
    assert!(reads < 10_000, "there is no more to read");
    live.play_memory();
    assert_eq!(live.snapshot().memory[0].peak_bytes, 500_000);
}
