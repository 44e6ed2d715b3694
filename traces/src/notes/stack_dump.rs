//! Where the threads of a program were, when somebody asked since it made no more steps.

use serde::{Deserialize, Serialize};

use super::field::values_while_any;
use crate::{call_text::call_text, ids::Nanos, vocabulary::Phase};

/// Where the threads of a rank's process were.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackDump {
    /// When that was asked, in nanoseconds since 1970, by the clock of whoever asked.
    pub asked_ns: Nanos,
    /// Its threads that run Python, the main one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub python: Vec<PythonThread>,
    /// Why there are no stacks of Python, if there should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_python: Option<String>,
    /// All of its threads, as the system sees them; those that are alike are one.
    pub native: Vec<NativeThread>,
    /// What it does instead of training: evaluation, or a checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aside: Option<Phase>,
}

/// A thread that runs Python.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PythonThread {
    /// What the program calls it.
    pub name: String,
    /// Its calls, the innermost first.
    pub calls: Vec<String>,
}

impl PythonThread {
    /// By its calls, each a function, its file and line.
    pub fn new<'a>(name: &str, calls: impl IntoIterator<Item = (&'a str, &'a str, u64)>) -> PythonThread {
        let calls = calls.into_iter().map(|(function, file, line)| call_text(function, file, Some(line)));
        PythonThread { name: name.to_owned(), calls: calls.collect() }
    }
}

/// Threads of one name that do the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NativeThread {
    /// What the system calls it.
    pub name: String,
    /// What it does: `runs`, or what it waits in.
    pub does: String,
    /// How many there are.
    pub count: u64,
}

values_while_any!(StackDump);
