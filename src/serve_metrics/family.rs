//! Metrics as plain data, whoever they are written for.

/// What is measured, and its values at a moment.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Family {
    /// Its name, without what a format appends to it. It ends with its unit.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) unit: Unit,
    pub(super) help: &'static str,
    pub(super) samples: Vec<Sample>,
}

/// What values of a metric mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// How much of something there is.
    Gauge,
    /// How often something has happened: never less than before.
    Counter,
    /// Words; the value is 1.
    Info,
}

/// In what a value is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Things.
    None,
    Seconds,
    Bytes,
    /// A share, from 0 to 1.
    Ratio,
}

impl Unit {
    /// As OpenMetrics writes it, at the end of names too.
    pub(super) fn word(self) -> Option<&'static str> {
        match self {
            Unit::None => None,
            Unit::Seconds => Some("seconds"),
            Unit::Bytes => Some("bytes"),
            Unit::Ratio => Some("ratio"),
        }
    }

    /// As UCUM writes it, which OpenTelemetry takes.
    pub(super) fn ucum(self) -> &'static str {
        match self {
            Unit::None | Unit::Ratio => "1",
            Unit::Seconds => "s",
            Unit::Bytes => "By",
        }
    }
}

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) labels: Vec<(&'static str, String)>,
    pub(super) value: f64,
}
