//! A place in a JSON text without escapes, from which values are found and not looked at.

use memchr::{memchr, memchr_iter, memchr3};

use super::{
    digits::{LeadingDigits, number_of_three},
    value::TraceValue,
};

/// A place in a text.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    /// Where the value before this one ended.
    before: usize,
}

/// What follows in an object.
pub(super) enum NextKey<'a> {
    /// A field with this key.
    Key(&'a str),
    /// Nothing more.
    End,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Cursor<'a> {
        Cursor { text, at: 0, before: 0 }
    }

    /// How many bytes are before it.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Where the field begins that it is in.
    pub(super) fn field(&self) -> usize {
        self.before + memchr(b'"', &self.text.as_bytes()[self.before..]).unwrap_or_default()
    }

    /// What stands between a place and this one.
    #[inline(always)]
    pub(super) fn since(&self, place: usize) -> &'a str {
        &self.text[place..self.at]
    }

    /// Goes over an object, from its first brace to behind its last.
    fn fields(&mut self, field: impl FnMut(&mut Self, &'a str) -> Option<()>) -> Option<()> {
        let first = self.first_key()?;
        self.fields_from(first, field)
    }

    /// Goes over the rest of an object, from one of its values on.
    pub(super) fn fields_from(
        &mut self,
        mut next: NextKey<'a>,
        mut field: impl FnMut(&mut Self, &'a str) -> Option<()>,
    ) -> Option<()> {
        while let NextKey::Key(key) = next {
            field(self, key)?;
            next = self.next_key()?;
        }
        Some(())
    }

    /// Goes to the first value of an object that begins here, or behind an empty one.
    pub(super) fn first_key(&mut self) -> Option<NextKey<'a>> {
        self.before = self.at;
        self.expect(b'{')?;
        self.skip_spaces();
        if self.expect(b'}').is_some() { Some(NextKey::End) } else { self.key_here() }
    }

    /// Goes from behind a value to the next one of the same object, or behind its end.
    pub(super) fn next_key(&mut self) -> Option<NextKey<'a>> {
        self.before = self.at;
        // How Kineto ends what an event says besides.
        if self.passes("\n    }") {
            return Some(NextKey::End);
        }
        self.skip_spaces();
        if self.expect(b',').is_some() {
            return self.key_here();
        }
        self.expect(b'}').map(|()| NextKey::End)
    }

    #[inline(always)]
    fn key_here(&mut self) -> Option<NextKey<'a>> {
        self.skip_spaces();
        let key = self.key()?;
        self.skip_spaces();
        self.expect(b':')?;
        self.skip_spaces();
        Some(NextKey::Key(key))
    }

    /// Goes to a value if this stands before it; says whether it does.
    #[inline(always)]
    pub(super) fn passes_key(&mut self, before: &str) -> bool {
        self.before = self.at;
        let is_here = self.passes(before);
        if is_here {
            self.skip_spaces();
        }
        is_here
    }

    /// The text of an object. Kineto indents what is in one; no text has a line break in it, so the first line that is
    /// indented less is its end.
    pub(super) fn object(&mut self) -> Option<&'a str> {
        let begin = self.at;
        let rest = &self.text[begin..];
        if !rest.starts_with("{\n      ") {
            self.fields(|cursor, _| cursor.skip_value())?;
            return Some(self.since(begin));
        }
        let ends = |line: usize| !rest[line + 1..].starts_with("      ");
        let last = memchr_iter(b'\n', rest.as_bytes()).find(|line| ends(*line))?;
        self.at += last + 1;
        self.skip_spaces();
        self.expect(b'}')?;
        Some(self.since(begin))
    }

    /// A value that is no object.
    #[inline(always)]
    pub(super) fn value(&mut self) -> Option<TraceValue<'a>> {
        let digits = LeadingDigits::of(&self.text.as_bytes()[self.at..]);
        match digits.number() {
            Some(number) if self.ends_value(self.at + digits.count) => {
                self.at += digits.count;
                Some(TraceValue::Digits(number))
            }
            _ => self.written_value().map(TraceValue::Other),
        }
    }

    /// The text of a value that is no object.
    pub(super) fn written_value(&mut self) -> Option<&'a str> {
        let begin = self.at;
        self.skip_value()?;
        Some(self.since(begin))
    }

    /// Goes behind a value that is no object.
    #[inline(always)]
    pub(super) fn skip_value(&mut self) -> Option<()> {
        match self.byte()? {
            b'"' | b'[' | b'n' | b't' | b'f' => self.skip_value_but_number(),
            _ => self.skip_number(),
        }
    }

    fn skip_value_but_number(&mut self) -> Option<()> {
        match self.byte()? {
            b'"' => self.string().map(drop),
            b'[' => self.skip_array(),
            _ => {
                let rest = &self.text[self.at..];
                let word = ["null", "true", "false"].into_iter().find(|word| rest.starts_with(word))?;
                self.at += word.len();
                self.ends_value(self.at).then_some(())
            }
        }
    }

    /// The text of a number as Kineto writes them.
    pub(super) fn number(&mut self) -> Option<&'a str> {
        let begin = self.at;
        self.skip_number()?;
        Some(self.since(begin))
    }

    #[inline(always)]
    fn skip_number(&mut self) -> Option<()> {
        let sign = usize::from(self.byte()? == b'-');
        self.at += sign;
        self.at += self.digits_from(self.at)?;
        if self.byte()? == b'.' {
            self.at += 1;
            self.at += self.digits_from(self.at)?;
        }
        self.ends_value(self.at).then_some(())
    }

    /// A number with three decimals, times a thousand: none, and still before it, where something else stands here.
    #[inline(always)]
    pub(super) fn thousandths(&mut self) -> Option<i64> {
        let rest = &self.text.as_bytes()[self.at..];
        let whole = LeadingDigits::of(rest);
        let [b'.', decimals @ .., b',' | b'}' | b'\n' | b' '] = *rest[whole.count..].first_chunk::<5>()? else {
            return None;
        };
        let thousandths = number_of_three(decimals)?.checked_add(whole.number()?.checked_mul(1000)?)?;
        let thousandths = i64::try_from(thousandths).ok()?;
        self.at += whole.count + ".000".len();
        Some(thousandths)
    }

    /// How many digits stand at a place, if there are any.
    #[inline(always)]
    fn digits_from(&self, place: usize) -> Option<usize> {
        Some(LeadingDigits::of(self.text.as_bytes().get(place..)?).count).filter(|count| *count > 0)
    }

    /// Whether a value may end at a place.
    #[inline(always)]
    fn ends_value(&self, place: usize) -> bool {
        matches!(self.text.as_bytes().get(place), Some(b',' | b'}' | b'\n' | b' '))
    }

    /// A short text between quotation marks, such as a key: looking at each letter is fastest.
    #[inline(always)]
    pub(super) fn key(&mut self) -> Option<&'a str> {
        self.expect(b'"')?;
        let begin = self.at;
        let rest = &self.text.as_bytes()[begin..];
        let length = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | b'\n'))?;
        self.at += length;
        self.expect(b'"')?;
        Some(&self.text[begin..begin + length])
    }

    /// What stands between quotation marks.
    pub(super) fn string(&mut self) -> Option<&'a str> {
        self.expect(b'"')?;
        let begin = self.at;
        let length = memchr3(b'"', b'\\', b'\n', &self.text.as_bytes()[begin..])?;
        self.at += length;
        self.expect(b'"')?;
        Some(&self.text[begin..begin + length])
    }

    /// Goes behind an array.
    pub(super) fn skip_array(&mut self) -> Option<()> {
        let (mut depth, mut is_text) = (0_u32, false);
        for (byte, length) in self.text.as_bytes()[self.at..].iter().zip(1..) {
            match byte {
                b'\\' | b'{' | b'}' => return None,
                b'"' => is_text = !is_text,
                b'[' => depth += u32::from(!is_text),
                b']' => depth -= u32::from(!is_text),
                _ => {}
            }
            if depth == 0 {
                self.at += length;
                return Some(());
            }
        }
        None
    }

    #[inline(always)]
    fn skip_spaces(&mut self) {
        let rest = &self.text.as_bytes()[self.at..];
        let is_space = |byte: &&u8| matches!(byte, b' ' | b'\n' | b'\t' | b'\r');
        self.at += rest.iter().take_while(is_space).count();
    }

    /// Goes behind a text if it stands here; says whether it does.
    #[inline(always)]
    pub(super) fn passes(&mut self, text: &str) -> bool {
        let is_here = begins_with(&self.text.as_bytes()[self.at..], text.as_bytes());
        self.at += if is_here { text.len() } else { 0 };
        is_here
    }

    #[inline(always)]
    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.byte()? == byte).then(|| self.at += 1)
    }

    /// What stands here.
    #[inline(always)]
    pub(super) fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }
}

/// Whether a text begins with a short one: eight letters at a time are compared faster than a function is called that can do it
/// with long ones.
#[inline(always)]
fn begins_with(text: &[u8], short: &[u8]) -> bool {
    let Some(text) = text.get(..short.len()) else { return false };
    let ((words, letters), (short_words, short_letters)) = (text.as_chunks::<8>(), short.as_chunks::<8>());
    let same = |(one, other): (&[u8; 8], &[u8; 8])| u64::from_ne_bytes(*one) == u64::from_ne_bytes(*other);
    words.iter().zip(short_words).all(same)
        && match (text.last_chunk::<8>(), short.last_chunk::<8>()) {
            // Those that are left, and some of the word before them.
            (Some(end), Some(short_end)) => same((end, short_end)),
            _ => letters.iter().zip(short_letters).all(|(one, other)| one == other),
        }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_beginning_is_one(text in "[ab]{0,40}", short in "[ab]{0,24}", length in 0_usize..41, place in 0_usize..41) {
            prop_assert_eq!(begins_with(text.as_bytes(), short.as_bytes()), text.starts_with(&short));
            let mut own = text.as_bytes()[..length.min(text.len())].to_vec();
            prop_assert!(begins_with(text.as_bytes(), &own));
            if let Some(letter) = own.get_mut(place) {
                *letter = b'c';
                prop_assert!(!begins_with(text.as_bytes(), &own));
            }
        }
    }
}
