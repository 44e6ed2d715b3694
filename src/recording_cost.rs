//! What recording cost, and how much was recorded for it, in words.

use stepscope_analyzer::Recording;
use stepscope_plan::text;

/// The steps that were recorded, and at what cost. Nothing where all of them were and nothing was measured.
pub(crate) fn words(recording: &Recording) -> Option<String> {
    let Recording { budget, cost_while_on, cost_low, cost_high, duty, average_cost, steps, recorded_steps } = recording;
    let is_whole = recorded_steps == steps;
    if is_whole && cost_while_on.is_none() {
        return None;
    }
    let steps = format!("{} of {}", text::count(*recorded_steps), text::counted(*steps, "step"));
    let cost = match (cost_while_on, cost_low, cost_high, average_cost) {
        (Some(on), Some(low), Some(high), Some(average)) => format!(
            "recording costs {} on average (budget {}): {} while on ({} to {}), on for {} of the time",
            text::percent(*average),
            text::fine_percent(*budget),
            text::percent(*on),
            text::percent(*low),
            text::percent(*high),
            text::percent(*duty),
        ),
        _ => format!("what recording costs is not known yet (budget {})", text::fine_percent(*budget)),
    };
    Some(format!("{steps}; {cost}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Recording = Recording {
        budget: 0.01,
        cost_while_on: None,
        cost_low: None,
        cost_high: None,
        duty: 1.0,
        average_cost: None,
        steps: 30,
        recorded_steps: 30,
    };

    #[test]
    fn what_was_left_out_is_said_with_what_it_was_for() {
        assert_eq!(words(&SHORT), None, "all is recorded");
        let said = words(&Recording { recorded_steps: 20, ..SHORT }).unwrap();
        assert_eq!(said, "20 of 30 steps; what recording costs is not known yet (budget 1.0%)");
        let measured = Recording {
            cost_while_on: Some(0.1),
            cost_low: Some(0.08),
            cost_high: Some(0.12),
            duty: 0.11,
            average_cost: Some(0.0101),
            steps: 2400,
            recorded_steps: 243,
            ..SHORT
        };
        let said = words(&measured).unwrap();
        let cost =
            "recording costs 1.0% on average (budget 1.0%): 10.0% while on (8.0% to 12.0%), on for 11.0% of the time";
        assert_eq!(said, format!("243 of 2,400 steps; {cost}"));
    }
}
