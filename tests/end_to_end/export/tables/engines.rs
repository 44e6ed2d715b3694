use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use super::{Row, exported, oddly_named, rows};
use crate::{
    binary::{json as said, text},
    export::SAMPLES,
    skipped::skipped,
};

/// Programs that read tables, and what Python needs for them.
const ENGINES: (&str, &[&str]) = ("engines.py", &["duckdb", "polars", "pyarrow.dataset"]);
const SPARK: (&str, &[&str]) = ("spark.py", &["pyspark"]);
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/src/tables.md");

/// What engines say of the tables in a directory; none, where Python lacks them.
fn asked((script, modules): (&str, &[&str]), directory: &Path, sql: &[String]) -> Option<Value> {
    let missing = modules.iter().find(|module| {
        let tried = Command::new("python3").args(["-c", &format!("import {module}")]).output();
        !tried.is_ok_and(|output| output.status.success())
    });
    if let Some(module) = missing {
        skipped("python", &format!("python3 has no {module}"));
        return None;
    }
    let mut command = Command::new("python3");
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/end_to_end/export/tables");
    command.arg("-B").arg(scripts.join(script)).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let request = json!({ "directory": directory, "sql": sql }).to_string();
    child.stdin.take().unwrap().write_all(request.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// The queries of the page, each with its question.
fn queries() -> Vec<(String, String)> {
    let page = fs::read_to_string(PAGE).unwrap();
    let mut queries = Vec::new();
    for part in page.split("\n**").skip(1) {
        let (question, rest) = part.split_once("**").unwrap();
        let query = rest.split_once("```sql\n").unwrap().1.split_once("```").unwrap().0;
        queries.push((question.to_owned(), query.to_owned()));
    }
    assert_eq!(page.matches("```sql").count(), queries.len());
    queries
}

/// Rows that a query must have: of each, some of its columns.
type Expected = Vec<BTreeMap<&'static str, Value>>;

#[test]
fn the_queries_of_the_book_say_what_analyze_says() {
    let (questions, sql): (Vec<String>, Vec<String>) = queries().into_iter().unzip();
    for sample in ["dp2-bucketed", "pp2-1f1b", "pytorch"] {
        let directory = tempfile::tempdir().unwrap();
        exported(Path::new(SAMPLES), &[sample], directory.path());
        let Some(answer) = asked(ENGINES, directory.path(), &sql) else { return };
        let analysis = said(&["analyze", sample, "--format", "json"], Path::new(SAMPLES));
        for (question, found) in questions.iter().zip(answer["sql"].as_array().unwrap()) {
            let expected = expected(question, &analysis);
            let found = found.as_array().unwrap();
            assert_eq!(found.len(), expected.len(), "{sample}: {question}");
            for (found, expected) in found.iter().zip(expected) {
                for (column, expected) in expected {
                    assert!(
                        is_close(&found[column], &expected),
                        "{sample}: {question} {column}: {found} and not {expected}"
                    );
                }
            }
        }
    }
}

/// Numbers may differ in their last digits: sums have another order.
fn is_close(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => (one - other).abs() <= 1e-9 * one.abs().max(other.abs()),
        _ => one == other,
    }
}

fn list<'a>(figures: &'a Value, name: &str) -> Vec<&'a Value> {
    figures[name].as_array().unwrap().iter().collect()
}

fn number(figures: &Value, name: &str) -> f64 {
    figures[name].as_f64().unwrap_or_else(|| panic!("{name} is {}", figures[name]))
}

/// Sorted, the greatest first, and of those that are equal by what they are called.
fn greatest_first<'a>(mut list: Vec<&'a Value>, by: &str, then: &str) -> Vec<&'a Value> {
    list.sort_by(|one, other| {
        number(other, by).total_cmp(&number(one, by)).then_with(|| one[then].to_string().cmp(&other[then].to_string()))
    });
    list
}

/// What a list of each rank comes to, over ranks: of each word, the sums of some figures.
fn summed(analysis: &Value, of: &str, word: &str, figures: &[&str]) -> Vec<(Value, Vec<f64>)> {
    let mut sums: BTreeMap<String, (Value, Vec<f64>)> = BTreeMap::new();
    for entry in list(analysis, "counted").iter().flat_map(|rank| list(rank, of)) {
        let sum = sums.entry(entry[word].to_string()).or_insert((entry[word].clone(), vec![0.0; figures.len()]));
        figures.iter().zip(&mut sum.1).for_each(|(figure, sum)| *sum += number(entry, figure));
    }
    let mut sums: Vec<_> = sums.into_values().collect();
    sums.sort_by(|one, other| other.1[0].total_cmp(&one.1[0]));
    sums
}

/// What `analyze` says to a question of the page.
fn expected(question: &str, analysis: &Value) -> Expected {
    let ms = |figures: &Value, name: &str| json!(number(figures, name) / 1e6);
    let steps = list(analysis, "steps");
    let window = &analysis["window"];
    let counts = |step: &Value| {
        let between = window["steps"][0].as_i64() <= step.as_i64() && step.as_i64() <= window["steps"][1].as_i64();
        between && ["warm_up", "cut_off"].iter().all(|list| !window[list].as_array().unwrap().contains(step))
    };
    match question.trim_end_matches(['?', '.']) {
        "Where did my steps go" => {
            let row = |rank: &&Value| {
                let mean = |part: &str| json!(number(rank, part) / number(rank, "windows") / 1e6);
                BTreeMap::from([
                    ("rank", rank["rank"].clone()),
                    ("step", mean("span_ns")),
                    ("compute", mean("compute_ns")),
                    ("exposed_communication", mean("exposed_communication_ns")),
                    ("exposed_copies", mean("exposed_copy_ns")),
                    ("idle", mean("idle_ns")),
                ])
            };
            list(analysis, "counted").iter().map(row).collect()
        }
        "How much communication is exposed, along which axis" => {
            let sums = summed(analysis, "axes", "axis", &["exposed_ns", "overlapped_ns", "communication_ns"]);
            let row = |(axis, sums): (Value, Vec<f64>)| {
                BTreeMap::from([
                    ("axis", axis),
                    ("exposed_ms", json!(sums[0] / 1e6)),
                    ("overlap", json!(sums[1] / sums[2])),
                ])
            };
            sums.into_iter().map(row).collect()
        }
        "Which kernels take the most time" => {
            let row = |kernel: &&Value| {
                BTreeMap::from([
                    ("name", kernel["name"].clone()),
                    ("family", kernel["family"].clone()),
                    ("count", kernel["count"].clone()),
                    ("ms", ms(kernel, "total_ns")),
                    ("share", kernel["share"].clone()),
                ])
            };
            greatest_first(list(analysis, "kernels"), "total_ns", "name").iter().take(10).map(row).collect()
        }
        "Which rank do the others wait for" => {
            let row = |rank: &&Value| {
                BTreeMap::from([
                    ("rank", rank["rank"].clone()),
                    ("caused_ms", ms(rank, "caused_wait_ns")),
                    ("waited_ms", ms(rank, "wait_ns")),
                ])
            };
            greatest_first(list(analysis, "stragglers"), "caused_wait_ns", "rank").iter().map(row).collect()
        }
        "What fills the fullest GPU at its peak" => {
            let fullest = greatest_first(list(analysis, "memory"), "peak_bytes", "rank")[0];
            let mut at_peak: Vec<(&String, f64)> = fullest["at_peak"]
                .as_object()
                .unwrap()
                .iter()
                .map(|(name, bytes)| (name, bytes.as_f64().unwrap()))
                .collect();
            let at_end = fullest["at_end"].as_object().unwrap().keys();
            let gone: Vec<_> = at_end.filter(|name| fullest["at_peak"].get(name.as_str()).is_none()).collect();
            at_peak.extend(gone.into_iter().map(|name| (name, 0.0)));
            at_peak.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(other.0)));
            let row = |(category, bytes): (&String, f64)| {
                BTreeMap::from([
                    ("rank", fullest["rank"].clone()),
                    ("category", json!(category)),
                    ("gb", json!(bytes / 1e9)),
                ])
            };
            at_peak.into_iter().map(row).collect()
        }
        "Which steps are the slowest, compared with the median of their rank" => {
            let median = |rank: &Value| {
                let of_rank = steps.iter().filter(|step| step["rank"] == *rank && counts(&step["step"]));
                let mut times: Vec<f64> = of_rank.map(|step| number(step, "duration_ns")).collect();
                times.sort_by(f64::total_cmp);
                (times[(times.len() - 1) / 2] + times[times.len() / 2]) / 2.0
            };
            let mut slow: Vec<(f64, &&Value)> = steps
                .iter()
                .filter(|step| counts(&step["step"]))
                .map(|step| (number(step, "duration_ns") / median(&step["rank"]), step))
                .collect();
            let place = |step: &Value| (step["step"].as_i64(), step["rank"].as_i64());
            slow.sort_by(|one, other| other.0.total_cmp(&one.0).then(place(one.1).cmp(&place(other.1))));
            let row = |(of_median, step): &(f64, &&Value)| {
                BTreeMap::from([
                    ("step", step["step"].clone()),
                    ("rank", step["rank"].clone()),
                    ("ms", ms(step, "duration_ns")),
                    ("of_median", json!(of_median)),
                ])
            };
            slow.iter().take(10).map(row).collect()
        }
        "How fast does it train, and how does the loss go" => {
            let mut by_step: BTreeMap<i64, Vec<&Value>> = BTreeMap::new();
            steps.iter().for_each(|step| by_step.entry(step["step"].as_i64().unwrap()).or_default().push(step));
            let row = |(step, ranks): (i64, Vec<&Value>)| {
                let known = |name: &str| ranks.iter().filter_map(|step| step[name].as_f64()).collect::<Vec<f64>>();
                BTreeMap::from([
                    ("step", json!(step)),
                    ("ms", json!(known("duration_ns").into_iter().fold(0.0, f64::max) / 1e6)),
                    ("tokens_per_second", json!(known("tokens_per_second").into_iter().reduce(f64::min))),
                    ("mfu", json!(known("mfu").into_iter().reduce(f64::min))),
                    ("loss", json!(known("loss").into_iter().reduce(f64::max))),
                ])
            };
            by_step.into_iter().map(row).collect()
        }
        "How fast are collectives" => {
            let row = |collective: &&Value| {
                let per_one = collective["bytes"].as_f64().map(|bytes| bytes / number(collective, "count") / 1e6);
                BTreeMap::from([
                    ("operation", collective["operation"].clone()),
                    ("axis", collective["axis"].clone()),
                    ("count", collective["count"].clone()),
                    ("mb", json!(per_one)),
                    ("gb_per_second", json!(collective["bus_bandwidth"].as_f64().map(|bandwidth| bandwidth / 1e9))),
                    ("exposed_ms", ms(collective, "exposed_ns")),
                ])
            };
            greatest_first(list(analysis, "collectives"), "exposed_ns", "operation").iter().map(row).collect()
        }
        "What do the passes take" => {
            let sums = summed(analysis, "phases", "phase", &["compute_ns", "exposed_communication_ns"]);
            let row = |(phase, sums): (Value, Vec<f64>)| {
                BTreeMap::from([
                    ("phase", phase),
                    ("compute_ms", json!(sums[0] / 1e6)),
                    ("exposed_ms", json!(sums[1] / 1e6)),
                ])
            };
            sums.into_iter().map(row).collect()
        }
        "Why is the GPU idle" => {
            let row =
                |(reason, sums): (Value, Vec<f64>)| BTreeMap::from([("reason", reason), ("ms", json!(sums[0] / 1e6))]);
            summed(analysis, "idle", "reason", &["time_ns"]).into_iter().map(row).collect()
        }
        "What does a kernel do, layer by layer" => {
            let kernels = list(analysis, "kernels").into_iter();
            let compute = kernels.filter(|kernel| kernel["family"] != "communication" && kernel["family"] != "copy");
            let row = |kernel: &&Value| {
                BTreeMap::from([
                    ("name", kernel["name"].clone()),
                    ("count", kernel["count"].clone()),
                    ("ms", ms(kernel, "total_ns")),
                ])
            };
            greatest_first(compute.collect(), "total_ns", "name").iter().take(10).map(row).collect()
        }
        "How does memory rise to its peak" => {
            let row = |memory: &&Value| {
                BTreeMap::from([("rank", memory["rank"].clone()), ("peak_bytes", memory["peak_bytes"].clone())])
            };
            list(analysis, "memory").iter().map(row).collect()
        }
        unknown => panic!("nothing is known of the question {unknown}"),
    }
}

#[test]
fn engines_read_every_table_alike() {
    read_every_table(ENGINES, &["duckdb", "polars", "pyarrow"]);
}

#[test]
fn spark_reads_every_table_as_others_do() {
    read_every_table(SPARK, &["spark"]);
}

/// Checks types, sums and runs of every table, of two runs, as engines read them.
fn read_every_table(program: (&str, &[&str]), engines: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let name = oddly_named(directory.path());
    for (place, source, run) in [("odd", directory.path(), name), ("several", Path::new(SAMPLES), "pp2-1f1b")] {
        let place = directory.path().join(place);
        fs::create_dir(&place).unwrap();
        exported(source, &[run], &place);
        let Some(answer) = asked(program, &place, &[]) else { return };
        for engine in engines {
            for (table, read) in answer[engine].as_object().unwrap() {
                check_table(&format!("{engine} {table}"), read, &rows(&place.join("tables"), table), run);
            }
        }
    }
}

fn check_table(what: &str, read: &Value, rows: &[Row], run: &str) {
    let types = read["types"].as_object().unwrap();
    let unsigned = types.values().find(|kind| kind.as_str().unwrap().to_lowercase().starts_with('u'));
    assert_eq!(unsigned, None, "{what}");
    if !rows.is_empty() {
        assert_eq!(read["runs"], json!([run]), "{what}");
    }
    for (column, sum) in read["sums"].as_object().unwrap() {
        let known = rows.iter().filter_map(|row| row.get(column)?.as_i64()).map(i128::from);
        let expected: i128 = known.sum();
        // The rank of some tables is in their paths.
        if rows.first().is_some_and(|row| row.contains_key(column)) {
            assert_eq!(sum.to_string(), expected.to_string(), "{what} {column}");
        }
    }
}
