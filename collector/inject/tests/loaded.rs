//! The library as the driver loads it: into a process that knows nothing of it. There is no GPU in these.
//!
//! Each test runs this program again, as the process that is recorded.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]
#![allow(unsafe_code, reason = "the library is a C library")]

use std::{
    env,
    ffi::{c_char, c_int, c_uint, c_void},
    path::{Path, PathBuf},
    process::{Command, Output},
    ptr,
    sync::atomic::{AtomicPtr, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use libloading::os::unix::{Library, Symbol};
use nix::{
    sys::{
        stat::Mode,
        wait::{WaitStatus, waitpid},
    },
    unistd::{ForkResult, fork, mkfifo},
};
use stepscope_collector::injection::{Injection, LIBRARY_FILE, TRIGGER_FILE, Trigger, VARIABLE, Windows};
use stepscope_traces::{
    ClockSnapshot, Counter, NcclNote, REPLICA_TOKENS, Rank, RankData, RankFrom, Run, RunInfo, Span, SpanKind, State,
    Step, Window,
};
use tempfile::TempDir;

/// Says that a test did nothing.
#[path = "../../../tests/support/skipped.rs"]
mod skipped;

use skipped::skipped;

/// What a recorded process is to do.
const MODE: &str = "STEPSCOPE_TEST_MODE";

/// A run to record into.
struct Recording {
    directory: TempDir,
}

impl Recording {
    fn new() -> Recording {
        let recording = Recording { directory: tempfile::tempdir().unwrap() };
        RunInfo::of_this_process("test").create(&recording.path()).unwrap();
        recording
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    fn command(&self, mode: &str, windows: Windows) -> Command {
        let injection = Injection { run: self.path(), windows, budget: None, whole_graphs: false };
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["recorded_process", "--exact", "--nocapture", "--test-threads=1"]);
        command.env(MODE, mode).env(VARIABLE, injection.to_text().unwrap());
        for variable in ["RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"] {
            command.env_remove(variable);
        }
        command
    }

    fn record(&self, mode: &str, windows: Windows) -> Output {
        self.command(mode, windows).output().unwrap()
    }

    fn open(&self) -> Run {
        Run::open(&self.path()).unwrap()
    }
}

/// The status, and that nothing was said.
fn quiet_status(output: &Output) -> Option<i32> {
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    output.status.code()
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
    assert_eq!(told, [(3, 4, Some("mesh_tp")), (3, 5, Some("mesh_tp")), (3, 6, Some("mesh_tp"))]);
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

/// The library, loaded as the driver and NVTX do it.
struct Injected(Library);

impl Injected {
    fn path() -> PathBuf {
        let beside = env::current_exe().unwrap();
        let folders = [beside.parent().unwrap(), beside.parent().and_then(Path::parent).unwrap()];
        let path = folders.map(|folder| folder.join(LIBRARY_FILE)).into_iter().find(|path| path.exists());
        path.expect("cargo builds the library for its tests")
    }

    fn load() -> Injected {
        // SAFETY: it does nothing when it is loaded.
        Injected(unsafe { Library::new(Injected::path()) }.unwrap())
    }

    fn cuda_begins(&self) {
        // SAFETY: that is its type.
        let initialize: Symbol<unsafe extern "C" fn() -> c_int> =
            unsafe { self.0.get(b"InitializeInjection") }.unwrap();
        // SAFETY: the driver may call it at any time.
        assert_eq!(unsafe { initialize() }, 1);
    }

    fn nvtx_begins(&self) {
        type Initialize = unsafe extern "C" fn(unsafe extern "C" fn(u32) -> *const c_void) -> c_int;
        // SAFETY: that is its type.
        let initialize: Symbol<Initialize> = unsafe { self.0.get(b"InitializeInjectionNvtx2") }.unwrap();
        // SAFETY: the tables are as NVTX has them.
        assert_eq!(unsafe { initialize(nvtx_tables) }, 1);
    }

    fn begin_step(&self, number: i64) {
        // SAFETY: that is its type, and any number will do.
        unsafe { self.0.get::<unsafe extern "C" fn(i64)>(b"stepscope_program_begin_step").unwrap()(number) };
    }

    fn begin_phase(&self, name: &str) {
        type BeginPhase = unsafe extern "C" fn(*const c_char, usize);
        // SAFETY: that is its type, and the name is so long.
        unsafe {
            self.0.get::<BeginPhase>(b"stepscope_program_begin_phase").unwrap()(name.as_ptr().cast(), name.len());
        }
    }

    fn end(&self) {
        // SAFETY: that is its type.
        unsafe { self.0.get::<unsafe extern "C" fn()>(b"stepscope_program_end").unwrap()() };
    }

    fn profiles(&self, profiled: impl FnOnce()) {
        let call = |name: &[u8]| {
            // SAFETY: that is its type.
            unsafe { self.0.get::<unsafe extern "C" fn()>(name).unwrap()() };
        };
        call(b"stepscope_torch_profiler_begins");
        profiled();
        call(b"stepscope_torch_profiler_ends");
    }

    fn add_tokens(&self, count: f64) {
        // SAFETY: that is its type, and any number will do.
        unsafe { self.0.get::<unsafe extern "C" fn(f64)>(b"stepscope_program_tokens").unwrap()(count) };
    }

    /// What the module in Python sees, by its numbers.
    fn mark(&self, events: &[u32]) {
        type Mark = unsafe extern "C" fn(u32, u64, u64) -> u32;
        // SAFETY: that is its type, and any numbers will do.
        let mark = unsafe { self.0.get::<Mark>(b"stepscope_torch_mark").unwrap() };
        // SAFETY: any numbers will do, and the library stays loaded.
        events.iter().for_each(|event| _ = unsafe { mark(*event, 7, 0) });
    }

    /// What it has found out, and whether that is understood.
    fn found(&self, what: &[u8], json: &str) -> bool {
        type Found = unsafe extern "C" fn(*const c_char, usize) -> u32;
        // SAFETY: that is its type, and the text is so long.
        unsafe { self.0.get::<Found>(what).unwrap()(json.as_ptr().cast(), json.len()) == 1 }
    }

    fn count_tokens(&self, tokens: f64) {
        // SAFETY: that is its type, and any number will do.
        unsafe { self.0.get::<unsafe extern "C" fn(f64)>(b"stepscope_torch_tokens").unwrap()(tokens) };
    }

    fn failed(&self, source: &std::ffi::CStr, why: &std::ffi::CStr) {
        type Failed = unsafe extern "C" fn(*const c_char, *const c_char);
        // SAFETY: that is its type, and both are texts.
        unsafe { self.0.get::<Failed>(b"stepscope_torch_failed").unwrap()(source.as_ptr(), why.as_ptr()) };
    }

    fn say_model(&self, json: &str, sequence_length: u64) {
        type Say = unsafe extern "C" fn(*const c_char, usize, u64, *mut c_char, usize) -> c_int;
        // SAFETY: that is its type; the text is so long, and there is no place for another.
        let refused = unsafe {
            let say = self.0.get::<Say>(b"stepscope_program_model").unwrap();
            say(json.as_ptr().cast(), json.len(), sequence_length, ptr::null_mut(), 0)
        };
        assert_eq!(refused, 0);
    }
}

/// As NVTX has them: where its functions are, which begin as null.
static FUNCTIONS: [AtomicPtr<c_void>; 16] = [const { AtomicPtr::new(ptr::null_mut()) }; 16];
static PLACES: [AtomicPtr<c_void>; 16] = [const { AtomicPtr::new(ptr::null_mut()) }; 16];

#[repr(C)]
struct Callbacks {
    size: usize,
    module: unsafe extern "C" fn(c_uint, *mut *const c_void, *mut c_uint) -> c_int,
}

unsafe extern "C" fn nvtx_module(module: c_uint, table: *mut *const c_void, size: *mut c_uint) -> c_int {
    if module != 1 {
        return 0;
    }
    for (place, function) in PLACES.iter().zip(&FUNCTIONS) {
        place.store(function.as_ptr().cast(), SeqCst);
    }
    // SAFETY: there are places to write to.
    unsafe {
        *table = PLACES.as_ptr().cast();
        *size = 16;
    }
    1
}

unsafe extern "C" fn nvtx_tables(number: u32) -> *const c_void {
    static CALLBACKS: Callbacks = Callbacks { size: size_of::<Callbacks>(), module: nvtx_module };
    if number == 1 { ptr::from_ref(&CALLBACKS).cast() } else { ptr::null() }
}

fn push(name: &std::ffi::CStr) {
    // SAFETY: that is what is entered there.
    unsafe {
        let push: unsafe extern "C" fn(*const c_char) -> c_int = std::mem::transmute(FUNCTIONS[9].load(SeqCst));
        push(name.as_ptr());
    }
}

fn pop() {
    // SAFETY: that is what is entered there.
    unsafe {
        let pop: unsafe extern "C" fn() -> c_int = std::mem::transmute(FUNCTIONS[11].load(SeqCst));
        pop();
    }
}

/// Starts a range, and ends it on another thread.
fn across_threads(name: &'static std::ffi::CStr) {
    // SAFETY: that is what is entered there.
    unsafe {
        let start: unsafe extern "C" fn(*const c_char) -> u64 = std::mem::transmute(FUNCTIONS[5].load(SeqCst));
        let end: unsafe extern "C" fn(u64) = std::mem::transmute(FUNCTIONS[7].load(SeqCst));
        let id = start(name.as_ptr());
        thread::spawn(move || end(id)).join().unwrap();
    }
}

/// What NCCL finds: a name, and five functions.
#[repr(C)]
struct ProfilerTable {
    name: *const c_char,
    init: *const c_void,
    start: unsafe extern "C" fn(*mut c_void, *mut *const c_void, *const c_void) -> c_int,
    stop: unsafe extern "C" fn(*const c_void) -> c_int,
    record_state: unsafe extern "C" fn(*const c_void, c_int, *const c_void) -> c_int,
    finalize: unsafe extern "C" fn(*mut c_void) -> c_int,
}

type Begin = unsafe extern "C" fn(*mut *mut c_void, *mut c_int) -> c_int;
type BeginV4 =
    unsafe extern "C" fn(*mut *mut c_void, *mut c_int, *const c_char, u64, c_int, c_int, c_int, *const c_void) -> c_int;
type BeginV5 =
    unsafe extern "C" fn(*mut *mut c_void, u64, *mut c_int, *const c_char, c_int, c_int, c_int, *const c_void) -> c_int;

/// NCCL's part, as a version of its interface has it: a communicator with a plan of a collective and a message.
fn communicate(injected: &Injected, version: c_int) {
    let symbol = format!("ncclProfiler_v{version}");
    // SAFETY: that is what NCCL takes it for, and how it calls it.
    unsafe {
        let table: Symbol<*const ProfilerTable> = injected.0.get(symbol.as_bytes()).unwrap();
        let ProfilerTable { name, init, start, stop, record_state, finalize } = ptr::read(*table);
        assert_eq!(std::ffi::CStr::from_ptr(name), c"stepscope");
        let (mut context, mut wanted) = (ptr::null_mut(), 0);
        let (mesh, hash, log) = (c"mesh_tp".as_ptr(), 1 << version, ptr::null());
        let begun = match version {
            2 | 3 => std::mem::transmute::<*const c_void, Begin>(init)(&mut context, &mut wanted),
            4 => {
                let begin = std::mem::transmute::<*const c_void, BeginV4>(init);
                begin(&mut context, &mut wanted, mesh, hash, 1, version, 3, log)
            }
            _ => {
                let begin = std::mem::transmute::<*const c_void, BeginV5>(init);
                begin(&mut context, hash, &mut wanted, mesh, 1, version, 3, log)
            }
        };
        assert_eq!((begun, wanted, context.is_null()), (0, 0b110, false));
        // A collective has its function in the second, fourth or fifth word behind the head, and a message before that: all
        // of these are texts here, which no version takes for anything but a text, a number or an address.
        let word = c"Send".as_ptr() as u64;
        let mut begin = |kind: u64| {
            let mut descriptor = [word; 32];
            descriptor[0] = kind;
            descriptor[2] = 3;
            let mut handle = ptr::dangling::<c_void>();
            assert_eq!(start(context, &mut handle, descriptor.as_ptr().cast()), 0);
            handle
        };
        let calls = if version >= 5 { begin(1 << 8) } else { ptr::null() };
        assert_eq!(calls.is_null(), version < 5);
        let plan = begin(1);
        assert!(!plan.is_null(), "without a handle, NCCL before 2.28 says nothing of the plan");
        let others = [1 << 1, 1 << 2, 1 << 3].into_iter().chain((version >= 5).then_some(1 << 11));
        assert!(others.map(&mut begin).all(|handle| handle.is_null()));
        assert_eq!((record_state(plan, 7, ptr::null()), stop(plan), stop(calls)), (0, 0, 0));
        assert_eq!(finalize(context), 0);
    }
}

/// Waits for something to be in the run, which it is within a minute.
fn wait_until(is_so: impl Fn(&Run) -> bool) {
    let path = Injection::of_this_process().unwrap().unwrap().run;
    let began = Instant::now();
    while !is_so(&Run::open(&path).unwrap()) {
        assert!(began.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(20));
    }
}

/// The process that is recorded; in the test run itself it does nothing.
#[test]
fn recorded_process() {
    let Ok(mode) = env::var(MODE) else { return };
    let injected = Injected::load();
    if mode == "fork-first" {
        injected.nvtx_begins();
        // SAFETY: the child goes on as a program of its own, on its one thread.
        let child = unsafe { fork() }.unwrap();
        injected.cuda_begins();
        if let ForkResult::Parent { child } = child {
            assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 42));
        }
        std::process::exit(42);
    }
    if mode == "program" {
        injected.say_model(r#"{"layers": 2, "hidden": 64, "heads": 4, "ffn": 128, "vocabulary": 100}"#, 1024);
    }
    injected.cuda_begins();
    injected.cuda_begins();
    match mode.as_str() {
        "exit" => {}
        // SAFETY: nothing comes after it.
        "_exit" => unsafe { nix::libc::_exit(7) },
        "abort" => std::process::abort(),
        "wait" => wait_until(|run| run.ranks.len() == 1),
        "two-windows" => wait_until(|run| windows_of(run) == 2),
        "nvtx" => {
            injected.nvtx_begins();
            push(c"epoch");
            push(c"ProfilerStep#4");
            push(c"forward");
            push(c"layer 1");
            (0..4).for_each(|_| pop());
            across_threads(c"transfer");
        }
        "program" => {
            injected.nvtx_begins();
            injected.begin_step(7);
            injected.add_tokens(1000.0);
            injected.begin_phase("backward");
            push(c"step 1");
            injected.begin_phase("bucket");
            injected.end();
            pop();
            injected.add_tokens(2000.0);
            injected.end();
            injected.end();
            push(c"step 2");
            pop();
        }
        "torch" => {
            const MODEL: &[u8] = b"stepscope_torch_model";
            injected.failed(c"memory", c"no such attribute");
            assert!(injected.found(b"stepscope_torch_groups", r#"[{"name": "mesh_tp", "ranks": [0, 3]}]"#));
            assert!(!injected.found(b"stepscope_torch_groups", "?"));
            assert!(!injected.found(MODEL, r#"{"configuration": {"model_type": "odd"}}"#));
            let counted = r#"{"name": "GPT", "layers": 2, "width": 8, "parameters": 100, "embeddings": 10,
                "matrices": 80, "vocabulary": 5, "longest_side": 5}"#;
            assert!(injected.found(MODEL, &format!(r#"{{"counted": {counted}, "sequence_length": 64}}"#)));
            injected.count_tokens(f64::NAN);
            // A backward pass; one inside of an optimizer, which calls back; an evaluation, and a checkpoint.
            injected.mark(&[0]);
            injected.count_tokens(64.0);
            injected.mark(&[1, 2, 6, 0]);
            injected.count_tokens(64.0);
            injected.mark(&[1, 7, 3, 8, 9, 10, 11, 99]);
        }
        "profiles" => {
            for step in 0..2 {
                thread::sleep(Duration::from_millis(30));
                injected.profiles(|| {
                    injected.begin_step(step);
                    thread::sleep(Duration::from_millis(50));
                    injected.end();
                });
                // It is said when that is over.
                let pauses = |run: &Run| run.ranks[0].info.collector.other_profiler.unwrap_or_default();
                wait_until(|run| {
                    pauses(run).count == step as u64 + 1 && pauses(run).nanos > 40_000_000 * pauses(run).count
                });
            }
        }
        "nccl" => (2..=6).for_each(|version| communicate(&injected, version)),
        "fork" => {
            injected.nvtx_begins();
            push(c"step 1");
            pop();
            // SAFETY: the child does what is being tested, and exits.
            match unsafe { fork() }.unwrap() {
                ForkResult::Child => {
                    push(c"step 2");
                    pop();
                    std::process::exit(5);
                }
                ForkResult::Parent { child } => {
                    assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 5));
                }
            }
            push(c"step 3");
            pop();
        }
        other => panic!("no such mode: {other}"),
    }
    std::process::exit(42);
}
