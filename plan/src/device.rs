//! Devices people train on: peaks without sparsity, memory, and how fast they talk.
//!
//! Figures are those of the makers' data sheets; where a sheet prints peaks with sparsity, half of it stands here.

use serde::Serialize;

use crate::{error::PlanError, layout::Precision};

const TERA: f64 = 1e12;
const GIGA: f64 = 1e9;
/// Memory is sold in GB and comes in GiB.
const GIB: u64 = 1 << 30;

/// One device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Device {
    /// What it is called here.
    pub name: &'static str,
    /// What its driver calls it: a part of that name, in lower case, without spaces and dashes.
    #[serde(skip)]
    driver_name: &'static str,
    /// Dense peaks.
    pub peaks: Peaks,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Bytes a second from that memory.
    pub memory_bandwidth: f64,
    /// Bytes a second, one way, to another device of the same node.
    pub link_bandwidth: f64,
}

/// FLOP/s without sparsity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Peaks {
    /// bf16 products, summed in fp32.
    pub bf16: f64,
    /// fp32 outside the tensor cores.
    pub fp32: f64,
}

impl Peaks {
    /// The peak for a precision.
    pub fn of(self, precision: Precision) -> f64 {
        match precision {
            Precision::Bf16 => self.bf16,
            Precision::Fp32 => self.fp32,
        }
    }
}

/// bf16 and fp32 in TFLOP/s, memory in GiB, its bandwidth and the link's (one way) in GB/s.
const fn device(
    name: &'static str,
    driver_name: &'static str,
    peaks: [f64; 2],
    memory: u64,
    rates: [f64; 2],
) -> Device {
    Device {
        name,
        driver_name,
        peaks: Peaks { bf16: peaks[0] * TERA, fp32: peaks[1] * TERA },
        memory_bytes: memory * GIB,
        memory_bandwidth: rates[0] * GIGA,
        link_bandwidth: rates[1] * GIGA,
    }
}

/// The more particular driver names stand before those they contain.
static DEVICES: [Device; 12] = [
    // NVIDIA A100 data sheet (2021): NVLink 3, 600 GB/s both ways.
    device("a100-40gb", "a100sxm440gb", [312.0, 19.5], 40, [1555.0, 300.0]),
    device("a100-80gb", "a100sxm480gb", [312.0, 19.5], 80, [2039.0, 300.0]),
    // NVIDIA H100 data sheet (2024). SXM: NVLink 4, 900 GB/s both ways; PCIe and NVL: bridges of 600 GB/s.
    device("h100-sxm", "h10080gbhbm3", [989.4, 66.9], 80, [3350.0, 450.0]),
    device("h100-pcie", "h100pcie", [756.5, 51.2], 80, [2039.0, 300.0]),
    device("h100-nvl", "h100nvl", [835.5, 60.0], 94, [3938.0, 300.0]),
    // NVIDIA GH200 data sheet (2024), the one with 96 GB of HBM3.
    device("gh200", "gh200", [989.4, 66.9], 96, [4000.0, 450.0]),
    // NVIDIA H200 data sheet (2024).
    device("h200", "h200", [989.4, 66.9], 141, [4800.0, 450.0]),
    // NVIDIA HGX B200 (2025): NVLink 5, 1.8 TB/s both ways.
    device("b200", "b200", [2250.0, 75.0], 180, [7700.0, 900.0]),
    // NVIDIA L40S data sheet (2023): PCIe 4.
    device("l40s", "l40s", [362.05, 91.6], 48, [864.0, 32.0]),
    // NVIDIA A10 data sheet (2021): PCIe 4.
    device("a10", "nvidiaa10", [125.0, 31.2], 24, [600.0, 32.0]),
    // NVIDIA Ada architecture paper (2022): tensor peak with fp32 sums; PCIe 4.
    device("rtx-4090", "rtx4090", [165.2, 82.6], 24, [1008.0, 32.0]),
    // AMD MI300X data sheet (2023): seven links of 128 GB/s both ways.
    device("mi300x", "mi300x", [1307.4, 163.4], 192, [5300.0, 448.0]),
];

/// What people say when they mean the usual one.
const SHORT_NAMES: [(&str, &str); 3] = [("a100", "a100-80gb"), ("h100", "h100-sxm"), ("4090", "rtx-4090")];

impl Device {
    /// A device by the name it has here, or by the one its driver gives it.
    pub fn named(name: &str) -> Result<&'static Device, PlanError> {
        let plain = |text: &str| text.to_lowercase().replace([' ', '-', '_'], "");
        let short = SHORT_NAMES.iter().find(|(short, _)| *short == plain(name));
        let wanted = plain(short.map_or(name, |(_, long)| long));
        let here = DEVICES.iter().find(|device| plain(device.name) == wanted);
        let driver = || DEVICES.iter().find(|device| wanted.contains(device.driver_name));
        here.or_else(driver)
            .ok_or_else(|| PlanError::UnknownDevice { name: name.into(), known: Device::names().join(", ") })
    }

    /// The names of all devices.
    pub fn names() -> Vec<&'static str> {
        DEVICES.iter().map(|device| device.name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_found_by_either_name() {
        for (name, found) in [
            ("h100", "h100-sxm"),
            ("H100-SXM", "h100-sxm"),
            ("a100 80GB", "a100-80gb"),
            ("RTX 4090", "rtx-4090"),
            ("NVIDIA H200", "h200"),
            ("NVIDIA GH200 480GB", "gh200"),
            ("NVIDIA H100 80GB HBM3", "h100-sxm"),
            ("NVIDIA H100 PCIe", "h100-pcie"),
            ("NVIDIA H100 NVL", "h100-nvl"),
            ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
            ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
            ("NVIDIA GeForce RTX 4090", "rtx-4090"),
            ("NVIDIA A10", "a10"),
            ("NVIDIA L40S", "l40s"),
            ("NVIDIA B200", "b200"),
            ("AMD Instinct MI300X", "mi300x"),
        ] {
            assert_eq!(Device::named(name).unwrap().name, found, "{name}");
        }
        let error = Device::named("tpu-v5").unwrap_err().to_string();
        assert!(error.contains("tpu-v5") && error.contains("gh200, h200, b200"), "{error}");
    }

    #[test]
    fn figures_are_plausible() {
        for device in &DEVICES {
            assert!(device.peaks.bf16 > device.peaks.fp32, "{}", device.name);
            assert!((1e12..1e13).contains(&device.memory_bandwidth) || device.memory_bandwidth > 5e11);
            // Dense: nothing of these generations reaches 3 PFLOP/s in bf16 without sparsity.
            assert!(device.peaks.bf16 < 3e15);
        }
    }
}
