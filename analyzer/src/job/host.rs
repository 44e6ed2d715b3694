//! What the programs of all ranks did on the host.
//!
//! For users, it is defined in `docs/src/metrics.md#time-on-the-host`.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use stepscope_traces::Phase;

use crate::{
    figures::{HostFigures, HostOperator, HostPhase},
    rank::{
        host::{OperatorSum, RankHost},
        result::RankResult,
    },
};

/// What the programs of all ranks did; none, where nothing says when.
pub(crate) fn host(ranks: &[RankResult]) -> Option<HostFigures> {
    let times: Vec<_> = ranks.iter().filter_map(|rank| rank.host.time).collect();
    let (mut phases, mut operators) = (BTreeMap::<Option<Phase>, i64>::new(), HashMap::<&str, OperatorSum>::new());
    for RankHost { phases: of_rank, operators: called, .. } in ranks.iter().map(|rank| &rank.host) {
        of_rank.iter().for_each(|(phase, time)| *phases.entry(*phase).or_default() += time);
        for (name, more) in called {
            let sum = operators.entry(name).or_default();
            sum.count += more.count;
            sum.self_ns += more.self_ns;
            sum.total_ns += more.total_ns;
        }
    }
    let all: i64 = operators.values().map(|sum| sum.self_ns).sum();
    let figures = |(name, sum): (&str, OperatorSum)| HostOperator {
        operator: name.to_owned(),
        count: sum.count,
        self_ns: sum.self_ns,
        total_ns: sum.total_ns,
        share: sum.self_ns as f64 / all.max(1) as f64,
    };
    let mut operators: Vec<HostOperator> = operators.into_iter().map(figures).collect();
    operators.sort_by(|one, other| (-one.self_ns, &one.operator).cmp(&(-other.self_ns, &other.operator)));
    let phases = phases.into_iter().map(|(phase, self_ns)| HostPhase { phase, self_ns }).collect();
    (!times.is_empty()).then_some(HostFigures { ranks: times, phases, operators })
}
