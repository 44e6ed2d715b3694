//! Slurm's daemons, which listen on loopback only and end with the test.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, User, geteuid, gethostname},
};
use tempfile::TempDir;

use crate::skipped::skipped;

const NODES: u32 = 4;
/// Longer than anything here takes on a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Two switches with two nodes each, below another one.
const TOPOLOGY: &str =
    "SwitchName=leaf0 Nodes=n[1-2]\nSwitchName=leaf1 Nodes=n[3-4]\nSwitchName=spine Switches=leaf[0-1]\n";
/// Where Debian has daemons.
const DAEMONS: &str = "/usr/sbin:/usr/bin:/bin";

/// A cluster, and a directory to work in.
pub(super) struct Cluster {
    directory: TempDir,
    daemons: Vec<Child>,
}

impl Cluster {
    /// Starts one; none where Slurm or MUNGE is not installed.
    pub(super) fn start() -> Option<Cluster> {
        for daemon in ["munged", "slurmctld", "slurmd", "srun", "scancel"] {
            if !DAEMONS.split(':').any(|folder| Path::new(folder).join(daemon).exists()) {
                skipped("slurm", &format!("there is no {daemon}"));
                return None;
            }
        }
        let mut cluster = Cluster { directory: tempfile::tempdir().unwrap(), daemons: Vec::new() };
        cluster.start_munge();
        fs::write(cluster.at("slurm.conf"), cluster.configuration()).unwrap();
        fs::write(cluster.at("topology.conf"), TOPOLOGY).unwrap();
        for folder in ["state", "cache"] {
            fs::create_dir(cluster.at(folder)).unwrap();
        }
        cluster.daemon("slurmctld", &["-D", "-c"]);
        for node in 1..=NODES {
            fs::create_dir_all(cluster.at(&format!("spool/n{node}"))).unwrap();
            cluster.daemon("slurmd", &["-D", "-N", &format!("n{node}")]);
        }
        cluster.until("all nodes are idle", || {
            let sinfo = cluster.command("sinfo").args(["--noheader", "--format", "%D %T"]).output().unwrap();
            String::from_utf8_lossy(&sinfo.stdout).trim() == format!("{NODES} idle")
        });
        Some(cluster)
    }

    fn start_munge(&mut self) {
        fs::write(self.at("munge.key"), std::iter::repeat_with(|| fastrand::u8(..)).take(1024).collect::<Vec<u8>>())
            .unwrap();
        fs::set_permissions(self.at("munge.key"), fs::Permissions::from_mode(0o400)).unwrap();
        let options = [
            ("key-file", "munge.key"),
            ("socket", "munge.socket"),
            ("pid-file", "munged.pid"),
            ("log-file", "munged.log"),
            ("seed-file", "munged.seed"),
        ];
        let options = options.map(|(option, file)| format!("--{option}={}", self.at(file).display()));
        // The directory is this user's alone, which it takes for a mistake.
        let mut arguments = vec!["--foreground", "--force"];
        arguments.extend(options.iter().map(String::as_str));
        self.daemon("munged", &arguments);
        self.until("munged listens", || self.at("munge.socket").exists());
    }

    fn configuration(&self) -> String {
        let host = gethostname().unwrap().into_string().unwrap();
        let host = host.split('.').next().unwrap();
        let user = User::from_uid(geteuid()).unwrap().unwrap().name;
        let at = |name: &str| self.at(name).display().to_string();
        let mut text = format!(
            "ClusterName=stepscope\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={}\nSlurmUser={user}\nSlurmdUser={user}\n\
             AuthType=auth/munge\nAuthInfo=socket={},cred_expire=5\nCommunicationParameters=NoInAddrAny,NoCtldInAddrAny\n\
             SlurmdParameters=config_overrides\nStateSaveLocation={}\nSlurmdSpoolDir={}/%n\nSlurmctldPidFile={}\n\
             SlurmdPidFile={}-%n.pid\nSlurmctldLogFile={}\nSlurmdLogFile={}-%n.log\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSwitchType=switch/none\nMpiDefault=none\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nJobAcctGatherType=jobacct_gather/none\n\
             AccountingStorageType=accounting_storage/none\nReturnToService=2\nKillWait=2\nInactiveLimit=0\n\
             TopologyPlugin=topology/tree\nPreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n",
            free_port(),
            at("munge.socket"),
            at("state"),
            at("spool"),
            at("slurmctld.pid"),
            at("slurmd"),
            at("slurmctld.log"),
            at("slurmd"),
        );
        for node in 1..=NODES {
            text += &format!(
                "NodeName=n{node} NodeHostname={host} NodeAddr=127.0.0.1 Port={} CPUs=4 RealMemory=1000\n",
                free_port()
            );
        }
        text + &format!("PartitionName=main Nodes=n[1-{NODES}] Default=YES MaxTime=INFINITE State=UP\n")
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// A command of Slurm's, in the directory.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.path()).stdin(Stdio::null());
        command.env("PATH", DAEMONS).env("SLURM_CONF", self.at("slurm.conf")).env("XDG_CACHE_HOME", self.at("cache"));
        let of_a_job = std::env::vars().filter(|(name, _)| name.starts_with("SLURM_") && name != "SLURM_CONF");
        of_a_job.for_each(|(name, _)| _ = command.env_remove(name));
        command
    }

    /// This program, as tasks of a job.
    pub(super) fn srun(&self, options: &[&str], arguments: &[&str]) -> Command {
        let mut command = self.command("srun");
        command.args(options).arg(env!("CARGO_BIN_EXE_stepscope")).args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn daemon(&mut self, program: &str, arguments: &[&str]) {
        let log = fs::File::create(self.at(&format!("{program}-{}.out", self.daemons.len()))).unwrap();
        let mut command = self.command(program);
        command.args(arguments).stdout(log.try_clone().unwrap()).stderr(log);
        self.daemons.push(command.spawn().unwrap());
    }

    /// Waits for something, which comes.
    pub(super) fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_so() {
            if began.elapsed() > PATIENCE {
                let logs = fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().path());
                let logs = logs.filter(|path| path.extension().is_some_and(|is| is == "log" || is == "out"));
                let logs: Vec<String> = logs.map(|log| fs::read_to_string(log).unwrap_or_default()).collect();
                panic!("{what}: not within {PATIENCE:?}\n{}", logs.concat());
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let user = User::from_uid(geteuid()).ok().flatten().map(|user| user.name).unwrap_or_default();
        drop(self.command("scancel").args(["--signal=KILL", "--user", &user]).status());
        let began = Instant::now();
        let jobs = || self.command("squeue").arg("--noheader").output().is_ok_and(|jobs| !jobs.stdout.is_empty());
        while jobs() && began.elapsed() < PATIENCE {
            thread::sleep(LOOK_EVERY);
        }
        for mut daemon in self.daemons.drain(..).rev() {
            let _ = kill(Pid::from_raw(daemon.id().cast_signed()), Signal::SIGTERM);
            drop(daemon.wait());
        }
    }
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}
