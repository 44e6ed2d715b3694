//! Which process is which rank, once it is known which of them did something.
//!
//! A launcher that asks CUDA something before it starts the ranks, as torchrun's own process does, has nothing that says
//! its rank, and so has the first number; the process that was told to have that number then came after all others.

use std::{fs, io, path::Path};

use stepscope_traces::{RankDirectory, RankFrom, Run, Spans, State, TraceError, Window};

/// Gives ranks the numbers that they were told, where those who have them did nothing. Nothing is lost: they change
/// places.
pub(super) fn settle(path: &Path) -> Result<(), TraceError> {
    let run = Run::open(path)?;
    if run.state() == State::Recording {
        return Ok(());
    }
    for displaced in &run.ranks {
        let Some(RankFrom::Taken { wanted, .. }) = displaced.info.collector.rank_from else { continue };
        if let Some(idle) = run.ranks.iter().find(|rank| rank.info.rank == wanted)
            && idle.info.collector.rank_from == Some(RankFrom::Order)
            && !did_anything(idle)?
        {
            swap(idle, displaced).map_err(|source| TraceError::Io {
                action: "rename",
                path: displaced.path.clone(),
                source,
            })?;
        }
    }
    Ok(())
}

fn did_anything(rank: &RankDirectory) -> Result<bool, TraceError> {
    let (mut activity, mut memory) = (false, false);
    let spans = |_: &_, spans: &Spans| activity |= spans.rows().any(|span| !span.kind.is_annotation());
    rank.read_in_pieces(Window::ALL, spans, |events| memory |= events.rows().next().is_some())?;
    Ok(activity || memory)
}

/// A rank's number is its directory's.
fn swap(one: &RankDirectory, other: &RankDirectory) -> io::Result<()> {
    let aside = one.path.with_extension("aside");
    fs::rename(&one.path, &aside)?;
    fs::rename(&other.path, &one.path)?;
    fs::rename(&aside, &other.path)
}

#[cfg(test)]
mod tests {
    use stepscope_traces::{FIRST_NAME, Nanos, Rank, RankInfo, RankWriter, RunInfo, Span, SpanKind};

    use super::*;

    /// A rank with a kernel, or without; `pid` says who it is.
    fn record(run: &Path, rank: u32, from: RankFrom, pid: u32, kernel: bool) {
        let mut info = RankInfo::of_this_process(Rank(rank));
        info.collector.rank_from = Some(from);
        info.pid = pid;
        let mut writer = RankWriter::create(run, info).unwrap();
        writer.push_name(FIRST_NAME, "matmul").unwrap();
        let kind = if kernel { SpanKind::Kernel } else { SpanKind::Range };
        writer.push_span(&Span::new(kind, FIRST_NAME, Nanos(1), Nanos(1))).unwrap();
        writer.finish().unwrap();
    }

    fn settled(launcher_computes: bool) -> Vec<(u32, u32)> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run");
        RunInfo::of_this_process("job").create(&path).unwrap();
        record(&path, 0, RankFrom::Order, 100, launcher_computes);
        record(&path, 1, RankFrom::Variable("RANK".into()), 101, true);
        let taken = RankFrom::Taken { variable: "RANK".into(), wanted: Rank(0) };
        record(&path, 2, taken, 102, true);
        settle(&path).unwrap();
        Run::open(&path).unwrap().ranks.iter().map(|rank| (rank.info.rank.0, rank.info.pid)).collect()
    }

    #[test]
    fn a_launcher_that_did_nothing_gives_its_number_to_the_rank_that_was_told_it() {
        assert_eq!(settled(false), [(0, 102), (1, 101), (2, 100)]);
    }

    #[test]
    fn whoever_computed_keeps_its_number() {
        assert_eq!(settled(true), [(0, 100), (1, 101), (2, 102)]);
    }
}
