//! Where steps go, how fast they are, and what stands out.

mod figures;
mod findings;
mod side;
mod steps;

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

/// From this width on there is room for something beside the steps.
const WIDE: u16 = 110;
/// How wide that is.
const SIDE: u16 = 40;

/// Where steps go, and what stands out.
#[derive(Default)]
pub(crate) struct Overview {
    steps: steps::Steps,
    findings: findings::Findings,
}

impl ViewBody for Overview {
    fn draw(&mut self, scene: &Scene<'_>, area: Rect, buffer: &mut Buffer) {
        let rest = below(area, figures::draw(scene, area, buffer) + 1);
        // Findings have what they need, as far as the steps keep half of the room.
        let wanted = self.findings.height(scene, rest.width);
        let upper = rest.height.saturating_sub(wanted.min(rest.height / 2));
        let upper_area = Rect { height: upper, ..rest };
        let chart = if rest.width >= WIDE {
            side::draw(scene, right_of(upper_area, rest.width - SIDE), buffer);
            Rect { width: rest.width - SIDE - 2, ..upper_area }
        } else {
            upper_area
        };
        self.steps.draw(scene, chart, buffer);
        self.findings.draw(scene, below(rest, upper), buffer);
    }

    fn act(&mut self, action: Action, _scene: &Scene<'_>) {
        match action {
            Action::ZoomIn => self.steps.zoom_in(),
            Action::ZoomOut => self.steps.zoom_out(),
            Action::Up => self.findings.scroll_up(),
            Action::Down => self.findings.scroll_down(),
            _ => {}
        }
    }

    fn click(&mut self, event: &MouseEvent, _scene: &Scene<'_>) -> Option<StepOrRank> {
        self.steps.step_at(event.column, event.row).map(StepOrRank::Step)
    }
}
