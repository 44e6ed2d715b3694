//! What is recorded of a GPU, against CUDA's own events. Without a GPU these say that they were skipped.

use std::collections::BTreeMap;

use cudarc::driver::{CudaEvent, sys::CUevent_flags};
use stepscope_plan::{ModelShape, ParallelLayout};
use stepscope_traces::{Run, RunInfo, Span, Step, Window};

use super::cuda::{CudaRank, CudaTraining, look_for_gpu};
use crate::{backend::Stream, config::TrainConfig};

/// Long ones: the host takes a tenth of a millisecond from the first event to the first launch.
const STEPS: u64 = 8;

/// A mark in the compute stream, with the device's own time.
fn mark(rank: &CudaRank) -> CudaEvent {
    let stream = rank.backend().device().stream(Stream::Compute);
    stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).unwrap()
}

#[test]
fn a_step_takes_as_long_as_events_around_it_say() {
    if let Err(why) = look_for_gpu() {
        eprintln!("SKIPPED, nothing was tested on a GPU: {why}");
        return;
    }
    let model = ModelShape {
        hidden: 2048,
        heads: 16,
        kv_heads: 4,
        head_dim: 128,
        ffn: 7168,
        vocabulary: 32000,
        ..ModelShape::preset("tiny").unwrap()
    };
    let layout = ParallelLayout { micro_batch: 4, sequence_length: 2048, ..ParallelLayout::default() };
    let config = TrainConfig { steps: STEPS, ..TrainConfig::new(model, layout) };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    RunInfo::of_this_process("events").create(&path).unwrap();
    let mut rank = CudaTraining::prepare(&config).unwrap().start(Some(&path)).unwrap();
    let between: Vec<(CudaEvent, CudaEvent)> = (0..STEPS)
        .map(|_| {
            let before = mark(&rank);
            rank.step().unwrap();
            (before, mark(&rank))
        })
        .collect();
    rank.unwatch().unwrap();
    let by_events: Vec<f64> = between.iter().map(|(from, to)| 1e6 * f64::from(from.elapsed_ms(to).unwrap())).collect();
    drop(between);
    rank.finish().unwrap();

    let (data, loss) = Run::open(&path).unwrap().ranks[0].read(Window::ALL).unwrap();
    assert!(loss.is_none(), "{loss:?}");
    let mut windows = BTreeMap::<Step, (i64, i64)>::new();
    let is_work = |span: &Span| !span.kind.is_annotation();
    for span in data.spans.rows().filter(is_work) {
        let Some(step) = span.step else { continue };
        let (start, end) = span.interval();
        let window = windows.entry(step).or_insert((start.0, end.0));
        *window = (window.0.min(start.0), window.1.max(end.0));
    }
    assert_eq!(windows.len() as u64, STEPS);
    // The first one loads kernels between the event and the work.
    for ((step, (start, end)), events) in windows.into_iter().zip(by_events).skip(1) {
        let recorded = (end - start) as f64;
        eprintln!(
            "step {step}: recorded {:.3} ms, by events {:.3} ms, {:+.3}%",
            recorded / 1e6,
            events / 1e6,
            100.0 * (recorded / events - 1.0)
        );
        assert!((recorded / events - 1.0).abs() < 5e-3, "{recorded} {events}");
    }
}
