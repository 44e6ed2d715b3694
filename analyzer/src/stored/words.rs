//! The types of other crates that figures are made of.

use stepscope_plan::{Axis, MemoryPlan};
use stepscope_traces::{
    Family, Group, Layer, Loss, MemoryCategory, MicroBatch, NameId, Names, Phase, Rank, Sequence, SpanKind, Step,
    Stream,
};

use super::{Damaged, Left, Stored, fields, inside, one_of};

inside!(Group(u32), Layer(i32), MicroBatch(i32), NameId(u32), Rank(u32), Sequence(u64), Step(i32), Stream(u32),);

one_of!(
    Axis: Axis::ALL,
    Family: Family::ALL,
    MemoryCategory: MemoryCategory::ALL,
    Phase: Phase::ALL,
    SpanKind: SpanKind::ALL,
);

fields!(Loss { dropped_events, unreadable_bytes, unreadable_events });
fields!(MemoryPlan { parameters, gradients, optimizer_state, activations, communication, workspace, inputs });

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
