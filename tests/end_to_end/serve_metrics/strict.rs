//! OpenMetrics 1.0 and the text format of Prometheus, as strictly as the standards have them for what we write.

use std::collections::{BTreeMap, BTreeSet};

/// What a text says: the value of each sample, by its name and labels as they stand there.
pub(super) struct Exposition {
    pub(super) values: BTreeMap<String, f64>,
}

impl Exposition {
    #[track_caller]
    pub(super) fn parse(text: &str) -> Exposition {
        let open_metrics = text.strip_suffix("# EOF\n");
        let body = open_metrics.unwrap_or(text);
        let kinds: &[&str] = if open_metrics.is_some() { &["gauge", "counter", "info"] } else { &["gauge", "counter"] };
        let (mut values, mut families, mut family) = (BTreeMap::new(), BTreeSet::new(), ("", ""));
        for line in body.lines() {
            if let Some(said) = line.strip_prefix("# ") {
                let [word, name, rest]: [&str; 3] = said.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
                match word {
                    "TYPE" => {
                        assert!(families.insert(name), "{name} comes twice");
                        assert!(kinds.contains(&rest), "{line}");
                        family = (name, rest);
                    }
                    "UNIT" if open_metrics.is_some() => {
                        assert!(name == family.0 && name.ends_with(&format!("_{rest}")), "{line}");
                    }
                    "HELP" => assert!(name == family.0 && rest.ends_with('.'), "{line}"),
                    _ => panic!("{line}"),
                }
                continue;
            }
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = sample.split_once('{').map_or((sample, ""), |(name, labels)| {
                (name, labels.strip_suffix('}').unwrap_or_else(|| panic!("{line}")))
            });
            let suffix = match family.1 {
                "counter" if open_metrics.is_some() => "_total",
                "info" => "_info",
                _ => "",
            };
            assert!(family.1 != "counter" || name.ends_with("_total"), "{line}");
            assert_eq!(name, format!("{}{suffix}", family.0), "{line}");
            let is_name = |name: &str| {
                name.starts_with(|c: char| c.is_ascii_lowercase())
                    && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            };
            assert!(is_name(name), "{line}");
            for label in labels.split("\",").filter(|label| !label.is_empty()) {
                let (label, quoted) = label.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
                assert!(is_name(label) && !quoted.trim_end_matches('"').contains('"'), "{line}");
            }
            let value: f64 = value.parse().unwrap();
            assert!(suffix != "_info" || value == 1.0, "{line}");
            assert!(values.insert(sample.to_owned(), value).is_none(), "{sample} comes twice");
        }
        assert!(values.keys().all(|sample| sample.starts_with("stepscope_")));
        Exposition { values }
    }
}
