//! Does something with ranks on all cores.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, available_parallelism},
};

use stepscope_traces::RankDirectory;

use crate::error::AnalysisError;

/// Does something with each rank, on all cores; the results are in the order of the ranks. Each is done with before its core
/// begins another one, so that memory does not grow with the run. `progress` is told how many are done, from the threads that
/// do them.
pub(crate) fn each_rank<T: Send>(
    ranks: &[&RankDirectory],
    progress: &(dyn Fn(usize) + Sync),
    work: impl Fn(&RankDirectory) -> T + Sync,
) -> Result<Vec<T>, AnalysisError> {
    let threads = available_parallelism().map_or(1, usize::from).min(ranks.len());
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results = Mutex::new(Vec::new());
    let run = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(rank) = ranks.get(place) else { break };
            let result = work(rank);
            results.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((place, result));
            progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    let panicked = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        // Every one is waited for.
        threads.into_iter().filter_map(|thread| thread.join().err()).count() > 0
    });
    if panicked {
        return Err(AnalysisError::Panicked);
    }
    let mut results = results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    results.sort_by_key(|(place, _)| *place);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}
