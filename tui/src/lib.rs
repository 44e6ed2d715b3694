//! The dashboard: a run in a terminal, while it goes on or after it.
//!
//! A thread of its own reads the run (`readers`) and makes snapshots (`data`); the loop (`session`) takes keys and snapshots
//! into one state (`app`), and draws what it has (`frame`, `views`). Drawing never waits for reading, and no figure is computed here: all of them are the
//! analyzer's.

mod app;
mod data;
mod event;
mod export_frame;
mod filter;
mod frame;
mod help;
mod keys;
mod notice;
pub mod palette;
mod readers;
mod request;
mod run_list;
mod scene;
mod selection;
mod session;
mod signals;
mod terminal;
mod theme;
mod time_parts;
mod unknown_waits;
mod view;
mod views;
mod widgets;

#[cfg(test)]
mod tests;

pub use app::DashboardExit;
pub use data::Source;
pub use export_frame::Size;
pub use request::ExportScope;
pub use session::{Dashboard, DashboardError, Export, Job, Options, Outside, run};
pub use theme::ThemeName;
pub use view::View;
