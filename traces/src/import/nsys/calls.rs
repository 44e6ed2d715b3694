//! Calls of the host that launched what the GPUs did, waited for them, or took their memory.

use super::{
    super::{
        profile::Call,
        sqlite::{Database, TableColumn},
    },
    activities::Ranks,
    process::{Process, thread},
    texts::text,
};
use crate::driver_call::DriverCall;

pub(super) const CALLS: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";

/// Reads the calls that launched something, of CUDA's runtime and of its driver; and those that hold up the host, where it is
/// known for which rank.
pub(super) fn take_calls(database: &mut Database, ranks: &mut Ranks) {
    let columns = [
        TableColumn::Value("start"),
        TableColumn::Value("end"),
        TableColumn::Value("globalTid"),
        TableColumn::Value("correlationId"),
        text("nameId"),
    ];
    let mut unreadable = 0;
    database.scan(CALLS, &columns, |row| {
        let Some((global, correlation)) = row.integer(2).zip(row.number(3)) else { return };
        let Some((start, duration)) = row.times(0, 1) else {
            unreadable += 1;
            return;
        };
        let text = row.text(4);
        let name = without_version(text.as_deref().unwrap_or("CUDA call"));
        let process = Process::of(global);
        let is_of_one_rank = ranks.of_process(process).count() == 1;
        for rank in ranks.of_process(process) {
            if rank.launched_by.contains(&correlation) || is_of_one_rank && DriverCall::of(name).is_some() {
                let name = rank.profile.names.id(name);
                rank.profile.call(Call { correlation, start, duration, thread: Some(thread(global)), name });
            }
        }
    });
    ranks.unreadable += unreadable;
}

/// The process that made all calls; the first number there is if there are none, or several processes made them.
pub(super) fn sole_process(database: &mut Database) -> Process {
    let (mut sole, mut is_sole) = (None, true);
    database.scan(CALLS, &[TableColumn::Value("globalTid")], |row| {
        if let Some(process) = row.integer(0).map(Process::of) {
            is_sole &= *sole.get_or_insert(process) == process;
        }
    });
    sole.filter(|_| is_sole).unwrap_or_default()
}

/// A call without the version of CUDA that brought it: `cudaLaunchKernel_v7000`.
fn without_version(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((call, version)) if version.len() > 3 && version.bytes().all(|byte| byte.is_ascii_digit()) => call,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_cuda_are_no_part_of_a_name() {
        assert_eq!(without_version("cudaLaunchKernel_v7000"), "cudaLaunchKernel");
        assert_eq!(without_version("cudaGraphLaunch_v10000"), "cudaGraphLaunch");
        assert_eq!(without_version("cuMemcpyHtoDAsync_v2"), "cuMemcpyHtoDAsync_v2");
        assert_eq!(without_version("cuLaunchKernel"), "cuLaunchKernel");
    }
}
