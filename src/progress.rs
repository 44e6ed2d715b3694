//! A bar on stderr while a long run is read.

use std::{
    fs,
    io::{IsTerminal, Write, stderr},
};

use stepscope_traces::RankDirectory;

/// Less than this is read before anybody looks.
const LONG: u64 = 32 << 20;
/// Of other tools' traces too, which are packed text.
const LONG_TRACE: u64 = 4 << 20;
const WIDTH: usize = 24;

/// A bar: how many of something are done.
pub(crate) fn bar(doing: &str, done: usize, all: usize, what: &str) -> String {
    let filled = WIDTH * done.min(all) / all.max(1);
    format!("{doing}  {}{}  {done} of {all} {what}", "█".repeat(filled), "░".repeat(WIDTH - filled))
}

/// Does some work that tells how many of these ranks are done, and shows that where there is somebody to see it.
pub(crate) fn shown<'a, T>(
    ranks: impl Iterator<Item = &'a RankDirectory> + Clone,
    work: impl FnOnce(&(dyn Fn(usize) + Sync)) -> T,
) -> T {
    let bytes = |path| fs::metadata(path).map_or(0, |file| file.len());
    let is_long = |rank: &RankDirectory| match rank.path.is_dir() {
        true => {
            ["spans.arrows", "memory.arrows"].map(|file| bytes(rank.path.join(file))).iter().sum::<u64>() as f64
                / LONG as f64
        }
        false => bytes(rank.path.clone()) as f64 / LONG_TRACE as f64,
    };
    if ranks.clone().map(is_long).sum::<f64>() < 1.0 || !stderr().is_terminal() {
        return work(&|_| {});
    }
    let all = ranks.count();
    let say = |text: &str| {
        let mut stderr = stderr().lock();
        // A closed stderr leaves nobody to tell.
        drop(write!(stderr, "\r{text}").and_then(|()| stderr.flush()));
    };
    let show = |done: usize| {
        say(&bar("reading", done, all, "ranks"));
    };
    show(0);
    let result = work(&show);
    say("\u{1b}[K");
    result
}
