//! What the name of a range says.

use std::borrow::Cow;

use stepscope_traces::{Phase, Step};

/// What the name of a range says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// It is a step, and perhaps which.
    Step(Option<Step>),
    /// It is a phase of a step.
    Phase(Phase),
    /// It has a name, and that is all.
    Range,
}

/// Words that a number makes a step.
const NUMBERED: [&str; 7] = ["profilerstep", "step", "train_step", "training_step", "iteration", "iter", "global_step"];
/// Words that are a step without a number. `step` alone is not among them: it may be the optimizer's.
const UNNUMBERED: [&str; 2] = ["train_step", "iteration"];

impl Meaning {
    /// Only what can hardly mean anything else is taken for more than a range.
    pub(crate) fn of(name: &str) -> Meaning {
        let name = name.trim();
        let word = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = name[word.len()..].parse::<i32>().ok();
        let word = word.trim_end_matches(['#', ':', '=', '_', '-', ' ']).to_ascii_lowercase().replace([' ', '-'], "_");
        match (number, word.as_str()) {
            (Some(number), word) if NUMBERED.contains(&word) => Meaning::Step(Some(Step(number))),
            (None, word) if UNNUMBERED.contains(&word) => Meaning::Step(None),
            (None, "forward") => Meaning::Phase(Phase::Forward),
            (None, "backward") => Meaning::Phase(Phase::Backward),
            (None, "optimizer" | "optimizer_step" | "optimizer.step") => Meaning::Phase(Phase::Optimizer),
            _ => Meaning::Range,
        }
    }
}

/// A name as it is recorded. PyTorch numbers the operations that it names, which would make each name another one.
pub(crate) fn recorded(name: &str) -> Cow<'_, str> {
    let numbered = [", seq = ", ", op_id = ", ", sizes = "].into_iter().filter_map(|mark| name.find(mark)).min();
    match numbered {
        Some(at) => Cow::Borrowed(&name[..at]),
        None if name.is_empty() => Cow::Borrowed("(unnamed)"),
        None => Cow::Borrowed(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::fuzz;

    #[test]
    fn steps_and_phases_are_told_by_their_names() {
        for (name, number) in [
            ("ProfilerStep#12", 12),
            ("step 3", 3),
            ("Step: 4", 4),
            ("step_0", 0),
            ("iteration 100", 100),
            ("Iter=7", 7),
            ("train step 5", 5),
            ("training_step 6", 6),
            (" global_step 8 ", 8),
        ] {
            assert_eq!(Meaning::of(name), Meaning::Step(Some(Step(number))), "{name}");
        }
        assert_eq!(Meaning::of("train_step"), Meaning::Step(None));
        assert_eq!(Meaning::of("Iteration"), Meaning::Step(None));
        assert_eq!(Meaning::of("forward"), Meaning::Phase(Phase::Forward));
        assert_eq!(Meaning::of("Backward"), Meaning::Phase(Phase::Backward));
        assert_eq!(Meaning::of("optimizer.step"), Meaning::Phase(Phase::Optimizer));
        for name in [
            "step",
            "stepping 3",
            "Optimizer.step#AdamW.step",
            "layer 3",
            "forward 2",
            "5",
            "",
            "step 99999999999",
            "step -1 of 2",
            "aten::add, op_id = 3",
            "ncclAllReduce",
            "größe 3",
            "step ٣",
        ] {
            assert_eq!(Meaning::of(name), Meaning::Range, "{name}");
        }
    }

    /// Programs give ranges any name.
    #[test]
    fn fuzzed_names() {
        let seeds =
            ["ProfilerStep#12", "aten::mm, seq = 7, op_id = 7, sizes = [[4, 8], [8, 4]]", "optimizer.step", "Größe 9"];
        fuzz!(seeds.map(|seed| seed.as_bytes().to_vec()).to_vec(), |bytes: &[u8]| {
            let name = String::from_utf8_lossy(bytes);
            let recorded = recorded(&name);
            assert!(!recorded.is_empty() || name.starts_with(", "));
            matches!(Meaning::of(&name), Meaning::Step(_) | Meaning::Phase(_) | Meaning::Range)
        });
    }

    #[test]
    fn what_is_numbered_has_one_name() {
        assert_eq!(recorded("aten::mm, seq = 17, sizes = [[2, 3]], op_id = 5"), "aten::mm");
        assert_eq!(recorded("aten::mm, op_id = 5"), "aten::mm");
        assert_eq!(recorded("layer 3"), "layer 3");
        assert_eq!(recorded(""), "(unnamed)");
    }
}
