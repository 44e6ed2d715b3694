//! The steps of two runs that are compared.

use super::{
    profile::{Profile, ProfileStep},
    resample::{Interval, Resampling, Series},
};

/// The steps that count on both sides, and what was drawn of them.
pub(crate) struct Steady<'a> {
    pub(crate) base: &'a [ProfileStep],
    pub(crate) other: &'a [ProfileStep],
    pub(crate) resampling: Option<Resampling>,
}

impl<'a> Steady<'a> {
    /// Those that count in each by itself, so that a figure here is the one that the run's own analysis has.
    pub(crate) fn of(base: &'a Profile<'_>, other: &'a Profile<'_>) -> Steady<'a> {
        let (base, other) = (base.steps.as_slice(), other.steps.as_slice());
        Steady { base, other, resampling: Resampling::of(base.len(), other.len()) }
    }

    /// Whether whole recordings are compared, which stand for steps.
    pub(crate) fn is_whole(&self) -> bool {
        self.base.iter().chain(self.other).all(|step| step.step.is_none())
    }

    /// What the change of a figure of each step lies between.
    pub(crate) fn change(&self, base: &Series, other: &Series) -> Option<Interval> {
        self.resampling.as_ref()?.change(base, other)
    }
}
