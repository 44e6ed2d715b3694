use super::cases::{all, frame, look_at};
use crate::{theme::ThemeName, views::View};

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
