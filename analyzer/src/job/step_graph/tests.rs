use proptest::{collection::vec, prelude::*};
use stepscope_plan::Axis;
use stepscope_traces::{Rank, Span, SpanKind, Step, Stream};

use super::{path::stretches, *};
use crate::{
    figures::{Cause, PathPart, PathShare},
    test_runs::{TestRun, ranks, span, talk},
};

use SpanKind::{AllReduce, Kernel, Receive, Send};

const RANKS: [Rank; 2] = [Rank(0), Rank(1)];
const GROUPS: [(u32, Axis, &[u32]); 2] = [(0, Axis::Data, &[0, 1]), (1, Axis::Context, &[0, 1])];

/// What begins at a time on a rank begins later.
struct Later {
    rank: u32,
    start: i64,
    by: i64,
}

impl StepChange for Later {
    fn lag(&self, node: &Node) -> i64 {
        node.lag + if (node.rank, node.start) == (self.rank, self.start) { self.by } else { 0 }
    }
}

/// Whether others of its rank begin with an activity, so that delays cannot tell them apart.
fn is_ambiguous(graph: &StepGraph, index: usize) -> bool {
    let of = |node: &Node| (node.rank, node.start);
    graph.nodes.iter().filter(|node| of(node) == of(&graph.nodes[index])).count() > 1
}

/// Nothing is different.
struct Unchanged;

impl StepChange for Unchanged {}

fn graph_of(run: &TestRun) -> Option<StepGraph> {
    let results = run.results();
    let groups = &run.run.info.groups;
    let alignment = Alignment::of(&results, groups);
    StepGraph::of(&results, groups, &alignment, &vec![Intervals::default(); results.len()])
}

fn graph(run: &TestRun) -> StepGraph {
    graph_of(run).unwrap()
}

/// A rank that begins with the other one, computes, on two streams, and meets the other one: in collectives, which end
/// together, and in messages, whose sender waits for nobody.
fn any_run() -> impl Strategy<Value = Vec<Vec<Span>>> {
    let kernels = || vec((0..200_i64, 0..30_i64, 0..2_u32), 1..20);
    (kernels(), kernels(), vec((0..40_i64, 0..40_i64, 1..20_i64, any::<bool>()), 0..6)).prop_map(|(one, two, met)| {
        let mut spans: Vec<Vec<Span>> = [one, two]
            .into_iter()
            .map(|kernels| {
                let kernel = |(start, length, stream): (i64, i64, u32)| Span {
                    stream: Some(Stream(stream)),
                    ..span(Kernel, start, start + length)
                };
                kernels.into_iter().chain([(0, 1, 2)]).map(kernel).collect()
            })
            .collect();
        let mut free = 0;
        for (number, (first, second, length, is_message)) in (0..).zip(met) {
            let starts = [free + first, free + second];
            let end = starts[0].max(starts[1]) + length;
            let sides = match is_message {
                true => {
                    [talk(Send, 1, number, starts[0], starts[0] + length), talk(Receive, 1, number, starts[1], end)]
                }
                false => starts.map(|start| talk(AllReduce, 0, number, start, end)),
            };
            for (spans, side) in spans.iter_mut().zip(sides) {
                spans.push(Span { stream: Some(Stream(7)), ..side });
            }
            free = end;
        }
        spans
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_step_is_replayed_to_the_nanosecond_and_its_path_is_as_long(spans in any_run()) {
        let all: Vec<&[Span]> = spans.iter().map(Vec::as_slice).collect();
        let graph = graph(&TestRun::of(&GROUPS, &ranks(&all)));
        prop_assert_eq!(graph.replay(&Unchanged), graph.length());
        let path = stretches(&graph, &RANKS);
        let sum: i64 = path.iter().map(|stretch| stretch.end_ns - stretch.start_ns).sum();
        prop_assert_eq!(sum, graph.length());
        prop_assert!(path.windows(2).all(|pair| pair[0].end_ns == pair[1].start_ns));
    }

    /// A later beginning, by no more than the slack, changes nothing; by more, it does.
    #[test]
    fn the_step_is_as_long_while_an_activity_uses_its_slack(spans in any_run()) {
        let all: Vec<&[Span]> = spans.iter().map(Vec::as_slice).collect();
        let graph = graph(&TestRun::of(&GROUPS, &ranks(&all)));
        for (node, slack) in graph.slack().into_iter().enumerate() {
            let later = |by| graph.replay(&Later { start: graph.nodes[node].start, rank: graph.nodes[node].rank, by });
            prop_assert!(later(slack) <= graph.length() || is_ambiguous(&graph, node));
            prop_assert!(later(slack + 1) > graph.length());
        }
    }
}

/// After being idle, each rank sends something to the other, which is put aside, computes for 100, takes what came, and computes.
fn buffered() -> TestRun {
    let of = |idle: i64, [sent, received]: [u64; 2]| {
        let on = |stream, span: Span| Span { stream: Some(Stream(stream)), ..span };
        let start = 10 + idle;
        [
            on(0, span(Kernel, 0, 10)),
            on(1, talk(Send, 0, sent, start, start + 5)),
            on(0, span(Kernel, start + 5, start + 105)),
            on(2, talk(Receive, 0, received, start + 105, start + 110)),
            on(0, span(Kernel, start + 110, start + 140)),
        ]
        .to_vec()
    };
    TestRun::of(&[(0, Axis::Context, &[0, 1])], &ranks(&[&of(50, [0, 1]), &of(40, [1, 0])]))
}

#[test]
fn a_message_that_is_put_aside_does_not_hold_its_sender() {
    struct NoIdle;
    impl StepChange for NoIdle {
        fn lag(&self, node: &Node) -> i64 {
            if matches!(node.lag_on, LagKind::Idle(_)) { 0 } else { node.lag }
        }
    }
    let graph = graph(&buffered());
    assert_eq!(graph.nodes.iter().filter(|node| node.left.is_some()).count(), 2, "nobody waits to send");
    assert_eq!((graph.length(), graph.replay(&Unchanged)), (200, 200));
    assert_eq!(graph.replay(&NoIdle), 150);
    let slack = |kind: fn(&Node) -> bool| {
        let of_kind = graph.nodes.iter().zip(graph.slack()).filter(|(node, _)| kind(node));
        of_kind.map(|(node, slack)| (node.rank, slack)).collect::<Vec<_>>()
    };
    // Rank 1 is over 10 before the step is; a message has to be sent by the time at which its receiver looks for it.
    assert_eq!(slack(|node| node.left.is_some()), [(1, 10), (0, 0)]);
    assert_eq!(slack(|node| node.meeting.is_some()), [(1, 10), (0, 0)]);
}

/// Rank 1 computes for 60 and rank 0 for 100; both meet for 20, and then compute for 10.
fn slow_rank() -> TestRun {
    let of =
        |compute: i64| [span(Kernel, 0, compute), talk(AllReduce, 0, 0, compute, 120), span(Kernel, 120, 130)].to_vec();
    TestRun::of(&[(0, Axis::Data, &[0, 1])], &ranks(&[&of(100), &of(60)]))
}

#[test]
fn the_path_goes_to_the_rank_that_came_last() {
    let graph = graph(&slow_rank());
    let path: Vec<(u32, i64, i64)> =
        stretches(&graph, &RANKS).iter().map(|part| (part.rank.0, part.start_ns, part.end_ns)).collect();
    assert_eq!(path[0], (0, 0, 100), "{path:?}");
}

#[test]
fn without_a_cause_a_step_is_what_paper_says() {
    let analysis = slow_rank().analyze();
    let what_if = analysis.what_if.unwrap();
    let without = |cause| what_if.without(cause).map(|without| without.step_ns);
    assert_eq!(what_if.measured_ns, 130);
    assert_eq!(without(Cause::Communication { axis: Some(Axis::Data) }), Some(110), "rank 0 has that much to do");
    let rank = analysis.ranks[0].rank;
    // Rank 0 has 110 to do, and rank 1 has 70.
    assert_eq!(without(Cause::SlowRank { rank }), Some(100 * 70 / 110 + 1 + 20 + 10), "and rank 1 is the last");
    assert_eq!(without(Cause::Copies), None);
    let waiting = what_if.without(Cause::Communication { axis: Some(Axis::Data) }).and_then(|without| without.waiting);
    assert_eq!(waiting.map(|waiting| (waiting.family, waiting.share)), Some((Family::Other, 1.0)), "the last kernels");
    let path = analysis.critical_path.unwrap();
    let part = |part: PathPart| path.parts.iter().find(|share| share.part == part).map(|share| share.time_ns);
    assert_eq!(part(PathPart::Communication { axis: Some(Axis::Data) }), Some(20));
    let elsewhere = |share: &PathShare| (share.elsewhere_ns > 0).then_some((share.elsewhere_ns, share.slack_ns));
    let slack: Vec<_> = path.parts.iter().filter_map(elsewhere).collect();
    assert_eq!(slack, [(60, Some(40)), (60, Some(40))], "what rank 1 computes first, and its part of the collective");
}

#[test]
fn ranks_that_were_never_in_a_step_together_have_no_path() {
    let run = |start: i64| TestRun::of(&[], &ranks(&[&[span(Kernel, 0, 100)], &[span(Kernel, start, start + 100)]]));
    assert!(graph_of(&run(90)).is_some());
    assert!(graph_of(&run(1_000)).is_none());
}

#[test]
fn what_crosses_the_borders_of_a_step_is_clipped_in_all_of_its_figures() {
    // Steps begin every 100, each with a short kernel; a long one follows after 30, and goes on for 20 in the next step.
    let steps = (0..6).flat_map(|number: i64| {
        let start = number * 100;
        let long = Span { stream: Some(Stream(1)), ..span(Kernel, start + 30, start + 120) };
        [span(Kernel, start, start + 2), long].map(|span| Span { step: Some(Step(number as i32)), ..span })
    });
    let analysis = TestRun::of(&[], &ranks(&[&steps.collect::<Vec<_>>()])).analyze();
    let path = analysis.critical_path.unwrap();
    let figures = analysis.steps.iter().find(|figures| Some(figures.step) == path.step).unwrap();
    let [mut compute, mut others] = [0; 2];
    for share in &path.parts {
        *if matches!(share.part, PathPart::Compute { .. }) { &mut compute } else { &mut others } += share.time_ns;
    }
    assert_eq!((figures.partition.compute_ns, figures.partition.idle_ns), (90, 10));
    assert_eq!((compute, others), (90, 10), "{:?}", path.parts);
    assert_eq!(path.length_ns, 100);
}
