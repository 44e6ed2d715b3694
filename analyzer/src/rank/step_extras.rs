//! What a step did, besides where its time goes: kernels by family, communication by operation.

use std::collections::BTreeMap;

use stepscope_traces::{Names, SpanKind, Spans, Step};

use crate::{
    figures::{Class, FamilyTime, StepCollectives},
    rank::{activity::Activities, family_times::FamilyTimes, reduce::partitions, step_windows::StepWindow},
};

/// What a step did.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepExtras {
    pub(crate) families: Vec<FamilyTime>,
    pub(crate) collectives: Vec<StepCollectives>,
}

impl StepExtras {
    /// Of each step that some spans of a rank are of.
    pub(super) fn of(
        activities: &Activities,
        steps: &[StepWindow],
        extents: &[(i64, i64)],
        spans: &[&Spans],
        names: &Names,
    ) -> BTreeMap<Step, StepExtras> {
        let mut extras = BTreeMap::<Step, StepExtras>::new();
        let (mut times, mut current) = (FamilyTimes::new(names), None);
        let mut end_step = |step: Option<usize>, times: &mut FamilyTimes<'_>| {
            let families = times.take();
            if let Some(step) = step.and_then(|step: usize| steps.get(step)) {
                extras.entry(step.step).or_default().families = families;
            }
        };
        partitions(activities, steps, extents, |step, slice| {
            if step != current {
                end_step(current, &mut times);
                current = step;
            }
            times.add(slice, activities);
        });
        end_step(current, &mut times);
        for (step, collectives) in collectives(spans) {
            extras.entry(step).or_default().collectives = collectives.into_values().collect();
        }
        extras
    }
}

fn collectives(spans: &[&Spans]) -> BTreeMap<Step, BTreeMap<SpanKind, StepCollectives>> {
    let mut of_steps = BTreeMap::<Step, BTreeMap<SpanKind, StepCollectives>>::new();
    for spans in spans {
        for row in 0..spans.len() {
            let operation = spans.kind.get(row);
            if Class::of(operation) != Some(Class::Communication) {
                continue;
            }
            let Some(step) = spans.step.get(row) else { continue };
            let sum = of_steps.entry(step).or_default().entry(operation);
            let sum = sum.or_insert(StepCollectives { operation, count: 0, bytes: 0, time_ns: 0 });
            sum.count += 1;
            sum.bytes = sum.bytes.saturating_add(spans.bytes.get(row).unwrap_or(0));
            sum.time_ns = sum.time_ns.saturating_add(spans.duration_ns.get(row).0);
        }
    }
    of_steps
}
