use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use perfetto_protos::trace_packet::TracePacket;
use proptest::prelude::*;
use protobuf::Message;
use stepscope_analyzer::{Analysis, Overlay, Selection, StepChoice, analyze, analyze_with_overlay};
use stepscope_traces::{
    Correlation, FIRST_NAME, Family, Nanos, Rank, RankInfo, RankWriter, Run, RunInfo, Span, SpanKind, Step, Stream,
    synthetic::{Clocks, Pipeline, Recipe, Schedule},
};

use crate::binary::{failure, stepscope, text};

/// Perfetto's own trace processor as the judge.
mod judge;
mod official;
/// `stepscope open`.
mod open;
mod structure;
/// `--format parquet`: tables.
mod tables;

use structure::{Slice, Structure};

const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/samples");
const KINETO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/tests/fixtures/kineto");

/// Exports something, from a directory, into a file of another one.
fn exported(from: &Path, arguments: &[&str], into: &Path, name: &str) -> PathBuf {
    let file = into.join(format!("{name}.pftrace"));
    let output = stepscope(&[&["export", "-o", file.to_str().unwrap()], arguments].concat(), from);
    assert!(output.status.success(), "{}", text(&output.stderr));
    file
}

pub(crate) fn structure(from: &Path, arguments: &[&str]) -> Structure {
    let directory = tempfile::tempdir().unwrap();
    Structure::of(&official::packets(&exported(from, arguments, directory.path(), "trace")))
}

fn analysis(run: &Path) -> (Analysis, Overlay) {
    let run = Run::of_source(run).unwrap();
    analyze_with_overlay(&run, &Selection::default(), &|_| ()).unwrap()
}

/// The group of a rank.
fn group(trace: &Structure, rank: Rank) -> u64 {
    let is_it = |name: &str| name == format!("rank {rank}") || name.starts_with(&format!("rank {rank} "));
    trace.groups().into_iter().find(|(_, name)| is_it(name)).unwrap().0
}

/// What is read back is what the analyzer says: spans of each kind, time, and memory at its peak. Times are exact where
/// no rank's clock drifts.
fn agrees(trace: &Structure, run: &Path, analysis: &Analysis, overlay: &Overlay, drifts: bool) {
    for rank in &overlay.ranks {
        let group = group(trace, rank.rank);
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for slice in trace.slices.iter().filter(|slice| trace.tracks[&slice.track].group == group) {
            // Those of the device are told from its kernels.
            let is_frame = ["step", "micro_batch", "phase", "layer"].contains(&slice.category.as_str());
            if !is_frame || trace.is_on_host(slice) {
                *counts.entry(&slice.category).or_default() += 1;
            }
        }
        counts.remove("");
        let recorded = SpanKind::ALL.iter().zip(rank.spans).filter(|(_, count)| *count > 0);
        let recorded: BTreeMap<&str, u64> = recorded.map(|(kind, count)| (kind.word(), count)).collect();
        assert_eq!(counts, recorded, "rank {}", rank.rank);
        let exposed: u64 = trace.on(group, "exposed communication").iter().map(|slice| slice.duration()).sum();
        let figures = analysis.ranks.iter().find(|figures| figures.rank == rank.rank).unwrap();
        assert!(drifts || exposed as i64 == figures.partition.exposed_communication_ns, "rank {}", rank.rank);
        if let Some(memory) = analysis.memory.iter().find(|memory| memory.rank == rank.rank) {
            let at_peak = memory_at_peak(trace, group);
            let expected = memory.at_peak.iter().map(|(category, bytes)| (category.spelled(), *bytes as f64));
            assert_eq!(at_peak, expected.collect(), "rank {}", rank.rank);
        }
    }
    let time: u64 = trace.slices.iter().filter(|slice| slice.category == "kernel").map(Slice::duration).sum();
    let others = [Family::Communication, Family::Copy];
    // A trace has every kernel, whether its step counts or not.
    let all = Selection { steps: StepChoice::All, ..Selection::default() };
    let all = analyze(&Run::of_source(run).unwrap(), &all, &|_| ()).unwrap();
    let kernels = all.families.iter().filter(|family| !others.contains(&family.family));
    let expected: i64 = kernels.map(|family| family.total_ns).sum();
    let off = (time as i64 - expected).abs();
    assert!(off == 0 || drifts && off as f64 <= 1e-3 * expected as f64, "{time} ns of kernels, and not {expected}");
}

/// What each category has when all of them together first have the most.
fn memory_at_peak(trace: &Structure, group: u64) -> BTreeMap<String, f64> {
    let (mut now, mut peak) = (BTreeMap::new(), (0.0, BTreeMap::new()));
    for (track, _, value) in trace.values.iter().filter(|(track, ..)| trace.tracks[track].group == group) {
        let name = &trace.tracks[track].name;
        if name == "allocated" {
            if *value > peak.0 {
                peak = (*value, now.clone());
            }
        } else if stepscope_traces::MemoryCategory::ALL.iter().any(|category| category.spelled() == *name) {
            now.insert(name.clone(), *value);
        }
    }
    peak.1.retain(|_, bytes| *bytes > 0.0);
    peak.1
}

#[test]
fn samples_are_read_back_as_they_were_recorded() {
    for sample in ["single", "dp2-zero3", "tp2", "pp2-1f1b"] {
        let trace = structure(Path::new(SAMPLES), &[sample]);
        let run = Path::new(SAMPLES).join(sample);
        let (analysis, overlay) = analysis(&run);
        agrees(&trace, &run, &analysis, &overlay, false);
        assert_eq!(trace.metadata["stepscope.run"], analysis.run.name);
        assert_eq!(trace.metadata["stepscope.left_out"], "nothing");
        let marks: Vec<&str> = trace.instants.iter().map(|mark| mark.name.as_str()).collect();
        assert!(marks.iter().any(|mark| mark.starts_with("memory peak ")), "{marks:?}");
        assert!(marks.iter().any(|mark| mark.starts_with("loss ")), "{marks:?}");
        let shown = trace.on(trace.groups()[0].0, "findings");
        assert_eq!(shown.len(), analysis.findings.len());
        for finding in &analysis.findings {
            let shown = shown.iter().find(|slice| slice.name == finding.summary).unwrap();
            assert_eq!(shown.arguments["try"], finding.advice);
            let is_of_some = finding.evidence.spans.is_empty() && !finding.evidence.steps.is_empty();
            let whole = [shown.start, shown.end] == *trace.view;
            assert!(whole != is_of_some || finding.evidence.steps.len() > 1, "{}", finding.summary);
        }
    }
}

#[test]
fn kernels_say_what_they_did() {
    let trace = structure(Path::new(SAMPLES), &["single"]);
    let kernels: Vec<&Slice> = trace.slices.iter().filter(|slice| slice.category == "kernel").collect();
    let product = kernels.iter().find(|kernel| kernel.name.starts_with("nvjet") && kernel.number("layer").is_some());
    let product = product.unwrap();
    let (flops, rate) = (product.number("flops").unwrap(), product.number("TFLOP/s").unwrap());
    assert!((rate - flops / product.duration() as f64 / 1e3).abs() < 1e-9 * rate && rate < 1000.0, "{rate}");
    assert!(["forward", "backward"].contains(&product.arguments["phase"].as_str()));
    assert!(product.number("bytes").is_some());
    // Each lies in the frames of its step and its phase, as the device sees them.
    let group = trace.tracks[&product.track].group;
    let around = |track: &str| {
        let frames = trace.on(group, track);
        let frame = frames.iter().find(|frame| frame.start <= product.start && product.end <= frame.end);
        frame.unwrap_or_else(|| panic!("no frame of {track}")).name.clone()
    };
    assert!(around("steps").starts_with("step "));
    assert_eq!(around("phases"), product.arguments["phase"]);
    assert_eq!(around("layers"), format!("layer {}", product.arguments["layer"]));
    assert!(around("micro-batches").starts_with("micro-batch "));
}

#[test]
fn it_opens_at_the_steps_that_count_and_says_the_figures_of_each() {
    let trace = structure(Path::new(SAMPLES), &["dp2-zero3"]);
    let (analysis, _) = analysis(&Path::new(SAMPLES).join("dp2-zero3"));
    let groups = trace.groups();
    let rows: Vec<Vec<&Slice>> = groups.iter().map(|(group, name)| trace.on(*group, name)).collect();
    assert_eq!(groups.len(), 1 + analysis.ranks.len());
    for (rank, row) in analysis.ranks.iter().map(|figures| figures.rank).zip(&rows[1..]) {
        let steps: Vec<_> = analysis.steps.iter().filter(|step| step.rank == rank).collect();
        assert_eq!(row.len(), steps.len());
        for (shown, step) in row.iter().zip(&steps) {
            assert_eq!(shown.number("step"), Some(step.step.0.into()));
            assert_eq!(shown.number("idle_ns"), Some(step.partition.idle_ns as f64));
            assert_eq!(
                shown.name.ends_with(" (warm-up)"),
                analysis.window.warm_up.contains(&step.step),
                "{}",
                shown.name
            );
        }
        assert!(row.windows(2).all(|pair| pair[0].end <= pair[1].start));
    }
    let counted: Vec<&&Slice> = rows[1..].iter().flatten().filter(|step| !step.name.contains('(')).collect();
    let first = counted.iter().map(|step| step.start).min().unwrap();
    assert_eq!(trace.view.len(), 2);
    assert_eq!(trace.view[0], first);
    let last = counted.iter().map(|step| step.start + step.number("duration_ns").unwrap() as u64).max().unwrap();
    assert_eq!(trace.view[1], last);
}

#[test]
fn a_kernel_is_inside_of_its_modules_and_its_operator() {
    let directory = tempfile::tempdir().unwrap();
    let origins =
        ["aten::mm\t\tGPT/Block 0/MLP", "aten::gelu\t\tGPT/Block 0/MLP", "aten::mm\t\tGPT/Block 1/MLP", "aten::add"];
    let names: Vec<&str> = ["kernel"].into_iter().chain(origins).collect();
    let name = |number: u32| stepscope_traces::NameId(FIRST_NAME.0 + number);
    // Two of the first operator, with time between them, then the others, and one of the next step.
    let kernels = [(0, 0, 0), (20, 0, 0), (30, 1, 0), (50, 2, 0), (60, 3, 0), (70, 0, 0), (80, 0, 1)];
    let span = |(start, origin, step): (i64, u32, i32)| Span {
        stream: Some(Stream(0)),
        origin: Some(name(1 + origin)),
        step: Some(Step(step)),
        ..Span::new(SpanKind::Kernel, FIRST_NAME, Nanos(start), Nanos(10))
    };
    write(&directory.path().join("run"), &names, &kernels.map(span)).finish().unwrap();
    let trace = structure(directory.path(), &["run"]);
    let shown: Vec<&Slice> = trace.slices.iter().filter(|slice| slice.category == "kernel").collect();
    let inside: Vec<String> = shown.iter().map(|slice| slice.inside.join("/")).collect();
    let (first, second) = ("GPT/Block 0/MLP/aten::mm", "GPT/Block 0/MLP/aten::gelu");
    let expected = [first, first, second, "GPT/Block 1/MLP/aten::mm", "aten::add", first, first];
    assert_eq!(inside, expected);
    let lengths = |name: &str| {
        let named = trace.slices.iter().filter(|slice| slice.name == name);
        named.map(|slice| slice.duration()).collect::<Vec<u64>>()
    };
    // Neighbors share what is around them; a step ends it.
    assert_eq!(lengths("GPT"), [60, 10, 10]);
    assert_eq!(lengths("Block 0"), [40, 10, 10]);
    assert_eq!(lengths("aten::mm"), [30, 10, 10, 10]);
}

#[test]
fn a_collective_is_one_thing_on_all_its_ranks() {
    let trace = structure(Path::new(SAMPLES), &["dp2-zero3"]);
    let mut flows: BTreeMap<u64, Vec<&Slice>> = BTreeMap::new();
    for slice in &trace.slices {
        slice.flows.iter().for_each(|flow| flows.entry(*flow).or_default().push(slice));
    }
    assert_eq!(flows.len(), 370 + 180 + 5);
    for parts in flows.values() {
        assert_eq!(parts.len(), 2);
        let same = |argument: &str| parts[0].arguments[argument] == parts[1].arguments[argument];
        assert!(["operation", "bytes", "group", "sequence", "own_ns"].into_iter().all(same), "{parts:?}");
        assert_ne!(trace.tracks[&parts[0].track].group, trace.tracks[&parts[1].track].group);
        let own = parts.iter().map(|part| part.duration()).min().unwrap();
        for part in parts {
            assert_eq!(part.number("own_ns"), Some(own as f64));
            assert_eq!(part.number("waiting_ns"), Some((part.duration() - own) as f64));
            let bandwidth = part.number("bytes").unwrap() / own as f64;
            assert!((part.number("algorithm GB/s").unwrap() - bandwidth).abs() < 1e-9 * bandwidth);
            assert_eq!(part.name, part.arguments["operation"]);
        }
    }
}

#[test]
fn ranks_stand_in_the_order_of_their_stages_and_their_bubbles_show() {
    let directory = tempfile::tempdir().unwrap();
    let pipeline =
        Pipeline { stages: 2, schedule: Schedule::OneForwardOneBackward, chunks: 1, transfer: Nanos(10_000) };
    let recipe = Recipe { replicas: 2, micro_batches: 4, pipeline: Some(pipeline), ..Recipe::default() };
    recipe.write(&directory.path().join("run")).unwrap();
    let trace = structure(directory.path(), &["run"]);
    let names: Vec<String> = trace.groups().into_iter().map(|(_, name)| name).collect();
    let expected =
        ["rank 0 · stage 0 · dp 0", "rank 1 · stage 0 · dp 1", "rank 2 · stage 1 · dp 0", "rank 3 · stage 1 · dp 1"];
    assert_eq!(names.len(), 5);
    for (name, expected) in names[1..].iter().zip(expected) {
        assert!(name.starts_with(expected), "{name}");
    }
    let run = directory.path().join("run");
    let (analysis, overlay) = analysis(&run);
    agrees(&trace, &run, &analysis, &overlay, false);
    let pipeline = analysis.pipeline.unwrap();
    for stage in &pipeline.per_stage {
        let bubbles = trace.on(group(&trace, stage.rank), "bubble");
        let idle: u64 = bubbles.iter().map(|bubble| bubble.duration()).sum();
        let counted = stage.warm_up_ns.unwrap() + stage.steady_ns.unwrap() + stage.cool_down_ns.unwrap();
        assert_eq!(idle as i64, counted, "the bubbles are those of the steps that count");
    }
    let sent = trace.slices.iter().filter(|slice| slice.category == "send");
    assert!(sent.clone().count() > 0 && sent.clone().all(|send| send.flows.len() == 1), "a send leads to a receive");
}

#[test]
fn training_on_the_cpu_opens() {
    let directory = tempfile::tempdir().unwrap();
    let small = ["train", "--backend", "cpu", "--steps", "4", "--seq-len", "16", "--micro-batch", "1", "--run", "run"];
    let output =
        stepscope(&[&small[..], &["--dp", "2", "--pp", "2", "--micro-batches", "4"]].concat(), directory.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let trace = structure(directory.path(), &["run"]);
    let run = directory.path().join("run");
    let (analysis, overlay) = analysis(&run);
    agrees(&trace, &run, &analysis, &overlay, false);
    assert!(trace.tracks.values().all(|track| !track.name.starts_with("recorder.")), "nothing in the way");
    let run = trace.groups()[0].0;
    for (figure, steps) in [("tokens/s", 3), ("MFU", 3), ("step time", 3), ("loss", 4)] {
        assert_eq!(trace.counter(run, figure).len(), steps, "{figure} of the steps that count; the loss of all");
    }
}

#[test]
fn traces_of_pytorch_open_and_launches_lead_to_kernels() {
    for source in ["ddp", "gpipe"].map(|name| Path::new(KINETO).join(name)).iter().filter(|path| path.exists()) {
        let trace = structure(source, &["."]);
        let (analysis, overlay) = analysis(source);
        agrees(&trace, source, &analysis, &overlay, true);
        let launches: Vec<&Slice> = trace.slices.iter().filter(|slice| slice.category == "launch").collect();
        let linked = launches.iter().filter(|launch| !launch.flows.is_empty()).count();
        assert!(linked > 0 && linked * 2 > launches.len(), "{linked} of {}", launches.len());
    }
}

#[test]
fn chosen_steps_and_ranks_are_all_there_is() {
    let trace = structure(Path::new(SAMPLES), &["dp2-bucketed", "--steps", "2..4", "--ranks", "1"]);
    assert_eq!(trace.groups().len(), 2);
    let steps: Vec<f64> = trace.slices.iter().filter_map(|slice| slice.number("step")).collect();
    assert!(!steps.is_empty() && steps.iter().all(|step| [2.0, 3.0].contains(step)));
    let rank = trace.groups()[1].0;
    let allocated = trace.counter(rank, "allocated");
    assert!(allocated[0].1 > 1e9, "memory of before is known: {:?}", allocated[0]);
    let said = failure(&["export", "dp2-bucketed", "--ranks", "7", "-o", "/dev/null"], Path::new(SAMPLES));
    assert!(said.contains("rank 7"), "{said}");
}

#[test]
fn figures_are_of_all_ranks_whichever_are_drawn() {
    let whole = structure(Path::new(SAMPLES), &["pp2-1f1b"]);
    let part = structure(Path::new(SAMPLES), &["pp2-1f1b", "--ranks", "1"]);
    let (job, rank) = (part.groups()[0].0, part.groups()[1].0);
    assert!(part.groups()[1].1.starts_with("rank 1 · stage 1"), "{:?}", part.groups());
    let names = |trace: &Structure, group: u64, track: &str| -> Vec<String> {
        trace.on(group, track).iter().map(|slice| slice.name.clone()).collect()
    };
    assert_eq!(names(&part, job, "findings"), names(&whole, whole.groups()[0].0, "findings"));
    let bubbles =
        |trace: &Structure, group: u64| trace.on(group, "bubble").iter().map(|slice| slice.duration()).sum::<u64>();
    assert!(bubbles(&part, rank) > 0, "a stage waits for one that is not drawn");
    assert_eq!(bubbles(&part, rank), bubbles(&whole, whole.groups()[2].0));
    let steps = part.on(job, &part.groups()[0].1);
    assert!(!steps.is_empty() && steps.iter().all(|step| step.number("of_rank").is_some()));
    assert!(part.metadata["stepscope.step_figures"].contains("own clock"));
}

#[test]
fn what_does_not_fit_is_left_out_level_by_level() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("small.pftrace");
    let mut last = usize::MAX;
    for (size, missing) in [
        ("900k", "arguments of kernels"),
        ("600k", "memory by category"),
        ("400k", "memory over time"),
        ("150k", "kernels, copies and fills"),
    ] {
        let arguments = ["export", "single", "--max-size", size, "-o", file.to_str().unwrap()];
        let output = stepscope(&arguments, Path::new(SAMPLES));
        let said = text(&output.stderr);
        assert!(output.status.success() && said.contains("omitted") && said.contains(missing), "{said}");
        let bytes = fs::metadata(&file).unwrap().len() as usize;
        assert!(bytes <= size.trim_end_matches('k').parse::<usize>().unwrap() * 1000 && bytes < last, "{bytes}");
        last = bytes;
        let trace = Structure::of(&official::packets(&file));
        assert_eq!(trace.metadata["stepscope.max_size"], trace.metadata["stepscope.left_out_beyond"]);
        assert_eq!(trace.metadata["stepscope.clipped"], "0");
        let left_out = &trace.metadata["stepscope.left_out"];
        assert!(left_out.contains(missing) && !left_out.contains("launches"), "there are none: {left_out}");
        let kernels = trace.slices.iter().filter(|slice| slice.kind() == "kernel").count();
        // All of a level, or nothing.
        assert!(kernels == 0 || kernels as u64 == analysis(&Path::new(SAMPLES).join("single")).1.ranks[0].spans[0]);
        let group = trace.groups()[1].0;
        assert_eq!(trace.on(group, "steps").len(), 6, "steps stay");
    }
    let said = failure(&["export", "single", "--max-size", "2k", "-o", file.to_str().unwrap()], Path::new(SAMPLES));
    assert!(said.contains("--steps or --ranks"), "{said}");
    assert_eq!(fs::metadata(&file).unwrap().len() as usize, last, "what was there stays");
    let (_, enough) = said.split_once("hint: raise --max-size to ").unwrap_or_else(|| panic!("{said}"));
    let enough = enough.split(',').next().unwrap();
    let least = exported(Path::new(SAMPLES), &["single", "--max-size", enough], directory.path(), "least");
    let enough: u64 = enough.parse().unwrap();
    assert_eq!(fs::metadata(least).unwrap().len(), enough);
    let less = (enough - 1).to_string();
    let said = failure(&["export", "single", "--max-size", &less, "-o", file.to_str().unwrap()], Path::new(SAMPLES));
    assert!(said.contains(&format!("raise --max-size to {enough},")), "{said}");
}

#[test]
fn a_span_without_arguments_takes_35_bytes_at_most_and_says_its_phase_and_layer() {
    let directory = tempfile::tempdir().unwrap();
    // One of the steps has a critical path.
    let recipe = Recipe { steps: 48, micro_batches: 4, layers: 32, kernels_per_layer: 14, ..Recipe::default() };
    recipe.write(&directory.path().join("run")).unwrap();
    let bytes_of = |file: &Path| fs::metadata(file).unwrap().len();
    let everything = exported(directory.path(), &["run"], directory.path(), "everything");
    let size = (bytes_of(&everything) * 9 / 10).to_string();
    let compact = exported(directory.path(), &["run", "--max-size", &size], directory.path(), "compact");
    let (full, packets) = (Structure::of(&official::packets(&everything)), official::packets(&compact));
    let trace = Structure::of(&packets);
    assert_eq!(trace.metadata["stepscope.left_out"], "arguments of kernels");
    // What is there once, such as names of tracks, is no part of a span.
    let is_value =
        |packet: &TracePacket| !packet.has_track_event() || packet.track_event().counter_value_field.is_some();
    let values: u64 = packets.iter().filter(|packet| is_value(packet)).map(|packet| packet.compute_size() + 2).sum();
    let (_, overlay) = analysis(&directory.path().join("run"));
    let spans: u64 = overlay.ranks.iter().flat_map(|rank| rank.spans).sum();
    let taken = (bytes_of(&compact) - values) as f64 / spans as f64;
    assert!(taken <= 35.0, "{taken} bytes a span, memory over time not counted");
    let kernels = |trace: &Structure| {
        let kernels = trace.slices.iter().filter(|slice| slice.kind() == "kernel");
        kernels.cloned().collect::<Vec<Slice>>()
    };
    let (full, compact) = (kernels(&full), kernels(&trace));
    assert_eq!(full.len(), compact.len());
    for (full, compact) in full.iter().zip(&compact) {
        assert_eq!((&full.name, full.start, full.end), (&compact.name, compact.start, compact.end));
        let layer = full.arguments.get("layer").map(|layer| format!("layer {layer}"));
        let phase = full.arguments.get("phase").cloned();
        let tags: Vec<String> = ["kernel".into()].into_iter().chain(phase).chain(layer).collect();
        assert_eq!(compact.category, tags.join(","));
        assert!(compact.arguments.is_empty() && full.category == "kernel");
    }
}

#[test]
fn packed_and_through_a_pipe_it_is_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let plain = fs::read(exported(Path::new(SAMPLES), &["tp2"], directory.path(), "plain")).unwrap();
    let packed = directory.path().join("packed.pftrace.gz");
    let output = stepscope(&["export", "tp2", "-o", packed.to_str().unwrap()], Path::new(SAMPLES));
    assert!(output.status.success() && output.stdout.is_empty());
    let packed = fs::read(packed).unwrap();
    assert!(packed.len() * 2 < plain.len());
    assert!(official::packets_of(&packed) == official::packets_of(&plain));
    let piped = stepscope(&["export", "tp2", "-o", "-"], Path::new(SAMPLES));
    assert!(piped.status.success() && piped.stdout == plain);
}

/// Writes a run of one rank.
fn write(path: &Path, names: &[&str], spans: &[Span]) -> RankWriter {
    RunInfo::of_this_process("hand-made").create(path).unwrap();
    let mut writer = RankWriter::create(path, RankInfo::of_this_process(Rank(0))).unwrap();
    for (number, name) in (FIRST_NAME.0..).zip(names) {
        writer.push_name(stepscope_traces::NameId(number), name).unwrap();
    }
    spans.iter().for_each(|span| writer.push_span(span).unwrap());
    writer
}

#[test]
fn names_that_mean_harm_do_none() {
    let directory = tempfile::tempdir().unwrap();
    let long = "x".repeat(1 << 20);
    let names = ["\u{1b}]0;owned\u{7}\0", &long, "", "\u{202e}mirror"];
    let name = |number: u32| stepscope_traces::NameId(FIRST_NAME.0 + number);
    let span = |number: u32| {
        let span = Span::new(SpanKind::Kernel, name(number), Nanos(1_000 * i64::from(number)), Nanos(500));
        Span { stream: Some(Stream(0)), ..span }
    };
    // The last one has no name at all.
    write(&directory.path().join("run"), &names, &[0, 1, 2, 3, 4].map(span)).finish().unwrap();
    let file = exported(directory.path(), &["run"], directory.path(), "trace");
    assert!(fs::metadata(&file).unwrap().len() < 10_000);
    let trace = Structure::of(&official::packets(&file));
    let kernels = trace.slices.iter().filter(|slice| slice.kind() == "kernel");
    let shown: Vec<&str> = kernels.map(|slice| slice.name.as_str()).collect();
    assert_eq!(shown[0], "\u{fffd}]0;owned\u{fffd}\u{fffd}");
    assert_eq!(shown[1].chars().count(), 512);
    assert_eq!(shown[2..], ["unnamed", "\u{fffd}mirror", "unnamed"]);
}

#[test]
fn an_interrupted_run_exports_what_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let span = Span { step: Some(Step(0)), ..Span::new(SpanKind::Kernel, FIRST_NAME, Nanos(10), Nanos(20)) };
    write(&directory.path().join("run"), &["matmul"], &[span]).interrupt("out of disk").unwrap();
    let output = stepscope(&["export", "run", "-o", "said.pftrace"], directory.path());
    let said = text(&output.stderr);
    assert!(said.contains("state     interrupted on rank 0 (out of disk)"), "{said}");
    let trace = structure(directory.path(), &["run"]);
    assert_eq!(trace.slices.iter().filter(|slice| slice.category == "kernel").count(), 1);
    let end = trace.instants.iter().find(|mark| mark.name == "interrupted").unwrap();
    assert_eq!(end.arguments["reason"], "out of disk");
    assert_eq!(trace.metadata["stepscope.state"], "interrupted");
}

#[test]
fn what_is_lost_and_which_ranks_are_missing_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("run");
    let recipe = Recipe { replicas: 3, steps: 2, ..Recipe::default() };
    recipe.write(&run).unwrap();
    fs::remove_dir_all(run.join("rank-00001")).unwrap();
    let spans = run.join("rank-00002/spans.arrows");
    let bytes = fs::read(&spans).unwrap();
    fs::write(&spans, &bytes[..bytes.len() - bytes.len() / 3]).unwrap();
    let output = stepscope(&["export", "run", "-o", "a.pftrace"], directory.path());
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("missing   1 rank of 3: 1;"), "{said}");
    assert!(said.lines().any(|line| line.starts_with("lost      ") && line.contains("bytes unreadable")), "{said}");
    let trace = Structure::of(&official::packets(&directory.path().join("a.pftrace")));
    assert_eq!(trace.metadata["stepscope.missing_ranks"], "1 rank of 3: 1");
    assert_ne!(trace.metadata["stepscope.lost_bytes"], "0");
    let mark = |name: &str| trace.instants.iter().find(|mark| mark.name == name).unwrap_or_else(|| panic!("{name}"));
    assert_eq!(mark("ranks are missing").arguments["missing"], "1 rank of 3: 1");
    assert!(mark("data lost").arguments["lost"].contains("bytes unreadable"));
    // One that is there and was not asked for is not missing.
    let one = stepscope(&["export", "run", "--ranks", "0", "-o", "b.pftrace"], directory.path());
    assert!(text(&one.stderr).contains("missing   1 rank of 3: 1;"), "{}", text(&one.stderr));
}

#[test]
fn what_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory.path().join("run"), &["matmul"], &[]).finish().unwrap();
    let said = failure(&["export", "run", "-o", "run/rank-00000/spans.arrows"], directory.path());
    assert!(said.contains("part of the run"), "{said}");
    let said = failure(&["export", "nothing", "-o", "a.pftrace"], directory.path());
    assert!(said.contains("nothing") && said.contains("hint"), "{said}");
    let said = failure(&["export", "run", "-o", "run/rank-00000/memory.arrows"], directory.path());
    assert!(said.contains("part of the run"), "also where there is none yet: {said}");
    let said = failure(&["export", "run", "-o", "no/such/directory/a.pftrace"], directory.path());
    assert!(
        said.contains("cannot write") && said.contains("hint: create it with mkdir -p no/such/directory"),
        "{said}"
    );
    assert!(!said.contains(".stepscope-"), "{said}");
    let said = failure(&["export", "single", "--steps", "99..100", "-o", "/dev/null"], Path::new(SAMPLES));
    assert!(said.contains("recorded steps are 0 to 5"), "{said}");
    assert!(!directory.path().join("a.pftrace").exists());
}

fn any_recipe() -> impl Strategy<Value = Recipe> {
    let pipeline = prop_oneof![
        Just(None),
        Just(Some(Pipeline { stages: 2, schedule: Schedule::Gpipe, chunks: 1, transfer: Nanos(5_000) })),
        Just(Some(Pipeline { stages: 2, schedule: Schedule::Interleaved, chunks: 2, transfer: Nanos(5_000) })),
    ];
    let clocks = prop_oneof![
        Just(Clocks::default()),
        Just(Clocks { largest_offset: Nanos(5_000_000_000), largest_drift: 50_000, largest_wall_error: Nanos(1_000) }),
    ];
    (0..u64::MAX, 1..3_u32, 1..4_u32, 1..3_u32, 0.0..1.0, pipeline, clocks).prop_map(
        |(seed, replicas, steps, compute_streams, overlap, pipeline, clocks)| Recipe {
            seed,
            replicas,
            steps,
            micro_batches: 2,
            kernels_per_layer: 4,
            compute_streams,
            overlap,
            waiting: 0.2,
            pipeline,
            clocks,
            ..Recipe::default()
        },
    )
}

/// Spans of any kind that overlap in any way, on a few streams, recorded in any order.
fn any_spans() -> impl Strategy<Value = Vec<Span>> {
    let span =
        (0..SpanKind::ALL.len(), 0..200_i64, -5..80_i64, 0..3_u32, prop::option::of(0..40_u64), prop::option::of(0..3));
    let span = span.prop_map(|(kind, start, duration, stream, correlation, step)| Span {
        stream: Some(Stream(stream)),
        correlation: correlation.map(Correlation),
        step: step.map(Step),
        ..Span::new(SpanKind::ALL[kind], FIRST_NAME, Nanos(start), Nanos(duration))
    });
    prop::collection::vec(span, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    #[test]
    fn any_run_is_read_back(recipe in any_recipe()) {
        let directory = tempfile::tempdir().unwrap();
        recipe.write(&directory.path().join("run")).unwrap();
        let trace = structure(directory.path(), &["run"]);
        let run = directory.path().join("run");
        let (analysis, overlay) = analysis(&run);
        agrees(&trace, &run, &analysis, &overlay, recipe.clocks.largest_drift > 0);
    }

    #[test]
    fn any_spans_make_a_proper_trace(spans in any_spans()) {
        let directory = tempfile::tempdir().unwrap();
        write(&directory.path().join("run"), &["something"], &spans).finish().unwrap();
        let trace = structure(directory.path(), &["run"]);
        let is_recorded = |slice: &&Slice| {
            trace.is_on_host(slice) || !["step", "micro_batch", "phase", "layer", ""].contains(&slice.category.as_str())
        };
        prop_assert_eq!(trace.slices.iter().filter(is_recorded).count(), spans.len());
    }
}
