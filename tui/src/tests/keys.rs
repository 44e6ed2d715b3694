use ratatui::crossterm::event::{
    KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use stepscope_traces::{Nanos, State};

use super::cases::{all, drawn};
use crate::{
    app::App,
    app::DashboardExit,
    data::RunChoice,
    event::Event,
    request::Request,
    theme::{Theme, ThemeName},
    view::View,
};

/// How many events there are.
const EVENTS: usize = 100_000;

fn any_key(random: &mut fastrand::Rng) -> Event {
    let code = match random.u8(0..15) {
        0 => KeyCode::Left,
        1 => KeyCode::Right,
        2 => KeyCode::Up,
        3 => KeyCode::Down,
        4 => KeyCode::Home,
        5 => KeyCode::End,
        6 => KeyCode::Tab,
        7 => KeyCode::BackTab,
        8 => KeyCode::Esc,
        9 => KeyCode::PageUp,
        10 => KeyCode::PageDown,
        11 => KeyCode::Enter,
        12 => KeyCode::F(random.u8(1..13)),
        _ => KeyCode::Char(random.char(' '..='~')),
    };
    let modifiers = *random.choice(&[KeyModifiers::NONE, KeyModifiers::SHIFT, KeyModifiers::ALT]).unwrap();
    let kind = *random.choice(&[KeyEventKind::Press, KeyEventKind::Repeat, KeyEventKind::Release]).unwrap();
    Event::Key(KeyEvent::new_with_kind(code, modifiers, kind))
}

fn any_mouse(random: &mut fastrand::Rng) -> Event {
    let kind = match random.u8(0..5) {
        0 => MouseEventKind::ScrollUp,
        1 => MouseEventKind::ScrollDown,
        2 => MouseEventKind::Moved,
        3 => MouseEventKind::Down(MouseButton::Right),
        _ => MouseEventKind::Down(MouseButton::Left),
    };
    Event::Mouse(MouseEvent { kind, column: random.u16(0..210), row: random.u16(0..70), modifiers: KeyModifiers::NONE })
}

fn choices() -> Vec<RunChoice> {
    let choice = |number: usize| RunChoice {
        path: format!("runs/{number}").into(),
        name: format!("llama-{number}"),
        started: format!("2026-11-14T10:22:{number:02}.000Z"),
        planned_steps: (number != 7).then_some(50),
        state: None,
    };
    (0..9).rev().map(choice).collect()
}

/// The run that is shown is under the cursor, and the one above it is newer.
#[test]
fn another_run_is_chosen_from_a_list() {
    let mut app = App::new(View::Overview, Theme::new(ThemeName::Plain), false);
    let press = |app: &mut App, key| {
        app.handle(Event::Key(KeyEvent::from(key)));
        app.take_requests()
    };
    assert_eq!(press(&mut app, KeyCode::Char('r')), [Request::Runs]);
    app.handle(Event::Runs(choices()));
    let list = drawn(&mut app, Nanos(0), 80, 24);
    assert!(list.contains("2026-11-14 10:22:08                 llama-8  of 50 steps  8"), "{list}");
    // What became of them is known a moment later.
    app.handle(Event::RunState("runs/8".into(), State::Complete));
    app.handle(Event::RunState("runs/7".into(), State::Interrupted));
    let list = drawn(&mut app, Nanos(0), 80, 24);
    assert!(list.contains("2026-11-14 10:22:08  ✔ complete     llama-8  50 steps  8"), "{list}");
    assert!(list.contains("2026-11-14 10:22:07  ✖ interrupted  llama-7  7"), "{list}");
    assert!(press(&mut app, KeyCode::Down).is_empty());
    assert_eq!(press(&mut app, KeyCode::Enter), [Request::Open("runs/7".into())]);
    assert!(!drawn(&mut app, Nanos(0), 80, 24).contains("llama-8"));
    app.handle(Event::NewerRun);
    assert!(drawn(&mut app, Nanos(0), 80, 24).contains("a newer run has started"));
}

#[test]
fn whatever_is_pressed_there_is_something_to_see() {
    let mut random = fastrand::Rng::with_seed(9);
    let mut app = App::new(View::Overview, Theme::new(ThemeName::Dark), true);
    let mut case = &all()[0];
    for event in 0..EVENTS {
        let next = match random.u8(0..20) {
            0 => {
                case = random.choice(all()).unwrap();
                Event::Data(case.snapshot.clone())
            }
            1 => Event::Resized,
            2..5 => any_mouse(&mut random),
            _ => any_key(&mut random),
        };
        app.handle(next);
        // Somebody who leaves comes back.
        if app.exit.take().is_some() {
            app = App::new(View::Memory, Theme::new(ThemeName::Plain), random.bool());
        }
        // What is asked of others is answered, or not.
        for request in app.take_requests() {
            match request {
                Request::Step(request) if random.bool() => {
                    let analysis = random.choice(all()).unwrap().snapshot.analysis.clone();
                    app.handle(Event::Step(request.step, analysis.ok_or_else(|| "it is gone".into())));
                }
                Request::Export(_) if random.bool() => app.handle(Event::Exported(Ok("written".into()))),
                Request::Runs => app.handle(Event::Runs(choices())),
                Request::Open(run) => assert!(choices().iter().any(|choice| choice.path == run)),
                Request::Step(_) | Request::Export(_) => {}
            }
        }
        if event % 20 == 0 {
            let (width, height) = (random.u16(1..210), random.u16(1..70));
            if random.bool() {
                case.answer(&mut app, Nanos(0), width, height);
            }
            let text = drawn(&mut app, Nanos(0), width, height);
            assert_eq!(text.lines().count(), usize::from(height));
        }
    }
}

/// The first one asks, and the second one takes the answer that loses nothing.
#[test]
fn control_c_twice_leaves_the_job_running() {
    let control_c = || Event::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
    let mut app = App::new(View::Overview, Theme::new(ThemeName::Plain), true);
    app.handle(control_c());
    assert_eq!(app.exit, None);
    assert!(drawn(&mut app, Nanos(0), 80, 24).contains("l, ctrl-c  quit and leave it running"));
    app.handle(control_c());
    assert_eq!(app.exit, Some(DashboardExit::JobGoesOn));
}
