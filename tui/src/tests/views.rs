use super::cases::{Case, all, frame, look_at, read, sample};
use crate::{theme::ThemeName, view::View};

#[test]
fn overview() {
    look_at(View::Overview);
}

#[test]
fn memory() {
    look_at(View::Memory);
}

#[test]
fn timeline() {
    look_at(View::Timeline);
}

#[test]
fn communication() {
    look_at(View::Communication);
}

#[test]
fn pipeline() {
    look_at(View::Pipeline);
}

#[test]
fn kernels() {
    look_at(View::Kernels);
}

#[test]
fn devices() {
    look_at(View::Devices);
}

#[test]
fn ranks() {
    look_at(View::Ranks);
}

/// Collectives between stages have waiting, and nobody to blame for it.
#[test]
fn why_nobody_waits_in_a_pipeline() {
    let case = Case::of("pipeline", read(&sample("pp2-1f1b")));
    let text = frame(View::Communication, ThemeName::Plain, &case, 120, 40);
    assert!(text.contains("all collectives are between stages") && !text.contains("not known"), "{text}");
}

/// Whatever the size, all is drawn and nothing beside it.
#[test]
fn every_size() {
    for case in all() {
        for view in View::ALL {
            for theme in ThemeName::ALL {
                for (width, height) in [(1, 1), (2, 40), (200, 2), (10, 5), (39, 11), (400, 120)] {
                    let text = frame(*view, theme, case, width, height);
                    assert_eq!(text.lines().count(), usize::from(height), "{}", case.name);
                }
            }
        }
    }
}
