//! Reads what can be read, and leaves out once what cannot.

use std::time::Duration;

use nvml_wrapper::error::NvmlError;
use stepscope_traces::{CollectorNote, NvmlNote};

/// How often a device is sampled, unless one asks for something else.
pub const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// One counter: what it is called and what it tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Reading {
    /// Its name in the run.
    pub name: &'static str,
    /// Its unit; empty for what is only counted.
    pub unit: &'static str,
    /// What it tells.
    pub meaning: &'static str,
}

/// A counter that this device or driver does not have.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LeftOut {
    /// Its name.
    pub name: &'static str,
    /// Why it is not there.
    pub reason: String,
}

impl LeftOut {
    /// All of them as a note of a rank; nothing where nothing was left out.
    pub fn note(all: &[LeftOut]) -> Option<CollectorNote> {
        LeftOut::list(all).map(|counters| CollectorNote::Nvml(NvmlNote::LeftOut { counters }))
    }

    /// All of them in one line; nothing where nothing was left out.
    pub fn line(all: &[LeftOut]) -> Option<String> {
        LeftOut::list(all).map(|list| format!("not recorded: {list}"))
    }

    /// All of them, those of one reason together.
    fn list(all: &[LeftOut]) -> Option<String> {
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for LeftOut { name, reason } in all {
            match reasons.iter_mut().find(|(known, _)| known == reason) {
                Some((_, names)) => names.push(name),
                None => reasons.push((reason, vec![name])),
            }
        }
        let each: Vec<String> =
            reasons.iter().map(|(reason, names)| format!("{} ({reason})", names.join(", "))).collect();
        (!each.is_empty()).then(|| each.join("; "))
    }
}

/// Why a reading has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// There is none at this moment.
    ForNow,
    /// There will never be one.
    ForGood(String),
}

impl From<NvmlError> for Failure {
    fn from(error: NvmlError) -> Failure {
        let reason = match error {
            NvmlError::NotSupported => "not supported".into(),
            NvmlError::NoPermission => "not permitted".into(),
            NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_) => "the driver is too old".into(),
            NvmlError::InvalidArg | NvmlError::GpuLost => error.to_string(),
            _ => return Failure::ForNow,
        };
        Failure::ForGood(reason)
    }
}

/// One value of a reading.
pub(super) type Value = Result<f64, Failure>;

/// Readings that are taken together.
pub(super) struct Gauge {
    readings: &'static [Reading],
    /// As many values as there are readings, in their order; or one reason for all of them.
    read: Box<dyn FnMut() -> Result<Vec<Value>, Failure> + Send>,
    present: Vec<bool>,
}

impl Gauge {
    pub(super) fn new(
        readings: &'static [Reading],
        read: impl FnMut() -> Result<Vec<Value>, Failure> + Send + 'static,
    ) -> Gauge {
        Gauge { readings, read: Box::new(read), present: vec![true; readings.len()] }
    }
}

/// All readings of a device.
pub(super) struct Gauges {
    gauges: Vec<Gauge>,
    left_out: Vec<LeftOut>,
}

impl Gauges {
    pub(super) fn new(gauges: Vec<Gauge>) -> Gauges {
        Gauges { gauges, left_out: Vec::new() }
    }

    /// Reads everything that is left.
    pub(super) fn read(&mut self, mut take: impl FnMut(&'static Reading, f64)) {
        for gauge in &mut self.gauges {
            let values = (gauge.read)().unwrap_or_else(|failure| vec![Err(failure); gauge.readings.len()]);
            for ((reading, present), value) in gauge.readings.iter().zip(&mut gauge.present).zip(values) {
                match value {
                    Ok(value) if *present && value.is_finite() => take(reading, value),
                    Err(Failure::ForGood(reason)) if *present => {
                        *present = false;
                        self.left_out.push(LeftOut { name: reading.name, reason });
                    }
                    _ => {}
                }
            }
        }
        self.gauges.retain(|gauge| gauge.present.contains(&true));
    }

    /// Whether nothing is left to be read.
    pub(super) fn is_empty(&self) -> bool {
        self.gauges.is_empty()
    }

    /// What is still read.
    pub(super) fn present(&self) -> Vec<Reading> {
        let all = self.gauges.iter().flat_map(|gauge| gauge.readings.iter().zip(&gauge.present));
        all.filter(|(_, present)| **present).map(|(reading, _)| *reading).collect()
    }

    /// What has been left out so far, and is not read in another way.
    pub(super) fn left_out(&self) -> Vec<LeftOut> {
        let present = self.present();
        let is_read = |left_out: &LeftOut| present.iter().any(|reading| reading.name == left_out.name);
        self.left_out.iter().filter(|left_out| !is_read(left_out)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use super::*;

    const A: Reading = Reading { name: "a", unit: "", meaning: "" };
    const B: Reading = Reading { name: "b", unit: "", meaning: "" };

    fn taken(gauges: &mut Gauges) -> Vec<(&'static str, f64)> {
        let mut taken = Vec::new();
        gauges.read(|reading, value| taken.push((reading.name, value)));
        taken
    }

    #[test]
    fn what_is_not_supported_is_left_out_once() {
        let reads = Arc::new(AtomicUsize::new(0));
        let counted = reads.clone();
        let not_supported = move || {
            counted.fetch_add(1, Relaxed);
            Err(NvmlError::NotSupported.into())
        };
        let mut gauges = Gauges::new(vec![Gauge::new(&[A], not_supported), Gauge::new(&[B], || Ok(vec![Ok(2.0)]))]);
        for _ in 0..3 {
            assert_eq!(taken(&mut gauges), [("b", 2.0)]);
        }
        assert_eq!(reads.load(Relaxed), 1);
        assert_eq!(gauges.left_out(), [LeftOut { name: "a", reason: "not supported".into() }]);
        assert_eq!(LeftOut::line(&gauges.left_out()).as_deref(), Some("not recorded: a (not supported)"));
        assert_eq!(LeftOut::line(&[]), None);
    }

    #[test]
    fn what_is_left_out_for_one_reason_is_told_together() {
        let left_out = |name, reason: &str| LeftOut { name, reason: reason.into() };
        let all = [left_out("a", "not supported"), left_out("b", "not permitted"), left_out("c", "not supported")];
        let line = LeftOut::line(&all);
        assert_eq!(line.as_deref(), Some("not recorded: a, c (not supported); b (not permitted)"));
    }

    #[test]
    fn one_of_several_can_be_left_out() {
        let read = || Ok(vec![Err(NvmlError::NoPermission.into()), Ok(1.0)]);
        let mut gauges = Gauges::new(vec![Gauge::new(&[A, B], read)]);
        assert_eq!((taken(&mut gauges), taken(&mut gauges)), (vec![("b", 1.0)], vec![("b", 1.0)]));
        assert_eq!(gauges.left_out().len(), 1);
        assert!(!gauges.is_empty());
    }

    #[test]
    fn what_fails_for_now_is_tried_again() {
        let mut rounds = 0;
        let read = move || {
            rounds += 1;
            if rounds == 2 { Ok(vec![Ok(7.0)]) } else { Err(NvmlError::Unknown.into()) }
        };
        let mut gauges = Gauges::new(vec![Gauge::new(&[A], read)]);
        let rounds: Vec<_> = (0..3).map(|_| taken(&mut gauges)).collect();
        assert_eq!(rounds, [vec![], vec![("a", 7.0)], vec![]]);
        assert!(gauges.left_out().is_empty());
    }

    #[test]
    fn what_is_read_in_another_way_is_not_left_out() {
        let missing = || Err(NvmlError::NotSupported.into());
        let mut gauges = Gauges::new(vec![Gauge::new(&[A, B], missing), Gauge::new(&[B], || Ok(vec![Ok(f64::NAN)]))]);
        assert!(taken(&mut gauges).is_empty(), "what is no number is no value");
        assert_eq!(gauges.left_out().iter().map(|left_out| left_out.name).collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn a_device_that_is_lost_leaves_nothing_to_read() {
        let mut gauges = Gauges::new(vec![Gauge::new(&[A], || Err(NvmlError::GpuLost.into()))]);
        assert!(taken(&mut gauges).is_empty());
        assert!(gauges.is_empty());
    }
}
