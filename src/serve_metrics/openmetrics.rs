//! Metrics as text: OpenMetrics 1.0, which Prometheus and its relatives read.

use std::fmt::Write;

use super::family::{Family, Kind, Sample};

/// What HTTP calls it.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All families of which there is a value.
pub(super) fn text(families: &[Family]) -> String {
    let mut text = String::new();
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
        // Writing to a string cannot fail.
        let _ = write_family(&mut text, family);
    }
    text + "# EOF\n"
}

fn write_family(text: &mut String, Family { name, kind, unit, help, samples }: &Family) -> std::fmt::Result {
    let (kind, suffix) = match kind {
        Kind::Gauge => ("gauge", ""),
        Kind::Counter => ("counter", "_total"),
        Kind::Info => ("info", "_info"),
    };
    writeln!(text, "# TYPE {name} {kind}")?;
    if let Some(unit) = unit.word() {
        writeln!(text, "# UNIT {name} {unit}")?;
    }
    writeln!(text, "# HELP {name} {}", escaped(help))?;
    for Sample { labels, value } in samples {
        write!(text, "{name}{suffix}")?;
        for (index, (label, value)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            write!(text, "{before}{label}=\"{}\"", escaped(value))?;
        }
        let after = if labels.is_empty() { "" } else { "}" };
        writeln!(text, "{after} {}", number(*value))?;
    }
    Ok(())
}

/// As it stands between quotes, on one line.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"")
}

fn number(value: f64) -> String {
    if value == f64::INFINITY {
        "+Inf".into()
    } else if value == f64::NEG_INFINITY {
        "-Inf".into()
    } else {
        value.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve_metrics::family::Unit;

    #[test]
    fn text_is_what_the_standard_says() {
        let sample = |labels: &[(&'static str, &str)], value| Sample {
            labels: labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
            value,
        };
        let family = |name, kind, unit, samples| Family { name, kind, unit, help: "Some \"help\".", samples };
        let families = [
            family("a_seconds", Kind::Gauge, Unit::Seconds, vec![sample(&[], 1e-7), sample(&[], f64::INFINITY)]),
            family("b", Kind::Counter, Unit::None, vec![sample(&[("kind", "x"), ("why", "a\\b\n\"c\"")], 3.0)]),
            family("c", Kind::Info, Unit::None, vec![sample(&[("name", "é")], 1.0)]),
            family("d", Kind::Gauge, Unit::None, Vec::new()),
        ];
        assert_eq!(
            text(&families),
            "# TYPE a_seconds gauge\n# UNIT a_seconds seconds\n# HELP a_seconds Some \\\"help\\\".\n\
             a_seconds 0.0000001\na_seconds +Inf\n\
             # TYPE b counter\n# HELP b Some \\\"help\\\".\nb_total{kind=\"x\",why=\"a\\\\b\\n\\\"c\\\"\"} 3\n\
             # TYPE c info\n# HELP c Some \\\"help\\\".\nc_info{name=\"é\"} 1\n# EOF\n"
        );
    }
}
