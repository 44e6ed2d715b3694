//! The whole dashboard on a screen that is no terminal.

/// Runs to look at.
mod cases;

/// Filters, orders, and a rank that every view is about.
mod choosing;

/// Anything that anybody presses.
mod keys;

/// What each view looks like: one line a view.
mod views;
