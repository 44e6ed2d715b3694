//! The site whose pages may fetch the trace.

/// A site whose pages may fetch the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Site {
    /// The page to open.
    pub(super) page: String,
    /// What a browser calls its pages' origin.
    pub(super) origin: String,
}

impl Site {
    /// Reads an address of a site.
    pub(super) fn parse(text: &str) -> Result<Site, String> {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let host = rest.and_then(|rest| rest.split('/').next()).filter(|host| !host.is_empty());
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._:/[]".contains(c);
        match (rest, host) {
            (Some(rest), Some(host)) if rest.chars().all(plain) => {
                let scheme = &text[..text.len() - rest.len()];
                Ok(Site { page: text.trim_end_matches('/').into(), origin: format!("{scheme}{host}") })
            }
            _ => Err(format!("`{text}` is not an address such as https://ui.perfetto.dev")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_has_an_origin() {
        let site = Site::parse("https://ui.perfetto.dev/").unwrap();
        assert_eq!((site.page.as_str(), site.origin.as_str()), ("https://ui.perfetto.dev", "https://ui.perfetto.dev"));
        let own = Site::parse("http://localhost:10000/v58/ui").unwrap();
        assert_eq!(
            (own.page.as_str(), own.origin.as_str()),
            ("http://localhost:10000/v58/ui", "http://localhost:10000")
        );
        for text in ["", "ui.perfetto.dev", "https://", "ftp://a", "https://a b", "https://a\r\nX: y"] {
            assert!(Site::parse(text).is_err(), "{text}");
        }
    }
}
