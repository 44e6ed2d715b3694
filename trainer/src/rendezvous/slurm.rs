//! What Slurm knows of a job that it does not say in variables.

use std::{
    fmt,
    io::Read,
    ops::RangeInclusive,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Ports that Slurm jobs take: beyond well-known ones, below those that systems hand out.
const PORTS: RangeInclusive<u16> = 20_000..=29_999;
/// Steps of a job may run at the same time on the same node: their ports are far apart.
const BETWEEN_STEPS: u64 = 1009;
/// How long Slurm's controller may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// More than Slurm says of a node.
const MOST_BYTES: u64 = 64 << 10;

/// What one `srun` of a Slurm job starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlurmStep {
    /// The job's number.
    pub job: u64,
    /// The step's, in it.
    pub step: u32,
}

impl SlurmStep {
    /// Where rank 0 listens, unless somebody chooses another port.
    pub(super) fn port(self) -> u16 {
        let ports = u64::from(PORTS.end() - PORTS.start()) + 1;
        let number = self.job.wrapping_add(BETWEEN_STEPS.wrapping_mul(self.step.into()));
        PORTS.start() + (number % ports) as u16
    }
}

/// As Slurm writes it.
impl fmt::Display for SlurmStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.job, self.step)
    }
}

/// The address of a node whose name means nothing to the system: nodes of a cluster have names that need not be hosts'.
pub(super) fn address_of(node: &str) -> Option<String> {
    let mut command = Command::new("scontrol");
    command
        .args(["show", "node", "--oneliner", node])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => thread::sleep(LOOK_EVERY),
            _ => {
                drop(child.kill().and_then(|()| child.wait()));
                return None;
            }
        }
    };
    let mut said = String::new();
    // It is one line, which fits into the pipe.
    child.stdout.take().filter(|_| status.success())?.take(MOST_BYTES).read_to_string(&mut said).ok()?;
    node_address(&said).map(str::to_owned)
}

fn node_address(said: &str) -> Option<&str> {
    let address = said.split_whitespace().find_map(|word| word.strip_prefix("NodeAddr="))?;
    (!address.is_empty() && address != "(null)").then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_a_job_do_not_meet() {
        let port = |job, step| SlurmStep { job, step }.port();
        assert_eq!((port(1_234_567, 0), port(1_234_567, 1)), (24_567, 25_576));
        assert!((0..9000).all(|step| PORTS.contains(&port(u64::MAX, step))));
        assert_eq!(SlurmStep { job: 7, step: 2 }.to_string(), "7.2");
    }

    #[test]
    fn a_node_has_the_address_that_slurm_says() {
        let said = "NodeName=n1 Arch=x86_64 CoresPerSocket=1 NodeAddr=10.0.0.7 NodeHostName=vm Version=22.05.8 Reason=a NodeAddr=x";
        assert_eq!(node_address(said), Some("10.0.0.7"));
        assert_eq!(node_address("NodeName=n1 NodeAddr=(null)"), None);
        assert_eq!(node_address("Node n9 not found"), None);
    }
}
