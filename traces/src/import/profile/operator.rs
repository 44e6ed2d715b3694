//! Operators of PyTorch and functions of the program, in as few bytes as it takes to find those that launched something.

use std::{
    num::{NonZeroU32, NonZeroU64},
    sync::Arc,
};

use hashbrown::HashMap;

use crate::{
    ids::Nanos,
    operators::{OperatorWork, Shapes},
};

/// How many different names and shapes are kept, and how long they may be together.
const MOST_TEXTS: usize = 1 << 18;
const MOST_BYTES: usize = 64 << 20;
/// Longer lists of shapes are those of all parameters: their work is known, and nobody reads them.
const LONGEST_SHAPES: usize = 160;

/// A call of an operator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperatorCall {
    pub(crate) start: Nanos,
    pub(crate) duration: Nanos,
    pub(crate) thread: Option<u32>,
    pub(crate) name: CalledId,
    pub(crate) shapes: ShapeId,
    /// Its own number.
    pub(crate) external: OptionalNumber,
    /// The node of autograd's graph that it creates, or runs.
    pub(crate) node: OptionalNumber,
    /// The thread that created that node, by PyTorch's own count; of a call that runs it.
    pub(crate) forward_thread: Option<NonZeroU32>,
}

/// A number that may be missing, in the room of one, since there are millions of calls. The largest number there is counts
/// as missing: no tool has come that far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OptionalNumber(Option<NonZeroU64>);

impl OptionalNumber {
    pub(crate) fn of(number: Option<u64>) -> OptionalNumber {
        OptionalNumber(number.and_then(|number| NonZeroU64::new(!number)))
    }

    pub(crate) fn get(self) -> Option<u64> {
        self.0.map(|complement| !complement.get())
    }
}

/// A call of a function, or of a module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FunctionCall {
    pub(crate) start: Nanos,
    pub(crate) duration: Nanos,
    pub(crate) thread: Option<u32>,
    pub(crate) name: CalledId,
}

/// A text that is kept once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CalledId(u32);

/// What an operator was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ShapeId(u32);

impl ShapeId {
    /// Nobody knows.
    pub(crate) const NONE: ShapeId = ShapeId(0);
}

/// What an operator is given: tensors, and texts for what is none.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) shapes: Shapes,
    pub(crate) concrete: Vec<String>,
}

/// What an operator is given, and what work that is.
#[derive(Clone, Debug)]
pub(crate) struct GivenShapes {
    operator: CalledId,
    /// In the words of the trace.
    words: Arc<str>,
    /// In ours.
    pub(crate) text: String,
    pub(crate) work: OperatorWork,
}

/// What a function of the program is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    /// A module: what it is called.
    Module(String),
    /// A line: its file, its number and the function.
    Source(String),
    /// Something else.
    Other,
}

/// What operators and functions are called, and what they are given.
#[derive(Debug, Default)]
pub(crate) struct OperatorNames {
    operators: TextBook,
    functions: TextBook,
    known_functions: Vec<Function>,
    /// By the words of the trace.
    shape_ids: HashMap<CalledId, HashMap<Arc<str>, ShapeId>>,
    shape_bytes: usize,
    shapes: Vec<GivenShapes>,
    told_shapes: usize,
}

impl OperatorNames {
    /// The id of an operator's name.
    pub(crate) fn operator(&mut self, name: &str) -> CalledId {
        self.operators.id(name).0
    }

    /// The id of a function's name.
    pub(crate) fn function(&mut self, name: &str) -> CalledId {
        let (id, is_new) = self.functions.id(name);
        if is_new {
            self.known_functions.push(Function::named(name));
        }
        id
    }

    /// The id of what an operator is given, in the words of the trace, which are read once.
    pub(crate) fn shapes(
        &mut self,
        operator: CalledId,
        given: &str,
        read: impl FnOnce(&str) -> Option<Given>,
    ) -> ShapeId {
        if given.is_empty() {
            return ShapeId::NONE;
        }
        if let Some(id) = self.shape_ids.get(&operator).and_then(|ids| ids.get(given)) {
            return *id;
        }
        let Some(Given { shapes, concrete }) = read(given) else {
            return self.remember(operator, given.into(), ShapeId::NONE).unwrap_or(ShapeId::NONE);
        };
        let work = OperatorWork::of(self.operator_name(operator), &shapes, &concrete);
        let text = shortened(shapes.to_string());
        self.add_shapes(GivenShapes { operator, words: given.into(), text, work }).unwrap_or(ShapeId::NONE)
    }

    /// What was added since the last time.
    pub(crate) fn added(&mut self) -> AddedCalls {
        let shapes = self.shapes[self.told_shapes..].to_vec();
        self.told_shapes = self.shapes.len();
        AddedCalls { operators: self.operators.added(), functions: self.functions.added(), shapes }
    }

    /// Takes in what another reader of the same trace added, and notes which ids it has here.
    pub(crate) fn take_in(&mut self, added: AddedCalls, ids: &mut CalledIds) {
        ids.operators.extend(added.operators.iter().map(|name| self.operator(name)));
        ids.functions.extend(added.functions.iter().map(|name| self.function(name)));
        for given in added.shapes {
            let operator = there(&ids.operators, given.operator);
            let known = self.shape_ids.get(&operator).and_then(|known| known.get(&given.words)).copied();
            let id = known.or_else(|| self.add_shapes(GivenShapes { operator, ..given }));
            ids.shapes.push(id.unwrap_or(ShapeId::NONE));
        }
    }

    fn add_shapes(&mut self, given: GivenShapes) -> Option<ShapeId> {
        let next = ShapeId(self.shapes.len() as u32 + 1);
        let id = self.remember(given.operator, given.words.clone(), next)?;
        self.shapes.push(given);
        Some(id)
    }

    /// Notes the id of what an operator is given, if there is room for it.
    fn remember(&mut self, operator: CalledId, words: Arc<str>, id: ShapeId) -> Option<ShapeId> {
        if self.shapes.len() >= MOST_TEXTS || self.shape_bytes + words.len() > MOST_BYTES {
            return None;
        }
        self.shape_bytes += words.len();
        self.shape_ids.entry(operator).or_default().insert(words, id);
        Some(id)
    }

    /// What an operator is called.
    pub(crate) fn operator_name(&self, id: CalledId) -> &str {
        self.operators.text(id)
    }

    /// What a function is.
    pub(crate) fn function_named(&self, id: CalledId) -> &Function {
        self.known_functions.get(id.0 as usize).unwrap_or(&Function::Other)
    }

    /// What an operator was given, and what work that is.
    pub(crate) fn given(&self, id: ShapeId) -> Option<&GivenShapes> {
        self.shapes.get((id.0 as usize).checked_sub(1)?)
    }
}

/// What one of several readers added to its names.
#[derive(Debug)]
pub(crate) struct AddedCalls {
    operators: Vec<Arc<str>>,
    functions: Vec<Arc<str>>,
    shapes: Vec<GivenShapes>,
}

/// Which ids the names of one reader have for another.
#[derive(Debug, Default)]
pub(crate) struct CalledIds {
    operators: Vec<CalledId>,
    functions: Vec<CalledId>,
    shapes: Vec<ShapeId>,
}

impl CalledIds {
    /// Puts a call in the other's words.
    pub(crate) fn rename_operator(&self, call: &mut OperatorCall) {
        let shapes = (call.shapes.0 as usize).checked_sub(1).and_then(|shapes| self.shapes.get(shapes));
        call.shapes = shapes.copied().unwrap_or(ShapeId::NONE);
        call.name = there(&self.operators, call.name);
    }

    /// Puts a call in the other's words.
    pub(crate) fn rename_function(&self, call: &mut FunctionCall) {
        call.name = there(&self.functions, call.name);
    }
}

/// Texts for which there was no room have no id anywhere.
fn there(ids: &[CalledId], id: CalledId) -> CalledId {
    ids.get(id.0 as usize).copied().unwrap_or(id)
}

/// A text of shapes that people can read.
fn shortened(text: String) -> String {
    if text.len() <= LONGEST_SHAPES {
        return text;
    }
    let end = text[..LONGEST_SHAPES].rfind(' ').unwrap_or(0);
    format!("{} …", &text[..end])
}

impl Function {
    /// What the profiler calls `nn.Module: Linear_3` is a module, and `train.py(12): forward` a line.
    fn named(name: &str) -> Function {
        if let Some(module) = name.strip_prefix("nn.Module: ") {
            return Function::Module(module.replace('/', "."));
        }
        let line = name.split_once("): ").and_then(|(place, function)| {
            let (file, line) = place.rsplit_once('(')?;
            line.parse::<u32>().ok()?;
            Some(format!("{file}:{line} {function}"))
        });
        line.map_or(Function::Other, Function::Source)
    }
}

/// Texts, each kept once and within bounds.
#[derive(Debug, Default)]
struct TextBook {
    ids: HashMap<Arc<str>, CalledId>,
    texts: Vec<Arc<str>>,
    bytes: usize,
    told: usize,
}

impl TextBook {
    /// The id of a text, and whether it is new. Those for which there is no room have the first one's.
    fn id(&mut self, text: &str) -> (CalledId, bool) {
        if let Some(id) = self.ids.get(text) {
            return (*id, false);
        }
        if self.texts.len() >= MOST_TEXTS || self.bytes + text.len() > MOST_BYTES {
            return (CalledId(u32::MAX), false);
        }
        let id = CalledId(self.texts.len() as u32);
        self.bytes += text.len();
        let text: Arc<str> = text.into();
        self.ids.insert(text.clone(), id);
        self.texts.push(text);
        (id, true)
    }

    /// What was added since the last time.
    fn added(&mut self) -> Vec<Arc<str>> {
        let added = self.texts[self.told..].to_vec();
        self.told = self.texts.len();
        added
    }

    fn text(&self, id: CalledId) -> &str {
        self.texts.get(id.0 as usize).map_or("(one of too many operators)", |text| text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_modules_or_lines() {
        for (name, function) in [
            ("nn.Module: Linear_3", Function::Module("Linear_3".into())),
            ("train.py(12): forward", Function::Source("train.py:12 forward".into())),
            ("a/b (c)/train.py(7): <lambda>", Function::Source("a/b (c)/train.py:7 <lambda>".into())),
            ("train.py(x): forward", Function::Other),
            ("forward", Function::Other),
            ("", Function::Other),
        ] {
            assert_eq!(Function::named(name), function, "{name}");
        }
    }

    #[test]
    fn numbers_may_be_missing() {
        for number in [None, Some(0), Some(1), Some(u64::MAX - 1)] {
            assert_eq!(OptionalNumber::of(number).get(), number);
        }
        assert_eq!(size_of::<OptionalNumber>(), size_of::<u64>());
    }

    #[test]
    fn long_lists_of_shapes_are_cut() {
        let long = "f32[1024,1024] ".repeat(100);
        let short = shortened(long);
        assert!(short.len() <= LONGEST_SHAPES + 4 && short.ends_with("] …"), "{short}");
    }
}
