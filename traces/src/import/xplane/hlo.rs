//! Where work of XLA comes from: the operation of the framework, where in the model that is, and the line of the program.
//!
//! A framework names what it compiles by a path: `jit(step)/transpose(jvp(Model))/layers_0/mlp/dot_general`. The last part is
//! the operation, the rest is where it is. Events have the path or the instruction, and compiled programs, which the profile
//! holds too, have the path and the line of each instruction.

use std::fmt::Write;

use hashbrown::HashMap;
use prost::Message;

use super::{
    message::{HloInstruction, HloOpMetadata, HloStackFrames},
    plane::{Plane, StatName, TimedEvent},
    wire::{FieldValue, WireFields},
};
use crate::{
    origin::Origin,
    vocabulary::{Phase, SpanKind},
};

/// How long the line of a program may be, with its function.
const LONGEST_SOURCE: usize = 256;

/// The compiled programs of a profile.
#[derive(Default)]
pub(super) struct Programs {
    /// The path and the line of each instruction, by program and name.
    instructions: HashMap<u64, HashMap<String, (String, String)>>,
}

impl Programs {
    /// Takes the programs of the plane that has them.
    pub(super) fn of(metadata: &Plane<'_>) -> Programs {
        let mut programs = Programs::default();
        for (id, kind) in &metadata.kinds {
            if let Some(program) = metadata.bytes_of_kind(kind, StatName::HloProto) {
                programs.instructions.insert(id.cast_unsigned(), instructions_of(program));
            }
        }
        programs
    }

    fn instruction(&self, program: u64, name: &str) -> Option<&(String, String)> {
        self.instructions.get(&program)?.get(name)
    }
}

/// The instructions of a program that say where they come from.
fn instructions_of(program: &[u8]) -> HashMap<String, (String, String)> {
    let messages = |message, field| {
        WireFields::of(message).filter_map(move |(number, value)| match value {
            FieldValue::Bytes(bytes) if number == field => Some(bytes),
            _ => None,
        })
    };
    let mut found = HashMap::new();
    let Some(module) = messages(program, 1).next() else { return found };
    let frames = messages(module, 17).next().and_then(|frames| HloStackFrames::decode(frames).ok()).unwrap_or_default();
    for instruction in messages(module, 3).flat_map(|computation| messages(computation, 2)) {
        if let Ok(HloInstruction { name, metadata: Some(metadata) }) = HloInstruction::decode(instruction) {
            let source = source_of(&metadata, &frames);
            if !(metadata.op_name.is_empty() && source.is_empty()) {
                found.insert(name, (metadata.op_name, source));
            }
        }
    }
    found
}

/// The line of an instruction and the function it is in, as far as they are known.
fn source_of(metadata: &HloOpMetadata, frames: &HloStackFrames) -> String {
    fn counted<T>(list: &[T], number: i32) -> Option<&T> {
        list.get(usize::try_from(number).ok()?.checked_sub(1)?)
    }
    let location =
        counted(&frames.frames, metadata.stack_frame).and_then(|frame| counted(&frames.locations, frame.location));
    let file = location.and_then(|location| counted(&frames.files, location.file)).unwrap_or(&metadata.source_file);
    if file.is_empty() {
        return String::new();
    }
    let line = location.map_or(metadata.source_line, |location| location.line);
    let mut source = format!("{}:{line}", file_name(file));
    if let Some(function) = location.and_then(|location| counted(&frames.functions, location.function)) {
        let _ = write!(source, " {function}");
    }
    if source.len() > LONGEST_SOURCE { String::new() } else { source }
}

/// A file without the folders it is in.
fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Where an event comes from, and the phase of the training that tells.
pub(super) fn origin_of(
    event: &TimedEvent<'_>,
    module: Option<&str>,
    programs: &Programs,
) -> (Option<String>, Option<Phase>) {
    let instruction = event.text(StatName::HloOp);
    let compiled = event
        .whole(StatName::Program)
        .zip(instruction.as_deref())
        .and_then(|(program, instruction)| programs.instruction(program, instruction));
    // Of what no framework's operation is known, XLA says only that it is in some module.
    let is_path = |path: &String| !path.starts_with("XlaModule") && !path.starts_with("Thunk");
    let path = event.text(StatName::OpName).or_else(|| event.text(StatName::FrameworkOp).filter(is_path));
    let path = path.or_else(|| compiled.map(|(path, _)| path.clone())).unwrap_or_default();
    let path = without_type(&path);
    let (place, operation) = split_path(path);
    let own_module = event.text(StatName::HloModule);
    let source = event.text(StatName::Source).map(|source| file_name(&source).to_owned());
    let source = source.or_else(|| compiled.map(|(_, source)| source.clone()));
    let origin = Origin {
        operator: if_any(operation).or(instruction.as_deref()).or(if_any(path).filter(|_| place.is_empty())),
        shapes: None,
        module: if_any(place).or(own_module.as_deref()).or(module),
        source: source.as_deref().and_then(if_any),
    };
    ((origin != Origin::default()).then(|| origin.text()), phase_of(path))
}

fn if_any(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// TensorFlow adds the type of an operation to its path: `model/dense/MatMul:MatMul`.
fn without_type(path: &str) -> &str {
    path.rsplit_once(':').filter(|(_, kind)| !kind.contains(['/', ')'])).map_or(path, |(path, _)| path)
}

/// The place and the operation of a path. Slashes inside of parentheses do not part them. What has parentheses at its end is a
/// place, and what has no place is the name of a parameter.
fn split_path(path: &str) -> (&str, &str) {
    let mut depth = 0_i32;
    for (at, letter) in path.char_indices().rev() {
        match letter {
            ')' if at + 1 == path.len() => return (path, ""),
            ')' => depth += 1,
            '(' => depth -= 1,
            '/' if depth <= 0 => return (&path[..at], &path[at + 1..]),
            _ => {}
        }
    }
    ("", "")
}

/// The phase that JAX's own words tell: `jvp` is the forward pass of what is differentiated, its `transpose` the backward pass,
/// and what is computed again there has a word of its own.
fn phase_of(path: &str) -> Option<Phase> {
    match () {
        () if path.contains("rematted_computation") => Some(Phase::Recompute),
        () if path.contains("transpose(") => Some(Phase::Backward),
        () if path.contains("jvp(") => Some(Phase::Forward),
        () => None,
    }
}

/// The communication that an instruction of this name is: `all-reduce-start.3`.
pub(super) fn communication_of(instruction: &str) -> Option<SpanKind> {
    const COLLECTIVES: [(&str, SpanKind); 9] = [
        ("all-reduce", SpanKind::AllReduce),
        ("all-gather", SpanKind::AllGather),
        ("reduce-scatter", SpanKind::ReduceScatter),
        ("all-to-all", SpanKind::AllToAll),
        ("ragged-all-to-all", SpanKind::AllToAll),
        ("collective-broadcast", SpanKind::Broadcast),
        ("collective-permute", SpanKind::Communication),
        ("send", SpanKind::Send),
        ("recv", SpanKind::Receive),
    ];
    let word = word_of(instruction);
    COLLECTIVES.iter().find(|(collective, _)| *collective == word).map(|(_, kind)| *kind)
}

/// Whether an instruction of this name only moves data: `copy-done.4`.
pub(super) fn is_copy(instruction: &str) -> bool {
    matches!(word_of(instruction), "copy" | "infeed" | "outfeed" | "host-transfer")
}

/// What an instruction does: its name without its number, and without which end of it this is.
fn word_of(instruction: &str) -> &str {
    let word = instruction.trim_start_matches('%');
    let word = word.split(['.', ' ', '_']).next().unwrap_or(word);
    word.strip_suffix("-start").or_else(|| word.strip_suffix("-done")).unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_jax() {
        assert_eq!(split_path("jit(f)/jvp(Model/block)/dot_general"), ("jit(f)/jvp(Model/block)", "dot_general"));
        assert_eq!(split_path("jit(f)/transpose(jvp(a/b))"), ("jit(f)/transpose(jvp(a/b))", ""));
        assert_eq!(split_path("kernel"), ("", ""));
        assert_eq!(without_type("model/dense/MatMul:MatMul"), "model/dense/MatMul");
        assert_eq!(without_type("jit(f)/add:"), "jit(f)/add");
        assert_eq!(without_type("jit(f:g)/add"), "jit(f:g)/add");
        assert_eq!(split_path(")))/((("), (")))", "((("));
        assert_eq!(phase_of("jit(f)/jvp(M)/add"), Some(Phase::Forward));
        assert_eq!(phase_of("jit(f)/transpose(jvp(M))/add"), Some(Phase::Backward));
        assert_eq!(phase_of("jit(f)/transpose(jvp(M))/rematted_computation/add"), Some(Phase::Recompute));
        assert_eq!(phase_of("jit(f)/adam/mul"), None);
    }

    #[test]
    fn instructions_that_communicate() {
        assert_eq!(communication_of("all-reduce-start.3"), Some(SpanKind::AllReduce));
        assert_eq!(communication_of("%all-gather-done"), Some(SpanKind::AllGather));
        assert_eq!(communication_of("collective-permute.12"), Some(SpanKind::Communication));
        assert_eq!(communication_of("all-reduce-fusion"), None);
        assert_eq!(communication_of("sender.1"), None);
        assert!(is_copy("copy-start.1") && is_copy("copy.7") && !is_copy("copy-fusion.1"));
    }
}
