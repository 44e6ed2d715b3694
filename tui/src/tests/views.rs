use std::sync::Arc;

use stepscope_traces::{Nanos, Step};

use super::cases::{Case, drawn, frame, named, read, sample};
use crate::{
    app::App,
    event::Event,
    theme::{Theme, ThemeName},
    view::View,
};

/// Frames that are kept: a run, the size of the terminal, and the views in which that run differs from others.
const KEPT: [(&str, (u16, u16), &[View]); 8] = [
    ("sample", (120, 40), View::ALL),
    ("one_rank", (80, 24), View::ALL),
    ("synthetic", (200, 60), View::ALL),
    ("interrupted", (80, 24), &[View::Overview, View::Incidents]),
    ("lossy", (100, 30), &[View::Overview, View::Devices]),
    (
        "many_ranks",
        (120, 40),
        &[View::Overview, View::Memory, View::Timeline, View::Communication, View::Devices, View::Ranks],
    ),
    ("recording", (80, 24), &[View::Overview, View::Memory, View::Timeline, View::Kernels]),
    ("empty", (80, 24), &[View::Overview]),
];

/// How many lines are above a view.
fn lines_above(case: &Case) -> usize {
    if case.snapshot.loss.is_none() { 3 } else { 4 }
}

/// The view in a frame, without what is around every view.
pub(crate) fn body(case: &Case, frame: &str) -> String {
    let lines: Vec<&str> = frame.lines().collect();
    lines[lines_above(case)..lines.len() - 1].join("\n")
}

#[test]
fn views_of_runs() {
    for (name, (width, height), views) in KEPT {
        for view in views {
            let frame = frame(*view, ThemeName::Plain, named(name), width, height);
            insta::assert_snapshot!(format!("{}_{name}", view.name()), body(named(name), &frame));
        }
    }
}

/// What is around views: of each run at the top, and of each view at the bottom.
#[test]
fn around_views() {
    for (name, (width, height), _) in KEPT {
        let frame = frame(View::Overview, ThemeName::Plain, named(name), width, height);
        let above: Vec<&str> = frame.lines().take(lines_above(named(name))).collect();
        insta::assert_snapshot!(format!("above_{name}"), above.join("\n"));
    }
    for width in [80, 160] {
        let keys =
            |view: &View| frame(*view, ThemeName::Plain, named("sample"), width, 24).lines().last().map(String::from);
        let keys: Vec<String> = View::ALL.iter().filter_map(keys).collect();
        insta::assert_snapshot!(format!("keys_{width}"), keys.join("\n"));
    }
}

/// Collectives between stages have waiting, and nobody to blame for it.
#[test]
fn why_nobody_waits_in_a_pipeline() {
    let case = Case::of("pipeline", read(&sample("pp2-1f1b")));
    let text = frame(View::Communication, ThemeName::Plain, &case, 120, 40);
    assert!(text.contains("all collectives are between stages") && !text.contains("not known"), "{text}");
}

/// A step that was cut off is not the newest one that is told of.
#[test]
fn a_step_that_was_cut_off_is_called_incomplete() {
    let mut snapshot = (*named("synthetic").snapshot).clone();
    let mut analysis = (**snapshot.analysis.as_ref().unwrap()).clone();
    analysis.window.cut_off = vec![Step(39)];
    snapshot.analysis = Some(Arc::new(analysis));
    let mut app = App::new(View::Overview, Theme::new(ThemeName::Plain), false);
    app.handle(Event::Data(Arc::new(snapshot)));
    let text = drawn(&mut app, Nanos(0), 120, 40);
    assert!(text.contains("step 39, incomplete") && text.contains("newest: step 38"), "{text}");
    assert!(text.contains("step 39 is incomplete"), "{text}");
}

/// A memory snapshot has nothing but memory to show.
#[test]
fn a_memory_snapshot_opens_in_memory() {
    let of_memory = sample("../tests/fixtures/ddp-rank0.pickle");
    for (path, title) in [(of_memory, "Memory of rank 0"), (sample("single"), "Findings")] {
        let (snapshot, _) = read(&path);
        let mut app = App::new(None, Theme::new(ThemeName::Plain), false);
        app.handle(Event::Data(snapshot));
        let text = drawn(&mut app, Nanos(0), 120, 40);
        assert!(text.contains(title), "{text}");
    }
}
