//! Tables of memory: what fills it, on which rank, and who asked for it.

use std::collections::{BTreeMap, BTreeSet};

use stepscope_analyzer::{Analysis, CallerMemory, RankMemory};
use stepscope_plan::text;
use stepscope_traces::MemoryCategory;

use super::report::{fullest, is_told_apart, moment};
use crate::render::table::{Table, Topic, known, unknown};

pub(super) fn by_category(analysis: &Analysis) -> Table {
    let told_apart = analysis.memory.iter().rev().filter(|memory| is_told_apart(memory));
    let fullest = told_apart.max_by_key(|memory| memory.peak_bytes);
    let title = fullest.map_or_else(String::new, |memory| {
        let inferred = if memory.inferred { " (categories inferred)" } else { "" };
        format!("Memory at {} of rank {}{inferred}", moment(memory), memory.rank)
    });
    let mut headers = vec!["category", ">at peak", ">share", ">predicted", ">at end"];
    let mut rows = fullest.map_or_else(Vec::new, category_rows);
    if fullest.is_some_and(|memory| memory.one_moment) {
        // The peak is not known, and the end is what stands in its place.
        headers[1] = ">at end";
        rows.iter_mut().for_each(|row| row[4] = unknown());
    }
    Table { topic: Topic::Memory, title, headers, rows, detail: false }
}

fn category_rows(memory: &RankMemory) -> Vec<Vec<String>> {
    let planned = memory.predicted.as_ref().map(|plan| (plan.categories(), plan.total()));
    let share = |bytes: u64| text::percent(bytes as f64 / memory.peak_bytes.max(1) as f64);
    let rows = MemoryCategory::ALL.iter().filter_map(|category| {
        let at = |bytes: &BTreeMap<MemoryCategory, u64>| bytes.get(category).copied().unwrap_or(0);
        let of_plan = planned.and_then(|(plan, _)| plan.into_iter().find(|(name, _)| *name == category.word()));
        let of_plan = of_plan.map(|(_, bytes)| bytes);
        let (at_peak, at_end) = (at(&memory.at_peak), at(&memory.at_end));
        (at_peak + at_end + of_plan.unwrap_or(0) > 0).then(|| {
            let name = category.spelled();
            vec![name, text::bytes(at_peak), share(at_peak), known(of_plan, text::bytes), text::bytes(at_end)]
        })
    });
    let all = memory.at_end.values().sum();
    let total = known(planned.map(|(_, total)| total), text::bytes);
    let sum = vec!["total".into(), text::bytes(memory.peak_bytes), share(memory.peak_bytes), total, text::bytes(all)];
    let mut rows: Vec<Vec<String>> = rows.chain([sum]).collect();
    let mut add = |name: &str, bytes: String| rows.push(vec![name.into(), bytes, unknown(), unknown(), unknown()]);
    match (&memory.ledger, memory.fragmentation_bytes) {
        (Some(ledger), _) => {
            for (name, bytes) in ledger.lines() {
                let sign = if bytes < 0 { "-" } else { "" };
                add(&format!("+ {name}"), format!("{sign}{}", text::bytes(bytes.unsigned_abs())));
            }
            add("= used on the device", text::bytes(ledger.device_used_bytes));
        }
        (None, Some(fragmentation)) => add("+ fragmentation", text::bytes(fragmentation)),
        (None, None) => {}
    }
    rows
}

pub(super) fn by_rank(analysis: &Analysis, most: usize) -> Table {
    let row = |memory: &RankMemory| {
        let growth = memory.growth_bytes_per_step.map(|growth| {
            let sign = if growth < 0.0 { "-" } else { "" };
            format!("{sign}{}", text::bytes(growth.abs() as u64))
        });
        vec![
            memory.rank.to_string(),
            known(Some(memory.peak_bytes).filter(|_| !memory.one_moment), text::bytes),
            known(memory.peak_step, |step| step.to_string()),
            known(memory.peak_phase, |phase| phase.word().into()),
            known(memory.predicted.as_ref(), |plan| text::bytes(plan.total())),
            text::bytes(memory.at_end.values().sum()),
            known(memory.reserved_peak_bytes, text::bytes),
            known(growth, |growth| growth),
        ]
    };
    let mut fullest: Vec<&RankMemory> = analysis.memory.iter().collect();
    fullest.sort_by_key(|memory| (std::cmp::Reverse(memory.peak_bytes), memory.rank));
    let left_out = fullest.len().saturating_sub(most);
    let title = match left_out {
        0 => "Memory by rank, fullest first".into(),
        _ => format!("Memory of the {most} fullest of {} ranks", fullest.len()),
    };
    let rows = fullest.iter().take(most).map(|memory| row(memory)).collect();
    let headers = vec![">rank", ">peak", ">step", "phase", ">predicted", ">at end", ">reserved", ">growth/step"];
    Table { topic: Topic::Memory, title, headers, rows, detail: analysis.memory.len() == 1 }
}

pub(super) fn blocks(analysis: &Analysis) -> Table {
    let blocks = fullest(analysis).into_iter().flat_map(|memory| &memory.largest_at_peak);
    let rows = blocks.map(|block| {
        vec![
            text::bytes(block.bytes),
            block.category.spelled(),
            known(block.layer, |layer| layer.to_string()),
            known(block.phase, |phase| phase.word().into()),
            known(block.step, |step| step.to_string()),
        ]
    });
    let title = fullest(analysis)
        .map_or_else(String::new, |memory| format!("Largest blocks at {} of rank {}", moment(memory), memory.rank));
    let headers = vec![">size", "category", ">layer", "allocated in", ">step"];
    Table { topic: Topic::Memory, title, headers, rows: rows.collect(), detail: true }
}

/// The callers with most, and the first of every category; all others in one line, so that the bytes add up.
pub(super) fn callers(analysis: &Analysis) -> Table {
    const MOST: usize = 12;
    let fullest = fullest(analysis);
    let peak = fullest.map_or(0, |memory| memory.peak_bytes);
    let callers = fullest.map_or_else(Vec::new, |memory| CallerMemory::of(&memory.sites_at_peak));
    let mut seen = BTreeSet::new();
    let (told, left_out): (Vec<_>, Vec<_>) = callers.iter().enumerate().partition(|(place, memory)| {
        let is_first = seen.insert(memory.category);
        is_first || *place < MOST
    });
    let row = |bytes: u64, blocks: u64, category: String, caller: String| {
        vec![text::bytes(bytes), text::percent(bytes as f64 / peak as f64), category, text::count(blocks), caller]
    };
    let mut rows: Vec<Vec<String>> = told
        .into_iter()
        .map(|(_, memory)| {
            let caller = memory.caller.map_or_else(|| "(not recorded)".into(), text::printable);
            row(memory.bytes, memory.blocks, memory.category.spelled(), caller)
        })
        .collect();
    if !left_out.is_empty() {
        let sum = |of: fn(&CallerMemory<'_>) -> u64| left_out.iter().map(|(_, memory)| of(memory)).sum();
        let others = format!("({})", text::counted(left_out.len() as u64, "other caller"));
        rows.push(row(sum(|memory| memory.bytes), sum(|memory| memory.blocks), String::new(), others));
    }
    let title = fullest.map_or_else(String::new, |memory| {
        format!("Who asked for the memory at {} of rank {}", moment(memory), memory.rank)
    });
    let headers = vec![">size", ">share", "category", ">blocks", "asked for at"];
    Table { topic: Topic::Memory, title, headers, rows, detail: false }
}
