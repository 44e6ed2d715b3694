//! TPUs: one line has what the core does, with loops around it, another what goes on beside it.

use crate::{
    data_of, run_of, told,
    writer::{PlaneWriter, Stat, space},
};

fn tpu() -> PlaneWriter {
    let mut plane = PlaneWriter::new("/device:TPU:0");
    plane.say(("device_type_string", Stat::Text("TPU v5 Lite")));
    plane.say(("peak_teraflops_per_second", Stat::Number(197)));
    let steps = [("4", 0), ("5", 100)].map(|(name, at)| plane.event(name, (at * 1_000_000, 90_000_000), &[]));
    plane.line(1, "Steps", 0, steps.into());
    let module = plane.event("jit_step(99)", (0, 190_000_000), &[]);
    plane.line(2, "XLA Modules", 0, vec![module]);
    plane.kind(
        "%fusion.3 = bf16[8,128]{1,0} fusion(%a)",
        "fusion.3",
        &[
            ("hlo_category", Stat::Text("convolution fusion")),
            ("tf_op", Stat::Text("jit(step)/jvp(Model)/mlp/dot_general:")),
            ("source", Stat::Text("/home/me/model.py:12")),
            ("flops", Stat::Number(2_048)),
            ("bytes_accessed", Stat::Number(4_096)),
        ],
    );
    plane.kind("%while.1 = (s32[]) while(%b)", "while.1", &[("hlo_category", Stat::Text("while"))]);
    plane.kind("%all-reduce-done.2 = f32[8] all-reduce-done(%c)", "all-reduce-done.2", &[]);
    plane.kind("%all-reduce-start.2 = f32[8] all-reduce-start(%c)", "all-reduce-start.2", &[]);
    plane.kind("%fusion.9 = f32[8] fusion(%c)", "fusion.9", &[("hlo_category", Stat::Text("all-gather fusion"))]);
    plane.kind("%copy-done.4 = f32[8] copy-done(%d)", "", &[]);
    let at = |ns: u64, duration: u64| (ns * 1_000, duration * 1_000);
    let core = vec![
        plane.event("%while.1 = (s32[]) while(%b)", at(1_000, 50_000), &[]),
        plane.event("%fusion.3 = bf16[8,128]{1,0} fusion(%a)", at(2_000, 10_000), &[]),
        plane.event("%fusion.3 = bf16[8,128]{1,0} fusion(%a)", at(20_000, 31_000), &[]),
        plane.event("%all-reduce-done.2 = f32[8] all-reduce-done(%c)", at(60_000, 5_000), &[]),
        plane.event("%fusion.9 = f32[8] fusion(%c)", at(110_000, 1_000), &[]),
        plane.event("%copy-done.4 = f32[8] copy-done(%d)", at(120_000, 1_000), &[]),
    ];
    plane.line(3, "XLA Ops", 0, core);
    let beside = vec![plane.event("%all-reduce-start.2 = f32[8] all-reduce-start(%c)", at(30_000, 35_000), &[])];
    plane.line(4, "Async XLA Ops", 0, beside);
    let scope = plane.event("mlp", at(0, 190_000), &[]);
    plane.line(5, "Framework Name Scope", 0, vec![scope]);
    plane
}

#[test]
fn a_tpu_is_a_rank() {
    let mut host = PlaneWriter::new("/host:CPU");
    let step = host.event("train", (0, 1_000), &[("step_num", Stat::Number(4))]);
    host.line(9, "main", 0, vec![step]);
    let (_directory, run) = run_of(&space(vec![tpu(), host]));
    let gemm = "2048 FLOP, by dot_general||jit(step)/jvp(Model)/mlp|model.py:12";
    let module = "by ||jit_step";
    let mut expected = vec![
        "step, step 4, 0+90000, step 4".to_owned(),
        "range, train, 0+1, on 9, step 4".to_owned(),
        format!("kernel, fusion.3, 2000+10000, on 0, step 4, forward, 4096 B, {gemm}"),
        format!("kernel, fusion.3, 20000+31000, on 0, step 4, forward, 4096 B, {gemm}"),
        format!("all_reduce, all-reduce-start.2, 30000+35000, on 1, step 4, {module}"),
        format!("all_reduce, all-reduce-done.2, 60000+5000, on 0, step 4, {module}"),
        "step, step 5, 100000+90000, step 5".to_owned(),
        format!("all_gather, fusion.9, 110000+1000, on 0, step 5, {module}"),
        format!("copy, copy-done.4, 120000+1000, on 0, step 5, {module}"),
    ];
    let mut told = told(&data_of(&run, 0));
    told.sort();
    expected.sort();
    assert_eq!(told, expected, "the loop is not there beside what runs in it");
    let device = run.ranks[0].info.device.clone().unwrap();
    assert_eq!((device.name.as_str(), device.peak_flops), ("TPU v5 Lite", Some(197e12)));
}
