//! What is said while training goes on, and at its end.

use std::{
    io::Write,
    path::Path,
    sync::Mutex,
    time::{Duration, Instant},
};

use anstyle::Style;
use stepscope_plan::text;
use stepscope_trainer::{StepReport, TrainConfig};

use crate::terminal;

/// What is said while training goes on.
pub(super) struct Progress {
    steps: u64,
    began: Instant,
    totals: Mutex<StepTotals>,
}

#[derive(Default)]
struct StepTotals {
    losses: Option<(f64, f64)>,
    tokens: u64,
    time: Duration,
    steps: u64,
}

impl Progress {
    pub(super) fn new(config: &TrainConfig) -> Progress {
        Progress { steps: config.steps, began: Instant::now(), totals: Mutex::default() }
    }

    pub(super) fn show(&self, step: &StepReport) {
        let StepReport { step: number, loss, gradient_norm, tokens, duration, noise_scale, evaluation_loss } = *step;
        let rate = (tokens as f64 / duration.as_secs_f64()) as u64;
        let width = self.steps.to_string().len();
        let mut line = format!(
            "step {:>width$}/{}  loss {}  grad norm {gradient_norm:.3}  {:>9} tokens/s  {:>8}",
            number + 1,
            self.steps,
            text::training_loss(loss),
            text::count(rate),
            text::duration(duration.as_nanos() as i64),
        );
        if let Some(scale) = noise_scale {
            line += &format!("  noise {} tokens", text::count(scale as u64));
        }
        if let Some(loss) = evaluation_loss {
            line += &format!("  evaluated {}", text::training_loss(loss));
        }
        // A closed stderr leaves nobody to tell.
        drop(writeln!(anstream::stderr(), "{line}"));
        let mut totals = self.totals.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let first = totals.losses.map_or(loss, |(first, _)| first);
        totals.losses = Some((first, loss));
        totals.tokens += tokens;
        totals.time += duration;
        totals.steps += 1;
    }

    pub(super) fn summary(&self, config: &TrainConfig, run: Option<&Path>) -> String {
        let totals = self.totals.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let bold = Style::new().bold();
        let Some((first, last)) = totals.losses else { return String::new() };
        let took = text::duration(self.began.elapsed().as_nanos() as i64);
        let label = |word: &str| format!("{bold}{word:<8}{bold:#}  ");
        let mut text = format!(
            "{}{} for {} in {took}: loss {first:.3} → {last:.3}, {} tokens/s\n",
            label("trained"),
            config.model.name,
            text::counted(totals.steps, "step"),
            text::count((totals.tokens as f64 / totals.time.as_secs_f64()) as u64),
        );
        // The last multiple, if any step of this run was one.
        if let Some(save) = &config.save
            && config.steps % save.steps < totals.steps
        {
            let last = config.steps - config.steps % save.steps;
            text += &format!("{}{}\n", label("saved"), save.directory.join(format!("step-{last:06}")).display());
        }
        match run {
            Some(run) => {
                let (recorded, next, program) = (label("recorded"), label("next"), terminal::program());
                let run = terminal::command_line(&[run.display().to_string()]);
                text + &format!("{recorded}{run}\n{next}{program} analyze {run}\n")
            }
            None => text + "not recorded (--no-record)\n",
        }
    }
}
