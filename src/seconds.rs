//! Lengths of time as people type them: `5`, `0.5`, `10m`.

use std::time::Duration;

/// Reads seconds, or minutes and hours where they say so.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let trimmed = text.trim();
    let number = trimmed.trim_end_matches(['s', 'm', 'h']);
    let unit = match &trimmed[number.len()..] {
        "" | "s" => Some(1.0),
        "m" => Some(60.0),
        "h" => Some(3600.0),
        _ => None,
    };
    let seconds = unit.and_then(|unit| Some(number.parse::<f64>().ok()? * unit));
    let seconds = seconds.ok_or_else(|| format!("`{text}` is not a length of time; use 30, 10m or 2h"))?;
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("`{text}` is not a length of time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_numbers() {
        assert_eq!(parse("5"), Ok(Duration::from_secs(5)));
        assert_eq!(parse("0.25s"), Ok(Duration::from_millis(250)));
        assert_eq!(parse("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(parse("1.5h"), Ok(Duration::from_secs(5400)));
        for text in ["", "m", "10ms", "soon", "-1", "inf", "NaN", "1e300"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
