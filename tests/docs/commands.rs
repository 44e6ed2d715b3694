use std::{env, fs, ops::Range, path::Path};

use crate::{
    page::{Block, Page},
    usage::Usage,
    world::{World, run},
};

/// Whether quoted output is to be written again.
pub(crate) fn is_updating() -> bool {
    env::var_os("STEPSCOPE_DOCS").is_some_and(|word| word == "update")
}

/// What is wrong with the blocks of a page.
///
/// Each line of a block `sh` runs, and ends with status 0 or with that of the last line's `exit=1`; one with `needs-gpu` or
/// the like only has to name commands and options that there are. A block with `file=NAME` is a file for the lines after it.
/// A block `text` directly behind one that ran is what it prints: all of it, its first lines (`head=5`), some of its
/// paragraphs (`part=2`, `part=1-3`), or what is another text on each machine (`varies`).
pub(crate) fn wrong(page: &Page, world: &World, usage: &Usage) -> Vec<String> {
    let directory = world.copy();
    let mut wrong = Vec::new();
    let mut changes: Vec<(Range<usize>, String)> = Vec::new();
    let mut printed: Option<(usize, String)> = None;
    for block in &page.blocks {
        let text = page.inside(block);
        let place = page.place(block.line);
        if let Some(name) = block.value("file") {
            fs::write(directory.path().join(name), text).unwrap();
        }
        let behind = printed.take().filter(|(end, _)| page.text[*end..block.whole.start].trim().is_empty());
        match block.language.as_str() {
            "sh" if block.needs().is_none() => match run_block(block, text, directory.path()) {
                Ok(said) => printed = Some((block.whole.end, said)),
                Err(why) => wrong.push(format!("{place}: {why}")),
            },
            "sh" | "yaml" => {
                let unknown = lines(text).into_iter().flat_map(|line| usage.wrong(&line));
                wrong.extend(unknown.map(|why| format!("{place}: {why}")));
            }
            "text" => {
                let quoted = behind.map(|(_, said)| shown(block, &said));
                if let Some(quoted) = quoted.filter(|quoted| quoted != text) {
                    if is_updating() {
                        changes.push((block.inside.clone(), quoted));
                    } else if !block.has("varies") {
                        wrong.push(format!("{place}: this is not what is printed now:\n{quoted}"));
                    }
                }
            }
            "toml" => wrong.extend(text.parse::<toml::Table>().err().map(|error| format!("{place}: {error}"))),
            _ => {}
        }
    }
    write(page, changes);
    wrong
}

/// What the lines of a block print.
fn run_block(block: &Block, text: &str, directory: &Path) -> Result<String, String> {
    let lines = lines(text);
    let expected = block.value("exit").map_or(0, |status| status.parse().unwrap());
    let mut said = String::new();
    for (number, line) in lines.iter().enumerate() {
        // From a checkout the command is built first.
        let printed = run(&line.replace("cargo run --release -- ", "stepscope "), directory);
        let expected = if number + 1 == lines.len() { expected } else { 0 };
        if printed.status != Some(expected) {
            return Err(format!("`{line}` ends with {:?}:\n{}", printed.status, printed.text));
        }
        said.push_str(&printed.text);
    }
    Ok(said)
}

/// The lines of a shell, of which one may go on in the next.
fn lines(text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    joined.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// As much of what is printed as a block shows.
fn shown(block: &Block, said: &str) -> String {
    let parts: Vec<&str> = said.trim_end().split("\n\n").collect();
    let (first, last) = block.value("part").map_or((1, parts.len()), range);
    let parts = parts.get(first - 1..last.min(parts.len())).unwrap_or_default().join("\n\n");
    let lines: Vec<&str> = parts.lines().map(str::trim_end).collect();
    let head = block.value("head").map_or(lines.len(), |head| head.parse().unwrap());
    let (kept, rest) = lines.split_at(head.min(lines.len()));
    let mut shown = format!("{}\n", kept.join("\n").trim_end());
    if !rest.is_empty() {
        shown.push_str("…\n");
    }
    shown
}

/// `2`, or `1-3`.
fn range(text: &str) -> (usize, usize) {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    (first.parse().unwrap(), last.parse().unwrap())
}

/// Puts other texts into a page.
fn write(page: &Page, changes: Vec<(Range<usize>, String)>) {
    let mut text = page.text.clone();
    for (range, other) in changes.iter().rev() {
        text.replace_range(range.clone(), other);
    }
    if !changes.is_empty() {
        fs::write(&page.path, text).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_shows_as_much_as_it_says() {
        let block = |words: &[&str]| Block {
            language: "text".into(),
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            line: 1,
            whole: 0..0,
            inside: 0..0,
        };
        let said = "one\ntwo \n\nthree\n\nfour\n";
        assert_eq!(shown(&block(&[]), said), "one\ntwo\n\nthree\n\nfour\n");
        assert_eq!(shown(&block(&["head=1"]), said), "one\n…\n");
        assert_eq!(shown(&block(&["head=3"]), said), "one\ntwo\n…\n");
        assert_eq!(shown(&block(&["part=2"]), said), "three\n");
        assert_eq!(shown(&block(&["part=2-9"]), said), "three\n\nfour\n");
    }

    #[test]
    fn lines_that_go_on_are_one() {
        assert_eq!(lines("one \\\n  two\n# not\n\nthree\n"), ["one    two", "three"]);
    }
}
