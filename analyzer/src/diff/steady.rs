//! The steps of two runs that are compared.

use super::{
    profile::{Profile, ProfileStep},
    resample::{Interval, Resampling, Series},
};

/// The steps that count on both sides, and what was drawn of them.
pub(crate) struct Steady<'a> {
    pub(crate) base: &'a [ProfileStep],
    pub(crate) other: &'a [ProfileStep],
    pub(crate) warm_up: usize,
    pub(crate) resampling: Option<Resampling>,
}

impl<'a> Steady<'a> {
    /// As many steps are left out on both sides, since a run warms up: those that both would leave out by themselves.
    pub(crate) fn of(base: &'a Profile<'_>, other: &'a Profile<'_>) -> Steady<'a> {
        let warm_up = base.warm_up().min(other.warm_up());
        let [base, other] = [base, other].map(|profile| &profile.steps[warm_up.min(profile.steps.len())..]);
        Steady { base, other, warm_up, resampling: Resampling::of(base.len(), other.len()) }
    }

    /// What the change of a figure of each step lies between.
    pub(crate) fn change(&self, base: &Series, other: &Series) -> Option<Interval> {
        self.resampling.as_ref()?.change(base, other)
    }
}
