//! Memory that is handed out in order of a stream has the times of the launches around it.

use stepscope_traces::{MemoryCategory, MemoryEvent, MemoryOperation::*, MemoryTimes};

use super::*;
use crate::cupti::{
    drain::{LaunchesBy, Session},
    traced::Traced,
};

impl Recording {
    fn ordered() -> Recording {
        let mut recording = Recording::start(Settings::default());
        recording.translator.order_memory(&recording.shared, WORK.place);
        // From now on this thread works for the recorder, and leaves notes of launches.
        recording.recorder.context();
        recording
    }

    fn ran(&mut self, correlation: u32, start: u64) {
        let mut page = Page::default();
        page.kernel(VERSION_13, work(correlation, start), c"kernel");
        self.read(&page);
        self.translator.settle_memory();
    }
}

fn times(data: &RankData) -> Vec<(MemoryOperation, u64, i64)> {
    data.memory.rows().map(|MemoryEvent { op, address, time_ns, .. }| (op, address, time_ns.0)).collect()
}

#[test]
fn memory_lies_between_the_kernels_that_use_it() {
    let mut recording = Recording::ordered();
    {
        let recorder = &recording.recorder;
        let _step = recorder.step(Step(3));
        recorder.reserve(0xf, 1 << 20);
        recorder.allocate(0xa, 512, MemoryCategory::Activations);
        launch_notes::leave(1, true);
        {
            let _phase = recorder.phase(Phase::Backward);
            let _layer = recorder.layer(Layer(2));
            recorder.allocate(0xb, 64, MemoryCategory::Gradients);
        }
        launch_notes::leave(2, true);
        recorder.free(0xa);
        recorder.allocate(0xa, 128, MemoryCategory::Workspace);
        launch_notes::leave(3, false);
        recorder.free(0xa);
        recorder.release(0xf);
    }
    // As work says, each takes 100. The second is on another stream.
    recording.ran(1, 1000);
    let mut page = Page::default();
    page.kernel(VERSION_12, Work { place: CuptiStream { context: 1, stream: 99 }, ..work(2, 1050) }, c"elsewhere");
    page.copy(VERSION_13, work(3, 2000), 64, 1);
    recording.read(&page);
    recording.translator.settle_memory();
    let [(data, info)] = recording.finish().try_into().ok().unwrap();
    assert_eq!(
        times(&data),
        [
            (Reserve, 0xf, 1000),
            (Alloc, 0xa, 1000),
            (Alloc, 0xb, 2000),
            (Free, 0xa, 2000),
            (Alloc, 0xa, 2000),
            (Free, 0xa, 2100),
            (Release, 0xf, 2100)
        ]
    );
    let second = data.memory.rows().nth(2).unwrap();
    let place = (second.step, second.phase, second.layer, second.category, second.bytes);
    let gradients = Some(MemoryCategory::Gradients);
    assert_eq!(place, (Some(Step(3)), Some(Phase::Backward), Some(Layer(2)), gradients, Some(64)));
    assert_eq!(info.collector.memory_times, Some(MemoryTimes::Device));
    assert_eq!(info.collector.memory_times_of_host, Some(0));
    assert_eq!(dropped(&data), 0.0);
}

#[test]
fn what_is_not_known_at_the_end_has_the_hosts_time() {
    let began = now().0;
    let mut recording = Recording::ordered();
    launch_notes::leave(1, true);
    recording.recorder.free(1);
    recording.ran(1, 1000);
    recording.recorder.allocate(2, 64, MemoryCategory::Other);
    launch_notes::leave(2, true);
    recording.recorder.free(2);
    let [(data, info)] = recording.finish().try_into().ok().unwrap();
    let [known, taken, freed] = times(&data).try_into().unwrap();
    assert_eq!(known, (Free, 1, 1100));
    assert_eq!(((taken.0, taken.1), (freed.0, freed.1)), ((Alloc, 2), (Free, 2)));
    assert!(began <= taken.2 && taken.2 <= freed.2 && freed.2 <= now().0, "{began} {taken:?} {freed:?}");
    assert_eq!(info.collector.memory_times_of_host, Some(2));
}

#[test]
fn memory_that_nobody_orders_has_the_hosts_time_at_once() {
    let mut recording = Recording::start(Settings::default());
    recording.recorder.context();
    recording.recorder.allocate(1, 64, MemoryCategory::Other);
    launch_notes::leave(1, true);
    recording.recorder.free(1);
    recording.ran(1, 1000);
    // Not by way of the translator, which is asked for nothing any more.
    recording.translator.order_memory(&recording.shared, WORK.place);
    recording.translator.end_order(&recording.shared);
    recording.recorder.allocate(2, 64, MemoryCategory::Other);
    let [(data, _)] = recording.finish().try_into().ok().unwrap();
    let times = times(&data);
    assert!(times.iter().map(|(op, address, _)| (*op, *address)).eq([(Alloc, 1), (Free, 1), (Alloc, 2)]));
    assert!(times.is_sorted_by_key(|(.., time)| *time) && times[0].2 > 2000, "{times:?}");
}

#[test]
fn a_pause_does_not_lose_what_was_recorded_before_it() {
    let mut recording = Recording::ordered();
    recording.recorder.allocate(1, 64, MemoryCategory::Other);
    launch_notes::leave(1, true);
    recording.recorder.pause();
    recording.recorder.allocate(2, 64, MemoryCategory::Other);
    recording.ran(1, 1000);
    recording.recorder.resume();
    let [(data, _)] = recording.finish().try_into().ok().unwrap();
    assert_eq!(times(&data), [(Alloc, 1, 1000)]);
    assert_eq!(data.spans.len(), 0, "the kernel ran in the pause");
}

#[test]
fn events_past_the_room_for_notes_are_not_lost() {
    const MANY: u64 = 40_000;
    let mut recording = Recording::ordered();
    launch_notes::leave(1, true);
    for address in 0..MANY {
        recording.recorder.allocate(address, 1, MemoryCategory::Other);
    }
    recording.ran(1, 1000);
    launch_notes::leave(2, true);
    recording.ran(2, 2000);
    let [(data, info)] = recording.finish().try_into().ok().unwrap();
    assert!(times(&data).iter().all(|(.., time)| *time > 2000), "those that found room are before those that did not");
    let mut addresses: Vec<u64> = times(&data).into_iter().map(|(_, address, _)| address).collect();
    addresses.sort_unstable();
    assert!(addresses.into_iter().eq(0..MANY));
    assert_eq!(dropped(&data), 0.0);
    assert_eq!(info.collector.memory_times_of_host, Some(MANY));
}

#[test]
fn a_recording_that_ends_first_gets_what_waits() {
    let recording = Recording::start(Settings::default());
    let path = recording.path();
    let Recording { directory: _directory, recorder, shared, translator, alone: _alone } = recording;
    // There is one reader of notes at a time.
    drop(translator);
    let session = Arc::new(Session::new(LaunchesBy::Notes, Traced::default()));
    assert!(session.listen(&shared) && !session.listen(&shared));
    session.translator().order_memory(&shared, WORK.place);
    recorder.context();
    launch_notes::leave(1, true);
    recorder.free(1);
    recorder.finish().unwrap();
    assert!(!session.translator().leave(&shared));
    let [rank] = Run::open(&path).unwrap().ranks.try_into().ok().unwrap();
    let times = times(&rank.read(Window::ALL).unwrap().0);
    assert!(matches!(times[..], [(Free, 1, time)] if time > 2000), "{times:?}");
}
