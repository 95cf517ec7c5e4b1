//! Real sshd on two hosts.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use super::{DETECT, ROPEWALK, SLACK, network::Network, text, wait};

const PORT: &str = "2222";
const SERVERS: [u8; 2] = [1, 2];
/// How long sshd may take to let somebody in, on busy cores.
const LOGIN: Duration = Duration::from_secs(10);

/// The servers, which end with it.
struct Servers {
    processes: Vec<Child>,
    folder: PathBuf,
}

impl Servers {
    fn start(network: &Network) -> Self {
        let folder = network.folder().join("ssh");
        fs::create_dir(&folder).unwrap();
        for key in ["host_key", "user_key"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(folder.join(key))
                .status()
                .expect("ssh-keygen is missing: install the Debian package openssh-client");
            assert!(made.success());
        }
        let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        fs::copy(path("user_key.pub"), path("authorized_keys")).unwrap();
        let host_key = fs::read_to_string(path("host_key.pub")).unwrap();
        let known: Vec<_> = SERVERS
            .iter()
            .map(|host| format!("[{}]:{PORT} {host_key}", network.address(10 + host)))
            .collect();
        fs::write(path("known_hosts"), known.concat()).unwrap();
        let configuration = format!(
            "Port {PORT}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\nUsePAM no\n\
             PermitRootLogin yes\nPasswordAuthentication no\nLogLevel DEBUG3\n",
            path("host_key"),
            path("authorized_keys")
        );
        fs::write(path("sshd_config"), configuration).unwrap();
        // sshd wants it, and a system that is not started by systemd may not have it.
        fs::create_dir_all("/run/sshd").unwrap();
        let start = |host: &u8| {
            let log = path(&format!("log{host}"));
            let words = ["/usr/sbin/sshd", "-D", "-f", &path("sshd_config"), "-E", &log];
            let child = network.on(*host, &words).stdin(Stdio::null()).spawn().unwrap();
            let deadline = Instant::now() + Duration::from_secs(20);
            while !fs::read_to_string(&log)
                .unwrap_or_default()
                .contains("Server listening")
            {
                let said = fs::read_to_string(&log);
                assert!(
                    Instant::now() < deadline,
                    "sshd (Debian package openssh-server): {said:?}"
                );
                sleep(Duration::from_millis(20));
            }
            child
        };
        Self {
            processes: SERVERS.iter().map(start).collect(),
            folder,
        }
    }

    /// The options that Hydra's variable gives to ssh.
    fn options(&self) -> String {
        let path = |name: &str| self.folder.join(name).to_str().unwrap().to_owned();
        format!(
            "-F /dev/null -p {PORT} -i {} -o StrictHostKeyChecking=yes -o UserKnownHostsFile={} -v",
            path("user_key"),
            path("known_hosts")
        )
    }
}

impl Servers {
    /// Nothing but the servers is left on the hosts, two seconds from now at the latest.
    fn assert_none_left(&self, network: &Network) {
        let deadline = Instant::now() + Duration::from_secs(2);
        for host in SERVERS {
            loop {
                let left = self.left_on(network, host);
                if left.is_empty() {
                    break;
                }
                assert!(Instant::now() < deadline, "left on host {host}: {left:?}");
                sleep(Duration::from_millis(10));
            }
        }
    }

    /// The processes on a host but for its server, with their arguments.
    fn left_on(&self, network: &Network, host: u8) -> Vec<String> {
        let servers: Vec<_> = self
            .processes
            .iter()
            .map(|child| child.id().to_string())
            .collect();
        let pids = network
            .pids_on(host)
            .into_iter()
            .filter(|pid| !servers.contains(pid));
        let named = pids.map(|pid| {
            let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            format!("{pid} {}", String::from_utf8_lossy(&arguments).replace('\0', " "))
        });
        named.collect()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in &mut self.processes {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Over ssh, from the launcher to the first host and from there to the second, ranks run; nobody but the agents and
/// their ranks learns the job's key: it stands in no argument, environment or log.
#[test]
fn ssh_starts_agents_in_a_tree() {
    let Some(network) = Network::new(75) else {
        return;
    };
    let servers = Servers::start(&network);
    let hosts = SERVERS.map(|host| network.address(10 + host)).join(",");
    // Who asks on a rank's link (`ToAgent::Join`, the sixth message) gets the job's number and key; the rank then
    // stays until all was looked at.
    let (ready, go) = (network.folder().join("ready"), network.folder().join("go"));
    let script = format!(
        "hostname; echo job $ROPEWALK_JOB_ID
         printf '\\005' >&$ROPEWALK_AGENT_FD
         echo message $(dd bs=4096 count=1 <&$ROPEWALK_AGENT_FD 2>/dev/null | od -v -An -tx1 | tr -d ' \\n')
         echo $RANK >>{}; while [ ! -e {} ]; do sleep 0.05; done",
        ready.display(),
        go.display()
    );
    let job = Command::new(ROPEWALK)
        .args([
            "run", "-hosts", &hosts, "-n", "2", "--arity", "1", "-l", "sh", "-c", &script,
        ])
        .env("HYDRA_LAUNCHER_EXTRA_ARGS", servers.options())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while fs::read_to_string(&ready).unwrap_or_default().lines().count() < 2 {
        if Instant::now() >= deadline {
            fs::write(&go, "").unwrap();
            panic!("the ranks did not start: {:?}", job.wait_with_output());
        }
        sleep(Duration::from_millis(20));
    }
    let mut public = Vec::new();
    for process in fs::read_dir("/proc").unwrap() {
        for file in ["cmdline", "environ"] {
            public.extend(fs::read(process.as_ref().unwrap().path().join(file)).unwrap_or_default());
        }
    }
    fs::write(&go, "").unwrap();
    let output = job.wait_with_output().unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stderr}");
    for (rank, host, above) in [(0, 1, network.address(1)), (1, 2, network.address(11))] {
        let line = format!("[{rank}] host{host}");
        assert!(
            stdout.lines().any(|found| found == line),
            "no {line:?} in {stdout}"
        );
        let log = fs::read_to_string(log(&servers.folder, host)).unwrap();
        assert!(log.contains(&format!("Connection from {above}")), "{log}");
    }
    let key = key_in(&stdout);
    for host in SERVERS {
        public.extend(fs::read(log(&servers.folder, host)).unwrap());
    }
    public.extend(output.stderr);
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    for secret in [
        &key[..8],
        &key[24..],
        &hex.as_bytes()[..16],
        &hex.to_uppercase().as_bytes()[..16],
    ] {
        assert!(
            !public.windows(secret.len()).any(|found| found == secret),
            "the key is public"
        );
    }
    drop(servers);
}

/// The agent of the first host is killed, which started that of the second: sshd there does not end what it
/// started, the launcher finds it, and its rank goes on to its end.
#[test]
fn the_host_behind_a_lost_one_goes_on() {
    let Some(network) = Network::new(81) else {
        return;
    };
    let servers = Servers::start(&network);
    let hosts = SERVERS.map(|host| network.address(10 + host)).join(",");
    // An agent that has not come up when the one above it dies dies with that.
    let script = format!(
        "if [ $RANK = 0 ]; then while [ ! -e {up} ]; do sleep 0.05; done; kill -KILL $PPID; sleep 100; fi
         touch {up}
         for round in $(seq 30); do seq -f \"$round %g\" 1000; sleep 0.1; done; echo done on $(hostname)",
        up = network.folder().join("up").display()
    );
    let output = Command::new(ROPEWALK)
        .args([
            "run",
            "-hosts",
            &hosts,
            "-n",
            "2",
            "--arity",
            "1",
            "--detect",
            "2",
            "--timeout",
            "60",
            "--on-failure",
            "continue",
            "sh",
            "-c",
            &script,
        ])
        .env("HYDRA_LAUNCHER_EXTRA_ARGS", servers.options())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    let mut expected: Vec<_> = (1..=30)
        .flat_map(|round| (1..=1000).map(move |number| format!("{round} {number}")))
        .collect();
    expected.push("done on host2".to_owned());
    assert!(stdout.lines().eq(expected.iter().map(String::as_str)), "{stderr}");
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    let named = format!("the agent on host {} was killed by signal 9", network.address(11));
    assert!(stderr.contains(&named), "{stderr}");
    drop(servers);
}

/// A host on which nobody answers ssh, and one whose name nobody knows, beside one where all is well, right
/// below the launcher and below another host: the verdict names it and what ssh said, soon, and on the others
/// nothing stays.
#[test]
fn a_host_that_ssh_cannot_reach_is_named() {
    let Some(network) = Network::new(82) else {
        return;
    };
    let servers = Servers::start(&network);
    let refusing = network.address(13);
    for (bad, said) in [
        (refusing.as_str(), "Connection refused"),
        ("no-such-host.invalid", "Could not resolve hostname"),
    ] {
        let hosts = [&network.address(11), bad, &network.address(12)].join(",");
        let detect = DETECT.as_secs().to_string();
        for arity in ["1", "3"] {
            let mut words = vec![ROPEWALK, "run", "-hosts", &hosts, "-n", "3", "--arity", arity];
            words.extend(["--detect", &detect, "sleep", "100"]);
            // From where no name server can be reached, so that it is known at once that there is no such name.
            let job = network
                .on(4, &words)
                .env("HYDRA_LAUNCHER_EXTRA_ARGS", servers.options())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let output = wait(job, LOGIN + DETECT + SLACK);
            let stderr = text(&output.stderr);
            assert_eq!(output.status.code(), Some(125), "{stderr}");
            let verdict = stderr.lines().rfind(|line| line.starts_with("ropewalk: "));
            assert!(
                verdict.is_some_and(|verdict| verdict.contains(&format!("host {bad} "))),
                "{stderr}"
            );
            assert!(stderr.contains(said), "{stderr}");
            servers.assert_none_left(&network);
        }
    }
}

/// The launcher is killed: within two seconds nothing of the job is left on the hosts behind ssh, neither
/// agents nor ranks nor what those started in sessions of their own, nor what sshd did for them.
#[test]
fn a_killed_launcher_leaves_nothing_behind_ssh() {
    let Some(network) = Network::new(83) else {
        return;
    };
    let servers = Servers::start(&network);
    let hosts = SERVERS.map(|host| network.address(10 + host)).join(",");
    let script = "setsid env -i sleep 100 & setsid -f sleep 100; sleep 100 & echo up; exec sleep 100";
    for arity in ["1", "2"] {
        let mut job = Command::new(ROPEWALK)
            .args([
                "run", "-hosts", &hosts, "-n", "4", "--arity", arity, "sh", "-c", script,
            ])
            .env("HYDRA_LAUNCHER_EXTRA_ARGS", servers.options())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(job.stdout.take().unwrap());
        for _ in 0..4 {
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            assert_eq!(line, "up\n");
        }
        for host in SERVERS {
            let count = servers.left_on(&network, host).len();
            // Two ranks, each with the three that it started, and the agent.
            assert!(count > 2 * 4, "{count} processes on host {host}");
        }
        job.kill().unwrap();
        job.wait().unwrap();
        servers.assert_none_left(&network);
    }
}

fn log(folder: &Path, host: u8) -> PathBuf {
    folder.join(format!("log{host}"))
}

/// The key follows the job's number in the message that a rank got.
fn key_in(stdout: &str) -> Vec<u8> {
    let word = |name: &str| {
        let prefix = format!("[0] {name} ");
        stdout
            .lines()
            .find_map(|line| line.strip_prefix(&prefix))
            .unwrap()
            .to_owned()
    };
    let (job, message) = (word("job"), word("message"));
    let at = message
        .find(&job)
        .unwrap_or_else(|| panic!("no {job} in {message}"));
    let hex = &message[at + job.len()..][..64];
    (0..32)
        .map(|index| u8::from_str_radix(&hex[2 * index..][..2], 16).unwrap())
        .collect()
}
