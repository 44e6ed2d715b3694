//! The state of the dashboard, and what events make of it.

use std::{
    mem,
    path::{Path, PathBuf},
};

use ratatui::{
    buffer::Buffer,
    crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind},
    layout::{Position, Rect},
    text::Line,
    widgets::{Block, BorderType, Clear, Widget},
};
use stepscope_plan::text;
use stepscope_traces::Nanos;

use crate::{
    data::{DetailRequest, RunFacts},
    event::Event,
    filter::Filter,
    frame, help,
    keys::{self, Action},
    notice::Notice,
    request::Request,
    run_list::{self, RunList},
    selection::DashboardSelection,
    theme::Theme,
    view::View,
    views::{self, StepOrRank, ViewBody, Views},
    widgets::{centered, row, say},
};

/// The state of the dashboard.
pub(crate) struct App {
    selection: DashboardSelection,
    /// The view that somebody chose; until then, the one that suits the run.
    view: Option<View>,
    views: Views,
    mode: Mode,
    /// The runs to choose from.
    runs: RunList,
    /// What became of what was asked for.
    notice: Option<Notice>,
    /// What is asked of others.
    requests: Vec<Request>,
    /// What a view asked for last.
    requested: Option<DetailRequest>,
    /// Whether somebody asked to have this process stopped for a while.
    pub(crate) is_suspended: bool,
    /// Whether a job goes on that began with the dashboard.
    pub(crate) has_job: bool,
    places: frame::FrameAreas,
    /// How it was left.
    pub(crate) exit: Option<DashboardExit>,
}

/// How the dashboard was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DashboardExit {
    /// Nothing else goes on.
    Alone,
    /// The job is to go on.
    JobGoesOn,
    /// The job is to be stopped.
    StopJob,
}

/// What keys mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// What the view says.
    Viewing,
    /// They scroll the help, which begins with this line, or close it.
    Help { first: usize },
    /// They choose another run.
    Runs,
    /// They say what becomes of the job.
    Leaving,
}

impl App {
    pub(crate) fn new(view: impl Into<Option<View>>, theme: Theme, has_job: bool) -> App {
        App {
            selection: DashboardSelection::new(theme),
            view: view.into(),
            views: Views::default(),
            mode: Mode::Viewing,
            runs: RunList::new(Vec::new(), None),
            notice: None,
            requests: Vec::new(),
            requested: None,
            is_suspended: false,
            has_job,
            places: frame::FrameAreas::default(),
            exit: None,
        }
    }

    /// The same, before there was anything to see: for another run.
    pub(crate) fn anew(&self) -> App {
        App::new(self.view, self.selection.theme, self.has_job)
    }

    /// Where the run is, once there is one.
    pub(crate) fn run_path(&self) -> Option<&Path> {
        self.selection.run_path()
    }

    /// Shows another view.
    pub(crate) fn show(&mut self, view: View) {
        self.view = Some(view);
    }

    /// The view that is shown.
    fn view(&self) -> View {
        self.view.unwrap_or_else(|| self.selection.opening_view())
    }

    /// The state of the view that is shown.
    fn shown(&mut self) -> &mut dyn ViewBody {
        let view = self.view();
        self.views.of(view)
    }

    /// What is asked of others since this was called last.
    pub(crate) fn take_requests(&mut self) -> Vec<Request> {
        mem::take(&mut self.requests)
    }

    /// Takes in what happened.
    pub(crate) fn handle(&mut self, event: Event) {
        match event {
            Event::Key(key) => self.press(&key),
            Event::Mouse(mouse) => self.point(&mouse),
            Event::Resized => {}
            Event::Data(snapshot) => {
                if self.run_path().is_none() {
                    self.notice = snapshot.run.as_ref().and_then(passed_over).or_else(|| self.notice.take());
                }
                self.selection.take(snapshot);
            }
            Event::Step(step, figures) => {
                if let Err(why) = &figures {
                    self.notice = Some(Notice::Failed(format!("cannot read step {step} again: {why}")));
                }
                self.selection.take_step(step, figures);
            }
            Event::Runs(runs) => {
                self.runs = RunList::new(runs, self.run_path());
                self.mode = Mode::Runs;
            }
            Event::RunState(run, state) => self.runs.learn(&run, state),
            Event::NewerRun => self.notice = Some(Notice::Done("a newer run has started: r lists runs".into())),
            Event::Detail(detail) => self.selection.details.take(detail),
            Event::Exported(outcome) => self.notice = Some(outcome.map_or_else(Notice::Failed, Notice::Done)),
            Event::JobEnded(failure) => {
                self.has_job = false;
                if self.mode == Mode::Leaving {
                    self.mode = Mode::Viewing;
                }
                // There is no run to look at.
                if failure.is_some() && self.run_path().is_none() {
                    self.exit = Some(DashboardExit::Alone);
                }
            }
        }
    }

    fn press(&mut self, key: &KeyEvent) {
        if key.kind == KeyEventKind::Release {
            return;
        }
        if keys::action(key, &[]) == Some(Action::Suspend) {
            self.is_suspended = true;
            return;
        }
        self.notice = self.notice.take().filter(|notice| !notice.is_over());
        match self.mode {
            Mode::Viewing => {
                if self.shown().filter().is_some_and(|filter| filter.takes(key)) {
                    return;
                }
                if let Some(action) = keys::action(key, views::bindings(self.view())) {
                    self.act(action);
                }
            }
            Mode::Help { first } => match (key.code, keys::action(key, &[])) {
                (_, Some(Action::Quit)) => self.act(Action::Quit),
                (KeyCode::Down | KeyCode::Char('j'), _) => self.mode = Mode::Help { first: first + 1 },
                (KeyCode::Up | KeyCode::Char('k'), _) => self.mode = Mode::Help { first: first.saturating_sub(1) },
                _ => self.mode = Mode::Viewing,
            },
            Mode::Runs => self.choose_run(key),
            Mode::Leaving => match key.code {
                // Whoever presses Ctrl-C again wants to leave, and not to lose anything.
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                    self.exit = Some(DashboardExit::JobGoesOn);
                }
                KeyCode::Char('l') => self.exit = Some(DashboardExit::JobGoesOn),
                KeyCode::Char('s') => self.exit = Some(DashboardExit::StopJob),
                _ => self.mode = Mode::Viewing,
            },
        }
    }

    fn choose_run(&mut self, key: &KeyEvent) {
        match keys::action(key, run_list::BINDINGS) {
            Some(Action::Take) => {
                self.requests.extend(self.runs.chosen().map(|run| Request::Open(run.to_owned())));
                self.mode = Mode::Viewing;
            }
            Some(Action::Back | Action::Runs | Action::Quit) => self.mode = Mode::Viewing,
            Some(action) => self.runs.act(action),
            None => {}
        }
    }

    fn act(&mut self, action: Action) {
        let view = self.view();
        let selection = &mut self.selection;
        let request = match action {
            Action::PreviousStep => selection.choose_step(-1),
            Action::NextStep => selection.choose_step(1),
            Action::FirstStep => selection.choose_first_step(),
            Action::LastStep => selection.choose(None),
            // What is held back comes first.
            Action::Back if self.views.of(view).filter().is_some_and(Filter::clear) => None,
            Action::Take | Action::RankTimeline => {
                let choice = self.views.of(view).take(&selection.scene(Nanos(0)));
                if action == Action::RankTimeline {
                    self.show(View::Timeline);
                }
                self.choose(choice)
            }
            Action::Back => {
                selection.look_at(None);
                let request = selection.choose(None);
                self.turn(action);
                request
            }
            Action::Export => self.export(),
            Action::Runs => Some(Request::Runs),
            other => {
                self.turn(other);
                None
            }
        };
        self.requests.extend(request);
    }

    /// Does what asks nothing of anybody else.
    fn turn(&mut self, action: Action) {
        match action {
            Action::Quit if self.has_job => self.mode = Mode::Leaving,
            Action::Quit => self.exit = Some(DashboardExit::Alone),
            Action::Help => self.mode = Mode::Help { first: 0 },
            Action::Filter => _ = self.shown().filter().map(Filter::open),
            Action::Show(view) => self.show(view),
            Action::NextView => self.show(self.view().after(1)),
            Action::PreviousView => self.show(self.view().after(View::ALL.len() - 1)),
            Action::Freeze => self.selection.freeze(),
            Action::PreviousRank => self.selection.choose_rank(-1),
            Action::NextRank => self.selection.choose_rank(1),
            Action::AllRanks => self.selection.look_at(None),
            own => {
                let view = self.view();
                self.views.of(view).act(own, &self.selection.scene(Nanos(0)));
            }
        }
    }

    /// Asks for what is seen as a trace, unless one is being written.
    fn export(&mut self) -> Option<Request> {
        if self.notice.as_ref().is_some_and(|notice| !notice.is_over()) {
            return None;
        }
        let seen = self.selection.what_is_seen();
        self.notice = Some(match &seen {
            Some(_) => Notice::Busy(format!("exporting {} as a trace", self.selection.scene(Nanos(0)).scope())),
            None => Notice::Failed("nothing to export yet".into()),
        });
        seen
    }

    /// Chooses what was pointed at; asks for what is not there of it.
    fn choose(&mut self, choice: Option<StepOrRank>) -> Option<Request> {
        match choice? {
            StepOrRank::Step(step) => return self.selection.choose(Some(step)),
            StepOrRank::Rank(rank) => self.selection.look_at(Some(rank)),
        }
        None
    }

    fn point(&mut self, event: &MouseEvent) {
        let is_press = matches!(event.kind, MouseEventKind::Down(_));
        if is_press {
            self.notice = self.notice.take().filter(|notice| !notice.is_over());
        }
        if self.mode != Mode::Viewing {
            if is_press {
                self.mode = Mode::Viewing;
            }
            return;
        }
        if is_press {
            self.shown().filter().map(Filter::close);
        }
        match event.kind {
            MouseEventKind::ScrollUp => self.act(Action::Up),
            MouseEventKind::ScrollDown => self.act(Action::Down),
            MouseEventKind::Down(MouseButton::Left) => self.click(event),
            _ => {}
        }
    }

    fn click(&mut self, event: &MouseEvent) {
        let place = Position { x: event.column, y: event.row };
        let frame::FrameAreas { tabs, body, keys } = &self.places;
        let tab = tabs.iter().find(|(tab, _)| tab.contains(place)).map(|(_, view)| Action::Show(*view));
        let key = keys.iter().find(|(key, _)| key.contains(place)).map(|(_, action)| *action);
        if let Some(action) = tab.or(key) {
            self.act(action);
        } else if body.contains(place) {
            let view = self.view();
            let choice = self.views.of(view).click(event, &self.selection.scene(Nanos(0)));
            let request = self.choose(choice);
            self.requests.extend(request);
        }
    }

    /// What the view would like to see that it did not ask for yet, and where the run is that it is about.
    pub(crate) fn detail_request(&mut self) -> Option<(PathBuf, DetailRequest)> {
        let run = self.run_path()?.to_owned();
        let view = self.view();
        let request = self.views.of(view).detail_request(&self.selection.scene(Nanos(0)));
        let request = request.filter(|request| self.requested.as_ref() != Some(request))?;
        self.requested = Some(request.clone());
        Some((run, request))
    }

    /// Draws everything, as it is at a time of day.
    pub(crate) fn draw(&mut self, now: Nanos, area: Rect, buffer: &mut Buffer) {
        let view = self.view();
        let DashboardSelection { theme, is_frozen, .. } = &self.selection;
        let scene = self.selection.scene(now);
        self.places = frame::draw(&scene, view, *is_frozen, self.notice.as_ref(), (area, &mut *buffer));
        // What went wrong is known before anything is recorded.
        let has_incidents = scene.snapshot.run.as_ref().is_some_and(|run| !run.incidents.is_empty());
        let shows_incidents = view == View::Incidents && has_incidents;
        if shows_incidents || !frame::draw_message(&scene, self.places.body, buffer) {
            self.views.of(view).draw(&scene, self.places.body, buffer);
        }
        match &mut self.mode {
            Mode::Viewing => {}
            Mode::Help { first } => {
                *first = help::last_first(view, area).min(*first);
                help::draw((view, *first), theme, area, buffer);
            }
            Mode::Runs => self.runs.draw(theme, area, buffer),
            Mode::Leaving => draw_leaving(theme, area, buffer),
        }
    }
}

/// That files beside the run's own are not read.
fn passed_over(run: &RunFacts) -> Option<Notice> {
    let (first, others) = run.passed_over.split_first()?;
    let more = match others.len() {
        0 => String::new(),
        more => format!(" (and {} are not read, either)", text::counted(more as u64, "other file")),
    };
    Some(Notice::Failed(format!("{first}{more}")))
}

/// Asks what becomes of the job.
fn draw_leaving(theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let lines = [
        Line::styled(" The training is still running.", theme.strong()),
        Line::raw(" l, ctrl-c  quit and leave it running; reopen with `stepscope live`"),
        Line::raw(" s          stop it; the recording is kept"),
        Line::raw(" other      stay here"),
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
