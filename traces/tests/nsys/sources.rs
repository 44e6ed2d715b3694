use std::{fs, io::Write};

use flate2::{Compression, write::GzEncoder};
use stepscope_traces::{ImportError, Run, TraceError};

use crate::export::Export;

#[test]
fn reports_that_were_not_exported_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    for (name, bytes) in [
        ("without an ending", b"NVIDIA Tegra Profiler Report 1.\x0a\x0bLocal (CLI)".as_slice()),
        ("report1.nsys-rep", b"something newer".as_slice()),
        ("report1.qdrep", b"".as_slice()),
    ] {
        let path = directory.path().join(name);
        fs::write(&path, bytes).unwrap();
        let error = Run::of_source(&path).unwrap_err();
        assert!(matches!(error, TraceError::Import(ImportError::NsysReport { .. })), "{error}");
    }
    let error = Run::of_source(directory.path()).unwrap_err();
    assert!(matches!(error, TraceError::Import(ImportError::NsysReport { .. })), "{error}");
}

#[test]
fn a_report_beside_its_export_is_passed_over() {
    let export = Export::new();
    export.kernel(10, 0, "kernel", 1, 2);
    fs::write(export.directory().join("report.nsys-rep"), b"NVIDIA Tegra Profiler Report 1.").unwrap();
    assert_eq!(Run::of_source(export.directory()).unwrap().ranks.len(), 1);
}

#[test]
fn exports_of_a_directory_are_one_run() {
    let directory = tempfile::tempdir().unwrap();
    for rank in [1, 0] {
        let export = Export::new();
        export.kernel(10 + rank, 0, "kernel", 1, 2);
        fs::copy(export.path(), directory.path().join(format!("profile_rank{rank}.sqlite"))).unwrap();
    }
    let run = Run::of_source(directory.path()).unwrap();
    let ranks: Vec<_> = run.ranks.iter().map(|rank| (rank.info.rank.0, rank.info.pid)).collect();
    assert_eq!(ranks, [(0, 10), (1, 11)]);
}

#[test]
fn exports_of_different_jobs_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    for (rank, hours) in [(0, 0), (1, 2)] {
        let export = Export::new();
        export.kernel(10, 0, "kernel", 1, 2);
        let later = i64::from(hours) * 3_600_000_000_000;
        export.run("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + ?1", [later]);
        fs::copy(export.path(), directory.path().join(format!("profile_rank{rank}.sqlite"))).unwrap();
    }
    let error = Run::of_source(directory.path()).unwrap_err();
    assert!(matches!(error, TraceError::Import(ImportError::OtherJob { .. })), "{error}");
    assert!(error.to_string().contains("more than an hour apart"), "{error}");
}

#[test]
fn other_databases_are_refused() {
    for tables in [
        "CREATE TABLE places (id INTEGER)",
        "CREATE TABLE StringTable (id); CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (id)",
    ] {
        let other = Export::empty();
        other.database.execute_batch(tables).unwrap();
        let error = Run::of_source(&other.path()).unwrap_err();
        assert!(error.to_string().ends_with("it is an SQLite database of another program"), "{error}");
    }
}

#[test]
fn a_packed_export_says_how_to_unpack_it() {
    let export = Export::new();
    let packed = export.directory().join("report.sqlite.gz");
    let mut gzip = GzEncoder::new(fs::File::create(&packed).unwrap(), Compression::fast());
    gzip.write_all(&fs::read(export.path()).unwrap()).unwrap();
    gzip.finish().unwrap();
    let error = Run::of_source(&packed).unwrap_err().to_string();
    assert!(error.ends_with("unpack it first: gunzip --keep report.sqlite.gz"), "{error}");
}

#[test]
fn nothing_is_written_beside_an_export() {
    let export = Export::new();
    export.kernel(10, 0, "kernel", 1, 2);
    export.database.pragma_update(None, "journal_mode", "wal").unwrap();
    let path = export.path();
    let copied = tempfile::tempdir().unwrap();
    let copy = copied.path().join("copy.sqlite");
    drop(export.database);
    fs::copy(&path, &copy).unwrap();
    let before = fs::read(&copy).unwrap();
    assert_eq!(Run::of_source(&copy).unwrap().ranks.len(), 1);
    assert_eq!(fs::read(&copy).unwrap(), before);
    assert_eq!(fs::read_dir(copied.path()).unwrap().count(), 1);
}
