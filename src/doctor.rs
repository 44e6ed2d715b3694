//! `stepscope doctor`: the GPUs, drivers and libraries of this machine.

use std::io::Write;

use anstyle::AnsiColor;
use anyhow::Result;
use serde::Serialize;
use stepscope_collector::{
    doctor::{self, Counters, Cuda, Cupti, Examination, LibraryReport},
    nvml::{Gpu, LeftOut},
};
use stepscope_plan::{Device, text};

use crate::{Format, render::json, terminal};

/// Check the GPUs, drivers and libraries of this machine, and say how to get what is missing.
#[derive(clap::Args)]
#[command(
    after_help = "Libraries are searched on the loader's path, in CUDA toolkits and in Python environments. The directories in STEPSCOPE_CUDA_LIBRARIES are searched first.\n\n\
    Examples:\n  \
    stepscope doctor\n  \
    STEPSCOPE_CUDA_LIBRARIES=/opt/cuda/lib64 stepscope doctor --format json"
)]
pub(crate) struct Arguments {
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let examination = doctor::examine();
    let report = Report::of(&examination);
    let mut stdout = anstream::stdout().lock();
    match arguments.format {
        Format::Text => stdout.write_all(report.text().as_bytes())?,
        Format::Json => write!(stdout, "{}", json::written(&report)?)?,
    }
    Ok(stdout.flush()?)
}

/// What this machine has; its JSON is public.
#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    gpus: Vec<ShownGpu<'a>>,
    #[serde(flatten)]
    rest: &'a Examination,
}

#[derive(Serialize)]
struct ShownGpu<'a> {
    #[serde(flatten)]
    gpu: &'a Gpu,
    /// Dense bf16 FLOP/s, of devices that are known.
    peak_bf16_flops: Option<f64>,
}

impl Report<'_> {
    fn of(examination: &Examination) -> Report<'_> {
        let peak = |gpu: &Gpu| Device::named(&gpu.name).ok().map(|device| device.peaks.bf16);
        let gpus = examination.gpus.iter().map(|gpu| ShownGpu { gpu, peak_bf16_flops: peak(gpu) }).collect();
        Report { schema: 1, gpus, rest: examination }
    }

    fn text(&self) -> String {
        let rest = self.rest;
        let mut text = self.gpus_text() + &driver_text(rest);
        if !self.gpus.is_empty() {
            text += &line("kernels", &cupti_text(&rest.cupti));
            text += &line("counters", counters_text(rest.counters));
            text += &self.samples_text();
        }
        for packages in &rest.python {
            let torch = packages.torch.as_ref().map_or_else(String::new, |version| format!(", PyTorch {version}"));
            text += &line("python", &text::printable(&format!("{}{torch}", packages.path.display())));
        }
        text + &libraries_text(&rest.libraries)
    }

    fn gpus_text(&self) -> String {
        let mut text = String::new();
        for (number, ShownGpu { gpu, peak_bf16_flops }) in self.gpus.iter().enumerate() {
            let memory = gpu.memory_bytes.map(text::bytes);
            let able = gpu.compute_capability.as_ref().map(|able| format!("compute capability {able}"));
            let peak = peak_bf16_flops.map(|peak| format!("peak {} in bf16", text::flops(peak)));
            let parts = [Some(text::printable(&gpu.name)), memory, able, peak];
            text += &line(&format!("GPU {number}"), &parts.into_iter().flatten().collect::<Vec<_>>().join(", "));
            let place = [&gpu.pci_bus, &gpu.uuid].into_iter().flatten().map(|place| text::printable(place));
            let place: Vec<String> = place.collect();
            if !place.is_empty() {
                text += &line("", &place.join(", "));
            }
        }
        text
    }

    fn samples_text(&self) -> String {
        if let Some(reason) = &self.rest.nvml.reason {
            return line("samples", &text::printable(reason));
        }
        let of = |gpu: &Gpu, which: &str| {
            let readings = text::counted(gpu.readings.len() as u64, "reading");
            let left_out = LeftOut::line(&gpu.left_out).map_or_else(String::new, |line| format!("; {line}"));
            line("samples", &format!("{readings} of {which}{left_out}"))
        };
        // GPUs of one machine are mostly of one kind.
        match self.gpus.as_slice() {
            [first, rest @ ..] if rest.iter().all(|other| other.gpu.left_out == first.gpu.left_out) => {
                of(first.gpu, "each GPU")
            }
            gpus => gpus.iter().enumerate().map(|(number, shown)| of(shown.gpu, &format!("GPU {number}"))).collect(),
        }
    }
}

fn line(label: &str, what: &str) -> String {
    format!("{label:<8}  {what}\n")
}

/// The driver, and whether training can use a GPU.
fn driver_text(examination: &Examination) -> String {
    let Examination { gpus, driver, cuda, cpu_default, .. } = examination;
    let versions = [
        driver.clone(),
        cuda.as_ref().and_then(|cuda| cuda.version.as_ref()).map(|version| format!("CUDA up to {version}")),
        cuda.as_ref().and_then(|cuda| seen_text(cuda, gpus.len())),
    ];
    let versions: Vec<String> = versions.into_iter().flatten().map(|version| text::printable(&version)).collect();
    let mut text = if versions.is_empty() { String::new() } else { line("driver", &versions.join(", ")) };
    if *cpu_default {
        let error = cuda.as_ref().and_then(|cuda| cuda.error.as_ref());
        let reason = match (error, cuda) {
            (Some(error), _) => format!("CUDA fails to initialize: {}", text::printable(error)),
            (None, Some(cuda)) if cuda.works() => "NVRTC or cuBLASLt is missing".into(),
            (None, Some(_)) => "CUDA sees no device".into(),
            (None, None) => "no NVIDIA driver found".into(),
        };
        let label = if gpus.is_empty() { "no GPU" } else { "not used" };
        let yellow = AnsiColor::Yellow.on_default();
        text += &format!("{yellow}{label:<8}{yellow:#}  {reason}; `stepscope train` runs on the CPU\n");
    }
    text
}

/// How many GPUs CUDA sees, where it is not all of them.
fn seen_text(cuda: &Cuda, all: usize) -> Option<String> {
    let seen = cuda.devices.filter(|devices| *devices as usize != all)?;
    let why =
        cuda.visible_devices.as_ref().map_or_else(String::new, |value| format!(" (CUDA_VISIBLE_DEVICES={value})"));
    Some(format!("CUDA sees {seen} of {}{why}", text::counted(all as u64, "GPU")))
}

fn cupti_text(cupti: &Cupti) -> String {
    let reason = cupti.reason.as_ref().map_or_else(String::new, |reason| format!(": {}", text::printable(reason)));
    match cupti.subscribable {
        Some(true) => format!("CUPTI works{reason}"),
        Some(false) => format!("CUPTI is unavailable, so runs are recorded without kernels{reason}"),
        None => format!("CUPTI was not tried{reason}"),
    }
}

fn counters_text(counters: Counters) -> &'static str {
    match (counters.admin_only, counters.permitted) {
        (Some(false), _) => "hardware counters are open to everyone (RmProfilingAdminOnly: 0)",
        (_, Some(true)) => {
            "hardware counters need administrator rights, which this process has (RmProfilingAdminOnly: 1)"
        }
        (Some(true), _) => {
            "hardware counters need administrator rights (RmProfilingAdminOnly: 1); kernels, copies, memory and \
             samples do not use them"
        }
        (None, _) => "the driver does not report who may read hardware counters; recording does not use them",
    }
}

/// A table of the libraries found, then the missing ones and how to get them.
fn libraries_text(libraries: &[LibraryReport]) -> String {
    let found = libraries.iter().filter_map(|library| {
        let path = text::printable(&library.path.as_ref()?.to_string_lossy());
        let version = library.version.as_deref().map_or_else(|| "-".into(), text::printable);
        Some(vec![library.name.to_owned(), version, path])
    });
    let found: Vec<Vec<String>> = found.collect();
    let mut text = String::from("\n");
    if !found.is_empty() {
        text += &terminal::table(&["library", "version", "where"], found);
    }
    let missing = libraries.iter().filter_map(|library| Some((library, library.missing.as_ref()?)));
    let missing: Vec<(&LibraryReport, &String)> = missing.collect();
    if !missing.is_empty() && missing.len() < libraries.len() {
        text += "\n";
    }
    for (index, (library, reason)) in missing.iter().enumerate() {
        text += &line("missing", &format!("{}; it {}", text::printable(reason), library.purpose));
        let next = missing.get(index + 1).and_then(|(next, _)| next.hint);
        if let Some(hint) = library.hint.filter(|hint| next != Some(hint)) {
            text += &line("", hint);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use stepscope_collector::{
        doctor::{NvmlReport, Packages},
        nvml::Reading,
    };

    use super::*;

    fn library(name: &'static str, path: Option<&str>) -> LibraryReport {
        LibraryReport {
            name,
            purpose: "does something",
            path: path.map(Into::into),
            version: path.map(|_| "13.0".into()),
            missing: path.is_none().then(|| format!("{name} was not found")),
            hint: path.is_none().then_some("get it"),
        }
    }

    fn one_h200() -> Examination {
        let gpu = Gpu {
            name: "NVIDIA H200".into(),
            uuid: Some("GPU-1".into()),
            pci_bus: Some("00000000:1B:00.0".into()),
            memory_bytes: Some(150_754_820_096),
            compute_capability: Some("9.0".into()),
            readings: vec![Reading { name: "gpu.power", unit: "W", meaning: "power of the whole board" }],
            left_out: vec![LeftOut { name: "nvlink.rx", reason: "not supported".into() }],
        };
        let (version, visible_devices) = (Some("13.0".into()), None);
        Examination {
            gpus: vec![gpu],
            driver: Some("580.95.05".into()),
            cuda: Some(Cuda { version, devices: Some(1), visible_devices, error: None }),
            libraries: vec![library("CUDA driver", Some("/lib/libcuda.so.1")), library("NCCL", None)],
            cupti: Cupti { subscribable: Some(true), reason: None },
            counters: Counters { admin_only: Some(true), permitted: Some(false) },
            nvml: NvmlReport { available: true, reason: None },
            python: vec![Packages { path: "/venv".into(), torch: Some("2.11.0".into()) }],
            cpu_default: false,
        }
    }

    #[test]
    fn a_machine_with_a_gpu_is_told_line_by_line() {
        let expected = "\
GPU 0     NVIDIA H200, 150.8 GB, compute capability 9.0, peak 989.4 TFLOP/s in bf16
          00000000:1B:00.0, GPU-1
driver    580.95.05, CUDA up to 13.0
kernels   CUPTI works
counters  hardware counters need administrator rights (RmProfilingAdminOnly: 1); kernels, copies, memory and samples do not use them
samples   1 reading of each GPU; not recorded: nvlink.rx (not supported)
python    /venv, PyTorch 2.11.0

library      version  where
CUDA driver  13.0     /lib/libcuda.so.1

missing   NCCL was not found; it does something
          get it
";
        assert_eq!(Report::of(&one_h200()).text(), expected);
    }

    #[test]
    fn a_gpu_that_cannot_be_used_is_told_with_the_reason() {
        let mut machine = one_h200();
        machine.cpu_default = true;
        machine.cuda = Some(Cuda {
            version: Some("12.4".into()),
            devices: Some(0),
            visible_devices: Some(String::new()),
            error: None,
        });
        let text = Report::of(&machine).text();
        assert!(text.contains("CUDA sees 0 of 1 GPU (CUDA_VISIBLE_DEVICES=)\n"), "{text}");
        assert!(text.contains("CUDA sees no device; `stepscope train` runs on the CPU\n"), "{text}");
        machine.cupti = Cupti { subscribable: Some(false), reason: Some("another profiler uses it".into()) };
        let text = Report::of(&machine).text();
        assert!(text.contains("so runs are recorded without kernels: another profiler uses it\n"), "{text}");
    }

    #[test]
    fn each_gpu_has_its_peak_in_the_json() {
        let machine = one_h200();
        let json = serde_json::to_value(Report::of(&machine)).unwrap();
        assert_eq!((&json["schema"], &json["gpus"][0]["peak_bf16_flops"]), (&1.into(), &989.4e12.into()));
        assert_eq!(json["gpus"][0]["readings"][0]["unit"], "W");
        assert_eq!((&json["cpu_default"], &json["libraries"][1]["hint"]), (&false.into(), &"get it".into()));
    }
}
