//! Large numbers as people type them: `4M`, `15T`, `1.5e9`, `4_194_304`.

/// Reads a count with an optional suffix: k, M, B (or G), T.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let plain = text.replace('_', "");
    let split = plain.find(|c: char| c.is_ascii_alphabetic() && c != 'e' && c != 'E').unwrap_or(plain.len());
    let (number, suffix) = plain.split_at(split);
    let scale = match suffix {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "B" | "G" => 1e9,
        "T" => 1e12,
        _ => return Err(format!("unknown suffix `{suffix}`; use k, M, B or T")),
    };
    if let (1.0, Ok(whole)) = (scale, number.parse()) {
        return Ok(whole);
    }
    let value = number.parse::<f64>().map_err(|_| format!("`{text}` is not a number"))? * scale;
    // Beyond 2^53 a double no longer holds every whole number.
    if (0.0..=9e15).contains(&value) && (value - value.round()).abs() < 1e-6 * value.max(1.0) {
        Ok(value.round() as u64)
    } else {
        Err(format!("`{text}` is not a whole number"))
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn people_type_numbers_in_many_ways() {
        for (text, number) in [
            ("64", 64),
            ("4_194_304", 4_194_304),
            ("4M", 4_000_000),
            ("1.5B", 1_500_000_000),
            ("15T", 15_000_000_000_000),
            ("15e12", 15_000_000_000_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(number), "{text}");
        }
        for text in ["", "many", "-3", "1.5", "1,5B", "4Q", "1e99", "NaN", "T"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
