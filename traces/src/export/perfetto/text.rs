//! Texts of a run, so that any of them does no harm in a trace.

use std::borrow::Cow;

/// How many characters of a text there are at most: templates of C++ have names of many thousands.
const LONGEST: usize = 512;

/// A text without control characters, with its middle left out where it is long.
pub(super) fn clean(text: &str) -> Cow<'_, str> {
    let is_short = text.len() <= LONGEST || text.chars().nth(LONGEST).is_none();
    if is_short && !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let harmless = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    if is_short {
        return Cow::Owned(text.chars().map(harmless).collect());
    }
    let half = LONGEST / 2;
    let head = text.chars().take(half - 1);
    let tail: Vec<char> = text.chars().rev().take(half).collect();
    Cow::Owned(head.chain(['…']).chain(tail.into_iter().rev()).map(harmless).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_are_short_and_plain() {
        assert!(matches!(clean("void gemm<float>"), Cow::Borrowed("void gemm<float>")));
        assert_eq!(clean("a\u{1b}[31m\0b\n"), "a\u{fffd}[31m\u{fffd}b\u{fffd}");
        let long = format!("begin{}end", "é".repeat(1_000_000));
        let cleaned = clean(&long);
        assert_eq!(cleaned.chars().count(), LONGEST);
        assert!(cleaned.starts_with("beginé") && cleaned.ends_with("éend") && cleaned.contains('…'));
    }

    proptest! {
        #[test]
        fn any_text_is_cleaned_once(text in "\\PC*[\\x00-\\x1f]*\\PC{0,700}") {
            let once = clean(&text).into_owned();
            prop_assert!(!once.contains(char::is_control) && once.chars().count() <= LONGEST);
            prop_assert_eq!(clean(&once).into_owned(), once.clone());
        }
    }
}
