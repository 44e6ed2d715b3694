//! What people call the steps of a training when they name ranges themselves: `step_3`, `Iteration 12`, `train_step`.

use crate::ids::Step;

/// What a range is called that may be a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepName {
    /// What all steps of this kind are called: the words without the number.
    pub(crate) words: String,
    /// Its number, if the name has one.
    pub(crate) number: Option<Step>,
}

impl StepName {
    /// The step that a name tells of. It says nothing but that: other words may make it a part of a step, or many steps.
    pub(crate) fn of(name: &str) -> Option<StepName> {
        let (mut words, mut number, mut is_step) = (String::new(), None, false);
        for word in pieces(name) {
            if word.starts_with(|letter: char| letter.is_ascii_digit()) {
                if number.replace(word.parse().ok().map(Step)?).is_some() {
                    return None;
                }
                continue;
            }
            let word = word.to_ascii_lowercase();
            match word.as_str() {
                "step" | "iteration" | "iter" | "profilerstep" => is_step = true,
                "train" | "training" | "global" => {}
                _ => return None,
            }
            words.push_str(&word);
            words.push(' ');
        }
        is_step.then_some(StepName { words, number })
    }

    /// Whether PyTorch's profiler itself counts these.
    pub(crate) fn is_of_profiler(&self) -> bool {
        self.words == "profilerstep "
    }
}

/// The words and the numbers of a name: `step3` has two.
fn pieces(name: &str) -> impl Iterator<Item = &str> {
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric());
    let both = words.flat_map(|word| {
        let (letters, digits) = word.split_at(word.find(|letter: char| letter.is_ascii_digit()).unwrap_or(word.len()));
        [letters, digits]
    });
    both.filter(|piece| !piece.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_people_give_to_steps() {
        for (name, words, number) in [
            ("step_3", "step ", Some(3)),
            ("step 3", "step ", Some(3)),
            ("Step: 3", "step ", Some(3)),
            ("step3", "step ", Some(3)),
            ("step-003", "step ", Some(3)),
            ("iteration 3", "iteration ", Some(3)),
            ("Iteration12", "iteration ", Some(12)),
            ("Iter 12", "iter ", Some(12)),
            ("iter=12", "iter ", Some(12)),
            ("train_step", "train step ", None),
            ("train_step_7", "train step ", Some(7)),
            ("## training step 7 ##", "training step ", Some(7)),
            ("global_step 100", "global step ", Some(100)),
            ("ProfilerStep#12", "profilerstep ", Some(12)),
            ("iteration", "iteration ", None),
        ] {
            let expected = StepName { words: words.into(), number: number.map(Step) };
            assert_eq!(StepName::of(name), Some(expected), "{name}");
        }
        for name in [
            "optimizer_step",
            "optimizer_step 3",
            "step 3 of 10",
            "step 3/10",
            "epoch 1 step 3",
            "warmup_step_3",
            "train",
            "training",
            "stepping",
            "3",
            "",
            "step 99999999999",
            "step -1.5",
            "step3b",
            "eval_step 3",
        ] {
            assert_eq!(StepName::of(name), None, "{name}");
        }
    }
}
