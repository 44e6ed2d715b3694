//! Names from traces that are longer than anybody reads, or look like something else: what each form makes of them.

use std::{fs, path::Path};

use serde_json::{Value, json};
use stepscope_plan::text::misleads;

use crate::binary::{stepscope, text};

/// What terminals, browsers and spreadsheets would take for more than a name.
const MISCHIEF: &str =
    "\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}\u{2066}\u{61c}\u{200b}\u{feff}</script><script>alert(1)</script>";
/// Each name has as many bytes.
const LONG: usize = 1 << 20;
/// What a report has beside names: its page, scripts and figures.
const OWN: u64 = 1 << 20;
const KERNELS: usize = 4;
const STEPS: usize = 6;

/// A name that begins with these words.
fn name(of: &str) -> String {
    format!("{of}{MISCHIEF}{}", "x".repeat(LONG))
}

/// Writes a trace whose kernels, operators, ranges and device have such names; how large it is.
fn write_trace(path: &Path) -> u64 {
    let event = |kind: &str, name: &str, (thread, time, duration): (u64, usize, usize), arguments: Value| json!({ "ph": "X", "cat": kind, "name": name, "pid": 1, "tid": thread, "ts": time, "dur": duration, "args": arguments });
    let mut events = Vec::new();
    for step in 0..STEPS {
        let start = step * 1000;
        events.push(event("user_annotation", &format!("ProfilerStep#{step}"), (1, start, 900), json!({})));
        for kernel in 0..KERNELS {
            let (time, number) = (start + kernel * 100, step * KERNELS + kernel + 1);
            let linked = json!({ "correlation": number, "External id": number, "stream": 7, "device": 0 });
            let kernel_name = name(&format!("=gemm{kernel}"));
            events.push(event("cpu_op", &name("aten::mm"), (1, time, 50), json!({ "External id": number })));
            events.push(event("cuda_runtime", "cudaLaunchKernel", (1, time + 1, 5), linked.clone()));
            events.push(event("kernel", &kernel_name, (7, time + 10, 80), linked));
        }
    }
    let device = json!([{ "id": 0, "name": name("GPU"), "totalGlobalMem": 1_u64 << 34 }]);
    let trace = json!({ "schemaVersion": 1, "deviceProperties": device, "traceEvents": events });
    fs::write(path, trace.to_string()).unwrap();
    fs::metadata(path).unwrap().len()
}

#[test]
fn names_of_others_are_short_and_only_names_in_every_form() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace.json");
    write_trace(&trace);
    for arguments in [
        "analyze trace.json --format text",
        "analyze trace.json --format markdown",
        "analyze trace.json --format html",
        "analyze trace.json --brief",
        "diff trace.json trace.json --format text",
        "diff trace.json trace.json --format markdown",
        "diff trace.json trace.json --format html",
        "inspect trace.json",
        "live trace.json --once",
    ] {
        let output = stepscope(&arguments.split(' ').collect::<Vec<_>>(), directory.path());
        let said = text(&output.stdout);
        assert!(output.status.success(), "{arguments}: {}", text(&output.stderr));
        assert!((said.len() as u64) < OWN, "{arguments}: {} bytes", said.len());
        for heard in [&said, &text(&output.stderr)] {
            let wrong = heard.chars().find(|c| *c != '\n' && *c != '\t' && misleads(*c));
            assert_eq!(wrong, None, "{arguments}");
        }
        if arguments.contains("html") {
            assert!(!said.contains("<script>alert"), "{arguments}");
            assert!(said.contains("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "));
        }
    }
}

#[test]
fn a_perfetto_trace_has_short_names() {
    let directory = tempfile::tempdir().unwrap();
    write_trace(&directory.path().join("trace.json"));
    let output = stepscope(&["export", "trace.json", "-o", "out.pftrace"], directory.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let written = fs::read(directory.path().join("out.pftrace")).unwrap();
    assert!((written.len() as u64) < OWN, "{} bytes", written.len());
    for mischief in ["\u{1b}]0;", "\u{9b}31m", "\u{202e}", "\u{2066}", "\u{200b}", "\u{feff}"] {
        let found = written.windows(mischief.len()).any(|bytes| bytes == mischief.as_bytes());
        assert!(!found, "{mischief:?}");
    }
}

#[test]
fn json_has_names_exactly_and_does_nothing_to_a_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let size = write_trace(&directory.path().join("trace.json"));
    let output = stepscope(&["analyze", "trace.json", "--format", "json"], directory.path());
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!((said.len() as u64) < size + OWN, "{} bytes of {size}", said.len());
    assert_eq!(said.chars().find(|c| *c != '\n' && misleads(*c)), None);
    let analysis: Value = serde_json::from_str(&said).unwrap();
    let kernels: Vec<&str> =
        analysis["kernels"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert!(kernels.contains(&name("=gemm0").as_str()));
}
