//! What somebody types to see only what has it in its name: any view with a list can have one.

use ratatui::{
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
    text::Span,
};

use crate::theme::Theme;

/// How long it can be.
const MOST: usize = 60;

/// What is typed.
#[derive(Default)]
pub(crate) struct Filter {
    text: String,
    is_typed: bool,
}

impl Filter {
    /// Takes what is typed from now on.
    pub(crate) fn open(&mut self) {
        self.is_typed = true;
    }

    /// Keeps what is typed.
    pub(crate) fn close(&mut self) {
        self.is_typed = false;
    }

    /// Lets everything through again; says whether it had held anything back.
    pub(crate) fn clear(&mut self) -> bool {
        self.close();
        !std::mem::take(&mut self.text).is_empty()
    }

    /// Takes a key, if keys are typed now; one that is held with control is none that is typed.
    pub(crate) fn takes(&mut self, key: &KeyEvent) -> bool {
        if !self.is_typed || key.modifiers.contains(KeyModifiers::CONTROL) {
            return false;
        }
        match key.code {
            KeyCode::Char(letter) if self.text.chars().count() < MOST => self.text.push(letter),
            KeyCode::Backspace => _ = self.text.pop(),
            KeyCode::Enter => self.close(),
            KeyCode::Esc => _ = self.clear(),
            // What moves in a list moves while it gets shorter.
            KeyCode::Up | KeyCode::Down | KeyCode::PageUp | KeyCode::PageDown => return false,
            _ => {}
        }
        true
    }

    /// Whether it lets everything through.
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Whether something is let through: what has all words of it, in small letters or large.
    pub(crate) fn lets_through(&self, names: &[&str]) -> bool {
        let has = |word: &str| names.iter().any(|name| name.to_lowercase().contains(word));
        self.text.to_lowercase().split_whitespace().all(has)
    }

    /// It, with what to press; nothing where there is none.
    pub(crate) fn spans(&self, theme: &Theme) -> Vec<Span<'static>> {
        match (self.is_typed, self.text.is_empty()) {
            (true, _) => vec![
                Span::styled(format!("  / {}▏", self.text), theme.warning()),
                Span::styled(" enter keep, esc clear", theme.quiet()),
            ],
            (false, false) => {
                vec![
                    Span::styled(format!("  / {}", self.text), theme.warning()),
                    Span::styled(" esc clear", theme.quiet()),
                ]
            }
            (false, true) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(filter: &mut Filter, keys: &str) {
        for letter in keys.chars() {
            assert!(filter.takes(&KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE)));
        }
    }

    #[test]
    fn keys_are_typed_until_enter() {
        let mut filter = Filter::default();
        let enter = KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE);
        assert!(!filter.takes(&enter), "nothing is typed yet");
        filter.open();
        typed(&mut filter, "gemmx");
        assert!(filter.takes(&KeyEvent::new(KeyCode::Backspace, KeyModifiers::NONE)));
        assert!(!filter.takes(&KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), "control-c leaves");
        assert!(filter.takes(&enter));
        assert!(!filter.takes(&enter));
        assert!(filter.lets_through(&["a GEMM kernel"]));
        assert!(!filter.lets_through(&["gem"]));
        assert!(filter.clear());
        assert!(filter.lets_through(&["gem"]) && !filter.clear());
    }

    #[test]
    fn every_word_is_looked_for_in_every_name() {
        let mut filter = Filter::default();
        filter.open();
        typed(&mut filter, "NVJET mat");
        assert!(filter.lets_through(&["nvjet_sm90", "matmul"]));
        assert!(!filter.lets_through(&["nvjet_sm90", "attention"]));
        typed(&mut filter, &"x".repeat(1000));
        assert_eq!(filter.text.chars().count(), MOST);
    }
}
