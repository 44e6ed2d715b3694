//! The rules of `catalogue.txt`, whose head says how they are written.

use std::sync::LazyLock;

use super::{
    Family,
    name::{KernelName, NameWords},
    words::Pattern,
};

const CATALOGUE: &str = include_str!("catalogue.txt");

/// All rules, in order: the first one that matches a name counts.
pub(super) static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| rules().collect());

/// What names of a kind look like.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) family: Family,
    pub(super) library: Option<&'static str>,
    /// All of them must hold.
    conditions: Vec<Condition>,
    /// Names that it is the rule of.
    #[cfg(test)]
    pub(super) examples: Vec<&'static str>,
}

/// One of several must hold.
#[derive(Debug)]
enum Condition {
    Function(Vec<Pattern>),
    Arguments(Vec<Pattern>),
    Namespace(Vec<&'static str>),
}

impl Rule {
    pub(super) fn matches(&self, name: &KernelName<'_>, words: &NameWords) -> bool {
        self.conditions.iter().all(|condition| match condition {
            Condition::Function(patterns) => patterns.iter().any(|pattern| pattern.is_in(&words.function)),
            Condition::Arguments(patterns) => patterns.iter().any(|pattern| pattern.is_in(&words.arguments)),
            Condition::Namespace(all) => all.iter().any(|namespace| name.is_in(namespace)),
        })
    }

    /// The rule of a line; none, where it is written wrong, which a test would notice.
    fn of(library: Option<&'static str>, line: &'static str) -> Option<Rule> {
        let (family, conditions) = line.split_once(' ')?;
        let patterns = |list: &str| list.split('|').map(Pattern::of).collect();
        let condition = |word: &'static str| match word.split_once('=') {
            Some(("in", list)) => Condition::Namespace(list.split('|').collect()),
            Some(("of", list)) => Condition::Arguments(patterns(list)),
            _ => Condition::Function(patterns(word)),
        };
        Some(Rule {
            family: Family::of_word(family)?,
            library,
            conditions: conditions.split_whitespace().map(condition).collect(),
            #[cfg(test)]
            examples: Vec::new(),
        })
    }
}

fn rules() -> impl Iterator<Item = Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    let mut library = None;
    for line in CATALOGUE.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            library = Some(name).filter(|name| *name != "any");
        } else if let Some(_example) = line.strip_prefix("= ") {
            #[cfg(test)]
            if let Some(rule) = rules.last_mut() {
                rule.examples.push(_example);
            }
        } else {
            rules.extend(Rule::of(library, line));
        }
    }
    rules.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_rule() {
        let is_rule = |line: &&str| line.starts_with(|letter: char| letter.is_ascii_lowercase());
        assert_eq!(RULES.len(), CATALOGUE.lines().filter(is_rule).count());
    }

    /// A rule that another one always comes before would be dead.
    #[test]
    fn every_rule_is_the_one_of_its_examples() {
        let mut wrong = Vec::new();
        for (index, rule) in RULES.iter().enumerate() {
            assert!(!rule.examples.is_empty(), "{rule:?} has no example");
            for example in &rule.examples {
                let name = KernelName::of(example);
                let found = RULES.iter().position(|rule| rule.matches(&name, &name.words()));
                if found != Some(index) {
                    wrong.push(format!(
                        "{example}: {:?}",
                        found.map(|found| (&RULES[found].family, &RULES[found].conditions))
                    ));
                }
            }
        }
        assert!(wrong.is_empty(), "examples are taken by other rules:\n{}", wrong.join("\n"));
    }
}
