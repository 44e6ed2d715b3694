//! What an operator says of itself besides its name and its times.
//!
//! Operators are half of what is read, so only what is new in one is looked at: what it is given is the same text again and
//! again.

use std::{collections::BTreeMap, num::NonZeroU32, ops::Range};

use memchr::{memchr_iter, memrchr};
use serde_json::value::RawValue;

use super::{
    cursor::Cursor,
    layout::Layout,
    value::{TraceValue, number},
};

/// What an operator says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OperatorArguments<'a> {
    /// Its own number.
    pub(super) external: Option<u64>,
    /// The node of autograd's graph that it creates, or runs.
    pub(super) node: Option<u64>,
    /// The thread that created that node, of an operator that runs it.
    pub(super) forward_thread: Option<NonZeroU32>,
    /// What it is given, in the words of the trace: the same for all that are given the same.
    pub(super) given: &'a str,
}

/// What a key says of an operator.
#[derive(Clone, Copy, Debug)]
pub(super) enum OperatorKey {
    External,
    Node,
    ForwardThread,
    Other,
}

impl OperatorKey {
    fn named(key: &str) -> OperatorKey {
        match key {
            "External id" => OperatorKey::External,
            "Sequence number" => OperatorKey::Node,
            "Fwd thread id" => OperatorKey::ForwardThread,
            _ => OperatorKey::Other,
        }
    }
}

impl<'a> OperatorArguments<'a> {
    /// Reads plain ones without lists from a place on; none where they are anything else.
    #[inline(always)]
    pub(super) fn bare(cursor: &mut Cursor<'a>, layout: &mut Layout<OperatorKey>) -> Option<OperatorArguments<'a>> {
        let mut arguments = OperatorArguments::default();
        layout.fields(cursor, OperatorKey::named, |cursor, key| match cursor.byte()? {
            b'[' => None,
            _ => arguments.take_next(key, cursor),
        })?;
        Some(arguments)
    }

    /// Those of a text.
    pub(super) fn of(text: &'a str, layout: &mut Layout<OperatorKey>) -> OperatorArguments<'a> {
        OperatorArguments::plain(text, layout).unwrap_or_else(|| OperatorArguments::parsed(text))
    }

    /// Those of a plain text. What is given are lists, one behind the other.
    fn plain(text: &'a str, layout: &mut Layout<OperatorKey>) -> Option<OperatorArguments<'a>> {
        let mut arguments = OperatorArguments::default();
        let mut lists: Option<Range<usize>> = None;
        let mut stopped = false;
        let walked = layout.fields(&mut Cursor::new(text), OperatorKey::named, |cursor, key| {
            if cursor.byte()? == b'[' {
                let begin = lists.as_ref().map_or_else(|| cursor.field(), |lists| lists.start);
                if let Some(end) = end_of_lists(text, begin) {
                    lists = Some(begin..end);
                    stopped = true;
                    return None;
                }
                cursor.skip_array()?;
                lists = Some(begin..cursor.at());
                return Some(());
            }
            arguments.take_next(key, cursor)
        });
        arguments.given = lists.map_or("", |lists| &text[lists]);
        (stopped || walked.is_some()).then_some(arguments)
    }

    /// Those of any text.
    fn parsed(text: &'a str) -> OperatorArguments<'a> {
        let mut arguments = OperatorArguments::default();
        for (key, value) in serde_json::from_str::<BTreeMap<String, &RawValue>>(text).unwrap_or_default() {
            arguments.take(OperatorKey::named(&key), TraceValue::of(value.get()));
            arguments.given = text.trim_start_matches('{').trim_end_matches('}');
        }
        arguments
    }

    #[inline(always)]
    fn take_next(&mut self, key: OperatorKey, cursor: &mut Cursor<'a>) -> Option<()> {
        if let OperatorKey::Other = key {
            return cursor.skip_value();
        }
        self.take(key, cursor.value()?);
        Some(())
    }

    fn take(&mut self, key: OperatorKey, value: TraceValue<'_>) {
        match key {
            OperatorKey::External => self.external = number(Some(value)),
            OperatorKey::Node => self.node = number(Some(value)),
            OperatorKey::ForwardThread => self.forward_thread = number(Some(value)).and_then(NonZeroU32::new),
            OperatorKey::Other => {}
        }
    }
}

/// Where lists end that are all there is from `begin` on, but for the number which newer versions write last, and which is
/// another one each time.
fn end_of_lists(text: &str, begin: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let end = memrchr(b',', bytes).filter(|comma| *comma > begin && text[*comma..].starts_with(", \"Ev Idx\""))?;
    let is_list = |colon: usize| bytes[colon - 1] != b'"' || bytes[colon + 1..].starts_with(b" [");
    memchr_iter(b':', &bytes[begin..end]).all(|colon| is_list(begin + colon)).then_some(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::import::kineto::event::Arguments;

    #[test]
    fn what_an_operator_is_given_is_the_same_each_time() {
        let given = r#""Input type": ["float", "Scalar"], "Input Dims": [[8, 32], []]"#;
        for (text, external, node, forward_thread) in [
            (
                format!(r#"{{"External id": 9,"Sequence number": 4, "Fwd thread id": 1, {given}, "Ev Idx": 2}}"#),
                9,
                4,
                NonZeroU32::new(1),
            ),
            (
                format!(r#"{{"External id": 9, "Ev Idx": 5, {given}, "Fwd thread id": 0, "Sequence number": 4}}"#),
                9,
                4,
                None,
            ),
            (format!("{{\n      \"External id\": 9, \"Sequence number\": 4, {given}\n    }}"), 9, 4, None),
        ] {
            let expected = OperatorArguments { external: Some(external), node: Some(node), forward_thread, given };
            assert_eq!(OperatorArguments::of(&text, &mut Layout::default()), expected, "{text}");
        }
        for text in ["", "{}", "null", r#"{"Ev Idx": 2}"#, r#"{"#] {
            assert_eq!(OperatorArguments::of(text, &mut Layout::default()), OperatorArguments::default(), "{text}");
        }
        for text in [
            r#"{"Input Dims": [[8, 32]], "External id": 9, "Sequence number": 4, "Ev Idx": 2}"#,
            r#"{"External id": 9, "Sequence number": 4, "kw": {"a": 1}, "Input Dims": [[8, 32]]}"#,
            r#"{"External id": 9, "Trace name": "a\"b", "Sequence number": 4, "Input Dims": [[8, 32]], "Ev Idx": 2}"#,
            r#"{"External id": 9, "Sequence number": 4, "Concrete Inputs": ["{a}"], "Input Dims": [[8, 32]]}"#,
            r#"{"External id": 9, "Sequence number": 4, "Input Dims": [[8, 32]], "Ev Idx": [2]}"#,
            r#"{"External id": 9, "Sequence number": 4, "Input Dims": [[8, 32]], "Ev Idx": "x"}"#,
        ] {
            let arguments = OperatorArguments::of(text, &mut Layout::default());
            assert_eq!((arguments.external, arguments.node), (Some(9), Some(4)), "{text}");
            assert!(arguments.given.contains(r#""Input Dims": [[8, 32]]"#), "{text}");
            let whole = format!("{{{}}}", arguments.given);
            assert_eq!(
                Arguments::of(&whole).and_then(|given| given.dimensions()),
                Some(TraceValue::Other("[[8, 32]]")),
                "{text}"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn damaged_arguments_do_no_harm(place in any::<prop::sample::Index>(), more in "[\\[\\]{}\",: \\\\a1]{0,3}") {
            let mut text = "{\n      \"External id\": 9,\"Sequence number\": 4, \"Concrete Inputs\": [\"\", \"[2, 3]\"], \
                            \"Input type\": [\"float\"], \"Input Dims\": [[8, 32], []], \"Ev Idx\": 2\n    }".to_owned();
            text.insert_str(place.index(text.len()), &more);
            let arguments = OperatorArguments::of(&text, &mut Layout::default());
            prop_assert!(text.contains(arguments.given));
        }
    }
}
