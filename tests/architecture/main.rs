//! The arrows of ARCHITECTURE.md: which crate may use which, and inside a crate which layer. They go one way only.
//!
//! Tests may look at everything: what is `#[cfg(test)]` is left out.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on has failed")]

/// Which crates of others are in the injected library, and which of them were reviewed.
mod injected;

/// Which crates use which, by their manifests, and which of them may.
mod manifests;

/// The layers of a crate, and arrows against them.
mod layers;

/// The modules of a crate, and what each of them uses, by its source.
mod modules;

use std::path::Path;

use layers::Layers;
use modules::Modules;

/// Crates, and modules of crates, whose layers are held to.
///
/// Each line is a layer, the lowest first: it may use the lines above it. Modules of one line do not use each other.
/// Besides: no circles between the modules of one folder, no methods outside of the layer of their type, and no two types
/// of one name but those that are listed.
const LAYERED: &[Layers] = &[
    Layers {
        source: "traces/src",
        within: &[],
        layers: &[
            &["beside", "call_text", "columns", "driver_call", "loss", "regular_file", "topology"],
            &["ids"],
            &["clock", "names", "vocabulary", "window"],
            &["notes"],
            &["kernels", "operators"],
            &["origin", "tables"],
            &["format", "rank_data"],
            &["error"],
            &["whole_file"],
            &["json_file"],
            &["run_info"],
            &["membership", "segments"],
            &["rank_info"],
            &["growing_file", "standing_memory", "table_file"],
            &["timed_tables"],
            &["ring", "sections_file"],
            &["follower", "incident", "inferred_steps", "job_summary_file", "summary_file", "writer"],
            &["import"],
            &["reader"],
            &["export", "synthetic"],
        ],
        shared_names: &["Event", "Mark", "Segment", "Value", "Written"],
    },
    Layers {
        source: "traces/storage/src",
        within: &[],
        layers: &[
            &["error", "patience", "pieces", "run_files"],
            &["location", "settings"],
            &["refusal"],
            &["store"],
            &["contents"],
            &["fetching"],
            &["cache"],
            &["sending"],
        ],
        shared_names: &[],
    },
    Layers {
        source: "collector/src",
        within: &[],
        layers: &[
            &[
                "blocking_call",
                "cache",
                "context",
                "error",
                "hand_over",
                "launch",
                "libraries",
                "lock",
                "names",
                "native_threads",
                "quiet_thread",
                "settings",
                "ticks",
            ],
            &["aside", "communication", "injection", "packed", "process_context"],
            &["queue"],
            &["shared"],
            &["asked", "thread_state"],
            &["writer_thread"],
            &["launch_notes", "scope"],
            &["recorder"],
            &["cupti", "nvml"],
            &["doctor"],
        ],
        shared_names: &[],
    },
    Layers {
        source: "collector/src",
        within: &["cupti"],
        layers: &[
            &[
                "blocking_calls",
                "calls",
                "clock",
                "cubin",
                "demangle",
                "holders",
                "latest_kernel",
                "record_kind",
                "repeated",
                "streams",
                "subscriber",
                "thread_order",
                "traced",
                "unavailable",
            ],
            &["record_form"],
            &["buffers", "held_memory", "short_calls"],
            &["driver_memory", "modules"],
            &["watched_calls"],
            &["callbacks", "groups", "memory", "memory_order", "names"],
            &["join", "records"],
            &["library", "translator"],
            &["drain"],
            &["activity"],
        ],
        shared_names: &[],
    },
    Layers {
        source: "collector/inject/src",
        within: &[],
        layers: &[
            &["c_text", "exit", "gpu", "gpu_window", "other_profiler", "process", "recording", "step_waiter"],
            &["pacer", "place"],
            &["nccl", "nvtx", "pace", "program", "rank_assignment"],
            &["torch"],
            &["session"],
            &["watch"],
        ],
        shared_names: &[],
    },
    Layers {
        source: "analyzer/src",
        within: &[],
        layers: &[
            &["error", "selection", "stored"],
            &["each_rank", "figures"],
            &["rank"],
            &["job"],
            &["findings"],
            &["summaries", "job_summary"],
            &["analyze"],
            &["live", "detail", "diff", "incidents"],
        ],
        shared_names: &[],
    },
    Layers {
        source: "tui/src",
        within: &[],
        layers: &[
            &["palette"],
            &["theme", "view", "data", "request", "unknown_waits", "export_frame", "terminal"],
            &["signals", "event", "keys", "filter", "notice", "scene", "time_parts"],
            &["readers", "selection", "widgets"],
            &["views"],
            &["frame", "help", "run_list"],
            &["app"],
            &["session"],
        ],
        shared_names: &[],
    },
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn layers_use_those_below_them_alone() {
    for layers in LAYERED {
        let wrong = layers.wrong(&Modules::read(&root().join(layers.source)));
        assert!(wrong.is_empty(), "in {}:\n{}", layers.source, wrong.join("\n"));
    }
}

#[test]
fn crates_use_what_the_table_says_alone() {
    let wrong = manifests::wrong(root());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn crates_in_the_injected_library_were_reviewed() {
    let wrong = injected::wrong(root());
    assert!(wrong.is_empty(), "see collector/inject/CRATES.md:\n{}", wrong.join("\n"));
}
