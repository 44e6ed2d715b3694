//! Commands of one job that record into one run: Slurm's `srun` starts one for each task.

use std::path::PathBuf;

use stepscope_traces::{Rank, RunInfo};
use stepscope_trainer::RankAssignment;

/// Under which key a run says of which job it is.
const JOB: &str = "job";

/// One of several commands that record one job.
pub(super) struct Task {
    rank: Rank,
    /// What the job is called, and no other.
    job: String,
}

impl Task {
    /// Which one this process is, if it is one.
    pub(super) fn of_this_process() -> Option<Task> {
        Task::of(&|name| std::env::var(name).ok())
    }

    fn of(variable: &dyn Fn(&str) -> Option<String>) -> Option<Task> {
        // What torchrun and others say is about the command, not about us.
        let of_slurm = |name: &str| variable(name).filter(|_| name.starts_with("SLURM_"));
        let RankAssignment { rank, slurm, .. } = RankAssignment::of(&of_slurm).ok()??;
        // A job that is queued again has the same number.
        let restarts = variable("SLURM_RESTART_COUNT").and_then(|count| count.parse().ok()).unwrap_or(0_u32);
        let again = if restarts == 0 { String::new() } else { format!("-restart-{restarts}") };
        Some(Task { rank, job: format!("slurm-{}{again}", slurm?) })
    }

    /// Whether this one speaks for all, and watches the job.
    pub(super) fn is_first(&self) -> bool {
        self.rank == Rank(0)
    }

    /// Where they all record, unless somebody says where.
    pub(super) fn default_path(&self, info: &RunInfo) -> PathBuf {
        info.path_after(&self.job)
    }

    /// Says in a run that it is of this job.
    pub(super) fn sign(&self, info: &mut RunInfo) {
        info.configuration.insert(JOB.into(), self.job.as_str().into());
    }

    /// Whether a run is of this job.
    pub(super) fn is_of_job(&self, info: &RunInfo) -> bool {
        info.configuration.get(JOB).is_some_and(|job| *job == self.job)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn task(text: &str) -> Option<Task> {
        let find = |name: &str| {
            let mut pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
        };
        Task::of(&find)
    }

    #[test]
    fn tasks_of_a_step_record_into_one_run_and_others_do_not() {
        let step = "SLURM_JOB_ID=12 SLURM_STEP_ID=3 SLURM_NTASKS=4 SLURM_STEP_NODELIST=n[1-2]";
        let tasks = ["0", "3"].map(|rank| task(&format!("{step} SLURM_PROCID={rank} RANK=7 WORLD_SIZE=9")).unwrap());
        let mut info = RunInfo::of_this_process("my train");
        assert_eq!(tasks.each_ref().map(|task| task.default_path(&info)), [Path::new("runs/slurm-12.3-my-train"); 2]);
        assert_eq!(tasks.each_ref().map(Task::is_first), [true, false]);
        assert!(!tasks[1].is_of_job(&info));
        tasks[0].sign(&mut info);
        assert!(tasks[1].is_of_job(&info));
        let again = task(&format!("{step} SLURM_PROCID=0 SLURM_RESTART_COUNT=1")).unwrap();
        assert!(!again.is_of_job(&info), "it is queued again");
        for alone in
            ["", "SLURM_JOB_ID=12 SLURM_PROCID=0 SLURM_NTASKS=4", "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1"]
        {
            assert!(task(alone).is_none(), "{alone}");
        }
        assert!(task("SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_NTASKS=1 SLURM_PROCID=0").is_none());
    }
}
