//! What a trace says of itself before its events: the devices, the job, the clock.

use std::borrow::Cow;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use stepscope_plan::Axis;

use super::value::{TraceValue, any_number, number};
use crate::{ids::Rank, membership, rank_info::Device};

/// How many devices or groups a trace may name. Larger lists are those of no machine.
const MOST_LISTED: usize = 1 << 16;

/// What a trace says of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Header {
    /// What to add to its times to have nanoseconds since 1970.
    pub(super) base_ns: i64,
    /// The devices of its machine.
    pub(super) devices: Vec<DeviceProperties>,
    /// Its place in a job, if it is part of one.
    pub(super) distributed: Option<DistributedInfo>,
    /// What its machine calls itself.
    pub(super) host: Option<String>,
    /// Versions, and what else is said in a word.
    pub(super) notes: Vec<(&'static str, String)>,
    /// Whether any field is one that Kineto writes.
    pub(super) is_kineto: bool,
    /// Whether there are fields that Kineto does not write.
    pub(super) has_other_fields: bool,
}

/// A device of the machine.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct DeviceProperties {
    /// Its number.
    pub(super) id: u32,
    /// Its name.
    pub(super) name: String,
    /// Its memory.
    #[serde(rename = "totalGlobalMem")]
    pub(super) memory_bytes: Option<u64>,
}

/// The place of a rank in its job.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct DistributedInfo {
    /// What carries its messages.
    pub(super) backend: Option<String>,
    /// Its number.
    pub(super) rank: Option<Rank>,
    /// How many there are.
    pub(super) world_size: Option<u32>,
    /// The groups it is in.
    pub(super) pg_config: Vec<ProcessGroup>,
    /// The version of NCCL.
    pub(super) nccl_version: Option<String>,
}

/// A group of ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default)]
pub(super) struct ProcessGroup {
    /// Its name, which only its ranks need to tell from others.
    pub(super) pg_name: String,
    /// Its ranks, in their order in it. Long lists are cut short.
    pub(super) ranks: Vec<Rank>,
    /// How many they are.
    pub(super) pg_size: Option<u64>,
    /// What it is for.
    pub(super) pg_desc: String,
}

impl Header {
    /// Takes a field of a trace.
    pub(super) fn take(&mut self, key: &str, value: &RawValue) {
        self.is_kineto |= matches!(
            key,
            "schemaVersion" | "deviceProperties" | "distributedInfo" | "baseTimeNanoseconds" | "trace_id"
        );
        match key {
            "baseTimeNanoseconds" => self.base_ns = whole_number(value.get()).unwrap_or(0),
            "deviceProperties" => self.devices = read(value).unwrap_or_default(),
            "distributedInfo" => self.distributed = read(value),
            "host_name" => self.host = read(value),
            "schemaVersion" => self.note("schema", value),
            "cuda_runtime_version" => self.note("cuda_runtime", value),
            "cuda_driver_version" => self.note("cuda_driver", value),
            "cupti_version" => self.note("cupti", value),
            "traceEvents" | "trace_id" | "traceName" | "displayTimeUnit" => {}
            _ => self.has_other_fields = true,
        }
        self.devices.truncate(MOST_LISTED);
        if let Some(distributed) = &mut self.distributed {
            distributed.pg_config.truncate(MOST_LISTED);
        }
    }

    fn note(&mut self, key: &'static str, value: &RawValue) {
        if value.get().len() < 64 {
            self.notes.push((key, value.get().trim_matches('"').to_owned()));
        }
    }

    /// Whether all is said that is asked of a trace.
    pub(super) fn is_full(&self) -> bool {
        self.distributed.is_some() && self.base_ns != 0 && !self.devices.is_empty()
    }

    /// Whether a number says which GPU of its machine that is. A process that sees one GPU has the others hidden, often.
    pub(super) fn numbers_gpus(&self, id: u32) -> bool {
        self.devices.len() > 1 && self.devices.iter().any(|device| device.id == id)
    }

    /// The device with this number; where there is none of that number, the one that all are alike to.
    pub(super) fn device(&self, id: Option<u32>) -> Option<Device> {
        let first = self.devices.first()?;
        let alike = |other: &DeviceProperties| (&other.name, other.memory_bytes) == (&first.name, first.memory_bytes);
        // ROCm counts processors in, so that its GPUs do not begin with 0 among activities.
        let named = id.and_then(|id| self.devices.iter().find(|device| device.id == id));
        let found = named.or_else(|| Some(first).filter(|_| self.devices.iter().all(alike)))?;
        let known = stepscope_plan::Device::named(&found.name).ok();
        let memory_bytes = found.memory_bytes.filter(|bytes| *bytes > 0);
        // Some drivers leave the name empty.
        let name = Some(found.name.trim()).filter(|name| !name.is_empty());
        Some(Device {
            name: name.or(memory_bytes.map(|_| "unknown"))?.to_owned(),
            memory_bytes,
            // The trace does not say what it computed in; models are trained in bf16.
            peak_flops: known.map(|device| device.peaks.bf16),
        })
    }
}

impl ProcessGroup {
    /// Along what its ranks talk, as far as its description tells.
    pub(super) fn axis(&self, world_size: Option<u32>) -> Option<Axis> {
        membership::axis(&self.pg_desc, world_size.is_some_and(|ranks| self.ranks.len() == ranks as usize))
    }

    /// Whether all of its ranks are named.
    pub(super) fn is_whole(&self) -> bool {
        self.pg_size.is_none_or(|size| size == self.ranks.len() as u64)
    }
}

/// A whole number, as a tool may write it that knows no others than floats.
fn whole_number(text: &str) -> Option<i64> {
    let float = || any_number::<f64>(text).filter(|float| float.fract() == 0.0 && float.abs() < 9e18);
    number(Some(TraceValue::of(text))).or_else(|| float().map(|float| float as i64))
}

/// A value in the form it should have; none where it has another.
fn read<T: DeserializeOwned>(value: &RawValue) -> Option<T> {
    let read = serde_json::from_str(value.get());
    // Some versions write it as a text that holds JSON.
    read.or_else(|_| serde_json::from_str(&serde_json::from_str::<Cow<'_, str>>(value.get())?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(fields: &[(&str, &str)]) -> Header {
        let mut header = Header::default();
        for (key, value) in fields {
            header.take(key, &RawValue::from_string((*value).into()).unwrap());
        }
        header
    }

    #[test]
    fn a_device_is_known_by_its_name() {
        let properties = r#"[{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "warpSize": 32}]"#;
        let header = header(&[("deviceProperties", properties)]);
        let device = header.device(None).unwrap();
        assert_eq!((device.name.as_str(), device.memory_bytes), ("NVIDIA H200", Some(150_109_880_320)));
        assert_eq!(device.peak_flops, Some(989.4e12));
        assert_eq!(header.device(Some(0)), Some(device.clone()));
        assert_eq!(header.device(Some(2)), Some(device), "ROCm counts otherwise");
    }

    #[test]
    fn a_process_that_sees_one_gpu_does_not_say_which() {
        let one = header(&[("deviceProperties", r#"[{"id": 0, "name": "NVIDIA H200"}]"#)]);
        assert!(!one.numbers_gpus(0));
        let two =
            header(&[("deviceProperties", r#"[{"id": 0, "name": "NVIDIA A10"}, {"id": 1, "name": "Some GPU"}]"#)]);
        assert_eq!([0, 1, 2].map(|id| two.numbers_gpus(id)), [true, true, false]);
    }

    #[test]
    fn one_of_several_kinds_of_devices_is_not_guessed() {
        let header =
            header(&[("deviceProperties", r#"[{"id": 0, "name": "NVIDIA A10"}, {"id": 1, "name": "Some GPU"}]"#)]);
        assert_eq!((header.device(None), header.device(Some(2))), (None, None));
        let device = header.device(Some(1)).unwrap();
        assert_eq!((device.name.as_str(), device.memory_bytes, device.peak_flops), ("Some GPU", None, None));
    }

    #[test]
    fn a_device_without_a_name_is_told_by_its_memory_alone() {
        let device = |memory: u64| {
            let properties = format!(r#"[{{"id": 0, "name": " ", "totalGlobalMem": {memory}}}]"#);
            header(&[("deviceProperties", &properties)]).device(Some(0))
        };
        assert_eq!(device(0), None);
        assert_eq!(device(7).map(|device| (device.name, device.memory_bytes)), Some(("unknown".into(), Some(7))));
    }

    #[test]
    fn what_has_another_form_is_not_there() {
        let odd = header(&[
            ("baseTimeNanoseconds", "\"now\""),
            ("deviceProperties", "7"),
            ("distributedInfo", r#"{"rank": -1, "world_size": 4}"#),
        ]);
        assert_eq!((odd.base_ns, odd.devices.len(), odd.distributed), (0, 0, None));
    }
}
