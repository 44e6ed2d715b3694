//! Devices that do not run as fast as they could.

use stepscope_plan::text;
use stepscope_traces::Rank;

use super::{
    Check, Found,
    time::{LEAST_WIN, step_ns, win},
};
use crate::figures::{Analysis, Cause, DeviceFigures, LEAST_HELD, Limit};

/// Clocks that power, heat or the hardware holds down.
pub(super) struct Throttled;

impl Check for Throttled {
    const KIND: &'static str = "throttled";

    fn find(analysis: &Analysis) -> Option<Found> {
        let held = |device: &DeviceFigures| device.held_back().filter(|(_, share)| *share >= LEAST_HELD);
        let worst = analysis.devices.iter().filter_map(held).map(|(limit, _)| limit).min()?;
        let devices = analysis.devices.iter().filter(|device| held(device).is_some_and(|(limit, _)| limit == worst));
        let devices: Vec<&DeviceFigures> = devices.collect();
        let mean = |of: &dyn Fn(&DeviceFigures) -> Option<f64>| {
            let values: Vec<f64> = devices.iter().filter_map(|device| of(device)).collect();
            values.iter().sum::<f64>() / values.len().max(1) as f64
        };
        let share = mean(&|device| Some(device.held_back()?.1));
        let win = win(analysis, &[Cause::Clocks]);
        // At full load, devices use all the power they may: that alone is nothing to tell.
        let is_worth_it = win.zip(step_ns(analysis)).is_some_and(|(win, step)| win as f64 >= LEAST_WIN * step as f64);
        if worst == Limit::Power && !is_worth_it {
            return None;
        }
        let ranks: Vec<Rank> = devices.iter().map(|device| device.rank).collect();
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
                "compare the power limit with the board's (`nvidia-smi -q -d POWER`); at the board's own limit nothing \
                 is wrong",
            ),
        };
        let clock = mean(&|device| device.clock_share(&analysis.devices));
        let slower = match clock {
            clock if clock > 0.0 && clock < 1.0 => format!(", {} below the highest", text::rough_percent(1.0 - clock)),
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
