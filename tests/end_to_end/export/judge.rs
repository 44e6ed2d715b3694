//! Perfetto's own trace processor, where `TRACE_PROCESSOR` names one.

use std::{env, fs, path::Path, process::Command};

use super::{SAMPLES, exported, official, structure::Structure};
use crate::skipped::skipped;

/// What it has nothing to say of, and how much of everything it found.
const QUERY: &str = "
    SELECT 'slices' AS name, COUNT(*) AS value FROM slice
    UNION ALL SELECT 'without end', COUNT(*) FROM slice WHERE dur = -1
    UNION ALL SELECT 'without name', COUNT(*) FROM slice WHERE name IS NULL
    UNION ALL SELECT 'values', COUNT(*) FROM counter
    UNION ALL SELECT 'flows', COUNT(*) FROM flow
    UNION ALL SELECT name, value FROM stats WHERE value != 0 AND name NOT GLOB '*_duration_ns'";

#[test]
fn perfetto_finds_no_fault_and_counts_the_same() {
    let Some(trace_processor) = env::var_os("TRACE_PROCESSOR") else {
        return skipped("perfetto", &"TRACE_PROCESSOR names no trace_processor_shell");
    };
    let directory = tempfile::tempdir().unwrap();
    let query = directory.path().join("query.sql");
    fs::write(&query, QUERY).unwrap();
    for sample in ["single", "dp2-zero3", "pp2-1f1b"] {
        let file = exported(Path::new(SAMPLES), &[sample], directory.path(), sample);
        let trace = Structure::of(&official::packets(&file));
        let output = Command::new(&trace_processor).arg("-q").arg(&query).arg(&file).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8(output.stdout).unwrap();
        let said: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).skip(1).collect();
        let expected = [
            ("slices", trace.slices.len() + trace.instants.len()),
            ("without end", 0),
            ("without name", 0),
            ("values", trace.values.len()),
            ("flows", trace.flows()),
        ];
        assert_eq!(said, expected.map(|(name, value)| format!("\"{name}\",{value}")), "{sample}");
    }
}
