//! Operators as ranges of the host, where nothing was recorded of a device.
//!
//! Otherwise operators are told of by what they launched, and there are too many to keep each. A range that is an operator
//! has an origin; one that the program named has none.

use super::{
    annotation::TrainingContext,
    names::NameBook,
    operator::{OperatorCall, OperatorNames},
    origins::{Launcher, Launchers, OriginTexts},
    places::{PlaceFinder, Places},
};
use crate::{
    ids::{Nanos, Stream},
    tables::Span,
    vocabulary::{Phase, SpanKind},
};

/// When autograd ran operators.
pub(super) fn backward<'a>(
    launchers: &'a Launchers,
    operators: &'a [OperatorCall],
) -> impl Iterator<Item = Nanos> + 'a {
    let runs = |launcher: &Launcher| launcher.phase == Some(Phase::Backward);
    operators.iter().zip(&launchers.of_operators).filter(move |(_, own)| runs(own)).map(|(operator, _)| operator.start)
}

/// Operators as ranges, if it was asked where they are.
pub(super) fn ranges(
    launchers: &Launchers,
    operators: &[OperatorCall],
    called: &OperatorNames,
    names: &mut NameBook,
    places: &Places,
) -> Vec<Span> {
    let mut places = PlaceFinder::new(places);
    let mut texts = OriginTexts::new(launchers, operators, called, names);
    let range = |(operator, launcher): (&OperatorCall, &Launcher)| {
        let (name, origin) = texts.of_operator(operator, launcher);
        let own = TrainingContext { phase: launcher.phase, ..TrainingContext::default() };
        let TrainingContext { step, phase, micro_batch, stage } =
            own.within(places.at(operator.thread, operator.start));
        let stream = operator.thread.map(Stream);
        let span = Span::new(SpanKind::Range, name, operator.start, operator.duration);
        Span { stream, origin, step, phase, micro_batch, stage, ..span }
    };
    operators.iter().zip(&launchers.of_operators).map(range).collect()
}
