//! Lengths of time as people type them: `5`, `0.5`.

use std::time::Duration;

/// Reads seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let seconds =
        text.trim().trim_end_matches('s').parse::<f64>().map_err(|_| format!("`{text}` is not a number of seconds"))?;
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("`{text}` is not a length of time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_numbers() {
        assert_eq!(parse("5"), Ok(Duration::from_secs(5)));
        assert_eq!(parse("0.25s"), Ok(Duration::from_millis(250)));
        for text in ["", "soon", "-1", "inf", "NaN", "1e300"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
