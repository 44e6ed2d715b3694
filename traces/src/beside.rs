//! Does two things at once.

use std::{panic::resume_unwind, sync::Mutex, thread};

/// Does one thing on a thread of its own beside another one. Where there can be no such thread, it is done before.
pub fn beside<A: Send, B>(name: &str, one: impl FnOnce() -> A + Send, other: impl FnOnce() -> B) -> (A, B) {
    let one = Mutex::new(Some(one));
    let do_one = || {
        let one = one.lock().ok().and_then(|mut one| one.take());
        one.map(|one| one())
    };
    let (done, other) =
        thread::scope(|scope| match thread::Builder::new().name(name.into()).spawn_scoped(scope, do_one) {
            Ok(beside) => {
                let other = other();
                (beside.join().unwrap_or_else(|panic| resume_unwind(panic)), other)
            }
            Err(_) => (do_one(), other()),
        });
    #[expect(clippy::expect_used, reason = "whoever was first has done it")]
    (done.expect("it is done once"), other)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::beside;

    #[test]
    fn both_are_done_and_may_talk() {
        let (sender, receiver) = channel();
        let send = move || (0..4).for_each(|number| sender.send(number).unwrap());
        assert_eq!(beside("sender", send, || receiver.iter().sum::<i32>()), ((), 6));
    }
}
