//! The comparison for a browser: one file, with waterfalls and both timelines, that asks nothing of the network.

pub(super) mod scaling;
mod waterfall;

use anyhow::Result;
use stepscope_analyzer::{Diff, Profile, StepTimeline};

use super::{
    answer,
    tables::{Room, tables},
};
use crate::{
    analyze::html::step as step_of,
    render::{
        html::{self, Section, escaped, timeline as streams, timeline::Shown},
        table::Topic,
    },
};

const ROOM: Room = Room { causes: 100, kernels: 200 };

pub(super) fn written(base: &Profile<'_>, other: &Profile<'_>, diff: &Diff) -> Result<String> {
    let tables = tables(diff, ROOM);
    let of = |topic: Topic| tables.iter().filter(|table| table.topic == topic).map(html::table).collect::<String>();
    let sections = [
        Section::new("Time", waterfall::of_time(diff)? + &of(Topic::Time)),
        Section::new("Timelines", timelines(base, other)?),
        Section::new("Memory", waterfall::of_memory(diff)? + &of(Topic::Memory)),
        Section::new("Metrics", of(Topic::Figures)),
        Section::new("Kernels", of(Topic::Kernels)),
    ];
    let sections: Vec<Section> = sections.into_iter().flatten().collect();
    Ok(html::page(&format!("{} and {}", diff.base, diff.other), &head(diff), &sections))
}

fn head(diff: &Diff) -> String {
    let (base, other) = (escaped(&diff.base), escaped(&diff.other));
    let mut text =
        format!("<header>\n<h1>{}</h1>\n<p>{other} compared with {base}</p>\n", escaped(&answer::answer(diff)));
    if !diff.comparable {
        let why = escaped(&diff.why_not.join("; "));
        text += &format!("<p class=\"lost\"><strong>Not comparable, compared anyway:</strong> {why}</p>\n");
    }
    text += "<dl>\n";
    for fact in answer::facts(diff) {
        text += &format!("<dt>{}</dt><dd>{}</dd>\n", fact.about, escaped(&fact.says));
    }
    text + "</dl>\n</header>\n"
}

/// The median step of both, as wide as the longer one.
fn timelines(base: &Profile<'_>, other: &Profile<'_>) -> Result<String> {
    let mut read: Vec<(&Profile<'_>, StepTimeline)> = Vec::new();
    for profile in [base, other] {
        if let Some(time) = &profile.analysis.step_time {
            read.push((profile, step_of(profile.run, &profile.analysis, time.median_step)?));
        }
    }
    let length = read.iter().map(|(_, step)| step.duration_ns).max().unwrap_or(0);
    let plot = |(profile, step): &(&Profile<'_>, StepTimeline)| {
        let title = format!("{}: step {} by rank and stream", profile.name, step.step);
        streams::plot(step, Shown { title, which: "median step", length_ns: length })
    };
    read.iter().map(plot).collect()
}
