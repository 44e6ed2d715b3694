//! When events of a thread were on the device, on hand-made launches.

use proptest::prelude::*;

use super::*;

const NOTHING: [i64; 0] = [];

/// A thread, and the times of what was settled; each event is named by its address, which counts up.
struct Checked {
    order: ThreadOrder,
    events: u64,
    settled: Vec<(u64, i64)>,
    by_host: usize,
}

impl Checked {
    fn new() -> Checked {
        Checked { order: ThreadOrder::new(), events: 0, settled: Vec::new(), by_host: 0 }
    }

    fn event(&mut self, op: MemoryOperation, host: i64) {
        let address = self.events;
        self.events += 1;
        self.order.add(MemoryEvent {
            time_ns: Nanos(host),
            op,
            address,
            bytes: None,
            category: None,
            step: None,
            phase: None,
            layer: None,
            pool: None,
            site: None,
        });
    }

    fn alloc(&mut self, host: i64) {
        self.event(MemoryOperation::Alloc, host);
    }

    fn free(&mut self, host: i64) {
        self.event(MemoryOperation::Free, host);
    }

    fn ran(&mut self, launch: u64, start: i64, end: i64) {
        self.order.ran(launch, Nanos(start), Nanos(end));
    }

    fn see(settled: &mut Vec<(u64, i64)>, by_host: &mut usize, one: Settled) {
        settled.push((one.event.address, one.event.time_ns.0));
        *by_host += usize::from(one.by_host);
    }

    /// The times so far.
    fn settle(&mut self) -> Vec<i64> {
        let Checked { order, settled, by_host, .. } = self;
        order.settle(|one| Checked::see(settled, by_host, one));
        self.times()
    }

    fn settle_all(&mut self) -> Vec<i64> {
        let Checked { order, settled, by_host, .. } = self;
        order.settle_all(|one| Checked::see(settled, by_host, one));
        self.times()
    }

    fn settle_by_host(&mut self) -> Vec<i64> {
        let Checked { order, settled, by_host, .. } = self;
        order.settle_by_host(|one| Checked::see(settled, by_host, one));
        self.times()
    }

    fn times(&self) -> Vec<i64> {
        assert!(self.settled.iter().map(|(address, _)| *address).eq(0..self.settled.len() as u64), "in order");
        self.settled.iter().map(|(_, time)| *time).collect()
    }

    fn look(&mut self) -> Vec<i64> {
        self.order.look();
        self.settle()
    }
}

#[test]
fn memory_is_taken_where_the_next_launch_begins_and_free_where_the_last_one_ended() {
    let mut thread = Checked::new();
    thread.alloc(1);
    thread.event(MemoryOperation::Reserve, 2);
    assert_eq!(thread.order.launch(), 0);
    thread.free(3);
    thread.alloc(4);
    assert_eq!(thread.order.launch(), 1);
    thread.event(MemoryOperation::Release, 5);
    assert_eq!(thread.settle(), NOTHING, "nothing has run");
    thread.ran(0, 100, 150);
    assert_eq!(thread.settle(), [100, 100, 150]);
    thread.ran(1, 170, 190);
    assert_eq!(thread.settle(), [100, 100, 150, 170, 190]);
    assert_eq!((thread.by_host, thread.order.len()), (0, 0));
    // The thread waited for the device and then freed: that was free all along.
    thread.free(900);
    assert_eq!(thread.settle()[5..], [190]);
}

#[test]
fn events_keep_their_order() {
    let mut thread = Checked::new();
    thread.order.launch();
    thread.alloc(1);
    // By itself that is free at 20. But it was there when the one before was taken.
    thread.free(2);
    thread.order.launch();
    thread.ran(0, 10, 20);
    thread.ran(1, 30, 40);
    assert_eq!(thread.settle(), [30, 30]);
    // A launch that begins before the last one ends.
    thread.free(3);
    thread.alloc(4);
    thread.order.launch();
    thread.ran(2, 35, 60);
    assert_eq!(thread.settle(), [30, 30, 40, 40]);
}

#[test]
fn other_streams_do_not_count() {
    let mut thread = Checked::new();
    thread.order.launch();
    thread.order.launch();
    thread.free(1);
    thread.alloc(2);
    thread.order.launch();
    thread.order.launch();
    thread.ran(0, 10, 20);
    thread.ran(3, 50, 60);
    thread.order.ran_elsewhere(2);
    assert_eq!(thread.settle(), NOTHING, "whether the one before is on the stream is not known");
    thread.order.ran_elsewhere(1);
    assert_eq!(thread.settle(), [20, 50]);
}

#[test]
fn a_graph_is_all_that_ran_of_it() {
    let mut thread = Checked::new();
    thread.alloc(1);
    thread.order.launch();
    thread.free(2);
    thread.ran(0, 20, 30);
    thread.order.ran_elsewhere(0);
    thread.ran(0, 30, 45);
    thread.ran(0, 10, 20);
    assert_eq!(thread.settle(), [10, 45]);
}

#[test]
fn before_the_first_launch_and_after_the_last_it_is_the_hosts_time() {
    let mut thread = Checked::new();
    thread.free(5);
    assert_eq!(thread.settle(), [5], "nothing can come before it");
    thread.order.launch();
    thread.ran(0, 100, 200);
    thread.alloc(7);
    thread.alloc(300);
    for _ in 1..MOST_LOOKS {
        assert_eq!(thread.look(), [5], "a launch may follow");
    }
    assert_eq!(thread.look(), [5, 200, 300], "not before what had been launched");
    assert_eq!(thread.by_host, 3);
    // Of a thread that has ended, nothing follows.
    thread.alloc(400);
    assert_eq!(thread.settle().len(), 3);
    thread.order.end();
    assert!(!thread.order.is_over());
    assert_eq!(thread.settle()[3..], [400]);
    assert!(thread.order.is_over());
}

#[test]
fn a_launch_that_is_lost_is_not_waited_for_when_later_ones_have_run() {
    let mut thread = Checked::new();
    thread.order.launch();
    thread.alloc(1);
    thread.order.launch();
    thread.free(2);
    thread.order.launch();
    thread.free(3);
    thread.ran(0, 10, 20);
    for _ in 0..3 * MOST_LOOKS {
        assert_eq!(thread.look(), NOTHING, "the device may be busy for long");
    }
    // Nothing comes of the second.
    thread.ran(2, 50, 60);
    for _ in 0..MOST_LOOKS {
        assert_eq!(thread.look(), NOTHING, "it may come yet");
    }
    assert_eq!(thread.look(), [50, 50, 60], "by the next one it has run");
    assert_eq!(thread.by_host, 0);
}

#[test]
fn many_lost_launches_cost_no_more_time_than_one() {
    let mut thread = Checked::new();
    let mut expected = Vec::new();
    for step in 0..100 {
        let lost = thread.order.launch();
        thread.free(step);
        thread.order.launch();
        thread.ran(lost + 1, 1000 + 10 * step, 1005 + 10 * step);
        expected.push(1000 + 10 * step);
    }
    for _ in 0..MOST_LOOKS {
        assert_eq!(thread.look(), NOTHING);
    }
    assert_eq!(thread.look(), expected);
}

#[test]
fn at_the_end_what_is_known_tells_the_time_and_nothing_is_lost() {
    let mut thread = Checked::new();
    thread.order.launch();
    thread.order.launch();
    thread.free(5);
    thread.order.launch();
    thread.free(6);
    thread.alloc(70);
    thread.alloc(80);
    thread.ran(0, 10, 20);
    thread.ran(2, 40, 50);
    assert_eq!(thread.settle(), NOTHING);
    assert_eq!(thread.settle_all(), [40, 50, 70, 80]);
    assert!(thread.order.is_over());
}

#[test]
fn what_is_too_much_is_in_the_hosts_time() {
    let mut thread = Checked::new();
    thread.order.launch();
    thread.free(1);
    thread.alloc(2);
    let known = thread.order.launch();
    thread.ran(known, 500, 600);
    assert_eq!(thread.settle_by_host(), [1, 2]);
    assert_eq!(thread.order.len(), 0);
    thread.ran(0, 5, 9);
    // Of the launches before it none is known any more.
    thread.free(10);
    assert_eq!(thread.settle().len(), 2);
    let next = thread.order.launch();
    thread.ran(next, 700, 800);
    thread.free(11);
    assert_eq!(thread.settle()[2..], [700, 800]);
    // The last event of the host's is not known here; what follows is not before it.
    assert_eq!(thread.settle_by_host().len(), 4);
    thread.free(900);
    assert_eq!(thread.settle()[4..], [900]);
}

/// What a thread does.
#[derive(Clone, Copy, Debug)]
enum Step {
    Event(MemoryOperation),
    /// On the stream or not; recorded or not.
    Launch(bool, bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Event(MemoryOperation::Alloc)),
        Just(Step::Event(MemoryOperation::Free)),
        (any::<bool>(), proptest::bool::weighted(0.9)).prop_map(|(on_stream, told)| Step::Launch(on_stream, told)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes late or never, and whenever it is looked at: against the definition, event by event.
    #[test]
    fn every_event_comes_once_in_order_and_at_its_time(
        steps in proptest::collection::vec((step(), 1..20_i64, 1..30_i64, 0..4_u8), 1..60),
        all_told in any::<bool>(),
        delay in 0..10_usize,
    ) {
        let mut thread = Checked::new();
        // Number, place among the steps, start and end of the launches on the stream; records on their way.
        let mut on_stream: Vec<(usize, i64, i64, bool)> = Vec::new();
        let mut records = VecDeque::new();
        let (mut host, mut device) = (0, 0);
        for (at, (step, host_takes, device_takes, looks)) in steps.iter().enumerate() {
            host += host_takes;
            match *step {
                Step::Event(op) => thread.event(op, host),
                Step::Launch(is_on_stream, told) => {
                    let (number, told) = (thread.order.launch(), told || all_told);
                    let start = host.max(device);
                    if is_on_stream {
                        device = start + device_takes;
                        on_stream.push((at, start, device, told));
                    }
                    if told {
                        records.push_back((at, number, is_on_stream.then_some((start, device))));
                    }
                }
            }
            while records.front().is_some_and(|(launched, ..)| launched + delay <= at) {
                match records.pop_front().unwrap() {
                    (_, number, Some((start, end))) => thread.ran(number, start, end),
                    (_, number, None) => thread.order.ran_elsewhere(number),
                }
            }
            if *looks == 0 {
                thread.settle();
            }
        }
        for (_, number, ran) in records {
            match ran {
                Some((start, end)) => thread.ran(number, start, end),
                None => thread.order.ran_elsewhere(number),
            }
        }
        let times = thread.settle_all();
        prop_assert_eq!(times.len() as u64, thread.events);
        prop_assert!(times.is_sorted());
        let (mut floor, mut host) = (i64::MIN, 0);
        let mut times = times.into_iter();
        for (at, (step, host_takes, ..)) in steps.iter().enumerate() {
            host += host_takes;
            let Step::Event(op) = step else { continue };
            let last_end = on_stream.iter().rfind(|launch| launch.0 < at && launch.3).map(|launch| launch.2);
            let next_start = on_stream.iter().find(|launch| launch.0 > at && launch.3).map(|launch| launch.1);
            let otherwise = last_end.map_or(host, |end| end.max(host));
            let time = match op {
                MemoryOperation::Alloc => next_start.unwrap_or(otherwise),
                _ => last_end.unwrap_or(host),
            };
            floor = floor.max(time);
            let found = times.next().unwrap();
            if all_told {
                prop_assert_eq!(found, floor);
            } else {
                prop_assert!(last_end.is_none_or(|end| end <= found), "the device had done that by then");
            }
        }
    }
}
