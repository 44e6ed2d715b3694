use serde_json::Value;

use crate::{
    disks::STEPS,
    fault::{Fault, Skip},
    recorded::recorded,
    scene::{STATUS, Scene},
};

pub(crate) fn faults() -> Vec<Fault> {
    vec![
        Fault::new("recorder", "the time of day goes an hour back", |scene| stepped(scene, -3_600_000)),
        Fault::new("recorder", "the time of day goes a year on", |scene| stepped(scene, 365 * 86_400_000)),
        Fault::new("recorder", "the time of day is before 1970", |scene| stepped(scene, -100 * 365 * 86_400_000)),
        Fault::new("recorder", "ranks whose clocks differ by two hours", apart),
    ]
}

fn analysis(scene: &Scene) -> Value {
    let ended = scene.run_to_end(scene.stepscope(&["analyze", "run", "--format", "json"]));
    assert!(ended.status.success(), "{}", ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap()
}

/// The longest step, in seconds.
fn longest(analysis: &Value) -> f64 {
    let steps = analysis["steps"].as_array().unwrap();
    steps.iter().map(|step| step["duration_ns"].as_f64().unwrap() / 1e9).fold(0.0, f64::max)
}

fn stepped(scene: &Scene, milliseconds: i64) -> Result<String, Skip> {
    let rules = format!("clock:{milliseconds}:-:{}", scene.moment(300));
    let ended = scene.run_to_end(scene.with_rules(scene.record(&[&STEPS.to_string()]), &rules));
    ended.assert_unchanged(STEPS);
    let found = recorded(&scene.run()).unwrap();
    assert_eq!((found.steps, found.unreadable_bytes), (STEPS, 0));
    let analysis = analysis(scene);
    let longest = longest(&analysis);
    assert!(longest < 60.0, "a step takes {longest} s");
    Ok(format!("status {STATUS}; {}, {STEPS} steps, none longer than a minute", analysis["run"]["state"]))
}

fn apart(scene: &Scene) -> Result<String, Skip> {
    let line = format!(
        "export WORLD_SIZE=2; RANK=1 STEPSCOPE_TEST_RULES='clock:7200000:-:0' \"$JOB\" {STEPS} >/dev/null & \
        RANK=0 \"$JOB\" {STEPS}; status=$?; wait; exit $status"
    );
    let ended = scene.run_to_end(scene.with_rules(scene.record_line(&line), ""));
    ended.assert_unchanged(STEPS);
    let analysis = analysis(scene);
    let ranks = analysis["ranks"].as_array().unwrap().len();
    assert_eq!((ranks, &analysis["run"]["state"]), (2, &"complete".into()));
    assert!(longest(&analysis) < 60.0);
    Ok(format!("status {STATUS}; complete, 2 ranks, aligned by {}", analysis["clock"]["aligned_by"]))
}
