use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock},
};

use ratatui::{buffer::Buffer, layout::Rect};
use stepscope_traces::{
    FIRST_NAME, Incident, IncidentKind, KeptIncident, Nanos, NativeThread, PythonThread, Rank, RankInfo, RankStacks,
    RankWriter, RunInfo, Span, SpanKind, Step, Stream, Window, now,
    synthetic::{Pipeline, Recipe, Schedule},
};
use tempfile::TempDir;

use crate::{
    app::App,
    data::{Detail, DetailRequest, RankTime, Snapshot, Source, TimelineRequest},
    event::Event,
    readers::{DetailReader, load},
    theme::{Theme, ThemeName},
    view::View,
};

/// A run to look at, by name.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) snapshot: Arc<Snapshot>,
    /// Has all of it in memory: files of runs that are made up are gone.
    reader: Mutex<DetailReader>,
}

impl Case {
    pub(crate) fn of(name: &'static str, (snapshot, reader): Read) -> Case {
        Case { name, snapshot, reader: Mutex::new(reader) }
    }

    /// Gives an app what it asks for, until it asks for nothing more.
    pub(crate) fn answer(&self, app: &mut App, now: Nanos, width: u16, height: u16) {
        for _ in 0..4 {
            drawn(app, now, width, height);
            let Some((run, request)) = app.detail_request() else { return };
            app.handle(Event::Detail(self.reader.lock().unwrap().read(&run, &request)));
        }
    }
}

/// Where runs are made, in a folder of a random name: the last folders are shown.
const MADE: &str = "jobs/runs/made";

/// What is read of a run.
pub(crate) type Read = (Arc<Snapshot>, DetailReader);

/// Every run that views are looked at with; made once.
pub(crate) fn all() -> &'static [Case] {
    static CASES: OnceLock<Vec<Case>> = OnceLock::new();
    CASES.get_or_init(|| {
        vec![
            Case::of("sample", read(&sample("tp2"))),
            Case::of("one_rank", read(&sample("single"))),
            Case::of("synthetic", made(&synthetic(), |_| {})),
            Case::of("interrupted", made(&synthetic(), interrupt)),
            Case::of("lossy", made(&synthetic(), damage)),
            Case::of("many_ranks", made(&many_ranks(), |_| {})),
            Case::of("recording", recording()),
            Case::of("empty", empty()),
        ]
    })
}

/// The run of a name.
pub(crate) fn named(name: &str) -> &'static Case {
    all().iter().find(|case| case.name == name).unwrap()
}

/// One frame, as text without its colors.
pub(crate) fn frame(view: View, theme: ThemeName, case: &Case, width: u16, height: u16) -> String {
    let mut app = App::new(view, Theme::new(theme), false);
    let moment = case.snapshot.newest.map_or(Nanos(0), |newest| newest + Nanos(300_000_000));
    app.handle(Event::Data(case.snapshot.clone()));
    case.answer(&mut app, moment, width, height);
    drawn(&mut app, moment, width, height)
}

/// What an app draws, as text without its colors.
pub(crate) fn drawn(app: &mut App, now: Nanos, width: u16, height: u16) -> String {
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    app.draw(now, area, &mut buffer);
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned() + "\n";
    (0..height).map(line).collect()
}

pub(crate) fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces/samples").join(name)
}

pub(crate) fn read(path: &Path) -> Read {
    let source = Source::Named(vec![path.to_owned()]);
    let snapshot = load(&source).unwrap().unwrap();
    let mut reader = DetailReader::new(source);
    let ranks = snapshot.run.iter().flat_map(|run| &run.ranks).map(|rank| RankTime { rank: *rank, shift: 0 }).collect();
    let request = DetailRequest::Timeline(TimelineRequest {
        ranks,
        window: Some(Window::ALL),
        columns: 1,
        newest: snapshot.newest,
    });
    assert!(matches!(reader.read(path, &request), Detail::Timeline(_)));
    (Arc::new(snapshot), reader)
}

fn synthetic() -> Recipe {
    let pipeline = Pipeline { stages: 2, schedule: Schedule::Gpipe, chunks: 1, transfer: Nanos(20_000) };
    Recipe { replicas: 2, steps: 40, overlap: 0.3, pipeline: Some(pipeline), ..Recipe::default() }
}

fn many_ranks() -> Recipe {
    let small = Recipe { micro_batches: 1, layers: 1, kernels_per_layer: 4, ..Recipe::default() };
    Recipe { replicas: 512, steps: 3, compute_streams: 1, ..small }
}

/// A run that is made up, and then changed.
fn made(recipe: &Recipe, change: fn(&Path)) -> Read {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join(MADE);
    recipe.write(&path).unwrap();
    change(&path);
    read(&path)
}

fn interrupt(run: &Path) {
    let file = run.join("rank-00001/rank.json");
    let text = fs::read_to_string(&file).unwrap();
    let changed = text.replace("\"complete\"", "\"interrupted\"");
    assert_ne!(text, changed);
    fs::write(file, changed).unwrap();
    let stacks = vec![RankStacks {
        rank: Rank(1),
        python: vec![PythonThread::new("MainThread", [("all_reduce", "train.py", 41), ("main", "train.py", 12)])],
        native: vec![NativeThread { name: "python".into(), does: "waits in futex".into(), count: 3 }],
    }];
    let slow = "step 21 took 65.1 ms, usually 16.3 ms";
    let why = "rank 1 did not run for 48.2 ms of it: stopped, or without a processor";
    keep(run, IncidentKind::SlowStep, 21, [slow, why], Vec::new());
    let hang = "no step has ended for 30.0 s, usually 16.3 ms: rank 1 has not come to all-reduce 40 of data";
    keep(run, IncidentKind::Hang, 39, [hang, "ranks 0, 2 and 3 wait in all-reduce 40 of data"], stacks);
}

/// Writes down something that went wrong: what, and what that rests on.
fn keep(run: &Path, kind: IncidentKind, step: i32, [summary, why]: [&str; 2], stacks: Vec<RankStacks>) {
    let incident = Incident {
        kind,
        time_ns: Nanos(i64::from(step) * 100 * Nanos::SECOND.0),
        step: Some(Step(step)),
        ranks: vec![Rank(1)],
        summary: summary.into(),
        evidence: vec![why.into()],
        steps: None,
        ended_job: kind == IncidentKind::Hang,
        explained: true,
        stacks,
    };
    KeptIncident::create(run, incident).unwrap();
}

fn damage(run: &Path) {
    let file = run.join("rank-00000/spans.arrows");
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 64].fill(0xff);
    fs::write(file, bytes).unwrap();
}

/// A run that is being recorded: three steps are made, and a fourth one is going on.
fn recording() -> Read {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join(MADE);
    let mut info = RunInfo::of_this_process("going-on");
    info.world_size = Some(1);
    // How long it took to make this up is nobody's elapsed time.
    info.started.clear();
    info.configuration.insert("steps".into(), 10.into());
    info.create(&path).unwrap();
    let mut writer = RankWriter::create(&path, RankInfo::of_this_process(Rank(0))).unwrap();
    writer.push_name(FIRST_NAME, "matmul").unwrap();
    let begin = now().0;
    let mut push = |kind, step, start: i64, length: i64| {
        let span = Span::new(kind, FIRST_NAME, Nanos(begin + start * 1_000_000), Nanos(length * 1_000_000));
        writer.push_span(&Span { step: Some(Step(step)), stream: Some(Stream(0)), ..span }).unwrap();
    };
    for step in 0..4 {
        let start = i64::from(step) * 100;
        push(SpanKind::Kernel, step, start, 60);
        push(SpanKind::AllReduce, step, start + 50, 30);
        if step < 3 {
            push(SpanKind::Step, step, start, 99);
        }
    }
    writer.flush().unwrap();
    let snapshot = read(&path);
    drop(writer);
    snapshot
}

/// A run of which there is a `run.json`, and nothing else.
fn empty() -> Read {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join(MADE);
    RunInfo::of_this_process("begun").create(&path).unwrap();
    read(&path)
}
