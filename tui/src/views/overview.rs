//! Where steps go, how fast they are, and what stands out.

mod figures;
mod findings;
mod steps;
mod trends;
mod waterfall;

use ratatui::{
    buffer::Buffer,
    crossterm::event::{KeyCode, MouseEvent},
    layout::Rect,
};

use super::{StepOrRank, ViewBody};
use crate::{
    keys::{Action, Binding},
    scene::Scene,
    widgets::{below, right_of},
};

/// Keys of its own.
pub(crate) const BINDINGS: &[Binding] = &[
    Binding {
        keys: &[KeyCode::Char('+'), KeyCode::Char('=')],
        action: Action::ZoomIn,
        short: "zoom",
        long: "wider bars",
    },
    Binding {
        keys: &[KeyCode::Char('-')],
        action: Action::ZoomOut,
        short: "zoom",
        long: "narrower bars, up to all steps",
    },
    Binding {
        keys: &[KeyCode::Up, KeyCode::Char('k')],
        action: Action::Up,
        short: "scroll",
        long: "scroll findings up",
    },
    Binding {
        keys: &[KeyCode::Down, KeyCode::Char('j')],
        action: Action::Down,
        short: "scroll",
        long: "scroll findings down",
    },
];

/// From this width on findings stand beside the figures.
const WIDE: u16 = 110;
/// From this height on there is room for how figures went below the steps, and so much of it.
const HIGH: u16 = 24;
const MOST_TRENDS: u16 = 14;

/// Where steps go, and what stands out.
#[derive(Default)]
pub(crate) struct Overview {
    steps: steps::Steps,
    findings: findings::Findings,
}

impl Overview {
    /// Figures, findings, and where steps go, below each other.
    fn draw_narrow(&mut self, scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
        let rest = below(area, figures::draw(scene, area, buffer));
        // Findings have what they need, as far as the steps keep half of the room.
        let height = self.findings.height(scene, rest.width, true).min(rest.height / 2);
        self.findings.draw(scene, Rect { height, ..rest }, true, buffer);
        self.steps.draw(scene, below(rest, height), buffer);
    }

    /// Figures, steps and how figures went on the left; findings, and what takes a step, on the right.
    fn draw_wide(&mut self, scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
        let beside = (area.width * 2 / 5).clamp(48, 90);
        let left = Rect { width: area.width - beside - 2, ..area };
        let rest = below(left, figures::draw(scene, left, buffer) + 1);
        let trends = if rest.height >= HIGH { trends::height(scene, (rest.height / 3).min(MOST_TRENDS)) } else { 0 };
        self.steps.draw(scene, Rect { height: rest.height - trends, ..rest }, buffer);
        trends::draw(scene, below(rest, rest.height - trends), buffer);
        let right = right_of(area, area.width - beside);
        let lower = waterfall::height(scene).min(right.height / 2);
        let height = self.findings.height(scene, right.width, false).min(right.height - lower);
        self.findings.draw(scene, Rect { height, ..right }, false, buffer);
        waterfall::draw(scene, below(right, height), buffer);
    }
}

impl ViewBody for Overview {
    fn draw(&mut self, scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
        if area.width < WIDE {
            self.draw_narrow(scene, area, buffer);
        } else {
            self.draw_wide(scene, area, buffer);
        }
    }

    fn act(&mut self, action: Action, _scene: &Scene<'_>) {
        match action {
            Action::ZoomIn => self.steps.zoom_in(),
            Action::ZoomOut => self.steps.zoom_out(),
            Action::Up => self.findings.scroll_by(-1),
            Action::Down => self.findings.scroll_by(1),
            _ => {}
        }
    }

    fn click(&mut self, event: &MouseEvent, _scene: &Scene<'_>) -> Option<StepOrRank> {
        self.steps.step_at(event.column, event.row).map(StepOrRank::Step)
    }
}
