//! `stepscope export --format parquet`, read back row by row, and by the engines that people use.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use parquet::{
    column::reader::ColumnReader,
    file::{
        reader::{FileReader, SerializedFileReader},
        statistics::Statistics,
    },
    record::Field,
};
use serde_json::{Map, Value, json};
use stepscope_analyzer::{Selection, analyze_with_overlay};
use stepscope_traces::{
    FIRST_NAME, Nanos, Origin, Rank, RankInfo, RankWriter, Run, RunInfo, Span, SpanKind, Window, synthetic::Recipe,
};

use super::{KINETO, SAMPLES};
use crate::binary::{failure, json as said, stepscope, text};

/// Engines of Python, and the queries of the book.
mod engines;

/// A row of a table, with the partition that it is in.
type Row = Map<String, Value>;

/// Exports something as tables.
fn exported(from: &Path, arguments: &[&str], into: &Path) -> PathBuf {
    let tables = into.join("tables");
    let output =
        stepscope(&[&["export", "--format", "parquet", "-o", tables.to_str().unwrap()], arguments].concat(), from);
    assert!(output.status.success(), "{}", text(&output.stderr));
    tables
}

/// The files of a table, by path.
fn files(tables: &Path, table: &str) -> Vec<PathBuf> {
    fn below(folder: &Path, found: &mut Vec<PathBuf>) {
        let mut entries: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        for entry in entries {
            if entry.is_dir() { below(&entry, found) } else { found.push(entry) }
        }
    }
    let mut found = Vec::new();
    below(&tables.join(table), &mut found);
    found
}

fn reader(file: &Path) -> SerializedFileReader<File> {
    SerializedFileReader::new(File::open(file).unwrap()).unwrap()
}

/// What a file has, in its order.
fn rows_of(file: &Path) -> Vec<Row> {
    let value = |field: &Field| match field {
        Field::Null => Value::Null,
        Field::Bool(truth) => json!(truth),
        Field::Long(number) => json!(number),
        Field::Double(number) => json!(number),
        Field::Str(text) => json!(text),
        other => panic!("tables have no {other:?}"),
    };
    let row = |row: parquet::record::Row| {
        row.get_column_iter().map(|(name, field)| (name.clone(), value(field))).collect::<Row>()
    };
    reader(file).get_row_iter(None).unwrap().map(|read| row(read.unwrap())).collect()
}

fn rows(tables: &Path, table: &str) -> Vec<Row> {
    files(tables, table).iter().flat_map(|file| rows_of(file)).collect()
}

#[test]
fn every_row_that_was_recorded_is_there_with_its_words() {
    for source in ["dp2-zero3", "pp2-1f1b", "pytorch", "first-steps"] {
        recorded(&Path::new(SAMPLES).join(source));
    }
    recorded(&Path::new(KINETO).join("ddp"));
}

fn recorded(source: &Path) {
    let directory = tempfile::tempdir().unwrap();
    let tables = exported(Path::new("."), &[source.to_str().unwrap()], directory.path());
    let run = Run::of_source(source).unwrap();
    let (_, overlay) = analyze_with_overlay(&run, &Selection::default(), &|_| ()).unwrap();
    let place = |table: &str, rank: Rank| {
        let files = files(&tables, table);
        let of_rank = files.iter().find(|file| file.parent().unwrap().ends_with(format!("rank={rank}")));
        rows_of(of_rank.unwrap())
    };
    for (rank, overlay) in run.ranks.iter().zip(&overlay.ranks) {
        let (data, _) = rank.read(Window::ALL).unwrap();
        let number = rank.info.rank;
        let align = |time: Nanos| overlay.clock.at(time.0);
        let mut spans: Vec<Span> = data.spans.rows().collect();
        spans.sort_by_key(|span| span.start_ns);
        let span = |span: &Span| {
            let origin = span.origin.and_then(|origin| data.names.get(origin)).map(Origin::of).unwrap_or_default();
            json!({
                "start_ns": span.start_ns, "duration_ns": span.duration_ns, "aligned_start_ns": align(span.start_ns),
                "kind": span.kind, "name": data.names.get(span.name), "stream": span.stream,
                "correlation": span.correlation, "step": span.step, "micro_batch": span.micro_batch,
                "phase": span.phase, "layer": span.layer, "stage": span.stage, "bytes": span.bytes,
                "group_id": span.group, "sequence": span.sequence, "flops": span.flops, "operator": origin.operator,
                "shapes": origin.shapes, "module": origin.module, "source": origin.source,
            })
        };
        same(&place("spans", number), spans.iter().map(span), source);
        let mut memory: Vec<_> = data.memory.rows().zip(1..).collect();
        memory.sort_by_key(|(event, _)| event.time_ns);
        let event = |(event, number): &(stepscope_traces::MemoryEvent, i64)| {
            json!({
                "time_ns": event.time_ns, "aligned_time_ns": align(event.time_ns), "event": number, "op": event.op,
                "address": event.address, "bytes": event.bytes, "category": event.category, "step": event.step,
                "phase": event.phase, "layer": event.layer, "pool": event.pool,
                "site": event.site.and_then(|site| data.names.get(site)),
            })
        };
        same(&place("memory", number), memory.iter().map(event), source);
        let mut samples: Vec<_> = data.counters.rows().collect();
        samples.sort_by_key(|sample| sample.time_ns);
        let sample = |sample: &stepscope_traces::CounterSample| {
            json!({
                "time_ns": sample.time_ns, "aligned_time_ns": align(sample.time_ns),
                "counter": data.names.counter(sample.counter), "value": sample.value,
            })
        };
        same(&place("counters", number), samples.iter().map(sample), source);
    }
}

fn same(rows: &[Row], expected: impl ExactSizeIterator<Item = Value>, source: &Path) {
    assert_eq!(rows.len(), expected.len(), "{}", source.display());
    for (row, expected) in rows.iter().zip(expected) {
        assert_eq!(Value::Object(row.clone()), expected, "{}", source.display());
    }
}

#[test]
fn figures_are_those_of_the_json() {
    for sample in ["dp2-zero3", "pp2-1f1b", "pytorch", "cp2"] {
        let directory = tempfile::tempdir().unwrap();
        let tables = exported(Path::new(SAMPLES), &[sample], directory.path());
        let analysis = said(&["analyze", sample, "--format", "json"], Path::new(SAMPLES));
        let (counted, memory) = (&analysis["counted"], &analysis["memory"]);
        for (table, expected) in [
            ("counted", counted.clone()),
            ("kernels", analysis["kernels"].clone()),
            ("collectives", analysis["collectives"].clone()),
            ("stragglers", analysis["stragglers"].clone()),
            ("findings", analysis["findings"].clone()),
            ("peaks", memory.clone()),
            ("axes", parts(counted, "axes")),
            ("phases", parts(counted, "phases")),
            ("idle", parts(counted, "idle")),
        ] {
            has_figures(&rows(&tables, table), expected.as_array().unwrap(), (sample, table));
        }
        let mut steps = analysis["steps"].as_array().unwrap().clone();
        steps.sort_by_key(|step| step["rank"].as_u64());
        let rows_of_steps = rows(&tables, "steps");
        has_figures(&rows_of_steps, &steps, (sample, "steps"));
        let window = &analysis["window"];
        for row in &rows_of_steps {
            let step = row["step"].as_i64().unwrap();
            let is_in = |list: &Value| list.as_array().unwrap().iter().any(|other| other.as_i64() == Some(step));
            let between = window["steps"][0].as_i64().unwrap() <= step && step <= window["steps"][1].as_i64().unwrap();
            assert_eq!(row["warm_up"], json!(is_in(&window["warm_up"])));
            assert_eq!(row["cut_off"], json!(is_in(&window["cut_off"])));
            assert_eq!(row["counted"], json!(between && !is_in(&window["warm_up"]) && !is_in(&window["cut_off"])));
        }
        for row in rows(&tables, "peak_categories") {
            let of_rank = memory.as_array().unwrap().iter().find(|memory| memory["rank"] == row["rank"]).unwrap();
            let category = row["category"].as_str().unwrap();
            for moment in ["at_peak", "at_end"] {
                assert_eq!(row[moment].as_u64(), Some(of_rank[moment][category].as_u64().unwrap_or(0)));
            }
        }
        let run = &rows(&tables, "runs")[0];
        assert_eq!(run["name"], analysis["run"]["name"]);
        assert_eq!(run["median_step_ns"], analysis["step_time"]["median_ns"]);
        assert!(is_same(&run["mfu"], &analysis["mfu"]["value"]));
        assert!(is_same(&run["bubble"], &analysis["pipeline"]["bubble"]));
        assert_eq!(run["dropped_events"], analysis["data_loss"]["dropped_events"]);
    }
}

/// The entries of a list that each rank has, with the rank.
fn parts(ranks: &Value, list: &str) -> Value {
    let of = |rank: &Value| {
        let entries = rank[list].as_array().unwrap().clone();
        entries
            .into_iter()
            .map(|mut entry| {
                entry["rank"] = rank["rank"].clone();
                entry
            })
            .collect::<Vec<_>>()
    };
    ranks.as_array().unwrap().iter().flat_map(of).collect()
}

/// Whether a table has what the JSON has. Reading JSON may cost a number its last bit; a whole number may be in a column of
/// others.
fn is_same(there: &Value, figure: &Value) -> bool {
    let pair = there.as_f64().zip(figure.as_f64()).filter(|_| !(there.is_i64() && figure.is_i64()));
    there == figure || pair.is_some_and(|(one, other)| (one - other).abs() <= 2.0 * f64::EPSILON * other.abs())
}

/// Each figure that is no list or object is in the table, and is the same.
fn has_figures(rows: &[Row], expected: &[Value], of: (&str, &str)) {
    assert_eq!(rows.len(), expected.len(), "{of:?}");
    for (row, expected) in rows.iter().zip(expected) {
        for (name, figure) in expected.as_object().unwrap() {
            match figure {
                Value::Object(_) => {}
                // An object may be null, too.
                Value::Array(_) | Value::Null if !row.contains_key(name) => {}
                // A table of steps has its rank in its path.
                _ if name == "rank" && of.1 == "steps" => {}
                Value::Array(list) => {
                    let words: Vec<String> =
                        list.iter().map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned)).collect();
                    let words = (!words.is_empty()).then(|| words.join(" "));
                    assert_eq!(row[name], json!(words), "{of:?} {name}");
                }
                figure => {
                    let there = row.get(name).unwrap_or_else(|| panic!("{of:?} has no {name}"));
                    assert!(is_same(there, figure), "{of:?} {name}: {there} and not {figure}");
                }
            }
        }
    }
}

#[test]
fn row_groups_are_in_order_and_say_what_is_in_them() {
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("run");
    let recipe = Recipe { steps: 80, micro_batches: 4, layers: 32, kernels_per_layer: 14, ..Recipe::default() };
    recipe.write(&run).unwrap();
    let tables = exported(directory.path(), &["run"], directory.path());
    let reader = reader(&files(&tables, "spans")[0]);
    let groups = reader.num_row_groups();
    assert!(groups > 2, "{groups}");
    let recorded = Run::open(&run).unwrap().ranks[0].survey().unwrap().spans.rows;
    assert_eq!(reader.metadata().file_metadata().num_rows() as u64, recorded);
    let mut ends = Vec::new();
    for group in 0..groups {
        let metadata = reader.metadata().row_group(group);
        let sorted = &metadata.sorting_columns().unwrap()[0];
        assert_eq!((sorted.column_idx, sorted.descending), (0, false));
        let Some(Statistics::Int64(statistics)) = metadata.column(0).statistics() else { panic!("no statistics") };
        let rows = metadata.num_rows() as usize;
        let mut starts = Vec::new();
        let reader = reader.get_row_group(group).unwrap();
        let mut column = reader.get_column_reader(0).unwrap();
        let ColumnReader::Int64ColumnReader(column) = &mut column else { panic!("times are integers") };
        column.read_records(rows, Some(&mut Vec::new()), None, &mut starts).unwrap();
        assert!(starts.is_sorted());
        assert_eq!(statistics.min_opt().zip(statistics.max_opt()), starts.first().zip(starts.last()));
        assert!(metadata.column(0).column_index_offset().is_some(), "pages say what is in them, too");
        ends.push((starts[0], *starts.last().unwrap()));
    }
    let length = ends.last().unwrap().1 - ends[0].0;
    for pair in ends.windows(2) {
        let overlap = pair[0].1 - pair[1].0;
        assert!(pair[0].1 <= pair[1].1 && overlap < length / 20, "{ends:?}");
    }
}

#[test]
fn steps_and_ranks_can_be_chosen() {
    let directory = tempfile::tempdir().unwrap();
    let tables = exported(Path::new(SAMPLES), &["dp2-zero3", "--steps", "2..3", "--ranks", "1"], directory.path());
    assert_eq!(files(&tables, "spans").len(), 1);
    assert!(files(&tables, "spans")[0].parent().unwrap().ends_with("rank=1"));
    let steps: Vec<_> = rows(&tables, "steps").iter().map(|row| row["step"].clone()).collect();
    assert_eq!(steps, [json!(2)]);
    let run = Run::open(&Path::new(SAMPLES).join("dp2-zero3")).unwrap();
    let (data, _) = run.ranks[1].read(Window::ALL).unwrap();
    let of_step = |step: Option<i64>| step == Some(2);
    let recorded = data.spans.rows().filter(|span| of_step(span.step.map(|step| step.0.into()))).count();
    let spans = rows(&tables, "spans");
    assert_eq!(spans.iter().filter(|row| of_step(row["step"].as_i64())).count(), recorded);
    assert!(spans.iter().all(|row| row["step"].is_null() || of_step(row["step"].as_i64())));
    // Figures are of the whole job, in these steps.
    let analysis = said(&["analyze", "dp2-zero3", "--steps", "2..3", "--format", "json"], Path::new(SAMPLES));
    has_figures(&rows(&tables, "kernels"), analysis["kernels"].as_array().unwrap(), ("dp2-zero3", "kernels"));
}

#[test]
fn what_tables_cannot_be_is_refused_and_nothing_is_touched() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let sample = Path::new(SAMPLES).join("single");
    let refused = |arguments: &[&str]| failure(&[&["export", sample.to_str().unwrap()], arguments].concat(), path);
    fs::create_dir(path.join("full")).unwrap();
    fs::write(path.join("full/notes"), "theirs").unwrap();
    fs::write(path.join("file"), "theirs").unwrap();
    for (arguments, error, hint) in [
        (&["--format", "parquet", "-o", "full"][..], "it is not empty", "name a directory that is new or empty"),
        (&["--format", "parquet", "-o", "file"], "it is a file", "name a directory that is new or empty"),
        (&["--format", "parquet", "-o", "no/where"], "directory no does not exist", "mkdir -p no"),
        (&["--format", "parquet", "-o", "-"], "cannot go to stdout", "-o DIR"),
        (&["--format", "parquet", "-o", "a.pftrace"], "tables are a directory", "leave out --format parquet"),
        (&["--format", "parquet", "-o", "t", "--max-size", "1M"], "--max-size is for traces", "--steps or --ranks"),
        (&["-o", "a.parquet"], "writes Perfetto protobuf, not Parquet", "--format parquet -o a"),
        (&["-o", "full"], "it is a directory", "--format parquet -o full"),
        (&["--format", "parquet", "-o", "t", "--ranks", "7"], "there is no rank 7", ""),
    ] {
        let said = refused(arguments);
        assert!(said.contains(error) && said.contains(hint), "{arguments:?}: {said}");
    }
    let run = path.join("run");
    Recipe::default().write(&run).unwrap();
    let said = failure(&["export", "run", "--format", "parquet", "-o", "run/rank-00007"], path);
    assert!(said.contains("is in the run"), "{said}");
    let mut names: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["file", "full", "run"]);
    assert_eq!(fs::read_to_string(path.join("full/notes")).unwrap(), "theirs");
}

/// A run of a name that could be a part of a path, in a directory of that name, of a rank that recorded nothing but a span.
fn oddly_named(directory: &Path) -> &'static str {
    const NAME: &str = "..a b=c é %2F";
    let path = directory.join(NAME);
    RunInfo::of_this_process(NAME).create(&path).unwrap();
    let mut writer = RankWriter::create(&path, RankInfo::of_this_process(Rank(0))).unwrap();
    writer.push_name(FIRST_NAME, "gemm").unwrap();
    writer
        .push_span(&Span {
            bytes: Some(u64::MAX),
            flops: Some(u64::MAX / 2),
            ..Span::new(SpanKind::Kernel, FIRST_NAME, Nanos(5), Nanos(7))
        })
        .unwrap();
    // Its name is lost.
    writer
        .push_span(&Span::new(SpanKind::Kernel, stepscope_traces::NameId(FIRST_NAME.0 + 1), Nanos(20), Nanos(1)))
        .unwrap();
    writer.finish().unwrap();
    NAME
}

#[test]
fn unknown_is_null_and_tables_without_rows_are_there() {
    let directory = tempfile::tempdir().unwrap();
    let name = oddly_named(directory.path());
    let tables = exported(directory.path(), &[name], directory.path());
    let spans = rows(&tables, "spans");
    assert_eq!((&spans[0]["name"], &spans[1]["name"]), (&json!("gemm"), &Value::Null));
    assert_eq!((&spans[0]["bytes"], &spans[0]["flops"]), (&Value::Null, &json!(i64::MAX)));
    assert_eq!((&spans[0]["step"], &spans[0]["phase"]), (&Value::Null, &Value::Null));
    for table in ["memory", "steps", "collectives", "peaks"] {
        let files = files(&tables, table);
        assert_eq!(files.len(), 1, "{table}");
        assert!(rows_of(&files[0]).is_empty(), "{table}");
        assert!(reader(&files[0]).metadata().file_metadata().schema_descr().num_columns() > 3, "{table}");
    }
}
