//! Options that are one of a few words.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use stepscope_plan::{ContextExchange, Convention, Precision, Recompute, Schedule, Zero};

/// Reads one of the words that `name` has for `all`.
pub(crate) fn one_of<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let words = all.iter().map(|value| name(*value));
    PossibleValuesParser::new(words).try_map(move |word| {
        let value = all.iter().copied().find(|value| name(*value) == word);
        value.ok_or_else(|| format!("unknown value `{word}`"))
    })
}

pub(crate) fn precision() -> impl TypedValueParser<Value = Precision> {
    one_of(&Precision::ALL, Precision::name)
}

/// Of those that are planned.
pub(crate) fn schedule() -> impl TypedValueParser<Value = Schedule> {
    one_of(&Schedule::ALL, Schedule::name)
}

/// Of those that the trainer has.
pub(crate) fn trained_schedule() -> impl TypedValueParser<Value = Schedule> {
    one_of(&Schedule::ONE_WAY, Schedule::name)
}

pub(crate) fn context_exchange() -> impl TypedValueParser<Value = ContextExchange> {
    one_of(&ContextExchange::ALL, ContextExchange::name)
}

pub(crate) fn recompute() -> impl TypedValueParser<Value = Recompute> {
    one_of(&Recompute::ALL, Recompute::name)
}

pub(crate) fn zero() -> impl TypedValueParser<Value = Zero> {
    one_of(&Zero::ALL, |zero| ["0", "1", "2", "3"][zero as usize])
}

pub(crate) fn convention() -> impl TypedValueParser<Value = Convention> {
    one_of(&Convention::ALL, Convention::name)
}
