//! What goes wrong in a job while it runs, and why.
//!
//! A watch follows the steps of each rank and what the ranks say of themselves, and notices what is not as it should be. It
//! reads what is appended and keeps next to nothing, so that it can go on for weeks. Why a step was slow, an analysis of what
//! was recorded around it tells.

mod cause;
mod hang;
mod job_watch;
mod known;
mod rank_watch;
mod step_pace;

pub use cause::{SlowStepCause, why_slow};
pub use hang::{HangExplanation, why_hanging};
pub use job_watch::{JobWatch, Notice, WatchedStep};
pub use known::{KnownIncident, known_incidents};
