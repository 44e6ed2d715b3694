use std::collections::BTreeSet;

use super::cases::{all, frame};
use crate::{theme::ThemeName, view::View, widgets::cut};

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

/// Names of kernels lose their middle where they are too long; nothing else does.
#[test]
fn only_names_are_shortened() {
    let names = [View::Kernels, View::Timeline];
    for case in all() {
        for view in View::ALL.iter().filter(|view| !names.contains(view)) {
            for (width, height) in &SIZES[1..] {
                let frame = frame(*view, ThemeName::Plain, case, *width, *height);
                // Findings name kernels, too.
                let mut words = frame.split_whitespace();
                assert!(words.all(|word| !word.contains('…') || word.contains('_')), "{frame}");
            }
        }
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
