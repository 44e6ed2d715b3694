//! Makes a rank's tables out of what a profiler saw of it.

use std::mem;

use hashbrown::HashMap;

use super::{
    asked_collectives, host_operators, launching_calls,
    memory::memory_events,
    messages::carry,
    ordered::{SpanOrder, SpanSources},
    origins::{Autograd, HostCalls, LaunchCalls, Launchers},
    places::{Annotated, PlaceFinder, Places},
    rows::{Activity, Call, Profile},
};
use crate::{
    beside::beside,
    driver_call::DriverCall,
    ids::{Group, Nanos, Sequence, Step, Stream},
    rank_data::RankData,
    tables::{CounterSample, Span, Spans, Table},
    vocabulary::{Counter, SpanKind},
    window::Window,
};

/// Streams of another device than the one a rank uses most have their device's number above this bit.
const DEVICE_BIT: u32 = 24;
/// Devices beyond this one share the numbers of others.
const MOST_DEVICES: u32 = 0x7f;

/// Words in the names of calls that launch something.
const LAUNCHING: [&str; 3] = ["Launch", "Memcpy", "Memset"];

/// How many spans are in a piece: so many stay in a core's own cache.
const PIECE: usize = 1 << 14;

/// The tables of a rank, of what lies in a window. Times are those of the day.
pub(crate) fn assemble(profile: Profile, window: Window) -> RankData {
    let mut spans = Spans::default();
    let data = assemble_spans(profile, window, usize::MAX, |_, piece| spans = mem::take(piece));
    RankData { spans, ..data }
}

/// The same, but spans are shown piece by piece, with names and counters, and not kept.
pub(crate) fn assemble_in_pieces(
    profile: Profile,
    window: Window,
    mut show: impl FnMut(&RankData, &Spans),
) -> RankData {
    assemble_spans(profile, window, PIECE, |data, piece| show(data, piece))
}

fn assemble_spans(
    profile: Profile,
    window: Window,
    most: usize,
    mut show: impl FnMut(&RankData, &mut Spans),
) -> RankData {
    let Profile { mut rows, mut names, called } = profile;
    let of_host = || (Autograd::of(&rows.operators, &called), HostCalls::of(&rows.operators, &rows.functions));
    let has_host = !rows.operators.is_empty() || !rows.functions.is_empty();
    let ((autograd, host_calls), launch_calls) = beside("host calls", of_host, || {
        launching_calls::sort(&mut rows.calls);
        rows.memory.sort_by_key(|change| change.time);
        if has_host { LaunchCalls::of(&rows.calls) } else { LaunchCalls::default() }
    });
    let annotated: Vec<Annotated> = rows.annotations.iter().map(|(annotated, _)| *annotated).collect();
    // Without a device the host is all there is to tell of.
    let is_host_alone = rows.activities.is_empty();
    let launchers = || {
        let host = (rows.operators.as_slice(), rows.functions.as_slice(), &called);
        Launchers::of(&rows.calls, host, (host_calls, launch_calls), &autograd, is_host_alone)
    };
    let says_steps =
        |thread: u32| annotated.iter().any(|said| said.thread == Some(thread) && said.place.step.is_some());
    // For tensors of the host, autograd works on the thread that asks for the backward pass.
    let own = autograd.threads.iter().flatten().filter(|thread| !is_host_alone && !says_steps(**thread));
    rows.autograd.extend(own);
    let is_autograd = |call: &&Call| call.thread.is_some_and(|thread| rows.autograd.contains(&thread));
    let launches: Vec<Nanos> = rows.calls.iter().filter(is_autograd).map(|call| call.start).collect();
    let (launchers, places, call_of) = if is_host_alone {
        let launchers = launchers();
        let backward = host_operators::backward(&launchers, &rows.operators);
        let places = Places::of(&annotated, rows.autograd, launches.into_iter().chain(backward));
        (launchers, places, Vec::new())
    } else {
        let (launchers, (places, call_of)) = beside("launchers", launchers, || {
            let places = Places::of(&annotated, rows.autograd, launches.into_iter());
            let call_of = launching_calls::join(&mut rows.activities, &rows.calls, &places);
            (places, call_of)
        });
        (launchers, places, call_of)
    };
    // Some calls say why a device waits, though they launch nothing.
    let of_note = names.chosen(|name| DriverCall::of(name).is_some());
    let mut launched: Vec<bool> = rows.calls.iter().map(|call| of_note.contains(call.name)).collect();
    call_of.iter().flatten().for_each(|call| launched[*call as usize] = true);
    if call_of.iter().any(Option::is_none) {
        // Of what is not tied to its launch, any launch may be it.
        let may_launch = names.chosen(|name| LAUNCHING.iter().any(|word| name.contains(word)));
        rows.calls.iter().zip(&mut launched).for_each(|(call, launched)| *launched |= may_launch.contains(call.name));
    }
    let on_host = &rows.operators[..launchers.of_operators.len()];
    let order = SpanOrder::of(&rows.activities, &rows.annotations, (&rows.calls, &launched), on_host);
    let (order, operators) = beside(
        "order",
        || order.sorted(),
        || {
            launchers.attribute(&mut rows.activities, &call_of, &rows.operators, &called, &mut names);
            let operators = host_operators::ranges(&launchers, &rows.operators, &called, &mut names, &places);
            carry(&mut rows.activities, &rows.calls, &call_of, rows.messages);
            asked_collectives::tell(&mut rows.activities, &rows.calls, &call_of, rows.collectives);
            move_apart(&mut rows.activities);
            number_collectives(&mut rows.activities);
            operators
        },
    );
    drop((launchers, call_of, launched, rows.operators, rows.functions));
    let begin = order.first().map(|(start, _)| *start).into_iter().chain(rows.memory.first().map(|c| c.time)).min();
    let begin = begin.unwrap_or_default();
    let mut data = RankData::default();
    if names.dropped > 0 {
        let (counter, value) = (Counter::DroppedNames.id(), names.dropped as f64);
        data.counters.push(&CounterSample { time_ns: begin, counter, value });
    }
    data.names = names.into_names();
    let memory = || {
        let mut places = PlaceFinder::new(&places);
        memory_events(&rows.memory, begin, |thread, time| places.at(thread, time))
    };
    let sources = SpanSources {
        activities: &rows.activities,
        annotations: &rows.annotations,
        calls: &rows.calls,
        operators: &operators,
        places: PlaceFinder::new(&places),
    };
    let (memory, ()) = beside("memory", memory, || sources.show(&order, window, most, |spans| show(&data, spans)));
    if window == Window::ALL {
        data.memory = memory;
    } else {
        data.memory.append_within(&memory, window);
    }
    data
}

/// Devices have streams of the same numbers: those of any but the main one are moved apart.
fn move_apart(activities: &mut [Activity]) {
    let main = main_device(activities);
    for Activity { span, device, .. } in activities {
        if let Some(device) = device.filter(|device| Some(*device) != main) {
            let apart = ((device & MOST_DEVICES) + 1) << DEVICE_BIT;
            span.stream = span.stream.map(|stream| Stream(stream.0 | apart));
        }
    }
}

/// The device that did most.
pub(crate) fn main_device(activities: &[Activity]) -> Option<u32> {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    for run in activities.chunk_by(|one, next| one.device == next.device) {
        if let Some(device) = run[0].device {
            *counts.entry(device).or_default() += run.len();
        }
    }
    counts.into_iter().max_by_key(|(device, count)| (*count, std::cmp::Reverse(*device))).map(|(device, _)| device)
}

/// Numbers the collectives of each group that the trace has not numbered, by step and then in order: ranks of a group do
/// the same ones in the same order, and a step is the same one for all. Without steps ranks may have begun anywhere.
/// Sends and receives have other numbers, which [`carry`] gives them.
///
/// Where nothing names a group, all are numbered so: the ranks together may tell that they are of one. There, steps are not
/// needed.
fn number_collectives(activities: &mut [Activity]) {
    let names_groups = activities.iter().any(|activity| activity.span.group.is_some());
    let is_numbered = |span: &Span| {
        let is_message = matches!(span.kind, SpanKind::Send | SpanKind::Receive | SpanKind::Communication);
        let is_told_apart = span.group.is_some() || !names_groups;
        span.sequence.is_none() && span.kind.is_communication() && !is_message && is_told_apart
    };
    let spans = activities.iter_mut().map(|activity| &mut activity.span);
    let mut spans: Vec<&mut Span> = spans.filter(|span| is_numbered(span)).collect();
    spans.sort_by_key(|span| span.start_ns);
    let mut counts: HashMap<(Option<Group>, Step), u64> = HashMap::new();
    let has_steps = spans.iter().any(|span| span.step.is_some());
    let the_only_step = Some(Step(0)).filter(|_| !names_groups && !has_steps);
    for span in spans {
        let Some(step) = span.step.or(the_only_step) else { continue };
        let count = counts.entry((span.group, step)).or_default();
        span.sequence = u64::try_from(step.0).ok().map(|step| Sequence(step << 32 | *count));
        *count += 1;
    }
}
