//! What is in object storage, as files of this machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use anyhow::{Result, anyhow};
use stepscope_collector::cache;
use stepscope_plan::text;
use stepscope_storage::{Brought, StorageError, bring};
use stepscope_traces::{RankDirectory, Run};

use super::say;
use crate::{analyze::ranges::RankList, progress::Bar};

/// The kind of folder, in the user's cache, that has copies.
const FOLDER: &str = "object-storage";
/// Of a recorded process with more spans than this nobody has to look into them to know that it is a rank.
const LITTLE: u64 = 256 << 10;

/// Where copies are that this program made, and of what. People know the URL that they named.
static COPIES: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// Whether the tables of a rank are needed, by the number of its directory and the bytes of its spans.
type IsChosen<'a> = dyn Fn(u32, u64) -> bool + 'a;

/// Fetches what is not here already, and says how much that was; of a run, the tables of some ranks. Where it is now.
pub(crate) fn fetch(source: &Path, ranks: Option<&RankList>) -> Result<PathBuf> {
    let place = super::location(source)?;
    let folder = cache::in_folder(FOLDER, |folder| Ok(folder.to_owned()));
    let folder = folder.map_err(|error| anyhow!("cannot keep a copy of {place}: {error}"))?;
    let bar = Bar::new("fetching");
    let bring = |is_chosen: &IsChosen<'_>| bring(&place, &folder, is_chosen, &|done, all| bar.show(done, all));
    let brought = match ranks {
        None => bring(&|_, _| true),
        Some(ranks) => bring_ranks(ranks, &bring),
    }?;
    drop(bar);
    let mut copies = COPIES.lock().unwrap_or_else(PoisonError::into_inner);
    copies.insert(brought.path.to_string_lossy().into_owned(), place.to_string());
    if brought.objects > 0 {
        let (objects, bytes) = (text::counted(brought.objects as u64, "object"), text::bytes(brought.bytes));
        say("fetched", &format!("{place}: {objects}, {bytes}"));
    }
    Ok(brought.path)
}

/// A text in which copies have the names of what they are copies of.
pub(crate) fn with_urls(text: &str) -> String {
    let copies = COPIES.lock().unwrap_or_else(PoisonError::into_inner);
    copies.iter().rev().fold(text.to_owned(), |text, (copy, url)| text.replace(copy, url))
}

/// Brings the tables of some ranks, and what all ranks say of themselves: which rank a recorded process is, is known only from
/// all of them.
fn bring_ranks(
    ranks: &RankList,
    bring: &dyn Fn(&IsChosen<'_>) -> Result<Brought, StorageError>,
) -> Result<Brought, StorageError> {
    let described = bring(&|_, _| false)?;
    // Traces of other tools are here, all of them. What else cannot be opened is told by whoever reads it.
    let Ok(run) = Run::open(&described.path) else { return Ok(described) };
    let may_help: BTreeSet<u32> =
        run.ranks.iter().filter(|rank| rank.info.collector.rank_from.is_some()).filter_map(number).collect();
    let may_help = |rank: u32, spans: u64| spans <= LITTLE && may_help.contains(&rank);
    let looked_at = bring(&may_help)?;
    let Ok(run) = Run::open(&looked_at.path) else { return Ok(looked_at) };
    let chosen: BTreeSet<u32> =
        run.ranks.iter().filter(|rank| ranks.has(rank.info.rank.0)).filter_map(number).collect();
    let brought = bring(&|rank, spans| chosen.contains(&rank) || may_help(rank, spans))?;
    let parts = [described, looked_at, brought];
    Ok(Brought {
        objects: parts.iter().map(|part| part.objects).sum(),
        bytes: parts.iter().map(|part| part.bytes).sum(),
        path: parts.into_iter().map(|part| part.path).next_back().unwrap_or_default(),
    })
}

/// The number in the name of a rank's directory, which may be another than the rank's.
fn number(rank: &RankDirectory) -> Option<u32> {
    rank.path.file_name()?.to_str()?.strip_prefix("rank-")?.parse().ok()
}
