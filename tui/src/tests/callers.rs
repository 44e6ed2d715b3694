use std::sync::OnceLock;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use stepscope_traces::{
    FIRST_NAME, MemoryCategory, MemoryEvent, MemoryOperation, NameId, Nanos, Rank, RankInfo, RankWriter, RunInfo,
};
use tempfile::TempDir;

use super::{
    cases::{Case, all, drawn, read},
    views::body,
};
use crate::{
    app::App,
    event::Event,
    theme::{Theme, ThemeName},
    view::View,
};

/// Blocks: what each is for, its megabytes, and the calls that led to it.
const BLOCKS: [(MemoryCategory, u64, &str); 5] = [
    (MemoryCategory::Parameters, 800, ""),
    (MemoryCategory::Activations, 600, "torch/nn/functional.py:5 linear\nmodel.py:9 forward\ntrain.py:2 main"),
    (MemoryCategory::Activations, 300, "model.py:9 forward\ntrain.py:2 main"),
    (MemoryCategory::Workspace, 200, "/home/somebody/a/long/way/to/the/loss.py:21 cross_entropy_loss\ntrain.py:3 main"),
    (MemoryCategory::Inputs, 10, "train.py:1 main"),
];

/// A rank in which it is known who asked for memory.
fn asked() -> &'static Case {
    static CASE: OnceLock<Case> = OnceLock::new();
    CASE.get_or_init(|| {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("gpt");
        RunInfo::of_this_process("gpt").create(&path).unwrap();
        let mut writer = RankWriter::create(&path, RankInfo::of_this_process(Rank(0))).unwrap();
        for (number, (category, megabytes, stack)) in (0..).zip(BLOCKS) {
            let site = NameId(FIRST_NAME.0 + number);
            writer.push_name(site, stack).unwrap();
            let (time, bytes) = (Nanos(1_000_000 * i64::from(number)), Some(1_000_000 * megabytes));
            let block = MemoryEvent::new(time, MemoryOperation::Alloc, number.into(), bytes);
            let site = Some(site).filter(|_| !stack.is_empty());
            writer.push_memory(&MemoryEvent { category: Some(category), site, ..block }).unwrap();
        }
        writer.finish().unwrap();
        Case::of("asked", read(&path))
    })
}

fn shown(case: &Case, keys: &str, width: u16, height: u16) -> String {
    let mut app = App::new(View::Memory, Theme::new(ThemeName::Plain), false);
    app.handle(Event::Data(case.snapshot.clone()));
    for key in keys.chars() {
        drawn(&mut app, Nanos(0), width, height);
        app.handle(Event::Key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE)));
    }
    drawn(&mut app, Nanos(0), width, height)
}

#[test]
fn memory_is_grouped_by_who_asked_for_it() {
    insta::assert_snapshot!("categories", body(asked(), &shown(asked(), "", 120, 30)));
    insta::assert_snapshot!("callers", body(asked(), &shown(asked(), "b", 120, 30)));
    assert_eq!(shown(asked(), "bb", 120, 30), shown(asked(), "", 120, 30));
}

#[test]
fn callers_without_room_are_summed() {
    let text = shown(asked(), "b", 100, 12);
    assert!(text.contains("other callers"), "{text}");
}

#[test]
fn where_nobody_is_known_there_are_categories() {
    for case in all() {
        assert_eq!(shown(case, "b", 120, 40), shown(case, "", 120, 40), "{}", case.name);
    }
}
