//! The published schemas of the JSON: what commands say is in them, all of it, and they are schemas for others, too.
//!
//! Published schemas allow keys that they do not have, since new ones may come. Here a key that is not in its schema is wrong.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Map, Value, json};
use stepscope_traces::{Segment, synthetic::Recipe};
use tempfile::TempDir;

use crate::{
    binary::{stepscope, text},
    skipped::skipped,
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The published schema of a command's JSON.
fn schema(command: &str) -> Value {
    let path = root().join(format!("docs/src/schemas/{command}.schema.json"));
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Folders of a folder.
fn folders(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap());
    let names = entries.filter(|entry| entry.path().is_dir()).map(|entry| entry.file_name().into_string().unwrap());
    let mut folders: Vec<String> = names.map(|name| format!("{folder}/{name}")).collect();
    folders.sort();
    folders
}

/// A run of two jobs, one of which continues the other.
fn continued() -> TempDir {
    let run = tempfile::tempdir().unwrap();
    for number in [1, 2] {
        Recipe::default().write(&Segment::path(run.path(), number)).unwrap();
    }
    run
}

/// What commands say, of everything there is here to say something of.
fn documents() -> Vec<(&'static str, Value)> {
    let say = |command: &'static str, words: &[&str]| {
        let output = stepscope(&[&[command], words, &["--format", "json"]].concat(), root());
        assert!(output.status.success(), "{command} {words:?}: {}", text(&output.stderr));
        (command, serde_json::from_slice(&output.stdout).unwrap())
    };
    let fixtures = "traces/tests/fixtures";
    let sources = ["traces/samples", &format!("{fixtures}/runs"), &format!("{fixtures}/kineto")].map(folders).concat();
    let mut documents: Vec<_> = sources.iter().map(|source| say("analyze", &[source])).collect();
    for other in ["ddp-rank0.pickle", "flight_recorder/loader", "flight_recorder/size"] {
        documents.push(say("analyze", &[&format!("{fixtures}/{other}")]));
    }
    documents.push(say("analyze", &["traces/samples/tp2", "--steps", "all"]));
    documents.push(say("analyze", &[continued().path().to_str().unwrap()]));
    let samples = |names: &[&str]| names.iter().map(|name| format!("traces/samples/{name}")).collect::<Vec<String>>();
    for names in [
        &["dp2-naive", "dp2-bucketed"][..],
        &["recompute-full", "recompute-none"],
        &["pytorch", "pytorch-checkpointed"],
        &["single", "tp2", "dp2-zero3"],
    ] {
        let paths = samples(names);
        documents.push(say("diff", &paths.iter().map(String::as_str).collect::<Vec<&str>>()));
    }
    let on_h200 = ["--gpu", "h200", "--gpus"];
    for words in [
        &[&["--model", "llama-8b"][..], &on_h200, &["16", "--tokens", "100B"]].concat()[..],
        &[&["--model", "deepseek-v3"], &on_h200[..], &["512"]].concat(),
        &[&["--model", "mixtral-8x22b"], &on_h200[..], &["64", "--pp", "2"]].concat(),
        &[&["--model", "llama-70b"], &on_h200[..], &["2"]].concat(),
        &["--score", "traces/samples/dp2-naive", "traces/samples/single"],
    ] {
        documents.push(say("plan", words));
    }
    documents
}

/// What is wrong with a value, by its schema.
struct Check<'a> {
    root: &'a Value,
    wrong: Vec<String>,
}

impl Check<'_> {
    fn of(root: &Value, value: &Value) -> Vec<String> {
        let mut check = Check { root, wrong: Vec::new() };
        check.value(root, value, "");
        check.wrong
    }

    fn value(&mut self, schema: &Value, value: &Value, at: &str) {
        if let Some(reference) = schema["$ref"].as_str() {
            let target = self.root.pointer(reference.trim_start_matches('#'));
            return self.value(target.unwrap_or_else(|| panic!("nothing is at {reference}")), value, at);
        }
        if let Some(choices) = schema["anyOf"].as_array() {
            let wrong = choices.iter().map(|choice| {
                let mut check = Check { root: self.root, wrong: Vec::new() };
                check.value(choice, value, at);
                check.wrong
            });
            return self.wrong.extend(wrong.min_by_key(Vec::len).unwrap_or_default());
        }
        if let Some(words) = schema["enum"].as_array().filter(|words| !words.contains(value)) {
            self.wrong.push(format!("{at} is {value}, and none of {words:?}"));
        }
        let types = schema["type"].as_array().map_or_else(|| vec![&schema["type"]], |types| types.iter().collect());
        if !types.iter().any(|name| is_a(value, name.as_str().unwrap_or("anything"))) {
            return self.wrong.push(format!("{at} is {value}, and no {types:?}"));
        }
        if let (Some(least), Some(number)) = (schema["minimum"].as_f64(), value.as_f64())
            && number < least
        {
            self.wrong.push(format!("{at} is {number}"));
        }
        match value {
            Value::Object(object) => self.object(schema, object, at),
            Value::Array(items) => {
                let first = schema["prefixItems"].as_array().map_or(&[][..], Vec::as_slice);
                items.iter().enumerate().for_each(|(place, item)| {
                    self.value(first.get(place).unwrap_or(&schema["items"]), item, &format!("{at}[]"));
                });
            }
            _ => {}
        }
    }

    fn object(&mut self, schema: &Value, object: &Map<String, Value>, at: &str) {
        for required in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !object.contains_key(required) {
                self.wrong.push(format!("{at} has no {required}"));
            }
        }
        let names = schema["propertyNames"]["enum"].as_array();
        for (key, value) in object {
            let at = format!("{at}/{key}");
            match schema["properties"].get(key).or(schema.get("additionalProperties")) {
                Some(schema) => self.value(schema, value, &at),
                None => self.wrong.push(format!("{at} is not in the schema")),
            }
            if names.is_some_and(|names| !names.contains(&json!(key))) {
                self.wrong.push(format!("{at} is none of {names:?}"));
            }
        }
    }
}

fn is_a(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => panic!("nobody knows {name}"),
    }
}

#[test]
fn everything_that_commands_say_is_in_their_schemas() {
    for (command, document) in documents() {
        let mut wrong = Check::of(&schema(command), &document);
        wrong.dedup();
        wrong.truncate(20);
        assert!(wrong.is_empty(), "{command}: {}", wrong.join("\n"));
    }
}

/// The same by a validator of somebody else's, as they are published.
#[test]
fn others_validate_what_commands_say() {
    const VALIDATE: &str = "
import json, sys, jsonschema
for command, schema, documents in json.load(sys.stdin):
    jsonschema.Draft202012Validator.check_schema(schema)
    for document in documents:
        for error in jsonschema.Draft202012Validator(schema).iter_errors(document):
            print(command, list(error.absolute_path), error.message[:200])
";
    if !Command::new("python3").args(["-c", "import jsonschema"]).output().is_ok_and(|output| output.status.success()) {
        return skipped("python", &"Python has no jsonschema");
    }
    let documents = documents();
    let of = |command: &str| {
        documents.iter().filter(|(of, _)| *of == command).map(|(_, document)| document).collect::<Vec<_>>()
    };
    let commands = ["analyze", "diff", "plan"].map(|command| json!([command, schema(command), of(command)]));
    let mut python = Command::new("python3");
    let mut python = python.args(["-c", VALIDATE]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    python.stdin.take().unwrap().write_all(json!(commands).to_string().as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{}", text(&output.stdout));
}

/// The units that numbers may be in, by how a key ends.
const UNITS: [(&str, &str); 4] =
    [("_ns", "ns"), ("_bytes", "bytes"), ("tokens_per_second", "tokens/s"), ("bandwidth", "bytes/s")];

#[test]
fn every_key_is_described_with_its_unit_and_is_one_of_the_programs() {
    let mut sources = String::new();
    let mut open: Vec<PathBuf> =
        ["analyzer/src", "plan/src", "traces/src", "src/plan"].map(|folder| root().join(folder)).into();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|end| end == "rs") {
            sources += &fs::read_to_string(path).unwrap();
        }
    }
    for command in ["analyze", "diff", "plan"] {
        let schema = schema(command);
        let definitions =
            schema["$defs"].as_object().unwrap().iter().map(|(name, definition)| (name.as_str(), definition));
        for (of, definition) in definitions.chain([("the report", &schema)]) {
            for (key, property) in definition["properties"].as_object().into_iter().flatten() {
                let at = format!("{key} of {of} in {command}");
                let description = property["description"].as_str().unwrap_or_default();
                assert!(description.len() > 5 && description.ends_with('.'), "{at} is not described: {description}");
                let is_the_programs =
                    [format!("{key}:"), format!("tag = \"{key}\"")].iter().any(|text| sources.contains(text));
                assert!(is_the_programs, "nothing is called {at}");
                let kind = property["type"].as_array().map_or(&property["type"], |types| &types[0]).as_str();
                let unit = property["x-unit"].as_str();
                assert!(unit.is_some() || !matches!(kind, Some("integer" | "number")), "{at} has no unit");
                let expected = UNITS.iter().find(|(end, _)| key.ends_with(end)).map(|(_, unit)| *unit);
                assert!(expected.is_none() || unit.is_none() || unit == expected, "{at} is in {unit:?}");
            }
        }
    }
}
