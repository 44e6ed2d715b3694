use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use stepscope_traces::Nanos;

use super::{
    cases::{Case, drawn, named},
    views::body,
};
use crate::{
    app::App,
    event::Event,
    theme::{Theme, ThemeName},
    view::View,
};

const SIZE: (u16, u16) = (120, 40);

/// A dashboard in which keys were pressed one after another, each when what it shows was there.
fn pressed(view: View, case: &Case, keys: &[KeyCode]) -> App {
    let mut app = App::new(view, Theme::new(ThemeName::Plain), false);
    app.handle(Event::Data(case.snapshot.clone()));
    case.answer(&mut app, Nanos(0), SIZE.0, SIZE.1);
    for key in keys {
        app.handle(Event::Key(KeyEvent::new(*key, KeyModifiers::NONE)));
        case.answer(&mut app, Nanos(0), SIZE.0, SIZE.1);
    }
    app
}

fn seen(app: &mut App) -> String {
    drawn(app, Nanos(0), SIZE.0, SIZE.1)
}

#[test]
fn a_kernel_alone() {
    let keys = [KeyCode::Char('n'), KeyCode::Char('n'), KeyCode::Enter];
    insta::assert_snapshot!(body(named("one_rank"), &seen(&mut pressed(View::Timeline, named("one_rank"), &keys))));
}

#[test]
fn nearer_and_back() {
    let (mut near, case) = (vec![KeyCode::Char('+'); 5], named("sample"));
    let before = seen(&mut pressed(View::Timeline, case, &[]));
    insta::assert_snapshot!(body(case, &seen(&mut pressed(View::Timeline, case, &near))));
    near.push(KeyCode::Char('f'));
    assert_eq!(seen(&mut pressed(View::Timeline, case, &near)), before);
}

#[test]
fn never_nearer_than_some_nanoseconds_nor_farther_than_all() {
    let case = named("synthetic");
    let near = seen(&mut pressed(View::Timeline, case, &[KeyCode::Char('+'); 60]));
    assert!(near.contains("20 ns visible"), "{near}");
    let far = [vec![KeyCode::Char('-'); 40], vec![KeyCode::Right; 9]].concat();
    let far = seen(&mut pressed(View::Timeline, case, &far));
    assert!(far.contains("steps 0 to 39") && far.contains("rank 0     step"), "{far}");
}

#[test]
fn a_click_selects() {
    let case = named("one_rank");
    let mut app = pressed(View::Timeline, case, &[]);
    assert!(!seen(&mut app).contains("took"));
    let kind = MouseEventKind::Down(MouseButton::Left);
    app.handle(Event::Mouse(MouseEvent { kind, column: 60, row: 12, modifiers: KeyModifiers::NONE }));
    let text = seen(&mut app);
    assert!(text.contains("took") && text.contains("into the step"), "{text}");
}

#[test]
fn down_goes_through_all_ranks() {
    let case = named("many_ranks");
    let text = seen(&mut pressed(View::Timeline, case, &[KeyCode::Down; 60]));
    let selected = text.lines().find(|line| line.contains(", stream ")).unwrap_or_default();
    // Each has three streams.
    assert!(selected.contains("rank 19, stream 3"), "{text}");
}

#[test]
fn a_part_of_a_pipeline() {
    let keys = [KeyCode::Char('+'), KeyCode::Char('+'), KeyCode::Char('h'), KeyCode::Char(',')];
    insta::assert_snapshot!(body(named("synthetic"), &seen(&mut pressed(View::Pipeline, named("synthetic"), &keys))));
}

/// What is typed after a slash is what n and p go to.
#[test]
fn kernels_are_found_by_name() {
    let mut app = pressed(View::Timeline, named("one_rank"), &[KeyCode::Char('n')]);
    let find: Vec<KeyCode> = "/adamw".chars().map(KeyCode::Char).chain([KeyCode::Enter, KeyCode::Char('n')]).collect();
    let mut found = pressed(View::Timeline, named("one_rank"), &[&[KeyCode::Char('n')][..], &find].concat());
    assert!(!seen(&mut app).contains("adamw_bf16_bf16\n"), "{}", seen(&mut app));
    assert!(seen(&mut found).contains(" adamw_bf16"), "{}", seen(&mut found));
    assert!(seen(&mut found).contains("optimizer kernel"), "{}", seen(&mut found));
}
