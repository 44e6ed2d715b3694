//! Along which axis something communicates.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;
use stepscope_plan::Axis;
use stepscope_traces::{Group, GroupInfo, SpanKind};

use crate::rank::communication::CommunicationSpan;

/// Of each group that is described, the axis.
#[derive(Default)]
pub(crate) struct Axes(HashMap<Group, Axis>);

impl Axes {
    pub(crate) fn of(groups: &[GroupInfo]) -> Axes {
        Axes(groups.iter().map(|group| (group.group, group.axis)).collect())
    }

    /// The axis of a group.
    pub(crate) fn of_group(&self, group: Group) -> Option<Axis> {
        self.0.get(&group).copied()
    }

    /// The axis of an operation of a group. In a group of all ranks, what goes from one rank to another is handed over
    /// between stages: it is not about the run as a whole.
    pub(crate) fn along(&self, group: Group, operation: SpanKind) -> Option<Axis> {
        match self.0.get(&group).copied() {
            Some(Axis::World) if is_hand_over(operation) => Some(Axis::Pipeline),
            axis => axis,
        }
    }
}

/// What axes are called after more is known of groups.
pub(crate) struct AxisNames(BTreeMap<Option<Axis>, Option<Axis>>);

impl AxisNames {
    /// The new name of each axis along which a rank communicates; none, where one has several, or several have one. Then
    /// the rank has to be read again: times along axes are unions.
    pub(crate) fn of(communication: &[CommunicationSpan], before: &Axes, after: &Axes) -> Option<AxisNames> {
        let mut names: BTreeMap<Option<Axis>, Option<Axis>> = BTreeMap::new();
        for span in communication {
            let along = |axes: &Axes| span.group.and_then(|group| axes.along(group, span.operation));
            let (old, new) = (along(before), along(after));
            let is_same_hand_over = !is_hand_over(span.operation) || may_be_of_stages(old) == may_be_of_stages(new);
            if *names.entry(old).or_insert(new) != new || !is_same_hand_over {
                return None;
            }
        }
        let different: BTreeSet<_> = names.values().collect();
        (different.len() == names.len()).then_some(AxisNames(names))
    }

    pub(crate) fn rename(&self, axis: &mut Option<Axis>) {
        *axis = self.0.get(axis).copied().unwrap_or(*axis);
    }
}

/// Whether messages along an axis may be between stages.
pub(crate) fn may_be_of_stages(axis: Option<Axis>) -> bool {
    matches!(axis, None | Some(Axis::Pipeline))
}

/// Whether an operation has few ranks that send and receive: a message, or several in one kernel.
pub(crate) fn is_hand_over(operation: SpanKind) -> bool {
    matches!(operation, SpanKind::Send | SpanKind::Receive | SpanKind::Communication)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_renamed_where_times_stay_what_they_are() {
        let span = |group| {
            let mut span = CommunicationSpan::between(0, 1);
            span.group = Some(Group(group));
            span
        };
        let axes = |groups: &[(u32, Axis)]| Axes(groups.iter().map(|(group, axis)| (Group(*group), *axis)).collect());
        let before = axes(&[(0, Axis::World)]);
        let renamed = |groups: &[u32], after: &Axes| {
            let spans: Vec<CommunicationSpan> = groups.iter().copied().map(span).collect();
            let names = AxisNames::of(&spans, &before, after)?;
            Some([Some(Axis::World), None].map(|mut axis| {
                names.rename(&mut axis);
                axis
            }))
        };
        let after = axes(&[(0, Axis::Data), (1, Axis::Tensor), (2, Axis::Pipeline)]);
        assert_eq!(renamed(&[0, 1], &after), Some([Some(Axis::Data), Some(Axis::Tensor)]));
        assert_eq!(renamed(&[1, 2], &after), None, "what had no name has two");
        assert_eq!(renamed(&[0, 1], &axes(&[(0, Axis::Data), (1, Axis::Data)])), None, "two have the same name");
    }
}
