//! Remembers how objects of one kind are laid out, so that their keys need not be read again and again.
//!
//! A profiler writes the same keys in the same order with the same spaces between them. What stood before a value last time
//! most likely stands there again, and comparing it takes a third of the time that it takes to find a key and to look up what
//! it means. Where something else stands, it is read as in any object, and remembered.

use super::cursor::{Cursor, NextKey};

/// So many keys are remembered. Kineto's kernels have about thirty.
const MOST_FIELDS: usize = 64;
/// Longer ones are not.
const LONGEST: usize = 64;

/// How objects of one kind are laid out. `M` is what a key means.
#[derive(Debug)]
pub(super) struct Layout<M> {
    fields: Vec<LaidOutField<M>>,
    /// Which field was the first of the last object.
    first: Option<usize>,
}

#[derive(Debug)]
struct LaidOutField<M> {
    /// All that stands before its value, from the end of the value before it or the beginning of the object on.
    before: Box<str>,
    meaning: M,
    /// Which field followed last time.
    next: Option<usize>,
}

impl<M> Default for Layout<M> {
    fn default() -> Self {
        Layout { fields: Vec::new(), first: None }
    }
}

impl<M: Copy> Layout<M> {
    /// Goes over an object, from its first brace to behind its last: `means` looks up what a key means, and `field` goes behind
    /// its value.
    #[inline(always)]
    pub(super) fn fields<'a>(
        &mut self,
        cursor: &mut Cursor<'a>,
        means: impl Fn(&str) -> M,
        mut field: impl FnMut(&mut Cursor<'a>, M) -> Option<()>,
    ) -> Option<()> {
        let (mut last, mut expected) = (None, self.first);
        let mut is_first = true;
        loop {
            let begin = cursor.at();
            let known = expected.map(|index| (index, &self.fields[index]));
            let meaning = match known.filter(|(_, known)| cursor.passes_key(&known.before)) {
                Some((index, known)) => {
                    (last, expected) = (Some(index), known.next);
                    known.meaning
                }
                None => {
                    let NextKey::Key(key) = (if is_first { cursor.first_key()? } else { cursor.next_key()? }) else {
                        return Some(());
                    };
                    let meaning = means(key);
                    last = self.remember(last, is_first, cursor.since(begin), meaning);
                    expected = last.and_then(|last| self.fields[last].next);
                    meaning
                }
            };
            is_first = false;
            field(cursor, meaning)?;
        }
    }

    /// Remembers what stands before a value, behind which other one or at the beginning; says which field it is.
    fn remember(&mut self, last: Option<usize>, is_first: bool, before: &str, meaning: M) -> Option<usize> {
        let known = self.fields.iter().position(|field| *field.before == *before);
        let is_kept = known.is_some() || self.fields.len() < MOST_FIELDS && before.len() <= LONGEST;
        let index = known.unwrap_or(self.fields.len());
        if !is_kept {
            return None;
        }
        if known.is_none() {
            self.fields.push(LaidOutField { before: before.into(), meaning, next: None });
        }
        if is_first {
            self.first = Some(index);
        }
        if let Some(last) = last {
            self.fields[last].next = Some(index);
        }
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The fields of an object by a layout that saw others before, if it can be read.
    fn fields<'a>(layout: &mut Layout<Option<char>>, text: &'a str) -> Option<Vec<(Option<char>, &'a str)>> {
        let mut fields = Vec::new();
        layout.fields(
            &mut Cursor::new(text),
            |key| key.chars().next(),
            |cursor, meaning| {
                fields.push((meaning, cursor.written_value()?));
                Some(())
            },
        )?;
        Some(fields)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_was_seen_before_changes_nothing(
            texts in prop::collection::vec("\\{ ?(\"[ab]{0,2}\": ?[12],  ?){0,3}(\"c\": \\[1\\])? ?\\}?", 1..12),
        ) {
            let mut layout = Layout::default();
            for text in &texts {
                prop_assert_eq!(fields(&mut layout, text), fields(&mut Layout::default(), text));
            }
        }
    }

    #[test]
    fn keys_without_end_are_not_remembered() {
        let mut layout = Layout::default();
        for number in 0..2 * MOST_FIELDS {
            let text = format!("{{\"{number}\": 1, \"{}\": 2}}", "x".repeat(LONGEST));
            assert_eq!(fields(&mut layout, &text).unwrap().len(), 2);
        }
        assert_eq!(layout.fields.len(), MOST_FIELDS);
    }
}
