//! Which ranks are this process's, where several summarize a run: Slurm's `srun` starts one for each task.

/// One of several processes that share the ranks of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    task: usize,
    tasks: usize,
}

/// Reads which part of how many somebody wants.
pub(super) fn share(text: &str) -> Result<Share, String> {
    let parts = text.split_once('/').and_then(|(task, tasks)| task.parse().ok().zip(tasks.parse().ok()));
    let share = parts.and_then(|(task, tasks)| Share::new(task, tasks));
    share.ok_or_else(|| format!("`{text}` is no part; use I/N, such as 0/4, 1/4, 2/4 and 3/4"))
}

impl Share {
    fn new(task: usize, tasks: usize) -> Option<Share> {
        (task < tasks).then_some(Share { task, tasks })
    }

    /// Which one this process is, if it is one.
    pub(super) fn of_this_process() -> Option<Share> {
        Share::of(&|name| std::env::var(name).ok())
    }

    fn of(variable: &dyn Fn(&str) -> Option<String>) -> Option<Share> {
        let number = |name: &str| variable(name)?.parse::<usize>().ok();
        // A batch script has the number of a task, too, and is none.
        number("SLURM_STEP_ID")?;
        Share::new(number("SLURM_PROCID")?, number("SLURM_NTASKS")?)
    }

    /// Whether a rank is its, by the rank's place among all. Ranks beside each other are of several tasks: where some have
    /// recorded more, they are neighbors.
    pub(super) fn has(self, place: usize) -> bool {
        place % self.tasks == self.task
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_task(text: &str) -> Option<Share> {
        let find = |name: &str| {
            let mut pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
        };
        Share::of(&find)
    }

    #[test]
    fn tasks_of_a_step_have_every_rank_once() {
        let shares: Vec<Share> = (0..3)
            .map(|task| of_task(&format!("SLURM_STEP_ID=0 SLURM_NTASKS=3 SLURM_PROCID={task}")).unwrap())
            .collect();
        for place in 0..10 {
            assert_eq!(shares.iter().filter(|share| share.has(place)).count(), 1);
        }
        for alone in ["", "SLURM_PROCID=0 SLURM_NTASKS=4", "SLURM_STEP_ID=batch SLURM_PROCID=0 SLURM_NTASKS=4"] {
            assert_eq!(of_task(alone), None, "{alone}");
        }
        assert_eq!(of_task("SLURM_STEP_ID=0 SLURM_PROCID=4 SLURM_NTASKS=4"), None);
    }

    #[test]
    fn people_type_parts() {
        assert_eq!(share("2/3"), Ok(Share { task: 2, tasks: 3 }));
        for text in ["", "3", "3/3", "0/0", "-1/3", "1/x", "1/2/3"] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}
