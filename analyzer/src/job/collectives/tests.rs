use proptest::{collection::vec, option, prelude::*, sample::select};
use stepscope_plan::Axis;
use stepscope_traces::{
    Nanos, Rank, Run, Span, SpanKind, Stream,
    synthetic::{Clocks, Pipeline, Recipe, Schedule},
};

use super::*;
use crate::{
    Selection, StepChoice, analyze,
    test_runs::{TestRun, ranks, span, talk},
};

use SpanKind::{AllGather, AllReduce, Kernel, Receive, Send};

fn find(figures: &[CollectiveFigures], operation: SpanKind) -> &CollectiveFigures {
    figures.iter().find(|figures| figures.operation == operation).unwrap()
}

fn waits(stragglers: &[Straggler]) -> Vec<(u32, i64, i64)> {
    stragglers.iter().map(|straggler| (straggler.rank.0, straggler.wait_ns, straggler.caused_wait_ns)).collect()
}

/// Two ranks and two all-reduces: rank 1 comes 300 late to the first, rank 0 comes 100 late to the second.
#[test]
fn every_figure_is_what_paper_says() {
    let one = [talk(AllReduce, 4, 0, 0, 500), span(Kernel, 400, 700), talk(AllReduce, 4, 1, 1_100, 1_300)];
    let two = [talk(AllReduce, 4, 0, 300, 500), span(Kernel, 0, 100), talk(AllReduce, 4, 1, 1_000, 1_300)];
    let analysis = TestRun::of(&[(4, Axis::Data, &[0, 1])], &ranks(&[&one, &two])).analyze();
    let expected = CollectiveFigures {
        operation: AllReduce,
        axis: Some(Axis::Data),
        group_size: Some(2),
        count: 2,
        bytes: Some(2_000),
        busy_ns: 500 + 200 + 200 + 300,
        exposed_ns: 400 + 200 + 200 + 300,
        own_ns: Some(200 + 200),
        waiting_ns: Some(300 + 100),
        algorithm_bandwidth: Some(2_000.0 / 400e-9),
        bus_bandwidth: Some(2_000.0 / 400e-9),
        by_size: vec![MessageSize {
            count: 2,
            bytes: 2_000,
            own_ns: 400,
            algorithm_bandwidth: Some(2_000.0 / 400e-9),
            bus_bandwidth: Some(2_000.0 / 400e-9),
        }],
        by_step: [(None, (2_000, 400))].into(),
    };
    assert_eq!(analysis.collectives, [expected]);
    assert_eq!(waits(&analysis.stragglers), [(0, 300, 100), (1, 100, 300)]);
    assert_eq!(pairs(&analysis), [(0, 1, 300), (1, 0, 100)]);
}

fn pairs(analysis: &crate::Analysis) -> Vec<(u32, u32, i64)> {
    analysis.waits.iter().map(|wait| (wait.rank.0, wait.for_rank.0, wait.wait_ns)).collect()
}

/// Rank 2 is 70 late to what all do, and rank 0 is 30 late to what it does with rank 1.
#[test]
fn waiting_is_told_in_pairs() {
    let first = [talk(AllReduce, 0, 0, 0, 100), talk(AllReduce, 1, 0, 230, 300)];
    let second = [talk(AllReduce, 0, 0, 40, 100), talk(AllReduce, 1, 0, 200, 300)];
    let third = [talk(AllReduce, 0, 0, 70, 100)];
    let groups: [(u32, Axis, &[u32]); 2] = [(0, Axis::World, &[0, 1, 2]), (1, Axis::Data, &[0, 1])];
    let analysis = TestRun::of(&groups, &ranks(&[&first, &second, &third])).analyze();
    assert_eq!(pairs(&analysis), [(0, 2, 70), (1, 0, 30), (1, 2, 30)]);
}

/// Of many ranks, pairs are those that matter, and no more than can be looked at.
#[test]
fn of_many_ranks_the_worst_are_told_in_pairs() {
    let spans: Vec<[Span; 1]> = (0..100).map(|rank| [talk(AllReduce, 0, 0, rank, 200)]).collect();
    let everybody: Vec<u32> = (0..100).collect();
    let spans: Vec<&[Span]> = spans.iter().map(|spans| &spans[..]).collect();
    let analysis = TestRun::of(&[(0, Axis::Data, &everybody)], &ranks(&spans)).analyze();
    let expected: Vec<(u32, u32, i64)> = (0..32).map(|rank| (rank, 99, i64::from(99 - rank))).collect();
    assert_eq!(pairs(&analysis), expected);
    assert_eq!(analysis.stragglers.len(), 100);
}

#[test]
fn messages_are_told_by_their_size() {
    let message = |bytes: u64, number: u64, start: i64, end: i64| Span {
        bytes: Some(bytes),
        ..talk(AllGather, 0, number, start, end)
    };
    let spans = [
        message(0, 0, 0, 10),
        message(1 << 20, 1, 20, 60),
        message((1 << 21) - 1, 2, 70, 90),
        message(1 << 21, 3, 100, 110),
    ];
    let analysis = TestRun::of(&[(0, Axis::Data, &[0, 1])], &ranks(&[&spans, &spans])).analyze();
    let sizes = &find(&analysis.collectives, AllGather).by_size;
    let told: Vec<_> = sizes.iter().map(|size| (size.count, size.bytes, size.own_ns)).collect();
    assert_eq!(told, [(1, 0, 10), (2, (1 << 20) + (1 << 21) - 1, 60), (1, 1 << 21, 10)]);
    let largest = sizes.last().unwrap();
    assert_eq!(largest.bus_bandwidth, largest.algorithm_bandwidth.map(|bandwidth| bandwidth / 2.0));
}

#[test]
fn bus_bandwidth_has_the_usual_factors() {
    let operations = [AllReduce, AllGather, SpanKind::ReduceScatter, SpanKind::Broadcast];
    let spans: Vec<Span> =
        (0..).zip(operations).map(|(at, operation)| talk(operation, 0, at as u64, at * 100, at * 100 + 10)).collect();
    let four = ranks(&[&spans, &spans, &spans, &spans]);
    let analysis = TestRun::of(&[(0, Axis::World, &[0, 1, 2, 3])], &four).analyze();
    for (operation, factor) in operations.into_iter().zip([1.5, 0.75, 0.75, 1.0]) {
        let figures = find(&analysis.collectives, operation);
        assert_eq!((figures.group_size, figures.count), (Some(4), 1));
        let ratio = figures.bus_bandwidth.unwrap() / figures.algorithm_bandwidth.unwrap();
        assert!((ratio - factor).abs() < 1e-12, "{operation}: {ratio}");
    }
}

#[test]
fn what_overlaps_on_a_rank_is_covered_once() {
    let mut other = talk(AllReduce, 0, 1, 50, 150);
    other.stream = Some(Stream(2));
    let spans = [talk(AllReduce, 0, 0, 0, 100), other, span(Kernel, 80, 120)];
    let figures = &TestRun::of(&[], &ranks(&[&spans])).analyze().collectives[0];
    assert_eq!((figures.count, figures.busy_ns, figures.exposed_ns, figures.own_ns), (2, 150, 110, Some(200)));
}

#[test]
fn axes_and_sizes_are_kept_apart() {
    let first = [talk(AllReduce, 0, 0, 0, 10), talk(AllReduce, 1, 0, 20, 50)];
    let second = [talk(AllReduce, 0, 0, 0, 10)];
    let third = [talk(AllReduce, 1, 0, 20, 50)];
    let groups: [(u32, Axis, &[u32]); 2] = [(0, Axis::Tensor, &[0, 1]), (1, Axis::Data, &[0, 2])];
    let analysis = TestRun::of(&groups, &ranks(&[&first, &second, &third])).analyze();
    let by: Vec<_> =
        analysis.collectives.iter().map(|figures| (figures.axis, figures.count, figures.busy_ns)).collect();
    assert_eq!(by, [(Some(Axis::Data), 1, 60), (Some(Axis::Tensor), 1, 20)], "the most time first");
}

#[test]
fn one_rank_waits_for_nobody() {
    let analysis = TestRun::of(&[], &ranks(&[&[talk(AllReduce, 0, 0, 0, 10)]])).analyze();
    let figures = &analysis.collectives[0];
    assert_eq!((figures.group_size, figures.axis, figures.waiting_ns), (None, None, None));
    assert_eq!(figures.algorithm_bandwidth, Some(1_000.0 / 10e-9));
    assert_eq!(figures.bus_bandwidth, None, "nobody knows how many ranks there were");
    assert!(analysis.stragglers.is_empty());
}

#[test]
fn waiting_counts_where_every_rank_is_there() {
    // The third rank of the group recorded only the second one.
    let (early, late) = ([talk(AllReduce, 0, 0, 0, 100), talk(AllReduce, 0, 1, 200, 300)], 250);
    let third = [talk(AllReduce, 0, 1, late, 300)];
    let three = TestRun::of(&[(0, Axis::Data, &[0, 1, 2])], &ranks(&[&early, &early, &third])).analyze();
    assert_eq!(three.collectives[0].count, 2);
    assert_eq!(three.collectives[0].waiting_ns, Some(100));
    assert_eq!(waits(&three.stragglers), [(0, 50, 0), (1, 50, 0), (2, 0, 100)]);
    // Without it nothing is known of waiting.
    let two = TestRun::of(&[(0, Axis::Data, &[0, 1, 2])], &ranks(&[&early, &early])).analyze();
    assert_eq!((two.collectives[0].group_size, two.collectives[0].waiting_ns), (Some(3), None));
    assert!(two.stragglers.is_empty());
    // A group that nobody described has the ranks that used it.
    let undescribed = TestRun::of(&[], &ranks(&[&early, &[talk(AllReduce, 0, 0, 60, 100)]])).analyze();
    assert_eq!(undescribed.collectives[0].group_size, Some(2));
    assert_eq!(waits(&undescribed.stragglers), [(0, 60, 0), (1, 0, 60)]);
}

#[test]
fn without_numbers_the_rank_with_the_most_stands_for_all() {
    let unnumbered = |start, end| Span { sequence: None, ..talk(AllReduce, 0, 0, start, end) };
    let two = [unnumbered(0, 100), unnumbered(200, 300)];
    let also_two = [unnumbered(50, 100), unnumbered(290, 300)];
    let analysis = TestRun::of(&[(0, Axis::Data, &[0, 1, 2])], &ranks(&[&two, &also_two, &two[..1]])).analyze();
    let figures = &analysis.collectives[0];
    assert_eq!(
        (figures.count, figures.bytes, figures.own_ns),
        (2, Some(2_000), Some(60)),
        "the one that took least time"
    );
    assert_eq!((figures.busy_ns, figures.waiting_ns), (360, None));
    assert!(analysis.stragglers.is_empty());
    // Nor does a number count that a rank used twice.
    let twice = [talk(AllReduce, 0, 7, 0, 100), talk(AllReduce, 0, 7, 200, 300)];
    let analysis = TestRun::of(&[(0, Axis::Data, &[0, 1])], &ranks(&[&twice, &twice])).analyze();
    assert_eq!((analysis.collectives[0].count, analysis.collectives[0].waiting_ns), (2, None));
}

#[test]
fn a_receive_waits_for_its_send() {
    // As the trainer does it: the receive is there long before, and messages of two ranks have numbers of their own.
    let first = [talk(Send, 0, 0, 100, 110), talk(Send, 0, 1, 200, 210)];
    let second = [
        talk(Receive, 0, 0, 0, 112),
        talk(Send, 0, 0, 150, 160),
        talk(Receive, 0, 1, 160, 212),
        talk(Send, 0, 1, 250, 260),
    ];
    let third = [talk(Receive, 0, 0, 0, 162), talk(Receive, 0, 1, 162, 262)];
    let group: &[(u32, Axis, &[u32])] = &[(0, Axis::Pipeline, &[0, 1, 2])];
    let analysis = TestRun::of(group, &ranks(&[&first, &second, &third])).analyze();
    let (send, receive) = (find(&analysis.collectives, Send), find(&analysis.collectives, Receive));
    assert_eq!((send.count, send.bytes, send.own_ns, send.waiting_ns), (4, Some(4_000), Some(40), Some(0)));
    assert_eq!((receive.count, receive.own_ns, receive.busy_ns), (4, Some(40), 112 + 52 + 162 + 100));
    assert_eq!(receive.waiting_ns, Some(receive.busy_ns - 40));
    assert!(analysis.stragglers.is_empty(), "a stage that waits for its input is a bubble");
    // With a rank missing nobody knows whose they are.
    let analysis = TestRun::of(group, &ranks(&[&first, &second])).analyze();
    let receive = find(&analysis.collectives, Receive);
    assert_eq!((receive.own_ns, receive.waiting_ns), (None, None));
}

#[test]
fn a_rank_that_does_not_belong_to_a_group_makes_its_time_unknown() {
    let reduce = [talk(AllReduce, 0, 0, 0, 10)];
    let analysis = TestRun::of(&[(0, Axis::Data, &[0, 1])], &ranks(&[&reduce, &reduce, &reduce])).analyze();
    let figures = find(&analysis.collectives, AllReduce);
    assert_eq!((figures.count, figures.own_ns, figures.waiting_ns), (1, None, None));
}

#[test]
fn a_run_that_says_nothing_has_no_figures() {
    let analysis = TestRun::of(&[], &ranks(&[&[span(Kernel, 0, 10)], &[]])).analyze();
    assert!(analysis.collectives.is_empty() && analysis.stragglers.is_empty());
}

#[test]
fn waiting_is_what_the_truth_says() {
    let pipeline = Pipeline { stages: 2, schedule: Schedule::OneForwardOneBackward, chunks: 1, transfer: Nanos(9_000) };
    for (replicas, pipeline) in [(2, None), (4, None), (3, Some(pipeline))] {
        let clocks = Clocks { largest_offset: Nanos(1 << 40), largest_drift: 50_000, ..Clocks::default() };
        let recipe = Recipe { replicas, pipeline, waiting: 0.3, steps: 6, clocks, ..Recipe::default() };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run");
        let truth = recipe.write(&path).unwrap();
        let all = Selection { steps: StepChoice::All, ..Selection::default() };
        let analysis = analyze(&Run::open(&path).unwrap(), &all, &|_| ()).unwrap();
        assert_eq!(analysis.stragglers.len(), truth.ranks.len());
        for (straggler, truth) in analysis.stragglers.iter().zip(&truth.ranks) {
            // A collective takes 100 microseconds, of which a clock that drifts makes 5 nanoseconds more or less.
            let tolerance = 6 * 4 * 10;
            assert!((straggler.wait_ns - truth.waited.0).abs() < tolerance, "{straggler:?} {}", truth.waited);
        }
        let sum = |of: fn(&Straggler) -> i64| analysis.stragglers.iter().map(of).sum::<i64>();
        assert_eq!(sum(|straggler| straggler.wait_ns), sum(|straggler| straggler.caused_wait_ns));
        let reduces = find(&analysis.collectives, AllReduce);
        assert_eq!(reduces.waiting_ns, Some(sum(|straggler| straggler.wait_ns)));
        assert_eq!(reduces.count, 6 * 4 * u64::from(recipe.world_size() / replicas));
        assert_eq!(reduces.bytes, Some(reduces.count * (25 << 20)));
    }
}

#[derive(Clone, Debug)]
struct AnySpan {
    rank: u32,
    span: Span,
}

fn any_span() -> impl Strategy<Value = AnySpan> {
    let what = (select(&[AllReduce, AllGather, Kernel][..]), option::of(0..2_u32), option::of(0..4_u64));
    (0..3_u32, what, 0..60_i64, 0..20_i64, option::of(1..9_u64)).prop_map(
        |(rank, (kind, group, sequence), start, length, bytes)| {
            let span = talk(kind, group.unwrap_or(0), sequence.unwrap_or(0), start, start + length);
            let (group, sequence) = (group.and(span.group), sequence.and(span.sequence));
            AnySpan { rank, span: Span { group, sequence, bytes, ..span } }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// One collective at a time, and one nanosecond at a time.
    #[test]
    fn figures_are_what_counting_says(spans in vec(any_span(), 0..40)) {
        let of_rank = |rank: u32| spans.iter().filter(move |any| any.rank == rank).map(|any| any.span);
        let lists: Vec<Vec<Span>> = (0..3).map(|rank| of_rank(rank).collect()).collect();
        let lists: Vec<&[Span]> = lists.iter().map(Vec::as_slice).collect();
        let analysis = TestRun::of(&[(0, Axis::Data, &[0, 1, 2]), (1, Axis::Data, &[0, 1])], &ranks(&lists)).analyze();
        let (mut wait, mut caused) = ([0_i64; 3], [0_i64; 3]);
        for operation in [AllReduce, AllGather] {
            for (group, size) in [(Some(0), Some(3)), (Some(1), Some(2)), (None, None)] {
                let chosen = |span: &&Span| span.kind == operation && span.group.map(|group| group.0) == group;
                let figures = analysis.collectives.iter()
                    .find(|figures| (figures.operation, figures.group_size) == (operation, size));
                let all: Vec<Span> = spans.iter().map(|any| any.span).filter(|span| chosen(&span)).collect();
                let Some(figures) = figures else {
                    prop_assert!(all.is_empty());
                    continue;
                };
                let (mut count, mut busy, mut exposed) = (0, 0, 0);
                let (mut own, mut waiting) = (None, None);
                for number in [None, Some(0), Some(1), Some(2), Some(3)] {
                    // A number is one in a group.
                    let of = |rank| of_rank(rank).filter(|span| chosen(&span)).filter(move |span| {
                        span.group.and(span.sequence).map(|sequence| sequence.0) == number
                    });
                    let counts = [0, 1, 2].map(|rank| of(rank).count());
                    let most = counts.into_iter().max().unwrap();
                    count += most as u64;
                    let times = [0, 1, 2].map(|rank| of(rank).map(|span| span.duration_ns.0).sum::<i64>());
                    let least = (0..3).filter(|rank| counts[*rank] == most).map(|rank| times[rank]).min().unwrap();
                    let members = size.unwrap_or(0) as usize;
                    let everyone = most == 1 && counts.iter().sum::<usize>() == members;
                    let numbered = number.is_some() && group.is_some() && most == 1;
                    if most > 0 && (!numbered || everyone) {
                        own = Some(own.unwrap_or(0) + least);
                    }
                    if numbered && everyone {
                        let there = (0..3).filter(|rank| counts[*rank] == 1);
                        there.clone().for_each(|rank| wait[rank] += times[rank] - least);
                        let all: i64 = there.clone().map(|rank| times[rank] - least).sum();
                        waiting = Some(waiting.unwrap_or(0) + all);
                        caused[there.min_by_key(|rank| times[*rank]).unwrap()] += all;
                    }
                }
                for rank in 0..3 {
                    let covers = |span: &Span, time| (span.start_ns.0..span.interval().1.0).contains(&time);
                    for time in 0..100 {
                        if of_rank(rank).any(|span| chosen(&&span) && covers(&span, time)) {
                            busy += 1;
                            exposed += i64::from(!of_rank(rank).any(|span| span.kind == Kernel && covers(&span, time)));
                        }
                    }
                }
                prop_assert_eq!(
                    (figures.count, figures.own_ns, figures.waiting_ns, figures.busy_ns, figures.exposed_ns),
                    (count, own, waiting, busy, exposed)
                );
            }
        }
        for straggler in &analysis.stragglers {
            let Rank(rank) = straggler.rank;
            prop_assert_eq!(straggler.wait_ns, wait[rank as usize]);
            prop_assert_eq!(straggler.caused_wait_ns, caused[rank as usize]);
        }
        let listed: i64 = analysis.stragglers.iter().map(|straggler| straggler.wait_ns).sum();
        prop_assert_eq!(listed, wait.iter().sum::<i64>());
    }
}
