//! Which GPUs there are, as NVML tells it.

use std::{fmt, io, sync::OnceLock, thread};

use nvml_wrapper::{Device, Nvml, error::NvmlError};
use serde::Serialize;
use stepscope_traces::GpuSlot;

use super::{
    gauges::{Gauges, LeftOut, Reading, SAMPLE_EVERY},
    readings,
};
use crate::libraries::{self, Library, Missing};

/// One device, by a name that is the same for CUDA and for NVML: their numbers differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceSelector {
    /// As in `GPU-1b2c…`.
    Uuid(String),
    /// As in `0000:1b:00.0`.
    PciBus(String),
}

impl fmt::Display for DeviceSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceSelector::Uuid(name) | DeviceSelector::PciBus(name) => f.write_str(name),
        }
    }
}

impl DeviceSelector {
    /// By the bytes that CUDA gives for a device.
    pub fn from_uuid_bytes(bytes: [u8; 16]) -> DeviceSelector {
        let mut text = String::from("GPU");
        for (place, byte) in bytes.iter().enumerate() {
            if matches!(place, 0 | 4 | 6 | 8 | 10) {
                text.push('-');
            }
            text += &format!("{byte:02x}");
        }
        DeviceSelector::Uuid(text)
    }
}

/// Why a device cannot be sampled.
#[derive(Debug, thiserror::Error)]
pub enum NvmlUnavailable {
    /// The library is not there.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// The library is there and does not work.
    #[error("NVML fails to initialize: {0}")]
    DoesNotStart(String),
    /// The device said no.
    #[error("NVML cannot use the device: {0}")]
    Failed(#[source] NvmlError),
    /// Neither a lock nor a thread to sample with.
    #[error("the device cannot be sampled: {0}")]
    Io(#[from] io::Error),
}

/// NVML, started once and for the life of the process.
fn nvml() -> Result<&'static Nvml, NvmlUnavailable> {
    static NVML: OnceLock<Result<Nvml, String>> = OnceLock::new();
    let found = libraries::open(Library::Nvml)?;
    let started = NVML.get_or_init(|| {
        let nvml = Nvml::builder().lib_path(found.path.as_os_str()).init();
        nvml.map_err(|error| error.to_string())
    });
    started.as_ref().map_err(|reason| NvmlUnavailable::DoesNotStart(reason.clone()))
}

/// The driver's version, as in 580.95.05.
pub(crate) fn driver_version() -> Option<String> {
    nvml().ok()?.sys_driver_version().ok()
}

/// NVML's own version.
pub(crate) fn library_version() -> Option<String> {
    nvml().ok()?.sys_nvml_version().ok()
}

pub(super) fn find(device: &DeviceSelector) -> Result<Device<'static>, NvmlUnavailable> {
    let nvml = nvml()?;
    let found = match device {
        DeviceSelector::Uuid(uuid) => nvml.device_by_uuid(uuid.as_str()),
        DeviceSelector::PciBus(bus) => nvml.device_by_pci_bus_id(bus.as_str()),
    };
    found.map_err(NvmlUnavailable::Failed)
}

/// Where a GPU is in this node.
pub(super) fn slot(device: &Device<'_>) -> GpuSlot {
    GpuSlot::here(device.index().ok(), pci_bus(device))
}

fn pci_bus(device: &Device<'_>) -> Option<String> {
    device.pci_info().ok().map(|pci| pci.bus_id)
}

/// A GPU of this node.
#[derive(Clone, Debug, Serialize)]
pub struct Gpu {
    /// What its driver calls it.
    pub name: String,
    /// Its own number in all the world.
    pub uuid: Option<String>,
    /// Where it is in this machine.
    pub pci_bus: Option<String>,
    /// Its memory.
    pub memory_bytes: Option<u64>,
    /// What it can do, as in 9.0.
    pub compute_capability: Option<String>,
    /// What can be sampled.
    pub readings: Vec<Reading>,
    /// What cannot.
    pub left_out: Vec<LeftOut>,
}

/// Every GPU of this node, with what can be sampled of each. Takes as long as two samples do.
pub fn survey() -> Result<Vec<Gpu>, NvmlUnavailable> {
    let nvml = nvml()?;
    let count = nvml.device_count().map_err(NvmlUnavailable::Failed)?;
    let mut gpus: Vec<(Gpu, Gauges)> = Vec::new();
    for index in 0..count {
        match nvml.device_by_index(index) {
            Ok(device) => gpus.push((describe(&device), readings::of(device))),
            // A GPU that another user's container holds is no GPU of this one.
            Err(NvmlError::NoPermission) => {}
            Err(error) => return Err(NvmlUnavailable::Failed(error)),
        }
    }
    let read = |gpus: &mut Vec<(Gpu, Gauges)>| gpus.iter_mut().for_each(|(_, gauges)| gauges.read(|_, _| {}));
    read(&mut gpus);
    if !gpus.is_empty() {
        thread::sleep(SAMPLE_EVERY);
    }
    // Activity is known only between two samples.
    read(&mut gpus);
    Ok(gpus
        .into_iter()
        .map(|(gpu, gauges)| Gpu { readings: gauges.present(), left_out: gauges.left_out(), ..gpu })
        .collect())
}

fn describe(device: &Device<'_>) -> Gpu {
    Gpu {
        name: device.name().unwrap_or_else(|_| "GPU".into()),
        uuid: device.uuid().ok(),
        pci_bus: pci_bus(device),
        memory_bytes: device.memory_info().ok().map(|memory| memory.total),
        compute_capability: device.cuda_compute_capability().ok().map(|able| format!("{}.{}", able.major, able.minor)),
        readings: Vec::new(),
        left_out: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::skipped::skipped;

    #[test]
    fn bytes_become_the_name_that_nvml_knows() {
        let bytes = std::array::from_fn(|place| 0xa0 + place as u8);
        let expected = "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf";
        assert_eq!(DeviceSelector::from_uuid_bytes(bytes), DeviceSelector::Uuid(expected.into()));
    }

    #[test]
    fn without_nvml_nothing_is_surveyed_and_nothing_panics() {
        match survey() {
            Ok(gpus) => {
                let uuids: BTreeSet<&str> = gpus.iter().filter_map(|gpu| gpu.uuid.as_deref()).collect();
                assert_eq!(uuids.len(), gpus.len(), "each is one of its own: {gpus:?}");
                assert!(gpus.iter().all(|gpu| !gpu.name.is_empty() && !gpu.readings.is_empty()), "{gpus:?}");
            }
            Err(error) => {
                let is_missing = matches!(error, NvmlUnavailable::Missing(_));
                assert_eq!(is_missing, libraries::open(Library::Nvml).is_err(), "{error}");
                skipped("gpu", &error);
            }
        }
    }
}
