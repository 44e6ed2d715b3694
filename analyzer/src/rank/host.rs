//! What one rank's program did on the host: how long it waits for data, which operators run, and how long it communicates.
//!
//! For users, it is defined in `docs/src/metrics.md#time-on-the-host`.
//!
//! Time is that of the annotations of steps. Waiting for data is the union of the annotations of that phase on the threads
//! that annotate steps, inside of the steps. Operators are ranges with an origin, which there are where no activity of a
//! device was recorded; on a thread they lie inside each other. Communication of the host is ranges that its backends name, which
//! last as long as it does, on whichever threads; and operators that ask for it.

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};
use stepscope_traces::{AskedCommunication, Carrier, NameId, Names, Phase, Rank, SpanKind, Spans, Step, Stream};

use crate::{
    figures::{CountedSteps, HostTime},
    rank::{intervals::Intervals, step_windows::StepWindow},
    stored::fields,
};

/// What is collected of the host while the spans of a rank are read.
#[derive(Default)]
pub(crate) struct HostReading {
    /// When the first of them begins.
    pub(crate) first: Option<i64>,
    data: Vec<(Option<Stream>, i64, i64)>,
    operators: Vec<OperatorRange>,
    /// Ranges in which the host communicates, and whether there are any in which a device does.
    communication: Vec<(i64, i64)>,
    asks_devices: bool,
    /// Who carries what is asked for by each name, if it asks for communication.
    carriers: HashMap<NameId, Option<Carrier>>,
    /// The threads that annotate steps.
    threads: HashSet<Option<Stream>>,
}

/// An operator that ran on the host.
#[derive(Clone, Copy)]
struct OperatorRange {
    thread: Option<Stream>,
    start: i64,
    end: i64,
    name: NameId,
    step: Option<Step>,
    phase: Option<Phase>,
    /// Who carries what it asks for, if it asks for communication.
    carrier: Option<Carrier>,
}

/// What one rank's program did on the host.
#[derive(Default)]
pub(crate) struct RankHost {
    /// In each step that is annotated.
    pub(crate) steps: BTreeMap<Step, HostStep>,
    /// In the steps that count; none, where nothing says when those were.
    pub(crate) time: Option<HostTime>,
    /// The own time of operators in the steps that count, by phase.
    pub(crate) phases: BTreeMap<Option<Phase>, i64>,
    /// Operators in the steps that count, by name.
    pub(crate) operators: HashMap<String, OperatorSum>,
}

fields!(RankHost { steps, time, phases, operators });

/// How long a step is on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostStep {
    pub(crate) time_ns: i64,
    /// How long the program waits for data in it.
    pub(crate) data_ns: Option<i64>,
}

fields!(HostStep { time_ns, data_ns });

/// What calls of an operator come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OperatorSum {
    pub(crate) count: u64,
    pub(crate) self_ns: i64,
    pub(crate) total_ns: i64,
}

fields!(OperatorSum { count, self_ns, total_ns });

impl HostReading {
    pub(crate) fn take(&mut self, names: &Names, spans: &Spans) {
        for row in 0..spans.len() {
            let kind = spans.kind.get(row);
            if !matches!(kind, SpanKind::Step | SpanKind::Phase | SpanKind::Range) {
                continue;
            }
            let (thread, phase) = (spans.stream.get(row), spans.phase.get(row));
            let start = spans.start_ns.get(row).0;
            let end = start.saturating_add(spans.duration_ns.get(row).0.max(0));
            self.first = Some(self.first.map_or(start, |first| first.min(start)));
            match kind {
                SpanKind::Step => _ = self.threads.insert(thread),
                SpanKind::Phase if phase == Some(Phase::Data) => self.data.push((thread, start, end)),
                SpanKind::Range => {
                    let (name, step) = (spans.name.get(row), spans.step.get(row));
                    let asked = || AskedCommunication::named(names.get(name)?).map(|asked| asked.carrier);
                    let carrier = *self.carriers.entry(name).or_insert_with(asked);
                    let is_operator = spans.origin.get(row).is_some();
                    self.asks_devices |= carrier == Some(Carrier::Device);
                    let talks = carrier == Some(Carrier::Host) || carrier.is_some() && !is_operator;
                    self.communication.extend(Some((start, end)).filter(|_| talks));
                    let operator = OperatorRange { thread, start, end, name, step, phase, carrier };
                    self.operators.extend(Some(operator).filter(|_| is_operator));
                }
                _ => {}
            }
        }
    }

    /// Whether any operator was recorded as such.
    pub(crate) fn has_operators(&self) -> bool {
        !self.operators.is_empty()
    }

    /// From the first to the last moment of any operator.
    pub(crate) fn extent(&self) -> Option<(i64, i64)> {
        let ranges = self.operators.iter().map(|operator| (operator.start, operator.end));
        ranges.reduce(|(first, last), (start, end)| (first.min(start), last.max(end)))
    }

    /// When the program waits for data: where the threads that annotate steps say so.
    pub(crate) fn waiting_for_data(&self) -> Intervals {
        let own_threads = |thread: &Option<Stream>| self.threads.is_empty() || self.threads.contains(thread);
        let of_steps = self.data.iter().filter(|(thread, ..)| own_threads(thread));
        Intervals::union_of(of_steps.map(|(_, start, end)| (*start, *end)).collect())
    }

    /// What it comes to. `annotated` are the annotations of steps.
    pub(crate) fn finish(
        mut self,
        rank: Rank,
        annotated: &[StepWindow],
        counted: &CountedSteps,
        names: &Names,
    ) -> RankHost {
        let data = self.waiting_for_data();
        let says_data = !self.data.is_empty();
        let in_window = |start: i64, end: i64| HostStep {
            time_ns: end.saturating_sub(start),
            data_ns: says_data.then(|| data.within(start, end).length()),
        };
        let mut windows: BTreeMap<Step, (i64, i64)> = BTreeMap::new();
        for StepWindow { step, start, end } in annotated {
            let (first, last) = windows.entry(*step).or_insert((*start, *end));
            (*first, *last) = (*start.min(first), *end.max(last));
        }
        let steps: BTreeMap<Step, HostStep> =
            windows.iter().map(|(step, (start, end))| (*step, in_window(*start, *end))).collect();
        let whole = || {
            let ends = windows.values().copied().chain(data.iter()).chain(self.extent());
            ends.reduce(|(first, last), (start, end)| (first.min(start), last.max(end)))
        };
        let time = match counted.whole {
            true => whole().map(|(start, end)| in_window(start, end)),
            false => sum(steps.iter().filter(|(step, _)| counted.counts(**step)).map(|(_, host)| *host)),
        };
        self.operators.retain(|operator| counted.has(operator.step));
        let running = self.operators.iter().map(|operator| (operator.start, operator.end)).collect();
        let operators_ns = (!self.operators.is_empty()).then(|| Intervals::union_of(running).length());
        let in_counted = |times: &Intervals| match counted.whole {
            true => times.length(),
            false => {
                let counted = windows.iter().filter(|(step, _)| counted.counts(**step));
                times.and(&Intervals::union_of(counted.map(|(_, window)| *window).collect())).length()
            }
        };
        let communication = self.communicating().map(|[all, exposed]| [in_counted(&all), in_counted(&exposed)]);
        let (phases, operators) = sums(self.operators, names);
        let time = time.map(|HostStep { time_ns, data_ns }| HostTime {
            rank,
            time_ns,
            data_ns,
            operators_ns,
            communication_ns: communication.map(|[all, _]| all),
            exposed_communication_ns: communication.map(|[_, exposed]| exposed),
        });
        RankHost { steps, time, phases, operators }
    }

    /// When the host communicates, and when no other operator runs meanwhile; none, where that is not known: no operators were
    /// recorded, or they hand communication over to a device.
    fn communicating(&self) -> Option<[Intervals; 2]> {
        if self.operators.is_empty() || self.asks_devices {
            return None;
        }
        // By thread, those that communicate and the others.
        let mut threads: HashMap<Option<Stream>, [Vec<(i64, i64)>; 2]> = HashMap::new();
        // What the host carries goes on behind others of its thread.
        for operator in self.operators.iter().filter(|operator| operator.carrier != Some(Carrier::Host)) {
            let of_thread = threads.entry(operator.thread).or_default();
            of_thread[usize::from(operator.carrier.is_none())].push((operator.start, operator.end));
        }
        let (mut communication, mut others) = (self.communication.clone(), Vec::new());
        for [asking, working] in threads.into_values() {
            communication.extend(&asking);
            // What lies around one that communicates waits for it.
            others.extend(Intervals::union_of(working).without(&Intervals::union_of(asking)).iter());
        }
        let communication = Intervals::union_of(communication);
        let exposed = communication.without(&Intervals::union_of(others));
        Some([communication, exposed])
    }
}

/// Some steps together.
fn sum(steps: impl Iterator<Item = HostStep>) -> Option<HostStep> {
    steps.reduce(|one, other| HostStep {
        time_ns: one.time_ns.saturating_add(other.time_ns),
        data_ns: one.data_ns.zip(other.data_ns).map(|(one, other)| one.saturating_add(other)),
    })
}

/// Operators by phase and by name. The time of one that lies in another is taken from that one's own.
fn sums(
    mut operators: Vec<OperatorRange>,
    names: &Names,
) -> (BTreeMap<Option<Phase>, i64>, HashMap<String, OperatorSum>) {
    operators.sort_by_key(|operator| (operator.thread, operator.start, std::cmp::Reverse(operator.end)));
    let (mut phases, mut by_name) = (BTreeMap::new(), HashMap::<NameId, OperatorSum>::new());
    let mut add_own = |operator: &OperatorRange, own: i64, calls: u64| {
        *phases.entry(operator.phase).or_insert(0_i64) += own;
        let sum = by_name.entry(operator.name).or_default();
        sum.self_ns += own;
        if calls > 0 {
            sum.count += calls;
            sum.total_ns = sum.total_ns.saturating_add(operator.end - operator.start);
        }
    };
    // What is open on a thread, the innermost last.
    let mut open: Vec<OperatorRange> = Vec::new();
    for operator in operators {
        while open.pop_if(|around| around.thread != operator.thread || around.end <= operator.start).is_some() {}
        if let Some(around) = open.last() {
            add_own(around, -(operator.end.min(around.end) - operator.start), 0);
        }
        add_own(&operator, operator.end - operator.start, 1);
        open.push(operator);
    }
    let named = |(name, sum): (NameId, OperatorSum)| (names.get(name).unwrap_or_default().to_owned(), sum);
    (phases, by_name.into_iter().map(named).collect())
}

#[cfg(test)]
mod tests {
    use stepscope_traces::{Nanos, Span};

    use super::*;

    const MAIN: Option<Stream> = Some(Stream(1));

    fn span(kind: SpanKind, thread: Option<Stream>, name: u32, start: i64, end: i64, step: i32) -> Span {
        let span = Span::new(kind, NameId(name), Nanos(start), Nanos(end - start));
        Span { stream: thread, step: Some(Step(step)), ..span }
    }

    fn operator(thread: Option<Stream>, name: u32, start: i64, end: i64, step: i32) -> Span {
        Span { origin: Some(NameId(90)), ..span(SpanKind::Range, thread, name, start, end, step) }
    }

    fn host(spans: &[Span], counted: &CountedSteps) -> RankHost {
        let mut table = Spans::default();
        spans.iter().for_each(|span| table.push(span));
        let mut names = Names::default();
        names.extend([
            (NameId(20), "aten::linear"),
            (NameId(21), "aten::addmm"),
            (NameId(22), "aten::add"),
            (NameId(23), "c10d::allreduce_"),
            (NameId(24), "gloo:all_reduce"),
            (NameId(25), "nccl:all_reduce"),
        ]);
        let mut reading = HostReading::default();
        reading.take(&names, &table);
        let annotated: Vec<StepWindow> = crate::rank::step_windows::annotated(&table).collect();
        reading.finish(Rank(0), &annotated, counted, &names)
    }

    fn two_steps() -> Vec<Span> {
        let data = |thread, start, end, step| Span {
            phase: Some(Phase::Data),
            ..span(SpanKind::Phase, thread, 30, start, end, step)
        };
        vec![
            span(SpanKind::Step, MAIN, 10, 0, 100, 4),
            span(SpanKind::Step, MAIN, 11, 110, 200, 5),
            data(MAIN, 5, 35, 4),
            // Another thread fetches ahead; nobody waits for it.
            data(Some(Stream(2)), 40, 90, 4),
            data(MAIN, 110, 120, 5),
            // One that goes on behind the step.
            data(MAIN, 190, 210, 5),
        ]
    }

    #[test]
    fn waiting_for_data_is_that_of_the_thread_that_steps() {
        let counted = CountedSteps { steps: Some([Step(4), Step(5)]), ..CountedSteps::default() };
        let host = host(&two_steps(), &counted);
        let step = |time_ns, data_ns| HostStep { time_ns, data_ns: Some(data_ns) };
        assert_eq!(host.steps, BTreeMap::from([(Step(4), step(100, 30)), (Step(5), step(90, 20))]));
        let time = HostTime {
            rank: Rank(0),
            time_ns: 190,
            data_ns: Some(50),
            operators_ns: None,
            communication_ns: None,
            exposed_communication_ns: None,
        };
        assert_eq!(host.time, Some(time));
    }

    #[test]
    fn one_step_or_all_of_the_recording_counts() {
        let counted = CountedSteps { steps: Some([Step(5), Step(5)]), ..CountedSteps::default() };
        let one = host(&two_steps(), &counted).time.unwrap();
        assert_eq!((one.time_ns, one.data_ns), (90, Some(20)));
        let all = host(&two_steps(), &CountedSteps { whole: true, ..CountedSteps::default() }).time.unwrap();
        assert_eq!((all.time_ns, all.data_ns), (210, Some(60)), "from the first to the last moment");
        assert_eq!(host(&[], &counted).time, None);
    }

    #[test]
    fn the_time_of_inner_operators_is_not_that_of_outer_ones() {
        let spans = [
            span(SpanKind::Step, MAIN, 10, 0, 100, 4),
            // Both begin at once; the longer one is around the other.
            operator(MAIN, 21, 10, 30, 4),
            operator(MAIN, 20, 10, 40, 4),
            operator(MAIN, 22, 32, 36, 4),
            operator(MAIN, 22, 50, 60, 4),
            operator(Some(Stream(2)), 22, 55, 70, 4),
            operator(MAIN, 22, 150, 170, 5),
            // The program's own range is no operator.
            span(SpanKind::Range, MAIN, 30, 0, 90, 4),
        ];
        let counted = CountedSteps { steps: Some([Step(4), Step(4)]), ..CountedSteps::default() };
        let host = host(&spans, &counted);
        let sum = |name: &str| host.operators[name];
        assert_eq!(sum("aten::linear"), OperatorSum { count: 1, self_ns: 6, total_ns: 30 });
        assert_eq!(sum("aten::addmm"), OperatorSum { count: 1, self_ns: 20, total_ns: 20 });
        assert_eq!(sum("aten::add"), OperatorSum { count: 3, self_ns: 29, total_ns: 29 });
        assert_eq!(host.time.unwrap().operators_ns, Some(50), "threads count once");
        assert_eq!(host.phases, BTreeMap::from([(None, 55)]));
    }

    #[test]
    fn communication_is_exposed_where_nothing_else_runs() {
        let mut spans = vec![
            span(SpanKind::Step, MAIN, 10, 0, 100, 4),
            operator(MAIN, 20, 0, 30, 4),
            // Asked for in the middle of an operator, which waits for that, and going on behind it.
            operator(MAIN, 23, 10, 14, 4),
            span(SpanKind::Range, MAIN, 24, 10, 40, 4),
            // Another thread works meanwhile.
            operator(Some(Stream(2)), 22, 35, 50, 4),
            // One that goes on behind the step.
            span(SpanKind::Range, MAIN, 24, 90, 120, 4),
        ];
        let counted = CountedSteps { steps: Some([Step(4), Step(4)]), ..CountedSteps::default() };
        let communication = |spans: &[Span]| {
            let time = host(spans, &counted).time.unwrap();
            (time.communication_ns, time.exposed_communication_ns)
        };
        assert_eq!(communication(&spans), (Some(30 + 10), Some(4 + 5 + 10)));
        assert_eq!(communication(&spans[..2]), (Some(0), Some(0)));
        spans.push(span(SpanKind::Range, MAIN, 25, 60, 61, 4));
        assert_eq!(communication(&spans), (None, None), "how long a device communicates is not known");
    }
}
