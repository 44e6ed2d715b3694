use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{page::Page, usage::Usage};

/// What is wrong with the book in a folder, whose pages are given.
pub(crate) fn wrong(folder: &Path, pages: &[PathBuf]) -> Vec<String> {
    let mut wrong = Vec::new();
    let settings: toml::Table = fs::read_to_string(folder.join("book.toml")).unwrap().parse().unwrap();
    let target = settings["build"]["build-dir"].as_str().unwrap();
    if target != "../target/book" {
        wrong.push(format!("the book is built into {target}, which git does not ignore"));
    }
    let summary = Page::read(&folder.join("src/SUMMARY.md"));
    let listed: Vec<PathBuf> = summary.links.iter().map(|link| folder.join("src").join(&link.target)).collect();
    for (place, path) in listed.iter().enumerate() {
        if listed[..place].contains(path) {
            wrong.push(format!("{} is in the summary twice", path.display()));
        }
        if !pages.contains(path) {
            wrong.push(format!("{} is in the summary and not there", path.display()));
        }
    }
    for path in pages.iter().filter(|path| **path != summary.path) {
        if !listed.contains(path) {
            wrong.push(format!("{} is not in the summary", path.display()));
        }
        if Page::read(path).title.is_none() {
            wrong.push(format!("{} has no title", path.display()));
        }
    }
    wrong.extend(old_pictures(folder));
    wrong
}

/// Pictures of the book that are not those of the dashboard. The book takes in nothing from other folders.
fn old_pictures(folder: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    for entry in fs::read_dir(folder.join("src/pictures")).unwrap() {
        let copy = entry.unwrap().path();
        let original = folder.join("../tui/pictures").join(copy.file_name().unwrap());
        let picture = fs::read(&original).unwrap();
        if fs::read(&copy).unwrap() != picture {
            if crate::commands::is_updating() {
                fs::write(&copy, picture).unwrap();
            } else {
                wrong.push(format!("{} is not {}", copy.display(), original.display()));
            }
        }
    }
    wrong
}

/// Commands, kinds of findings and keys of the JSON that their pages do not have.
pub(crate) fn not_mentioned(root: &Path, usage: &Usage) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut hold = |page: &str, names: Vec<String>| {
        let text = fs::read_to_string(root.join("docs/src").join(page)).unwrap();
        let missing = names.into_iter().filter(|name| !text.contains(&format!("`{name}`")));
        wrong.extend(missing.map(|name| format!("{page}: no `{name}`")));
    };
    hold("index.md", usage.commands());
    hold("findings.md", kinds_of_findings(root));
    for arguments in [
        &["analyze", "tp2"][..],
        &["diff", "dp2-naive", "dp2-bucketed"],
        &["plan", "--model", "tiny", "--gpu", "h100", "--gpus", "1"],
    ] {
        hold("json.md", keys(arguments, &root.join("traces/samples")));
    }
    wrong
}

/// The kinds of findings, by the source.
fn kinds_of_findings(root: &Path) -> Vec<String> {
    let files = fs::read_dir(root.join("analyzer/src/findings")).unwrap();
    let texts = files.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let kind =
        |line: &str| Some(line.trim().strip_prefix("const KIND: &'static str = \"")?.strip_suffix("\";")?.into());
    texts.flat_map(|text| text.lines().filter_map(kind).collect::<Vec<String>>()).collect()
}

/// The keys of what a command says as JSON.
fn keys(arguments: &[&str], directory: &Path) -> Vec<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stepscope"));
    let output = command.args(arguments).args(["--format", "json"]).current_dir(directory).output().unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    said.as_object().unwrap().keys().cloned().collect()
}
