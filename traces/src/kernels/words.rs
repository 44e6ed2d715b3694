//! The words of identifiers: `FusedAdamMathFunctor` and `fused_adam_math_functor` are fused, adam, math and functor.

use memchr::memmem;

/// A text in lower case without what joins words in identifiers, and where its words begin and end.
#[derive(Debug)]
pub(super) struct Words {
    text: String,
    /// Whether a word begins at a byte, or one has ended before it.
    borders: Vec<bool>,
}

impl Words {
    /// The words of a text.
    pub(super) fn of(text: &str) -> Words {
        let mut words = Words { text: String::with_capacity(text.len()), borders: Vec::with_capacity(text.len() + 1) };
        let bytes = text.as_bytes();
        let mut before = b' ';
        for (at, &byte) in bytes.iter().enumerate() {
            let after = bytes.get(at + 1).copied().unwrap_or(b' ');
            if byte.is_ascii_alphanumeric() {
                words.borders.push(begins(before, byte, after));
                words.text.push(byte.to_ascii_lowercase().into());
            } else if byte != b'_' && before != b' ' {
                words.borders.push(true);
                words.text.push(' ');
            }
            before = if byte.is_ascii_alphanumeric() || byte == b'_' { byte } else { b' ' };
        }
        words.borders.push(true);
        words
    }

    /// What is searched.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

/// Whether a word begins with `byte`.
fn begins(before: u8, byte: u8, after: u8) -> bool {
    let is_other_kind = before.is_ascii_digit() != byte.is_ascii_digit();
    let is_hump = byte.is_ascii_uppercase() && (!before.is_ascii_uppercase() || after.is_ascii_lowercase());
    !before.is_ascii_alphanumeric() || is_other_kind || is_hump
}

/// Words that are looked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    /// What must follow each other, with anything between them.
    parts: Vec<String>,
    at_start: bool,
    /// Whether it may begin and end inside a word.
    open: [bool; 2],
}

impl Pattern {
    /// `adam` is that word, `layer_norm` those two or one, `gemm*` whatever begins so, and `^nvjet*` what a text begins
    /// with.
    pub(super) fn of(text: &str) -> Pattern {
        let at_start = text.starts_with('^');
        let text = text.trim_start_matches('^');
        let parts = text.split('*').filter(|part| !part.is_empty()).map(|part| Words::of(part).text).collect();
        Pattern { parts, at_start, open: [text.starts_with('*'), text.ends_with('*')] }
    }

    /// Whether a text has them.
    pub(super) fn is_in(&self, words: &Words) -> bool {
        let Some((first, others)) = self.parts.split_first() else { return false };
        let is_border = |place: usize| words.borders.get(place).copied().unwrap_or(false);
        let ends_well = |place: usize| self.open[1] || is_border(place);
        let fits = |start: usize| {
            if !self.open[0] && !is_border(start) {
                return false;
            }
            let mut from = start + first.len();
            let Some((last, middle)) = others.split_last() else { return ends_well(from) };
            for part in middle {
                let Some(found) = words.text[from..].find(part.as_str()) else { return false };
                from += found + part.len();
            }
            memmem::find_iter(&words.text.as_bytes()[from..], last).any(|found| ends_well(from + found + last.len()))
        };
        match self.at_start {
            true => words.text.starts_with(first.as_str()) && fits(0),
            false => memmem::find_iter(words.text.as_bytes(), first).any(fits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_whole() {
        for (pattern, text, expected) in [
            ("lamb", "lambda", false),
            ("lamb", "LAMBFunctor", true),
            ("lamb", "multi_tensor_lamb", true),
            ("adam", "FusedAdamMathFunctor", true),
            ("adam", "adam8bit", true),
            ("adam", "adamant", false),
            ("adam*", "adamant", true),
            ("layer_norm", "LayerNormForward", true),
            ("layer_norm", "vectorized_layer_norm_kernel", true),
            ("layer_norm", "layernorm2d", true),
            ("layer_norm", "player_norm", false),
            ("*layer_norm", "player_norm", true),
            ("rms_norm", "RMSNorm", true),
            ("^nvjet*", "nvjet_sm90", true),
            ("^nvjet*", "my_nvjet", false),
            ("bf16", "gemm_bf16bf16_f32", true),
            ("a_b", "a::b", false),
            ("topk", "gatherTopK", true),
            ("^input*fusion*", "input_reduce_fusion_12", true),
            ("^input*fusion", "input_reduce_fusions", false),
            ("^miopen*conv*", "miopenSp3AsmConv_v30", true),
        ] {
            assert_eq!(Pattern::of(pattern).is_in(&Words::of(text)), expected, "{pattern} in {text}");
        }
    }
}
