//! Every counter that comes from NVML: its name, its unit, what it means, and how it is read.

use std::{process, sync::Arc};

use nvml_wrapper::{
    Device, GpmSample,
    bitmasks::{device::ThrottleReasons, event::EventTypes},
    enum_wrappers::device::{Clock, EccCounter, MemoryError, PcieUtilCounter, TemperatureSensor},
    enums::{
        device::UsedGpuMemory,
        event::XidError,
        gpm::GpmMetricId::{
            self, AnyTensorUtil, DramBwUtil, HmmaTensorUtil, NvlinkTotalRxPerSec, NvlinkTotalTxPerSec, PcieRxPerSec,
            PcieTxPerSec, SmOccupancy, SmUtil,
        },
    },
    error::NvmlError,
    gpm::gpm_metrics_get,
};

use super::gauges::{Failure, Gauge, Gauges, Reading, Value};

const fn reading(name: &'static str, unit: &'static str, meaning: &'static str) -> Reading {
    Reading { name, unit, meaning }
}

const UTILISATION: [Reading; 2] = [
    reading("gpu.utilisation", "%", "share of time in which any kernel ran"),
    reading("gpu.memory_utilisation", "%", "share of time in which memory was read or written"),
];
const MEMORY: [Reading; 2] = [
    reading("gpu.memory_used", "B", "used by all processes, as in nvidia-smi"),
    reading("gpu.memory_reserved", "B", "reserved by the driver, not included in used memory"),
];
const MEMORY_OF_PROCESS: [Reading; 1] =
    [reading("gpu.memory_used_by_process", "B", "used by the sampled process, including its CUDA context")];
const POWER: [Reading; 1] = [reading("gpu.power", "W", "power of the whole board")];
const ENERGY: [Reading; 1] = [reading("gpu.energy", "J", "energy since sampling started")];
const SM_CLOCK: [Reading; 1] = [reading("gpu.sm_clock_mhz", "MHz", "clock of the SMs")];
const MEMORY_CLOCK: [Reading; 1] = [reading("gpu.memory_clock_mhz", "MHz", "clock of the memory")];
const TEMPERATURE: [Reading; 1] = [reading("gpu.temperature", "°C", "temperature of the chip")];
const THROTTLE: [Reading; 4] = [
    reading("gpu.throttle", "", "why clocks are reduced: NVML's bit mask of clock event reasons"),
    reading("gpu.throttle.power", "", "1 while clocks are reduced to limit power"),
    reading("gpu.throttle.thermal", "", "1 while clocks are reduced because of temperature"),
    reading("gpu.throttle.hardware", "", "1 while the hardware cuts clocks by half or more"),
];
const ECC_CORRECTED: [Reading; 1] = [reading("gpu.ecc.corrected", "", "memory errors since the driver was loaded")];
const ECC_UNCORRECTED: [Reading; 1] =
    [reading("gpu.ecc.uncorrected", "", "uncorrectable memory errors since the driver was loaded")];
const XID: [Reading; 1] = [reading("gpu.xid", "", "code of a critical error when it was reported")];
const PCIE_RECEIVED: Reading = reading("pcie.rx", "B/s", "PCIe traffic to the GPU");
const PCIE_SENT: Reading = reading("pcie.tx", "B/s", "PCIe traffic from the GPU");
const PCIE: [Reading; 2] = [PCIE_RECEIVED, PCIE_SENT];
/// What performance monitoring (GPM, Hopper and newer) tells of the time between two samples.
const MONITORING: [Reading; 9] = [
    reading("gpu.sm_activity", "%", "share of SM time with at least one warp"),
    reading("gpu.sm_occupancy", "%", "share of warp slots that were occupied"),
    reading("gpu.tensor_activity", "%", "share of time in which tensor cores were active"),
    reading("gpu.tensor_activity.hmma", "%", "share of time in which tensor cores ran 16-bit floating point"),
    reading("gpu.dram_activity", "%", "share of memory bandwidth that was used"),
    PCIE_RECEIVED,
    PCIE_SENT,
    reading("nvlink.rx", "B/s", "NVLink traffic to the GPU, all links"),
    reading("nvlink.tx", "B/s", "NVLink traffic from the GPU, all links"),
];
/// Where each of [`MONITORING`] comes from, and what makes its unit of it.
const METRICS: [(GpmMetricId, f64); MONITORING.len()] = [
    (SmUtil, 1.0),
    (SmOccupancy, 1.0),
    (AnyTensorUtil, 1.0),
    (HmmaTensorUtil, 1.0),
    (DramBwUtil, 1.0),
    (PcieRxPerSec, MIB),
    (PcieTxPerSec, MIB),
    (NvlinkTotalRxPerSec, MIB),
    (NvlinkTotalTxPerSec, MIB),
];
const MIB: f64 = 1048576.0;

/// Every set of readings.
const ALL: [&[Reading]; 13] = [
    &UTILISATION,
    &MEMORY,
    &MEMORY_OF_PROCESS,
    &POWER,
    &ENERGY,
    &SM_CLOCK,
    &MEMORY_CLOCK,
    &TEMPERATURE,
    &THROTTLE,
    &ECC_CORRECTED,
    &ECC_UNCORRECTED,
    &XID,
    &MONITORING,
];

/// What a counter of NVML's counts in, if it is one.
pub fn unit(counter: &str) -> Option<&'static str> {
    ALL.into_iter().flatten().find(|reading| reading.name == counter).map(|reading| reading.unit)
}

/// What this process has of a device, and nothing else: where somebody else samples the device.
pub(super) fn of_process(device: Device<'static>) -> Gauges {
    Gauges::new(vec![memory_of_process(Arc::new(device))])
}

/// All readings of a device.
pub(super) fn of(device: Device<'static>) -> Gauges {
    let device = &Arc::new(device);
    let mut gauges = vec![
        several(device, &UTILISATION, |device| {
            let now = device.utilization_rates()?;
            Ok([f64::from(now.gpu), f64::from(now.memory)])
        }),
        several(device, &MEMORY, |device| {
            let now = device.memory_info()?;
            Ok([now.used as f64, now.reserved as f64])
        }),
        memory_of_process(device.clone()),
        one(device, &POWER, |device| Ok(f64::from(device.power_usage()?) / 1e3)),
        energy(device.clone()),
        one(device, &SM_CLOCK, |device| Ok(f64::from(device.clock_info(Clock::SM)?))),
        one(device, &MEMORY_CLOCK, |device| Ok(f64::from(device.clock_info(Clock::Memory)?))),
        one(device, &TEMPERATURE, |device| Ok(f64::from(device.temperature(TemperatureSensor::Gpu)?))),
        several(device, &THROTTLE, |device| Ok(throttle(device.current_throttle_reasons()?))),
        one(device, &ECC_CORRECTED, |device| {
            Ok(device.total_ecc_errors(MemoryError::Corrected, EccCounter::Volatile)? as f64)
        }),
        one(device, &ECC_UNCORRECTED, |device| {
            Ok(device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile)? as f64)
        }),
        errors(device),
        monitoring(device.clone()),
    ];
    // Each of these takes 20 ms of its thread, so they are read only where nothing better tells.
    if !matches!(device.gpm_support(), Ok(true)) {
        gauges.push(several(device, &PCIE, |device| {
            let rate = |counter| Ok::<_, NvmlError>(f64::from(device.pcie_throughput(counter)?) * 1e3);
            Ok([rate(PcieUtilCounter::Receive)?, rate(PcieUtilCounter::Send)?])
        }));
    }
    Gauges::new(gauges)
}

fn several<const N: usize>(
    device: &Arc<Device<'static>>,
    readings: &'static [Reading; N],
    read: fn(&Device<'static>) -> Result<[f64; N], NvmlError>,
) -> Gauge {
    let device = device.clone();
    Gauge::new(readings, move || Ok(read(&device)?.map(Ok).into()))
}

fn one(
    device: &Arc<Device<'static>>,
    readings: &'static [Reading; 1],
    read: fn(&Device<'static>) -> Result<f64, NvmlError>,
) -> Gauge {
    let device = device.clone();
    Gauge::new(readings, move || Ok(vec![Ok(read(&device)?)]))
}

fn throttle(reasons: ThrottleReasons) -> [f64; THROTTLE.len()] {
    let any = |these| f64::from(u8::from(reasons.intersects(these)));
    [
        reasons.bits() as f64,
        any(ThrottleReasons::SW_POWER_CAP | ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN),
        any(ThrottleReasons::SW_THERMAL_SLOWDOWN | ThrottleReasons::HW_THERMAL_SLOWDOWN),
        any(ThrottleReasons::HW_SLOWDOWN),
    ]
}

fn memory_of_process(device: Arc<Device<'static>>) -> Gauge {
    let id = process::id();
    Gauge::new(&MEMORY_OF_PROCESS, move || {
        let processes = device.running_compute_processes()?;
        // A process has no memory on the GPU before it has a context; in a container it may go by another number.
        let own = processes.iter().find(|process| process.pid == id).ok_or(Failure::ForNow)?;
        match own.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Ok(vec![Ok(bytes as f64)]),
            UsedGpuMemory::Unavailable => Err(NvmlError::NotSupported.into()),
        }
    })
}

fn energy(device: Arc<Device<'static>>) -> Gauge {
    let mut began = None;
    Gauge::new(&ENERGY, move || {
        let millijoules = device.total_energy_consumption()?;
        let since = millijoules.saturating_sub(*began.get_or_insert(millijoules));
        Ok(vec![Ok(since as f64 / 1e3)])
    })
}

/// Events wait in their set until they are asked for, one in each round.
fn errors(device: &Arc<Device<'static>>) -> Gauge {
    let set = device.nvml().create_event_set().and_then(|set| {
        let registered = device.register_events(EventTypes::CRITICAL_XID_ERROR, set);
        registered.map_err(|error| error.error)
    });
    let mut set = set.map_err(|error| match Failure::from(error) {
        Failure::ForNow => Failure::ForGood("its events cannot be read".into()),
        for_good => for_good,
    });
    Gauge::new(&XID, move || {
        let event = set.as_mut().map_err(|failure| failure.clone())?.wait(0)?;
        match event.event_data {
            Some(XidError::Value(code)) => Ok(vec![Ok(code as f64)]),
            Some(XidError::Unknown) | None => Err(Failure::ForNow),
        }
    })
}

fn monitoring(device: Arc<Device<'static>>) -> Gauge {
    let mut last: Option<GpmSample<'static>> = None;
    Gauge::new(&MONITORING, move || {
        let sample = device.gpm_sample()?;
        let pair = last.replace(sample).zip(last.as_ref());
        let (before, now) = pair.ok_or(Failure::ForNow)?;
        let metrics = gpm_metrics_get(device.nvml(), &before, now, &METRICS.map(|(metric, _)| metric))?;
        let values = metrics.into_iter().zip(METRICS);
        Ok(values.map(|(metric, (_, scale))| -> Value { Ok(metric?.value * scale) }).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_units() {
        assert_eq!(unit("gpu.power"), Some("W"));
        assert_eq!(unit("nvlink.tx"), Some("B/s"));
        assert_eq!(unit("gpu.throttle.power"), Some(""));
        assert_eq!(unit("loss"), None);
    }

    #[test]
    fn reasons_are_told_apart() {
        let idle = throttle(ThrottleReasons::GPU_IDLE);
        assert_eq!(idle, [1.0, 0.0, 0.0, 0.0]);
        let hot = throttle(ThrottleReasons::HW_SLOWDOWN | ThrottleReasons::HW_THERMAL_SLOWDOWN);
        assert_eq!(&hot[1..], [0.0, 1.0, 1.0]);
        assert_eq!(&throttle(ThrottleReasons::SW_POWER_CAP)[1..], [1.0, 0.0, 0.0]);
    }
}
