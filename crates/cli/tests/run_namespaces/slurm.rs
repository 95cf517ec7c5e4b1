//! A private Slurm with two nodes.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use super::{
    ROPEWALK, meeting,
    mpi::ring_is_whole,
    network::Network,
    rig::{compile, compile_mpi, libraries},
    text,
};

const NODES: [u8; 2] = [1, 2];
/// Where its controller runs and jobs come from: another host, so that its ports are nobody else's.
const FRONT_END: u8 = 3;
const PATIENCE: Duration = Duration::from_secs(120);

/// Its daemons, which end with it, and all that they started.
pub(super) struct Slurm {
    daemons: Vec<Child>,
    folder: tempfile::TempDir,
    /// The launcher's address for the nodes.
    address: String,
}

impl Slurm {
    pub(super) fn start(network: &Network) -> Self {
        // Munge wants folders that only its user and root can write to, all the way up.
        let folder = tempfile::Builder::new()
            .prefix("ropewalk-slurm")
            .tempdir_in("/var/lib")
            .unwrap();
        let mut slurm = Self {
            daemons: Vec::new(),
            folder,
            address: network.address(10 + FRONT_END),
        };
        let path = |name: &str| slurm.folder.path().join(name).to_str().unwrap().to_owned();
        fs::set_permissions(slurm.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for folder in ["munge", "state", "spool-host1", "spool-host2"] {
            fs::create_dir(path(folder)).unwrap();
        }
        fs::write(path("munge/key"), [42; 64]).unwrap();
        fs::set_permissions(path("munge/key"), fs::Permissions::from_mode(0o600)).unwrap();
        let owned = Command::new("chown")
            .args(["-R", "munge", &path("munge")])
            .status();
        assert!(owned.unwrap().success(), "install the Debian package munge");
        fs::write(path("slurm.conf"), configuration(network, slurm.folder.path())).unwrap();
        let mut munge = Command::new("runuser");
        munge
            .args(["-u", "munge", "--", "munged", "--force", "--foreground"])
            .args([
                format!("--key-file={}", path("munge/key")),
                format!("--socket={}", path("munge/socket")),
                format!("--pid-file={}", path("munge/pid")),
                format!("--log-file={}", path("munge/log")),
                format!("--seed-file={}", path("munge/seed")),
            ]);
        let conf = path("slurm.conf");
        let controller = network.on(FRONT_END, &["slurmctld", "-D", "-c", "-f", &conf]);
        let nodes = NODES.map(|host| {
            let name = format!("host{host}");
            network.on(host, &["slurmd", "-D", "-c", "-N", &name, "-f", &conf])
        });
        for daemon in [munge, controller].into_iter().chain(nodes) {
            let mut daemon = daemon;
            daemon
                .env("SLURM_CONF", &conf)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            slurm.daemons.push(
                daemon
                    .spawn()
                    .expect("install the Debian packages munge and slurm-wlm"),
            );
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let words = ["sinfo", "-h", "-t", "idle", "-o", "%D"];
            let idle = slurm
                .command(network, &words)
                .stderr(Stdio::null())
                .output()
                .unwrap();
            if text(&idle.stdout).trim() == NODES.len().to_string() {
                return slurm;
            }
            let log = fs::read_to_string(slurm.folder.path().join("slurmctld.log"));
            assert!(Instant::now() < deadline, "Slurm's nodes do not come up: {log:?}");
            sleep(Duration::from_millis(200));
        }
    }

    fn command(&self, network: &Network, words: &[&str]) -> Command {
        let mut command = network.on(FRONT_END, words);
        command.env("SLURM_CONF", self.folder.path().join("slurm.conf"));
        command
    }

    pub(super) fn output(&self, network: &Network, words: &[&str]) -> std::process::Output {
        let mut command = assert_cmd::Command::from_std(self.command(network, words));
        command
            .env("ROPEWALK_LIBRARY_DIR", libraries())
            .timeout(PATIENCE)
            .output()
            .unwrap()
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        let conf = self.folder.path().to_str().unwrap().to_owned();
        for child in &mut self.daemons {
            let _ = child.kill();
            let _ = child.wait();
        }
        // Step daemons left their session.
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let arguments = fs::read(process.path().join("environ")).unwrap_or_default();
            let number = process
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<i32>().ok());
            let number = number.and_then(rustix::process::Pid::from_raw);
            if let Some(process) = number
                && process != rustix::process::getpid()
                && String::from_utf8_lossy(&arguments).contains(&conf)
            {
                let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
            }
        }
    }
}

fn configuration(network: &Network, folder: &Path) -> String {
    let folder = folder.display();
    let nodes = NODES.map(|host| {
        let address = network.address(10 + host);
        format!("NodeName=host{host} NodeAddr={address} CPUs=16 State=UNKNOWN\n")
    });
    let nodes = nodes.concat();
    let address = network.address(10 + FRONT_END);
    format!(
        "ClusterName=ropewalk\nSlurmctldHost=host{FRONT_END}({address})\nSlurmUser=root\nSlurmdUser=root\n\
         AuthType=auth/munge\nAuthInfo=socket={folder}/munge/socket,cred_expire=10\nProctrackType=proctrack/linuxproc\n\
         TaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\nSelectType=select/cons_tres\n\
         SelectTypeParameters=CR_CPU\nSchedulerParameters=sched_interval=1\nMpiDefault=pmi2\nReturnToService=2\n\
         SlurmdParameters=config_overrides\n\
         SlurmctldPort=26817\nSlurmdPort=26818\nStateSaveLocation={folder}/state\n\
         SlurmdSpoolDir={folder}/spool-%n\nSlurmctldPidFile={folder}/slurmctld.pid\n\
         SlurmdPidFile={folder}/slurmd-%n.pid\nSlurmctldLogFile={folder}/slurmctld.log\n\
         SlurmdLogFile={folder}/slurmd-%n.log\n{nodes}\
         PartitionName=all Nodes=host1,host2 Default=YES OverSubscribe=FORCE State=UP\n"
    )
}

/// Inside an allocation, `ropewalk run` takes hosts and slots from Slurm and has srun start its agents; MPI
/// programs run. Programs over our libraries and over our client in Rust, in either version of PMI, and
/// MPICH's run under Slurm's own `srun --mpi=pmi2`. The processes with our client are this test program
/// itself.
#[test]
fn slurm_starts_agents_and_our_libraries_speak_with_it() {
    if env::var_os(meeting::ROLE).is_some() {
        return meeting::meet();
    }
    let Some(network) = Network::new(76) else {
        return;
    };
    let slurm = Slurm::start(&network);
    let inside = |words: &[&str]| {
        let run = [ROPEWALK, "run", "-iface", &slurm.address];
        slurm.output(
            &network,
            &[&["salloc", "--quiet", "-N2", "-n4"], &run[..], words].concat(),
        )
    };
    let output = inside(&["-n", "4", "-l", "hostname"]);
    assert!(output.status.success(), "{output:?}");
    let stdout = text(&output.stdout);
    assert!(
        stdout.contains("[0] host1") && stdout.contains("[3] host2"),
        "{stdout}"
    );
    for compiler in ["mpicc.mpich", "mpicc.openmpi"] {
        let program = compile_mpi(compiler, "ring.c", network.folder());
        ring_is_whole(&inside(&["-n", "4", program.to_str().unwrap()]), 4);
    }
    let failed = inside(&["-n", "4", "sh", "-c", "[ $RANK != 3 ] || exit 7; sleep 100"]);
    assert_eq!(failed.status.code(), Some(7), "{failed:?}");
    assert!(
        text(&failed.stderr).contains("rank 3 on host host2 exited with code 7"),
        "{failed:?}"
    );
    let without_way = [
        ROPEWALK,
        "run",
        "-iface",
        "127.0.0.1",
        "--detect",
        "1",
        "-n",
        "4",
        "true",
    ];
    let lost = slurm.output(
        &network,
        &[&["salloc", "--quiet", "-N2", "-n4"], &without_way[..]].concat(),
    );
    assert_eq!(lost.status.code(), Some(125), "{lost:?}");
    assert!(text(&lost.stderr).contains("the agent on host host"), "{lost:?}");
    let mpich = compile_mpi("mpicc.mpich", "ring.c", network.folder());
    ring_is_whole(
        &slurm.output(
            &network,
            &["srun", "--mpi=pmi2", "-N2", "-n4", mpich.to_str().unwrap()],
        ),
        4,
    );
    for (source, library) in [("pmi1.c", "pmi"), ("pmi2.c", "pmi2")] {
        let program = compile(&format!("tests/pmi_c/{source}"), &[library], network.folder());
        for tasks in ["1", "2", "5"] {
            let output = slurm.output(
                &network,
                &["srun", "--mpi=pmi2", "-n", tasks, program.to_str().unwrap()],
            );
            assert!(output.status.success(), "{output:?}");
            let content = text(&output.stdout).matches("is content").count();
            assert_eq!(content.to_string(), tasks, "{output:?}");
        }
    }
    let program = env::current_exe().unwrap();
    for dialect in ["pmi1", "pmi2", "any"] {
        let role = format!("{}={dialect}", meeting::ROLE);
        let srun = [
            "srun",
            "--mpi=pmi2",
            "-N2",
            "-n4",
            "env",
            &role,
            program.to_str().unwrap(),
        ];
        let test = "slurm::slurm_starts_agents_and_our_libraries_speak_with_it";
        let output = slurm.output(&network, &[&srun[..], &[test, "--exact", "--nocapture"]].concat());
        assert!(output.status.success(), "{dialect}: {output:?}");
        let met = text(&output.stdout).matches("met 0 1 2 3").count();
        assert_eq!(met, 4, "{dialect}: {output:?}");
    }
}

/// Under Slurm's own `srun`, which is told to let the others live, a rank is killed while it reduces, on one node or
/// two: the others get an error that names it, or go on without it, or have its contribution from the other node.
#[test]
fn ranks_under_srun_go_on_without_a_lost_one() {
    let Some(network) = Network::new(79) else {
        return;
    };
    let slurm = Slurm::start(&network);
    let program = Path::new(ROPEWALK)
        .with_file_name("examples")
        .join("reduce_foreign");
    for (way, victim, nodes) in [("fail", 2, "-N1"), ("exclude", 0, "-N2"), ("copies", 3, "-N2")] {
        let victim_word = victim.to_string();
        let srun = ["srun", "--mpi=pmi2", "--kill-on-bad-exit=0", nodes, "-n4"];
        let words = [program.to_str().unwrap(), way, &victim_word, "500"];
        let output = slurm.output(&network, &[&srun[..], &words].concat());
        let stdout = text(&output.stdout);
        let mut lines: Vec<&str> = stdout.lines().collect();
        lines.sort_unstable();
        let told = match way {
            "fail" => format!("contributions were lost with rank {victim}"),
            "copies" => "all contributions counted".to_owned(),
            _ => format!("went on without [{victim}]"),
        };
        let others = (0..4).filter(|rank| *rank != victim);
        let expected: Vec<String> = others.map(|rank| format!("rank {rank}: {told}")).collect();
        assert_eq!(lines, expected, "{output:?}");
    }
}
