use std::{
    fs::{self, File},
    io::{Read, Write},
    os::unix::process::ExitStatusExt,
    process::{Child, Command, ExitStatus},
    thread,
    time::Duration,
};

use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    pty::{OpenptyResult, Winsize, openpty},
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    disks::STEPS,
    fault::{Fault, Skip},
    recorded::recorded,
    scene::Scene,
};

pub(crate) fn faults() -> Vec<Fault> {
    let reads = [
        ("EIO while it follows a run", "read:EIO:rank-00000/spans:5"),
        ("stale handles while it follows a run", "read:ESTALE:rank-00000/:9"),
        ("reads that are late (200 ms)", "read:200:rank-0000:0"),
        ("no descriptor left (EMFILE)", "open:EMFILE:run/:9"),
    ];
    let reads = reads.map(|(name, rules)| {
        Fault::new("dashboard", name, move |scene| beside(scene, rules, |_| {}, |status| status.success()))
    });
    let mut faults = vec![
        Fault::new("dashboard", "it stands still (SIGSTOP)", |scene| {
            beside(scene, "", Live::stand_still, |status| status.success())
        }),
        Fault::new("dashboard", "it is killed (SIGKILL)", |scene| {
            beside(scene, "", |live| live.child.kill().unwrap(), |status| status.signal() == Some(9))
        }),
        Fault::new("dashboard", "its terminal is gone", |scene| {
            beside(scene, "", |live| live.terminal = None, |status| status.code() == Some(129))
        }),
        Fault::new("dashboard", "the run is removed", removed),
    ];
    faults.extend(reads);
    faults
}

/// A dashboard on a terminal of its own.
struct Live {
    child: Child,
    terminal: Option<File>,
}

impl Live {
    fn open(mut command: Command) -> Live {
        let size = Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        let OpenptyResult { master, slave } = openpty(Some(&size), None).unwrap();
        // It would hold its own terminal open.
        fcntl(&master, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
        command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(slave);
        let terminal = File::from(master);
        Live { child: command.spawn().unwrap(), terminal: Some(terminal) }
    }

    fn stand_still(&mut self) {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        kill(pid, Signal::SIGSTOP).unwrap();
        thread::sleep(Duration::from_secs(1));
        kill(pid, Signal::SIGCONT).unwrap();
    }

    /// Leaves it, if it has not ended; how it ended, and what it drew.
    fn leave(mut self, scene: &Scene) -> (ExitStatus, String) {
        let mut drawn = Vec::new();
        if let Some(mut terminal) = self.terminal.take() {
            let mut keys = terminal.try_clone().unwrap();
            let reading = thread::spawn(move || {
                let mut part = [0; 4096];
                // It ends with an error, once nobody holds the other side.
                while let Ok(bytes @ 1..) = terminal.read(&mut part) {
                    drawn.extend(&part[..bytes]);
                }
                drawn
            });
            // Whoever has ended takes no keys.
            drop(keys.write_all(b"q"));
            drop(keys);
            let status = self.wait(scene);
            drawn = reading.join().unwrap();
            return (status, String::from_utf8_lossy(&drawn).into_owned());
        }
        (self.wait(scene), String::new())
    }

    fn wait(&mut self, scene: &Scene) -> ExitStatus {
        let pid = self.child.id();
        scene.until("the dashboard ends", || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_none_or(|rest| rest.starts_with('Z'))
        });
        self.child.wait().unwrap()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        drop(self.child.kill());
    }
}

/// Something happens to a dashboard beside a job, which does not notice.
fn beside(
    scene: &Scene,
    rules: &str,
    happens: impl Fn(&mut Live),
    is_right: impl Fn(&ExitStatus) -> bool,
) -> Result<String, Skip> {
    let child = scene.start(scene.record(&[&STEPS.to_string()]));
    scene.until_steps(1 + scene.moment(20));
    let mut live = Live::open(scene.with_rules(scene.stepscope(&["live", "run"]), rules));
    thread::sleep(Duration::from_millis(400));
    happens(&mut live);
    let ended = scene.end(child);
    ended.assert_unchanged(STEPS);
    let (status, drawn) = live.leave(scene);
    assert!(!drawn.contains("panicked") && is_right(&status), "it ended with {status}: {drawn}");
    let found = recorded(&scene.run()).unwrap();
    assert_eq!(found.steps, STEPS);
    Ok(format!("the job's recording is whole; the dashboard ends with {}", status))
}

fn removed(scene: &Scene) -> Result<String, Skip> {
    let child = scene.start(scene.record(&[&STEPS.to_string()]));
    scene.until_steps(1 + scene.moment(20));
    let live = Live::open(scene.stepscope(&["live", "run"]));
    thread::sleep(Duration::from_millis(400));
    fs::remove_dir_all(scene.run()).unwrap();
    let ended = scene.end(child);
    ended.assert_unchanged(STEPS);
    let (status, drawn) = live.leave(scene);
    assert!(!drawn.contains("panicked"), "{drawn}");
    assert!(status.success(), "{status}: {drawn}");
    Ok("the job goes on; the dashboard waits, and ends when it is left".into())
}
