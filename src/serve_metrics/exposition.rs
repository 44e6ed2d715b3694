//! Metrics as text, in the two forms that Prometheus and its relatives read.

use std::fmt::Write;

use super::family::{Family, Kind, Sample};

/// How metrics are written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// OpenMetrics 1.0, which those who scrape ask for if they know it.
    OpenMetrics,
    /// Prometheus' own, 0.0.4, which all of them know, and files for node exporter have to be in.
    Prometheus,
}

impl Form {
    /// What somebody takes who says so in a request. The first form that is named is good enough.
    pub(super) fn accepted(header: Option<&[u8]>) -> Form {
        match header.is_some_and(|header| String::from_utf8_lossy(header).contains("application/openmetrics-text")) {
            true => Form::OpenMetrics,
            false => Form::Prometheus,
        }
    }

    /// What HTTP calls it.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Form::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// All families of which there is a value.
    pub(super) fn text(self, families: &[Family]) -> String {
        let mut text = String::new();
        for family in families.iter().filter(|family| !family.samples.is_empty()) {
            // Writing to a string cannot fail.
            let _ = self.write(&mut text, family);
        }
        if self == Form::OpenMetrics { text + "# EOF\n" } else { text }
    }

    fn write(self, text: &mut String, Family { name, kind, unit, help, samples }: &Family) -> std::fmt::Result {
        let (kind, suffix) = match kind {
            Kind::Gauge => ("gauge", ""),
            Kind::Counter => ("counter", "_total"),
            Kind::Info if self == Form::Prometheus => ("gauge", "_info"),
            Kind::Info => ("info", "_info"),
        };
        let sample_name = format!("{name}{suffix}");
        let name = if self == Form::OpenMetrics { *name } else { &sample_name };
        writeln!(text, "# TYPE {name} {kind}")?;
        if let Some(unit) = unit.word().filter(|_| self == Form::OpenMetrics) {
            writeln!(text, "# UNIT {name} {unit}")?;
        }
        writeln!(text, "# HELP {name} {help}")?;
        for Sample { labels, value } in samples {
            write!(text, "{sample_name}")?;
            for (index, (label, value)) in labels.iter().enumerate() {
                let before = if index == 0 { '{' } else { ',' };
                write!(text, "{before}{label}=\"{}\"", escaped(value))?;
            }
            let after = if labels.is_empty() { "" } else { "}" };
            writeln!(text, "{after} {}", number(*value))?;
        }
        Ok(())
    }
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
    fn text_is_what_the_standards_say() {
        let sample = |labels: &[(&'static str, &str)], value| Sample {
            labels: labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
            value,
        };
        let family = |name, kind, unit, samples| Family { name, kind, unit, help: "Some help.", samples };
        let families = [
            family("a_seconds", Kind::Gauge, Unit::Seconds, vec![sample(&[], 1e-7), sample(&[], f64::INFINITY)]),
            family("b", Kind::Counter, Unit::None, vec![sample(&[("kind", "x"), ("why", "a\\b\n\"c\"")], 3.0)]),
            family("c", Kind::Info, Unit::None, vec![sample(&[("name", "é")], 1.0)]),
            family("d", Kind::Gauge, Unit::None, Vec::new()),
        ];
        assert_eq!(
            Form::OpenMetrics.text(&families),
            "# TYPE a_seconds gauge\n# UNIT a_seconds seconds\n# HELP a_seconds Some help.\n\
             a_seconds 0.0000001\na_seconds +Inf\n\
             # TYPE b counter\n# HELP b Some help.\nb_total{kind=\"x\",why=\"a\\\\b\\n\\\"c\\\"\"} 3\n\
             # TYPE c info\n# HELP c Some help.\nc_info{name=\"é\"} 1\n# EOF\n"
        );
        assert_eq!(
            Form::Prometheus.text(&families),
            "# TYPE a_seconds gauge\n# HELP a_seconds Some help.\na_seconds 0.0000001\na_seconds +Inf\n\
             # TYPE b_total counter\n# HELP b_total Some help.\nb_total{kind=\"x\",why=\"a\\\\b\\n\\\"c\\\"\"} 3\n\
             # TYPE c_info gauge\n# HELP c_info Some help.\nc_info{name=\"é\"} 1\n"
        );
    }

    #[test]
    fn whoever_asks_gets_what_they_take() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Form::accepted(Some(prometheus.as_bytes())), Form::OpenMetrics);
        for header in [None, Some(&b"*/*"[..]), Some(b"text/plain; version=0.0.4"), Some(b"\xff")] {
            assert_eq!(Form::accepted(header), Form::Prometheus);
        }
    }
}
