use std::collections::{BTreeMap, HashMap, VecDeque};

use proptest::{prelude::*, test_runner::Config};

use super::*;
use crate::{
    ids::{Nanos, Step},
    import::torch_snapshot::{frame::Stack, tables::DeviceTables},
    vocabulary::{MemoryOperation, Phase},
};

/// A rank whose clock is the time of day.
const SAME: ClockSnapshot = ClockSnapshot { rank_ns: Nanos(0), wall_ns: Nanos(0) };

/// An allocator with the newest events of its history, as PyTorch's.
struct Allocator {
    history: VecDeque<Event>,
    kept: usize,
    blocks: BTreeMap<u64, u64>,
    time_us: i64,
}

impl Allocator {
    fn keeping(kept: usize) -> Allocator {
        Allocator { history: VecDeque::new(), kept, blocks: BTreeMap::new(), time_us: 0 }
    }

    fn push(&mut self, action: Action, address: u64, bytes: u64) {
        self.time_us += 1;
        self.history.push_back(Event {
            action,
            address: Some(address),
            bytes,
            time_us: Some(self.time_us),
            stack: None,
            stream: 0,
            device_free: None,
        });
        self.history.drain(..self.history.len().saturating_sub(self.kept));
    }

    fn allocate(&mut self, address: u64, bytes: u64) {
        assert_eq!(self.blocks.insert(address, bytes), None);
        self.push(Action::Alloc, address, bytes);
    }

    fn free(&mut self, address: u64) {
        let bytes = self.blocks.remove(&address).unwrap();
        self.push(Action::FreeCompleted, address, bytes);
    }

    /// Now: of the allocator, and of the rank.
    fn when(&self) -> ClockSnapshot {
        let now = Nanos(self.time_us * 1000);
        ClockSnapshot { rank_ns: now, wall_ns: now }
    }

    /// A snapshot; it leaves a mark in the history, too late for itself.
    fn snapshot(&mut self) -> DeviceHistory {
        let events = self.history.iter().copied().collect();
        let block = |(address, bytes): (&u64, &u64)| {
            (*address, Block { address: None, bytes: *bytes, requested_bytes: Some(*bytes), active: true, stack: None })
        };
        let end = EndState { segments: vec![(0, 1 << 30)], blocks: self.blocks.iter().map(block).collect() };
        self.push(Action::Snapshot, 0, 0);
        DeviceHistory { events, end: Some(end), ..DeviceHistory::default() }
    }
}

/// What events come to: the blocks that are there, and what for. Nothing is allocated twice, or freed without being there.
fn replay(told: &[MemoryEvent]) -> BTreeMap<u64, (u64, MemoryCategory)> {
    let mut blocks = BTreeMap::new();
    let mut latest = Nanos(i64::MIN);
    for event in told {
        assert!(event.time_ns >= latest, "told in order");
        latest = event.time_ns;
        match event.op {
            MemoryOperation::Alloc => {
                let block = (event.bytes.unwrap(), event.category.unwrap());
                assert_eq!(blocks.insert(event.address, block), None, "{event:?}");
            }
            MemoryOperation::Free => assert!(blocks.remove(&event.address).is_some(), "{event:?}"),
            MemoryOperation::Reserve | MemoryOperation::Release => {}
        }
    }
    blocks
}

/// A training with blocks that are called by letters.
struct Training {
    allocator: Allocator,
    memory: FollowedMemory,
    told: Vec<MemoryEvent>,
    step: Option<Step>,
}

impl Training {
    fn new() -> Training {
        let (allocator, memory) = (Allocator::keeping(1000), FollowedMemory::default());
        Training { allocator, memory, told: Vec::new(), step: None }
    }

    fn now(&self) -> Nanos {
        Nanos(self.allocator.time_us * 1000 + 500)
    }

    fn mark(&mut self, event: TrainingEvent) {
        self.memory.mark(Mark { time_ns: self.now(), event, step: self.step });
    }

    fn observe(&mut self, category: MemoryCategory, letters: &str) {
        let addresses = letters.chars().map(u64::from).collect();
        self.memory.observe(&Observation { time_ns: self.now(), category, addresses });
    }

    /// Small letters are allocated, capital ones freed; `(` and `)` are a backward pass, `[` and `]` an optimizer, `{` and
    /// `}` forward work that is repeated, and `|` the end of a step.
    fn run(&mut self, program: &str) {
        for letter in program.chars().filter(|letter| !letter.is_whitespace()) {
            match letter {
                '(' => self.mark(TrainingEvent::BackwardBegins),
                ')' => self.mark(TrainingEvent::BackwardEnds),
                '[' => self.mark(TrainingEvent::OptimizerBegins),
                ']' => self.mark(TrainingEvent::OptimizerEnds),
                '{' => self.mark(TrainingEvent::RecomputationBegins),
                '}' => self.mark(TrainingEvent::RecomputationEnds),
                '|' => {
                    self.step = Some(Step(self.step.map_or(0, |step| step.0 + 1)));
                    self.mark(TrainingEvent::StepEnds);
                    let snapshot = self.allocator.snapshot();
                    let (_, told) = self.memory.take_history(&snapshot, &Calls::default(), self.allocator.when());
                    self.told.extend(told);
                    self.told.extend(self.memory.tell());
                }
                letter if letter.is_ascii_uppercase() => self.allocator.free(letter.to_ascii_lowercase().into()),
                letter => self.allocator.allocate(letter.into(), 8),
            }
        }
    }

    /// What each block was for, the first time that there was one of its name.
    fn categories(mut self) -> HashMap<char, MemoryCategory> {
        let snapshot = self.allocator.snapshot();
        self.told.extend(self.memory.take_history(&snapshot, &Calls::default(), self.allocator.when()).1);
        self.told.extend(self.memory.tell_rest());
        let live = replay(&self.told);
        assert!(live.keys().eq(self.allocator.blocks.keys()), "{live:?}");
        let mut categories = HashMap::new();
        for event in self.told.iter().filter(|event| event.op == MemoryOperation::Alloc) {
            categories.entry(char::from(event.address as u8)).or_insert(event.category.unwrap());
        }
        categories
    }
}

#[track_caller]
fn check(categories: &HashMap<char, MemoryCategory>, expected: &[(&str, MemoryCategory)]) {
    for (letters, category) in expected {
        for letter in letters.chars() {
            assert_eq!(categories[&letter], *category, "{letter}");
        }
    }
}

use MemoryCategory::{Activations, Communication, Gradients, Inputs, OptimizerState, Other, Parameters, Workspace};

/// Parameters `p` and `q`, a batch `x`, activations `a` and `b`, scratch `w`, the loss `l`, gradients `g` and `h`, moments
/// `m` and `n`.
const FIRST: &str = "pq x a wW b l (w gW BA h) [m n w W] |";
const LATER: &str = "GH X x a wW b L l (w gW BA h) [w W] |";

#[test]
fn a_training_is_told_apart_by_its_passes_alone() {
    let mut training = Training::new();
    training.run(FIRST);
    training.run(&LATER.repeat(3));
    let expected = [
        ("pq", Parameters),
        ("x", Inputs),
        ("ab", Activations),
        ("w", Workspace),
        ("gh", Gradients),
        ("mn", OptimizerState),
    ];
    check(&training.categories(), &expected);
}

#[test]
fn gradients_are_told_where_the_optimizer_allocates_nothing() {
    let mut training = Training::new();
    training.run(FIRST);
    training.run("GH X y c L l (w iW C j) [] | IJ Y");
    check(&training.categories(), &[("gij", Gradients), ("w", Workspace), ("c", Activations)]);
}

#[test]
fn buckets_that_are_laid_out_anew_are_told_from_batches() {
    let job =
        "pq r x a (w gW A h) [m n] | GH X y b z c (w gW C h) [] | GH Z z c (w gW C h) [] | GH Z z c (w gW C h) [] |";
    let mut training = Training::new();
    training.memory.expect_buffers([1]);
    training.run(job);
    check(&training.categories(), &[("yb", Communication), ("xz", Inputs), ("ac", Activations)]);
    let mut alone = Training::new();
    alone.run(job);
    check(&alone.categories(), &[("xyz", Inputs)]);
}

#[test]
fn what_is_seen_is_true_and_what_is_not_seen_is_not_that() {
    let mut training = Training::new();
    // `d` is data that stays, `k` is scratch that a library keeps, `t` the same in the optimizer, `c` a bucket.
    training.run("pqd x a c b (g k h BA) [");
    training.memory.expect_buffers([24]);
    training.observe(Gradients, "gh");
    training.run("m t");
    training.observe(Parameters, "pq");
    training.observe(OptimizerState, "mp");
    training.run("] | X GH");
    let expected = [
        ("pq", Parameters),
        ("d", Other),
        ("x", Inputs),
        ("ab", Activations),
        ("gh", Gradients),
        ("kt", Workspace),
        ("m", OptimizerState),
    ];
    check(&training.categories(), &expected);
}

#[test]
fn blocks_of_the_size_of_a_bucket_that_stay_are_for_communication() {
    let mut training = Training::new();
    training.run("p x a");
    training.allocator.allocate(u64::from(b'c'), 24);
    training.memory.expect_buffers([24]);
    training.run("(g A) [m] | X");
    check(&training.categories(), &[("c", Communication), ("a", Activations), ("p", Parameters)]);
}

#[test]
fn recomputed_activations_are_activations() {
    let mut training = Training::new();
    training.run("p x a ( {r sS} g R A ) [m] | X");
    check(&training.categories(), &[("r", Activations), ("s", Workspace), ("g", Gradients)]);
}

#[test]
fn gradients_are_accumulated_over_several_backward_passes() {
    let mut training = Training::new();
    training.run("p x a (g A) X y b (t T B) Y z c (u U C) Z [m] G |");
    check(&training.categories(), &[("g", Gradients), ("tu", Workspace), ("abc", Activations), ("xyz", Inputs)]);
}

#[test]
fn a_program_that_ends_in_a_forward_pass_has_activations() {
    let mut training = Training::new();
    training.run(FIRST);
    training.run("GH X i c wW d");
    check(&training.categories(), &[("cd", Activations)]);

    let mut first = Training::new();
    first.run("pq i a b");
    first.observe(Parameters, "pq");
    check(&first.categories(), &[("pq", Parameters), ("ab", Activations)]);
}

#[test]
fn steps_and_phases_are_those_of_the_marks() {
    let mut training = Training::new();
    training.run(FIRST);
    training.run(&LATER.repeat(3));
    let of = |op: MemoryOperation, letter: char| {
        let event = training.told.iter().rev().find(|event| event.op == op && event.address == u64::from(letter));
        event.map(|event| (event.step, event.phase)).unwrap()
    };
    assert_eq!(of(MemoryOperation::Alloc, 'a'), (Some(Step(0)), Some(Phase::Forward)));
    assert_eq!(of(MemoryOperation::Free, 'a'), (Some(Step(0)), Some(Phase::Backward)));
    assert_eq!(of(MemoryOperation::Alloc, 'x'), (Some(Step(0)), None));
    assert_eq!(of(MemoryOperation::Alloc, 'm'), (None, Some(Phase::Optimizer)), "before the first step ended");
}

#[test]
fn what_was_there_before_is_there_from_the_beginning() {
    let mut training = Training::new();
    training.allocator.kept = 4;
    training.run("pq x a b (g A B");
    training.observe(Parameters, "pq");
    let categories = training.categories();
    check(&categories, &[("pq", Parameters)]);
    assert!(categories.contains_key(&'x') && categories.contains_key(&'g'));
}

#[test]
fn a_history_that_stops_and_begins_again_is_brought_up_to_date() {
    let mut training = Training::new();
    training.run(FIRST);
    training.memory.break_off();
    training.allocator.history.clear();
    // Unseen: a gradient goes, and its place is taken by something larger.
    training.allocator.blocks.remove(&u64::from(b'g'));
    training.allocator.blocks.insert(u64::from(b'g'), 80);
    training.allocator.blocks.remove(&u64::from(b'x'));
    training.run("a |");
    training.categories();
}

#[test]
fn what_was_there_before_a_history_without_events_is_there_from_then_on() {
    let mut training = Training::new();
    training.allocator.allocate(u64::from(b'p'), 8);
    training.allocator.history.clear();
    training.allocator.time_us = 1000;
    training.run("|");
    training.told.extend(training.memory.tell_rest());
    let told: Vec<_> = training.told.iter().map(|event| (event.op, event.time_ns)).collect();
    let then = Nanos(1_001_000);
    assert_eq!(told, [(MemoryOperation::Reserve, then), (MemoryOperation::Alloc, then)]);
}

#[test]
fn memory_that_runs_out_is_told_with_how_often() {
    let mut allocator = Allocator::keeping(100);
    let mut memory = FollowedMemory::default();
    let ahead = |when: ClockSnapshot| ClockSnapshot { rank_ns: Nanos(when.rank_ns.0 + 7), ..when };
    allocator.allocate(1, 8);
    let (taken, _) = memory.take_history(&allocator.snapshot(), &Calls::default(), ahead(allocator.when()));
    assert!(!taken.ran_out && memory.out_of_memory().is_none());

    let mut calls = Calls::default();
    let stack = Stack::default().calling(calls.one("forward", "model.py", Some(3)));
    for bytes in [500, 600] {
        allocator.push(Action::OutOfMemory, 0, bytes);
        let event = allocator.history.back_mut().unwrap();
        (event.address, event.device_free, event.stack) = (None, Some(64), Some(stack));
        allocator.allocate(bytes, 8);
    }
    let time = Nanos((allocator.time_us - 1) * 1000 + 7);
    let (taken, _) = memory.take_history(&allocator.snapshot(), &calls, ahead(allocator.when()));
    assert!(taken.ran_out);
    let expected = OutOfMemory {
        times: 2,
        time_ns: time,
        requested_bytes: 600,
        free_bytes: Some(64),
        stack: vec!["model.py:3 forward".into()],
        held: None,
        expandable_segments_would_do: Some(true),
    };
    assert_eq!(memory.out_of_memory(), Some(&expected));

    // What was read before is not counted again; what comes is, and nobody knows who asked.
    allocator.push(Action::OutOfMemory, 0, 700);
    let (taken, told) = memory.take_history(&allocator.snapshot(), &Calls::default(), ahead(allocator.when()));
    assert!(taken.ran_out && told.is_empty());
    let shortage = memory.out_of_memory().unwrap();
    assert_eq!((shortage.times, shortage.requested_bytes, shortage.free_bytes), (3, 700, None));
    assert!(shortage.stack.is_empty() && shortage.expandable_segments_would_do.is_none());
    let (taken, _) = memory.take_history(&allocator.snapshot(), &Calls::default(), ahead(allocator.when()));
    assert!(!taken.ran_out && memory.out_of_memory().unwrap().times == 3);
    assert_eq!(replay(&memory.tell_rest()).len(), 3, "it is no block");
}

fn programs() -> impl Strategy<Value = Vec<(u8, bool, u8)>> {
    prop::collection::vec((0..12_u8, any::<bool>(), 0..20_u8), 0..400)
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::default() })]

    #[test]
    fn pieces_of_a_history_are_the_whole(program in programs(), kept in 1..60_usize) {
        let mut allocator = Allocator::keeping(kept);
        let mut memory = FollowedMemory::default();
        let (mut told, mut whole, mut gaps) = (Vec::new(), 0, 0);
        for (what, in_order, mark) in program {
            let address = u64::from(what) + 1;
            match (mark, allocator.blocks.contains_key(&address)) {
                (0, _) => {
                    let (taken, rows) = memory.take_history(&allocator.snapshot(), &Calls::default(), allocator.when());
                    gaps += usize::from(taken.gap);
                    told.extend(rows);
                    told.extend(memory.tell());
                }
                (1..=7, _) => {
                    let events = [
                        TrainingEvent::BackwardBegins,
                        TrainingEvent::BackwardEnds,
                        TrainingEvent::OptimizerBegins,
                        TrainingEvent::OptimizerEnds,
                        TrainingEvent::RecomputationBegins,
                        TrainingEvent::RecomputationEnds,
                        TrainingEvent::StepEnds,
                    ];
                    let time = allocator.time_us * 1000 + if in_order { 7 } else { -5000 };
                    memory.mark(Mark { time_ns: Nanos(time), event: events[usize::from(mark) - 1], step: Some(Step(1)) });
                }
                (8, _) => memory.observe(&Observation {
                    time_ns: Nanos(allocator.time_us * 1000),
                    category: if in_order { Parameters } else { Gradients },
                    addresses: vec![address],
                }),
                (_, true) => {
                    allocator.free(address);
                    whole += 1;
                }
                (_, false) => {
                    allocator.allocate(address, u64::from(mark));
                    whole += 1;
                }
            }
        }
        let (taken, rows) = memory.take_history(&allocator.snapshot(), &Calls::default(), allocator.when());
        gaps += usize::from(taken.gap);
        told.extend(rows);
        told.extend(memory.tell_rest());
        let live: BTreeMap<u64, u64> = replay(&told).into_iter().map(|(address, (bytes, _))| (address, bytes)).collect();
        prop_assert_eq!(&live, &allocator.blocks);
        let blocks = told.iter().filter(|event| matches!(event.op, MemoryOperation::Alloc | MemoryOperation::Free)).count();
        prop_assert!(blocks == whole || gaps > 0 || kept < whole, "{} of {}", blocks, whole);
    }
}

/// A real training, without its stacks: passes are as those say, blocks are observed in the end, and the history comes in
/// pieces. What is told then is what is told of it with its stacks.
#[test]
fn a_real_training_is_told_apart_without_stacks() {
    let fixture = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/ddp-rank0.pickle");
    check_real(&std::env::var_os("STEPSCOPE_TORCH_SNAPSHOT").map_or(fixture, Into::into));
}

fn check_real(path: &std::path::Path) {
    let document = Document::read(std::fs::File::open(path).unwrap()).unwrap();
    let history = &document.devices[&0];
    let known = DeviceTables::of(history, &[], &document.calls).data.memory;
    let mut known: Vec<MemoryEvent> = known.rows().collect();
    // What is followed has the bytes that were asked for.
    let asked = history.events.iter().filter(|event| event.action == Action::Alloc).map(|event| event.bytes);
    let allocations = known.iter_mut().filter(|event| event.op == MemoryOperation::Alloc);
    allocations.zip(asked).for_each(|(event, asked)| event.bytes = Some(asked));
    let at_end = replay(&known);
    let times: Vec<i64> = history.events.iter().map(|event| event.time_us.unwrap() * 1000).collect();
    let passes = Passes::of(&history.events, &times, &[]);
    let mut memory = FollowedMemory::default();
    mark_passes(&mut memory, &passes, &times);
    let of = |category: MemoryCategory| at_end.iter().filter(move |(_, block)| block.1 == category);
    for category in [Parameters, Gradients, OptimizerState] {
        let addresses = of(category).map(|(address, _)| *address).collect();
        memory.observe(&Observation { time_ns: Nanos(*times.last().unwrap()), category, addresses });
    }
    let buffers = known.iter().filter(|event| event.category == Some(Communication)).filter_map(|event| event.bytes);
    // Those of a few bytes are of barriers.
    memory.expect_buffers(buffers.filter(|bytes| *bytes > 1 << 20));
    let (mut told, mut events) = (Vec::new(), Vec::new());
    for piece in history.events.chunks(700) {
        events.extend(piece.iter().map(|event| Event { stack: None, ..*event }));
        let end = EndState { segments: Vec::new(), blocks: Vec::new() };
        let piece = DeviceHistory { events: events.clone(), end: Some(end), ..DeviceHistory::default() };
        let (taken, rows) = memory.take_history(&piece, &Calls::default(), SAME);
        assert!(!taken.gap);
        told.extend(rows);
        told.extend(memory.tell());
        events.push(Event {
            action: Action::Snapshot,
            address: None,
            bytes: 0,
            time_us: None,
            stack: None,
            stream: 0,
            device_free: None,
        });
    }
    told.extend(memory.tell_rest());
    let (told, known) = (by_category(&told), by_category(&known));
    for category in [Parameters, Gradients, OptimizerState, Communication] {
        let bytes = |end: &ByCategory| end.get(&category).copied().unwrap_or(0);
        assert!(bytes(&told.1).abs_diff(bytes(&known.1)) <= 1, "{category} in the end: {told:?} {known:?}");
    }
    // Logits count as scratch where a stack tells them, and as activations otherwise, since they are kept for backward; and
    // what a library keeps for itself may be told from neither data nor scratch.
    let rest = |peak: &ByCategory| {
        [Activations, Workspace, Inputs, Other].iter().filter_map(|category| peak.get(category)).sum::<u64>()
    };
    assert_eq!(rest(&told.0), rest(&known.0), "{told:?} {known:?}");
    assert!(told.0.get(&Activations) >= known.0.get(&Activations), "{told:?} {known:?}");
    assert_eq!(told.0.get(&Communication), known.0.get(&Communication));
}

/// Marks where passes begin and end, by those of the events; a step ends with its optimizer. An event that is in no pass is in
/// that around it, as a program's call of it would be.
fn mark_passes(memory: &mut FollowedMemory, passes: &Passes, times: &[i64]) {
    let mut step = 0;
    let told: Vec<(usize, Pass)> = (0..times.len()).filter_map(|event| Some((event, passes.at(event)?))).collect();
    for pass in told.chunk_by(|one, other| one.1 == other.1) {
        let [(first, pass), .., (last, _)] = pass else { continue };
        let (begins, ends) = match pass {
            Pass::Forward => continue,
            Pass::Backward => (TrainingEvent::BackwardBegins, TrainingEvent::BackwardEnds),
            Pass::Optimizer => (TrainingEvent::OptimizerBegins, TrainingEvent::OptimizerEnds),
        };
        let mut mark = |time, event| memory.mark(Mark { time_ns: Nanos(time), event, step: Some(Step(step)) });
        mark(times[*first], begins);
        mark(times[*last] + 1, ends);
        if *pass == Pass::Optimizer {
            mark(times[*last] + 1, TrainingEvent::StepEnds);
            step += 1;
        }
    }
}

type ByCategory = BTreeMap<MemoryCategory, u64>;

/// What there is at the peak, and in the end.
fn by_category(told: &[MemoryEvent]) -> (ByCategory, ByCategory) {
    let (mut live, mut now, mut peak) = (HashMap::new(), ByCategory::new(), ByCategory::new());
    for event in told {
        match event.op {
            MemoryOperation::Alloc => {
                let block = (event.category.unwrap(), event.bytes.unwrap());
                live.insert(event.address, block);
                *now.entry(block.0).or_default() += block.1;
            }
            MemoryOperation::Free => {
                let (category, bytes) = live.remove(&event.address).unwrap();
                *now.get_mut(&category).unwrap() -= bytes;
            }
            _ => {}
        }
        if now.values().sum::<u64>() > peak.values().sum() {
            peak = now.clone();
        }
    }
    (peak, now)
}
