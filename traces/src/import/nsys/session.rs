//! What an export says of its session: the machine, its GPUs, its clock, the versions of tools.

use std::collections::{BTreeMap, HashMap};

use super::{
    super::sqlite::{Database, TableColumn},
    activities::Place,
    process::{Process, thread},
    texts::text,
};
use crate::{rank_info::Device, topology::GpuSlot};

/// How many rows of each of these tables are kept. They have one for each GPU, thread or setting.
const MOST_KEPT: usize = 1 << 16;

/// What is known of a session.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// When it began, in nanoseconds since 1970.
    pub(super) began: Option<i64>,
    /// The machine's name.
    pub(super) host: Option<String>,
    /// Versions, by the words we have for them.
    pub(super) versions: BTreeMap<&'static str, String>,
    gpus: Vec<Gpu>,
    /// Which GPU a process means by a number.
    numbered: HashMap<(u32, u32), i64>,
    /// The threads on which autograd works.
    pub(super) autograd: Vec<(Process, u32)>,
}

/// A GPU of the machine.
#[derive(Clone, Debug)]
pub(super) struct Gpu {
    pub(super) id: i64,
    /// Its number for CUDA.
    number: Option<u32>,
    pub(super) device: Device,
    pub(super) uuid: Option<String>,
    /// Where it is in the machine, of which the export lists all GPUs.
    pub(super) slot: GpuSlot,
}

impl Session {
    /// Reads it.
    pub(super) fn of(database: &mut Database) -> Session {
        let mut session = Session::default();
        database.scan("TARGET_INFO_SESSION_START_TIME", &[TableColumn::Value("utcEpochNs")], |row| {
            session.began = session.began.or(row.integer(0));
        });
        let settings = ["name", "value"].map(TableColumn::Value);
        database.scan("TARGET_INFO_SYSTEM_ENV", &settings, |row| {
            let Some((name, value)) = row.text(0).zip(row.text(1)) else { return };
            match name.as_ref() {
                "Hostname" if !value.is_empty() => session.host = Some(value.into_owned()),
                "NvDriverVersion" => drop(session.versions.insert("driver", value.into_owned())),
                _ => {}
            }
        });
        database.scan("META_DATA_EXPORT", &settings, |row| {
            let Some((name, value)) = row.text(0).zip(row.text(1)) else { return };
            match name.as_ref() {
                "EXPORT_PRODUCT_VERSION" => drop(session.versions.insert("nsys", value.into_owned())),
                "EXPORT_SCHEMA_VERSION" => drop(session.versions.insert("schema", value.into_owned())),
                _ => {}
            }
        });
        session.take_gpus(database);
        database.scan("ThreadNames", &[TableColumn::Value("globalTid"), text("nameId")], |row| {
            let is_autograd = row.text(1).is_some_and(|name| name.starts_with("pt_autograd"));
            if let Some(global) = row.integer(0).filter(|_| is_autograd && session.autograd.len() < MOST_KEPT) {
                session.autograd.push((Process::of(global), thread(global)));
            }
        });
        session
    }

    fn take_gpus(&mut self, database: &mut Database) {
        let columns = ["id", "cuDevice", "name", "totalMemory", "uuid", "busLocation"].map(TableColumn::Value);
        database.scan("TARGET_INFO_GPU", &columns, |row| {
            let Some((id, name)) = row.integer(0).zip(row.text(2)).filter(|_| self.gpus.len() < MOST_KEPT) else {
                return;
            };
            let known = stepscope_plan::Device::named(&name).ok();
            let device = Device {
                name: name.into_owned(),
                memory_bytes: row.number(3).filter(|bytes| *bytes > 0),
                // The export does not say what was computed in; models are trained in bf16.
                peak_flops: known.map(|device| device.peaks.bf16),
            };
            let uuid = row.text(4).filter(|uuid| !uuid.is_empty()).map(|uuid| uuid.into_owned());
            let pci_bus = row.text(5).filter(|bus| !bus.is_empty()).map(|bus| bus.into_owned());
            let slot = GpuSlot { index: u32::try_from(id).ok(), pci_bus, numa_node: None };
            self.gpus.push(Gpu { id, number: row.number(1), device, uuid, slot });
        });
        let columns = ["pid", "cudaId", "gpuId"].map(TableColumn::Value);
        database.scan("TARGET_INFO_CUDA_DEVICE", &columns, |row| {
            let numbers = row.number(0).zip(row.number(1)).zip(row.integer(2));
            if let Some((number, gpu)) = numbers.filter(|_| self.numbered.len() < MOST_KEPT) {
                self.numbered.insert(number, gpu);
            }
        });
    }

    /// The GPU of a rank: the one that its process means by the number, or that CUDA does.
    pub(super) fn gpu(&self, place: Place) -> Option<&Gpu> {
        let find = |is_it: &dyn Fn(&&Gpu) -> bool| self.gpus.iter().find(is_it);
        match self.numbered.get(&(place.process.pid(), place.device)) {
            Some(id) => find(&|gpu| gpu.id == *id),
            None => find(&|gpu| gpu.number == Some(place.device))
                .or_else(|| find(&|gpu| gpu.number.is_none() && gpu.id == i64::from(place.device))),
        }
    }
}
