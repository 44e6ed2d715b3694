//! Operators of PyTorch and functions of the program, in as few bytes as it takes to find those that launched something.

use hashbrown::HashMap;

use super::event::Arguments;
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
pub(super) struct OperatorCall {
    pub(super) start: Nanos,
    pub(super) duration: Nanos,
    pub(super) thread: Option<u32>,
    pub(super) name: CalledId,
    pub(super) shapes: ShapeId,
    /// Its own number.
    pub(super) external: Option<u64>,
    /// The node of autograd's graph that it creates, or runs.
    pub(super) node: Option<u64>,
    /// The thread that created that node, by PyTorch's own count; of a call that runs it.
    pub(super) forward_thread: Option<u32>,
}

/// A call of a function, or of a module.
#[derive(Clone, Copy, Debug)]
pub(super) struct FunctionCall {
    pub(super) start: Nanos,
    pub(super) duration: Nanos,
    pub(super) thread: Option<u32>,
    pub(super) name: CalledId,
}

/// A text that is kept once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CalledId(u32);

/// What an operator was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ShapeId(u32);

impl ShapeId {
    /// Nobody knows.
    pub(super) const NONE: ShapeId = ShapeId(0);
}

/// What a function of the program is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Function {
    /// A module: what it is called.
    Module(String),
    /// A line: its file, its number and the function.
    Source(String),
    /// Something else.
    Other,
}

/// What operators and functions are called, and what they are given.
#[derive(Debug, Default)]
pub(super) struct OperatorNames {
    operators: TextBook,
    functions: TextBook,
    known_functions: Vec<Function>,
    /// By the words of the trace.
    shape_ids: HashMap<CalledId, HashMap<Box<str>, ShapeId>>,
    shape_bytes: usize,
    shapes: Vec<(String, OperatorWork)>,
}

impl OperatorNames {
    /// The id of an operator's name.
    pub(super) fn operator(&mut self, name: &str) -> CalledId {
        self.operators.id(name).0
    }

    /// The id of a function's name.
    pub(super) fn function(&mut self, name: &str) -> CalledId {
        let (id, is_new) = self.functions.id(name);
        if is_new {
            self.known_functions.push(Function::named(name));
        }
        id
    }

    /// The id of what an operator is given, in the words of the trace.
    pub(super) fn shapes(&mut self, operator: CalledId, given: &str) -> ShapeId {
        if given.is_empty() {
            return ShapeId::NONE;
        }
        if let Some(id) = self.shape_ids.get(&operator).and_then(|ids| ids.get(given)) {
            return *id;
        }
        let id = self.add_shapes(operator, given).unwrap_or(ShapeId::NONE);
        if self.shape_bytes + given.len() <= MOST_BYTES {
            self.shape_bytes += given.len();
            self.shape_ids.entry(operator).or_default().insert(given.into(), id);
        }
        id
    }

    fn add_shapes(&mut self, operator: CalledId, given: &str) -> Option<ShapeId> {
        let text = format!("{{{given}}}");
        let arguments = Arguments::of(&text)?;
        let read = Shapes::of_profiler(arguments.dimensions?, arguments.types);
        let shapes = read.filter(|_| self.shapes.len() < MOST_TEXTS)?;
        let concrete: Option<Vec<String>> = arguments.concrete.and_then(|given| serde_json::from_str(given).ok());
        let work = OperatorWork::of(self.operator_name(operator), &shapes, &concrete.unwrap_or_default());
        self.shapes.push((shortened(shapes.to_string()), work));
        Some(ShapeId(self.shapes.len() as u32))
    }

    /// What an operator is called.
    pub(super) fn operator_name(&self, id: CalledId) -> &str {
        self.operators.text(id)
    }

    /// What a function is.
    pub(super) fn function_named(&self, id: CalledId) -> &Function {
        self.known_functions.get(id.0 as usize).unwrap_or(&Function::Other)
    }

    /// What an operator was given, and what work that is.
    pub(super) fn given(&self, id: ShapeId) -> Option<&(String, OperatorWork)> {
        self.shapes.get((id.0 as usize).checked_sub(1)?)
    }
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
    ids: HashMap<Box<str>, CalledId>,
    texts: Vec<Box<str>>,
    bytes: usize,
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
        self.ids.insert(text.into(), id);
        self.texts.push(text.into());
        (id, true)
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
    fn long_lists_of_shapes_are_cut() {
        let long = "f32[1024,1024] ".repeat(100);
        let short = shortened(long);
        assert!(short.len() <= LONGEST_SHAPES + 4 && short.ends_with("] …"), "{short}");
    }
}
