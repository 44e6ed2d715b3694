//! The kernels of one step in the order in which they ran, with what each was asked to do.

use std::collections::BTreeMap;

use stepscope_traces::{Layer, MicroBatch, NameId, Nanos, Phase, Rank, Spans, Window};

use super::profile::Profile;
use crate::{error::AnalysisError, figures::Class};

/// Kernels of a place that are looked at, at most.
const MOST_OF_A_PLACE: usize = 2000;

/// Where in a step kernels are launched: on which rank of the replica, in which phase and layer. Of several micro-batches
/// the first one is enough: the others do the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LaunchPlace {
    rank: usize,
    phase: Option<Phase>,
    layer: Option<Layer>,
}

#[cfg(test)]
impl LaunchPlace {
    /// Somewhere.
    pub(crate) const ANY: LaunchPlace = LaunchPlace { rank: 0, phase: None, layer: None };
}

/// A kernel that was launched.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Launch {
    pub(crate) name: String,
    pub(crate) flops: Option<u64>,
    pub(crate) bytes: Option<u64>,
}

/// Reads the last step of a run again.
pub(crate) fn launches(profile: &Profile<'_>) -> Result<BTreeMap<LaunchPlace, Vec<Launch>>, AnalysisError> {
    let mut places = BTreeMap::new();
    let Some(step) = profile.steps.last() else { return Ok(places) };
    for (index, rank) in step.ranks.iter().enumerate() {
        let Some(directory) = profile.run.rank(*rank) else { continue };
        let mut kernels: Vec<Kernel> = Vec::new();
        let window = window(profile, *rank);
        let (data, _) = directory.read_in_pieces(window, |_, spans| take(&mut kernels, spans, window), |_| {})?;
        kernels.sort_by_key(|kernel| kernel.start);
        let mut first: BTreeMap<LaunchPlace, Option<MicroBatch>> = BTreeMap::new();
        for kernel in kernels {
            let place = LaunchPlace { rank: index, phase: kernel.phase, layer: kernel.layer };
            let of_place = places.entry(place).or_insert_with(Vec::new);
            if *first.entry(place).or_insert(kernel.micro_batch) == kernel.micro_batch
                && of_place.len() < MOST_OF_A_PLACE
            {
                let name = data.names.get(kernel.name).unwrap_or("unnamed").to_owned();
                of_place.push(Launch { name, flops: kernel.flops, bytes: kernel.bytes });
            }
        }
    }
    Ok(places)
}

/// Where the last step lies on a rank; everywhere, where there are no steps.
fn window(profile: &Profile<'_>, rank: Rank) -> Window {
    let step = profile.steps.last().and_then(|step| step.step);
    let figures = profile.analysis.steps.iter().find(|figures| figures.rank == rank && Some(figures.step) == step);
    figures.map_or(Window::ALL, |figures| Window {
        from: Nanos(figures.start_ns),
        to: Nanos(figures.start_ns.saturating_add(figures.duration_ns)),
    })
}

struct Kernel {
    start: i64,
    name: NameId,
    phase: Option<Phase>,
    layer: Option<Layer>,
    micro_batch: Option<MicroBatch>,
    flops: Option<u64>,
    bytes: Option<u64>,
}

fn take(kernels: &mut Vec<Kernel>, spans: &Spans, window: Window) {
    for row in 0..spans.len() {
        let start = spans.start_ns.get(row);
        if Class::of(spans.kind.get(row)) != Some(Class::Compute) || !(window.from..window.to).contains(&start) {
            continue;
        }
        kernels.push(Kernel {
            start: start.0,
            name: spans.name.get(row),
            phase: spans.phase.get(row),
            layer: spans.layer.get(row),
            micro_batch: spans.micro_batch.get(row),
            flops: spans.flops.get(row),
            bytes: spans.bytes.get(row),
        });
    }
}
