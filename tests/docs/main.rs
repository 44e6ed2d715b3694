//! What the README and the book say: their links lead somewhere, their commands run, and what they quote is what the
//! commands print.
//!
//! `STEPSCOPE_DOCS=update cargo test --release --workspace --test docs` writes the quoted output again.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on has failed")]

/// The structure of the book: its summary, its settings, its pictures.
mod book;

/// Runs the commands of a page, and compares what they print.
mod commands;

/// Links and anchors.
mod links;

/// Pages: their headings, links and blocks of code.
mod page;

/// What commands that cannot run here say: commands and options that there are.
mod usage;

/// A directory in which the commands of a page run.
mod world;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use page::Page;
use usage::Usage;
use world::World;

/// Pages outside of the book whose commands run, too.
const PAGES_WITH_COMMANDS: [&str; 3] = ["README.md", "CONTRIBUTING.md", "traces/samples/README.md"];
/// Other pages whose links are followed.
const PAGES_WITH_LINKS: [&str; 3] = ["ARCHITECTURE.md", "CHANGELOG.md", "SECURITY.md"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The pages of the book, by name.
fn book_pages() -> Vec<PathBuf> {
    let folder = fs::read_dir(root().join("docs/src")).unwrap();
    let files = folder.map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    pages.sort();
    pages
}

fn pages_with_commands() -> Vec<Page> {
    let others = PAGES_WITH_COMMANDS.map(|name| root().join(name));
    others.into_iter().chain(book_pages()).map(|path| Page::read(&path)).collect()
}

#[test]
fn the_book_is_whole() {
    let wrong = book::wrong(&root().join("docs"), &book_pages());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn links_lead_somewhere() {
    let others = PAGES_WITH_LINKS.map(|name| Page::read(&root().join(name)));
    let wrong: Vec<String> =
        pages_with_commands().iter().chain(&others).flat_map(|page| links::wrong(page, root())).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn commands_run_and_print_what_pages_quote() {
    let (pages, next) = (pages_with_commands(), AtomicUsize::new(0));
    let (usage, world) = (Usage::default(), World::prepare());
    let work = || {
        let mine = std::iter::from_fn(|| pages.get(next.fetch_add(1, Ordering::Relaxed)));
        mine.flat_map(|page| commands::wrong(page, &world, &usage)).collect::<Vec<String>>()
    };
    let threads = thread::available_parallelism().map_or(2, Into::into);
    let wrong = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect::<Vec<String>>()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_command_finding_and_json_key_is_in_the_book() {
    let wrong = book::not_mentioned(root(), &Usage::default());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
