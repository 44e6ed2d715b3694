use stepscope_analyzer::{BUS_BANDWIDTH, CauseKind, DIFF_METRICS, Diff, KernelStatus, TimeCause};
use stepscope_traces::{
    Nanos,
    synthetic::{Pipeline, Recipe, Schedule},
};

use super::pairs::{ACTIVATION_BYTES, Job, compared, diff};

/// Of the change of a step, the share of some causes.
fn share(diff: &Diff, is_meant: impl Fn(&TimeCause) -> bool) -> f64 {
    let time = diff.step_time.as_ref().unwrap();
    let meant: i64 = time.causes.iter().filter(|cause| is_meant(cause)).map(|cause| cause.change_ns).sum();
    meant as f64 / time.change_ns as f64
}

fn is_called(name: &str) -> impl Fn(&TimeCause) -> bool {
    move |cause| cause.cause == name
}

/// A cause has the change, within a hundredth of it, and is significant.
fn assert_explains(diff: &Diff, name: &str, change_ns: i64) {
    let time = diff.step_time.as_ref().unwrap();
    assert!(
        (time.change_ns - change_ns).abs() <= change_ns.abs() / 100,
        "{} where {change_ns} was made",
        time.change_ns
    );
    let share = share(diff, is_called(name));
    assert!((share - 1.0).abs() < 0.01, "{name} has {share}: {:#?}", time.causes);
    assert!(time.causes[0].cause == name && time.causes[0].significant, "{:#?}", time.causes);
}

#[test]
fn a_slower_kernel_has_all_of_it_and_by_its_duration() {
    let diff = diff(&Job::default(), &Job { slow_kernel: Some(("matmul_nt", 1.2)), ..Job::default() });
    assert_explains(&diff, "matmul kernels", 140_000);
    let kernel = &diff.kernels[0];
    assert!(kernel.base_names.contains("matmul_nt") && kernel.status == KernelStatus::Same && kernel.significant);
    assert_eq!((kernel.count_effect_ns, kernel.duration_effect_ns), (0, kernel.change_ns));
    assert_eq!((kernel.base_count, kernel.other_count), (1.0, 1.0));
}

#[test]
fn one_more_all_reduce_is_exposed_communication_along_its_axis() {
    let diff = diff(&Job { hidden_ns: 0, ..Job::default() }, &Job { hidden_ns: 0, all_reduces: 2, ..Job::default() });
    assert_explains(&diff, "exposed all-reduce (dp)", 300_000);
}

#[test]
fn overlap_that_is_lost_is_exposed_communication() {
    let diff = diff(&Job::default(), &Job { hidden_ns: 0, ..Job::default() });
    assert_explains(&diff, "exposed all-reduce (dp)", 200_000);
    let overlap = diff.metrics.iter().find(|metric| metric.metric == "overlap").unwrap();
    assert!(overlap.significant && overlap.other == Some(0.0), "{overlap:?}");
}

#[test]
fn one_more_activation_is_more_activations_to_the_byte() {
    let diff = diff(&Job::default(), &Job { activations: 4, ..Job::default() });
    let memory = diff.peak_memory.unwrap();
    assert_eq!(memory.change_bytes, ACTIVATION_BYTES as i64);
    assert_eq!((memory.causes[0].cause.as_str(), memory.causes[0].change_bytes), ("activations", memory.change_bytes));
    assert!(memory.causes[1..].iter().all(|cause| cause.change_bytes == 0));
    assert_eq!(diff.step_time.unwrap().change_ns, 0);
    assert!(diff.metrics.iter().all(|metric| metric.significant == metric.metric.starts_with("peak_memory")));
}

#[test]
fn a_slower_rank_is_slower_compute_on_it_and_not_the_waiting_of_others() {
    let diff =
        diff(&Job { ranks: 4, ..Job::default() }, &Job { ranks: 4, slow_rank: Some((2, 1.2)), ..Job::default() });
    let computes = |cause: &TimeCause| matches!(cause.kind, CauseKind::Compute { .. });
    let share = share(&diff, computes);
    assert!((share - 1.0).abs() < 0.01, "{share}: {:#?}", diff.step_time);
    assert!(diff.notes.iter().any(|note| note.contains("for rank 2;")), "{:?}", diff.notes);
}

#[test]
fn recomputation_is_a_cause_of_its_own() {
    let diff = diff(&Job::default(), &Job { recomputes: true, ..Job::default() });
    let share = share(&diff, is_called("recomputation"));
    assert!(share > 0.98, "{share}: {:#?}", diff.step_time);
    let kernel = diff.kernels.iter().find(|kernel| kernel.cause == "recomputation").unwrap();
    assert!(kernel.status == KernelStatus::New && kernel.count_effect_ns == kernel.change_ns, "{kernel:?}");
}

#[test]
fn a_larger_bubble_has_all_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let made = |name: &str, transfer: i64| {
        let pipeline =
            Pipeline { stages: 2, schedule: Schedule::OneForwardOneBackward, chunks: 1, transfer: Nanos(transfer) };
        let recipe = Recipe { steps: 6, micro_batches: 4, pipeline: Some(pipeline), ..Recipe::default() };
        recipe.write(&directory.path().join(name)).unwrap();
        directory.path().join(name)
    };
    let diff = compared(&made("base", 10_000), &made("other", 250_000));
    let share = share(&diff, is_called("pipeline bubble"));
    assert!((share - 1.0).abs() < 0.01, "{share}: {:#?}", diff.step_time);
    let bubble = diff.metrics.iter().find(|metric| metric.metric == "bubble").unwrap();
    assert!(bubble.significant && bubble.change.unwrap() > 0.0, "{bubble:?}");
}

#[test]
fn another_tile_for_the_same_product_is_a_kernel_renamed() {
    let other =
        Job { product: "nvjet_sm90_tst_128x256", slow_kernel: Some(("nvjet_sm90_tst_128x256", 0.9)), ..Job::default() };
    let diff = diff(&Job::default(), &other);
    assert_explains(&diff, "matmul kernels", -40_000);
    let kernel = &diff.kernels[0];
    assert_eq!(kernel.status, KernelStatus::Renamed, "{:#?}", diff.kernels);
    assert!(kernel.base_names.contains("matmul_nn") && kernel.other_names.contains("nvjet_sm90_tst_128x256"));
    assert_eq!(kernel.count_effect_ns, 0);
    // What does something else is another kernel.
    let other = Job { product: "gelu", ..Job::default() };
    let statuses = super::pairs::diff(&Job::default(), &other).kernels;
    let status = |name: &str| {
        let found =
            statuses.iter().find(|kernel| kernel.base_names.contains(name) || kernel.other_names.contains(name));
        found.unwrap().status
    };
    assert_eq!((status("matmul_nn"), status("gelu")), (KernelStatus::Gone, KernelStatus::New));
}

#[test]
fn a_run_does_not_differ_from_itself() {
    let diff = diff(&Job { noise: 0.02, ..Job::default() }, &Job { noise: 0.02, ..Job::default() });
    assert_eq!(diff.step_time.as_ref().unwrap().change_ns, 0);
    assert!(diff.comparable && diff.settings.is_empty(), "{diff:?}");
    assert!(diff.metrics.iter().all(|metric| !metric.significant && metric.change.unwrap_or(0.0) == 0.0));
    let is_known = |name: &str| DIFF_METRICS.contains(&name) || name.starts_with(BUS_BANDWIDTH);
    assert!(diff.metrics.iter().all(|metric| is_known(&metric.metric)));
    assert!(diff.step_time.unwrap().causes.iter().all(|cause| !cause.significant && cause.change_ns == 0));
}
