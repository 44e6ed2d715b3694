//! What the processes of a job do that makes no more steps.

use std::time::Duration;

use stepscope_analyzer::JobWatch;
use stepscope_plan::text;
use stepscope_traces::{IncidentKind, Rank};

use super::explain::Happened;

/// What is known of a job in which no step ends any more.
pub(super) fn hang(job: &JobWatch, silence: Duration) -> Happened {
    let steps = job.last_steps();
    let newest = steps.iter().filter_map(|last| last.step).max();
    let behind: Vec<Rank> = steps.iter().filter(|last| last.step < newest).map(|last| last.rank).collect();
    let stopped: Vec<Rank> = job
        .run()
        .ranks
        .iter()
        .filter(|rank| rank.info.process_state() == Some('T'))
        .map(|rank| rank.info.rank)
        .collect();
    let named = |ranks: &[Rank]| text::named_ranks(&ranks.iter().map(|rank| rank.0).collect::<Vec<_>>());
    let mut evidence = Vec::new();
    if let Some(newest) = newest {
        evidence.push(format!("the last step that ended is step {newest}"));
    }
    if !behind.is_empty() {
        evidence.push(format!("{} ended fewer steps than the others", named(&behind)));
    }
    let long = text::duration(silence.as_nanos() as i64);
    let (ranks, why) = match (&stopped, behind) {
        (stopped, _) if !stopped.is_empty() => {
            let are = if stopped.len() == 1 { "is" } else { "are" };
            (stopped.clone(), format!(": {} {are} stopped (SIGSTOP)", named(stopped)))
        }
        (_, behind) => (behind, String::new()),
    };
    Happened {
        ranks,
        evidence,
        took: silence,
        ..Happened::new(IncidentKind::Hang, format!("no step has ended for {long}{why}"))
    }
}
