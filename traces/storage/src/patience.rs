//! When whoever waits for a store gives up. It can be said while it is waited, from another thread.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures_util::future::{Either, select};

/// How often one looks whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long a store is waited for: without end, until somebody says when.
#[derive(Clone, Debug, Default)]
pub struct Patience(Arc<Mutex<Option<Instant>>>);

impl Patience {
    /// Says when it ends. What was said first stays.
    pub fn end_at(&self, end: Instant) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(end);
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|end| Instant::now() >= end)
    }

    /// Waits for work; none, if it takes too long.
    pub(crate) async fn wait_for<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let over = async {
            while !self.is_over() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        match select(pin!(work), pin!(over)).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_stops_when_somebody_else_says_so() {
        let patience = Patience::default();
        let other = patience.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        assert_eq!(runtime.block_on(patience.wait_for(async { 1 })), Some(1));
        let ender = std::thread::spawn(move || other.end_at(Instant::now() + Duration::from_millis(50)));
        assert_eq!(runtime.block_on(patience.wait_for(std::future::pending::<()>())), None);
        ender.join().unwrap();
        patience.end_at(Instant::now() + Duration::from_secs(100));
        assert!(patience.is_over());
    }
}
