use proptest::prelude::*;
use stepscope_plan::{Axis, ModelShape, ParallelLayout};
use stepscope_traces::{
    Nanos, Run, RunInfo, Span, SpanKind,
    synthetic::{Clocks as BentClocks, Pipeline, Recipe, Schedule, Truth},
};
use stepscope_trainer::{CpuTraining, TrainConfig};

use super::*;
use crate::test_runs::{TestRank, TestRun, ranks, results, talk};

use SpanKind::{AllReduce, Receive, Send};

const SECOND: i64 = 1_000_000_000;

fn alignment(run: &Run) -> Alignment {
    Alignment::of(&results(run), &run.info.groups)
}

fn write(recipe: &Recipe) -> (Run, Truth, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    let truth = recipe.write(&path).unwrap();
    (Run::open(&path).unwrap(), truth, directory)
}

/// How far a rank's time is off after alignment, at worst, from the beginning to the end of a run.
fn worst(alignment: &Alignment, truth: &Truth) -> i64 {
    let shows = |rank: usize, time: i64| {
        let rank = &truth.ranks[rank];
        time + rank.clock_offset.0 + (i128::from(time) * i128::from(rank.clock_drift) / i128::from(SECOND)) as i64
    };
    let last = truth.ranks[0].steps.last().unwrap();
    let end = last.start.0 - truth.ranks[0].clock_offset.0 + last.figures.span.0;
    let times = (0..=20).map(|part| end * part / 20);
    let off = times.flat_map(|time| {
        (0..truth.ranks.len()).map(move |rank| (alignment.align(rank, shows(rank, time)) - shows(0, time)).abs())
    });
    off.max().unwrap()
}

fn bent(largest_wall_error: i64) -> BentClocks {
    let (largest_offset, largest_wall_error) = (Nanos(5 * SECOND), Nanos(largest_wall_error));
    BentClocks { largest_offset, largest_drift: 100_000, largest_wall_error }
}

fn pipeline(stages: u32, schedule: Schedule, chunks: u32) -> Option<Pipeline> {
    Some(Pipeline { stages, schedule, chunks, transfer: Nanos(30_000) })
}

#[test]
fn synthetic_clocks_are_found_out() {
    let recipes = [
        Recipe { replicas: 2, ..Recipe::default() },
        Recipe { replicas: 8, steps: 20, ..Recipe::default() },
        Recipe { replicas: 2, steps: 1, layers: 1, ..Recipe::default() },
        Recipe { pipeline: pipeline(4, Schedule::Gpipe, 1), ..Recipe::default() },
        Recipe { pipeline: pipeline(4, Schedule::Interleaved, 2), micro_batches: 4, ..Recipe::default() },
        Recipe { replicas: 3, pipeline: pipeline(2, Schedule::OneForwardOneBackward, 1), ..Recipe::default() },
    ];
    for (seed, recipe) in (1..).zip(recipes) {
        // The time of day is a millisecond off, and more than the goal in any case.
        let recipe = Recipe { seed, waiting: 0.3, jitter: 0.1, clocks: bent(1_000_000), ..recipe };
        let (run, truth, _directory) = write(&recipe);
        let alignment = alignment(&run);
        let (worst, residual) = (worst(&alignment, &truth), alignment.summary.residual_ns.unwrap());
        eprintln!("{} ranks, {} steps: off by {worst} ns, residual {residual} ns", truth.ranks.len(), recipe.steps);
        assert_eq!(alignment.summary.aligned_by, AlignedBy::Collectives);
        assert!(worst < 10_000 && residual < 10_000);
        let first = &alignment.summary.ranks[0];
        assert_eq!((first.offset_ns, first.drift_ns_per_second), (0, 0.0));
        let (zero, one) = (&truth.ranks[0], &truth.ranks[1]);
        let found = &alignment.summary.ranks[1];
        assert!((found.offset_ns - (zero.clock_offset.0 - one.clock_offset.0)).abs() < 10_000);
        // A short run tells little of drift, and needs to.
        if recipe.steps > 1 {
            assert!((found.drift_ns_per_second - (zero.clock_drift - one.clock_drift) as f64).abs() < 100.0);
        }
    }
}

#[test]
fn without_talk_the_time_of_day_has_to_do() {
    let silent = Some(Pipeline { stages: 3, schedule: Schedule::Gpipe, chunks: 1, transfer: Nanos(0) });
    let (run, truth, _directory) = write(&Recipe { pipeline: silent, clocks: bent(2_000), ..Recipe::default() });
    let alignment = alignment(&run);
    assert_eq!((alignment.summary.aligned_by, alignment.summary.residual_ns), (AlignedBy::Anchors, None));
    assert!(worst(&alignment, &truth) <= 4_010, "two errors of 2 microseconds");
}

#[test]
fn one_rank_is_its_own_time() {
    let (run, ..) = write(&Recipe { clocks: bent(0), ..Recipe::default() });
    let alignment = alignment(&run);
    assert_eq!((alignment.summary.aligned_by, alignment.summary.residual_ns), (AlignedBy::None, None));
    assert_eq!([i64::MIN, -1, 0, i64::MAX].map(|time| alignment.align(0, time)), [i64::MIN, -1, 0, i64::MAX]);
}

#[test]
fn ranks_that_share_a_clock_keep_it() {
    let one = [talk(AllReduce, 0, 0, 0, 100), talk(AllReduce, 0, 1, 200, 300)];
    let two = [talk(AllReduce, 0, 0, 50, 107), talk(AllReduce, 0, 1, 200, 340)];
    let made = TestRun::of(&[(0, Axis::Data, &[0, 1])], &ranks(&[&one, &two]));
    let alignment = alignment(&made.run);
    assert_eq!((alignment.summary.aligned_by, alignment.summary.residual_ns), (AlignedBy::Anchors, Some(40)));
    assert_eq!([-7, 0, i64::MAX].map(|time| alignment.align(1, time)), [-7, 0, i64::MAX]);
    assert_eq!((alignment.summary.ranks[1].offset_ns, alignment.summary.ranks[1].drift_ns_per_second), (0, 0.0));
}

#[test]
fn trained_ranks_share_the_clock_of_their_host() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    let layout = ParallelLayout { dp: 2, pp: 4, micro_batches: 4, sequence_length: 16, ..ParallelLayout::default() };
    let tiny = ModelShape::preset("tiny").unwrap();
    let model = ModelShape { hidden: 32, heads: 4, kv_heads: 4, head_dim: 8, ffn: 32, vocabulary: 256, ..tiny };
    let config = TrainConfig { steps: 2, ..TrainConfig::new(model, layout) };
    let groups = stepscope_trainer::comm::Groups::describe(&layout);
    RunInfo { groups, ..RunInfo::of_this_process("trained") }.create(&path).unwrap();
    CpuTraining::prepare(&config).unwrap().run(Some(&path), &|_| ()).unwrap();
    let run = Run::open(&path).unwrap();
    let alignment = alignment(&run);
    assert_eq!(alignment.summary.aligned_by, AlignedBy::Anchors);
    assert!(alignment.summary.residual_ns.is_some());
    for rank in 0..8 {
        assert_eq!([-7, 0, i64::MAX].map(|time| alignment.align(rank, time)), [-7, 0, i64::MAX]);
    }
    // Every message has a send and a receive, and the receive does not end before the send begins.
    let results = results(&run);
    let found = messages(&results, &run.info.groups);
    assert_eq!(found.len(), 2 * 4 * 2 * 3 * 2, "steps, micro-batches, replicas, borders of stages, there and back");
    for message in found {
        let [send, receive] = message.spans(&results);
        assert!(receive.end >= send.start && receive.bytes == send.bytes);
    }
}

/// A rank with a clock of its own, of which nothing ties it to the time of day but one reading.
fn own_clock(rank: u32, reading: Option<(i64, i64)>, spans: Vec<Span>) -> TestRank {
    TestRank { rank, clock: (format!("clock of {rank}"), reading.into_iter().collect()), spans }
}

#[test]
fn collectives_count_more_than_the_time_of_day() {
    let reduces = |offset: i64| (0..20).map(move |at| talk(AllReduce, 0, at, offset, offset + at as i64 * 1_000 + 10));
    // Rank 1 is 5000 ahead, though its time of day says 300; rank 2 has no time of day, and rank 3 nothing else.
    let made = TestRun::of(
        &[],
        &[
            own_clock(0, Some((0, 7_000)), reduces(0).collect()),
            own_clock(1, Some((300, 7_000)), reduces(5_000).collect()),
            own_clock(2, None, reduces(-9_000).collect()),
            own_clock(3, Some((40, 7_000)), Vec::new()),
            own_clock(4, None, Vec::new()),
        ],
    );
    let alignment = alignment(&made.run);
    assert_eq!((alignment.summary.aligned_by, alignment.summary.residual_ns), (AlignedBy::Collectives, Some(0)));
    let at = |rank, time| alignment.align(rank, time);
    assert_eq!([at(0, 100), at(1, 5_100), at(2, -8_900), at(3, 140), at(4, 100)], [100; 5]);
    assert_eq!(alignment.summary.ranks[1].offset_ns, -5_000);
}

#[test]
fn messages_both_ways_say_when_it_is() {
    // Rank 1 is 5000 ahead. Receives end up to 300 late, and once in a while at once.
    let late = |number: i64| number * 7 % 10 * 30;
    let (mut one, mut two) = (Vec::new(), Vec::new());
    for number in 0..100 {
        let (time, sequence) = (number * 10_000, number as u64);
        one.push(talk(Send, 0, sequence, time, time + 10));
        two.push(talk(Receive, 0, sequence, time + 5_000, time + 5_010 + late(number)));
        two.push(talk(Send, 1, sequence, time + 7_000, time + 7_010));
        one.push(talk(Receive, 1, sequence, time + 2_000, time + 2_010 + late(number + 1)));
    }
    let made = TestRun::of(&[], &[own_clock(0, None, one), own_clock(1, None, two)]);
    let alignment = alignment(&made.run);
    assert_eq!(alignment.summary.aligned_by, AlignedBy::Collectives);
    for time in [0, 500_000, 1_000_000] {
        assert!((alignment.align(1, time + 5_000) - time).abs() <= 30, "{}", alignment.align(1, time + 5_000) - time);
    }
}

#[test]
fn ends_that_are_not_quite_together_are_together_on_average() {
    // Over three seconds, three hundred collectives end up to eight microseconds late.
    let noise = |at: i64, rank: i64| {
        let mixed = (at as u64 * 8 + rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) as i64 >> 40 & 0x1fff
    };
    let made = (0..8_u32).map(|rank| {
        let shows = |time: i64| time + i64::from(rank) * SECOND + time / 1_000_000 * i64::from(rank) * 10;
        let end = |at: i64| shows(at * 10_000_000 + noise(at, rank.into()));
        own_clock(rank, None, (0..300).map(|at| talk(AllReduce, 0, at as u64, end(at) - 100, end(at))).collect())
    });
    let made: Vec<TestRank> = made.collect();
    let alignment = alignment(&TestRun::of(&[], &made).run);
    let mut worst = 0;
    for rank in 0..8_i64 {
        for time in [0, SECOND, 3 * SECOND] {
            let off = alignment.align(rank as usize, time + rank * SECOND + time / 1_000_000 * rank * 10) - time;
            worst = worst.max(off.abs());
        }
    }
    eprintln!("off by {worst} ns");
    assert!(worst < 2_000);
    assert!(alignment.summary.residual_ns.is_some_and(|residual| (5_000..9_000).contains(&residual)));
}

fn any_recipe() -> impl Strategy<Value = Recipe> {
    let schedule = prop_oneof![
        Just((Schedule::Gpipe, 1)),
        Just((Schedule::OneForwardOneBackward, 1)),
        Just((Schedule::Interleaved, 2)),
    ];
    let pipeline = proptest::option::of((2..5_u32, schedule, 1_000..200_000_i64));
    let size = (any::<u64>(), 1..3_u32, 1..5_u32, 1..3_u32, 1..16_u32);
    (size, pipeline, (0.0..0.3, 0.0..0.3), (0..SECOND, 0..500_000_i64, 0..SECOND)).prop_map(
        |((seed, replicas, steps, layers, kernels_per_layer), pipeline, (waiting, jitter), clocks)| {
            let (largest_offset, largest_drift, largest_wall_error) = (Nanos(clocks.0), clocks.1, Nanos(clocks.2));
            let stages = pipeline.map_or(1, |(stages, ..)| stages);
            let pipeline = pipeline.map(|(stages, (schedule, chunks), transfer)| Pipeline {
                stages,
                schedule,
                chunks,
                transfer: Nanos(transfer),
            });
            Recipe {
                seed,
                // Somebody has to talk.
                replicas: if stages == 1 { replicas + 1 } else { replicas },
                steps,
                micro_batches: stages * 2,
                layers: layers * 2,
                kernels_per_layer,
                waiting,
                jitter,
                pipeline,
                clocks: BentClocks { largest_offset, largest_drift, largest_wall_error },
                ..Recipe::default()
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Whatever is done, and however wrong the time of day is.
    #[test]
    fn any_synthetic_clocks_are_found_out(recipe in any_recipe()) {
        let (run, truth, _directory) = write(&recipe);
        let worst = worst(&alignment(&run), &truth);
        prop_assert!(worst < 10_000, "off by {worst} ns");
    }

    /// Some collectives end at any time at all on one rank, decades away too.
    #[test]
    fn a_few_outliers_do_not_matter(
        wrong in proptest::collection::vec((0..100_usize, any::<i64>()), 0..12),
        base in -(1_i64 << 62)..1_i64 << 62,
        offset in -(1_i64 << 61)..1_i64 << 61,
        drift in -200_000..200_000_i64,
    ) {
        let time = |at: i64| at * 3_000_000;
        let reduce = |at: i64, end: i64| talk(AllReduce, 0, at as u64, end - 10, end);
        let shows = |at: i64| base.saturating_add(offset).clamp(-(1 << 62), 1 << 62) + time(at) + time(at) / 1_000 * drift / 1_000_000;
        let one: Vec<Span> = (0..100).map(|at| reduce(at, base + time(at))).collect();
        let mut two: Vec<Span> = (0..100).map(|at| reduce(at, shows(at))).collect();
        for (at, end) in wrong {
            two[at] = reduce(at as i64, shows(0) + end % (1 << 60));
        }
        let made = TestRun::of(&[], &[own_clock(0, None, one), own_clock(1, None, two)]);
        let alignment = alignment(&made.run);
        for at in 0..100 {
            let off = alignment.align(1, shows(at)) - (base + time(at));
            prop_assert!(off.abs() <= 10, "{off}");
        }
    }
}
