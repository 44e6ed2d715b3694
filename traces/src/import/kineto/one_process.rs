//! Whether traces are of one process that was profiled several times, or copies of one trace. Then they are no ranks of one job.
//!
//! A trace says the number of its process, and PyTorch's handler puts a name of it into the name of the file, and the time:
//! `WORKER.TIME.pt.trace.json`. Neither is proof: processes in containers have the same numbers, and a program may call all
//! of its ranks the same. But those are profiled at one time, and one process is profiled at several.

use std::cell::OnceCell;

use super::opening::{Opening, host_and_pid, said_rank, worker};
use crate::{
    error::{ImportError, TraceError},
    ids::Nanos,
};

/// Refuses traces of one process. Those that say different ranks are not.
pub(super) fn refuse_those_of_one_process(traces: &[Opening]) -> Result<(), TraceError> {
    let extents: Vec<OnceCell<Option<(Nanos, Nanos)>>> = vec![OnceCell::new(); traces.len()];
    let extent = |index: usize| match extents[index].get() {
        Some(known) => Ok(*known),
        None => {
            let (_, trace, header) = &traces[index];
            let of_day = |(first, last): (Nanos, Nanos)| {
                Some((Nanos(first.0.checked_add(header.base_ns)?), Nanos(last.0.checked_add(header.base_ns)?)))
            };
            let extent = trace.extent()?.and_then(of_day);
            Ok::<_, TraceError>(*extents[index].get_or_init(|| extent))
        }
    };
    let without_rank: Vec<usize> = (0..traces.len()).filter(|index| said_rank(&traces[*index]).is_none()).collect();
    for one in without_rank {
        // Of two without a rank, the second one meets the first.
        let others = (0..traces.len()).filter(|other| *other < one || said_rank(&traces[*other]).is_some());
        for other in others.filter(|other| *other != one) {
            let Some(process) = process_of_both(&traces[other], &traces[one]) else { continue };
            let Some(((start, end), (other_start, other_end))) = extent(one)?.zip(extent(other)?) else { continue };
            if (start, end) == (other_start, other_end) {
                let [one, other] = [other, one].map(|index| traces[index].0.clone());
                return Err(ImportError::SameRecording { one, other }.into());
            }
            if end <= other_start || other_end <= start {
                let [one, other] = [other, one].map(|index| traces[index].0.clone());
                return Err(ImportError::SameProcess { process, one, other }.into());
            }
        }
    }
    Ok(())
}

/// What two traces both call the process that they are of, if they do. They are not of one where they name different hosts.
fn process_of_both(one: &Opening, other: &Opening) -> Option<String> {
    let hosts =
        |(path, _, header): &Opening| [header.host.clone(), host_and_pid(path).map(|(host, _)| host.to_owned())];
    let mut both = hosts(one).into_iter().zip(hosts(other));
    if both.any(|(one, other)| one.zip(other).is_some_and(|(one, other)| one != other)) {
        return None;
    }
    let [name, other_name] = [one, other].map(|(path, ..)| worker(path));
    match name.filter(|_| name == other_name) {
        Some(name) => Some(name.to_owned()),
        None => one.1.process.filter(|_| one.1.process == other.1.process).map(|number| format!("process {number}")),
    }
}
