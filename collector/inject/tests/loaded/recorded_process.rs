//! The process that is recorded: what it does, by its mode.

use std::{
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::wait::{WaitStatus, waitpid},
    unistd::{ForkResult, fork},
};
use stepscope_collector::injection::Injection;
use stepscope_traces::Run;

use crate::{
    injected::Injected,
    nccl::communicate,
    nvtx::{across_threads, pop, push},
    windows_of,
};

/// Does what a mode says, and ends.
pub(crate) fn run(mode: &str) {
    let injected = Injected::load();
    if mode == "fork-first" {
        injected.nvtx_begins();
        // SAFETY: the child goes on as a program of its own, on its one thread.
        let child = unsafe { fork() }.unwrap();
        injected.cuda_begins();
        if let ForkResult::Parent { child } = child {
            assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 42));
        }
        std::process::exit(42);
    }
    if mode == "program" {
        injected.say_model(r#"{"layers": 2, "hidden": 64, "heads": 4, "ffn": 128, "vocabulary": 100}"#, 1024);
    }
    injected.cuda_begins();
    injected.cuda_begins();
    match mode {
        "exit" => {}
        // SAFETY: nothing comes after it.
        "_exit" => unsafe { nix::libc::_exit(7) },
        "abort" => std::process::abort(),
        "wait" => wait_until(|run| run.ranks.len() == 1),
        "two-windows" => wait_until(|run| windows_of(run) == 2),
        "nvtx" => {
            injected.nvtx_begins();
            push(c"epoch");
            push(c"ProfilerStep#4");
            push(c"forward");
            push(c"layer 1");
            (0..4).for_each(|_| pop());
            across_threads(c"transfer");
        }
        "program" => {
            injected.nvtx_begins();
            injected.begin_step(7);
            injected.add_tokens(1000.0);
            injected.begin_phase("backward");
            push(c"step 1");
            injected.begin_phase("bucket");
            injected.end();
            pop();
            injected.add_tokens(2000.0);
            injected.end();
            injected.end();
            push(c"step 2");
            pop();
        }
        "torch" => {
            const MODEL: &[u8] = b"stepscope_torch_model";
            injected.failed(c"memory", c"no such attribute");
            assert!(injected.found(b"stepscope_torch_groups", r#"[{"name": "mesh_tp", "ranks": [0, 3]}]"#));
            assert!(!injected.found(b"stepscope_torch_groups", "?"));
            assert!(!injected.found(MODEL, r#"{"configuration": {"model_type": "odd"}}"#));
            let counted = r#"{"name": "GPT", "layers": 2, "width": 8, "parameters": 100, "embeddings": 10,
                "matrices": 80, "vocabulary": 5, "longest_side": 5}"#;
            assert!(injected.found(MODEL, &format!(r#"{{"counted": {counted}, "sequence_length": 64}}"#)));
            injected.count_tokens(f64::NAN);
            // A backward pass; one inside of an optimizer, which calls back; an evaluation, and a checkpoint.
            injected.mark(&[0]);
            injected.count_tokens(64.0);
            injected.mark(&[1, 2, 6, 0]);
            injected.count_tokens(64.0);
            injected.mark(&[1, 7, 3, 8, 9, 10, 11, 99]);
        }
        "profiles" => {
            for step in 0..2 {
                thread::sleep(Duration::from_millis(30));
                injected.profiles(|| {
                    injected.begin_step(step);
                    thread::sleep(Duration::from_millis(50));
                    injected.end();
                });
                // It is said when that is over.
                let pauses = |run: &Run| run.ranks[0].info.collector.other_profiler.unwrap_or_default();
                wait_until(|run| {
                    pauses(run).count == step as u64 + 1 && pauses(run).nanos > 40_000_000 * pauses(run).count
                });
            }
        }
        "nccl" => (2..=6).for_each(|version| communicate(&injected, version)),
        "fork" => {
            injected.nvtx_begins();
            push(c"step 1");
            pop();
            // SAFETY: the child does what is being tested, and exits.
            match unsafe { fork() }.unwrap() {
                ForkResult::Child => {
                    push(c"step 2");
                    pop();
                    std::process::exit(5);
                }
                ForkResult::Parent { child } => {
                    assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 5));
                }
            }
            push(c"step 3");
            pop();
        }
        other => panic!("no such mode: {other}"),
    }
    std::process::exit(42);
}

/// Waits for something to be in the run, which it is within a minute.
fn wait_until(is_so: impl Fn(&Run) -> bool) {
    let path = Injection::of_this_process().unwrap().unwrap().run;
    let began = Instant::now();
    while !is_so(&Run::open(&path).unwrap()) {
        assert!(began.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(20));
    }
}
