//! Where a rank runs, as far as its launcher, its scheduler and its GPU say.

use std::{env, fs, path::Path};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The variables that number the machines of a job: Slurm's, torchrun's, Lightning's.
const NODES: [&str; 3] = ["SLURM_NODEID", "GROUP_RANK", "NODE_RANK"];
/// The variables that number the ranks of a machine: torchrun's, Open MPI's, Slurm's, MPICH's, MVAPICH's, Flux's.
const LOCAL_RANKS: [&str; 6] = [
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "FLUX_TASK_LOCAL_ID",
];
/// Networks have fewer levels of switches.
const MOST_LEVELS: usize = 16;
/// Where Linux says of each PCI device where it is.
const PCI_DEVICES: &str = "/sys/bus/pci/devices";

/// Where a rank runs, besides its host. What nobody says is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Topology {
    /// The number of its machine in the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// Which rank of its machine it is, as its launcher counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_rank: Option<u32>,
    /// Its GPU.
    #[serde(flatten)]
    pub gpu: GpuSlot,
    /// The switches above its machine, from the top one down to the one that it is connected to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub switches: Vec<String>,
}

/// Where a GPU is in its machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GpuSlot {
    /// Which GPU of its machine it is, however the rank's process numbers those that it sees.
    #[serde(rename = "gpu_index", skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// Where it is on the PCI bus, as in `00000000:1B:00.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci_bus: Option<String>,
    /// The NUMA node that it is closest to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
}

impl Topology {
    /// Where this process runs, as its variables say.
    pub fn of_this_process() -> Topology {
        Topology::by(|name| env::var(name).ok())
    }

    fn by(variable: impl Fn(&str) -> Option<String>) -> Topology {
        let number = |name: &str| variable(name)?.trim().parse::<u32>().ok();
        let address = variable("SLURM_TOPOLOGY_ADDR").zip(variable("SLURM_TOPOLOGY_ADDR_PATTERN"));
        Topology {
            node: NODES.into_iter().find_map(number),
            local_rank: LOCAL_RANKS.into_iter().find_map(number),
            gpu: GpuSlot::default(),
            switches: address.map(|(address, pattern)| switches(&address, &pattern)).unwrap_or_default(),
        }
    }

    /// Whether nothing is known.
    pub(crate) fn is_unknown(&self) -> bool {
        *self == Topology::default()
    }

    /// What a file says; nothing, where it says that in another form. A rank is not lost for it.
    pub(crate) fn of_file<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Topology, D::Error> {
        let said = Value::deserialize(deserializer)?;
        let number = |key: &str| said[key].as_u64().and_then(|number| u32::try_from(number).ok());
        let switches = said["switches"].as_array().map_or(&[][..], Vec::as_slice);
        let switches: Option<Vec<String>> = switches.iter().map(|name| Some(name.as_str()?.to_owned())).collect();
        Ok(Topology {
            node: number("node"),
            local_rank: number("local_rank"),
            gpu: GpuSlot {
                index: number("gpu_index"),
                pci_bus: said["pci_bus"].as_str().map(str::to_owned),
                numa_node: number("numa_node"),
            },
            switches: switches.filter(|switches| switches.len() <= MOST_LEVELS).unwrap_or_default(),
        })
    }
}

impl GpuSlot {
    /// A GPU of this machine.
    pub fn here(index: Option<u32>, pci_bus: Option<String>) -> GpuSlot {
        let numa_node = pci_bus.as_deref().and_then(|bus| numa_node(Path::new(PCI_DEVICES), bus));
        GpuSlot { index, pci_bus, numa_node }
    }
}

/// The switches in the address that Slurm has for a node, such as `s0.s1.n3` with the pattern `switch.switch.node`.
fn switches(address: &str, pattern: &str) -> Vec<String> {
    let levels: Vec<&str> = pattern.split('.').collect();
    // The name of the node is last, and may have dots.
    let parts: Vec<&str> = address.splitn(levels.len(), '.').collect();
    let is_whole = parts.len() == levels.len() && parts.len() <= MOST_LEVELS && levels.last() == Some(&"node");
    let named = parts.into_iter().zip(levels).filter(|(name, level)| *level == "switch" && !name.is_empty());
    if is_whole { named.map(|(name, _)| name.to_owned()).collect() } else { Vec::new() }
}

/// The NUMA node of a PCI device; Linux writes -1 where the machine does not say.
fn numa_node(devices: &Path, bus: &str) -> Option<u32> {
    // NVML writes the domain with eight digits, Linux with four.
    let (domain, place) = bus.split_once(':')?;
    let domain = u32::from_str_radix(domain, 16).ok()?;
    let name = format!("{domain:04x}:{}", place.to_ascii_lowercase());
    let is_plain = name.chars().all(|letter| letter.is_ascii_hexdigit() || matches!(letter, ':' | '.'));
    fs::read_to_string(devices.join(name).join("numa_node")).ok().filter(|_| is_plain)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn by(variables: &[(&str, &str)]) -> Topology {
        let value = |name: &str| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| value.to_string());
        Topology::by(value)
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn read(said: &Value) -> Topology {
        Topology::of_file(said.clone()).unwrap()
    }

    #[test]
    fn a_rank_is_where_its_launcher_and_its_scheduler_say() {
        assert!(by(&[]).is_unknown());
        let slurm = by(&[
            ("SLURM_NODEID", "2"),
            ("SLURM_LOCALID", "5"),
            ("SLURM_TOPOLOGY_ADDR", "s0.s1.n3"),
            ("SLURM_TOPOLOGY_ADDR_PATTERN", "switch.switch.node"),
        ]);
        assert_eq!((slurm.node, slurm.local_rank, slurm.switches), (Some(2), Some(5), names(&["s0", "s1"])));
        // One task of Slurm's on each machine starts torchrun.
        let torchrun = by(&[("SLURM_NODEID", "1"), ("SLURM_LOCALID", "0"), ("LOCAL_RANK", "3"), ("GROUP_RANK", "7")]);
        assert_eq!((torchrun.node, torchrun.local_rank), (Some(1), Some(3)));
        assert_eq!(by(&[("GROUP_RANK", "4")]).node, Some(4));
        assert!(by(&[("GROUP_RANK", "-1"), ("LOCAL_RANK", "two")]).is_unknown());
    }

    #[test]
    fn an_address_without_its_pattern_says_nothing() {
        assert_eq!(switches("s0.s1.n3.example.org", "switch.switch.node"), names(&["s0", "s1"]));
        assert_eq!(switches("n3", "node"), names(&[]));
        for (address, pattern) in [("s0.n3", "switch.switch.node"), ("s0.s1", "switch.switch"), ("", ""), ("n3", "")] {
            assert_eq!(switches(address, pattern), names(&[]), "{address} {pattern}");
        }
        assert!(by(&[("SLURM_TOPOLOGY_ADDR", "s0.n3")]).is_unknown());
    }

    #[test]
    fn what_is_known_is_written_and_read_and_nothing_else() {
        let gpu = GpuSlot { index: Some(3), pci_bus: Some("00000000:1B:00.0".into()), numa_node: Some(0) };
        let known = Topology { node: Some(1), local_rank: None, gpu, switches: names(&["s0"]) };
        let written = serde_json::to_value(&known).unwrap();
        let expected =
            json!({ "node": 1, "gpu_index": 3, "pci_bus": "00000000:1B:00.0", "numa_node": 0, "switches": ["s0"] });
        assert_eq!(written, expected);
        assert_eq!(read(&written), known);
        assert_eq!(serde_json::to_value(Topology::default()).unwrap(), json!({}));
    }

    #[test]
    fn what_has_another_form_is_not_known() {
        for odd in [json!(null), json!(7), json!([1]), json!({ "node": -1, "gpu_index": 1e30, "switches": [1] })] {
            assert!(read(&odd).is_unknown(), "{odd}");
        }
        assert_eq!(read(&json!({ "node": 2, "rack": "r7", "switches": vec!["s"; 99] })).node, Some(2), "a newer one");
    }

    #[test]
    fn a_gpu_is_at_the_numa_node_that_linux_says() {
        let devices = tempfile::tempdir().unwrap();
        for (device, node) in [("0000:1b:00.0", "1\n"), ("0000:1c:00.0", "-1\n")] {
            fs::create_dir(devices.path().join(device)).unwrap();
            fs::write(devices.path().join(device).join("numa_node"), node).unwrap();
        }
        assert_eq!(numa_node(devices.path(), "00000000:1B:00.0"), Some(1));
        assert_eq!(numa_node(devices.path(), "00000000:1C:00.0"), None);
        for odd in ["00000000:1D:00.0", "", "0:../0000:1b:00.0", "bus"] {
            assert_eq!(numa_node(devices.path(), odd), None, "{odd}");
        }
        assert_eq!(GpuSlot::here(Some(2), None), GpuSlot { index: Some(2), ..GpuSlot::default() });
    }
}
