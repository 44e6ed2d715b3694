//! `stepscope inspect`: what is in a run.

use std::{collections::BTreeSet, io::Write, path::PathBuf};

use anstyle::{AnsiColor, Style};
use anyhow::Result;
use serde::Serialize;
use stepscope_analyzer::{RunLayout, Selection, analyze, paused, recording};
use stepscope_plan::text;
use stepscope_traces::{
    Device, Loss, Nanos, Rank, RankDirectory, RankInfo, RankReport, Run, RunInfo, RunSource, Stage, State, Survey,
    TableSurvey, TorchNotes,
};

use crate::{
    Format,
    folded::{Folded, named},
    own_profiler, recording_cost,
    render::json,
    source, terminal, torch_memory,
};

/// Show what a run contains: ranks, tables, row counts, state, data loss.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  stepscope inspect runs/2026-11-14T10-22-07-llama-tiny --format json")]
pub(crate) struct Arguments {
    /// A run directory, PyTorch profiler traces (*.json, *.json.gz), memory snapshots (*.pickle), Nsight Systems exports
    /// (*.sqlite), JAX profiles (*.xplane.pb), rocprofv3 JSON or databases, Flight Recorder dumps, or a
    /// directory of these
    /// [default: the newest run under runs/]
    #[arg(value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let run = source::open(&arguments.sources)?;
    let contents = Contents::of(&run, source::place(&arguments.sources, &run));
    let mut stdout = anstream::stdout().lock();
    match arguments.format {
        Format::Text => stdout.write_all(contents.text().as_bytes())?,
        Format::Json => write!(stdout, "{}", json::written(&contents)?)?,
    }
    Ok(stdout.flush()?)
}

const HEADERS: [&str; 10] =
    [">rank", "host", "device", "state", ">time", ">spans", ">memory", ">counters", ">size", ">bytes/span"];
/// Stands for an unknown value.
const UNKNOWN: &str = "-";
/// What other tools' traces have for a host.
const UNKNOWN_HOST: &str = "unknown";

/// What is in a run; its JSON is public.
#[derive(Serialize)]
struct Contents {
    schema: u32,
    path: String,
    state: State,
    run: RunInfo,
    /// How it is spread over ranks: as the run says, or as its ranks tell.
    layout: Option<RunLayout>,
    data_loss: Loss,
    ranks: Vec<RankContents>,
    /// Processes of the job that did nothing on a GPU, which are no ranks.
    helpers: Vec<HelperContents>,
}

#[derive(Serialize)]
struct HelperContents {
    host: String,
    pid: u32,
    program: Option<String>,
    state: State,
}

impl HelperContents {
    fn of(directory: &RankDirectory) -> HelperContents {
        let RankInfo { host, pid, collector, .. } = &directory.info;
        HelperContents { host: host.clone(), pid: *pid, program: collector.program.clone(), state: directory.state }
    }

    fn line(&self) -> String {
        let program =
            self.program.as_ref().map(|program| format!(" ({})", text::shortened(&text::printable(program), 60)));
        let state = if self.state == State::Complete { "" } else { self.state.word() };
        let state = if state.is_empty() { String::new() } else { format!(", {state}") };
        format!("no rank: process {}{} did nothing on a GPU{state}", self.pid, program.unwrap_or_default())
    }
}

#[derive(Serialize)]
struct RankContents {
    rank: Rank,
    host: String,
    pid: u32,
    device: Option<Device>,
    stage: Option<Stage>,
    state: State,
    reason: Option<String>,
    /// The first and last moment of any event, in the rank's clock.
    start_ns: Option<Nanos>,
    end_ns: Option<Nanos>,
    tables: Tables,
    data_loss: Loss,
    /// How long its summary is; none, where it has none.
    summary_bytes: Option<u64>,
    /// How PyTorch's memory was recorded, if it is a program of PyTorch's.
    torch_memory: Option<TorchNotes>,
    /// What `rank.json` says, for what is said of all ranks together.
    #[serde(skip)]
    info: RankInfo,
}

#[derive(Serialize)]
struct Tables {
    spans: TableContents,
    memory: TableContents,
    counters: TableContents,
    strings: TableContents,
}

#[derive(Serialize)]
struct TableContents {
    rows: u64,
    batches: u64,
    bytes: u64,
    bytes_per_row: Option<f64>,
}

impl From<TableSurvey> for TableContents {
    fn from(survey: TableSurvey) -> TableContents {
        let TableSurvey { rows, batches, bytes, .. } = survey;
        // The file of another tool's trace has much that is no row.
        let bytes_per_row = (rows > 0 && batches > 0).then(|| bytes as f64 / rows as f64);
        TableContents { rows, batches, bytes, bytes_per_row }
    }
}

/// How a run is spread over ranks. One that does not say so is analyzed; what cannot be is not known.
fn layout(run: &Run) -> Option<RunLayout> {
    match run.info.layout {
        Some(layout) => Some(layout.into()),
        None if run.ranks.len() < 2 => None,
        None => analyze(run, &Selection::default(), &|_| ()).ok()?.run.layout,
    }
}

impl Contents {
    fn of(run: &Run, path: String) -> Contents {
        let mut ranks: Vec<RankContents> = run.ranks.iter().map(RankContents::of).collect();
        // Ranks of one file share its bytes, which count once.
        let mut files = BTreeSet::new();
        for (rank, directory) in ranks.iter_mut().zip(&run.ranks) {
            if !files.insert(&directory.path) {
                rank.tables.spans.bytes = 0;
            }
        }
        let mut data_loss = Loss::default();
        ranks.iter().for_each(|rank| data_loss += rank.data_loss);
        let state = run.state();
        let helpers = run.helpers.iter().map(HelperContents::of).collect();
        Contents { schema: 1, path, state, run: run.info.clone(), layout: layout(run), data_loss, ranks, helpers }
    }

    fn text(&self) -> String {
        let run = &self.run;
        let mut text = format!("{}  {}\n", text::printable(&self.path), terminal::state(self.state));
        let ranks = text::ranks(self.ranks.len() as u64, run.world_size);
        // Some tools do not say the time of day.
        let started = Some(text::printable(&run.started)).filter(|started| !started.starts_with("1970-01-01"));
        let (started, host) = (started.unwrap_or("at an unknown time".into()), text::printable(&run.host));
        let by = match (run.source, run.source.other_tool()) {
            (_, None) => String::new(),
            (RunSource::TorchSnapshot, Some(tool)) => format!(", a {tool}"),
            (RunSource::Nsys | RunSource::Rocprof, Some(tool)) => format!(", by {tool}"),
            (_, Some(tool)) => format!(", by the {tool}"),
        };
        let on = if run.host == UNKNOWN_HOST { String::new() } else { format!(" on {host}") };
        text += &format!("  recorded  {started}{on}, {ranks}{by}\n");
        if !run.command.is_empty() {
            text += &format!("  command   {}\n", terminal::command_line(&run.command));
        }
        if let Some(git) = &run.git {
            let modified = if git.modified { ", with local changes" } else { "" };
            let (commit, directory) = (text::printable(&git.commit), text::printable(&run.directory));
            text += &format!("  code      {commit:.12}{modified}, in {directory}\n");
        }
        text += &self.trained_text();
        text += "\n";
        // A column of nothing would only make the table wider: most runs on a CPU know no device.
        let rows: Vec<_> = self.ranks.iter().map(RankContents::row).collect();
        let shown = |column: &usize| *column == 0 || rows.is_empty() || rows.iter().any(|row| row[*column] != UNKNOWN);
        let columns: Vec<usize> = (0..HEADERS.len()).filter(shown).collect();
        let headers: Vec<&str> = columns.iter().map(|column| HEADERS[*column]).collect();
        let rows = rows.iter().map(|row| columns.iter().map(|column| row[*column].clone()).collect());
        text += &terminal::table(&headers, rows);
        text += &self.summaries_text();
        let reasons = self.ranks.iter().filter_map(|rank| Some((rank.rank, rank.reason.clone()?)));
        for line in Folded::of(reasons).lines() {
            text += &format!("{line}\n");
        }
        for line in torch_memory::lines(self.ranks.iter().map(|rank| &rank.info)) {
            text += &format!("memory: {line}\n");
        }
        for helper in &self.helpers {
            text += &format!("{}\n", helper.line());
        }
        if let Some(cost) = recording(self.ranks.iter().map(|rank| &rank.info)).as_ref().and_then(recording_cost::words)
        {
            text += &format!("recorded: {cost}\n");
        }
        if let Some(paused) = paused(self.ranks.iter().map(|rank| &rank.info)) {
            text += &format!("{}\n", own_profiler::words(&paused));
        }
        text + &self.loss_text()
    }

    /// What was trained and how, as far as that is known: one line, or none.
    fn trained_text(&self) -> String {
        let model = self.run.model.as_ref().map(|model| {
            let name = text::printable(&model.name);
            format!("model     {name}, {} parameters", text::parameters(model.parameters()))
        });
        let layout = self.layout.map(|layout| {
            let label = if model.is_some() { "layout" } else { "layout  " };
            format!("{label}  {}", layout.words())
        });
        let known: Vec<String> = model.into_iter().chain(layout).collect();
        if known.is_empty() { String::new() } else { format!("  {}\n", known.join("   ")) }
    }

    /// Which ranks have a summary: one line, or none.
    fn summaries_text(&self) -> String {
        let summarized = self.ranks.iter().filter_map(|rank| Some((rank.rank, rank.summary_bytes?)));
        let (ranks, bytes): (Vec<Rank>, Vec<u64>) = summarized.unzip();
        match ranks.as_slice() {
            [] => String::new(),
            ranks => format!("summaries: {}, {}\n", named(ranks), text::bytes(bytes.iter().sum())),
        }
    }

    fn loss_text(&self) -> String {
        let bold = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
        let lines = self.ranks.iter().filter(|rank| !rank.data_loss.is_none()).map(|rank| {
            let what = rank.data_loss.words();
            format!("{bold}lost{bold:#} on rank {}: {what}\n", rank.rank)
        });
        lines.collect()
    }
}

impl RankContents {
    fn of(directory: &RankDirectory) -> RankContents {
        // One rank that cannot be read does not hide the others.
        let (survey, report) = directory.survey_with_report().unwrap_or_else(|error| {
            let mut info = directory.info.clone();
            info.reason = Some(error.to_string());
            (Survey::default(), RankReport::new(info, directory.state, Loss::default()))
        });
        let Survey { spans, memory, counters, strings, loss } = survey;
        let times = [spans.time, memory.time, counters.time];
        let times = || times.into_iter().flatten();
        let RankReport { info, state, .. } = report;
        RankContents {
            rank: info.rank,
            host: info.host.clone(),
            pid: info.pid,
            device: info.device.clone(),
            stage: info.stage,
            state,
            reason: info.reason.clone(),
            start_ns: times().map(|(start, _)| start).min(),
            end_ns: times().map(|(_, end)| end).max(),
            tables: Tables {
                spans: spans.into(),
                memory: memory.into(),
                counters: counters.into(),
                strings: strings.into(),
            },
            data_loss: loss,
            summary_bytes: directory.summary_bytes(),
            torch_memory: info.collector.torch_memory.clone(),
            info,
        }
    }

    fn row(&self) -> [String; HEADERS.len()] {
        let Tables { spans, memory, counters, strings } = &self.tables;
        let unknown = || UNKNOWN.to_owned();
        [
            self.rank.to_string(),
            if self.host == UNKNOWN_HOST { unknown() } else { text::printable(&self.host) },
            self.device.as_ref().map_or_else(unknown, |device| text::printable(&device.name)),
            self.state.word().into(),
            self.start_ns.zip(self.end_ns).map_or_else(unknown, |(start, end)| text::duration((end - start).0)),
            text::count(spans.rows),
            text::count(memory.rows),
            text::count(counters.rows),
            match spans.bytes + memory.bytes + counters.bytes + strings.bytes {
                0 => unknown(),
                bytes => text::bytes(bytes),
            },
            spans.bytes_per_row.map_or_else(unknown, |bytes| format!("{bytes:.1}")),
        ]
    }
}
