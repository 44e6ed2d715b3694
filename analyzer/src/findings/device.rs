//! Devices that do not run as fast as they could.

use stepscope_plan::text;
use stepscope_traces::Rank;

use super::{
    Check, Found,
    time::{LEAST_WIN, win},
};
use crate::figures::{Analysis, Cause, DeviceFigures, HighestClocks, Limit, Throttling};

/// Clocks that power, heat or the hardware holds down.
pub(super) struct Throttled;

impl Check for Throttled {
    const KIND: &'static str = "throttled";

    fn find(analysis: &Analysis) -> Option<Found> {
        let highest = HighestClocks::of(&analysis.devices);
        let throttling = |device: &DeviceFigures| device.throttling(&highest);
        let worst = analysis.devices.iter().filter_map(throttling).map(|throttling| throttling.limit).min()?;
        let held = analysis.devices.iter().filter_map(|device| Some((device.rank, throttling(device)?)));
        let held: Vec<(Rank, Throttling)> = held.filter(|(_, throttling)| throttling.limit == worst).collect();
        let mean = |of: fn(&Throttling) -> f64| {
            held.iter().map(|(_, throttling)| of(throttling)).sum::<f64>() / held.len().max(1) as f64
        };
        let share = mean(|throttling| throttling.held);
        let win = win(analysis, &[Cause::Clocks]);
        let is_worth_it = win.zip(analysis.step_ns()).is_some_and(|(win, step)| win as f64 >= LEAST_WIN * step as f64);
        if worst == Limit::Power && !is_worth_it {
            return None;
        }
        let ranks: Vec<Rank> = held.iter().map(|(rank, _)| *rank).collect();
        let who = match ranks.as_slice() {
            ranks if ranks.len() == analysis.devices.len() => "the devices".to_owned(),
            [rank] => format!("the device of rank {rank}"),
            ranks => format!("the devices of {} ranks", ranks.len()),
        };
        let (why, advice) = match worst {
            Limit::Hardware => ("the hardware cuts", "look at power supply and cooling: the hardware protects itself"),
            Limit::Heat => ("heat lowers", "look at the cooling of the host, and at what runs beside it"),
            Limit::Power => (
                "power limits",
                "compare the power limits of the devices (`nvidia-smi -q -d POWER`), and what else takes power there",
            ),
        };
        let slower = match mean(|throttling| throttling.clock) {
            clock if clock < 1.0 => format!(", {} below the highest", text::rough_percent(1.0 - clock)),
            _ => String::new(),
        };
        Some(Found {
            share,
            summary: format!("{why} the clocks of {who}"),
            evidence: format!("in {} of the samples of the steps that count{slower}", text::rough_percent(share)),
            advice: advice.into(),
            ranks,
            lost_ns: win,
            causes: vec![Cause::Clocks],
            ..Found::default()
        })
    }
}
