//! The command line itself.

use std::{fs, path::Path};

use crate::binary::{command, failure, stepscope, text};

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/samples/dp2-naive");
const OTHER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/samples/dp2-bucketed");
const COMMANDS: [&str; 15] = [
    "analyze",
    "completions",
    "diff",
    "doctor",
    "export",
    "import",
    "inspect",
    "live",
    "man",
    "open",
    "plan",
    "record",
    "train",
    "trigger",
    "upload",
];

fn here() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// What a command prints that succeeds.
fn printed(arguments: &[&str]) -> String {
    let output = stepscope(arguments, here().path());
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn every_command_has_short_and_long_help_with_examples() {
    let main = printed(&["--help"]);
    for name in COMMANDS {
        assert!(main.contains(&format!("\n  {name} ")), "{name}: {main}");
        let (short, long) = (printed(&[name, "-h"]), printed(&[name, "--help"]));
        for help in [&short, &long] {
            assert!(help.contains("\nUsage: stepscope ") && help.contains("Example"), "{name}: {help}");
            assert!(help.contains("Global options:") && help.contains("--color <WHEN>"), "{name}: {help}");
        }
        assert!(short.lines().count() < long.lines().count(), "{name}: {short}{long}");
    }
}

#[test]
fn options_are_grouped() {
    for (name, headings) in [
        ("train", &["Model and data:", "Parallelism and memory:", "Run:"][..]),
        ("record", &["When to record:"]),
        ("analyze", &["Selection:", "MFU:"]),
        ("diff", &["Selection:", "MFU:"]),
        ("plan", &["Workload:", "Layout:", "Assumptions:"]),
        ("export", &["Selection:"]),
        ("open", &["Selection:"]),
    ] {
        let help = printed(&[name, "-h"]);
        for heading in headings {
            assert!(help.lines().any(|line| line == *heading), "{name}: {heading}: {help}");
        }
    }
}

#[test]
fn versions_are_short_and_long() {
    let short = format!("stepscope {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(printed(&["-V"]), short);
    let long = printed(&["--version"]);
    let lines: Vec<&str> = long.lines().collect();
    assert!(lines[0].starts_with(short.trim_end()), "{long}");
    let [date, profile, target] = lines[1].strip_prefix("built ").unwrap().split(", ").collect::<Vec<_>>()[..] else {
        panic!("{long}");
    };
    assert!(date.len() == 10 && date.chars().all(|c| c.is_ascii_digit() || c == '-'), "{long}");
    assert!(["debug", "release"].contains(&profile) && target.contains('-'), "{long}");
    if let Some(commit) = lines[0].strip_prefix(short.trim_end()).filter(|rest| !rest.is_empty()) {
        let commit = commit.strip_prefix(" (").and_then(|commit| commit.strip_suffix(')')).unwrap();
        assert!(commit.len() >= 12 && commit.chars().all(|c| c.is_ascii_hexdigit()), "{long}");
    }
}

#[test]
fn shells_complete_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = printed(&["completions", shell]);
        for name in COMMANDS {
            assert!(script.contains(name), "{shell}: {name}");
        }
        assert!(script.contains("fail-on"), "{shell}");
    }
    let said = failure(&["completions", "bsh"], here().path());
    assert!(said.contains("'bash'"), "{said}");
}

#[test]
fn there_are_manual_pages() {
    let page = printed(&["man"]);
    assert!(page.contains(".TH stepscope 1") && page.contains("analyze"), "{page}");
    let directory = here();
    let output = stepscope(&["man", "man/man1"], directory.path());
    assert!(output.status.success() && output.stdout.is_empty(), "{}", text(&output.stderr));
    let pages = directory.path().join("man/man1");
    for name in COMMANDS {
        let page = fs::read_to_string(pages.join(format!("stepscope-{name}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{name}: {page}");
    }
    assert!(pages.join("stepscope.1").exists());
    fs::write(directory.path().join("file"), "").unwrap();
    let said = failure(&["man", "file"], directory.path());
    assert!(said.starts_with("error: cannot write manual pages into file: "), "{said}");
}

#[test]
fn colors_are_a_choice() {
    let directory = here();
    let colored = |arguments: &[&str], variable: Option<(&str, &str)>| {
        let mut command = command(directory.path());
        for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
            command.env_remove(name);
        }
        let output = command.args(arguments).envs(variable).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        output.stdout.contains(&0x1b)
    };
    for report in [&["analyze", SAMPLE][..], &["diff", SAMPLE, OTHER], &["inspect", SAMPLE]] {
        let with = |color: &'static str| [report, &["--color", color]].concat();
        assert!(colored(&with("always"), None) && colored(&with("always"), Some(("NO_COLOR", "1"))), "{report:?}");
        assert!(
            !colored(&with("never"), None) && !colored(&with("never"), Some(("CLICOLOR_FORCE", "1"))),
            "{report:?}"
        );
        assert!(!colored(&with("auto"), None) && !colored(report, None), "a pipe has no colors: {report:?}");
        assert!(colored(&with("auto"), Some(("CLICOLOR_FORCE", "1"))), "{report:?}");
    }
    assert!(colored(&["--color=always", "live", SAMPLE, "--once"], None));
    assert!(!colored(&["--color=always", "analyze", SAMPLE, "--format", "json"], None));
    // A file is plain text.
    let arguments = ["analyze", SAMPLE, "--color", "always", "-o", "report.txt"];
    assert!(!colored(&arguments, None));
    assert!(!fs::read(directory.path().join("report.txt")).unwrap().contains(&0x1b));
    let output = command(directory.path()).args(["inspect", "nowhere", "--color", "always"]).output().unwrap();
    assert!(output.stderr.contains(&0x1b), "errors have colors, too");
}

#[test]
fn what_is_mistyped_has_a_suggestion() {
    let directory = here();
    for (line, suggestion) in [
        ("analyse run", "'analyze'"),
        ("analyze run --fromat json", "'--format'"),
        ("analyze run --format jsn", "'json'"),
        ("live run --view memry", "'memory'"),
        ("live run --theme plane", "'plain'"),
        ("diff one other --fail-on steptime:+3%", "(did you mean `step_time`?)"),
        ("plan --model lama-8b --gpu h100 --gpus 8", "hint: did you mean `llama-8b`? --model also takes "),
        ("train --model tinny", "hint: did you mean `tiny`? "),
        ("train --tp 3", "hint: for example --tp 1, 2 or 4"),
        ("train --prefetch 2 --zero 2", "error: --prefetch needs --zero 3"),
        ("train --unit-layers 2", "error: --unit-layers needs --dp or --cp"),
        ("train --dp 2 --unit-layers 2 --reduction naive", "--unit-layers needs --zero or --reduction bucketed"),
        ("train --dp 2 --pp 4 --unit-layers 3", "hint: for example --unit-layers 1 or 2"),
        ("train --cp-exchange ring", "error: --cp-exchange needs --cp"),
        ("train --balance-loss 0.1", "error: --balance-loss needs a model with experts"),
        ("train --schedule dualpipe", "[possible values: gpipe, 1f1b, interleaved, zero-bubble]"),
        ("plan --model tiny --gpu rtx-4900 --gpus 8", "hint: did you mean `rtx-4090`?"),
        ("train --schedule 1f1", "'1f1b'"),
    ] {
        let said = failure(&line.split(' ').collect::<Vec<_>>(), directory.path());
        assert!(said.contains(suggestion), "{line}: {said}");
    }
}

#[test]
fn a_trace_is_not_json() {
    let directory = here();
    for (name, better) in
        [("x.json", "-o x.pftrace;"), ("x.json.gz", "-o x.pftrace.gz;"), ("a/x.JSON", "-o a/x.pftrace;")]
    {
        let said = failure(&["export", SAMPLE, "-o", name], directory.path());
        let error =
            format!("error: cannot write {name}: export writes Perfetto protobuf, not JSON\nhint: use {better}");
        assert!(said.starts_with(&error), "{said}");
    }
    for name in ["x.pftrace", "x.pftrace.gz", "x.perfetto-trace", "x"] {
        let output = stepscope(&["export", SAMPLE, "-o", name], directory.path());
        assert!(output.status.success() && directory.path().join(Path::new(name)).exists(), "{}", text(&output.stderr));
    }
}
