//! NCCL's part, played with descriptors in its own layout.

use std::{
    ffi::{CStr, c_void},
    ptr,
};

use stepscope_traces::{Group, Membership, Sequence, SpanKind};

use super::{
    super::{
        communicator::{Identity, group},
        event::{V2, V3, V4, V5, Version},
        interface::{
            CollectiveCall, CollectiveV2, CollectiveV3, CollectiveV4, Descriptor, MessageCall, MessageV3, MessageV4,
        },
    },
    *,
};

const HASH: u64 = 0x1234_5678_9abc_def0;
const OWN: i32 = 1;

/// Kinds of events, as `nccl_profiler.h` numbers them.
const PLAN: u64 = 1;
const COLLECTIVE: u64 = 2;
const MESSAGE: u64 = 4;
const PROXY_OPERATION: u64 = 8;
const GROUP_CALL: u64 = 256;
const COLLECTIVE_CALL: u64 = 512;
const MESSAGE_CALL: u64 = 1024;

/// A descriptor, as a version has it.
trait Spoken: Version {
    type Kind: TryFrom<u64>;

    fn collective(function: &'static CStr, count: usize, element_type: &'static CStr, sequence: u64) -> NcclEvent;
    fn message(function: &'static CStr, count: usize, peer: i32) -> NcclEvent;

    fn of<Body>(kind: u64, body: Body) -> NcclEvent {
        let Ok(kind) = Self::Kind::try_from(kind) else { panic!("this version has no such event") };
        let descriptor = Descriptor { kind, parent: ptr::null(), rank: OWN, body };
        // SAFETY: a descriptor of this version, which lives until this returns.
        unsafe { Self::read(ptr::from_ref(&descriptor).cast::<c_void>()) }
    }

    fn bare(kind: u64) -> NcclEvent {
        Self::of(kind, [0_u64; 16])
    }
}

fn collective_v3(function: &'static CStr, count: usize, element_type: &'static CStr, sequence: u64) -> CollectiveV3 {
    CollectiveV3 {
        name: ptr::null(),
        hash: HASH,
        sequence,
        function: function.as_ptr(),
        send: ptr::null(),
        receive: ptr::null(),
        count,
        root: 0,
        element_type: element_type.as_ptr(),
    }
}

fn message_v4(function: &'static CStr, count: usize, peer: i32) -> MessageV4 {
    MessageV4 { function: function.as_ptr(), buffer: ptr::null(), element_type: c"ncclFloat32".as_ptr(), count, peer }
}

impl Spoken for V2 {
    type Kind = u8;

    fn collective(function: &'static CStr, count: usize, element_type: &'static CStr, sequence: u64) -> NcclEvent {
        // Four ranks; all-reduces go twice around.
        let traffic_bytes = if function == c"AllGather" { 4 * count } else { 8 * count };
        Self::of(
            COLLECTIVE,
            CollectiveV2 { collective: collective_v3(function, count, element_type, sequence), traffic_bytes },
        )
    }

    fn message(function: &'static CStr, count: usize, peer: i32) -> NcclEvent {
        V3::message(function, count, peer)
    }
}

impl Spoken for V3 {
    type Kind = u8;

    fn collective(function: &'static CStr, count: usize, element_type: &'static CStr, sequence: u64) -> NcclEvent {
        Self::of(COLLECTIVE, collective_v3(function, count, element_type, sequence))
    }

    fn message(function: &'static CStr, count: usize, peer: i32) -> NcclEvent {
        Self::of(MESSAGE, MessageV3 { name: ptr::null(), hash: HASH, message: message_v4(function, count, peer) })
    }
}

fn collective_v4(function: &'static CStr, count: usize, element_type: &'static CStr, sequence: u64) -> CollectiveV4 {
    CollectiveV4 {
        sequence,
        function: function.as_ptr(),
        send: ptr::null(),
        receive: ptr::null(),
        count,
        root: 0,
        element_type: element_type.as_ptr(),
    }
}

impl Spoken for V4 {
    type Kind = u8;

    fn collective(function: &'static CStr, count: usize, element_type: &'static CStr, sequence: u64) -> NcclEvent {
        Self::of(COLLECTIVE, collective_v4(function, count, element_type, sequence))
    }

    fn message(function: &'static CStr, count: usize, peer: i32) -> NcclEvent {
        Self::of(MESSAGE, message_v4(function, count, peer))
    }
}

impl Spoken for V5 {
    type Kind = u64;

    fn collective(function: &'static CStr, count: usize, element_type: &'static CStr, sequence: u64) -> NcclEvent {
        Self::of(COLLECTIVE, collective_v4(function, count, element_type, sequence))
    }

    fn message(function: &'static CStr, count: usize, peer: i32) -> NcclEvent {
        Self::of(MESSAGE, message_v4(function, count, peer))
    }
}

fn known() -> Communicator {
    let membership = Membership { group: group(HASH), index: Some(0), size: 4, name: None, ranks: Vec::new() };
    Communicator::of(Identity { hash: HASH, size: 4 }, membership)
}

/// A thread whose kernels have numbers, and a communicator.
struct Thread {
    here: Here<u32>,
    communicator: Communicator,
}

type Described = Option<(u32, SpanKind, Option<u64>, Group, Option<u64>)>;

fn described(found: Option<(u32, LaunchInfo)>) -> Described {
    let (kernel, info) = found?;
    let (group, sequence) = info.collective.unwrap();
    Some((kernel, info.kind.unwrap(), info.bytes, group, sequence.map(|Sequence(number)| number)))
}

impl Thread {
    fn of(communicator: Communicator) -> Thread {
        Thread { here: Here::default(), communicator }
    }

    fn hear(&mut self, said: NcclEvent) {
        assert_eq!(self.here.hear(&self.communicator, said, None), Handle::None);
    }

    /// A plan, told after its kernel was launched.
    fn plan<V: Spoken>(&mut self, kernel: Option<u32>, operations: &[NcclEvent]) -> Described {
        assert_eq!(self.here.hear(&self.communicator, V::bare(PLAN), kernel), Handle::Plan);
        operations.iter().for_each(|said| self.hear(*said));
        described(self.here.plan_ended())
    }

    /// Calls, and what comes of them.
    fn calls(&mut self, calls: &[NcclEvent]) {
        assert_eq!(self.here.hear(&self.communicator, V5::bare(GROUP_CALL), None), Handle::GroupCall);
        calls.iter().for_each(|said| self.hear(*said));
    }
}

/// What every version tells; in which some are not known.
fn plays<V: Spoken>(communicator: Communicator, gathered: Option<u64>) {
    let mut thread = Thread::of(communicator);
    let (group, float) = (group(HASH), c"ncclFloat32");
    let reduce = V::collective(c"AllReduce", 100, float, 5);
    assert_eq!(thread.plan::<V>(Some(7), &[reduce]), Some((7, SpanKind::AllReduce, Some(400), group, Some(5))));
    // NCCL gathers bytes, whatever they are of.
    let gathers = [3, 4].map(|sequence| V::collective(c"AllGather", 100, c"ncclInt8", sequence));
    let expected = (8, SpanKind::AllGather, gathered.map(|bytes| 2 * bytes), group, Some(3));
    assert_eq!(thread.plan::<V>(Some(8), &gathers), Some(expected));
    let number = |count: u64, from: u64, to: u64| Some(count << 32 | from << 16 | to);
    let [send, receive] = [V::message(c"Send", 10, 2), V::message(c"Recv", 10, 2)];
    let sent = Some((9, SpanKind::Send, Some(40), group, number(0, 1, 2)));
    assert_eq!(thread.plan::<V>(Some(9), &[send]), sent);
    let received = Some((10, SpanKind::Receive, Some(40), group, number(0, 2, 1)));
    assert_eq!(thread.plan::<V>(Some(10), &[receive]), received);
    let both = Some((11, SpanKind::Communication, Some(80), group, None));
    assert_eq!(thread.plan::<V>(Some(11), &[send, receive]), both);
    // One that this thread did not launch, or CUPTI did not see, is counted all the same.
    assert_eq!(thread.plan::<V>(None, &[send]), None);
    let sent = Some((12, SpanKind::Send, Some(40), group, number(3, 1, 2)));
    assert_eq!(thread.plan::<V>(Some(12), &[V::bare(PROXY_OPERATION), send]), sent);
    // Nothing was said of it: it has no more than its name.
    assert_eq!(thread.plan::<V>(Some(13), &[]), None);
    let odd = V::collective(c"SomethingNew", 100, c"Unknown", 0);
    assert_eq!(thread.plan::<V>(Some(14), &[odd]), Some((14, SpanKind::Communication, None, group, Some(0))));
}

#[test]
fn every_version_tells_of_plans() {
    plays::<V2>(Communicator::default(), Some(400));
    plays::<V3>(Communicator::default(), None);
    plays::<V4>(known(), Some(400));
    plays::<V5>(known(), Some(400));
}

#[test]
fn what_an_old_version_leaves_empty_is_not_known() {
    let mut here = Here::<u32>::default();
    let collective = CollectiveV3 { hash: 0, ..collective_v3(c"AllGather", 100, c"ncclInt8", 5) };
    let said = V2::of(COLLECTIVE, CollectiveV2 { collective, traffic_bytes: 0 });
    let communicator = Communicator::default();
    here.hear(&communicator, V2::bare(PLAN), Some(7));
    here.hear(&communicator, said, None);
    let (_, info) = here.plan_ended().unwrap();
    assert_eq!((info.kind, info.bytes, info.collective), (Some(SpanKind::AllGather), None, None));
}

#[test]
fn operations_outside_of_plans_are_of_no_kernel() {
    let mut thread = Thread::of(known());
    thread.hear(V5::collective(c"AllReduce", 1, c"ncclFloat32", 0));
    assert_eq!(described(thread.here.plan_ended()), None);
    assert_eq!(described(thread.here.calls_ended(Some(3))), None);
}

#[test]
fn calls_that_come_to_no_plan_are_of_the_one_kernel() {
    let call = |function: &'static CStr| {
        let element_type = c"ncclBfloat16".as_ptr();
        V5::of(COLLECTIVE_CALL, CollectiveCall { function: function.as_ptr(), count: 8, element_type })
    };
    let [broadcast, reduce] = [c"Broadcast", c"AllReduce"].map(call);
    let (mut thread, group) = (Thread::of(known()), group(HASH));
    let numbered = |number: u64| Some(1 << 63 | number);

    thread.calls(&[broadcast]);
    let first = Some((5, SpanKind::Broadcast, Some(16), group, numbered(0)));
    assert_eq!(described(thread.here.calls_ended(Some(5))), first);
    // No kernel, or more than one: which it is nobody can say.
    thread.calls(&[broadcast]);
    assert_eq!(described(thread.here.calls_ended(None)), None);
    thread.calls(&[broadcast, broadcast]);
    let both = Some((6, SpanKind::Broadcast, Some(32), group, numbered(2)));
    assert_eq!(described(thread.here.calls_ended(Some(6))), both);
    // What came to a plan is what the plan says.
    thread.calls(&[reduce]);
    let plan = thread.plan::<V5>(Some(7), &[V5::collective(c"AllReduce", 8, c"ncclBfloat16", 4)]);
    assert_eq!(plan, Some((7, SpanKind::AllReduce, Some(16), group, Some(4))));
    assert_eq!(described(thread.here.calls_ended(Some(8))), None);
}

#[test]
fn messages_of_graphs_have_no_numbers() {
    let mut thread = Thread::of(known());
    let call = |captured| {
        let (function, element_type) = (c"Send".as_ptr(), c"ncclFloat32".as_ptr());
        V5::of(MESSAGE_CALL, MessageCall { function, count: 10, element_type, stream: ptr::null(), captured })
    };
    let send = V5::message(c"Send", 10, 2);
    thread.calls(&[call(0)]);
    let sequence = |described: Described| described.unwrap().4;
    assert!(sequence(thread.plan::<V5>(Some(1), &[send])).is_some());
    thread.calls(&[call(1)]);
    assert_eq!(sequence(thread.plan::<V5>(Some(2), &[send])), None);
}

/// Hears twelve bytes after the other: a number, which texts, and what is said. Pointers lead to texts, as NCCL's do.
fn hears_anything<V: Spoken>(bytes: &[u8]) {
    const FUNCTIONS: [&CStr; 6] = [c"AllReduce", c"AllGather", c"ReduceScatter", c"Send", c"Recv", c"\xff no function"];
    const TYPES: [&CStr; 3] = [c"ncclFloat32", c"ncclInt8", c""];
    let (mut here, communicator) = (Here::<u32>::default(), known());
    for (said, kernel) in bytes.chunks_exact(12).zip(0..) {
        let number = u64::from_le_bytes(*said.first_chunk().unwrap());
        let (function, element) = (FUNCTIONS[usize::from(said[8]) % 6], TYPES[usize::from(said[9]) % 3]);
        let (count, peer) = ((number >> 4) as usize, number as i32);
        let event = match said[10] % 4 {
            0 => V::collective(function, count, element, number),
            1 => V::message(function, count, peer),
            2 => V::bare(PLAN),
            _ => V::bare(number % 256),
        };
        here.hear(&communicator, event, (said[11] & 1 == 0).then_some(kernel));
        let ended = match said[11] & 6 {
            2 => here.plan_ended(),
            4 => here.calls_ended(Some(kernel)),
            _ => None,
        };
        assert!(ended.is_none_or(|(of, _)| of <= kernel));
    }
}

#[test]
fn fuzzed_descriptors() {
    let seed = [[100, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0], [100, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]].concat();
    crate::fuzz::fuzz!(vec![seed], |bytes: &[u8]| {
        hears_anything::<V2>(bytes);
        hears_anything::<V3>(bytes);
        hears_anything::<V4>(bytes);
        hears_anything::<V5>(bytes);
        true
    });
}
