//! A bar on stderr while a long run is read.

use std::{
    fs,
    io::{IsTerminal, Write, stderr},
};

use stepscope_analyzer::Selection;
use stepscope_traces::{Rank, Run};

/// Less than this is read before anybody looks.
const LONG: u64 = 32 << 20;
const WIDTH: usize = 40;

/// Does some work that tells how many ranks are done, and shows that where there is somebody to see it.
pub(super) fn shown<T>(run: &Run, selection: &Selection, work: impl FnOnce(&(dyn Fn(usize) + Sync)) -> T) -> T {
    let chosen = |rank: Rank| selection.ranks.is_empty() || selection.ranks.contains(&rank);
    let ranks = || run.ranks.iter().filter(|rank| chosen(rank.info.rank));
    let files = || ranks().flat_map(|rank| ["spans.arrows", "memory.arrows"].map(|file| rank.path.join(file)));
    let long = files().filter_map(|file| fs::metadata(file).ok()).map(|file| file.len()).sum::<u64>() > LONG;
    if !(long && stderr().is_terminal()) {
        return work(&|_| {});
    }
    let all = ranks().count();
    let say = |text: &str| {
        let mut stderr = stderr().lock();
        // A closed stderr leaves nobody to tell.
        drop(write!(stderr, "\r{text}").and_then(|()| stderr.flush()));
    };
    let show = |done: usize| {
        let filled = WIDTH * done / all.max(1);
        say(&format!("reading  {}{}  {done} of {all} ranks", "█".repeat(filled), "░".repeat(WIDTH - filled)));
    };
    show(0);
    let result = work(&show);
    say("\u{1b}[K");
    result
}
