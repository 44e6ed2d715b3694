//! Assumptions, as recorded runs show them.
//!
//! Each is the median over the runs that show it; of usable memory, the least. What no run shows stays assumed. The spread
//! of predictions is how far an efficiency of a run is from the median, where two runs or more show it.

use serde::Serialize;

use crate::assumptions::Assumptions;

/// Fewer runs than there will be differ less than all do.
const LEAST_SPREAD: f64 = 0.02;

/// What one recorded run shows of what a prediction takes for granted. What it does not show is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MeasuredRates {
    /// The share of the peak that matrix products reach.
    pub compute_efficiency: Option<f64>,
    /// The share of the peak that flash attention reaches, as if its heads were of 128.
    pub attention_efficiency: Option<f64>,
    /// The share of the memory's bandwidth that all other kernels reach.
    pub memory_efficiency: Option<f64>,
    /// Seconds between kernels, where the device does not wait for launches.
    pub kernel_gap: Option<f64>,
    /// Seconds from one launch to the next, where it does.
    pub launch: Option<f64>,
    /// The share of a device's memory that is left for what is planned.
    pub usable_memory: Option<f64>,
    /// Bytes a second between the devices of a node.
    pub link_bandwidth: Option<f64>,
}

/// An assumption, as runs show it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MeasuredAssumption {
    /// Which one.
    pub name: &'static str,
    /// What is taken.
    pub value: f64,
    /// The least of all runs.
    pub low: f64,
    /// The most of all runs.
    pub high: f64,
    /// How many runs show it.
    pub runs: usize,
}

/// What some recorded runs show together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calibration {
    measured: Vec<(MeasuredAssumption, Target)>,
}

/// Which assumption something is.
type Target = fn(&mut Assumptions) -> &mut f64;

impl Calibration {
    /// What these runs show.
    pub fn of(runs: &[MeasuredRates]) -> Calibration {
        let over = |name, of: fn(&MeasuredRates) -> Option<f64>, target: Target| {
            let mut shown: Vec<f64> = runs.iter().filter_map(of).collect();
            shown.sort_by(f64::total_cmp);
            let (low, high) = (*shown.first()?, *shown.last()?);
            let value = (shown[(shown.len() - 1) / 2] + shown[shown.len() / 2]) / 2.0;
            Some((MeasuredAssumption { name, value, low, high, runs: shown.len() }, target))
        };
        let efficiencies = [
            over("compute_efficiency", |run| run.compute_efficiency, |assumed| &mut assumed.compute_efficiency),
            over("attention_efficiency", |run| run.attention_efficiency, |assumed| &mut assumed.attention_efficiency),
            over("memory_efficiency", |run| run.memory_efficiency, |assumed| &mut assumed.memory_efficiency),
        ];
        let mut measured: Vec<(MeasuredAssumption, Target)> = efficiencies.into_iter().flatten().collect();
        let several = measured.iter().map(|(shown, _)| shown).filter(|shown| shown.runs > 1);
        let differences = several.map(|shown| (shown.high / shown.value).max(shown.value / shown.low) - 1.0);
        let widest = differences.reduce(f64::max);
        let runs = measured.iter().map(|(shown, _)| shown.runs).max().unwrap_or(0);
        measured.extend(widest.map(|widest| {
            let value = widest.clamp(LEAST_SPREAD, 1.0);
            let spread = MeasuredAssumption { name: "spread", value, low: value, high: value, runs };
            (spread, (|assumed| &mut assumed.spread) as Target)
        }));
        let others = [
            over("kernel_gap", |run| run.kernel_gap, |assumed| &mut assumed.kernel_gap),
            over("launch", |run| run.launch, |assumed| &mut assumed.launch),
            over("link_bandwidth", |run| run.link_bandwidth, |assumed| &mut assumed.link_bandwidth),
        ];
        let memory = over("usable_memory", |run| run.usable_memory, |assumed| &mut assumed.usable_memory);
        // What does not fit into the fullest does not fit.
        let memory = memory.map(|(shown, target)| (MeasuredAssumption { value: shown.low, ..shown }, target));
        measured.extend(others.into_iter().flatten().chain(memory));
        Calibration { measured }
    }

    /// What was measured; everything else is assumed.
    pub fn measured(&self) -> impl Iterator<Item = &MeasuredAssumption> {
        self.measured.iter().map(|(measured, _)| measured)
    }

    /// Assumptions with all that was measured.
    pub fn apply(&self, assumptions: Assumptions) -> Assumptions {
        let mut calibrated = assumptions;
        for (measured, target) in &self.measured {
            *target(&mut calibrated) = measured.value;
        }
        calibrated
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;

    #[test]
    fn the_median_is_taken_and_the_least_memory() {
        let run = |efficiency, memory| MeasuredRates {
            compute_efficiency: Some(efficiency),
            usable_memory: Some(memory),
            ..MeasuredRates::default()
        };
        let calibration = Calibration::of(&[run(0.7, 0.97), run(0.5, 0.99), run(0.6, 0.98)]);
        let assumed = Assumptions::of(Device::named("h200").unwrap());
        let calibrated = calibration.apply(assumed);
        assert_eq!((calibrated.compute_efficiency, calibrated.usable_memory), (0.6, 0.97));
        // From 0.5 to 0.6 is a fifth.
        assert!((calibrated.spread - 0.2).abs() < 1e-12, "{}", calibrated.spread);
        let unchanged = Assumptions { compute_efficiency: 0.75, usable_memory: 0.92, spread: 0.1, ..calibrated };
        assert_eq!(unchanged, assumed, "nothing else was measured");
        let efficiency = *calibration.measured().next().unwrap();
        let expected = MeasuredAssumption { name: "compute_efficiency", value: 0.6, low: 0.5, high: 0.7, runs: 3 };
        assert_eq!(efficiency, expected);
        let names: Vec<&str> = calibration.measured().map(|measured| measured.name).collect();
        assert_eq!(names, ["compute_efficiency", "spread", "usable_memory"]);
    }

    #[test]
    fn one_run_says_nothing_of_the_spread() {
        let run = MeasuredRates { memory_efficiency: Some(0.7), ..MeasuredRates::default() };
        let assumed = Assumptions::of(Device::named("h200").unwrap());
        assert_eq!(Calibration::of(&[run]).apply(assumed), Assumptions { memory_efficiency: 0.7, ..assumed });
        assert_eq!(Calibration::of(&[run, run]).apply(assumed).spread, LEAST_SPREAD);
        assert_eq!(Calibration::of(&[]).apply(assumed), assumed);
    }

    #[test]
    fn of_two_runs_the_median_is_between_them() {
        let run = |gap| MeasuredRates { kernel_gap: Some(gap), ..MeasuredRates::default() };
        let calibration = Calibration::of(&[run(4e-6), run(2e-6)]);
        let gap = calibration.measured().next().unwrap();
        assert!((gap.value - 3e-6).abs() < 1e-18 && gap.runs == 2, "{gap:?}");
    }
}
