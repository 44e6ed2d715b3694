//! GPUs: streams are activity, what is derived from them is not, launches and programs say whose it is.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use stepscope_traces::{CollectorNotes, State};

use crate::{
    data_of, run_of, told,
    writer::{Message, PlaneWriter, Stat, environment, space},
};

/// Behind which times are of the day.
const BEGAN: u64 = 1_700_000_000_000_000_000;

/// A compiled program with one instruction, which says its path and its line.
fn program() -> Vec<u8> {
    let metadata = Message::default().text(2, "jit(step)/transpose(jvp(Model))/dense/dot_general").number(15, 1);
    let instruction = Message::default().text(1, "gemm.1").message(7, metadata);
    let frames = Message::default()
        .text(1, "/home/me/train.py")
        .text(2, "loss")
        .message(3, Message::default().number(1, 1).number(2, 1).number(3, 42))
        .message(4, Message::default().number(1, 1));
    let module = Message::default().message(3, Message::default().message(2, instruction)).message(17, frames);
    Message::default().message(1, module).0
}

fn gpu(number: u32, correlation: u64) -> PlaneWriter {
    let mut plane = PlaneWriter::new(&format!("/device:GPU:{number}"));
    plane.say(("device_vendor", Stat::Text("Nvidia")));
    plane.say(("memory_size", Stat::Number(80 << 30)));
    let gemm = plane.event(
        "gemm_fusion_dot.kd",
        (2_000_999, 1_000_002),
        &[
            ("correlation_id", Stat::Number(correlation)),
            ("hlo_op", Stat::Reference("gemm.1")),
            ("hlo_module", Stat::Reference("jit_step")),
            ("program_id", Stat::Number(3)),
        ],
    );
    let add = plane.event(
        "loop_add_fusion",
        (3_001_001, 999_000),
        &[("name", Stat::Text("jit(step)/jvp(Model)/dense/add")), ("tf_op", Stat::Text("XlaModule:"))],
    );
    let reduce = plane.event(
        "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
        (9_000_000, 5_000_000),
        &[("hlo_op", Stat::Text("all-reduce-start.2")), ("hlo_module", Stat::Text("jit_step"))],
    );
    let copy = plane.event(
        "MemcpyD2H",
        (4_000_000, 500),
        &[("memcpy_details", Stat::Text("kind_src:device kind_dst:host size:4096 dest:0 async:1"))],
    );
    plane.line(13, "Stream #13(Compute)", 1_000, vec![gemm, add]);
    plane.line(14, "Stream #14(MemcpyD2H,Nccl)", 1_000, vec![copy, reduce]);
    let operation = plane.event("gemm.1", (2_000_999, 1_000_002), &[]);
    let step = plane.event("9", (0, 50_000_000), &[]);
    plane.line(1, "XLA Ops", 1_000, vec![operation]);
    plane.line(2, "Steps", 1_000, vec![step]);
    plane
}

fn host() -> PlaneWriter {
    let mut plane = PlaneWriter::new("/host:CPU");
    let step = plane.event("train", (0, 2_000_000), &[("step_num", Stat::Number(7)), ("_r", Stat::Number(1))]);
    let python = plane.event("$train.py:1 main", (0, 9_000_000), &[]);
    let mark = plane.event("ThreadpoolListener::StartRegion", (5_000, 0), &[]);
    let range = plane.event("PjitFunction(step)", (100_000, 900_000), &[]);
    let first = plane.event("cuLaunchKernel", (500_000, 10_000), &[("correlation_id", Stat::Number(70))]);
    let second = plane.event("cuLaunchKernel", (600_000, 10_000), &[("correlation_id", Stat::Number(71))]);
    plane.line(4711, "python", 1_000, vec![step, python, mark, range, first, second]);
    let elsewhere = plane.event("Compile", (0, 1_000_000), &[]);
    plane.line(u64::MAX - 5, "pool", 1_000, vec![elsewhere]);
    plane
}

fn profile() -> Vec<u8> {
    let mut programs = PlaneWriter::new("/host:metadata");
    let hlo = program();
    for name in ["jit_a(1)", "jit_b(2)"] {
        programs.kind(name, "", &[]);
    }
    programs.kind("jit_step(3)", "", &[("Hlo Proto", Stat::Bytes(&hlo))]);
    let mut other = PlaneWriter::new("/host:TPU-runtime");
    let event = other.event("something", (0, 5), &[]);
    other.line(1, "a", 0, vec![event]);
    space(vec![programs, gpu(1, 71), gpu(0, 70), PlaneWriter::new("/device:GPU:2"), host(), other, environment(BEGAN)])
}

/// Written by hand. A kernel begins and ends in the nanosecond it is in.
fn expected(range_of_pool: bool) -> Vec<String> {
    let at = |ns: u64, duration: u64| format!("{}+{duration}", BEGAN + 1_000 + ns);
    let mut expected = vec![
        format!("step, train, {}, on 4711, step 7", at(0, 2_000)),
        format!("range, PjitFunction(step), {}, on 4711, step 7", at(100, 900)),
        format!("launch, cuLaunchKernel, {}, on 4711, step 7", at(if range_of_pool { 500 } else { 600 }, 10)),
        format!(
            "kernel, gemm_fusion_dot, {}, on 13, step 7, backward, by dot_general||jit(step)/transpose(jvp(Model))/dense|train.py:42 loss",
            at(2_000, 1_001)
        ),
        format!("kernel, loop_add_fusion, {}, on 13, forward, by add||jit(step)/jvp(Model)/dense", at(3_001, 999)),
        format!("copy, MemcpyD2H, {}, on 14, 4096 B", at(4_000, 0)),
        format!(
            "all_reduce, ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>), {}, on 14, by all-reduce-start.2||jit_step",
            at(9_000, 5_000)
        ),
    ];
    if range_of_pool {
        expected.insert(1, format!("range, Compile, {}, on {}, step 7", at(0, 1_000), (1 << 30) + 1));
    }
    expected
}

#[test]
fn each_gpu_is_a_rank() {
    let (_directory, run) = run_of(&profile());
    assert_eq!((run.info.name.as_str(), run.info.host.as_str()), ("host", "node7"));
    assert!(run.info.started.starts_with("2023-11-14T22:13:20"), "{}", run.info.started);
    assert_eq!(run.ranks.len(), 2, "one did nothing");
    for rank in [0, 1] {
        let mut told = told(&data_of(&run, rank));
        let mut expected = expected(rank == 0);
        told.sort();
        expected.sort();
        assert_eq!(told, expected, "rank {rank}");
        let info = &run.ranks[rank].info;
        assert_eq!((run.ranks[rank].state, info.host.as_str()), (State::Complete, "node7"));
        let device = info.device.as_ref().unwrap();
        assert_eq!((device.name.as_str(), device.memory_bytes), ("Nvidia GPU", Some(80 << 30)));
        let CollectorNotes { device, file, .. } = &info.collector;
        assert_eq!((*device, file.as_deref()), (Some(rank as u32), Some("host.xplane.pb")));
        assert!(run.ranks[rank].read(stepscope_traces::Window::ALL).unwrap().1.is_none());
    }
    let failed = run.ranks[0].info.collector.failed_sources.clone().unwrap();
    assert_eq!(failed.0["/host:TPU-runtime"], "not read; the profile has 1 event of it");
}

#[test]
fn a_packed_profile_is_the_same() {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&profile()).unwrap();
    let (_directory, run) = run_of(&packed.finish().unwrap());
    assert_eq!(told(&data_of(&run, 1)).len(), expected(false).len());
}

/// Without steps of the host, those that the profiler found on the device are taken.
#[test]
fn steps_of_the_device() {
    let (_directory, run) = run_of(&space(vec![gpu(0, 70), environment(BEGAN)]));
    let told = told(&data_of(&run, 0));
    assert_eq!(told.iter().filter(|told| told.contains("step 9")).count(), 5, "{told:#?}");
    assert!(told[0].starts_with("step, step 9, "), "{told:#?}");
}

/// Profiles of older versions say the time of day in each line.
#[test]
fn times_of_older_profiles() {
    let mut plane = PlaneWriter::new("/device:GPU:0");
    let event = plane.event("kernel", (1_999, 2), &[]);
    plane.line(1, "Stream #1", BEGAN, vec![event]);
    let (_directory, run) = run_of(&space(vec![plane]));
    assert_eq!(told(&data_of(&run, 0)), [format!("kernel, kernel, {}+1, on 1", BEGAN + 1)]);
}
