//! The comparison for a browser: one file, with waterfalls and both timelines, that asks nothing of the network.

pub(super) mod scaling;
mod waterfall;

use anyhow::Result;
use stepscope_analyzer::{Diff, Profile, Selection, analyze_with_overlay};

use super::{
    answer,
    tables::{Room, tables},
};
use crate::{
    analyze::html::Timeline,
    render::{
        html::{self, Section, escaped, prose},
        table::Topic,
    },
};

const ROOM: Room = Room { causes: 100, kernels: 200 };

pub(super) fn written(base: &Profile<'_>, other: &Profile<'_>, selection: &Selection, diff: &Diff) -> Result<String> {
    let tables = tables(diff, ROOM);
    let of = |topic: Topic| tables.iter().filter(|table| table.topic == topic).map(html::table).collect::<String>();
    let sections = [
        Section::new("Time", waterfall::of_time(diff)? + &of(Topic::Time)),
        Section::new("Timelines", timelines(base, other, selection)?),
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
        text += &format!("<dt>{}</dt><dd>{}</dd>\n", fact.about, prose(&fact.says));
    }
    text + "</dl>\n</header>\n"
}

/// Both timelines, which open at one step each, as long as the longer one.
fn timelines(base: &Profile<'_>, other: &Profile<'_>, selection: &Selection) -> Result<String> {
    let step = |profile: &Profile<'_>| Timeline::first_step(&profile.analysis);
    let length = |profile: &Profile<'_>| step(profile).map_or(0, |step| Timeline::length_of(&profile.analysis, step));
    let least_ns = length(base).max(length(other));
    let mut text = String::new();
    for profile in [base, other] {
        let (analysis, overlay) = analyze_with_overlay(profile.run, selection, &|_| {})?;
        let timeline = Timeline::of(profile.run, &analysis, &overlay, least_ns)?;
        let opens = step(profile).map_or_else(String::new, |step| format!(": opens at step {step}"));
        if !timeline.html.is_empty() {
            text += &format!("<h3>{}{opens}</h3>\n{}", escaped(&profile.name), timeline.html);
        }
    }
    Ok(text)
}
