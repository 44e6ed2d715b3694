//! The formats of reports: text for a terminal, markdown for a pull request, HTML for a browser. Each escapes text that
//! comes from files.

pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod markdown;
pub(crate) mod table;
pub(crate) mod text;

use clap::ValueEnum;

/// Output format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people, on a terminal.
    Text,
    /// For programs.
    Json,
    /// For a pull request.
    Markdown,
    /// For a browser, with plots, in one file.
    Html,
}
