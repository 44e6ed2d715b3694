//! A run as tables in Parquet files, for SQL and data frames: what was recorded, and what the analysis says of it.
//!
//! `TABLE/run=NAME/rank=N/part-0.parquet`: readers take `run` and `rank` from the path, and need not open what they do not
//! look for. Tables of the whole run have no `rank=`. A run has the name of its directory.

mod field;
mod figures;
mod partition;
mod recorded;
mod table_file;
mod words;

use std::path::PathBuf;

use anyhow::Result;
use stepscope_analyzer::{analyze_with_overlay, chosen_ranks};
use stepscope_plan::text;
use stepscope_traces::Run;

use self::{figures::Steps, partition::Partition, recorded::Rows};
use super::{Wanted, missing};
use crate::{output::WholeDirectory, progress};

/// What was exported.
pub(super) struct Exported {
    name: String,
    ranks: u64,
    world_size: Option<u32>,
    rows: Rows,
    bytes: u64,
    /// What the run should have and does not.
    missing: Vec<(&'static str, String)>,
}

/// Writes a run into a directory that was checked: all of it, or nothing.
pub(super) fn export(run: &Run, wanted: &Wanted, target: PathBuf) -> Result<Exported> {
    chosen_ranks(run, &wanted.ranks)?;
    let analyze = |progress: &(dyn Fn(usize) + Sync)| analyze_with_overlay(run, &wanted.selection, progress);
    let (analysis, mut overlay) = progress::shown(run.ranks.iter(), analyze)?;
    // Figures are of all ranks, whichever are written. Links are for pictures.
    overlay.leave(|rank| wanted.draws(rank));
    overlay.ranks.iter_mut().for_each(|rank| rank.links = Vec::new());
    let directory = WholeDirectory::begin(target)?;
    let of_run = Partition::of_run(&directory, run);
    figures::write(run, &analysis, &of_run)?;
    let steps = Steps::of(&analysis);
    let mut rows = Rows::default();
    for (done, seen) in overlay.ranks.iter().enumerate() {
        progress::of_ranks("writing", done, overlay.ranks.len());
        let of_rank = of_run.of_rank(seen.rank);
        steps.write(seen.rank, |step| wanted.selection.steps.may_have(Some(step)), &of_rank)?;
        if let Some(rank) = run.rank(seen.rank) {
            rows += recorded::write(rank, seen, wanted, &of_rank)?;
        }
    }
    progress::of_ranks("writing", overlay.ranks.len(), overlay.ranks.len());
    directory.end_if_interrupted();
    let bytes = directory.bytes();
    directory.finish()?;
    Ok(Exported {
        name: run.info.name.clone(),
        ranks: overlay.ranks.len() as u64,
        world_size: run.info.world_size,
        rows,
        bytes,
        missing: missing::lines(run, &analysis, &overlay, "the tables cover"),
    })
}

impl Exported {
    /// What was exported, and what is missing, for people.
    pub(super) fn summary(&self) -> String {
        let ranks = text::ranks(self.ranks, self.world_size);
        let Rows { spans, memory, counters } = self.rows;
        let rows = [(spans, "span"), (memory, "memory event"), (counters, "sample")];
        let rows = rows.map(|(count, what)| text::counted(count, what)).join(", ");
        let name = text::printable(&self.name);
        let mut summary = format!("exported  {name}, {ranks}: {rows}, {}\n", text::bytes(self.bytes));
        for (what, says) in &self.missing {
            summary += &format!("{what:<10}{says}\n");
        }
        summary
    }
}
