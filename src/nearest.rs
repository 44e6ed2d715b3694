//! The known word that a mistyped one probably stands for.

/// Words that are less alike than this are not suggested.
const LEAST_ALIKE: f64 = 0.7;

/// The word that is most like `typed`, if any is like it.
pub(crate) fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_lowercase();
    let alike = known.into_iter().map(|word| (word, strsim::jaro(&typed, &word.to_lowercase())));
    let most = alike.filter(|(_, alike)| *alike > LEAST_ALIKE).max_by(|one, other| one.1.total_cmp(&other.1));
    most.map(|(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_mistyped_word_has_a_nearest_one() {
        let known = ["tiny", "llama-8b", "llama-70b", "gpt2-124m"];
        assert_eq!(nearest("lama-8b", known), Some("llama-8b"));
        assert_eq!(nearest("Tiny", known), Some("tiny"));
        assert_eq!(nearest("resnet", known), None);
        assert_eq!(nearest("", known), None);
    }
}
