//! A private Slurm of one node, which is this host.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// Its daemons, which end with it, and all that they started.
pub(crate) struct Slurm {
    daemons: Vec<Child>,
    folder: tempfile::TempDir,
}

impl Slurm {
    /// Starts the daemons and waits until the node is idle.
    ///
    /// # Errors
    /// If it cannot be had here: that takes root and the Debian packages munge and slurm-wlm.
    pub(crate) fn start() -> anyhow::Result<Self> {
        // Munge wants folders that only its user and root can write to, all the way up.
        let folder = tempfile::Builder::new()
            .prefix("ropewalk-slurm")
            .tempdir_in("/var/lib")?;
        let mut slurm = Self {
            daemons: Vec::new(),
            folder,
        };
        let path = |name: &str| slurm.folder.path().join(name).to_string_lossy().into_owned();
        fs::set_permissions(slurm.folder.path(), fs::Permissions::from_mode(0o755))?;
        for folder in ["munge", "state", "spool"] {
            fs::create_dir(path(folder))?;
        }
        fs::write(path("munge/key"), [42; 64])?;
        fs::set_permissions(path("munge/key"), fs::Permissions::from_mode(0o600))?;
        let owned = Command::new("chown")
            .args(["-R", "munge", &path("munge")])
            .status();
        ensure!(owned?.success(), "there is no user munge");
        let (conf, host) = (path("slurm.conf"), host_name()?);
        fs::write(
            &conf,
            configuration(&host, &slurm.folder.path().to_string_lossy()),
        )?;
        let mut munge = Command::new("runuser");
        munge.args(["-u", "munge", "--", "munged", "--force", "--foreground"]);
        for (option, name) in [
            ("key-file", "key"),
            ("socket", "socket"),
            ("pid-file", "pid"),
            ("log-file", "log"),
            ("seed-file", "seed"),
        ] {
            munge.arg(format!("--{option}={}", path(&format!("munge/{name}"))));
        }
        let mut controller = Command::new("slurmctld");
        controller.args(["-D", "-c", "-f", &conf]);
        let mut node = Command::new("slurmd");
        node.args(["-D", "-c", "-N", &host, "-f", &conf]);
        for mut daemon in [munge, controller, node] {
            daemon
                .env("SLURM_CONF", &conf)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let started = daemon
                .spawn()
                .with_context(|| format!("cannot start {daemon:?}"))?;
            slurm.daemons.push(started);
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let mut idle = slurm.command("sinfo");
            idle.args(["-h", "-t", "idle", "-o", "%D"]).stderr(Stdio::null());
            if String::from_utf8_lossy(&idle.output()?.stdout).trim() == "1" {
                return Ok(slurm);
            }
            ensure!(Instant::now() < deadline, "the node does not come up");
            sleep(Duration::from_millis(200));
        }
    }

    /// A command of Slurm's.
    pub(crate) fn command(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command
            .env("SLURM_CONF", self.folder.path().join("slurm.conf"))
            .stdin(Stdio::null());
        command
    }

    /// `srun` with PMI-2 and so many ranks, up to the program.
    pub(crate) fn srun(&self, ranks: u32) -> Command {
        let mut command = self.command("srun");
        command.args(["--mpi=pmi2", "-n", &ranks.to_string()]);
        command
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for child in &mut self.daemons {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
        // Step daemons left their session; they have our configuration in their environment.
        let conf = self.folder.path().to_string_lossy().into_owned();
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let environment = fs::read(process.path().join("environ")).unwrap_or_default();
            let name = process.file_name();
            let number = name.to_str().and_then(|name| name.parse().ok());
            if let Some(process) = number.and_then(Pid::from_raw)
                && process != rustix::process::getpid()
                && String::from_utf8_lossy(&environment).contains(&conf)
            {
                let _ = kill_process(process, Signal::KILL);
            }
        }
    }
}

/// The name of this host.
pub(crate) fn host_name() -> anyhow::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/hostname")?.trim().to_owned())
}

fn configuration(host: &str, folder: &str) -> String {
    format!(
        "ClusterName=ropewalk\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\n\
         AuthType=auth/munge\nAuthInfo=socket={folder}/munge/socket,cred_expire=10\n\
         ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n\
         SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nMpiDefault=pmi2\nReturnToService=2\n\
         SlurmdParameters=config_overrides\nSlurmctldPort=26827\nSlurmdPort=26828\n\
         StateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool\nSlurmctldPidFile={folder}/slurmctld.pid\n\
         SlurmdPidFile={folder}/slurmd.pid\nSlurmctldLogFile={folder}/slurmctld.log\n\
         SlurmdLogFile={folder}/slurmd.log\nNodeName={host} NodeAddr=127.0.0.1 CPUs=128 State=UNKNOWN\n\
         PartitionName=all Nodes={host} Default=YES OverSubscribe=FORCE State=UP\n"
    )
}
