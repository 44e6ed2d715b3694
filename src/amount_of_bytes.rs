//! Sizes as people type them: `256M`, `1.5GB`.

use crate::amount;

/// Reads a number of bytes with an optional suffix: k, M, G, T, with or without a B.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let number = text.strip_suffix(['B', 'b']).unwrap_or(text);
    match amount::parse(number) {
        Ok(0) => Err("the size must not be 0".into()),
        Ok(bytes) => Ok(bytes),
        Err(_) => Err(format!("`{text}` is not a size; use 256M, 1.5GB or 100000")),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn people_type_sizes_in_a_few_ways() {
        for (text, bytes) in [("1000", 1_000), ("256M", 256_000_000), ("1.5GB", 1_500_000_000), ("20kB", 20_000)] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "B", "0", "-1", "large", "1GiB"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
