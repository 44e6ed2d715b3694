//! A trace that was opened, and whose it is, as far as it and the name of its file say.

use std::path::{Path, PathBuf};

use super::{super::rank_name::rank_in_name, header::Header, trace::KinetoTrace};
use crate::ids::Rank;

/// A trace that was opened, and what it says of itself.
pub(crate) type Opening = (PathBuf, Box<KinetoTrace>, Box<Header>);

/// The rank of a trace: as it says, else as its file is called.
pub(super) fn said_rank((path, _, header): &Opening) -> Option<Rank> {
    let of_header = header.distributed.as_ref().and_then(|distributed| distributed.rank);
    of_header.or_else(|| rank_in_name(path))
}

/// What PyTorch's handler calls a process in the name of a file, which has the time, too: `WORKER.TIME.pt.trace.json`.
pub(super) fn worker(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    let name = name.strip_suffix(".gz").unwrap_or(name).strip_suffix(".pt.trace.json")?;
    let (worker, time) = name.rsplit_once('.')?;
    time.parse::<u64>().is_ok().then_some(worker)
}

/// The host and the process, where the program gives the process no other name: `HOST_PID`.
pub(super) fn host_and_pid(path: &Path) -> Option<(&str, u32)> {
    let (host, pid) = worker(path)?.rsplit_once('_')?;
    Some((host, pid.parse().ok()?))
}

/// The host and the process that a trace is of, as far as it is known.
pub(super) fn process(path: &Path, header: &Header) -> (String, u32) {
    let (host, pid) = host_and_pid(path).unwrap_or(("unknown", 0));
    (header.host.as_deref().unwrap_or(host).to_owned(), pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_in_the_names_of_files() {
        let named = |name| host_and_pid(Path::new(name));
        let found = Some(("node_1.example.org", 4711));
        assert_eq!(named("node_1.example.org_4711.1700000000000.pt.trace.json.gz"), found);
        assert_eq!(named("rank0.json.gz"), None);
        assert_eq!(named("node.pt.trace.json"), None);
        assert_eq!(worker(Path::new("worker0.1700000000000.pt.trace.json")), Some("worker0"));
        assert_eq!(worker(Path::new("worker0.first.pt.trace.json")), None);
    }
}
