//! The state of the dashboard, and what events make of it.

use std::sync::Arc;

use ratatui::{
    buffer::Buffer,
    crossterm::event::{KeyCode, KeyEvent, KeyEventKind, MouseButton, MouseEvent, MouseEventKind},
    layout::{Position, Rect},
    text::Line,
    widgets::{Block, BorderType, Clear, Widget},
};
use stepscope_traces::{Nanos, Rank, Step};

use crate::{
    data::{Snapshot, Stage},
    event::Event,
    filter::Filter,
    frame,
    help::{self, centered},
    keys::{self, Action},
    scene::Scene,
    session::Left,
    theme::Theme,
    views::{Choice, View, Views},
    widgets::{row, say},
};

/// The state of the dashboard.
pub(crate) struct App {
    theme: Theme,
    view: View,
    views: Views,
    mode: Mode,
    /// The newest there is, and what is shown: another one, when it is frozen.
    newest: Arc<Snapshot>,
    shown: Arc<Snapshot>,
    is_frozen: bool,
    /// The rank that every view is about.
    focus: Option<Rank>,
    /// The step that is chosen.
    chosen: Option<Step>,
    /// Whether a job goes on that began with the dashboard.
    pub(crate) has_job: bool,
    places: frame::Places,
    /// How it was left.
    pub(crate) left: Option<Left>,
}

/// What keys mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// What the view says.
    Looking,
    /// They close the help.
    Help,
    /// They say what becomes of the job.
    Leaving,
}

impl App {
    pub(crate) fn new(view: View, theme: Theme, has_job: bool) -> App {
        let nothing = Arc::new(Snapshot::at(Stage::Reading { done: 0, all: 0 }));
        App {
            theme,
            view,
            views: Views::default(),
            mode: Mode::Looking,
            newest: nothing.clone(),
            shown: nothing,
            is_frozen: false,
            focus: None,
            chosen: None,
            has_job,
            places: frame::Places { tabs: Vec::new(), body: Rect::default() },
            left: None,
        }
    }

    /// Takes in what happened.
    pub(crate) fn handle(&mut self, event: Event) {
        match event {
            Event::Key(key) => self.press(&key),
            Event::Mouse(mouse) => self.point(&mouse),
            Event::Resized => {}
            Event::Data(snapshot) => {
                self.newest = snapshot;
                if !self.is_frozen {
                    self.show_newest();
                }
            }
            Event::JobEnded(failure) => {
                self.has_job = false;
                if self.mode == Mode::Leaving {
                    self.mode = Mode::Looking;
                }
                // There is no run to look at.
                if failure.is_some() && self.newest.run.is_none() {
                    self.left = Some(Left::Alone);
                }
            }
        }
    }

    fn show_newest(&mut self) {
        self.shown = self.newest.clone();
        let ranks = self.shown.run.as_ref().map_or(&[][..], |run| &run.ranks);
        self.focus = self.focus.filter(|focus| ranks.contains(focus));
    }

    fn press(&mut self, key: &KeyEvent) {
        if key.kind == KeyEventKind::Release {
            return;
        }
        match self.mode {
            Mode::Looking => {
                if self.views.of(self.view).filter().is_some_and(|filter| filter.takes(key)) {
                    return;
                }
                if let Some(action) = keys::action(key, self.view.bindings()) {
                    self.act(action);
                }
            }
            Mode::Help => match keys::action(key, &[]) {
                Some(Action::Quit) => self.act(Action::Quit),
                _ => self.mode = Mode::Looking,
            },
            Mode::Leaving => match key.code {
                KeyCode::Char('l') => self.left = Some(Left::JobGoesOn),
                KeyCode::Char('s') => self.left = Some(Left::StopJob),
                _ => self.mode = Mode::Looking,
            },
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Quit if self.has_job => self.mode = Mode::Leaving,
            Action::Quit => self.left = Some(Left::Alone),
            Action::Help => self.mode = Mode::Help,
            // What is held back comes first.
            Action::Back if self.views.of(self.view).filter().is_some_and(Filter::clear) => {}
            Action::Back => (self.chosen, self.focus) = (None, None),
            Action::Filter => _ = self.views.of(self.view).filter().map(Filter::open),
            Action::Take => {
                let App { views, view, shown, theme, focus, chosen, .. } = self;
                let scene = Scene { snapshot: shown, theme, focus: *focus, chosen: *chosen, now: Nanos(0) };
                let choice = views.of(*view).take(&scene);
                self.choose(choice);
            }
            Action::Show(view) => self.view = view,
            Action::NextView => self.view = self.view.after(1),
            Action::PreviousView => self.view = self.view.after(View::ALL.len() - 1),
            Action::Freeze => {
                self.is_frozen = !self.is_frozen;
                if !self.is_frozen {
                    self.show_newest();
                }
            }
            Action::PreviousStep => self.choose_step(-1),
            Action::NextStep => self.choose_step(1),
            Action::FirstStep => self.chosen = self.shown.steps.first().map(|step| step.step),
            Action::LastStep => self.chosen = None,
            Action::PreviousRank => self.choose_rank(-1),
            Action::NextRank => self.choose_rank(1),
            Action::AllRanks => self.focus = None,
            own => {
                let App { views, view, shown, theme, focus, chosen, .. } = self;
                let scene = Scene { snapshot: shown, theme, focus: *focus, chosen: *chosen, now: Nanos(0) };
                views.of(*view).act(own, &scene);
            }
        }
    }

    /// Chooses the step so many places on from the chosen one; past the last, the newest.
    fn choose_step(&mut self, places: isize) {
        let steps = &self.shown.steps;
        let at = match self.chosen {
            Some(chosen) => steps.partition_point(|step| step.step < chosen),
            None => steps.len(),
        };
        let next = at.saturating_add_signed(places);
        self.chosen = steps.get(next).map(|step| step.step);
    }

    /// Focuses on the rank so many places on, from all ranks around to all ranks.
    fn choose_rank(&mut self, places: isize) {
        let ranks = self.shown.run.as_ref().map_or(&[][..], |run| &run.ranks);
        // All ranks come before the first one.
        let at = self.focus.and_then(|focus| ranks.iter().position(|rank| *rank == focus)).map_or(0, |at| at + 1);
        let next = (at as isize + places).rem_euclid(ranks.len() as isize + 1) as usize;
        self.focus = next.checked_sub(1).and_then(|index| ranks.get(index)).copied();
    }

    fn choose(&mut self, choice: Option<Choice>) {
        match choice {
            Some(Choice::Step(step)) => self.chosen = Some(step),
            Some(Choice::Rank(rank)) => self.focus = Some(rank),
            None => {}
        }
    }

    fn point(&mut self, event: &MouseEvent) {
        if self.mode != Mode::Looking {
            if matches!(event.kind, MouseEventKind::Down(_)) {
                self.mode = Mode::Looking;
            }
            return;
        }
        if matches!(event.kind, MouseEventKind::Down(_)) {
            self.views.of(self.view).filter().map(Filter::close);
        }
        let place = Position { x: event.column, y: event.row };
        match event.kind {
            MouseEventKind::ScrollUp => self.act(Action::Up),
            MouseEventKind::ScrollDown => self.act(Action::Down),
            MouseEventKind::Down(MouseButton::Left) => {
                let tab = self.places.tabs.iter().find(|(tab, _)| tab.contains(place)).map(|(_, view)| *view);
                if let Some(view) = tab {
                    self.view = view;
                } else if self.places.body.contains(place) {
                    let App { views, view, shown, theme, focus, chosen, .. } = self;
                    let scene = Scene { snapshot: shown, theme, focus: *focus, chosen: *chosen, now: Nanos(0) };
                    let choice = views.of(*view).click(event, &scene);
                    self.choose(choice);
                }
            }
            _ => {}
        }
    }

    /// Draws everything, as it is at a time of day.
    pub(crate) fn draw(&mut self, now: Nanos, area: Rect, buffer: &mut Buffer) {
        let App { views, view, shown, theme, focus, chosen, .. } = self;
        let scene = Scene { snapshot: shown, theme, focus: *focus, chosen: *chosen, now };
        self.places = frame::draw(&scene, *view, self.is_frozen, area, buffer);
        if !frame::draw_message(&scene, self.places.body, buffer) {
            views.of(*view).draw(&scene, self.places.body, buffer);
        }
        match self.mode {
            Mode::Looking => {}
            Mode::Help => help::draw(self.view, &self.theme, area, buffer),
            Mode::Leaving => draw_leaving(&self.theme, area, buffer),
        }
    }
}

/// Asks what becomes of the job.
fn draw_leaving(theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let lines = [
        Line::styled(" The training goes on.", theme.strong()),
        Line::raw(" l       leave it running, and look again with `stepscope live`"),
        Line::raw(" s       stop it; what is recorded stays"),
        Line::raw(" other   stay here"),
    ];
    let width = lines.iter().map(Line::width).max().unwrap_or(0) as u16 + 3;
    let place = centered(area, width, lines.len() as u16 + 2);
    Clear.render(place, buffer);
    let block = Block::bordered().border_type(BorderType::Rounded).title(" leave ").border_style(theme.warning());
    let inner = block.inner(place);
    block.render(place, buffer);
    for (index, line) in lines.into_iter().enumerate() {
        say(buffer, row(inner, index as u16), line);
    }
}
