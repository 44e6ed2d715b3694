//! Who launched what: the operator around a launch, the modules and the functions around that.
//!
//! On a thread, calls lie inside each other. A launch is of the innermost operator around it. Where autograd runs the
//! backward pass there are no modules: an operator there has the number of the node that it runs, and the operator of the
//! forward pass that created this node has the same number, and the module.
//!
//! An operator that creates nodes while autograd runs one is work done again: a checkpoint.

use std::{cmp::Reverse, num::NonZeroU32};

use hashbrown::{HashMap, HashSet};

use super::{
    names::NameBook,
    operator::{CalledId, Function, FunctionCall, GivenShapes, OperatorCall, OperatorNames, ShapeId},
    rows::{Activity, Call},
};
use crate::{
    ids::{NameId, Nanos},
    kernels::{Family, KernelKind},
    operators::OperatorWork,
    origin::Origin,
    vocabulary::{Phase, SpanKind},
};

/// How autograd calls what it runs.
const ENGINE: &str = "autograd::engine::evaluate_function";

/// No modules are nested deeper.
const MOST_NESTED: u32 = 64;

/// Where one call of a thread was: in which operator, and in which module and function.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Launcher {
    operator: Option<u32>,
    module: Option<u32>,
    source: Option<CalledId>,
    /// The phase, where autograd tells it.
    pub(crate) phase: Option<Phase>,
}

/// Who launched what, on all threads.
#[derive(Debug, Default)]
pub(crate) struct Launchers {
    /// Of each call, in their order.
    pub(crate) of_calls: Vec<Launcher>,
    /// Of each operator, where that was asked for.
    pub(crate) of_operators: Vec<Launcher>,
    /// Module paths, each with the one around it, and how many those are.
    modules: Vec<(Option<u32>, CalledId, u32)>,
}

/// What is open on a thread.
#[derive(Default)]
struct OpenCalls {
    operators: Vec<(Nanos, u32, InGraph)>,
    functions: Vec<(Nanos, Option<u32>, Option<CalledId>)>,
}

/// What an operator has to do with autograd's graph.
#[derive(Clone, Copy, PartialEq)]
enum InGraph {
    /// It is outside of the backward pass.
    Forward,
    /// Autograd runs it.
    Backward,
    /// It creates nodes while autograd runs one.
    Again,
}

impl Launchers {
    /// Finds who made each call, and of each operator where it is, if `with_operators`. `threads` has the operators
    /// and functions in order, `launches` the calls.
    pub(crate) fn of(
        calls: &[Call],
        (operators, functions, called): (&[OperatorCall], &[FunctionCall], &OperatorNames),
        (HostCalls(threads), LaunchCalls(launches)): (HostCalls, LaunchCalls),
        autograd: &Autograd,
        with_operators: bool,
    ) -> Launchers {
        let launchers = Launchers {
            of_calls: vec![Launcher::default(); calls.len()],
            of_operators: vec![Launcher::default(); if with_operators { operators.len() } else { 0 }],
            ..Launchers::default()
        };
        if operators.is_empty() && functions.is_empty() {
            return launchers;
        }
        let most = most_common_forward_thread(operators);
        let mut sweep = Sweep {
            operators,
            functions,
            called,
            autograd,
            most,
            made_by: HashMap::new(),
            paths: HashMap::new(),
            launchers,
        };
        // The forward pass first: the backward pass asks for its modules.
        let mut order: Vec<_> = threads.iter().collect();
        order.sort_by_key(|(thread, _)| (autograd.threads.contains(*thread), **thread));
        for (thread, host) in order {
            sweep.thread(host, launches.get(thread).map_or(&[], Vec::as_slice));
        }
        sweep.launchers
    }

    /// Names who launched each activity, and gives it the work of its operator. `call_of`: which call launched it.
    pub(crate) fn attribute(
        &self,
        activities: &mut [Activity],
        call_of: &[Option<u32>],
        operators: &[OperatorCall],
        called: &OperatorNames,
        names: &mut NameBook,
    ) {
        let by_number: HashMap<u64, u32> = match call_of.iter().all(Option::is_some) {
            true => HashMap::new(),
            false => operators
                .iter()
                .zip(0..)
                .filter_map(|(operator, index)| Some((operator.external.get()?, index)))
                .collect(),
        };
        let mut texts = OriginTexts::new(self, operators, called, names);
        let mut launched: Vec<(u32, usize)> = Vec::new();
        for (index, activity) in activities.iter_mut().enumerate() {
            let launcher = match call_of[index] {
                Some(call) => self.of_calls[call as usize],
                // Its launch is missing; the operator has its number.
                None => Launcher {
                    operator: activity.external.and_then(|number| by_number.get(&number)).copied(),
                    ..Launcher::default()
                },
            };
            // Some tools say it of the activity itself.
            activity.span.origin = activity.span.origin.or_else(|| texts.origin(&launcher));
            if let Some(phase) = launcher.phase {
                activity.span.phase = Some(phase);
            }
            if let Some(operator) = launcher.operator.filter(|_| activity.span.kind == SpanKind::Kernel) {
                launched.push((operator, index));
            }
        }
        let mut multiplying: HashMap<NameId, Multiplies> = HashMap::new();
        launched.sort_unstable();
        for launched in launched.chunk_by(|one, next| one.0 == next.0) {
            if let Some(GivenShapes { work, .. }) = called.given(operators[launched[0].0 as usize].shapes) {
                let kernels: Vec<usize> = launched.iter().map(|(_, index)| *index).collect();
                give_work(activities, &kernels, work, |name| {
                    *multiplying.entry(name).or_insert_with(|| Multiplies::named(names.text(name)))
                });
            }
        }
    }
}

/// The kernel that multiplies has the FLOPs of its operator, and the bytes where there are FLOPs; the others have none. Bytes
/// alone are shared by how long each kernel took: such operators go over long lists in several.
fn give_work(
    activities: &mut [Activity],
    kernels: &[usize],
    work: &OperatorWork,
    mut multiplies: impl FnMut(NameId) -> Multiplies,
) {
    let duration = |index: &usize| activities[*index].span.duration_ns.0;
    if work.flops.is_some() {
        let likely = |index: &&usize| (multiplies(activities[**index].span.name), duration(index));
        if let Some(index) = kernels.iter().max_by_key(likely).copied() {
            kernels.iter().for_each(|other| activities[*other].span.flops = Some(0));
            (activities[index].span.flops, activities[index].span.bytes) = (work.flops, work.bytes);
        }
        return;
    }
    let Some(bytes) = work.bytes else { return };
    let whole: i64 = kernels.iter().map(duration).sum();
    for index in kernels {
        let span = &mut activities[*index].span;
        span.bytes = Some((bytes as f64 * span.duration_ns.0 as f64 / whole.max(1) as f64) as u64);
    }
}

/// How likely it is that a kernel does what an operator with FLOPs is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Multiplies {
    /// It does something else.
    No,
    /// It may: parts of a product are summed by such ones, too.
    Maybe,
    /// Its name has the tile that it computes.
    Yes,
}

impl Multiplies {
    fn named(name: &str) -> Multiplies {
        let kind = KernelKind::of(name);
        match kind.family {
            Family::Matmul | Family::Convolution if kind.gemm.is_some_and(|gemm| gemm.tile.is_some()) => {
                Multiplies::Yes
            }
            Family::Matmul | Family::Attention | Family::Convolution => Multiplies::Maybe,
            _ => Multiplies::No,
        }
    }
}

/// When a call began, and what it is. There are millions, so how long it lasted is looked up where that matters: what begins
/// first comes first, and of what begins together what lasts longest.
type CallInOrder = (Nanos, Called);

/// Of what takes the same time, the outer ones come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Called {
    Function(u32),
    Operator(u32),
    Launch(u32),
}

/// Calls of each thread.
type CallsByThread = HashMap<Option<u32>, Vec<CallInOrder>>;

/// Operators and functions of each thread, in order.
#[derive(Debug, Default)]
pub(crate) struct HostCalls(CallsByThread);

impl HostCalls {
    pub(crate) fn of(operators: &[OperatorCall], functions: &[FunctionCall]) -> HostCalls {
        let mut threads = CallsByThread::new();
        add_calls(&mut threads, operators, |call| (call.thread, call.start), Called::Operator);
        add_calls(&mut threads, functions, |call| (call.thread, call.start), Called::Function);
        let outer_first = |called: Called| (Reverse(duration(called, operators, functions)), called);
        for calls in threads.values_mut() {
            // Each kind of them comes in order, which a stable sort makes use of.
            calls.sort_by(|(one, called), (other, another)| {
                one.cmp(other).then_with(|| outer_first(*called).cmp(&outer_first(*another)))
            });
        }
        HostCalls(threads)
    }
}

/// Calls of each thread that may have launched something, in order.
#[derive(Debug, Default)]
pub(crate) struct LaunchCalls(CallsByThread);

impl LaunchCalls {
    pub(crate) fn of(calls: &[Call]) -> LaunchCalls {
        let mut threads = CallsByThread::new();
        add_calls(&mut threads, calls, |call| (call.thread, call.start), Called::Launch);
        threads.values_mut().for_each(|calls| calls.sort());
        LaunchCalls(threads)
    }
}

/// How long a call lasted. Launches lie in what is around them, however long they last.
fn duration(called: Called, operators: &[OperatorCall], functions: &[FunctionCall]) -> Nanos {
    match called {
        Called::Operator(index) => operators[index as usize].duration,
        Called::Function(index) => functions[index as usize].duration,
        Called::Launch(_) => Nanos(0),
    }
}

/// Adds calls of one kind to those of their threads. `when`: on which thread one was, and when.
fn add_calls<T>(
    threads: &mut CallsByThread,
    calls: &[T],
    when: impl Fn(&T) -> (Option<u32>, Nanos),
    called: impl Fn(u32) -> Called,
) {
    let mut numbered = calls.iter().zip(0..);
    // Most calls are of the same thread as the one before.
    for calls in calls.chunk_by(|one, next| when(one).0 == when(next).0) {
        let own = threads.entry(when(&calls[0]).0).or_default();
        own.extend(numbered.by_ref().take(calls.len()).map(|(call, index)| (when(call).1, called(index))));
    }
}

/// What autograd runs, and where.
#[derive(Debug, Default)]
pub(crate) struct Autograd {
    names: HashSet<CalledId>,
    pub(crate) threads: HashSet<Option<u32>>,
}

impl Autograd {
    /// Finds it by what it calls its operators.
    pub(crate) fn of(operators: &[OperatorCall], called: &OperatorNames) -> Autograd {
        let mut seen: HashMap<CalledId, bool> = HashMap::new();
        let mut threads = HashSet::new();
        for operator in operators {
            let runs = || called.operator_name(operator.name).starts_with(ENGINE);
            let is_engine = *seen.entry(operator.name).or_insert_with(runs);
            // Old versions do not name their engine.
            if is_engine || operator.forward_thread.is_some() {
                threads.insert(operator.thread);
            }
        }
        Autograd { names: seen.into_iter().filter(|(_, runs)| *runs).map(|(name, _)| name).collect(), threads }
    }
}

/// The thread of the forward pass, by PyTorch's own count: the one that most nodes come from.
fn most_common_forward_thread(operators: &[OperatorCall]) -> Option<NonZeroU32> {
    let mut counts: HashMap<NonZeroU32, usize> = HashMap::new();
    for thread in operators.iter().filter_map(|operator| operator.forward_thread) {
        *counts.entry(thread).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(thread, count)| (*count, std::cmp::Reverse(*thread))).map(|(thread, _)| thread)
}

/// Goes over the calls of threads.
struct Sweep<'a> {
    operators: &'a [OperatorCall],
    functions: &'a [FunctionCall],
    called: &'a OperatorNames,
    autograd: &'a Autograd,
    most: Option<NonZeroU32>,
    /// Where each node was created: in the forward pass, or again.
    made_by: HashMap<(bool, u64), (Option<u32>, Option<CalledId>)>,
    /// The number of a module path.
    paths: HashMap<(Option<u32>, CalledId), u32>,
    launchers: Launchers,
}

impl Sweep<'_> {
    fn thread(&mut self, host: &[CallInOrder], launches: &[CallInOrder]) {
        let mut open = OpenCalls::default();
        let (mut host, mut launches) = (host.iter().peekable(), launches.iter().peekable());
        while let Some((start, what)) = match (host.peek(), launches.peek()) {
            (Some(call), Some(launch)) if self.comes_first(call, launch) => host.next(),
            (_, Some(_)) => launches.next(),
            (_, None) => host.next(),
        } {
            while open.operators.pop_if(|(end, ..)| *end <= *start).is_some() {}
            while open.functions.pop_if(|(end, ..)| *end <= *start).is_some() {}
            match *what {
                Called::Function(index) => self.function(&mut open, index),
                Called::Operator(index) => self.operator(&mut open, index),
                Called::Launch(index) => self.launchers.of_calls[index as usize] = self.launcher(&open),
            }
        }
    }

    /// Whether a call comes before a launch, which may be in it.
    fn comes_first(&self, (start, called): &CallInOrder, (launched, _): &CallInOrder) -> bool {
        let is_around = || duration(*called, self.operators, self.functions) >= Nanos(0);
        start < launched || start == launched && is_around()
    }

    fn function(&mut self, open: &mut OpenCalls, index: u32) {
        let call = &self.functions[index as usize];
        let (_, module, source) = open.functions.last().copied().unwrap_or_default();
        let (module, source) = match self.called.function_named(call.name) {
            Function::Module(_) => (Some(self.path(module, call.name)), source),
            Function::Source(_) => (module, Some(call.name)),
            Function::Other => return,
        };
        open.functions.push((call.start + call.duration, module, source));
    }

    fn path(&mut self, around: Option<u32>, name: CalledId) -> u32 {
        let modules = &mut self.launchers.modules;
        // What is deeper than any model is of the last one that is not.
        let depth = around.map_or(0, |around| modules[around as usize].2 + 1);
        if let Some(around) = around.filter(|_| depth >= MOST_NESTED) {
            return around;
        }
        *self.paths.entry((around, name)).or_insert_with(|| {
            modules.push((around, name, depth));
            modules.len() as u32 - 1
        })
    }

    fn operator(&mut self, open: &mut OpenCalls, index: u32) {
        let call = &self.operators[index as usize];
        let around = open.operators.last().map_or(InGraph::Forward, |(.., graph)| *graph);
        let runs = self.autograd.names.contains(&call.name) || call.forward_thread.is_some();
        let graph = match around {
            _ if runs => InGraph::Backward,
            InGraph::Backward if call.node.get().is_some() => InGraph::Again,
            around => around,
        };
        if let (false, Some(node)) = (runs, call.node.get()) {
            let (_, module, source) = open.functions.last().copied().unwrap_or_default();
            self.made_by.insert((graph == InGraph::Again, node), (module, source));
        }
        open.operators.push((call.start + call.duration, index, graph));
        if !self.launchers.of_operators.is_empty() {
            self.launchers.of_operators[index as usize] = self.launcher(open);
        }
    }

    fn launcher(&self, open: &OpenCalls) -> Launcher {
        let (_, module, source) = open.functions.last().copied().unwrap_or_default();
        let innermost = open.operators.last();
        let mut launcher = Launcher { operator: innermost.map(|(_, index, _)| *index), module, source, phase: None };
        match innermost.map(|(.., graph)| *graph) {
            Some(InGraph::Again) => launcher.phase = Some(Phase::Recompute),
            Some(InGraph::Backward) => {
                launcher.phase = Some(Phase::Backward);
                if let Some((module, source)) = self.maker(open) {
                    (launcher.module, launcher.source) = (launcher.module.or(module), launcher.source.or(source));
                }
            }
            _ => {}
        }
        launcher
    }

    /// Where the node was created that runs.
    fn maker(&self, open: &OpenCalls) -> Option<(Option<u32>, Option<CalledId>)> {
        let mut outwards = open.operators.iter().rev().map(|(_, index, _)| &self.operators[*index as usize]);
        let step = outwards.find(|operator| operator.forward_thread.is_some() && operator.node.get().is_some())?;
        self.made_by.get(&(step.forward_thread != self.most, step.node.get()?)).copied()
    }
}

/// Writes origins, each once.
pub(super) struct OriginTexts<'a> {
    launchers: &'a Launchers,
    operators: &'a [OperatorCall],
    called: &'a OperatorNames,
    names: &'a mut NameBook,
    known: HashMap<OriginKey, Option<NameId>>,
    paths: HashMap<u32, String>,
}

/// What makes an origin another one.
type OriginKey = (Option<(CalledId, ShapeId)>, Option<u32>, Option<CalledId>);

impl<'a> OriginTexts<'a> {
    pub(super) fn new(
        launchers: &'a Launchers,
        operators: &'a [OperatorCall],
        called: &'a OperatorNames,
        names: &'a mut NameBook,
    ) -> OriginTexts<'a> {
        OriginTexts { launchers, operators, called, names, known: HashMap::new(), paths: HashMap::new() }
    }

    /// What an operator is called, and where it is.
    pub(super) fn of_operator(&mut self, operator: &OperatorCall, launcher: &Launcher) -> (NameId, Option<NameId>) {
        (self.names.id(self.called.operator_name(operator.name)), self.origin(launcher))
    }

    fn origin(&mut self, launcher: &Launcher) -> Option<NameId> {
        let operator = launcher.operator.map(|index| &self.operators[index as usize]);
        let key = (operator.map(|operator| (operator.name, operator.shapes)), launcher.module, launcher.source);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        if let Some(module) = launcher.module {
            self.write_path(module);
        }
        let origin = Origin {
            operator: operator.map(|operator| self.called.operator_name(operator.name)),
            shapes: operator.and_then(|operator| self.called.given(operator.shapes)).map(|given| given.text.as_str()),
            module: launcher.module.and_then(|module| self.paths.get(&module)).map(String::as_str),
            source: launcher.source.and_then(|source| match self.called.function_named(source) {
                Function::Source(text) => Some(text.as_str()),
                _ => None,
            }),
        };
        let id = (origin != Origin::default()).then(|| self.names.id(&origin.text()));
        self.known.insert(key, id);
        id
    }

    /// Writes a module and those around it.
    fn write_path(&mut self, module: u32) {
        if self.paths.contains_key(&module) {
            return;
        }
        let mut parts: Vec<&str> = Vec::new();
        let mut next = Some(module);
        while let Some((around, name, _)) = next.and_then(|module| self.launchers.modules.get(module as usize)) {
            if let Function::Module(name) = self.called.function_named(*name) {
                parts.push(name);
            }
            next = *around;
        }
        parts.reverse();
        self.paths.insert(module, parts.join("/"));
    }
}
