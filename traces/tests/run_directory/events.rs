use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use proptest::{collection::vec, option, prelude::*, sample::select};
use stepscope_traces::{
    Correlation, CounterId, CounterSample, FIRST_NAME, Group, Layer, Loss, MemoryCategory, MemoryEvent,
    MemoryOperation, MicroBatch, NameId, Nanos, Phase, Pool, Rank, RankData, RankInfo, RankWriter, Run, RunInfo,
    Sequence, Span, SpanKind, Stage, Step, Stream, Window,
};
use tempfile::TempDir;

/// One call of the writer.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Span(Span),
    Memory(MemoryEvent),
    Counter(CounterSample),
    Name(u32, String),
    Flush,
}

/// Any time and duration whose end is a time too.
fn times() -> impl Strategy<Value = (Nanos, Nanos)> {
    (i64::MIN / 4..i64::MAX / 4, prop_oneof![0..1_000_000_i64, 0..i64::MAX / 4]).prop_map(|(s, d)| (Nanos(s), Nanos(d)))
}

fn span() -> impl Strategy<Value = Span> {
    let place = (
        option::of(any::<i32>().prop_map(Step)),
        option::of(any::<i32>().prop_map(MicroBatch)),
        option::of(select(Phase::ALL)),
        option::of(any::<i32>().prop_map(Layer)),
        option::of(any::<i16>().prop_map(Stage)),
    );
    let work = (
        option::of((0..4_u32).prop_map(Stream)),
        option::of(any::<u64>().prop_map(Correlation)),
        option::of(any::<u64>()),
        option::of(any::<u32>().prop_map(Group)),
        option::of(any::<u64>().prop_map(Sequence)),
        option::of(any::<u64>()),
    );
    (times(), select(SpanKind::ALL), any::<u32>().prop_map(NameId), place, work).prop_map(
        |((start, duration), kind, name, (step, micro_batch, phase, layer, stage), work)| {
            let (stream, correlation, bytes, group, sequence, flops) = work;
            let span = Span::new(kind, name, start, duration);
            Span { stream, correlation, step, micro_batch, phase, layer, stage, bytes, group, sequence, flops, ..span }
        },
    )
}

fn memory() -> impl Strategy<Value = MemoryEvent> {
    let place = (option::of(any::<i32>().prop_map(Step)), option::of(select(Phase::ALL)));
    let what = (
        select(MemoryOperation::ALL),
        any::<u64>(),
        option::of(any::<u64>()),
        option::of(select(MemoryCategory::ALL)),
        option::of(any::<i32>().prop_map(Layer)),
        option::of(any::<u32>().prop_map(Pool)),
    );
    (times(), place, what).prop_map(|((time_ns, _), (step, phase), (op, address, bytes, category, layer, pool))| {
        MemoryEvent { time_ns, op, address, bytes, category, step, phase, layer, pool, site: None }
    })
}

fn counter() -> impl Strategy<Value = CounterSample> {
    // Ids of the program's own counters: the recorder's would be taken for what it dropped.
    (times(), 100..4096_u16, -1e300..1e300_f64).prop_map(|((time_ns, _), counter, value)| CounterSample {
        time_ns,
        counter: CounterId(counter),
        value,
    })
}

pub(crate) fn calls() -> impl Strategy<Value = Vec<Call>> {
    let call = prop_oneof![
        6 => span().prop_map(Call::Span),
        3 => memory().prop_map(Call::Memory),
        2 => counter().prop_map(Call::Counter),
        1 => (FIRST_NAME.0..FIRST_NAME.0 + 50, ".{0,20}").prop_map(|(id, text)| Call::Name(id, text)),
        1 => Just(Call::Flush),
    ];
    vec(call, 0..120)
}

/// A run with one rank, and what was written to it.
pub(crate) struct WrittenRun {
    #[expect(dead_code, reason = "removed with the test")]
    directory: TempDir,
    pub(crate) path: PathBuf,
    pub(crate) written: Rows,
}

/// The rows of a rank.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Rows {
    /// Those of one stream, in order.
    pub(crate) spans: BTreeMap<Option<Stream>, Vec<Span>>,
    pub(crate) memory: Vec<MemoryEvent>,
    pub(crate) counters: Vec<CounterSample>,
    pub(crate) names: BTreeMap<NameId, String>,
}

impl Rows {
    pub(crate) fn of(data: &RankData) -> Rows {
        let mut rows = Rows {
            memory: data.memory.rows().collect(),
            counters: data.counters.rows().collect(),
            names: data.names.iter().map(|(id, text)| (id, text.to_owned())).collect(),
            ..Rows::default()
        };
        data.spans.rows().for_each(|span| rows.push(span));
        // The names of Stepscope's own counters are in every run.
        rows.names.retain(|id, _| *id >= FIRST_NAME);
        rows
    }

    fn push(&mut self, span: Span) {
        self.spans.entry(span.stream).or_default().push(span);
    }

    /// Every time at which something begins or ends, and one at which nothing does.
    pub(crate) fn times(&self) -> Vec<Nanos> {
        let spans = self.spans.values().flatten().map(Span::interval);
        let memory = self.memory.iter().map(MemoryEvent::interval);
        let counters = self.counters.iter().map(CounterSample::interval);
        let intervals = spans.chain(memory).chain(counters);
        intervals.flat_map(|(start, end)| [start, end]).chain([Nanos(0)]).collect()
    }

    pub(crate) fn within(&self, window: Window) -> Rows {
        let mut rows = Rows { names: self.names.clone(), ..Rows::default() };
        self.spans.values().flatten().filter(|span| window.touches(span.interval())).for_each(|span| rows.push(*span));
        rows.memory = self.memory.iter().filter(|event| window.touches(event.interval())).copied().collect();
        rows.counters = self.counters.iter().filter(|sample| window.touches(sample.interval())).copied().collect();
        rows
    }
}

impl WrittenRun {
    pub(crate) fn of(calls: &[Call]) -> WrittenRun {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run");
        RunInfo::of_this_process("test").create(&path).unwrap();
        let mut writer = RankWriter::create(&path, RankInfo::of_this_process(Rank(0))).unwrap();
        let mut written = Rows::default();
        for call in calls {
            match call {
                Call::Span(span) => {
                    writer.push_span(span).unwrap();
                    written.push(*span);
                }
                Call::Memory(event) => {
                    writer.push_memory(event).unwrap();
                    written.memory.push(*event);
                }
                Call::Counter(sample) => {
                    writer.push_counter(sample).unwrap();
                    written.counters.push(*sample);
                }
                Call::Name(id, text) => {
                    writer.push_name(NameId(*id), text).unwrap();
                    written.names.insert(NameId(*id), text.clone());
                }
                Call::Flush => writer.flush().unwrap(),
            }
        }
        writer.finish().unwrap();
        WrittenRun { directory, path, written }
    }

    /// A run of `batches` batches with `rows` spans each, numbered by their correlation.
    pub(crate) fn numbered(batches: u64, rows: u64) -> WrittenRun {
        let calls = (0..batches * rows).flat_map(|number| {
            let time = Nanos(number as i64 * 1000);
            let span = Span::new(SpanKind::Kernel, FIRST_NAME, time, Nanos(500 + number as i64 % 7));
            let span = Span { correlation: Some(Correlation(number)), step: Some(Step(1)), ..span };
            [Some(Call::Span(span)), ((number + 1) % rows == 0).then_some(Call::Flush)].into_iter().flatten()
        });
        WrittenRun::of(&calls.collect::<Vec<_>>())
    }

    pub(crate) fn rank(&self) -> PathBuf {
        self.path.join("rank-00000")
    }

    pub(crate) fn spans_file(&self) -> PathBuf {
        self.rank().join("spans.arrows")
    }

    pub(crate) fn read(&self) -> (RankData, Loss) {
        read(&self.path, Window::ALL)
    }
}

pub(crate) fn read(path: &Path, window: Window) -> (RankData, Loss) {
    Run::open(path).unwrap().rank(Rank(0)).unwrap().read(window).unwrap()
}

/// The numbers of the spans that could be read.
pub(crate) fn numbers(data: &RankData) -> Vec<u64> {
    data.spans.correlation.numbers().to_vec()
}
