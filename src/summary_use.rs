//! Says on stderr where summaries were read instead of what was recorded, and which were passed over.

use std::io::Write;

use anstyle::AnsiColor;
use stepscope_plan::text;
use stepscope_traces::{RankDirectory, SummaryError, SummaryUse};

use crate::folded::Folded;

/// Says it of some ranks that were read.
pub(crate) fn tell<'a>(ranks: impl Iterator<Item = &'a RankDirectory> + Clone) {
    let passed_over = ranks.clone().filter_map(|rank| match rank.summary_use()? {
        SummaryUse::Read | SummaryUse::OfJob | SummaryUse::ReadAgain => None,
        SummaryUse::PassedOver(why @ SummaryError::Unreadable(_)) => Some((rank.info.rank, why.to_string())),
        SummaryUse::PassedOver(why) => Some((rank.info.rank, format!("{why}; `stepscope summarize` writes it again"))),
    });
    for line in Folded::of(passed_over).lines() {
        warn(&format!("the summary is not used for {line}"));
    }
    let all = || text::counted(ranks.clone().count() as u64, "rank");
    let read = ranks.clone().filter(|rank| matches!(rank.summary_use(), Some(SummaryUse::Read))).count();
    if read > 0 {
        say(&format!("read from summaries: {read} of {}", all()));
    } else if ranks.clone().any(|rank| matches!(rank.summary_use(), Some(SummaryUse::OfJob))) {
        say(&format!("read from the summary of all {}", all()));
    }
}

/// Writes a line.
fn say(what: &str) {
    // A closed stderr leaves nobody to tell.
    drop(writeln!(anstream::stderr().lock(), "{what}"));
}

/// Writes a warning.
pub(crate) fn warn(what: &str) {
    let yellow = AnsiColor::Yellow.on_default().bold();
    // A closed stderr leaves nobody to tell.
    drop(writeln!(anstream::stderr().lock(), "{yellow}warning:{yellow:#} {}", text::printable(what)));
}
