//! The library as the driver loads it: into a process that knows nothing of it. There is no GPU in these.
//!
//! Each test runs this program again, as the process that is recorded.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]
#![allow(unsafe_code, reason = "the library is a C library")]

mod injected;
mod nccl;
mod nvtx;
mod recorded_process;
mod recording;
/// Says that a test did nothing.
#[path = "../../../../tests/support/skipped.rs"]
mod skipped;

use std::{env, process::Command, time::Duration};

use nix::{sys::stat::Mode, unistd::mkfifo};
use stepscope_collector::injection::{TRIGGER_FILE, Trigger, VARIABLE, Windows};
use stepscope_traces::{
    ClockSnapshot, Counter, NcclNote, REPLICA_TOKENS, Rank, RankData, RankFrom, Run, Span, SpanKind, State, Step,
    Window,
};

use crate::{
    injected::Injected,
    recording::{MODE, Recording, quiet_status},
    skipped::skipped,
};

/// The process that is recorded; in the test run itself it does nothing.
#[test]
fn recorded_process() {
    if let Ok(mode) = env::var(MODE) {
        recorded_process::run(&mode);
    }
}

#[test]
fn a_process_is_recorded_to_its_end_and_ends_as_it_wants_to() {
    let recording = Recording::new();
    assert_eq!(quiet_status(&recording.record("exit", Windows::ALWAYS)), Some(42));
    let run = recording.open();
    assert_eq!((run.ranks.len(), run.state()), (1, State::Complete));
    let info = &run.ranks[0].info;
    assert_eq!((info.rank, &info.collector.rank_from), (Rank(0), &Some(RankFrom::Order)));
    assert!(info.collector.program.as_ref().unwrap().contains("recorded_process"));
    // Where there is no driver, the recording says so and goes on.
    assert!(info.collector.cupti.is_some(), "{:?}", info.collector);
    assert!(run.ranks[0].read(Window::ALL).unwrap().1.is_none());
    assert_eq!(windows_of(&run), 1);
}

#[test]
fn pipes_in_the_run_are_not_waited_for() {
    let recording = Recording::new();
    mkfifo(&recording.path().join(TRIGGER_FILE), Mode::S_IRWXU).unwrap();
    assert_eq!(quiet_status(&recording.record("exit", Windows::ALWAYS)), Some(42));
    assert_eq!(recording.open().state(), State::Complete);
}

#[test]
fn a_process_that_is_torn_down_leaves_what_was_written() {
    for (mode, code) in [("_exit", Some(7)), ("abort", None)] {
        let recording = Recording::new();
        assert_eq!(quiet_status(&recording.record(mode, Windows::ALWAYS)), code);
        let run = recording.open();
        assert_eq!((run.ranks.len(), run.state()), (1, State::Interrupted), "{mode}");
        assert!(run.ranks[0].read(Window::ALL).unwrap().1.is_none());
    }
}

#[test]
fn a_fork_records_nothing_and_ends_nothing() {
    let recording = Recording::new();
    let output = recording.record("fork", Windows::ALWAYS);
    assert_eq!(quiet_status(&output), Some(42), "{}", String::from_utf8_lossy(&output.stdout));
    let run = recording.open();
    assert_eq!((run.ranks.len(), run.state()), (1, State::Complete));
    let (data, _) = run.ranks[0].read(Window::ALL).unwrap();
    let steps: Vec<_> = data.spans.rows().filter(|span| span.kind == SpanKind::Step).map(|span| span.step).collect();
    assert_eq!(steps, [Some(Step(1)), Some(Step(3))], "step 2 is the child's");
}

#[test]
fn a_fork_from_before_cuda_is_a_rank_of_its_own() {
    let recording = Recording::new();
    assert_eq!(quiet_status(&recording.record("fork-first", Windows::ALWAYS)), Some(42));
    let run = recording.open();
    assert_eq!((run.ranks.len(), run.state()), (2, State::Complete));
}

#[test]
fn processes_of_the_same_rank_do_not_meet() {
    let recording = Recording::new();
    let spawn = |rank: &str| {
        recording.command("exit", Windows::ALWAYS).env("RANK", rank).env("WORLD_SIZE", "2").spawn().unwrap()
    };
    for mut child in ["0", "1", "1", "1"].map(spawn) {
        assert_eq!(child.wait().unwrap().code(), Some(42));
    }
    let run = recording.open();
    let ranks: Vec<u32> = run.ranks.iter().map(|rank| rank.info.rank.0).collect();
    assert_eq!((ranks, run.state()), (vec![0, 1, 2, 3], State::Complete));
}

/// What a program says of itself, in order: kind, name and step.
fn told(data: &RankData) -> Vec<(SpanKind, &str, Option<i32>)> {
    let name = |span: &Span| data.names.get(span.name).unwrap();
    let mut spans: Vec<Span> = data.spans.rows().filter(|span| name(span) != "recorded window").collect();
    spans.sort_by_key(|span| (span.start_ns, span.kind, name(span)));
    spans.iter().map(|span| (span.kind, name(span), span.step.map(|step| step.0))).collect()
}

#[test]
fn ranges_of_the_program_are_annotations_and_steps() {
    let recording = Recording::new();
    assert_eq!(quiet_status(&recording.record("nvtx", Windows::ALWAYS)), Some(42));
    let (data, _) = recording.open().ranks[0].read(Window::ALL).unwrap();
    let told = told(&data);
    let expected = [
        (SpanKind::Range, "epoch", None),
        (SpanKind::Step, "step", Some(4)),
        (SpanKind::Phase, "forward", Some(4)),
        (SpanKind::Range, "layer 1", Some(4)),
        (SpanKind::Range, "transfer", None),
    ];
    assert_eq!(told, expected);
}

#[test]
fn what_the_program_says_itself_is_recorded_and_comes_before_its_ranges() {
    let recording = Recording::new();
    assert_eq!(quiet_status(&recording.record("program", Windows::ALWAYS)), Some(42));
    let run = recording.open();
    let info = &run.ranks[0].info;
    let model = info.collector.program_model.as_ref().expect("it was said before CUDA began");
    let shape = model.model.shape().unwrap();
    assert_eq!((shape.layers, shape.name.as_str(), model.sequence_length), (2, "model", Some(1024)));
    let (data, _) = run.ranks[0].read(Window::ALL).unwrap();
    let told = told(&data);
    let steps: Vec<_> = data.spans.rows().filter(|span| span.kind == SpanKind::Step).collect();
    let [step] = steps.as_slice() else { panic!("{told:?}") };
    let expected = [
        (SpanKind::Step, "step", Some(7)),
        (SpanKind::Phase, "backward", Some(7)),
        (SpanKind::Range, "step 1", Some(7)),
        (SpanKind::Range, "bucket", Some(7)),
        (SpanKind::Range, "step 2", None),
    ];
    assert_eq!(told, expected);
    let tokens: Vec<_> = data.counters.rows().filter(|sample| sample.counter == Counter::Tokens.id()).collect();
    let [of_step] = tokens.as_slice() else { panic!("{tokens:?}") };
    assert_eq!(of_step.value, 3000.0);
    assert!(step.start_ns <= of_step.time_ns && of_step.time_ns <= step.start_ns + step.duration_ns);
}

#[test]
fn what_pytorch_does_is_recorded_and_one_source_that_fails_leaves_the_others() {
    let recording = Recording::new();
    assert_eq!(quiet_status(&recording.record("torch", Windows::ALWAYS)), Some(42));
    let run = recording.open();
    let notes = &run.ranks[0].info.collector;
    let failed = notes.failed_sources.as_ref().unwrap();
    assert_eq!(failed.0.iter().collect::<Vec<_>>(), [(&"memory".to_owned(), &"no such attribute".to_owned())]);
    let groups = notes.process_groups.as_ref().unwrap();
    assert_eq!((groups.0[0].name.as_str(), groups.0[0].ranks.as_slice()), ("mesh_tp", [Rank(0), Rank(3)].as_slice()));
    let model = notes.program_model.as_ref().unwrap();
    assert_eq!((model.model.name(), model.model.parameters(), model.sequence_length), ("GPT", 100, Some(64)));
    let (data, _) = run.ranks[0].read(Window::ALL).unwrap();
    let told = told(&data);
    let phases =
        told.iter().filter(|(kind, ..)| *kind == SpanKind::Phase).map(|(_, name, step)| (*name, step.unwrap()));
    let expected = [
        ("backward", 0),
        ("forward", 0),
        ("optimizer", 0),
        ("forward", 0),
        ("backward", 0),
        ("forward", 0),
        ("optimizer", 0),
        ("forward", 1),
        ("evaluation", 1),
        ("forward", 1),
        ("checkpoint", 1),
    ];
    assert_eq!(phases.collect::<Vec<_>>(), expected);
    let steps = data.spans.rows().filter(|span| span.kind == SpanKind::Step).map(|span| span.step);
    assert_eq!(steps.collect::<Vec<_>>(), [Some(Step(0))]);
    let counted = data.counters.rows().filter(|sample| data.names.counter(sample.counter) == Some(REPLICA_TOKENS));
    assert_eq!(counted.map(|sample| sample.value).collect::<Vec<_>>(), [64.0, 64.0]);
}

#[test]
fn nccl_finds_a_table_of_each_version_and_its_groups_are_known() {
    let recording = Recording::new();
    let output = recording.record("nccl", Windows::ALWAYS);
    assert_eq!(quiet_status(&output), Some(42), "{}", String::from_utf8_lossy(&output.stdout));
    let info = &recording.open().ranks[0].info;
    assert_eq!(info.collector.nccl, Some(NcclNote { profiler_version: 6 }));
    let told: Vec<_> = info.groups.iter().map(|member| (member.index, member.size, member.name.as_deref())).collect();
    assert_eq!(told, [4, 5, 6].map(|size| (Some(3), size, Some("mesh_tp"))));
    assert!(info.groups.windows(2).all(|pair| pair[0].group != pair[1].group), "{:?}", info.groups);
}

#[test]
fn the_library_exports_what_others_look_for_and_nothing_else() {
    let Ok(output) = Command::new("nm").args(["-D", "--defined-only"]).arg(Injected::path()).output() else {
        return skipped("tools", &"there is no nm to list symbols with");
    };
    let listed = String::from_utf8(output.stdout).unwrap();
    let symbols: Vec<&str> = listed.lines().filter_map(|line| line.split_whitespace().last()).collect();
    let tables = (2..=6).map(|version| format!("ncclProfiler_v{version}"));
    let for_program =
        ["begin_phase", "begin_step", "end", "loss", "model", "tokens"].map(|name| format!("stepscope_program_{name}"));
    let for_torch = [
        "begin",
        "blocks",
        "buffers",
        "device",
        "end",
        "enter",
        "expect",
        "failed",
        "groups",
        "history",
        "in_flight",
        "leave",
        "look",
        "lost",
        "mark",
        "model",
        "profiler_begins",
        "profiler_ends",
        "raised",
        "refuse",
        "stacks",
        "tokens",
        "when_asked",
    ];
    let for_torch = for_torch.map(|name| format!("stepscope_torch_{name}"));
    let injected = ["InitializeInjection", "InitializeInjectionNvtx2"].map(str::to_owned);
    let expected: Vec<String> = injected.into_iter().chain(tables).chain(for_program).chain(for_torch).collect();
    assert_eq!(symbols, expected);
}

#[test]
fn a_dormant_process_is_no_rank_until_it_is_triggered() {
    let recording = Recording::new();
    assert_eq!(quiet_status(&recording.record("exit", Windows::Dormant)), Some(42));
    assert_eq!(recording.open().ranks.len(), 0);

    let mut child = recording.command("wait", Windows::Dormant).spawn().unwrap();
    let trigger = Trigger { wall_ns: ClockSnapshot::take().wall_ns, duration: None };
    trigger.leave(&recording.path()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(42), "it ends when it is recorded");
    assert_eq!((recording.open().ranks.len(), recording.open().state()), (1, State::Complete));
}

#[test]
fn windows_come_again_in_one_recording() {
    let recording = Recording::new();
    let windows = Windows::Timed {
        after: Duration::ZERO,
        duration: Some(Duration::from_millis(300)),
        every: Some(Duration::from_millis(500)),
    };
    assert_eq!(quiet_status(&recording.record("two-windows", windows)), Some(42), "it ends when it has seen two");
    let run = recording.open();
    assert_eq!((run.ranks.len(), run.state(), windows_of(&run) >= 2), (1, State::Complete, true));
}

/// The windows that are closed.
fn windows_of(run: &Run) -> usize {
    let data = run.ranks.first().and_then(|rank| rank.read(Window::ALL).ok());
    data.map_or(0, |(data, _)| {
        data.spans.rows().filter(|span| data.names.get(span.name) == Some("recorded window")).count()
    })
}

#[test]
fn while_the_programs_own_profiler_runs_there_is_no_window() {
    let recording = Recording::new();
    assert_eq!(quiet_status(&recording.record("profiles", Windows::ALWAYS)), Some(42));
    let run = recording.open();
    let pauses = run.ranks[0].info.collector.other_profiler.expect("it says so");
    assert_eq!((pauses.count, pauses.missing_since), (2, None));
    assert!((80_000_000..10_000_000_000).contains(&pauses.nanos), "{pauses:?}");
    let (data, _) = run.ranks[0].read(Window::ALL).unwrap();
    let spans = |name: &str| -> Vec<Span> {
        let mut spans: Vec<Span> = data.spans.rows().filter(|span| data.names.get(span.name) == Some(name)).collect();
        spans.sort_by_key(|span| span.start_ns);
        spans
    };
    let (windows, steps) = (spans("recorded window"), spans("step"));
    assert_eq!((windows.len(), steps.len()), (3, 2), "steps are told all the same");
    for (pair, step) in windows.windows(2).zip(&steps) {
        assert!(pair[0].start_ns + pair[0].duration_ns <= step.start_ns, "it was let go of before that began");
        assert!(step.start_ns + step.duration_ns <= pair[1].start_ns);
    }
}

#[test]
fn where_it_cannot_record_one_line_says_so() {
    let recording = Recording::new();
    std::fs::remove_dir_all(recording.path()).unwrap();
    let output = recording.record("exit", Windows::ALWAYS);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(42), 1), "{said}");
    assert!(said.starts_with("stepscope: this process is not recorded: "), "{said}");

    let output = recording.command("exit", Windows::ALWAYS).env(VARIABLE, "{").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(42), 1), "{said}");
    let output = recording.command("exit", Windows::ALWAYS).env_remove(VARIABLE).output().unwrap();
    assert_eq!(quiet_status(&output), Some(42), "whoever loads it without settings gets nothing");
}
