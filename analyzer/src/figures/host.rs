//! What the program did on the host, by what it annotates and, where nothing else was recorded, by its operators.

use serde::Serialize;
use stepscope_traces::{Phase, Rank};

use crate::stored::fields;

/// What the program did on the host in the steps that count.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HostFigures {
    /// Each rank's time.
    pub ranks: Vec<HostTime>,
    /// Operators by phase, over all ranks; none, where activity of a device was recorded.
    pub phases: Vec<HostPhase>,
    /// Operators by name, over all ranks, the most time of their own first; none, where activity of a device was recorded.
    pub operators: Vec<HostOperator>,
}

fields!(HostFigures { ranks, phases, operators });

/// What one rank did on the host in the steps that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HostTime {
    /// Which rank.
    pub rank: Rank,
    /// How long these steps are on the host.
    pub time_ns: i64,
    /// How long the program waits for data in them; none, where no annotation ever says so.
    pub data_ns: Option<i64>,
    /// How long operators run in them; none, where activity of a device was recorded.
    pub operators_ns: Option<i64>,
    /// How long the host communicates in them; none, where activity of a device was recorded, or a device communicates.
    pub communication_ns: Option<i64>,
    /// What of it no other operator covers.
    pub exposed_communication_ns: Option<i64>,
}

fields!(HostTime { rank, time_ns, data_ns, operators_ns, communication_ns, exposed_communication_ns });

/// Operators of one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HostPhase {
    /// The phase; none, where it is not known.
    pub phase: Option<Phase>,
    /// Their own time.
    pub self_ns: i64,
}

fields!(HostPhase { phase, self_ns });

/// Calls of one operator on the host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostOperator {
    /// The operator.
    pub operator: String,
    /// How many calls.
    pub count: u64,
    /// How long they take, without the operators inside of them.
    pub self_ns: i64,
    /// How long they take.
    pub total_ns: i64,
    /// Of the own time of all operators.
    pub share: f64,
}

fields!(HostOperator { operator, count, self_ns, total_ns, share });
