use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use stepscope_traces::Nanos;

use super::cases::{drawn, named};
use crate::{
    app::App,
    event::Event,
    theme::{Theme, ThemeName},
    view::View,
};

fn app(view: View, case: &str) -> App {
    let mut app = App::new(view, Theme::new(ThemeName::Plain), false);
    app.handle(Event::Data(named(case).snapshot.clone()));
    look(&mut app);
    app
}

fn look(app: &mut App) -> String {
    drawn(app, Nanos(0), 120, 40)
}

fn press(app: &mut App, keys: &[KeyCode]) -> String {
    keys.iter().for_each(|key| app.handle(Event::Key(KeyEvent::new(*key, KeyModifiers::NONE))));
    look(app)
}

fn letters(text: &str) -> Vec<KeyCode> {
    text.chars().map(KeyCode::Char).collect()
}

/// Letters that are keys otherwise are typed, and what has them is left.
#[test]
fn kernels_are_filtered_by_what_is_typed() {
    let mut app = app(View::Kernels, "one_rank");
    let typing = press(&mut app, &letters("/swiglu"));
    assert!(typing.contains("/ swiglu▏") && typing.contains("2 of 29"), "{typing}");
    assert!(typing.contains("swiglu_backward_bf16") && !typing.contains("adamw"));
    let kept = press(&mut app, &[KeyCode::Enter]);
    assert!(kept.contains("2 of 29") && !kept.contains('▏'), "{kept}");
    let nothing = press(&mut app, &letters("/q1?"));
    assert!(nothing.contains("no match"), "{nothing}");
    let cleared = press(&mut app, &[KeyCode::Esc]);
    assert!(cleared.contains("Kernels  29,") && cleared.contains("adamw"), "{cleared}");
    assert!(app.exit.is_none(), "a typed q does not leave");
}

#[test]
fn kernels_are_sorted_by_the_next_column() {
    let mut app = app(View::Kernels, "one_rank");
    assert!(look(&mut app).contains("▼total"));
    assert!(press(&mut app, &letters("s")).contains("▼count"));
    assert!(press(&mut app, &letters("sssss")).contains("▼total"));
}

/// Whatever the width, lines are sorted by a column that is there.
#[test]
fn the_column_that_kernels_are_sorted_by_stays() {
    for width in [60, 80, 100] {
        let mut app = app(View::Kernels, "one_rank");
        for header in ["▼count", "▼mean", "▼rate", "▼of roofline", "▼kernel", "▼total"] {
            press(&mut app, &letters("s"));
            let frame = drawn(&mut app, Nanos(0), width, 24);
            assert!(frame.contains(header), "{header} at {width}:\n{frame}");
        }
    }
}

/// A long account of what happened is there to its end.
#[test]
fn an_account_of_an_incident_scrolls() {
    let mut app = app(View::Incidents, "interrupted");
    let last = "kept in incidents/0002-hang of the run";
    let small = |app: &mut App| drawn(app, Nanos(0), 80, 15);
    let first = small(&mut app);
    assert!(first.contains("more lines") && !first.contains(last), "{first}");
    press(&mut app, &[KeyCode::PageDown]);
    small(&mut app);
    for _ in 0..3 {
        app.handle(Event::Key(KeyEvent::new(KeyCode::PageDown, KeyModifiers::NONE)));
        small(&mut app);
    }
    let end = small(&mut app);
    assert!(end.contains(last) && !end.contains("more line"), "{end}");
    app.handle(Event::Key(KeyEvent::new(KeyCode::Down, KeyModifiers::NONE)));
    assert!(small(&mut app).contains("step 21 took 65.1 ms"), "another one is seen from its beginning");
}

/// What is under the cursor in one view is what every view is about.
#[test]
fn a_rank_is_focused_on_by_key_and_by_mouse() {
    let mut app = app(View::Ranks, "many_ranks");
    let taken = press(&mut app, &[KeyCode::Home, KeyCode::Right, KeyCode::Right, KeyCode::Enter]);
    assert!(taken.lines().nth(1).unwrap().contains("rank 2 "), "{taken}");
    let memory = press(&mut app, &letters("2"));
    assert!(memory.lines().nth(1).unwrap().contains("rank 2 "), "{memory}");
    press(&mut app, &[KeyCode::Esc]);
    let position = View::ALL.iter().position(|view| *view == View::Ranks).unwrap() + 1;
    let ranks = press(&mut app, &letters(&position.to_string()));
    let line = ranks.lines().position(|line| line.trim_start().starts_with("0 ")).unwrap();
    let column = ranks.lines().nth(line).unwrap().chars().position(|letter| letter == '0').unwrap() + 2;
    let kind = MouseEventKind::Down(MouseButton::Left);
    let click = MouseEvent { kind, column: column as u16, row: line as u16, modifiers: KeyModifiers::NONE };
    app.handle(Event::Mouse(click));
    let clicked = look(&mut app);
    assert!(clicked.lines().nth(1).unwrap().contains("rank 0 "), "{clicked}");
}

/// Who makes others wait is where the cursor is, and one key from its timeline.
#[test]
fn the_worst_rank_is_first_and_its_timeline_is_a_key_away() {
    let mut app = app(View::Ranks, "sample");
    let opened = look(&mut app);
    assert!(opened.contains("by caused waiting") && opened.contains("Rank 1"), "{opened}");
    let timeline = press(&mut app, &letters("t"));
    assert!(timeline.lines().nth(1).unwrap().contains("rank 1 ") && timeline.contains(" Timeline"), "{timeline}");
    assert!(!timeline.contains("by caused waiting"), "{timeline}");
}

/// Tokens are those of all ranks together.
#[test]
fn one_rank_has_no_speed_of_its_own() {
    let mut app = app(View::Overview, "synthetic");
    let newest = |text: &str| text.lines().find(|line| line.contains("newest: step")).unwrap().to_owned();
    assert!(newest(&drawn(&mut app, Nanos(0), 160, 40)).contains("tokens/s"));
    press(&mut app, &letters("]"));
    let focused = newest(&drawn(&mut app, Nanos(0), 160, 40));
    assert!(!focused.contains("tokens/s") && focused.contains("loss"), "{focused}");
}
