//! What every form of a report says first: what was run, how long a step takes, and what fills memory.

use stepscope_analyzer::{
    AlignedBy, Analysis, ExpertFigures, KernelFigures, KernelMfu, Mfu, ModelFrom, PipelineFigures, PlanScore,
    RankFigures, RankMemory,
};
use stepscope_plan::{Convention, Model, text};
use stepscope_traces::{Family, Loss, MemoryCategory, Nanos, Phase, RunSource, Step, without_signature};

use crate::folded::{self, Folded};

use super::{
    devices, host,
    time::{self, PARTS},
};
use crate::{own_profiler, recording_cost};

/// MFU by the model and MFU by its kernels are shown both where they differ by more than this share.
const DIFFERENT: f64 = 0.02;

/// A line of the summary: what it is about, and what it says.
pub(super) struct Fact {
    pub(super) about: &'static str,
    pub(super) says: String,
}

/// What was run, in a few words.
pub(super) fn what_was_run(analysis: &Analysis) -> String {
    let run = &analysis.run;
    let ranks = text::ranks(analysis.ranks.len() as u64, Some(run.world_size));
    let what = text::what_was_run(run.model.as_ref(), run.layout.map(|layout| layout.words()), run.source.other_tool());
    std::iter::once(ranks).chain(what).collect::<Vec<_>>().join(" · ")
}

/// Data loss, if there is any.
pub(super) fn loss(analysis: &Analysis) -> Option<String> {
    let lost = analysis.data_loss;
    let loss = Loss {
        dropped_events: lost.dropped_events,
        unreadable_bytes: lost.unreadable_bytes,
        unreadable_events: lost.unreadable_events,
    };
    let without = unseen(analysis).map(|ranks| format!("; no data from {ranks}")).unwrap_or_default();
    // Of a trace that breaks off, how many bytes its last event has is of no use.
    let lost =
        if loss.dropped_events == 0 { broken_off(analysis).unwrap_or_else(|| loss.words()) } else { loss.words() };
    (!loss.is_none()).then(|| format!("{lost}; figures cover what remains{without}"))
}

/// The ranks of which nothing is known that ran, where others are; times are not of them.
fn unseen(analysis: &Analysis) -> Option<String> {
    let is_unseen = |rank: &&RankFigures| rank.partition.span_ns == 0 && !is_without_times(analysis);
    let unseen: Vec<u32> = analysis.ranks.iter().filter(is_unseen).map(|rank| rank.rank.0).collect();
    (!unseen.is_empty()).then(|| text::named_ranks(&unseen))
}

/// Where traces of other tools break off, if any does.
fn broken_off(analysis: &Analysis) -> Option<String> {
    analysis.run.source.other_tool()?;
    let early = analysis.run.ended_early.iter();
    let said = Folded::of(early.flat_map(|early| early.ranks.iter().map(|rank| (*rank, early.why.clone()))));
    (!said.said.is_empty()).then(|| format!("the trace of {}", said.lines().join("; of ")))
}

/// The summary. Unknown facts are omitted, except for MFU, which says why it is unknown.
pub(super) fn facts(analysis: &Analysis) -> Vec<Fact> {
    let fact = |about: &'static str, says: Option<String>| says.map(|says| Fact { about, says });
    [
        fact("step", (!is_without_times(analysis)).then(|| step_time(analysis))),
        fact("time", where_time_goes(analysis)),
        fact("host", host::summary(analysis)),
        fact("speed", speed(analysis)),
        fact("waiting", waiting(analysis)),
        fact("memory", fullest(analysis).map(memory)),
        fact("plan", analysis.prediction.as_ref().and_then(predicted)),
        fact("pipeline", analysis.pipeline.as_ref().map(pipeline)),
        fact("experts", analysis.experts.as_ref().map(experts)),
        fact("kernels", kernels(analysis)),
        fact("loss", losses(analysis)),
        fact("noise", noise(analysis)),
        fact("device", devices::summary(analysis)),
        fact("clocks", clocks(analysis)),
        fact("missing", missing(analysis)),
        fact("recorded", analysis.run.recording.as_ref().and_then(recording_cost::words)),
        fact("paused", analysis.run.paused.as_ref().map(own_profiler::words)),
        fact("segments", segments(analysis)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Which of the jobs that make up the run this is, and how the one before it ended.
fn segments(analysis: &Analysis) -> Option<String> {
    let all = &analysis.run.segments;
    let index = all.iter().position(|segment| segment.is_analyzed)?;
    let last = all.last()?.number;
    if all.len() == 1 {
        return Some(format!("{last}, which nobody has continued"));
    }
    let before = index.checked_sub(1).and_then(|index| all.get(index)).map(|before| {
        let why = before.ended_by.as_deref().map_or_else(String::new, |why| format!(": {}", text::printable(why)));
        format!("; {} before it is {}{why}", before.number, before.state.word())
    });
    Some(format!("{} of {last}, which continue one another{}", all[index].number, before.unwrap_or_default()))
}

/// What could not be found out about the program, and why.
fn missing(analysis: &Analysis) -> Option<String> {
    let failed = analysis.run.failed_sources.iter();
    let failed = failed.map(|failed| format!("{} ({}: {})", failed.source, folded::named(&failed.ranks), failed.why));
    let is_of_some = analysis.ranks.iter().any(|rank| rank.partition.span_ns > 0);
    // Where something was lost, that says so.
    let unseen = unseen(analysis).filter(|_| is_of_some && loss(analysis).is_none());
    let unseen = unseen.map(|ranks| format!("times of {ranks} (nothing that ran there was recorded)"));
    let said: Vec<String> = unseen.into_iter().chain(failed).collect();
    (!said.is_empty()).then(|| text::printable(&said.join("; ")))
}

/// The rank with the highest memory peak.
pub(super) fn fullest(analysis: &Analysis) -> Option<&RankMemory> {
    RankMemory::fullest(analysis.memory.iter())
}

/// Whether memory categories are known.
pub(super) fn is_told_apart(memory: &RankMemory) -> bool {
    !memory.inferred || memory.at_peak.keys().any(|category| *category != MemoryCategory::Other)
}

/// The moment at which most was allocated: the end, where nothing is known of what was before.
pub(super) fn moment(memory: &RankMemory) -> &'static str {
    if memory.one_moment { "the end" } else { "the peak" }
}

/// Whether what recorded it records no times of work, as a memory snapshot.
pub(super) fn is_without_times(analysis: &Analysis) -> bool {
    let nothing = analysis.ranks.iter().all(|rank| rank.partition.span_ns == 0);
    nothing && matches!(analysis.run.source, RunSource::TorchSnapshot | RunSource::FlightRecorder)
}

fn step_time(analysis: &Analysis) -> String {
    let Some(time) = &analysis.step_time else {
        let nothing = analysis.ranks.iter().all(|rank| rank.partition.span_ns == 0);
        let what = if nothing && host::is_alone(analysis) {
            "no steps and no GPU activity were recorded; figures are of the host, over the whole recording"
        } else if nothing {
            "no activity was recorded"
        } else {
            "no steps were recorded; figures cover the whole recording"
        };
        return what.into();
    };
    let inferred = if time.inferred { "; steps are inferred from repeating kernels" } else { "" };
    let median = text::duration(time.median_ns);
    let whole = if analysis.window.whole { "; all other figures cover the whole recording" } else { "" };
    let alone = if host::is_alone(analysis) { "; no GPU activity was recorded, figures are of the host" } else { "" };
    let besides: String = [Phase::Evaluation, Phase::Checkpoint].map(|phase| including(analysis, phase)).concat();
    if time.count == 1 {
        return format!("{median} in step {}{besides}{inferred}{whole}{alone}", time.first_step);
    }
    let (low, high) = (text::duration(time.low_ns), text::duration(time.high_ns));
    let (first, last) = (time.first_step, time.last_step);
    let warm_up = match analysis.window.warm_up.as_slice() {
        [] => String::new(),
        [step] => format!("; step {step} is warm-up"),
        steps => format!("; the first {} steps are warm-up", steps.len()),
    };
    let cut_off = match analysis.window.cut_off.as_slice() {
        [] => String::new(),
        [step] => format!("; step {step} is incomplete"),
        steps => format!("; {} steps are incomplete", steps.len()),
    };
    // Recording may have rested in between.
    let between = i64::from(last.0) - i64::from(first.0) + 1;
    let is_in_parts = between > time.count as i64 + analysis.window.cut_off.len() as i64;
    let over = if is_in_parts { format!("{} of the steps", text::count(time.count)) } else { "steps".into() };
    // With fewer than ten steps a tenth of them is none.
    let spread = if time.count < 10 { "range" } else { "80% range" };
    format!(
        "{median} median, {spread} {low} to {high}, over {over} {first} to {last}{warm_up}{cut_off}{besides}{inferred}{whole}{alone}"
    )
}

/// Which of the steps that count include something besides training.
fn including(analysis: &Analysis, phase: Phase) -> String {
    let steps = analysis.counted_job_steps().filter(|step| step.includes.contains(&phase)).map(|step| step.step);
    match steps.collect::<Vec<_>>().as_slice() {
        [] => String::new(),
        [step] => format!("; step {step} includes {}", described(phase)),
        steps => format!("; {} steps include {}", steps.len(), described(phase)),
    }
}

fn described(phase: Phase) -> &'static str {
    if phase == Phase::Checkpoint { "saving a checkpoint" } else { "evaluation" }
}

fn where_time_goes(analysis: &Analysis) -> Option<String> {
    let time = time::of_all(analysis);
    let parts = PARTS.iter().zip(time.parts()).map(|(part, (_, share))| format!("{part} {}", text::percent(share)));
    (time.span() > Nanos(0) && !host::is_alone(analysis)).then(|| parts.collect::<Vec<_>>().join(", "))
}

fn speed(analysis: &Analysis) -> Option<String> {
    let tokens = analysis.step_time.as_ref().and_then(|time| time.tokens_per_second);
    let tokens = tokens.map(|tokens| format!("{} tokens/s", text::count(tokens.round() as u64)));
    let utilisation = match analysis.mfu.as_ref().and_then(|mfu| Some((mfu, mfu.value?))) {
        Some((mfu, value)) => Some({
            let hardware = mfu.hfu.map_or_else(String::new, |hfu| format!(", HFU {}", text::percent(hfu)));
            let training = mfu.training_value.map(text::percent);
            let training = training.map_or_else(String::new, |value| format!(", {value} in steps that only train"));
            let peak = text::flops(mfu.peak_flops);
            // Shapes say what is computed; there is nothing to agree on.
            let convention = match mfu.model_from {
                ModelFrom::Shapes => String::new(),
                _ => format!("convention {}, ", mfu.convention.name()),
            };
            let doubt = match analysis.beyond_peak() {
                Some(share) => format!("; the peak is too low: matrix products reach {} of it", text::percent(share)),
                None if value > 1.0 => "; above 100%: the peak is too low, or the model or its tokens are wrong".into(),
                None => String::new(),
            };
            let told = match mfu.model_from {
                ModelFrom::Run => "",
                ModelFrom::Program => ", model from the program",
                ModelFrom::Flag => ", model from --model",
                ModelFrom::Shapes => ", FLOPs from the shapes of its operators",
            };
            let kernels = differs(mfu).map_or_else(String::new, |kernels| {
                format!(
                    "; {} by the FLOPs of its kernels, HFU {}",
                    text::percent(kernels.value),
                    text::percent(kernels.hfu)
                )
            });
            format!(
                "MFU {}{training}{hardware} ({convention}peak {peak} per rank{told}{doubt}){kernels}",
                text::percent(value)
            )
        }),
        None if is_without_times(analysis) => None,
        None => Some(format!("MFU unknown: {}", why_unknown(analysis))),
    };
    let known: Vec<String> = tokens.into_iter().chain(utilisation).collect();
    (!known.is_empty()).then(|| known.join(", "))
}

/// MFU by kernels, where it is another one than that of the model's formula.
fn differs(mfu: &Mfu) -> Option<&KernelMfu> {
    let (value, kernels) = (mfu.value?, mfu.by_kernels.as_ref()?);
    ((kernels.value - value).abs() > DIFFERENT * value).then_some(kernels)
}

/// What MFU lacks, and the options that give it.
fn why_unknown(analysis: &Analysis) -> String {
    let Some(time) = &analysis.step_time else { return "there are no steps".into() };
    let run = &analysis.run;
    // A model may be known in part only.
    let can_count = |model: &Model| model.flops_per_token(Convention::Model, 1).is_some();
    let has_shapes = analysis.gemms.iter().any(|gemm| gemm.kernels.rates.flops_per_second.is_some());
    let has_peak = analysis.mfu.is_some() || run.device.as_ref().is_some_and(|device| device.peak_flops.is_some());
    let missing = [
        (!run.model.as_ref().is_some_and(can_count), "--model"),
        (run.sequence_length.is_none(), "--seq-len"),
        (time.tokens_per_second.is_none(), "--tokens-per-step"),
        (!has_peak, "--peak-tflops"),
    ];
    let missing: Vec<&str> =
        missing.into_iter().filter(|(is_missing, _)| *is_missing).map(|(_, option)| option).collect();
    if has_shapes && !has_peak {
        return "set --peak-tflops".into();
    }
    format!("set {}", text::listed(&missing))
}

/// How many ranks waited for communication, where that is what was recorded.
fn waiting(analysis: &Analysis) -> Option<String> {
    let waiting = analysis.hang.as_ref().map_or(0, |hang| hang.waiting.len());
    // Dumps without collectives do not say that nobody waited.
    let is_known = waiting > 0 || analysis.run.failed_sources.is_empty();
    (analysis.run.source == RunSource::FlightRecorder && is_known).then(|| match waiting {
        0 => "no rank was waiting for communication when the dumps were written".to_owned(),
        _ => format!(
            "{} of {} in communication when the dumps were written",
            text::counted(waiting as u64, "waiting rank"),
            text::count(analysis.run.world_size.into())
        ),
    })
}

fn memory(memory: &RankMemory) -> String {
    let mut filled: Vec<_> = memory.at_peak.iter().filter(|(_, bytes)| **bytes > 0).collect();
    filled.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
    let share = |bytes: u64| text::percent(bytes as f64 / memory.peak_bytes.max(1) as f64);
    let filled = filled.iter().take(3).map(|(category, bytes)| {
        let category = category.spelled();
        format!("{category} {}", share(**bytes))
    });
    let size = text::bytes(memory.peak_bytes);
    let mut says = match memory.one_moment {
        true => format!("{size} at the end on rank {}", memory.rank),
        false => format!("peak {size} on rank {}", memory.rank),
    };
    says += &memory.peak_step.map_or_else(String::new, |step| format!(", step {step}"));
    says += &memory.peak_phase.map_or_else(String::new, |phase| format!(", {phase}"));
    if is_told_apart(memory) {
        let inferred = if memory.inferred { " (inferred)" } else { "" };
        says += &format!(": {}{inferred}", filled.collect::<Vec<_>>().join(", "));
        let gaps = memory.gaps.filter(|gaps| *gaps > 0);
        says += &gaps.map_or_else(String::new, |gaps| format!("; {} in its event history", text::counted(gaps, "gap")));
    } else {
        says += "; add a memory snapshot of this rank to see what fills it";
    }
    if memory.one_moment {
        says += "; call torch.cuda.memory._record_memory_history() before the training to see its peak";
    }
    says + &memory.predicted.as_ref().map_or_else(String::new, |plan| {
        let error = plan.total() as f64 / memory.peak_bytes.max(1) as f64 - 1.0;
        format!("; predicted {} ({})", text::bytes(plan.total()), text::percent_more(error))
    })
}

/// What was predicted for a step, beside what was measured; nothing, where times are not compared.
fn predicted(score: &PlanScore) -> Option<String> {
    let (step, low, high) = (score.step_time_ns?, score.step_time_low_ns?, score.step_time_high_ns?);
    let error = text::percent_more(step.predicted / step.measured - 1.0);
    let range = text::durations_around(low as i64, step.predicted as i64, high as i64);
    let mut says = format!("predicted step {} ({error}), range {range}", text::duration(step.predicted as i64));
    let tokens = score.tokens_per_second.map(|tokens| text::count(tokens.predicted.round() as u64));
    says += &tokens.map_or_else(String::new, |tokens| format!(", {tokens} tokens/s"));
    Some(says + &score.mfu.map_or_else(String::new, |mfu| format!(", MFU {}", text::percent(mfu.predicted))))
}

/// How evenly tokens choose experts.
fn experts(experts: &ExpertFigures) -> String {
    let ExpertFigures { imbalance, rank_imbalance, layers } = experts;
    let most = layers.iter().max_by(|one, other| one.imbalance.total_cmp(&other.imbalance));
    let most = most.map_or_else(String::new, |layer| {
        format!("; most uneven: layer {}, expert {} with {:.2}×", layer.layer, layer.busiest_expert, layer.imbalance)
    });
    format!(
        "the most chosen of a layer has {imbalance:.2}× the mean of its tokens, the busiest rank {rank_imbalance:.2}×{most}"
    )
}

fn pipeline(pipeline: &PipelineFigures) -> String {
    let bubble = pipeline.bubble.map_or_else(|| "unknown".into(), text::percent);
    let inferred = if pipeline.inferred { " (inferred)" } else { "" };
    let balanced = pipeline.balanced_bubble.map(|bubble| format!(", {} if balanced", text::percent(bubble)));
    let slowest = pipeline.slowest_stage.map(|stage| format!("; slowest: stage {stage}"));
    let PipelineFigures { stages, micro_batches, schedule, chunks, ideal_bubble, .. } = pipeline;
    let chunks = if *chunks > 1 { format!(" of {chunks} chunks") } else { String::new() };
    format!(
        "bubble {bubble}{inferred}, ideal {}{} ({}, {stages} stages{chunks}, {micro_batches} micro-batches){}",
        text::percent(*ideal_bubble),
        balanced.unwrap_or_default(),
        schedule.name(),
        slowest.unwrap_or_default(),
    )
}

/// How many kernels a step has, how many of them are small, and how much nobody knows.
fn kernels(analysis: &Analysis) -> Option<String> {
    let durations = analysis.kernel_durations.as_ref()?;
    let windows: u64 = analysis.counted.iter().map(|time| time.windows).sum();
    let per_step = durations.count / windows.max(1);
    let unit = if analysis.window.whole { "" } else { " per step" };
    let ranks = match analysis.counted.iter().filter(|time| time.windows > 0).count() {
        0 | 1 => String::new(),
        ranks => format!(" (mean of {ranks} ranks)"),
    };
    let small = format!(
        "{} below 10 µs ({} of kernel time)",
        text::percent(durations.small_share),
        text::percent(durations.small_time_share)
    );
    let unknown: Vec<&KernelFigures> =
        analysis.kernels.iter().filter(|kernel| kernel.family == Family::Other).collect();
    let share: f64 = unknown.iter().map(|kernel| kernel.share).sum();
    let unknown = match unknown.as_slice() {
        [] => String::new(),
        [kernel, ..] => format!(
            "; {} of unknown kind ({} of kernel time): {}{}",
            text::counted(unknown.len() as u64, "kernel"),
            text::percent(share),
            text::printable(without_signature(&kernel.name)),
            if unknown.len() > 1 { ", …" } else { "" }
        ),
    };
    Some(format!("{}{unit}{ranks}, {small}{unknown}", text::counted(per_step, "compute kernel")))
}

fn losses(analysis: &Analysis) -> Option<String> {
    let in_step = |(step, loss): &(Step, f64)| format!("{} in step {step}", text::training_loss(*loss));
    let trained = match &analysis.counted_losses()[..] {
        [] => None,
        [only] => Some(in_step(only)),
        [first, .., last] => Some(format!("{} → {}", in_step(first), in_step(last))),
    };
    let evaluated = analysis.evaluation_loss();
    let evaluated = evaluated.map(|(step, loss)| format!("evaluated {} after step {step}", text::training_loss(loss)));
    let said: Vec<String> = trained.into_iter().chain(evaluated).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// How noisy gradients are, against the tokens of a step.
fn noise(analysis: &Analysis) -> Option<String> {
    let scale = analysis.gradient_noise_scale()?;
    let tokens = analysis.job_steps.iter().find_map(|step| step.tokens);
    let here = tokens.map_or_else(String::new, |tokens| format!("; a step has {}", text::count(tokens as u64)));
    Some(format!("gradient noise scale {} tokens (about the critical batch size){here}", text::count(scale as u64)))
}

fn clocks(analysis: &Analysis) -> Option<String> {
    let shared = analysis.clock.ranks.iter().all(|rank| rank.offset_ns == 0 && rank.drift_ns_per_second == 0.0);
    let residual = analysis.clock.residual_ns.map(text::duration);
    let by = match analysis.clock.aligned_by {
        _ if analysis.ranks.len() < 2 => return None,
        AlignedBy::Anchors if shared && analysis.run.source == RunSource::Stepscope => {
            let apart = residual.map(|residual| format!("; collectives end within {residual} of each other"));
            return Some(format!("shared by all ranks{}", apart.unwrap_or_default()));
        }
        AlignedBy::None => return Some("not aligned: nothing relates the clocks of the ranks".into()),
        AlignedBy::Anchors => "wall-clock time",
        AlignedBy::Collectives => "the ends of collectives",
    };
    Some(format!("aligned by {by}{}", residual.map(|residual| format!(", within {residual}")).unwrap_or_default()))
}
