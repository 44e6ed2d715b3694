//! The report for a browser: one file, with plots, that asks nothing of the network.

mod critical_path;
mod headline;
mod memory;
mod message_sizes;
mod modules;
mod pipeline;
mod rank_map;
mod roofline;
mod step_axis;
mod time_bars;
mod timeline;
mod trends;

use anyhow::Result;
use stepscope_analyzer::{Analysis, Overlay, RankWork, StepFigures, step_passes};
use stepscope_traces::{Rank, Run, Step};

use super::{
    brief, report,
    tables::{Room, tables},
    waterfall,
};
use crate::render::{
    html::{self, Section, beside, escaped, prose},
    table::{Table, Topic},
};

pub(crate) use timeline::Timeline;

const ROOM: Room = Room { ranks: 256, steps: 200, kernels: 200 };
/// Stages whose passes are drawn.
const DRAWN_STAGES: usize = 32;

pub(super) fn written(run: &Run, analysis: &Analysis, overlay: &Overlay) -> Result<String> {
    let timeline = Timeline::of(run, analysis, overlay, 0)?;
    let step = Timeline::first_step(analysis);
    let pipelined = match step.filter(|_| analysis.pipeline.is_some()) {
        Some(step) => pipeline::plot(analysis, step, &passes(run, analysis, step)?)?,
        None => String::new(),
    };
    let mut tables = tables(analysis, ROOM);
    tables.retain(|table| table.topic != Topic::Waterfall);
    let mut section = |title: &str, topic: Topic, plots: String| {
        let (ours, others) = std::mem::take(&mut tables).into_iter().partition(|table: &Table| table.topic == topic);
        tables = others;
        let ours: Vec<Table> = ours;
        let written: String = ours.iter().map(html::table).collect();
        Section::new(title, beside(&(plots + &written)))
    };
    let sections = [
        Section::new("Waterfall", waterfall::plot(analysis)),
        Section::new("Findings", findings(analysis, &timeline)),
        section("Hang", Topic::Waiting, String::new()),
        Section::new("Timeline", timeline.html.clone()),
        section(
            "Time",
            Topic::Time,
            time_bars::of_steps(analysis)?
                + &time_bars::of_ranks(analysis)?
                + &trends::of_steps(analysis)?
                + &rank_map::plot(analysis),
        ),
        section("Memory", Topic::Memory, memory::plots(analysis)?),
        section("Pipeline", Topic::Pipeline, pipelined),
        section("Communication", Topic::Communication, message_sizes::plot(analysis)?),
        section("Kernels", Topic::Kernels, roofline::plot(analysis)? + &modules::graph(analysis)),
        section("Devices", Topic::Devices, trends::of_devices(analysis)?),
    ];
    let sections: Vec<Section> = sections.into_iter().flatten().collect();
    Ok(html::page(&analysis.run.name, &head(analysis), &sections))
}

/// The passes of the stages of a pipeline in a step.
fn passes(run: &Run, analysis: &Analysis, step: Step) -> Result<Vec<RankWork>> {
    let ranks: Vec<Rank> = pipeline::ranks(analysis).into_iter().take(DRAWN_STAGES).collect();
    let wanted = |figures: &&StepFigures| ranks.contains(&figures.rank);
    let figures: Vec<StepFigures> = analysis.steps.iter().filter(wanted).cloned().collect();
    let Some(pipeline) = &analysis.pipeline else { return Ok(Vec::new()) };
    let passes = step_passes(run, step, &figures)?;
    Ok(passes.into_iter().map(|work| work.with_weights(pipeline.schedule)).collect())
}

fn head(analysis: &Analysis) -> String {
    let run = &analysis.run;
    let (name, state) = (escaped(&run.name), run.state.word());
    let about = escaped(&report::what_was_run(analysis));
    let mut text = format!("<header>\n<h1>{name} <span class=\"state {state}\">{state}</span></h1>\n<p>{about}</p>\n");
    if let Some(lost) = report::loss(analysis) {
        text += &format!("<p class=\"lost\"><strong>Lost:</strong> {}</p>\n", escaped(&lost));
    }
    text += &headline::written(analysis);
    text += "<dl>\n";
    for fact in report::facts(analysis) {
        text += &format!("<dt>{}</dt><dd>{}</dd>\n", fact.about, prose(&fact.says));
    }
    text + "</dl>\n</header>\n"
}

fn findings(analysis: &Analysis, timeline: &Timeline) -> String {
    if analysis.findings.is_empty() {
        return "<p>Nothing stands out.</p>\n".into();
    }
    let mut text = "<ol class=\"findings\">\n".to_owned();
    for finding in &analysis.findings {
        let what = format!("{}{}", finding.summary, brief::win(analysis, finding));
        let [what, evidence, advice] = [&what, &finding.evidence.text, &finding.advice].map(|part| prose(part));
        let link = timeline.link(analysis, &finding.evidence);
        text +=
            &format!("<li><strong>{what}</strong> {link}<p>{evidence}</p><p class=\"advice\">Try: {advice}</p></li>\n");
    }
    text + "</ol>\n"
}
