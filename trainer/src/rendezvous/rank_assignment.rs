//! Which rank of a job this process is, according to its launcher.

use std::{fmt::Display, str::FromStr};

use stepscope_traces::Rank;

use super::{
    hosts, listening,
    secret::{SECRET, Secret},
    slurm::{self, SlurmStep},
};
use crate::error::TrainError;

/// Where a process stands in a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankAssignment {
    /// Which rank it is.
    pub rank: Rank,
    /// How many there are.
    pub world: u32,
    /// Which one of its machine it is, if that is known.
    pub local_rank: Option<u32>,
    /// The host of rank 0.
    pub address: String,
    /// Where rank 0 listens.
    pub port: u16,
    /// What only the ranks of the job know.
    pub secret: Secret,
    /// The step of a Slurm job that the ranks are, if Slurm started them.
    pub slurm: Option<SlurmStep>,
}

impl RankAssignment {
    /// Where this process stands; nothing, if it is alone. Under Slurm, what its variables do not say is found out: where the
    /// first node is, if its name leads nowhere, and a secret.
    pub fn of_this_process() -> Result<Option<RankAssignment>, TrainError> {
        let mut assignment = RankAssignment::of(&|name| std::env::var(name).ok())?;
        if let Some(RankAssignment { address, port, secret, slurm: Some(step), .. }) = &mut assignment {
            if !listening::is_known(address, *port) {
                *address = slurm::address_of(address).unwrap_or_else(|| address.clone());
            }
            if secret.is_missing() {
                // Without one, ranks are warned of strangers.
                *secret = Secret::of_user(&step.to_string()).unwrap_or_default();
            }
        }
        Ok(assignment)
    }

    /// Where a process with these variables stands: torchrun's, else Slurm's.
    pub fn of(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<RankAssignment>, TrainError> {
        let variables = Variables(variable);
        let assignment = if variables.0("RANK").is_some() || variables.0("WORLD_SIZE").is_some() {
            variables.torchrun()?
        } else if variables.0("SLURM_STEP_ID").is_some_and(|step| step.parse::<u32>().is_ok()) {
            variables.slurm()?
        } else {
            return Ok(None);
        };
        if assignment.world == 0 || assignment.rank.0 >= assignment.world {
            return Err(wrong(format!("there is no rank {} in a job of {}", assignment.rank, assignment.world)));
        }
        Ok((assignment.world > 1).then_some(assignment))
    }

    /// One of a job that has no others to find.
    fn alone(rank: u32, world: u32) -> RankAssignment {
        let (address, secret) = (String::new(), Secret::default());
        RankAssignment { rank: Rank(rank), world, local_rank: None, address, port: 0, secret, slurm: None }
    }
}

struct Variables<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Variables<'_> {
    fn torchrun(&self) -> Result<RankAssignment, TrainError> {
        let (rank, world) = (self.needed("RANK", "WORLD_SIZE")?, self.needed("WORLD_SIZE", "RANK")?);
        let (local_rank, secret) = (self.number("LOCAL_RANK")?, self.secret()?);
        if world <= 1 {
            return Ok(RankAssignment::alone(rank, world));
        }
        let address = self.0("MASTER_ADDR").filter(|address| !address.is_empty());
        let address = address.ok_or_else(|| wrong("WORLD_SIZE is set, but MASTER_ADDR is not"))?;
        let port: u16 = self.needed("MASTER_PORT", "WORLD_SIZE")?;
        // There torchrun itself listens.
        let taken = self.0("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|is| is.eq_ignore_ascii_case("true"));
        let port = if taken { port.checked_add(1).unwrap_or(port - 1) } else { port };
        Ok(RankAssignment { rank: Rank(rank), world, local_rank, address, port, secret, slurm: None })
    }

    fn slurm(&self) -> Result<RankAssignment, TrainError> {
        let (rank, world) =
            (self.needed("SLURM_PROCID", "SLURM_STEP_ID")?, self.needed("SLURM_NTASKS", "SLURM_PROCID")?);
        let (local_rank, secret) = (self.number("SLURM_LOCALID")?, self.secret()?);
        if world <= 1 {
            return Ok(RankAssignment::alone(rank, world));
        }
        let nodes = || self.0("SLURM_STEP_NODELIST").or_else(|| self.0("SLURM_JOB_NODELIST"));
        let address = match self.0("MASTER_ADDR").filter(|address| !address.is_empty()) {
            Some(address) => address,
            None => {
                let nodes = nodes().ok_or_else(|| wrong("SLURM_PROCID is set, but SLURM_STEP_NODELIST is not"))?;
                hosts::first(&nodes).ok_or_else(|| wrong(format!("cannot tell the first node of {nodes:?}")))?
            }
        };
        let step = SlurmStep {
            job: self.needed("SLURM_JOB_ID", "SLURM_PROCID")?,
            step: self.needed("SLURM_STEP_ID", "SLURM_PROCID")?,
        };
        let port = self.number("MASTER_PORT")?.unwrap_or(step.port());
        Ok(RankAssignment { rank: Rank(rank), world, local_rank, address, port, secret, slurm: Some(step) })
    }

    fn secret(&self) -> Result<Secret, TrainError> {
        Secret::of_variable(self.0(SECRET))
    }

    fn number<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, TrainError> {
        let Some(text) = self.0(name) else { return Ok(None) };
        text.trim().parse().map(Some).map_err(|error| wrong(format!("{name} is {text:?}: {error}")))
    }

    fn needed<T: FromStr<Err: Display>>(&self, name: &str, beside: &str) -> Result<T, TrainError> {
        self.number(name)?.ok_or_else(|| wrong(format!("{beside} is set, but {name} is not")))
    }
}

fn wrong(why: impl Into<String>) -> TrainError {
    TrainError::NotJoined(format!("cannot tell which rank this is: {}", why.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assignment(text: &str) -> Result<Option<RankAssignment>, String> {
        let find = |name: &str| {
            let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
            pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).next()
        };
        RankAssignment::of(&find).map_err(|error| error.to_string())
    }

    fn some(rank: u32, world: u32, local_rank: Option<u32>, address: &str, port: u16) -> RankAssignment {
        let (rank, address, secret) = (Rank(rank), address.into(), Secret::default());
        RankAssignment { rank, world, local_rank, address, port, secret, slurm: None }
    }

    fn of_slurm(address: &str, port: u16) -> RankAssignment {
        RankAssignment { slurm: Some(SlurmStep { job: 1_234_567, step: 0 }), ..some(3, 8, Some(1), address, port) }
    }

    #[test]
    fn whoever_starts_ranks_is_understood() {
        let slurm = "SLURM_STEP_ID=0 SLURM_PROCID=3 SLURM_NTASKS=8 SLURM_LOCALID=1 SLURM_JOB_ID=1234567";
        for (variables, expected) in [
            ("", None),
            ("RANK=0 WORLD_SIZE=1", None),
            (
                "RANK=2 WORLD_SIZE=4 LOCAL_RANK=0 MASTER_ADDR=host MASTER_PORT=29500",
                Some(some(2, 4, Some(0), "host", 29500)),
            ),
            ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=::1 MASTER_PORT=1", Some(some(0, 2, None, "::1", 1))),
            (
                "RANK=0 WORLD_SIZE=2 MASTER_ADDR=host MASTER_PORT=29500 TORCHELASTIC_USE_AGENT_STORE=True",
                Some(some(0, 2, None, "host", 29501)),
            ),
            (&format!("{slurm} SLURM_STEP_NODELIST=node[003-005,7]"), Some(of_slurm("node003", 24567))),
            (&format!("{slurm} SLURM_JOB_NODELIST=a,b MASTER_PORT=5"), Some(of_slurm("a", 5))),
            (&format!("{slurm} MASTER_ADDR=other"), Some(of_slurm("other", 24567))),
            // torchrun inside a Slurm job.
            (&format!("{slurm} RANK=1 WORLD_SIZE=2 MASTER_ADDR=host MASTER_PORT=9"), Some(some(1, 2, None, "host", 9))),
            // The shell of a batch script is no rank.
            ("SLURM_STEP_ID=batch SLURM_PROCID=0 SLURM_NTASKS=8", None),
            ("SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_JOB_ID=5", None),
            ("SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=1", None),
        ] {
            assert_eq!(assignment(variables), Ok(expected), "{variables}");
        }
        let with = "RANK=0 WORLD_SIZE=2 MASTER_ADDR=host MASTER_PORT=9 STEPSCOPE_SECRET=0123456789abcdef";
        assert!(!assignment(with).unwrap().unwrap().secret.is_missing());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (variables, why) in [
            ("RANK=0", "RANK is set, but WORLD_SIZE is not"),
            ("WORLD_SIZE=2", "WORLD_SIZE is set, but RANK is not"),
            ("RANK=0 WORLD_SIZE=2 MASTER_PORT=1", "MASTER_ADDR is not"),
            ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=h", "MASTER_PORT is not"),
            ("RANK=4 WORLD_SIZE=4 MASTER_ADDR=h MASTER_PORT=1", "there is no rank 4 in a job of 4"),
            ("RANK=0 WORLD_SIZE=0", "there is no rank 0 in a job of 0"),
            ("RANK=-1 WORLD_SIZE=2", "RANK is \"-1\": invalid digit"),
            ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=99999", "MASTER_PORT is \"99999\""),
            ("RANK=0 WORLD_SIZE=2 LOCAL_RANK=x MASTER_ADDR=h MASTER_PORT=1", "LOCAL_RANK is \"x\""),
            ("RANK=0 WORLD_SIZE=2 STEPSCOPE_SECRET=short", "STEPSCOPE_SECRET has fewer than 16 characters"),
            ("SLURM_STEP_ID=0 SLURM_PROCID=0", "SLURM_NTASKS is not"),
            ("SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=2", "SLURM_STEP_NODELIST is not"),
            ("SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_NODELIST=n[", "cannot tell the first node"),
            ("SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_NODELIST=n", "SLURM_JOB_ID is not"),
        ] {
            let error = assignment(variables).unwrap_err();
            assert!(error.contains(why), "{variables}: {error}");
        }
    }
}
