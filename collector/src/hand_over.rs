//! How what threads recorded goes from their queues to the writer: nothing twice, nothing lost, nothing before its name.
//!
//! - Names are taken after events are counted, and no more events than were counted are moved: the name of an event was there
//!   before the event was.
//! - New queues are taken before any is counted. A thread that opens a longer queue says so before it uses it, so the longer
//!   one is behind the one that it replaces, and its count is taken later: a thread's order is kept.
//! - A queue goes once its thread has let go of it and nothing is in it, looked at in this order.

/// The writer's end of a queue.
pub(crate) trait End {
    type Event;

    /// How many events are in it.
    fn waiting(&self) -> usize;

    /// Takes the one that came first.
    fn next(&mut self) -> Option<Self::Event>;

    /// Whether its thread has let go of it: nothing is added any more.
    fn is_let_go(&self) -> bool;
}

/// Who writes.
pub(crate) trait Writer {
    type Queue: End;
    type Error;

    /// Queues that were opened since it was asked last.
    fn new_queues(&mut self) -> Vec<Self::Queue>;

    /// Takes the names that are there by now.
    fn take_names(&mut self) -> Result<(), Self::Error>;

    fn write(&mut self, event: <Self::Queue as End>::Event) -> Result<(), Self::Error>;

    /// A queue goes.
    fn ended(&mut self, queue: &Self::Queue);
}

/// Hands what is in the queues now to the writer, those included that are new.
pub(crate) fn hand_over<W: Writer>(queues: &mut Vec<W::Queue>, to: &mut W) -> Result<(), W::Error> {
    queues.extend(to.new_queues());
    let waiting: Vec<usize> = queues.iter().map(End::waiting).collect();
    to.take_names()?;
    for (queue, waiting) in queues.iter_mut().zip(waiting) {
        std::iter::from_fn(|| queue.next()).take(waiting).try_for_each(|event| to.write(event))?;
    }
    queues.retain(|queue| {
        let is_over = queue.is_let_go() && queue.waiting() == 0;
        if is_over {
            to.ended(queue);
        }
        !is_over
    });
    Ok(())
}

/// Every order in which threads can get ahead of each other, and every value that weak memory lets them see.
#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use loom::{
        sync::{
            Arc, Mutex,
            atomic::{
                AtomicBool, AtomicUsize,
                Ordering::{Acquire, Relaxed, Release},
            },
        },
        thread,
    };

    use super::*;

    /// A queue with the promises of the one that is used: what is pushed is seen with its place, and what was pushed last
    /// with the word that the thread let go.
    struct Room {
        slots: Vec<AtomicUsize>,
        pushed: AtomicUsize,
        let_go: AtomicBool,
    }

    struct Begin(Arc<Room>);
    struct Rest {
        room: Arc<Room>,
        taken: usize,
    }

    fn queue(capacity: usize) -> (Begin, Rest) {
        let slots = (0..capacity).map(|_| AtomicUsize::new(0)).collect();
        let room = Arc::new(Room { slots, pushed: AtomicUsize::new(0), let_go: AtomicBool::new(false) });
        (Begin(room.clone()), Rest { room, taken: 0 })
    }

    impl Begin {
        /// Says whether there was room.
        fn push(&self, event: usize) -> bool {
            let place = self.0.pushed.load(Relaxed);
            let Some(slot) = self.0.slots.get(place) else { return false };
            slot.store(event, Relaxed);
            self.0.pushed.store(place + 1, Release);
            true
        }
    }

    impl Drop for Begin {
        fn drop(&mut self) {
            self.0.let_go.store(true, Release);
        }
    }

    impl End for Rest {
        type Event = usize;

        fn waiting(&self) -> usize {
            self.room.pushed.load(Acquire) - self.taken
        }

        fn next(&mut self) -> Option<usize> {
            (self.waiting() > 0).then(|| {
                self.taken += 1;
                self.room.slots[self.taken - 1].load(Relaxed)
            })
        }

        fn is_let_go(&self) -> bool {
            self.room.let_go.load(Acquire)
        }
    }

    /// What threads and the writer share.
    struct Shared {
        new: Mutex<Vec<Rest>>,
        /// How many names there are; an event is the number of its name.
        names: Mutex<usize>,
        ending: AtomicBool,
    }

    impl Shared {
        fn open(&self, capacity: usize) -> Begin {
            let (begin, rest) = queue(capacity);
            self.new.lock().unwrap().push(rest);
            begin
        }

        /// Records events with names of their own, in queues that hold one each.
        fn record(&self, events: usize) {
            let mut queue = self.open(1);
            for _ in 0..events {
                let name = {
                    let mut names = self.names.lock().unwrap();
                    *names += 1;
                    *names
                };
                while !queue.push(name) {
                    queue = self.open(1);
                }
            }
        }
    }

    /// What a writer writes, and how many queues went, while so many threads record two events each.
    fn written(shared: &Arc<Shared>, threads: usize) -> (Vec<usize>, usize) {
        let of_writer = shared.clone();
        let writer = thread::spawn(move || {
            let mut queues = Vec::new();
            let mut book = Book { shared: &of_writer, names: 0, events: Vec::new(), ended: 0 };
            loop {
                // Read before the queues are, as the writer does.
                let ending = of_writer.ending.load(Acquire);
                let Ok(()) = hand_over(&mut queues, &mut book);
                if ending {
                    return (book.events, book.ended);
                }
                thread::yield_now();
            }
        });
        let record = |shared: Arc<Shared>| thread::spawn(move || shared.record(2));
        let recording: Vec<_> = (1..threads).map(|_| record(shared.clone())).collect();
        shared.record(2);
        recording.into_iter().for_each(|thread| thread.join().unwrap());
        shared.ending.store(true, Release);
        writer.join().unwrap()
    }

    struct Book<'a> {
        shared: &'a Shared,
        names: usize,
        events: Vec<usize>,
        ended: usize,
    }

    impl Writer for Book<'_> {
        type Queue = Rest;
        type Error = Infallible;

        fn new_queues(&mut self) -> Vec<Rest> {
            std::mem::take(&mut *self.shared.new.lock().unwrap())
        }

        fn take_names(&mut self) -> Result<(), Infallible> {
            self.names = *self.shared.names.lock().unwrap();
            // Threads may go on here, which loom does not try by itself.
            thread::yield_now();
            Ok(())
        }

        fn write(&mut self, event: usize) -> Result<(), Infallible> {
            assert!(event <= self.names, "an event before its name");
            self.events.push(event);
            Ok(())
        }

        fn ended(&mut self, _: &Rest) {
            self.ended += 1;
        }
    }

    fn in_every_order(preemptions: usize, check: impl Fn(Arc<Shared>) + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let (new, names) = (Mutex::new(Vec::new()), Mutex::new(0));
            check(Arc::new(Shared { new, names, ending: AtomicBool::new(false) }));
        });
    }

    #[test]
    fn what_one_thread_records_is_written_once_and_in_order() {
        in_every_order(3, |shared| assert_eq!(written(&shared, 1), (vec![1, 2], 2)));
    }

    #[test]
    fn what_threads_record_is_written_once() {
        in_every_order(2, |shared| {
            let (mut written, ended) = written(&shared, 2);
            written.sort_unstable();
            assert_eq!((written, ended), (vec![1, 2, 3, 4], 4));
        });
    }
}
