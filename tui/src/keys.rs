//! What keys do: one table, which the help, the line at the bottom and the loop all read.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::view::View;

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Leave the dashboard.
    Quit,
    /// Stop this process until somebody has it go on.
    Suspend,
    /// Show this help, or no longer.
    Help,
    /// Go back: close what is open, clear the selection.
    Back,
    /// Another view.
    Show(View),
    /// The next view.
    NextView,
    /// The view before.
    PreviousView,
    /// Take no more news, or take them again.
    Freeze,
    /// Write what is seen as a trace.
    Export,
    /// Choose another run.
    Runs,
    /// The step before the chosen one.
    PreviousStep,
    /// The step after the chosen one.
    NextStep,
    /// The first step.
    FirstStep,
    /// The newest step, whichever that is.
    LastStep,
    /// The rank before the one in focus.
    PreviousRank,
    /// The rank after the one in focus.
    NextRank,
    /// All ranks together.
    AllRanks,
    /// Up a line.
    Up,
    /// Down a line.
    Down,
    /// To the left, in time.
    Earlier,
    /// To the right, in time.
    Later,
    /// A screen up.
    PageUp,
    /// A screen down.
    PageDown,
    /// The thing after the selected one.
    Next,
    /// The thing before the selected one.
    Previous,
    /// What is selected, as large as it can be.
    Fit,
    /// What there was to see before anything was looked at closely.
    Follow,
    /// The first line.
    Top,
    /// The last line.
    Bottom,
    /// To the left, among cells.
    Left,
    /// To the right, among cells.
    Right,
    /// Take what is under the cursor.
    Take,
    /// The timeline of the rank under the cursor.
    RankTimeline,
    /// Show only what has something in its name.
    Filter,
    /// Nearer.
    ZoomIn,
    /// Farther.
    ZoomOut,
    /// Another order.
    Sort,
    /// Another way to put lines together.
    Group,
}

/// Keys that ask for the same.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) keys: &'static [KeyCode],
    pub(crate) action: Action,
    /// What it does, in a word for the line at the bottom, where neighbors of one word stand together; nothing where there
    /// is no need to say it there.
    pub(crate) short: &'static str,
    /// What it does, in a sentence for the help.
    pub(crate) long: &'static str,
}

const fn key(letter: char) -> KeyCode {
    KeyCode::Char(letter)
}

/// Keys that do the same in every view, after those of the view itself.
pub(crate) const EVERYWHERE: &[Binding] = &[
    Binding { keys: &[KeyCode::Tab], action: Action::NextView, short: "view", long: "next view" },
    Binding { keys: &[KeyCode::BackTab], action: Action::PreviousView, short: "", long: "previous view" },
    Binding { keys: &[key(' ')], action: Action::Freeze, short: "freeze", long: "freeze the display, or follow again" },
    Binding {
        keys: &[KeyCode::Left, key('h')],
        action: Action::PreviousStep,
        short: "step",
        long: "select the previous step",
    },
    Binding {
        keys: &[KeyCode::Right, key('l')],
        action: Action::NextStep,
        short: "step",
        long: "select the next step",
    },
    Binding { keys: &[KeyCode::Home, key('g')], action: Action::FirstStep, short: "", long: "select the first step" },
    Binding { keys: &[KeyCode::End, key('G')], action: Action::LastStep, short: "", long: "back to the newest step" },
    Binding { keys: &[key('[')], action: Action::PreviousRank, short: "rank", long: "show only the previous rank" },
    Binding { keys: &[key(']')], action: Action::NextRank, short: "rank", long: "show only the next rank" },
    Binding { keys: &[key('a')], action: Action::AllRanks, short: "", long: "show all ranks" },
    Binding {
        keys: &[key('e')],
        action: Action::Export,
        short: "export",
        long: "export the visible steps and rank for ui.perfetto.dev",
    },
    Binding { keys: &[key('r')], action: Action::Runs, short: "runs", long: "choose another run of the folder" },
    Binding { keys: &[KeyCode::Esc], action: Action::Back, short: "", long: "clear the selection" },
    Binding { keys: &[key('?')], action: Action::Help, short: "help", long: "show this help" },
    Binding { keys: &[key('q')], action: Action::Quit, short: "quit", long: "quit" },
];

/// Nearer, in a view over time; up to where, in words.
pub(crate) const fn zoom_in(long: &'static str) -> Binding {
    Binding { keys: &[KeyCode::Char('+'), KeyCode::Char('=')], action: Action::ZoomIn, short: "zoom", long }
}

/// Farther, in a view over time; up to where, in words.
pub(crate) const fn zoom_out(long: &'static str) -> Binding {
    Binding { keys: &[KeyCode::Char('-')], action: Action::ZoomOut, short: "zoom", long }
}

/// Keys of views over time: arrows go through time there, and steps have keys of their own.
pub(crate) const EARLIER: Binding =
    Binding { keys: &[KeyCode::Left, key('h')], action: Action::Earlier, short: "pan", long: "earlier" };
pub(crate) const LATER: Binding =
    Binding { keys: &[KeyCode::Right, key('l')], action: Action::Later, short: "pan", long: "later" };
pub(crate) const STEP_BEFORE: Binding =
    Binding { keys: &[key(',')], action: Action::PreviousStep, short: "step", long: "select the previous step" };
pub(crate) const STEP_AFTER: Binding =
    Binding { keys: &[key('.')], action: Action::NextStep, short: "step", long: "select the next step" };

/// The key from a rank under the cursor to what it did.
pub(crate) const RANK_TIMELINE: Binding = Binding {
    keys: &[key('t')],
    action: Action::RankTimeline,
    short: "timeline",
    long: "open the timeline of the rank under the cursor",
};

/// Keys of lists, in a word, which come before those that do the same everywhere.
macro_rules! list_keys {
    ($word:literal $(, $more:expr)* $(,)?) => {
        &[
            $($more,)*
            Binding { keys: &[KeyCode::Up, KeyCode::Char('k')], action: Action::Up, short: $word, long: "previous line" },
            Binding { keys: &[KeyCode::Down, KeyCode::Char('j')], action: Action::Down, short: $word, long: "next line" },
            Binding { keys: &[KeyCode::PageUp], action: Action::PageUp, short: "", long: "page up" },
            Binding { keys: &[KeyCode::PageDown], action: Action::PageDown, short: "", long: "page down" },
            Binding { keys: &[KeyCode::Home, KeyCode::Char('g')], action: Action::Top, short: "", long: "first line" },
            Binding { keys: &[KeyCode::End, KeyCode::Char('G')], action: Action::Bottom, short: "", long: "last line" },
        ]
    };
}
pub(crate) use list_keys;

/// What a key asks for, in a view whose own keys these are.
pub(crate) fn action(event: &KeyEvent, own: &[Binding]) -> Option<Action> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    if event.modifiers.contains(KeyModifiers::CONTROL) {
        return match event.code {
            KeyCode::Char('c') => Some(Action::Quit),
            KeyCode::Char('z') => Some(Action::Suspend),
            _ => None,
        };
    }
    if let KeyCode::Char(digit @ '1'..='9') = event.code {
        return View::numbered(digit as usize - '0' as usize).map(Action::Show);
    }
    let bindings = own.iter().chain(EVERYWHERE);
    bindings.into_iter().find(|binding| binding.keys.contains(&event.code)).map(|binding| binding.action)
}

/// What keys do in a view: its own, then those that mean the same everywhere and nothing of their own here.
pub(crate) fn all(own: &'static [Binding]) -> impl Iterator<Item = &'static Binding> {
    own.iter().chain(left_everywhere(own))
}

/// Keys that mean the same everywhere, without those that a view has taken for its own.
pub(crate) fn left_everywhere(own: &'static [Binding]) -> impl Iterator<Item = &'static Binding> {
    EVERYWHERE.iter().filter(|binding| !binding.is_taken_by(own))
}

impl Binding {
    /// Whether a view that has such keys of its own has taken all of its keys.
    fn is_taken_by(&self, own: &[Binding]) -> bool {
        self.keys.iter().all(|key| own.iter().any(|binding| binding.keys.contains(key)))
    }

    /// The key that people press, of several.
    pub(crate) fn first_name(&self) -> String {
        self.keys.first().map(name).unwrap_or_default()
    }

    /// Its keys, as people call them.
    pub(crate) fn names(&self) -> String {
        self.keys.iter().map(name).collect::<Vec<_>>().join(" ")
    }
}

fn name(key: &KeyCode) -> String {
    match key {
        KeyCode::Char(' ') => "space".into(),
        KeyCode::Char(letter) => letter.to_string(),
        KeyCode::Left => "←".into(),
        KeyCode::Right => "→".into(),
        KeyCode::Up => "↑".into(),
        KeyCode::Down => "↓".into(),
        KeyCode::BackTab => "shift-tab".into(),
        KeyCode::PageUp => "pgup".into(),
        KeyCode::PageDown => "pgdn".into(),
        other => other.to_string().to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_means_two_things_everywhere() {
        let keys: Vec<&KeyCode> = EVERYWHERE.iter().flat_map(|binding| binding.keys).collect();
        assert!((0..keys.len()).all(|index| !keys[..index].contains(&keys[index])));
    }

    #[test]
    fn control_c_leaves() {
        let event = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(action(&event, &[]), Some(Action::Quit));
        assert_eq!(action(&KeyEvent::new(KeyCode::Char('c'), KeyModifiers::NONE), &[]), None);
        assert_eq!(action(&KeyEvent::new(KeyCode::Char('z'), KeyModifiers::CONTROL), &[]), Some(Action::Suspend));
    }
}
