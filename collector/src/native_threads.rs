//! What the threads of this process do, as the system sees them.

use std::{collections::BTreeMap, fs, path::Path};

use nix::{libc, unistd::gettid};
use stepscope_traces::NativeThread;

/// Threads of ours, beside the one that asks.
const OURS: &str = "stepscope-";
/// So many kinds of threads are told.
const MOST: usize = 32;

const LOCK: &str = "a lock (futex)";
/// System calls that threads wait in.
const CALLS: [(libc::c_long, &str); 17] = [
    (libc::SYS_futex, LOCK),
    (libc::SYS_ppoll, "ppoll"),
    (libc::SYS_epoll_pwait, "epoll"),
    (libc::SYS_pselect6, "select"),
    (libc::SYS_read, "read"),
    (libc::SYS_pread64, "pread"),
    (libc::SYS_readv, "readv"),
    (libc::SYS_write, "write"),
    (libc::SYS_recvfrom, "recv"),
    (libc::SYS_recvmsg, "recvmsg"),
    (libc::SYS_sendto, "send"),
    (libc::SYS_sendmsg, "sendmsg"),
    (libc::SYS_accept4, "accept"),
    (libc::SYS_nanosleep, "a sleep"),
    (libc::SYS_clock_nanosleep, "a sleep"),
    (libc::SYS_wait4, "wait for a child"),
    (libc::SYS_ioctl, "a driver (ioctl)"),
];

/// Those that only some machines have.
#[cfg(target_arch = "x86_64")]
const MORE_CALLS: [(libc::c_long, &str); 4] = [
    (libc::SYS_poll, "poll"),
    (libc::SYS_select, "select"),
    (libc::SYS_epoll_wait, "epoll"),
    (libc::SYS_accept, "accept"),
];
#[cfg(not(target_arch = "x86_64"))]
const MORE_CALLS: [(libc::c_long, &str); 1] = [(libc::SYS_accept, "accept")];

/// The threads of this process, without those of the collector's own: the main one first, those that wait in locks last.
pub fn native_threads() -> Vec<NativeThread> {
    let own = gettid().as_raw() as u32;
    let entries = fs::read_dir("/proc/self/task").into_iter().flatten().filter_map(Result::ok);
    let mut counts: BTreeMap<(String, String), (bool, u64)> = BTreeMap::new();
    for entry in entries {
        let Some(thread) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Some((name, does)) = thread_at(&entry.path()).filter(|(name, _)| !name.starts_with(OURS)) else { continue };
        if thread != own {
            let (is_main, count) = counts.entry((name, does)).or_default();
            *is_main |= thread == std::process::id();
            *count += 1;
        }
    }
    let mut threads: Vec<_> = counts.into_iter().collect();
    // Those that wait for other threads say least.
    threads.sort_by_key(|((_, does), (is_main, count))| (!is_main, does.ends_with(LOCK), std::cmp::Reverse(*count)));
    let told = threads.into_iter().map(|((name, does), (_, count))| NativeThread { name, does, count });
    told.take(MOST).collect()
}

/// The name of a thread, and what it does.
fn thread_at(path: &Path) -> Option<(String, String)> {
    let read = |file: &str| fs::read_to_string(path.join(file)).ok();
    let (name, stat) = (read("comm")?, read("stat")?);
    // The name of a thread may have anything in it.
    let state = stat.rsplit_once(')')?.1.trim_start().chars().next()?;
    let call = read("syscall").and_then(|line| line.split_whitespace().next()?.parse().ok());
    Some((name.trim_end().to_owned(), what(state, call)))
}

/// What a thread does, by its state and the system call that it is in.
fn what(state: char, call: Option<libc::c_long>) -> String {
    let named = |number: libc::c_long| {
        let known = CALLS.iter().chain(&MORE_CALLS).find(|(other, _)| *other == number);
        known.map_or_else(|| format!("system call {number}"), |(_, name)| (*name).to_owned())
    };
    match (state, call) {
        ('R', _) => "runs".into(),
        ('T' | 't', _) => "is stopped".into(),
        ('D', Some(call)) => format!("waits in {}, which cannot be interrupted", named(call)),
        ('D', None) => "waits for the system, and cannot be interrupted".into(),
        (_, Some(call)) if call >= 0 => format!("waits in {}", named(call)),
        _ => "waits".into(),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc::{Receiver, channel},
        thread::Builder,
    };

    use super::*;

    #[test]
    fn threads_are_told_by_what_they_wait_in() {
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let (sender, receiver): (_, Receiver<()>) = channel();
                let thread = Builder::new().name("a (waiter) x".into()).spawn(move || receiver.recv().is_ok()).unwrap();
                (sender, thread)
            })
            .collect();
        let told = || native_threads().into_iter().find(|thread| thread.name == "a (waiter) x" && thread.count == 3);
        let began = std::time::Instant::now();
        // Until all of them wait.
        while told().is_none_or(|thread| thread.does != "waits in a lock (futex)") {
            assert!(began.elapsed().as_secs() < 60, "{:?}", native_threads());
        }
        for (sender, thread) in waiters {
            drop(sender);
            thread.join().unwrap();
        }
    }

    #[test]
    fn what_is_not_known_is_told_by_its_number() {
        assert_eq!(what('S', Some(libc::SYS_read)), "waits in read");
        assert_eq!(what('S', Some(9999)), "waits in system call 9999");
        assert_eq!(what('S', None), "waits");
        assert_eq!(what('R', None), "runs");
    }
}
