//! Metrics of the whole job: as many, however many ranks it has.

use stepscope_analyzer::{Analysis, AxisShare, KnownIncident, RankMemory, StepFigures};
use stepscope_traces::{IncidentKind, State};

use super::{
    family::{Family, Kind, Sample, Unit},
    reading::Reading,
};

/// What is known of the job.
pub(super) fn families(reading: &Reading) -> Vec<Family> {
    let mut families = of_run(reading);
    if let Some(analysis) = reading.analysis.as_deref() {
        families.extend(of_steps(analysis));
        families.extend(of_time(analysis));
        families.extend(of_memory(reading, analysis));
    }
    families
}

fn of_run(reading: &Reading) -> Vec<Family> {
    let Reading { info, state, incidents, .. } = reading;
    let states = [State::Recording, State::Complete, State::Interrupted];
    let count =
        |kind: IncidentKind| incidents.iter().filter(|KnownIncident { incident, .. }| incident.kind == kind).count();
    vec![
        Family {
            name: "stepscope_run",
            kind: Kind::Info,
            unit: Unit::None,
            help: "The run that is followed.",
            samples: vec![labelled(&[("name", &*info.name), ("host", &*info.host), ("started", &*info.started)], 1.0)],
        },
        Family {
            name: "stepscope_run_state",
            kind: Kind::Gauge,
            unit: Unit::None,
            help: "1 for the state of the run, 0 for the others.",
            samples: states.map(|one| labelled(&[("state", one.word())], f64::from(u8::from(one == *state)))).to_vec(),
        },
        Family {
            samples: IncidentKind::ALL.map(|kind| labelled(&[("kind", kind.word())], count(kind) as f64)).to_vec(),
            ..counter("stepscope_incidents", "What went wrong in the run.", 0.0)
        },
        counter(
            "stepscope_dropped_events",
            "Events that the recorders had no room for.",
            reading.dropped_events as f64,
        ),
        Family {
            unit: Unit::Bytes,
            ..counter(
                "stepscope_unreadable_bytes",
                "Bytes of the recording that cannot be read.",
                reading.unreadable_bytes as f64,
            )
        },
        gauge(
            "stepscope_newest_activity_timestamp_seconds",
            Unit::Seconds,
            "When the newest recorded activity ended, in Unix time; of a run that is being recorded.",
            reading.newest_wall.map(|wall| wall.0 as f64 / 1e9),
        ),
    ]
}

fn of_steps(analysis: &Analysis) -> Vec<Family> {
    let time = analysis.step_time.as_ref();
    let seconds = |ns: Option<i64>| ns.map(|ns| ns as f64 / 1e9);
    let mfu = analysis.mfu.as_ref();
    let recording = analysis.run.recording.as_ref();
    let pipeline = analysis.pipeline.as_ref();
    let is_made = |step: &&StepFigures| !analysis.window.cut_off.contains(&step.step);
    vec![
        gauge("stepscope_ranks", Unit::None, "Ranks that are recorded.", Some(f64::from(analysis.run.world_size))),
        gauge(
            "stepscope_newest_step",
            Unit::None,
            "The newest step that all ranks have made.",
            analysis.steps.iter().rev().find(is_made).map(|step| f64::from(step.step.0)),
        ),
        gauge(
            "stepscope_counted_steps",
            Unit::None,
            "How many steps the figures are of.",
            time.map(|time| time.count as f64),
        ),
        gauge(
            "stepscope_step_seconds",
            Unit::Seconds,
            "Time of a step: the median of the counted steps.",
            seconds(time.map(|time| time.median_ns)),
        ),
        gauge(
            "stepscope_step_p10_seconds",
            Unit::Seconds,
            "A tenth of the counted steps takes at most this long.",
            seconds(time.map(|time| time.low_ns)),
        ),
        gauge(
            "stepscope_step_p90_seconds",
            Unit::Seconds,
            "Nine tenths of the counted steps take at most this long.",
            seconds(time.map(|time| time.high_ns)),
        ),
        gauge(
            "stepscope_tokens_per_second",
            Unit::None,
            "Tokens of the whole job per second, over the counted steps.",
            time.and_then(|time| time.tokens_per_second),
        ),
        gauge("stepscope_mfu_ratio", Unit::Ratio, "Model FLOPs utilization.", mfu.and_then(|mfu| mfu.value)),
        gauge("stepscope_hfu_ratio", Unit::Ratio, "Hardware FLOPs utilization.", mfu.and_then(|mfu| mfu.hfu)),
        gauge(
            "stepscope_loss",
            Unit::None,
            "The loss of the newest step that has one.",
            analysis.losses().last_key_value().map(|(_, loss)| *loss),
        ),
        gauge(
            "stepscope_evaluation_loss",
            Unit::None,
            "The newest loss on data that is not trained on.",
            analysis.evaluation_loss().map(|(_, loss)| loss),
        ),
        gauge(
            "stepscope_bubble_ratio",
            Unit::Ratio,
            "Idle share of all pipeline stages, over the counted steps.",
            pipeline.and_then(|pipeline| pipeline.bubble),
        ),
        gauge(
            "stepscope_ideal_bubble_ratio",
            Unit::Ratio,
            "What the pipeline schedule leaves idle when all work takes the same time.",
            pipeline.map(|pipeline| pipeline.ideal_bubble),
        ),
        gauge(
            "stepscope_recording_cost_ratio",
            Unit::Ratio,
            "What recording costs on average, as a share of step time; of a recording with a budget.",
            recording.and_then(|recording| recording.average_cost),
        ),
        gauge(
            "stepscope_recording_duty_ratio",
            Unit::Ratio,
            "The share of the time in which the GPU is recorded; of a recording with a budget.",
            recording.map(|recording| recording.duty),
        ),
    ]
}

fn of_time(analysis: &Analysis) -> Vec<Family> {
    let time = analysis.counted_time();
    let axes = AxisShare::sum(analysis.counted.iter().flat_map(|rank| &rank.breakdown.axes));
    let share = |ns: i64| ns as f64 / time.span_ns as f64;
    let is_known = time.span_ns > 0;
    let exposed = axes
        .iter()
        .map(|of| labelled(&[("axis", of.axis.map_or("unknown", |axis| axis.name()))], share(of.exposed_ns)));
    let worst = analysis.straggler();
    let per_step = analysis.step_time.as_ref().map(|time| 1e-9 / time.count.max(1) as f64);
    vec![
        Family {
            samples: time
                .parts()
                .map(|(part, ns)| labelled(&[("part", part)], share(ns)))
                .into_iter()
                .filter(|_| is_known)
                .collect(),
            ..gauge(
                "stepscope_time_ratio",
                Unit::Ratio,
                "Where the time of all ranks goes, over the counted steps; parts add up to 1.",
                None,
            )
        },
        Family {
            samples: exposed.filter(|_| is_known).collect(),
            ..gauge(
                "stepscope_exposed_communication_ratio",
                Unit::Ratio,
                "Exposed communication by axis, as a share of the time of all ranks.",
                None,
            )
        },
        gauge("stepscope_overlap_ratio", Unit::Ratio, "The share of communication that compute hides.", time.overlap),
        gauge(
            "stepscope_straggler_rank",
            Unit::None,
            "The rank for which others wait most in collectives.",
            worst.map(|worst| f64::from(worst.rank.0)),
        ),
        gauge(
            "stepscope_straggler_caused_wait_seconds",
            Unit::Seconds,
            "How long others wait for that rank, per counted step.",
            worst.zip(per_step).map(|(worst, per_step)| worst.caused_wait_ns as f64 * per_step),
        ),
    ]
}

fn of_memory(reading: &Reading, analysis: &Analysis) -> Vec<Family> {
    let fullest = RankMemory::fullest(reading.memory.iter().map(AsRef::as_ref));
    let room = reading.memory.iter().filter_map(|memory| analysis.headroom_bytes(memory)).min();
    let of_fullest = fullest.into_iter().flat_map(|memory| &memory.at_peak);
    vec![
        Family {
            samples: of_fullest
                .map(|(category, bytes)| labelled(&[("category", category.word())], *bytes as f64))
                .collect(),
            ..gauge(
                "stepscope_memory_peak_bytes",
                Unit::Bytes,
                "What is allocated at the peak of the fullest rank, by category.",
                None,
            )
        },
        gauge(
            "stepscope_memory_headroom_bytes",
            Unit::Bytes,
            "Memory of a device that was never used, of the device that has least of it.",
            room.map(|room| room as f64),
        ),
    ]
}

/// One value, or none where it is not known.
pub(super) fn gauge(name: &'static str, unit: Unit, help: &'static str, value: Option<f64>) -> Family {
    let samples = value.into_iter().map(|value| labelled(&[], value)).collect();
    Family { name, kind: Kind::Gauge, unit, help, samples }
}

fn counter(name: &'static str, help: &'static str, value: f64) -> Family {
    Family { name, kind: Kind::Counter, unit: Unit::None, help, samples: vec![labelled(&[], value)] }
}

pub(super) fn labelled(labels: &[(&'static str, &str)], value: f64) -> Sample {
    Sample { labels: labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(), value }
}
