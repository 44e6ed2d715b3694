//! What is known of the process before anything is recorded of it.

use std::{
    env, fs,
    io::Write,
    panic,
    sync::{
        Once,
        atomic::{
            AtomicU32,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
};

/// Where this library was first used, or CUDA began.
static HOME: AtomicU32 = AtomicU32::new(0);

/// Says that the library is used in this process, unless it is a fork of one where it is.
pub(crate) fn settle() {
    // If it is used already, that is said already.
    let _ = HOME.compare_exchange(0, std::process::id(), AcqRel, Acquire);
}

/// Says that CUDA begins in this process, which is at home then, whoever's fork it is. Says whether that is news.
pub(crate) fn begin() -> bool {
    static BEGUN: AtomicU32 = AtomicU32::new(0);
    let this = std::process::id();
    HOME.store(this, Release);
    BEGUN.swap(this, AcqRel) != this
}

/// Whether this process is a fork of the one where the library is used. It has its memory and not its threads, so it may
/// wait for none of its locks.
pub(crate) fn is_fork() -> bool {
    let home = HOME.load(Acquire);
    home != 0 && home != std::process::id()
}

/// As much of a command line as is kept.
const LONGEST_COMMAND: usize = 4096;

/// The variables in which launchers say which rank a process is, and how many there are: torchrun's, Open MPI's, Slurm's,
/// MPICH's, MVAPICH's, Flux's.
const RANK_VARIABLES: [(&str, &str); 6] = [
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
];
/// Which rank of its node a process is, where nothing says more: on the first node that is its rank.
const LOCAL_RANK: &str = "LOCAL_RANK";
const NODE_VARIABLES: [&str; 2] = ["NODE_RANK", "GROUP_RANK"];

/// The rank that a launcher gave this process, the variable that says so, and how many ranks there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) rank: u32,
    pub(crate) variable: &'static str,
    pub(crate) ranks: Option<u32>,
}

impl Given {
    /// By this process's own variables.
    pub(crate) fn of_this_process() -> Option<Given> {
        Given::by(|name| env::var(name).ok())
    }

    fn by(variable: impl Fn(&str) -> Option<String>) -> Option<Given> {
        let number = |name: &str| variable(name)?.trim().parse::<u32>().ok();
        let told = RANK_VARIABLES
            .into_iter()
            .find_map(|(rank, size)| Some(Given { rank: number(rank)?, variable: rank, ranks: number(size) }));
        told.or_else(|| {
            let before = match NODE_VARIABLES.into_iter().find_map(number).unwrap_or(0) {
                0 => 0,
                node => node.checked_mul(number("LOCAL_WORLD_SIZE")?)?,
            };
            let rank = number(LOCAL_RANK)?.checked_add(before)?;
            Some(Given { rank, variable: LOCAL_RANK, ranks: number("WORLD_SIZE") })
        })
    }
}

/// The command line of this process. The arguments that Rust knows are the program's own, if that is one in Rust.
pub(crate) fn command_line() -> Option<String> {
    let bytes = fs::read("/proc/self/cmdline").ok()?;
    let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let line = words.map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ");
    Some(line.chars().take(LONGEST_COMMAND).collect())
}

/// Lets no panic of this library write to the program's stderr. The hook is the library's own, not the program's.
pub(crate) fn be_quiet() {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| panic::set_hook(Box::new(|_| {})));
}

/// Says one line on the program's stderr; whether anybody hears it does not matter.
pub(crate) fn complain(why: &str) {
    let line = format!("stepscope: this process is not recorded: {why}; the program continues\n");
    drop(std::io::stderr().write_all(line.as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_is_what_the_nearest_launcher_says() {
        let given = |variables: &[(&str, &str)]| {
            let variables: Vec<(String, String)> =
                variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            Given::by(|name| variables.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone()))
        };
        assert_eq!(given(&[]), None);
        assert_eq!(given(&[("RANK", "three")]), None);
        let torchrun = Given { rank: 3, variable: "RANK", ranks: Some(8) };
        assert_eq!(given(&[("SLURM_PROCID", "0"), ("RANK", "3"), ("WORLD_SIZE", "8")]), Some(torchrun));
        let lightning = Given { rank: 1, variable: "LOCAL_RANK", ranks: Some(4) };
        assert_eq!(given(&[("LOCAL_RANK", "1"), ("WORLD_SIZE", "4"), ("NODE_RANK", "0")]), Some(lightning));
        let second_node = [("LOCAL_RANK", "1"), ("NODE_RANK", "1")];
        assert_eq!(given(&second_node), None, "nobody knows how many are on the first one");
        let second_node = [second_node.as_slice(), &[("LOCAL_WORLD_SIZE", "8")]].concat();
        assert_eq!(given(&second_node), Some(Given { rank: 9, variable: "LOCAL_RANK", ranks: None }));
        let slurm = Given { rank: 5, variable: "SLURM_PROCID", ranks: None };
        assert_eq!(given(&[("SLURM_PROCID", "5"), ("WORLD_SIZE", "8")]), Some(slurm));
    }

    #[test]
    fn a_process_has_a_command_line() {
        assert!(command_line().unwrap().contains("inject"));
    }
}
