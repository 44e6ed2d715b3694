//! What is taken for a trace and what is not, and whose it is.

use std::fs;

use stepscope_traces::{ImportError, Rank, Run, TraceError, Window};

use crate::{packed, text, trace_of};

const KERNEL: &str = r#"{"ph": "X", "cat": "kernel", "name": "k", "ts": 5.0, "dur": 1.0, "args": {"stream": 7}}"#;

#[test]
fn traces_are_known_by_their_content() {
    let directory = tempfile::tempdir().unwrap();
    let plain = trace_of(KERNEL).into_bytes();
    let first = format!("{{\"traceEvents\": [{KERNEL}], \"schemaVersion\": 1}}").into_bytes();
    for (name, bytes) in
        [("trace", plain.clone()), ("trace.json.gz", plain.clone()), ("x.json", packed(&plain)), ("y", first)]
    {
        let path = directory.path().join(name);
        fs::write(&path, bytes).unwrap();
        let (data, loss) = crate::read(&path);
        assert_eq!((data.spans.len(), loss.is_none()), (1, true), "{name}");
    }
}

/// A trace that is replaced between a look at it and reading is read as it was; of very many, not all stay open.
#[test]
fn a_trace_is_opened_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = |rank: u32| directory.path().join(format!("rank{rank:03}.json"));
    for rank in 0..130 {
        fs::write(path(rank), trace_of(KERNEL)).unwrap();
    }
    let run = Run::of_source(directory.path()).unwrap();
    (0..128).for_each(|rank| fs::remove_file(path(rank)).unwrap());
    for rank in 0..130 {
        assert_eq!(run.rank(Rank(rank)).unwrap().read(Window::ALL).unwrap().0.spans.len(), 1, "{rank}");
    }
}

#[test]
fn other_files_are_named_for_what_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file.json");
    for (bytes, what) in [
        (&b""[..], "empty"),
        (b"hello, world", "text, not JSON"),
        (b"null\n", "JSON, but one value and no object with traceEvents"),
        (b"PK\x03\x04\x14\x00\x00\x00", "a zip archive, such as a PyTorch checkpoint"),
        (b"{\"a\": 1}", "JSON without traceEvents"),
        (
            b"{\"schema\": \"1.0.1\", \"pid\": 7, \"nodes\": []}",
            "a PyTorch execution trace, which has no times; record the program with torch.profiler, and use what that exports",
        ),
        (b"[{\"ph\": \"X\"}]", "a JSON array, and no list of events of PyTorch's profiler"),
        (b"{\"otherData\": {}, \"traceEvents\": []}", "a Chrome trace of another tool"),
        (b"\x00\x01\x02\x03", "binary data of a kind that stepscope does not know"),
        (b"\x1f\x8b\x08\x00junk that is not packed", "a gzip file that cannot be decompressed"),
        (&packed(b"plain text")[..], "text, not JSON"),
    ] {
        fs::write(&path, bytes).unwrap();
        let error = Run::of_source(&path).unwrap_err().to_string();
        let expected = format!("{} is nothing that stepscope reads: it is {what}", path.display());
        assert_eq!(error, expected);
    }
    assert!(matches!(Run::of_source(&directory.path().join("nothing")), Err(TraceError::Missing { .. })));
    assert!(matches!(Run::of_source(directory.path()), Err(TraceError::NotARun { .. })));
}

#[test]
fn of_files_that_are_not_read_it_is_said_why() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    for number in 0..10 {
        fs::write(here.join(format!("rank{number}.json")), "").unwrap();
    }
    let error = Run::of_source(here).unwrap_err().to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines.len(), 1 + 8 + 1, "{error}");
    let first = here.join("rank0.json");
    assert_eq!(lines[1], format!("  {} is nothing that stepscope reads: it is empty", first.display()));
    assert_eq!(lines[9], "  2 other files are not read, either");
    // Beside one that is read, those are told that are named as traces are.
    fs::write(&first, trace_of(KERNEL)).unwrap();
    fs::write(here.join("notes.txt"), "nothing of use").unwrap();
    let run = Run::of_source(here).unwrap();
    let told: Vec<String> = run.passed_over.iter().map(ToString::to_string).collect();
    assert_eq!((run.ranks.len(), told.len()), (1, 9), "{told:?}");
    assert!(told[0].ends_with("rank1.json is nothing that stepscope reads: it is empty"), "{told:?}");
}

#[test]
fn its_events_say_that_a_trace_is_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file.json");
    let other = r#"{"ph": "X", "cat": "toplevel", "name": "a", "ts": 1, "dur": 1}"#;
    for text in [
        format!("[{KERNEL}]"),
        format!("{{\"metadata\": {{\"traceEvents\": 3}}, \"traceEvents\": [{other}, {KERNEL}], \"otherData\": 1}}"),
    ] {
        fs::write(&path, &text).unwrap();
        let run = Run::of_source(&path).unwrap();
        let (data, loss) = run.ranks[0].read(Window::ALL).unwrap();
        assert_eq!((data.spans.len(), loss.is_none()), (1, true), "{text}");
    }
    fs::write(&path, format!("{{\"metadata\": {{}}, \"traceEvents\": [{other}]}}")).unwrap();
    assert!(Run::of_source(&path).unwrap_err().to_string().ends_with("a Chrome trace of another tool"));
}

#[test]
fn traces_of_other_jobs_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let of = |rank: u32, world_size: u32, base: u64| {
        let head = format!("{{\"distributedInfo\": {{\"rank\": {rank}, \"world_size\": {world_size}}}, ");
        let base = 1_700_000_000_000_000_000 + base;
        trace_of(KERNEL).replace("1000", &base.to_string()).replacen('{', &head, 1)
    };
    let without_clock = of(1, 2, 0).replace("1700000000000000000", "1000");
    for (other, why) in [
        (of(1, 2, 1_000_000_000), None),
        (without_clock, None),
        ("{\"distributedInfo\": {\"rank\": 1}, \"traceEvents\": []}".into(), None),
        (of(1, 4, 1_000_000_000), Some("one has 2 ranks, the other 4")),
        (of(1, 2, 4_000_000_000_000), Some("they begin more than an hour apart")),
    ] {
        fs::write(directory.path().join("rank0.json"), of(0, 2, 5_000_000_000)).unwrap();
        fs::write(directory.path().join("rank1.json"), other).unwrap();
        let error = Run::of_source(directory.path()).err().map(|error| error.to_string());
        assert_eq!(error.is_some(), why.is_some(), "{error:?}");
        assert!(why.is_none_or(|why| error.unwrap().ends_with(&format!("are not from one job: {why}"))));
    }
}

#[test]
fn ranks_are_those_that_traces_say_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let of_rank = |rank: u32| {
        let distributed = format!("{{\"distributedInfo\": {{\"rank\": {rank}, \"world_size\": 9}}, ");
        trace_of(KERNEL).replacen('{', &distributed, 1)
    };
    for (name, text) in [
        ("a.json", of_rank(5)),
        ("b.json", trace_of(KERNEL)),
        ("c.json", trace_of(KERNEL)),
        ("trace-rank1.json", trace_of(KERNEL)),
        ("notes.txt", "nothing".into()),
        ("other.json", "{}".into()),
    ] {
        fs::write(directory.path().join(name), text).unwrap();
    }
    fs::create_dir(directory.path().join("folder.json")).unwrap();
    let run = Run::of_source(directory.path()).unwrap();
    let named = |rank: &stepscope_traces::RankDirectory| {
        (rank.info.rank, rank.path.file_name().unwrap().to_str().unwrap().to_owned())
    };
    let expected = [(0, "b.json"), (1, "trace-rank1.json"), (2, "c.json"), (5, "a.json")];
    assert_eq!(run.ranks.iter().map(named).collect::<Vec<_>>(), expected.map(|(rank, name)| (Rank(rank), name.into())));
    assert_eq!(run.info.world_size, Some(9));

    fs::write(directory.path().join("d.json"), of_rank(5)).unwrap();
    let error = Run::of_source(directory.path()).unwrap_err();
    assert!(matches!(&error, TraceError::Import(ImportError::SameRank { rank: Rank(5), .. })), "{error}");
    assert!(error.to_string().contains("a.json") && error.to_string().contains("d.json"));
}

/// One process that was profiled twice is not two ranks; processes of several containers are, though their numbers are the same.
#[test]
fn recordings_of_one_process_are_told_apart() {
    let trace = |pid: u32, start: u64, fields: &str| {
        let operator = format!(
            r#"{{"ph": "X", "cat": "cpu_op", "name": "a", "pid": {pid}, "tid": {pid}, "ts": {start}, "dur": 100}}"#
        );
        trace_of(&operator).replacen('{', &format!("{{{fields}"), 1)
    };
    let host = |name: &str| format!("\"host_name\": \"{name}\", ");
    let rank = |rank: u32| format!("\"distributedInfo\": {{\"rank\": {rank}, \"world_size\": 2}}, ");
    let first = trace(5, 0, "");
    for (names, one, other, who) in [
        (["a.json", "b.json"], &first, trace(5, 200, ""), Some("process 5")),
        (["a.json", "b.json"], &first, trace(5, 50, ""), None),
        (["a.json", "b.json"], &first, trace(6, 200, ""), None),
        (["a.json", "b.json"], &trace(5, 0, &host("x")), trace(5, 200, &host("y")), None),
        (["a.json", "b.json"], &trace(5, 0, &host("x")), trace(5, 200, &host("x")), Some("process 5")),
        (["a.json", "b.json"], &trace(5, 0, &rank(0)), trace(5, 200, &rank(1)), None),
        (["a.json", "b.json"], &trace(5, 0, &rank(0)), trace(5, 200, ""), Some("process 5")),
        (["rank0.json", "rank1.json"], &first, trace(5, 200, ""), None),
        (["w.1.pt.trace.json", "w.2.pt.trace.json"], &first, trace(6, 200, ""), Some("w")),
        (["v.1.pt.trace.json", "w.2.pt.trace.json"], &first, trace(6, 200, ""), None),
        (["x_5.1.pt.trace.json", "y_5.2.pt.trace.json"], &first, trace(5, 200, ""), None),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let [one_path, other_path] = names.map(|name| directory.path().join(name));
        fs::write(&one_path, one).unwrap();
        fs::write(&other_path, &other).unwrap();
        let error = Run::of_source(directory.path()).err().map(|error| error.to_string());
        let expected = who.map(|who| {
            let [one, other] = [&one_path, &other_path].map(|path| path.display());
            format!("{one} and {other} are both from {who}, at different times; only one can be used")
        });
        assert_eq!(error, expected, "{names:?} {one} {other}");
    }
}

#[test]
fn copies_of_a_recording_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let operator = r#"{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 5, "tid": 5, "ts": 1, "dur": 100}"#;
    let [one, other] = ["a.json", "b.json"].map(|name| directory.path().join(name));
    [&one, &other].into_iter().for_each(|path| fs::write(path, trace_of(operator)).unwrap());
    let error = Run::of_source(directory.path()).err().unwrap().to_string();
    let [one, other] = [one, other].map(|path| path.display().to_string());
    assert_eq!(error, format!("{one} and {other} are the same recording; only one can be used"));
}

#[test]
fn folders_that_hold_traces_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    for (folder, file, text) in [
        ("b", "trace.json", trace_of(KERNEL)),
        ("a", "trace.json", trace_of(KERNEL)),
        ("c", "settings.json", "{\"a\": 1}".into()),
        ("d", "trace.txt", trace_of(KERNEL)),
    ] {
        fs::create_dir(here.join(folder)).unwrap();
        fs::write(here.join(folder).join(file), text).unwrap();
    }
    assert_eq!(Run::folders_with_traces(here, 9), [here.join("a"), here.join("b")]);
    assert_eq!(Run::folders_with_traces(here, 1), [here.join("a")]);
    assert_eq!(Run::folders_with_traces(&here.join("a"), 9), [""; 0].map(std::path::PathBuf::from));
}

#[test]
fn what_is_not_read_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file.json");
    let operator = r#"{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "tid": 1, "ts": 1, "dur": 9}"#;
    let other = r#"{"ph": "X", "cat": "mtia_ccp_events", "name": "a", "ts": 1, "dur": 1}"#;
    let overhead = r#"{"ph": "X", "cat": "overhead", "name": "a", "ts": 1, "dur": 1}"#;
    let said = |text: &str| {
        fs::write(&path, text).unwrap();
        let (_, report) = Run::of_source(&path).unwrap().ranks[0].survey_with_report().unwrap();
        let failed = report.info.collector.failed_sources.unwrap_or_default().0;
        failed.into_iter().map(|(source, why)| format!("{source}: {why}")).collect::<Vec<_>>()
    };
    assert_eq!(said(&trace_of(&[KERNEL, overhead].join(","))), [""; 0]);
    let whole = trace_of(operator);
    assert!(said(&whole)[0].starts_with("GPU activity: the trace has none, but 1 operator of the host"));
    assert_eq!(said(&whole[..whole.len() - 2]), [""; 0], "kernels may come behind its end");
    let expected = [
        "GPU activity: the trace has none of a kind that is read",
        "mtia_ccp_events: not read; the trace has 1 event of this kind",
    ];
    assert_eq!(said(&trace_of(&[operator, other].join(","))), expected);
}

#[test]
fn how_much_of_a_trace_was_read_is_told() {
    for bytes in [text("ddp/rank0.json.gz").into_bytes(), packed(text("ddp/rank0.json.gz").as_bytes())] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file.json");
        fs::write(&path, &bytes).unwrap();
        let run = Run::of_source(&path).unwrap();
        let rank = &run.ranks[0];
        assert_eq!((rank.bytes(), rank.bytes_read()), (bytes.len() as u64, 0));
        rank.read(Window::ALL).unwrap();
        assert_eq!(rank.bytes_read(), bytes.len() as u64);
    }
}
