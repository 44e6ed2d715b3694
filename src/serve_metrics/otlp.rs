//! Metrics in the words of OpenTelemetry: a request of OTLP, as JSON.

use serde_json::{Value, json};

use super::family::{Family, Kind, Sample};

/// Since when counters count, and now, in nanoseconds since 1970.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub(super) began: i64,
    pub(super) now: i64,
}

/// Counts since they began, as OTLP numbers it.
const CUMULATIVE: u8 = 2;

/// All families, as the body of a request.
pub(super) fn request(families: &[Family], times: Times) -> Value {
    let metrics: Vec<Value> = families.iter().map(|family| metric(family, times)).collect();
    json!({"resourceMetrics": [{
        "resource": {"attributes": [attribute("service.name", "stepscope")]},
        "scopeMetrics": [{
            "scope": {"name": "stepscope", "version": env!("CARGO_PKG_VERSION")},
            "metrics": metrics,
        }],
    }]})
}

fn metric(Family { name, kind, unit, help, samples }: &Family, times: Times) -> Value {
    let points: Vec<Value> = samples.iter().map(|sample| point(sample, *kind, times)).collect();
    let mut metric = json!({"name": name, "description": help, "unit": unit.ucum()});
    let (form, data) = match kind {
        // Words are attributes of a value that is 1.
        Kind::Gauge | Kind::Info => ("gauge", json!({"dataPoints": points})),
        Kind::Counter => {
            ("sum", json!({"dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": true}))
        }
    };
    metric[form] = data;
    metric
}

fn point(Sample { labels, value }: &Sample, kind: Kind, Times { began, now }: Times) -> Value {
    let attributes: Vec<Value> = labels.iter().map(|(name, value)| attribute(name, value)).collect();
    // JSON has 64-bit integers as texts, and no numbers that are none.
    let value = match value {
        value if value.is_nan() => json!("NaN"),
        value if value.is_infinite() => json!(if *value > 0.0 { "Infinity" } else { "-Infinity" }),
        value => json!(value),
    };
    let mut point = json!({"attributes": attributes, "timeUnixNano": now.to_string(), "asDouble": value});
    if kind == Kind::Counter {
        point["startTimeUnixNano"] = began.to_string().into();
    }
    point
}

fn attribute(name: &str, value: &str) -> Value {
    json!({"key": name, "value": {"stringValue": value}})
}
