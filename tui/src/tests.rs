//! The whole dashboard on a screen that is no terminal.

/// Runs to look at.
mod cases;

/// Memory by who asked for it.
mod callers;

/// Filters, orders, and a rank that every view is about.
mod choosing;

/// Kernels by who launched them.
mod groups;

/// Steps that are looked at again, and what is written of them.
mod history;

/// What is looked at closely.
mod close_looks;

/// Anything that anybody presses.
mod keys;

/// What each view looks like: a frame for each run in which it differs.
mod views;

/// What holds for every view of every run, at any size.
mod layout;
