//! Devices people train on: peaks without sparsity, memory, and how fast they talk.
//!
//! Figures are those of the makers' data sheets; where a sheet prints peaks with sparsity, half of it stands here.

use serde::Serialize;

use crate::{error::PlanError, layout::Precision, numbers::NumberType};

const TERA: f64 = 1e12;
const GIGA: f64 = 1e9;
/// Memory is sold in GB and comes in GiB.
const GIB: u64 = 1 << 30;

/// One device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Device {
    /// What it is called here.
    pub name: &'static str,
    /// What drivers call it.
    #[serde(skip)]
    driver_names: &'static [&'static str],
    /// Dense peaks.
    pub peaks: Peaks,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Bytes a second from that memory.
    pub memory_bandwidth: f64,
    /// Bytes a second, one way, to another device of the same node.
    pub link_bandwidth: f64,
    /// Bytes a second, one way, to another node, in the nodes it is usually sold in.
    pub network_bandwidth: f64,
    /// Multiprocessors, or compute units.
    pub multiprocessors: u32,
}

/// FLOP/s without sparsity. What a device cannot multiply is none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Peaks {
    /// bf16 and fp16 products, summed in fp32.
    pub bf16: f64,
    /// fp32 outside the tensor cores.
    pub fp32: f64,
    /// fp32 products of which tensor cores take 19 bits.
    pub tf32: Option<f64>,
    /// Products of numbers of eight bits, integers too.
    pub fp8: Option<f64>,
    /// Products of numbers of four bits.
    pub fp4: Option<f64>,
}

/// A peak, if it is one that a device can have: shares of anything else mean nothing.
pub fn possible_peak(flops: f64) -> Option<f64> {
    (1.0..=1e24).contains(&flops).then_some(flops)
}

impl Peaks {
    /// The peak for a precision.
    pub fn of(self, precision: Precision) -> f64 {
        match precision {
            Precision::Bf16 => self.bf16,
            Precision::Fp32 => self.fp32,
        }
    }

    /// The peak for products of some numbers.
    pub fn of_numbers(self, numbers: NumberType) -> Option<f64> {
        match numbers {
            NumberType::Bf16 | NumberType::Fp16 => Some(self.bf16),
            NumberType::Fp32 => Some(self.fp32),
            NumberType::Tf32 => self.tf32,
            NumberType::Fp8 | NumberType::Int8 => self.fp8,
            NumberType::Fp4 => self.fp4,
            NumberType::Fp64 => None,
        }
    }
}

/// Peaks in TFLOP/s, zero where there is none: bf16, fp32, tf32, fp8, fp4. Memory in GiB; bandwidths of memory, link (one
/// way) and network in GB/s; and how many blocks of threads compute at once, each on a multiprocessor.
const fn device(
    name: &'static str,
    driver_names: &'static [&'static str],
    [bf16, fp32, tf32, fp8, fp4]: [f64; 5],
    memory: u64,
    [memory_bandwidth, link, network]: [f64; 3],
    multiprocessors: u32,
) -> Device {
    Device {
        name,
        driver_names,
        peaks: Peaks {
            bf16: bf16 * TERA,
            fp32: fp32 * TERA,
            tf32: if tf32 > 0.0 { Some(tf32 * TERA) } else { None },
            fp8: if fp8 > 0.0 { Some(fp8 * TERA) } else { None },
            fp4: if fp4 > 0.0 { Some(fp4 * TERA) } else { None },
        },
        memory_bytes: memory * GIB,
        memory_bandwidth: memory_bandwidth * GIGA,
        link_bandwidth: link * GIGA,
        network_bandwidth: network * GIGA,
        multiprocessors,
    }
}

const AMPERE: [f64; 5] = [312.0, 19.5, 156.0, 0.0, 0.0];
const HOPPER: [f64; 5] = [989.4, 66.9, 494.7, 1978.9, 0.0];

/// Networks: 200 Gb/s for each A100, 400 Gb/s for each later one of a server, 100 Gb/s for the others.
static DEVICES: [Device; 19] = [
    // NVIDIA A100 data sheet (2021): NVLink 3, 600 GB/s both ways. The PCIe cards have the same peaks.
    device("a100-40gb", &["A100-SXM4-40GB", "A100-PCIE-40GB"], AMPERE, 40, [1555.0, 300.0, 25.0], 108),
    device("a100-80gb", &["A100-SXM4-80GB", "A100 80GB PCIe"], AMPERE, 80, [2039.0, 300.0, 25.0], 108),
    // The A100 for China: NVLink of 400 GB/s both ways.
    device("a800", &["A800-SXM4-80GB", "A800 80GB PCIe"], AMPERE, 80, [2039.0, 200.0, 25.0], 108),
    // NVIDIA H100 data sheet (2024). SXM: NVLink 4, 900 GB/s both ways; PCIe and NVL: bridges of 600 GB/s.
    device("h100-sxm", &["H100 80GB HBM3"], HOPPER, 80, [3350.0, 450.0, 50.0], 132),
    device("h100-pcie", &["H100 PCIe"], [756.5, 51.2, 378.0, 1513.0, 0.0], 80, [2039.0, 300.0, 50.0], 114),
    device("h100-nvl", &["H100 NVL"], [835.5, 60.0, 417.5, 1671.0, 0.0], 94, [3938.0, 300.0, 50.0], 132),
    // The H100 for China: NVLink of 400 GB/s both ways.
    device("h800", &["H800"], HOPPER, 80, [3350.0, 200.0, 50.0], 132),
    // The later one for China, with fewer multiprocessors and more memory.
    device("h20", &["H20"], [148.0, 44.0, 74.0, 296.0, 0.0], 96, [4000.0, 450.0, 50.0], 78),
    // NVIDIA H200 data sheet (2024).
    device("h200", &["H200"], HOPPER, 141, [4800.0, 450.0, 50.0], 132),
    // NVIDIA GH200 data sheet (2024), the one with 96 GB of HBM3 and 480 GB beside it.
    device("gh200", &["GH200 480GB"], HOPPER, 96, [4000.0, 450.0, 50.0], 132),
    // NVIDIA HGX B200 and B300 (2025): NVLink 5, 1.8 TB/s both ways.
    device("b200", &["B200"], [2250.0, 75.0, 1125.0, 4500.0, 9000.0], 180, [7700.0, 900.0, 50.0], 148),
    device(
        "b300",
        &["B300", "B300 SXM6 AC"],
        [2250.0, 75.0, 1125.0, 4500.0, 13500.0],
        268,
        [7700.0, 900.0, 100.0],
        148,
    ),
    // NVIDIA L40S data sheet (2023): PCIe 4.
    device("l40s", &["L40S"], [362.05, 91.6, 183.0, 733.0, 0.0], 48, [864.0, 32.0, 12.5], 142),
    // NVIDIA A10 data sheet (2021): PCIe 4.
    device("a10", &["A10"], [125.0, 31.2, 62.5, 0.0, 0.0], 24, [600.0, 32.0, 12.5], 72),
    // NVIDIA Ada architecture paper (2022): tensor peak with fp32 sums; PCIe 4.
    device("rtx-4090", &["GeForce RTX 4090"], [165.2, 82.6, 82.6, 330.3, 0.0], 24, [1008.0, 32.0, 12.5], 128),
    // AMD MI300X and MI325X data sheets (2023, 2024): seven links of 128 GB/s both ways.
    device("mi300x", &["Instinct MI300X"], [1307.4, 163.4, 653.7, 2614.9, 0.0], 192, [5300.0, 448.0, 50.0], 304),
    device("mi325x", &["Instinct MI325X"], [1307.4, 163.4, 653.7, 2614.9, 0.0], 256, [6000.0, 448.0, 50.0], 304),
    // AMD MI350X and MI355X data sheets (2025): seven links of 153.6 GB/s both ways; tf32 is emulated.
    device("mi350x", &["Instinct MI350X"], [2306.9, 144.2, 0.0, 4613.7, 9227.5], 288, [8000.0, 537.6, 50.0], 256),
    device("mi355x", &["Instinct MI355X"], [2516.6, 157.3, 0.0, 5033.2, 10066.3], 288, [8000.0, 537.6, 50.0], 256),
];

/// What people say when they mean the usual one.
const SHORT_NAMES: [(&str, &str); 8] = [
    ("a100", "a100-80gb"),
    ("a10040", "a100-40gb"),
    ("a10080", "a100-80gb"),
    ("h100", "h100-sxm"),
    ("h100sxm5", "h100-sxm"),
    ("h10080gb", "h100-sxm"),
    ("h200sxm", "h200"),
    ("4090", "rtx-4090"),
];

impl Device {
    /// A device by the name it has here, or by the one its driver gives it.
    pub fn named(name: &str) -> Result<&'static Device, PlanError> {
        let plain = |text: &str| {
            let text = text.to_lowercase().replace([' ', '-', '_'], "");
            // A whole device that a virtual machine has is called a virtual function of it.
            text.trim_start_matches("nvidia").trim_start_matches("amd").trim_end_matches("vf").to_owned()
        };
        let short = SHORT_NAMES.iter().find(|(short, _)| *short == plain(name));
        let wanted = plain(short.map_or(name, |(_, long)| long));
        // Whole names only: a name that merely contains another is another device.
        let is_it = |device: &&Device| {
            plain(device.name) == wanted || device.driver_names.iter().any(|name| plain(name) == wanted)
        };
        let unknown = || PlanError::UnknownDevice { name: name.into(), known: Device::names().join(", ") };
        DEVICES.iter().find(is_it).ok_or_else(unknown)
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
            ("A100 40", "a100-40gb"),
            ("AMD Instinct MI300X VF", "mi300x"),
            ("H100 SXM5", "h100-sxm"),
            ("4090", "rtx-4090"),
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
            ("NVIDIA A100-PCIE-40GB", "a100-40gb"),
            ("NVIDIA A100 80GB PCIe", "a100-80gb"),
            ("NVIDIA L40S", "l40s"),
            ("NVIDIA B200", "b200"),
            ("AMD Instinct MI300X", "mi300x"),
            ("AMD Instinct MI325X", "mi325x"),
            ("AMD Instinct MI355X", "mi355x"),
            ("NVIDIA H20", "h20"),
            ("NVIDIA H800", "h800"),
            ("NVIDIA A800-SXM4-80GB", "a800"),
            ("NVIDIA B300 SXM6 AC", "b300"),
        ] {
            assert_eq!(Device::named(name).unwrap().name, found, "{name}");
        }
        for other in
            ["NVIDIA A10G", "NVIDIA GB200", "NVIDIA H200 NVL", "NVIDIA GeForce RTX 4090 Laptop GPU", "tpu-v5", ""]
        {
            let error = Device::named(other).unwrap_err().to_string();
            assert!(error.contains(other) && error.contains("h200, gh200, b200, b300"), "{error}");
        }
    }

    /// Dense bf16 TFLOP/s, GiB, GB/s: as on the data sheets.
    #[test]
    fn the_table_is_the_one_of_the_data_sheets() {
        let table: Vec<_> = DEVICES
            .iter()
            .map(|device| {
                let tera = device.peaks.bf16 / 1e12;
                (device.name, tera, device.memory_bytes >> 30, (device.memory_bandwidth / 1e9).round())
            })
            .collect();
        let sheets = [
            ("a100-40gb", 312.0, 40, 1555.0),
            ("a100-80gb", 312.0, 80, 2039.0),
            ("a800", 312.0, 80, 2039.0),
            ("h100-sxm", 1978.8 / 2.0, 80, 3350.0),
            ("h100-pcie", 1513.0 / 2.0, 80, 2039.0),
            ("h100-nvl", 1671.0 / 2.0, 94, 3938.0),
            ("h800", 1978.8 / 2.0, 80, 3350.0),
            ("h20", 148.0, 96, 4000.0),
            ("h200", 1978.8 / 2.0, 141, 4800.0),
            ("gh200", 1978.8 / 2.0, 96, 4000.0),
            ("b200", 4500.0 / 2.0, 180, 7700.0),
            ("b300", 36_000.0 / 2.0 / 8.0, 268, 7700.0),
            ("l40s", 724.1 / 2.0, 48, 864.0),
            ("a10", 250.0 / 2.0, 24, 600.0),
            ("rtx-4090", 330.4 / 2.0, 24, 1008.0),
            ("mi300x", 2614.8 / 2.0, 192, 5300.0),
            ("mi325x", 2614.8 / 2.0, 256, 6000.0),
            ("mi350x", 4613.8 / 2.0, 288, 8000.0),
            ("mi355x", 5033.2 / 2.0, 288, 8000.0),
        ];
        for (ours, sheet) in table.iter().zip(sheets) {
            assert!((ours.1 - sheet.1).abs() < 0.01, "{ours:?} {sheet:?}");
            assert_eq!((ours.0, ours.2, ours.3), (sheet.0, sheet.2, sheet.3));
        }
        assert_eq!(table.len(), sheets.len());
    }
}
