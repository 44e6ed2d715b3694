use std::path::Path;

use stepscope_analyzer::{Analysis, Selection, analyze};
use stepscope_traces::{
    CounterSample, FIRST_NAME, Layer, MemoryEvent, MicroBatch, NameId, Nanos, Phase, Rank, RankInfo, RankWriter, Run,
    RunInfo, Span, SpanKind, Step, Stream,
};
use tempfile::TempDir;

/// What the ranks of a run by hand did.
#[derive(Default)]
pub(crate) struct Hand {
    pub(crate) spans: Vec<(&'static str, Span)>,
    pub(crate) memory: Vec<MemoryEvent>,
    pub(crate) counters: Vec<CounterSample>,
}

/// A span, in microseconds.
pub(crate) fn span(kind: SpanKind, start: i64, end: i64) -> Span {
    let mut span = Span::new(kind, FIRST_NAME, Nanos(1000 * start), Nanos(1000 * (end - start)));
    span.stream = Some(Stream(u32::from(kind != SpanKind::Kernel)));
    span
}

/// The same, in a step, a phase and a layer.
pub(crate) fn within(span: Span, step: i32, micro_batch: i32, phase: Phase, layer: i32) -> Span {
    let (step, micro_batch, phase) = (Some(Step(step)), Some(MicroBatch(micro_batch)), Some(phase));
    Span { step, micro_batch, phase, layer: Some(Layer(layer)), ..span }
}

impl Hand {
    pub(crate) fn add(&mut self, name: &'static str, span: Span) -> &mut Self {
        self.spans.push((name, span));
        self
    }
}

/// Writes a run and leaves it to be opened.
pub(crate) fn write(info: RunInfo, ranks: &[Hand]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    info.create(&directory.path().join("run")).unwrap();
    for (rank, hand) in ranks.iter().enumerate() {
        write_rank(&directory.path().join("run"), Rank(rank as u32), hand);
    }
    directory
}

fn write_rank(run: &Path, rank: Rank, hand: &Hand) {
    let mut writer = RankWriter::create(run, RankInfo::of_this_process(rank)).unwrap();
    let mut names: Vec<&str> = Vec::new();
    for (name, span) in &hand.spans {
        let known = names.iter().position(|other| other == name);
        let index = known.unwrap_or(names.len());
        let id = NameId(FIRST_NAME.0 + index as u32);
        if known.is_none() {
            writer.push_name(id, name).unwrap();
            names.push(name);
        }
        writer.push_span(&Span { name: id, ..*span }).unwrap();
    }
    hand.memory.iter().for_each(|event| writer.push_memory(event).unwrap());
    hand.counters.iter().for_each(|sample| writer.push_counter(sample).unwrap());
    writer.finish().unwrap();
}

/// Everything a run says; its partitions add up.
pub(crate) fn analyzed(directory: &TempDir, selection: &Selection) -> Analysis {
    let run = Run::open(&directory.path().join("run")).unwrap();
    let analysis = analyze(&run, selection, &|_| {}).unwrap();
    assert_adds_up(&analysis);
    analysis
}

/// What must hold of every analysis.
pub(crate) fn assert_adds_up(analysis: &Analysis) {
    for rank in &analysis.ranks {
        assert!(rank.partition.adds_up(), "{rank:?}");
        let parts = &rank.breakdown;
        let sum =
            |of: fn(&stepscope_analyzer::Share) -> i64| parts.phases.iter().map(|phase| of(&phase.share)).sum::<i64>();
        assert_eq!(sum(|share| share.compute_ns), rank.partition.compute_ns);
        assert_eq!(sum(|share| share.exposed_communication_ns), rank.partition.exposed_communication_ns);
        let layers: i64 = parts.layers.iter().map(|layer| layer.share.compute_ns).sum();
        assert_eq!(layers, rank.partition.compute_ns);
        let axes: i64 = parts.axes.iter().map(|axis| axis.exposed_ns).sum();
        assert_eq!(axes, rank.partition.exposed_communication_ns);
    }
    for step in &analysis.steps {
        assert!(step.partition.adds_up() && step.duration_ns == step.partition.span_ns, "{step:?}");
    }
    for memory in &analysis.memory {
        assert_eq!(memory.at_peak.values().sum::<u64>(), memory.peak_bytes);
    }
    let shares: f64 = analysis.kernels.iter().map(|kernel| kernel.share).sum();
    let any = analysis.kernels.iter().any(|kernel| kernel.total_ns > 0);
    assert!(!any || (shares - 1.0).abs() < 1e-9);
    assert_eq!(
        analysis.kernels.iter().map(|kernel| kernel.total_ns).sum::<i64>(),
        analysis.families.iter().map(|family| family.total_ns).sum::<i64>()
    );
}
