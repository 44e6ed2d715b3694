//! What ranks and the hub say to each other. The number in the greeting of the handshake changes with it.

use serde::{Deserialize, Serialize};
use stepscope_traces::Rank;

use super::progress::Report;
use crate::comm::Reason;

/// The longest message of a rank, or of the hub.
pub(crate) const MOST: u32 = 64 << 20;

/// What a run is told to do, by name.
pub(crate) type Settings = serde_json::Map<String, serde_json::Value>;

/// The first message of a rank.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) rank: Rank,
    pub(crate) world: u32,
    pub(crate) settings: Settings,
}

/// What a rank says.
#[derive(Serialize, Deserialize)]
pub(crate) enum ToHub {
    /// Its part of an exchange.
    Offer { name: String, blob: Vec<u8> },
    /// That it lives, and how far it is.
    Beat(Report),
    /// A question: how is everyone?
    AskHealth,
    /// Why the ranks cannot go on.
    Trouble(Reason),
}

/// What the hub says.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum FromHub {
    /// Everyone is here.
    Welcome,
    /// There will be no job, or not with this rank, and why.
    Refused(String),
    /// Everyone's part of an exchange.
    Offers { name: String, blobs: Vec<Vec<u8>> },
    /// That it lives.
    Beat,
    /// How every rank is.
    Health(Vec<Health>),
    /// Why the ranks cannot go on.
    Trouble(Reason),
}

/// How a rank is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Health {
    /// How far it is.
    pub(crate) report: Report,
    /// For how long it has said nothing.
    pub(crate) silent_ms: u64,
}

/// What differs between two runs' settings, in words.
pub(crate) fn differences(rank: Rank, theirs: &Settings, ours: &Settings) -> Option<String> {
    let mut found = Vec::new();
    compare("", theirs, ours, &mut found);
    (!found.is_empty()).then(|| format!("rank {rank} and rank 0 have different settings: {}", found.join(", ")))
}

fn compare(prefix: &str, theirs: &Settings, ours: &Settings, found: &mut Vec<String>) {
    let only_theirs = theirs.keys().filter(|name| !ours.contains_key(*name));
    for name in ours.keys().chain(only_theirs) {
        match (theirs.get(name), ours.get(name)) {
            (Some(serde_json::Value::Object(theirs)), Some(serde_json::Value::Object(ours))) => {
                compare(&format!("{prefix}{name}."), theirs, ours, found);
            }
            (theirs, ours) if theirs == ours => {}
            (theirs, ours) => {
                let say = |value: Option<&serde_json::Value>| value.map_or("nothing".into(), ToString::to_string);
                found.push(format!("{prefix}{name} is {}, not {}", say(theirs), say(ours)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_differs_is_named() {
        let settings = |value: serde_json::Value| value.as_object().cloned().unwrap();
        let ours = settings(json!({ "seed": 0, "layout": { "dp": 2, "tp": 1 } }));
        assert_eq!(differences(Rank(3), &ours, &ours), None);
        let theirs = settings(json!({ "seed": 0, "layout": { "dp": 4, "tp": 1 }, "more": "words" }));
        let said = differences(Rank(3), &theirs, &ours).unwrap();
        assert_eq!(
            said,
            "rank 3 and rank 0 have different settings: layout.dp is 4, not 2, more is \"words\", not nothing"
        );
    }
}
