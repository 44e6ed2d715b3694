use std::collections::BTreeSet;

use ratatui::{
    buffer::{Buffer, Cell},
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
    layout::Rect,
    style::{Color, Modifier},
};
use stepscope_traces::Nanos;

use super::cases::{all, frame, named};
use crate::{
    app::App,
    event::Event,
    theme::{Theme, ThemeName, is_block},
    view::View,
    widgets::cut,
};

/// Sizes of terminals that people have.
const SIZES: [(u16, u16); 4] = [(60, 15), (80, 24), (120, 40), (200, 60)];

/// Which run is looked at, which view it is, and how to leave it: that is never left out.
#[test]
fn every_frame_says_where_one_is() {
    for case in all() {
        for view in View::ALL {
            for (width, height) in SIZES {
                let frame = frame(*view, ThemeName::Dark, case, width, height);
                let lines: Vec<&str> = frame.lines().collect();
                let name = &case.snapshot.run.as_ref().unwrap().name;
                assert!(lines[0].contains(name.as_str()), "{frame}");
                let is_titled = |line: &&str| line.contains(view.title()) || line.contains(view.short_title());
                assert!(lines[2..4].iter().any(is_titled), "{frame}");
                assert!(lines[lines.len() - 1].ends_with("? help  q quit"), "{frame}");
            }
        }
    }
}

/// Words that do not fit are left out or shortened, and never cut.
#[test]
fn no_word_is_cut() {
    let mut wrong = BTreeSet::new();
    for case in all() {
        for view in View::ALL {
            for (width, height) in &SIZES[1..] {
                cut::take();
                frame(*view, ThemeName::Dark, case, *width, *height);
                let at = format!("{} of {} at {width}x{height}", view.name(), case.name);
                wrong.extend(cut::take().into_iter().map(|cut| format!("{at}: {cut}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Names of kernels lose their middle where they are too long; nothing else does. What happened in an incident may end early in
/// the list, since all of it stands below.
#[test]
fn only_names_are_shortened() {
    let names = [View::Kernels, View::Timeline, View::Incidents];
    for case in all() {
        for view in View::ALL.iter().filter(|view| !names.contains(view)) {
            for (width, height) in &SIZES[1..] {
                let frame = frame(*view, ThemeName::Plain, case, *width, *height);
                // Findings name kernels, too.
                let mut words = frame.split_whitespace();
                assert!(words.all(|word| !word.contains('…') || word.contains('_')), "{frame}");
            }
        }
        for (width, height) in &SIZES[1..] {
            let frame = frame(View::Incidents, ThemeName::Plain, case, *width, *height);
            let account: String = frame.lines().skip_while(|line| !line.starts_with('─')).collect();
            assert!(!account.contains('…'), "{frame}");
            let shortened = frame.lines().filter(|line| line.contains('…'));
            assert!(
                shortened.into_iter().all(|line| line.find('…') == line.rfind('…') && line.ends_with('…')),
                "{frame}"
            );
        }
    }
}

fn colored(app: &mut App) -> Buffer {
    let area = Rect::new(0, 0, 120, 40);
    let mut buffer = Buffer::empty(area);
    app.draw(Nanos(0), area, &mut buffer);
    buffer
}

/// The cells that a key changes the look of, below the titles.
fn changed(view: View, theme: ThemeName, key: char) -> Vec<Cell> {
    let case = named("one_rank");
    let mut app = App::new(view, Theme::new(theme), false);
    app.handle(Event::Data(case.snapshot.clone()));
    case.answer(&mut app, Nanos(0), 120, 40);
    let before = colored(&mut app);
    app.handle(Event::Key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE)));
    case.answer(&mut app, Nanos(0), 120, 40);
    let after = colored(&mut app);
    // What is selected is below the titles, right of the names, and above what is said of it.
    let places = Rect::new(20, 5, 100, 25).positions().filter(|place| before[*place].style() != after[*place].style());
    places.map(|place| after[place].clone()).collect()
}

/// What is selected is there on a dark terminal and on a light one, with the 16 colors that each has.
#[test]
fn what_is_selected_is_seen() {
    for (theme, ink) in [(ThemeName::Dark, Color::White), (ThemeName::Light, Color::Black)] {
        let spans = changed(View::Timeline, theme, 'n');
        assert!(!spans.is_empty());
        for cell in spans {
            assert_eq!(if is_block(cell.symbol()) { cell.fg } else { cell.bg }, ink, "{cell:?}");
        }
        let lines = changed(View::Kernels, theme, 'j');
        let is_reversed = |cell: &&Cell| cell.modifier.contains(Modifier::REVERSED);
        assert!(lines.iter().filter(is_reversed).count() > 50, "a line is reversed");
        assert!(lines.iter().filter(is_reversed).all(|cell| !is_block(cell.symbol())), "and its bar is none of it");
    }
}

/// Whatever the size, all is drawn and nothing beside it.
#[test]
fn every_size() {
    for case in all() {
        for view in View::ALL {
            for theme in ThemeName::ALL {
                for (width, height) in [(1, 1), (2, 40), (200, 2), (10, 5), (39, 11), (60, 15), (400, 120)] {
                    let text = frame(*view, theme, case, width, height);
                    assert_eq!(text.lines().count(), usize::from(height), "{}", case.name);
                }
            }
        }
    }
}
