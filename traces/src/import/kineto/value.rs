//! A value of an event. Nearly all are numbers, which are read while their end is looked for; the rest is left as it stands.

use std::{borrow::Cow, str::FromStr};

use serde::Deserialize;

use super::digits::number_of_digits;

/// A value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TraceValue<'a> {
    /// Digits alone: the number that they are.
    Digits(u64),
    /// Anything else, as it stands in the trace.
    Other(&'a str),
}

impl<'a> TraceValue<'a> {
    /// The value of a text.
    pub(super) fn of(text: &'a str) -> TraceValue<'a> {
        number_of_digits(text.as_bytes()).map_or(TraceValue::Other(text), TraceValue::Digits)
    }

    /// How it is written.
    pub(super) fn written(self) -> Cow<'a, str> {
        match self {
            TraceValue::Digits(number) => number.to_string().into(),
            TraceValue::Other(text) => text.into(),
        }
    }
}

/// A whole number, if this is one that fits.
#[inline]
pub(super) fn number<T: FromStr + TryFrom<u64>>(value: Option<TraceValue<'_>>) -> Option<T> {
    match value? {
        TraceValue::Digits(number) => T::try_from(number).ok(),
        TraceValue::Other(text) => any_number(text),
    }
}

/// A number, if this is one that fits. Tools that save a trace again may write it as a text, or with a decimal that is 0.
pub(super) fn any_number<T: FromStr>(value: &str) -> Option<T> {
    let again = |value: &str| value.strip_suffix(".0").unwrap_or(value).parse().ok();
    value.parse().ok().or_else(|| again(unquoted(value)))
}

/// What stands between quotation marks, if there are any.
pub(super) fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value)
}

/// A text, if this is one.
pub(super) fn text(value: Option<TraceValue<'_>>) -> Option<Cow<'_, str>> {
    match value? {
        TraceValue::Digits(_) => None,
        TraceValue::Other(text) => serde_json::from_str::<Text<'_>>(text).ok().map(|text| text.0),
    }
}

/// A text that is borrowed where nothing in it is escaped.
#[derive(Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_that_fit() {
        let of = |text| Some(TraceValue::of(text));
        for (written, expected) in [
            ("7", Some(7)),
            ("\"7\"", Some(7)),
            ("7.0", Some(7)),
            ("4294967296", None),
            ("99999999999999999999", None),
            ("-7", None),
            ("7.5", None),
            ("[7]", None),
        ] {
            assert_eq!(number::<u32>(of(written)), expected, "{written}");
            assert_eq!(TraceValue::of(written).written(), written);
        }
        assert_eq!(number(of("18446744073709551615")), Some(u64::MAX));
        assert_eq!(number(of("-7")), Some(-7_i64));
        assert_eq!(text(of("\"a\\nb\"")).unwrap(), "a\nb");
        assert_eq!((text(of("7")), text(of("null"))), (None, None));
    }
}
