//! What is taken for a profile and what is not.

use crate::{
    error_of,
    writer::{Message, PlaneWriter, Stat, environment, space},
};

#[test]
fn profiles_without_devices_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("host.xplane.pb");
    let mut host = PlaneWriter::new("/host:CPU");
    let event = host.event("work", (0, 5), &[]);
    host.line(1, "a", 0, vec![event]);
    let alone = "a JAX or TensorFlow profile (XPlane) of the host alone (1 event), without GPUs or TPUs";
    assert_eq!(error_of(&space(vec![host]), &path), alone);
    let idle = "a JAX or TensorFlow profile (XPlane) in which 1 device did nothing";
    assert_eq!(error_of(&space(vec![PlaneWriter::new("/device:GPU:0")]), &path), idle);
    let empty = "a JAX or TensorFlow profile (XPlane) without GPUs or TPUs";
    assert_eq!(error_of(&space(vec![environment(5)]), &path), empty);
}

/// Both are protobuf and begin with the same byte.
#[test]
fn perfetto_traces_are_no_profiles() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.pftrace");
    let packet = Message::default().number(8, 5).number(10, 1).message(11, Message::default().number(9, 1));
    let trace = Message::default().message(1, packet.clone()).message(1, packet).0;
    let perfetto = "a Perfetto trace, which cannot be analyzed; analyze what it was made from";
    assert_eq!(error_of(&trace, &path), perfetto);
}

/// Of a folder the profile is taken, not the trace that JAX writes beside it.
#[test]
fn the_trace_beside_a_profile_does_not_matter() {
    let directory = tempfile::tempdir().unwrap();
    let mut gpu = PlaneWriter::new("/device:GPU:0");
    let event = gpu.event("k", (0, 5_000), &[("correlation_id", Stat::Number(1))]);
    gpu.line(1, "Stream #1(Kernel)", 0, vec![event]);
    std::fs::write(directory.path().join("host.xplane.pb"), space(vec![gpu])).unwrap();
    let beside = r#"{"displayTimeUnit":"ns","metadata":{"highres-ticks":true},"traceEvents":[{"ph":"M","pid":1,"name":"process_name","args":{"name":"/device:GPU:0"}},{"ph":"X","pid":1,"tid":1,"ts":1.0,"dur":1.0,"name":"k"}]}"#;
    std::fs::write(directory.path().join("host.trace.json"), beside).unwrap();
    let run = stepscope_traces::Run::of_source(directory.path()).unwrap();
    assert_eq!(run.ranks.len(), 1);
    let newest = directory.path().join("logs/plugins/profile/2026_01_02_03_04_05");
    std::fs::create_dir_all(&newest).unwrap();
    std::fs::copy(directory.path().join("host.xplane.pb"), newest.join("host.xplane.pb")).unwrap();
    std::fs::create_dir_all(newest.with_file_name("2025_01_02_03_04_05")).unwrap();
    let run = stepscope_traces::Run::of_source(&directory.path().join("logs")).unwrap();
    assert_eq!(run.ranks.len(), 1, "of a directory of TensorBoard's the newest profile is taken");
}
