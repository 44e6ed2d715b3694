//! Runs small enough to check on paper, written by the real writer.

use stepscope_plan::Axis;
use stepscope_traces::{
    ClockRecord, ClockSnapshot, FIRST_NAME, Group, GroupInfo, Nanos, Rank, RankInfo, RankWriter, Run, RunInfo,
    Sequence, Span, SpanKind, Stream,
};

use crate::{
    Selection, analyze,
    figures::Analysis,
    rank::{
        reading::{Counting, read_rank},
        result::{Detail, RankResult},
    },
    selection::StepChoice,
};

/// A span on the first stream.
pub(crate) fn span(kind: SpanKind, start: i64, end: i64) -> Span {
    Span { stream: Some(Stream(0)), ..Span::new(kind, FIRST_NAME, Nanos(start), Nanos(end.saturating_sub(start))) }
}

/// Communication with a group and a number, and a message of a thousand bytes.
pub(crate) fn talk(kind: SpanKind, group: u32, sequence: u64, start: i64, end: i64) -> Span {
    let (group, sequence) = (Some(Group(group)), Some(Sequence(sequence)));
    Span { stream: Some(Stream(1)), group, sequence, bytes: Some(1_000), ..span(kind, start, end) }
}

/// A rank of a run: its number, its clock and what it did.
pub(crate) struct TestRank {
    pub(crate) rank: u32,
    /// What it calls its clock, and times of it beside the time of day.
    pub(crate) clock: (String, Vec<(i64, i64)>),
    pub(crate) spans: Vec<Span>,
}

/// A run in a directory of its own.
pub(crate) struct TestRun {
    #[expect(dead_code, reason = "removed with the test")]
    directory: tempfile::TempDir,
    pub(crate) run: Run,
}

/// Ranks that share a clock, in order.
pub(crate) fn ranks(spans: &[&[Span]]) -> Vec<TestRank> {
    let rank = |(rank, spans): (u32, &&[Span])| TestRank {
        rank,
        clock: ("shared".into(), vec![(0, 0)]),
        spans: spans.to_vec(),
    };
    (0..).zip(spans).map(rank).collect()
}

impl TestRun {
    /// Writes ranks, and groups by number, axis and ranks.
    pub(crate) fn of(groups: &[(u32, Axis, &[u32])], ranks: &[TestRank]) -> TestRun {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run");
        let mut info = RunInfo::of_this_process("by hand");
        let group = |(number, axis, ranks): &(u32, Axis, &[u32])| GroupInfo {
            group: Group(*number),
            axis: *axis,
            ranks: ranks.iter().copied().map(Rank).collect(),
        };
        info.groups = groups.iter().map(group).collect();
        info.create(&path).unwrap();
        for rank in ranks {
            let mut info = RankInfo::of_this_process(Rank(rank.rank));
            let (source, readings) = rank.clock.clone();
            let snapshot = |(rank, wall): (i64, i64)| ClockSnapshot { rank_ns: Nanos(rank), wall_ns: Nanos(wall) };
            info.clock = ClockRecord { source, snapshots: readings.into_iter().map(snapshot).collect() };
            let mut writer = RankWriter::create(&path, info).unwrap();
            writer.push_name(FIRST_NAME, "something").unwrap();
            rank.spans.iter().for_each(|span| writer.push_span(span).unwrap());
            writer.finish().unwrap();
        }
        let run = Run::open(&path).unwrap();
        TestRun { directory, run }
    }

    pub(crate) fn analyze(&self) -> Analysis {
        analyze(&self.run, &Selection::default(), &|_| ()).unwrap()
    }

    /// What each rank comes to.
    pub(crate) fn results(&self) -> Vec<RankResult> {
        results(&self.run)
    }
}

/// What each rank of a run comes to.
pub(crate) fn results(run: &Run) -> Vec<RankResult> {
    let (selection, counting) = (Selection::default(), Counting::Alone(StepChoice::Counted));
    let read = |rank| read_rank(&run.info, rank, &selection, counting, Detail::Figures).unwrap();
    run.ranks.iter().map(read).collect()
}
