//! What would work in place of a layout that does not.

use crate::{
    layout::{ParallelLayout, Zero},
    shape::ModelShape,
};

/// So many values are named, those next to the one that does not work.
const MOST_NAMED: usize = 6;
/// No larger values are tried.
const LARGEST: u64 = 256;

/// A side of a layout: its option, its value, and a layout with another one.
type Side = (&'static str, fn(&ParallelLayout) -> u64, fn(ParallelLayout, u64) -> ParallelLayout);

const SIDES: [Side; 10] = [
    ("tp", |layout| layout.tp, |layout, tp| ParallelLayout { tp, ..layout }),
    ("ep", |layout| layout.ep, |layout, ep| ParallelLayout { ep, ..layout }),
    ("dp-replicate", |layout| layout.dp_replicate, |layout, dp_replicate| ParallelLayout { dp_replicate, ..layout }),
    ("cp", |layout| layout.cp, |layout, cp| ParallelLayout { cp, ..layout }),
    (
        "micro-batches",
        |layout| layout.micro_batches,
        |layout, micro_batches| ParallelLayout { micro_batches, ..layout },
    ),
    ("unit-layers", |layout| layout.unit_layers, |layout, unit_layers| ParallelLayout { unit_layers, ..layout }),
    ("pp", |layout| layout.pp, |layout, pp| ParallelLayout { pp, ..layout }),
    ("chunks", |layout| layout.chunks, |layout, chunks| ParallelLayout { chunks, ..layout }),
    ("dp", |layout| layout.dp, |layout, dp| ParallelLayout { dp, ..layout }),
    (
        "zero",
        |layout| u8::from(layout.zero).into(),
        // Where there is no such stage, the layout stays one that does not work.
        |layout, stage| match u8::try_from(stage).map(Zero::try_from) {
            Ok(Ok(zero)) => ParallelLayout { zero, ..layout },
            _ => layout,
        },
    ),
];

impl ParallelLayout {
    /// Values of one option with which this layout would work, if one is enough. Those that are set already come first, unless
    /// that would mean to do without.
    pub fn instead(&self, model: &ModelShape) -> Option<String> {
        let (set, others): (Vec<Side>, Vec<Side>) = SIDES.into_iter().partition(|(_, value, _)| value(self) > 1);
        // The last ones, replicas and what they share, are the easiest to change.
        let options = set.into_iter().chain(others.into_iter().rev()).map(|(option, value, with)| {
            let works = |value: &u64| with(*self, *value).check(model).is_ok();
            let mut values: Vec<u64> = (1..=LARGEST).filter(works).collect();
            values.sort_by_key(|other| other.abs_diff(value(self)));
            values.truncate(MOST_NAMED);
            values.sort_unstable();
            (option, values)
        });
        let options: Vec<(&str, Vec<u64>)> = options.filter(|(_, values)| !values.is_empty()).collect();
        let (option, values) = options.iter().find(|(_, values)| *values != [1]).or(options.first())?;
        said(option, &values.iter().map(u64::to_string).collect::<Vec<_>>())
    }
}

/// That an option could have one of some values, among others.
pub(crate) fn said(option: &str, values: &[String]) -> Option<String> {
    match values {
        [] => None,
        [only] => Some(format!("for example --{option} {only}")),
        [others @ .., last] => Some(format!("for example --{option} {} or {last}", others.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Schedule, Zero};

    #[test]
    fn values_near_the_one_that_does_not_work_are_named() {
        let model = |name| ModelShape::preset(name).unwrap();
        let base = ParallelLayout::default();
        for (model, layout, instead) in [
            (model("llama-8b"), ParallelLayout { tp: 3, ..base }, Some("for example --tp 1, 2, 4 or 8")),
            (model("llama-8b"), ParallelLayout { pp: 40, ..base }, Some("for example --pp 27, 28, 29, 30, 31 or 32")),
            (model("llama-8b"), ParallelLayout { dp: 4, ep: 2, ..base }, Some("for example --ep 1")),
            (model("tiny-moe"), ParallelLayout { dp: 6, ep: 3, ..base }, Some("for example --ep 1 or 2")),
            (model("tiny-moe"), ParallelLayout { ep: 2, ..base }, Some("for example --dp 2, 4, 6, 8, 10 or 12")),
            (
                model("llama-8b"),
                ParallelLayout { dp: 4, dp_replicate: 2, ..base },
                Some("for example --zero 1, 2 or 3"),
            ),
            (
                model("llama-8b"),
                ParallelLayout { dp: 2, dp_replicate: 2, ..base },
                Some("for example --dp-replicate 1"),
            ),
            (
                model("llama-8b"),
                ParallelLayout { pp: 4, chunks: 2, schedule: Schedule::Interleaved, micro_batches: 6, ..base },
                Some("for example --micro-batches 4, 8, 12, 16, 20 or 24"),
            ),
            (
                model("llama-8b"),
                ParallelLayout { dp: 4, dp_replicate: 3, zero: Zero::One, ..base },
                Some("for example --dp-replicate 1 or 2"),
            ),
            (model("gpt2-124m"), ParallelLayout { sequence_length: 4096, ..base }, None),
        ] {
            assert!(layout.check(&model).is_err());
            assert_eq!(layout.instead(&model).as_deref(), instead);
        }
    }
}
