//! All connections there are: a bounded number, in which there is always room for one more.

use std::{
    io,
    net::TcpStream,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::connection::{Connection, Stage};

/// Enough for what a connection does.
const STACK_BYTES: usize = 256 << 10;
/// How long it takes a thread to notice that its connection was ended.
const MOMENT: Duration = Duration::from_millis(1);

/// All connections there are.
pub(crate) struct Connections {
    most: usize,
    open: Mutex<Vec<Arc<Connection>>>,
    threads: AtomicUsize,
    fetched: Mutex<Option<Instant>>,
}

impl Connections {
    pub(crate) fn new(most: usize) -> Connections {
        Connections { most, open: Mutex::default(), threads: AtomicUsize::new(0), fetched: Mutex::default() }
    }

    /// Has a thread of its own serve a client, which says whether all of the file was taken. Where there are too many
    /// clients, the one goes that has asked for nothing for longest, or else has taken nothing for longest.
    pub(crate) fn add(
        self: &Arc<Self>,
        stream: TcpStream,
        serve: impl FnOnce(&Connection) -> io::Result<bool> + Send + 'static,
    ) {
        // Whoever was ended is about to go.
        while self.threads.load(Ordering::Relaxed) >= 2 * self.most {
            thread::sleep(MOMENT);
        }
        let connection = Arc::new(Connection::new(stream));
        let mut open = locked(&self.open);
        while open.len() >= self.most {
            let Some(index) = (0..open.len()).min_by_key(|index| open[*index].stage()) else { break };
            open.swap_remove(index).end();
        }
        open.push(Arc::clone(&connection));
        drop(open);
        self.threads.fetch_add(1, Ordering::Relaxed);
        let (all, served) = (Arc::clone(self), Arc::clone(&connection));
        let work = move || {
            if serve(&served).unwrap_or(false) {
                *locked(&all.fetched) = Some(Instant::now());
            }
            all.forget(&served);
        };
        if thread::Builder::new().stack_size(STACK_BYTES).spawn(work).is_err() {
            // Whoever asks again may find a thread.
            self.forget(&connection);
        }
    }

    fn forget(&self, gone: &Arc<Connection>) {
        locked(&self.open).retain(|connection| !Arc::ptr_eq(connection, gone));
        self.threads.fetch_sub(1, Ordering::Relaxed);
    }

    /// When all of the file was last taken.
    pub(crate) fn fetched(&self) -> Option<Instant> {
        *locked(&self.fetched)
    }

    /// Whether somebody is being sent the file.
    pub(crate) fn are_busy(&self) -> bool {
        locked(&self.open).iter().any(|connection| !matches!(connection.stage(), Stage::Asks(_)))
    }

    /// Whether somebody was sent all of the file, and has not said yet to have it.
    pub(crate) fn are_leaving(&self) -> bool {
        locked(&self.open).iter().any(|connection| matches!(connection.stage(), Stage::Leaves(_)))
    }

    /// Ends all of them.
    pub(crate) fn end(&self) {
        locked(&self.open).drain(..).for_each(|connection| connection.end());
    }
}

/// What is behind a lock, also where somebody panicked with it.
fn locked<T>(behind: &Mutex<T>) -> MutexGuard<'_, T> {
    behind.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
