//! Operators of PyTorch, as its profiler names them in ranges: `aten::mm, seq = 5, op_id = 7, sizes = [[8, 4], [4, 2]]`.
//!
//! In steps that are looked at, our module in the program's Python has PyTorch name its operators, and says which module and
//! which line of the program it is in. What is launched in an operator is then its own, with the FLOPs of its shapes. The
//! backward pass is in no module: there an operator has the number of the node of autograd's graph that it runs, which the
//! operator of the forward pass had that created it.

use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use stepscope_collector::{Entered, LaunchInfo, Launching, Recorder};
use stepscope_traces::{NameId, OperatorWork, Origin, Shapes};

/// How many different operators with their shapes and modules are kept, and nodes of the graph.
const MOST_KNOWN: usize = 1 << 15;
const MOST_NODES: usize = 1 << 18;
/// Longer lists of shapes are those of all parameters, and nobody reads them.
const LONGEST_SHAPES: usize = 160;
/// How autograd calls what it runs.
const ENGINE: &str = "autograd::engine::evaluate_function: ";

/// Whether our module has PyTorch name its operators now.
static LOOKING: AtomicBool = AtomicBool::new(false);
/// Where each node of autograd's graph was created.
static MADE_IN: Mutex<Option<HashMap<u64, CodePlace>>> = Mutex::new(None);

thread_local! {
    /// The modules and lines that this thread is in.
    static PLACES: RefCell<Vec<CodePlace>> = const { RefCell::new(Vec::new()) };
    /// Where the node was created that autograd runs on this thread.
    static RUNS: RefCell<CodePlace> = const { RefCell::new(CodePlace { module: None, source: None }) };
    static KNOWN: RefCell<HashMap<String, (NameId, Option<u64>)>> = RefCell::new(HashMap::new());
}

/// A module and a line of the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CodePlace {
    module: Option<String>,
    source: Option<String>,
}

/// What the name of a range says of an operator.
#[derive(Debug, PartialEq, Eq)]
struct NamedOperator<'a> {
    name: &'a str,
    node: Option<u64>,
    sizes: Option<&'a str>,
}

/// An operator that is open on a thread: what it launches is its own.
pub(super) struct OpenOperator {
    #[expect(dead_code, reason = "left when it is dropped")]
    entered: Entered<'static>,
    #[expect(dead_code, reason = "ends when it is dropped")]
    launching: Launching<'static>,
}

/// Begins to look at operators, or ends it.
pub(crate) fn look(on: bool) {
    *MADE_IN.lock().unwrap_or_else(PoisonError::into_inner) = on.then(HashMap::new);
    LOOKING.store(on, Relaxed);
}

/// Whether operators are looked at: then their ranges are nothing that the program says.
pub(super) fn is_looking() -> bool {
    LOOKING.load(Relaxed)
}

/// Enters a module, or a line of the program, on this thread.
pub(crate) fn enter(module: Option<&str>, source: Option<&str>) {
    with_places(|places| {
        let around = places.last().cloned().unwrap_or_default();
        let of = |new: Option<&str>, around: Option<String>| new.map(str::to_owned).or(around);
        places.push(CodePlace { module: of(module, around.module), source: of(source, around.source) });
    });
}

/// Leaves what was entered last on this thread; all of it where `all`.
pub(crate) fn leave(all: bool) {
    with_places(|places| {
        let left = if all { 0 } else { places.len().saturating_sub(1) };
        places.truncate(left);
    });
}

/// Changes where this thread is, unless it is ending.
fn with_places(change: impl FnOnce(&mut Vec<CodePlace>)) {
    let _ending = PLACES.try_with(|places| places.try_borrow_mut().map(|mut places| change(&mut places)));
}

/// Opens the operator that a range names, if it names one.
pub(super) fn open(recorder: &'static Recorder, range: &str) -> Option<OpenOperator> {
    let operator = NamedOperator::of(range)?;
    let place = operator.place();
    if operator.name.starts_with(ENGINE) {
        // What is launched in it is of the operators that it calls.
        return None;
    }
    let (origin, flops) = known(recorder, &operator, &place);
    Some(OpenOperator {
        entered: recorder.launched_by(origin),
        launching: recorder.launching(LaunchInfo { flops, ..LaunchInfo::default() }),
    })
}

impl<'a> NamedOperator<'a> {
    /// What a range says; none of one that is no operator's.
    fn of(range: &'a str) -> Option<NamedOperator<'a>> {
        let end = range.find(", op_id = ")?;
        let (head, rest) = range.split_at(end);
        let (name, node) = match head.split_once(", seq = ") {
            Some((name, node)) => (name, node.parse().ok()),
            None => (head, None),
        };
        // Ranges of the program have such numbers too; and around this one is the operator that asks for communication.
        let is_operator = name.contains("::") || !name.contains([' ', '#', '.', ':']);
        let is_operator = is_operator && name != "record_param_comms";
        let sizes = rest.split_once(", sizes = ").map(|(_, sizes)| {
            let end = sizes.find(", input_op_ids").unwrap_or(sizes.len());
            &sizes[..end]
        });
        is_operator.then_some(NamedOperator { name, node, sizes })
    }

    /// The module and the line it belongs to.
    fn place(&self) -> CodePlace {
        let here = PLACES.try_with(|places| places.try_borrow().ok()?.last().cloned()).ok().flatten();
        let mut made_in = MADE_IN.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(made_in) = made_in.as_mut() else { return here.unwrap_or_default() };
        let runs = self.name.starts_with(ENGINE) || self.name.ends_with("Backward0") || self.name.ends_with("Backward");
        match (here, self.node) {
            (Some(here), Some(node)) if !runs => {
                if made_in.len() < MOST_NODES {
                    made_in.insert(node, here.clone());
                }
                here
            }
            (None, Some(node)) if runs => {
                let place = made_in.get(&node).cloned().unwrap_or_default();
                RUNS.with(|runs| *runs.borrow_mut() = place.clone());
                place
            }
            // Autograd runs a node: what it calls has no number.
            (None, None) => RUNS.with(|runs| runs.borrow().clone()),
            (here, _) => here.unwrap_or_default(),
        }
    }
}

/// The name of an operator's origin, and its FLOPs.
fn known(recorder: &Recorder, operator: &NamedOperator<'_>, place: &CodePlace) -> (NameId, Option<u64>) {
    let parts = [Some(operator.name), operator.sizes, place.module.as_deref(), place.source.as_deref()];
    let key = parts.map(|part| part.unwrap_or_default()).join("\t");
    KNOWN.with(|known| {
        if let Some(found) = known.borrow().get(&key) {
            return *found;
        }
        let shapes = operator.sizes.and_then(|sizes| Shapes::of_profiler(sizes, None));
        let flops = shapes.as_ref().and_then(|shapes| OperatorWork::of(operator.name, shapes, &[]).flops);
        let shapes = shapes.map(|shapes| shapes.to_string()).filter(|shapes| shapes.len() <= LONGEST_SHAPES);
        let origin = Origin {
            operator: Some(operator.name),
            shapes: shapes.as_deref().filter(|shapes| !shapes.is_empty()),
            module: place.module.as_deref(),
            source: place.source.as_deref(),
        };
        let found = (recorder.name(&origin.text()), flops);
        let mut known = known.borrow_mut();
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(key, found);
        found
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::fuzz;

    #[test]
    fn fuzzed_operators() {
        let seeds = ["aten::mm, seq = 7, op_id = 7, sizes = [[4, 8], [8, 4]], input_op_ids = [(1,0)]", "x, op_id = 1"];
        fuzz!(seeds.map(|seed| seed.as_bytes().to_vec()).to_vec(), |bytes: &[u8]| {
            NamedOperator::of(&String::from_utf8_lossy(bytes)).is_some()
        });
    }

    #[test]
    fn ranges_of_operators_are_read() {
        let operator = |name, node, sizes| Some(NamedOperator { name, node, sizes });
        for (range, expected) in [
            (
                "aten::mm, seq = 5, op_id = 7, sizes = [[8, 4], [4, 2]]",
                operator("aten::mm", Some(5), Some("[[8, 4], [4, 2]]")),
            ),
            (
                "aten::mm, op_id = 7, sizes = [[8], []], input_op_ids = [(1,0)]",
                operator("aten::mm", None, Some("[[8], []]")),
            ),
            ("MmBackward0, seq = 5, op_id = 9", operator("MmBackward0", Some(5), None)),
            ("Optimizer.step#AdamW.step, op_id = 3", None),
            ("my range, op_id = 3", None),
            ("forward", None),
        ] {
            assert_eq!(NamedOperator::of(range), expected, "{range}");
        }
    }

    #[test]
    fn the_backward_pass_is_of_the_modules_of_the_forward_pass() {
        look(true);
        enter(Some("GPT/head"), None);
        enter(None, Some("train.py:12 forward"));
        let forward = NamedOperator { name: "aten::linear", node: Some(41), sizes: None }.place();
        assert_eq!(forward.module.as_deref().zip(forward.source.as_deref()), Some(("GPT/head", "train.py:12 forward")));
        leave(true);
        let backward = std::thread::spawn(|| {
            let node = NamedOperator { name: "MmBackward0", node: Some(41), sizes: None }.place();
            (node, NamedOperator { name: "aten::mm", node: None, sizes: None }.place())
        });
        assert_eq!(backward.join().unwrap(), (forward.clone(), forward));
        look(false);
    }
}
