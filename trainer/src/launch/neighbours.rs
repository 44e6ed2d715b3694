//! The ranks of one machine.

use stepscope_traces::Rank;

use crate::{error::TrainError, rendezvous::Link};

/// The ranks of this machine, of which this is one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Neighbours {
    /// How many there are.
    pub(super) count: u64,
    /// The first of them.
    pub(super) first: Rank,
    /// Which of them this rank is.
    pub(super) index: usize,
}

impl Neighbours {
    /// Asks everyone where they are, and makes sure that all train on the same kind of device.
    pub(super) fn ask(link: &Link, device: &str) -> Result<Neighbours, TrainError> {
        let host = nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned();
        let mine = format!("{device} of {host}").into_bytes();
        Neighbours::of(link.rank, device, &link.exchange("hosts", mine)?)
    }

    fn of(rank: Rank, device: &str, places: &[Vec<u8>]) -> Result<Neighbours, TrainError> {
        let of_device = format!("{device} of ");
        if let Some(other) = places.iter().position(|place| !place.starts_with(of_device.as_bytes())) {
            let why =
                format!("rank {rank} trains on the {device}, but rank {other} does not; pass --backend to all ranks");
            return Err(TrainError::Settings(why));
        }
        let mine = &places[rank.0 as usize];
        let here: Vec<usize> = (0..places.len()).filter(|other| places[*other] == *mine).collect();
        let index = here.iter().take_while(|other| **other != rank.0 as usize).count();
        Ok(Neighbours { count: here.len() as u64, first: Rank(here[0] as u32), index })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_those_of_the_same_machine() {
        let places = ["GPU of a", "GPU of b", "GPU of a", "GPU of b"].map(|place| place.as_bytes().to_vec());
        let of = |rank| Neighbours::of(Rank(rank), "GPU", &places).unwrap();
        assert_eq!(of(2), Neighbours { count: 2, first: Rank(0), index: 1 });
        assert_eq!(of(1), Neighbours { count: 2, first: Rank(1), index: 0 });
    }

    #[test]
    fn ranks_on_other_devices_are_refused() {
        let places = ["GPU of a", "CPU of a"].map(|place| place.as_bytes().to_vec());
        let refused = Neighbours::of(Rank(0), "GPU", &places).unwrap_err().to_string();
        assert_eq!(refused, "rank 0 trains on the GPU, but rank 1 does not; pass --backend to all ranks");
    }
}
