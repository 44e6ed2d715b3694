use std::sync::Arc;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use stepscope_analyzer::StepRange;
use stepscope_traces::{Nanos, Step};

use super::cases::{drawn, named, read, sample};
use crate::{
    app::App,
    data::{Snapshot, Source},
    event::Event,
    readers::read_step,
    request::{ExportScope, Request, StepRequest},
    theme::{Theme, ThemeName},
    view::View,
};

fn press(app: &mut App, key: KeyCode) -> Vec<Request> {
    app.handle(Event::Key(KeyEvent::new(key, KeyModifiers::NONE)));
    app.take_requests()
}

fn opened() -> App {
    let mut app = App::new(View::Overview, Theme::new(ThemeName::Plain), false);
    app.handle(Event::Data(read(&sample("tp2")).0));
    app
}

/// The steps of the sample are 0 to 4.
#[test]
fn a_chosen_step_is_asked_for_and_its_figures_are_shown() {
    let mut app = opened();
    press(&mut app, KeyCode::Left);
    let asked = press(&mut app, KeyCode::Left);
    let [Request::Step(request)] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!((request.step, request.windows.len()), (Step(3), 2));
    let before = drawn(&mut app, Nanos(0), 120, 40);
    assert!(before.contains("reading step 3"), "{before}");
    let figures = read_step(&[sample("tp2")], request.clone()).unwrap();
    app.handle(Event::Step(Step(3), Ok(Arc::new(figures))));
    let after = drawn(&mut app, Nanos(0), 120, 40);
    assert!(after.contains("figures: step 3") && !after.contains("median"), "{after}");
    assert!(press(&mut app, KeyCode::Esc).is_empty());
    assert!(drawn(&mut app, Nanos(0), 120, 40).contains("figures: steps 1 to 4"));
}

#[test]
fn figures_that_come_too_late_are_not_shown_and_bad_news_are_told() {
    let mut app = opened();
    press(&mut app, KeyCode::Left);
    press(&mut app, KeyCode::Left);
    app.handle(Event::Step(Step(4), Err("it is gone".into())));
    let text = drawn(&mut app, Nanos(0), 120, 40);
    assert!(text.contains("reading step 3") && text.contains("cannot read step 4 again: it is gone"), "{text}");
}

#[test]
fn reading_around_a_step_is_enough() {
    let (snapshot, _) = read(&sample("tp2"));
    for step in snapshot.steps.iter().map(|step| step.step) {
        let mut app = opened();
        let mut asked = press(&mut app, KeyCode::Home);
        for _ in 0..step.0 {
            asked = press(&mut app, KeyCode::Right);
        }
        let Some(Request::Step(request)) = asked.pop() else { panic!("step {step} is not asked for") };
        let around = read_step(&[sample("tp2")], request).unwrap();
        let whole = read_step(&[sample("tp2")], StepRequest { step, windows: <_>::default() }).unwrap();
        assert_eq!(around.steps, whole.steps.into_iter().filter(|other| other.step == step).collect::<Vec<_>>());
        assert_eq!((around.window, around.counted), (whole.window, whole.counted));
        assert_eq!(around.kernels, whole.kernels);
        assert_eq!(around.collectives, whole.collectives);
    }
}

#[test]
fn what_is_seen_is_what_is_exported() {
    let mut app = opened();
    let all = ExportScope { steps: StepRange::ALL, ranks: Vec::new() };
    assert_eq!(press(&mut app, KeyCode::Char('e')), [Request::Export(all)]);
    assert!(press(&mut app, KeyCode::Char('e')).is_empty(), "one at a time");
    app.handle(Event::Exported(Ok("wrote a.pftrace".into())));
    assert!(drawn(&mut app, Nanos(0), 120, 40).contains("wrote a.pftrace"));
    let asked = [press(&mut app, KeyCode::Char(']')), press(&mut app, KeyCode::Left)].concat();
    let [Request::Step(request)] = &asked[..] else { panic!("{asked:?}") };
    let figures = read_step(&[sample("tp2")], request.clone()).unwrap();
    app.handle(Event::Step(Step(4), Ok(Arc::new(figures))));
    let steps = StepRange { from: Some(Step(4)), to: Some(Step(5)) };
    let asked = press(&mut app, KeyCode::Char('e'));
    assert_eq!(asked, [Request::Export(ExportScope { steps, ranks: vec![stepscope_traces::Rank(0)] })]);
}

/// What is held grows older, and that says nothing of the run.
#[test]
fn what_is_frozen_has_no_age() {
    let case = named("recording");
    let later = case.snapshot.newest.unwrap() + Nanos(60 * Nanos::SECOND.0);
    let mut app = App::new(View::Overview, Theme::new(ThemeName::Plain), false);
    app.handle(Event::Data(case.snapshot.clone()));
    assert!(drawn(&mut app, later, 120, 40).contains("NO NEW DATA for 60.0 s"));
    press(&mut app, KeyCode::Char(' '));
    let frozen = drawn(&mut app, later, 120, 40);
    assert!(frozen.contains("FROZEN") && !frozen.contains("NEW DATA") && !frozen.contains("newest data"), "{frozen}");
}

/// A hang is not a run that is being recorded, and it is over when there is news.
#[test]
fn the_header_says_that_nothing_goes_on() {
    let case = named("recording");
    let newest = case.snapshot.newest.unwrap();
    let top = |snapshot: Snapshot, now: Nanos| {
        let mut app = App::new(View::Overview, Theme::new(ThemeName::Plain), false);
        app.handle(Event::Data(Arc::new(snapshot)));
        drawn(&mut app, now, 120, 40).lines().next().unwrap().to_owned()
    };
    let silent = top((*case.snapshot).clone(), newest + Nanos(40 * Nanos::SECOND.0));
    assert!(silent.contains("no progress") && silent.contains("running for 40.1 s"), "{silent}");
    assert!(!silent.contains("recording"), "{silent}");
    let hung = named("interrupted").snapshot.run.as_ref().unwrap().incidents.last().unwrap().clone();
    let with_hang = |time: Nanos| {
        let mut snapshot = (*case.snapshot).clone();
        let mut hung = hung.clone();
        hung.incident.time_ns = time;
        snapshot.run.as_mut().unwrap().incidents = vec![hung];
        snapshot
    };
    let hanging = top(with_hang(newest + Nanos(1)), newest);
    assert!(hanging.contains("✖ hanging") && !hanging.contains("recording"), "{hanging}");
    assert!(top(with_hang(newest - Nanos(1)), newest).contains("● recording"));
}

#[test]
fn the_same_run_is_opened_again() {
    let run = sample("tp2");
    assert_eq!(Source::Newest { under: "runs".into() }.files(&run), std::slice::from_ref(&run));
    assert_eq!(Source::Named(vec!["a.json".into(), "b.pickle".into()]).files(&run).len(), 2);
}
