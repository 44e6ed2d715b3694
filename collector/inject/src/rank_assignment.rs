//! Which rank of the run this process is. No two processes are the same one, whatever they are told.

use std::path::Path;

use stepscope_collector::{RecordError, Recorder};
use stepscope_traces::{CollectorSource, Rank, RankFrom, RankInfo, TraceError};

use crate::process::{self, Given};

/// A job has fewer processes that use CUDA.
const MOST_RANKS: u32 = 100_000;

/// Begins to record this process, as the rank it was given or else the first that is free.
///
/// A job has processes beside its ranks, workers that load data perhaps, which inherit a rank's variables. Whoever comes
/// first has the number; the others come after all ranks.
pub(crate) fn take(run: &Path, given: Option<Given>) -> Result<Recorder, RecordError> {
    let mut ranks = wanted(given);
    loop {
        let Some((rank, from)) = ranks.next() else { return Err(RecordError::EndedEarly) };
        let mut info = RankInfo::of_this_process(rank);
        info.collector.source = Some(CollectorSource::Injected);
        info.collector.rank_from = Some(from);
        info.collector.program = process::command_line();
        match Recorder::start(run, info) {
            Err(RecordError::Trace(TraceError::AlreadyRecorded { .. })) => {}
            outcome => return outcome,
        }
    }
}

/// The ranks to try, in order, and where each comes from.
fn wanted(given: Option<Given>) -> impl Iterator<Item = (Rank, RankFrom)> {
    let first = given.map(|given| (Rank(given.rank), RankFrom::Variable(given.variable.to_owned())));
    let beyond = given.map_or(0, |given| given.ranks.unwrap_or(0).max(given.rank.saturating_add(1)));
    let others = (beyond..beyond.saturating_add(MOST_RANKS)).map(move |rank| {
        let from = match given {
            Some(Given { rank, variable, .. }) => RankFrom::Taken { variable: variable.to_owned(), wanted: Rank(rank) },
            None => RankFrom::Order,
        };
        (Rank(rank), from)
    });
    first.into_iter().chain(others)
}

#[cfg(test)]
mod tests {
    use stepscope_traces::{Run, RunInfo};

    use super::*;

    #[test]
    fn processes_take_ranks_that_nobody_has() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run");
        RunInfo::of_this_process("test").create(&path).unwrap();
        let given = |rank| Some(Given { rank, variable: "RANK", ranks: Some(4) });
        let told = [given(1), None, given(1), None, given(1), given(0)];
        let recorders: Vec<Recorder> = told.map(|given| take(&path, given).unwrap()).into();
        recorders.into_iter().for_each(|recorder| recorder.finish().unwrap());
        let run = Run::open(&path).unwrap();
        let from = |rank: u32| run.rank(Rank(rank)).unwrap().info.collector.rank_from.clone().unwrap();
        let ranks: Vec<u32> = run.ranks.iter().map(|rank| rank.info.rank.0).collect();
        assert_eq!(ranks, [0, 1, 2, 4, 5, 6]);
        assert_eq!([from(1), from(0), from(2)], [RankFrom::Variable("RANK".into()), RankFrom::Order, RankFrom::Order]);
        let taken = |wanted| RankFrom::Taken { variable: "RANK".into(), wanted: Rank(wanted) };
        assert_eq!([from(4), from(6)], [taken(1), taken(0)]);
    }

    #[test]
    fn processes_that_come_at_once_do_not_collide() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run");
        RunInfo::of_this_process("test").create(&path).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| take(&path, None).unwrap().finish().unwrap());
            }
        });
        let ranks: Vec<u32> = Run::open(&path).unwrap().ranks.iter().map(|rank| rank.info.rank.0).collect();
        assert_eq!(ranks, (0..8).collect::<Vec<u32>>());
    }

    #[test]
    fn a_run_that_is_not_there_is_no_reason_to_look_further() {
        assert!(matches!(take(Path::new("/no/such/run"), None), Err(RecordError::Trace(TraceError::Missing { .. }))));
    }
}
