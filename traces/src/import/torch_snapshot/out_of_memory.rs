//! Where memory ran out.

use super::{
    calls::Calls,
    document::DeviceHistory,
    expandable,
    records::{Action, Event},
};
use crate::{ids::Nanos, notes::OutOfMemory};

/// Where memory ran out for the last time, from this event of a history on; none where it did not.
pub(super) fn last(
    history: &DeviceHistory,
    calls: &Calls,
    from: usize,
    time_of: impl Fn(usize) -> i64,
) -> Option<OutOfMemory> {
    let is_it = |event: &&Event| event.action == Action::OutOfMemory;
    let place = from + history.events[from..].iter().rposition(|event| is_it(&event))?;
    let event = &history.events[place];
    Some(OutOfMemory {
        times: history.events[from..].iter().filter(is_it).count() as u64,
        time_ns: Nanos(time_of(place)),
        requested_bytes: event.bytes,
        free_bytes: event.device_free,
        stack: calls.of(event.stack.unwrap_or_default().calls).into_iter().map(str::to_owned).collect(),
        held: None,
        expandable_segments_would_do: expandable::would_do(history, place),
    })
}
