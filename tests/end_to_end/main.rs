//! The binary and the recorder, as a person and a killed job meet them.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on has failed")]

/// `stepscope analyze`: what it says in every form, and what it refuses.
mod analyze;

mod binary;

/// The library that the binary carries for `record`.
mod carried_library;

/// What files and settings claim: no command takes memory for it.
mod claims;

/// What every command has: help, versions, colors, completions, manual pages, and suggestions for mistyped words.
mod command_line;

/// `stepscope diff` and `train --sweep`: what changed, how sure that is, and what is refused.
mod diff;

/// `stepscope doctor`: what it says of whatever machine this is.
mod doctor;

/// `stepscope export` and `open`: traces for Perfetto, read back by its official schema.
mod export;

/// `stepscope import`, and traces and memory snapshots of PyTorch's in place of runs.
mod import;

/// `stepscope incidents` and black boxes: what goes wrong in a job, and why.
mod incidents;

/// `stepscope inspect`: what it prints, and what it says of things that are not runs.
mod inspect;

/// The published schemas of the JSON of `analyze`, `diff` and `plan`.
mod json_schemas;

/// `stepscope live`: a frame of it, and what it refuses.
mod live;

/// Names from traces: short, and nothing but names, in every form.
mod names_of_others;

/// What recording and training leave alone: other people's files, a command's status, a job's time.
mod no_harm;

/// Runs in object storage, read and uploaded: a store that speaks S3 on loopback, and what may go wrong with it.
mod object_storage;

/// What `analyze`, `live`, `diff` and `export` show of a run, beside its JSON.
mod one_answer;

/// Slow processes, and the place that they have in common.
mod places;

/// `stepscope plan`: what it predicts, and what it refuses.
mod plan;

/// The Python package: what it reads, says and logs.
mod python;

/// Real runs from a GPU.
mod samples;

/// `stepscope record` and `trigger`: a command's status, its environment, and what is refused.
mod record;

/// `stepscope record` of programs of PyTorch's: what their memory is for.
mod record_torch;

/// The report for a browser, in one.
mod report_page;

/// `stepscope serve-metrics`: what is scraped and pushed, and that it is what `analyze` says.
mod serve_metrics;

/// Jobs of a real Slurm cluster on this machine.
mod slurm;

/// Says that a test did nothing.
#[path = "../support/skipped.rs"]
mod skipped;

/// `stepscope summarize`: what commands say from summaries is what they say.
mod summarize;

/// Recording programs that are killed, run out of disk, or panic.
mod survival;

/// `stepscope train`: what it trains, records and refuses.
mod train;

/// The waterfall, the critical path and findings: parts that add up, and what they lead to.
mod waterfall;

/// The wheel, where one was built.
mod wheel;
