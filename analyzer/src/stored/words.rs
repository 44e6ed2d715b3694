//! The types of other crates that figures are made of, and words.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use stepscope_plan::{
    Axis, ContextExchange, Convention, MemoryPlan, NumberType, ParallelLayout, Precision, Recompute, Schedule, Zero,
};
use stepscope_traces::{
    Family, Group, Layer, Loss, MemoryCategory, MicroBatch, NameId, Names, OperationState, Phase, Rank, RunSource,
    Sequence, SpanKind, State, Step, Stream, Transposes,
};

use super::{Damaged, Left, Stored, fields, inside, one_of};

inside!(Group(u32), Layer(i32), MicroBatch(i32), NameId(u32), Rank(u32), Sequence(u64), Step(i32), Stream(u32),);

one_of!(
    Axis: Axis::ALL,
    ContextExchange: ContextExchange::ALL,
    Convention: Convention::ALL,
    Family: Family::ALL,
    MemoryCategory: MemoryCategory::ALL,
    NumberType: [
        NumberType::Fp64,
        NumberType::Fp32,
        NumberType::Tf32,
        NumberType::Fp16,
        NumberType::Bf16,
        NumberType::Fp8,
        NumberType::Fp4,
        NumberType::Int8,
    ],
    OperationState: [OperationState::Scheduled, OperationState::Started, OperationState::Completed],
    Phase: Phase::ALL,
    Precision: Precision::ALL,
    Recompute: Recompute::ALL,
    RunSource: [
        RunSource::Stepscope,
        RunSource::Kineto,
        RunSource::TorchSnapshot,
        RunSource::Nsys,
        RunSource::Xplane,
        RunSource::Rocprof,
        RunSource::FlightRecorder,
    ],
    Schedule: Schedule::ALL,
    SpanKind: SpanKind::ALL,
    State: [State::Complete, State::Recording, State::Interrupted],
    Transposes: [Transposes::Nn, Transposes::Nt, Transposes::Tn, Transposes::Tt],
    Zero: Zero::ALL,
);

fields!(ParallelLayout {
    dp,
    tp,
    sequence_parallel,
    cp,
    context,
    ep,
    pp,
    zero,
    dp_replicate,
    prefetch,
    unit_layers,
    schedule,
    chunks,
    micro_batch,
    micro_batches,
    sequence_length,
    recompute,
    precision,
    gradients,
});
fields!(Loss { dropped_events, unreadable_bytes, unreadable_events });
fields!(MemoryPlan { parameters, gradients, optimizer_state, activations, communication, workspace, inputs });

impl Stored for &'static str {
    fn put(values: &[&&'static str], into: &mut Vec<u8>) {
        let texts: Vec<String> = values.iter().map(|word| (**word).to_owned()).collect();
        Stored::put(&texts.iter().collect::<Vec<_>>(), into);
    }

    fn take(count: usize, from: &mut Left<'_>) -> Result<Vec<&'static str>, Damaged> {
        String::take(count, from)?.iter().map(|text| word(text).ok_or(Damaged)).collect()
    }
}

/// A word that the program itself knows: there are few, and each is kept once.
fn word(text: &str) -> Option<&'static str> {
    const LONGEST: usize = 64;
    const MOST: usize = 1024;
    static WORDS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(word) = words.get(text) {
        return Some(*word);
    }
    let word = (text.len() <= LONGEST && words.len() < MOST).then(|| &*text.to_owned().leak())?;
    words.insert(word);
    Some(word)
}

impl Stored for Names {
    fn put(values: &[&Names], into: &mut Vec<u8>) {
        let tables: Vec<Vec<(NameId, String)>> =
            values.iter().map(|names| names.iter().map(|(id, text)| (id, text.to_owned())).collect()).collect();
        Stored::put(&tables.iter().collect::<Vec<_>>(), into);
    }

    fn take(count: usize, from: &mut Left<'_>) -> Result<Vec<Names>, Damaged> {
        let names = |table: Vec<(NameId, String)>| {
            let mut names = Names::default();
            names.extend(table.iter().map(|(id, text)| (*id, text.as_str())));
            names
        };
        Ok(Stored::take(count, from)?.into_iter().map(names).collect())
    }
}
