//! A bar on stderr while a long run is read.

use std::{
    cell::Cell,
    io::{IsTerminal, Write, stderr},
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use stepscope_plan::text;
use stepscope_traces::RankDirectory;

use crate::summary_use;

/// Less than this is read before anybody looks.
const LONG: u64 = 32 << 20;
/// Of other tools' traces too, which are packed text.
const LONG_TRACE: u64 = 4 << 20;
const WIDTH: usize = 24;
/// How often it is looked at how far reading is.
const PAUSE: Duration = Duration::from_millis(100);

/// A bar: how many of something are done.
pub(crate) fn bar(doing: &str, done: usize, all: usize, what: &str) -> String {
    format!("{doing}  {}  {done} of {all} {what}", filled(done as u64, all as u64))
}

/// A bar: how many bytes are done.
fn bar_of_bytes(doing: &str, read: u64, all: u64) -> String {
    let share = text::percent(read.min(all) as f64 / all.max(1) as f64);
    format!("{doing}  {}  {share} of {}", filled(read, all), text::bytes(all))
}

fn filled(done: u64, all: u64) -> String {
    let filled = (WIDTH as u128 * u128::from(done.min(all)) / u128::from(all.max(1))) as usize;
    "█".repeat(filled) + &"░".repeat(WIDTH - filled)
}

/// A bar that moves as bytes are copied, where there is somebody to see it. It goes when the copying is over.
pub(crate) struct Bar {
    doing: &'static str,
    shown: Cell<Option<Instant>>,
}

impl Bar {
    pub(crate) fn new(doing: &'static str) -> Bar {
        Bar { doing, shown: Cell::new(None) }
    }

    /// Moves it, ten times a second at most.
    pub(crate) fn show(&self, done: u64, all: u64) {
        if self.shown.get().is_none_or(|shown| shown.elapsed() >= PAUSE) && stderr().is_terminal() {
            self.shown.set(Some(Instant::now()));
            say(&format!("{}  ", bar_of_bytes(self.doing, done, all)));
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.shown.get().is_some() {
            say("\u{1b}[K");
        }
    }
}

/// Does some work that reads these ranks and tells when one is done, and shows how much of them is read where there is
/// somebody to see it. Afterwards it says whose summaries were read instead.
pub(crate) fn shown<'a, T>(
    ranks: impl Iterator<Item = &'a RankDirectory> + Clone,
    work: impl FnOnce(&(dyn Fn(usize) + Sync)) -> T,
) -> T {
    let result = with_bar(ranks.clone(), work);
    summary_use::tell(ranks);
    result
}

/// The same, of which nobody asks whose summaries were read.
pub(crate) fn with_bar<'a, T>(
    ranks: impl Iterator<Item = &'a RankDirectory>,
    work: impl FnOnce(&(dyn Fn(usize) + Sync)) -> T,
) -> T {
    let ranks: Vec<(&RankDirectory, u64)> = ranks.map(|rank| (rank, rank.bytes())).collect();
    let length = |(rank, bytes): &(&RankDirectory, u64)| {
        *bytes as f64 / if rank.path.is_dir() { LONG } else { LONG_TRACE } as f64
    };
    if ranks.iter().map(length).sum::<f64>() < 1.0 || !stderr().is_terminal() {
        return work(&|_| {});
    }
    let all: u64 = ranks.iter().map(|(_, bytes)| bytes).sum();
    let show = || {
        let read = ranks.iter().map(|(rank, bytes)| rank.bytes_read().min(*bytes)).sum();
        // Spaces cover what a longer line left.
        say(&format!("{}  ", bar_of_bytes("reading", read, all)));
    };
    let (is_done, done) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(|| {
            let done = done;
            show();
            while done.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                show();
            }
            say("\u{1b}[K");
        });
        let result = work(&|_| show());
        drop(is_done);
        result
    })
}

/// Shows how many ranks are done, where there are several and somebody to see it.
pub(crate) fn of_ranks(doing: &str, done: usize, all: usize) {
    if all > 1 && stderr().is_terminal() {
        say(&if done < all { bar(doing, done, all, "ranks") + "  " } else { "\u{1b}[K".into() });
    }
}

fn say(text: &str) {
    let mut stderr = stderr().lock();
    // A closed stderr leaves nobody to tell.
    drop(write!(stderr, "\r{text}").and_then(|()| stderr.flush()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_filled_by_what_is_done() {
        assert_eq!(
            bar("training", 1, 4, "runs"),
            format!("training  {}{}  1 of 4 runs", "█".repeat(6), "░".repeat(18))
        );
        assert_eq!(bar_of_bytes("reading", 0, 0), format!("reading  {}  0.0% of 0 B", "░".repeat(24)));
        let half = bar_of_bytes("reading", 1_500_000_000, 3_000_000_000);
        assert_eq!(half, format!("reading  {}{}  50.0% of 3.0 GB", "█".repeat(12), "░".repeat(12)));
        assert!(bar_of_bytes("reading", 7, 5).contains("100.0%"), "a file that shrank");
    }
}
