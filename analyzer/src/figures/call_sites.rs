//! Who asked for memory.

use std::collections::BTreeMap;

use serde::Serialize;
use stepscope_traces::MemoryCategory;

use super::memory_point::MemoryPoint;
use crate::stored::fields;

/// Who asked for some memory, and what for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallSite {
    /// What it is for.
    pub category: MemoryCategory,
    /// How many blocks there are.
    pub blocks: u64,
    /// How large they are together.
    pub bytes: u64,
    /// The calls, the innermost first; none where they are not known.
    pub stack: Vec<String>,
}

fields!(CallSite { category, blocks, bytes, stack });

/// What one line of the program asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerMemory<'a> {
    /// The innermost call that is not of PyTorch; none where no calls are known.
    pub caller: Option<&'a str>,
    /// What it is for.
    pub category: MemoryCategory,
    /// How many blocks there are.
    pub blocks: u64,
    /// How large they are together.
    pub bytes: u64,
}

impl CallerMemory<'_> {
    /// What each line of the program asked for, the most first.
    pub fn of(sites: &[CallSite]) -> Vec<CallerMemory<'_>> {
        let mut sums: BTreeMap<(Option<&str>, MemoryCategory), (u64, u64)> = BTreeMap::new();
        for site in sites {
            let (blocks, bytes) = sums.entry((caller(&site.stack), site.category)).or_default();
            *blocks += site.blocks;
            *bytes += site.bytes;
        }
        let memory = |((caller, category), (blocks, bytes))| CallerMemory { caller, category, blocks, bytes };
        let mut callers: Vec<_> = sums.into_iter().map(memory).collect();
        callers.sort_by_key(|memory| std::cmp::Reverse(memory.bytes));
        callers
    }
}

/// The innermost call of a stack that is the program's own, and not one of PyTorch or Python.
pub(crate) fn caller(stack: &[String]) -> Option<&str> {
    let own = stack.iter().find(|call| !is_of_libraries(call));
    own.or(stack.first()).map(String::as_str)
}

/// Whether a call is one of PyTorch or Python, and not the program's own.
pub(super) fn is_of_libraries(call: &str) -> bool {
    ["torch/", "<frozen", "<string>", "<eval_with_key>"].iter().any(|begin| call.starts_with(begin))
        || call.contains("/lib/python3")
}

/// What the lines of the program that ask for most had allocated over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallersOverTime {
    /// Those that had most at once, whenever that was, the most first: [`CallersOverTime::MOST`] at most.
    pub callers: Vec<CallerInTime>,
    /// What each of them had, then nothing for those that are not there, then all others together; thinned out without
    /// losing peaks.
    pub points: Vec<MemoryPoint<{ CallersOverTime::MOST + 1 }>>,
}

fields!(CallersOverTime { callers, points });

impl CallersOverTime {
    /// How many callers are told apart.
    pub const MOST: usize = 9;
}

/// A line of the program that asks for memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallerInTime {
    /// The innermost call that is not of PyTorch; none where no calls are known.
    pub caller: Option<String>,
    /// What it is for.
    pub category: MemoryCategory,
}

fields!(CallerInTime { caller, category });
