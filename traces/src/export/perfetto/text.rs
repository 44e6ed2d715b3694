//! Texts of a run, so that any of them does no harm in a trace.

use std::borrow::Cow;

use stepscope_plan::text::{LONGEST_NAME, misleads, printable_name};

/// A text as it may be shown, with its middle left out where it is long.
pub(super) fn clean(text: &str) -> Cow<'_, str> {
    let is_short = text.len() <= LONGEST_NAME || text.chars().nth(LONGEST_NAME).is_none();
    if is_short && !text.contains(misleads) { Cow::Borrowed(text) } else { Cow::Owned(printable_name(text)) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_are_short_and_plain() {
        assert!(matches!(clean("void gemm<float>"), Cow::Borrowed("void gemm<float>")));
        assert_eq!(clean("a\u{1b}[31m\0b\n"), "a\u{fffd}[31m\u{fffd}b\u{fffd}");
        assert_eq!(clean("gemm\u{202e}\u{200b}"), "gemm\u{fffd}\u{fffd}");
        let long = format!("begin{}end", "é".repeat(1_000_000));
        let cleaned = clean(&long);
        assert_eq!(cleaned.chars().count(), LONGEST_NAME);
        assert!(cleaned.starts_with("beginé") && cleaned.ends_with("éend") && cleaned.contains('…'));
    }

    proptest! {
        #[test]
        fn any_text_is_cleaned_once(text in "\\PC*[\\x00-\\x1f\u{200b}\u{202e}]*\\PC{0,700}") {
            let once = clean(&text).into_owned();
            prop_assert!(!once.contains(misleads) && once.chars().count() <= LONGEST_NAME);
            prop_assert_eq!(clean(&once).into_owned(), once.clone());
        }
    }
}
