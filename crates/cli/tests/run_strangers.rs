//! `ropewalk run` while others of the machine connect to its ports who have no business there.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader, Read, Write},
    iter,
    net::{Ipv4Addr, TcpStream},
    os::{
        fd::OwnedFd,
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixStream},
    },
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    net::{AddressFamily, SendFlags, SocketAddrUnix, SocketType, send, socket},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use tempfile::TempDir;

use rig::{ROPEWALK, handshake};

const IDLE: usize = 1000;

/// A process and all that it and they started.
fn descendants(of: u32) -> BTreeSet<u32> {
    let mut parents = BTreeMap::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name before it may have any letters.
        let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1));
        if let (Ok(pid), Some(Ok(parent))) = (
            entry.file_name().to_string_lossy().parse::<u32>(),
            parent.map(str::parse::<u32>),
        ) {
            parents.insert(pid, parent);
        }
    }
    let mut found = BTreeSet::from([of]);
    loop {
        let more: Vec<_> = parents
            .iter()
            .filter(|(pid, parent)| found.contains(parent) && !found.contains(pid))
            .map(|(&pid, _)| pid)
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

/// The numbers of the sockets that processes have.
fn sockets(of: &BTreeSet<u32>) -> BTreeSet<String> {
    let mut sockets = BTreeSet::new();
    for pid in of {
        for entry in fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let target = fs::read_link(entry.path()).unwrap_or_default();
            let target = target.to_string_lossy().into_owned();
            let number = target
                .strip_prefix("socket:[")
                .and_then(|rest| rest.strip_suffix(']'));
            sockets.extend(number.map(str::to_owned));
        }
    }
    sockets
}

/// The names at which processes listen on this host with sockets of a type (proc(5): flag 10000, the fifth
/// word the type, the seventh the socket's number, the eighth the name, `@` for the zero before one that is
/// of no file system).
fn names(of: &BTreeSet<u32>, kind: SocketType) -> BTreeSet<String> {
    let sockets = sockets(of);
    let table = fs::read_to_string("/proc/net/unix").unwrap();
    let listening = table.lines().filter_map(|line| {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let is_of_kind = u32::from_str_radix(words.get(4)?, 16) == Ok(kind.as_raw());
        let is_ours = is_of_kind && words[3] == "00010000" && sockets.contains(*words.get(6)?);
        words
            .get(7)?
            .strip_prefix('@')
            .filter(|_| is_ours)
            .map(str::to_owned)
    });
    listening.collect()
}

/// The TCP ports on which processes listen (proc(5): the state is 0A, the tenth word the socket's number).
fn ports(of: &BTreeSet<u32>) -> BTreeSet<u16> {
    let sockets = sockets(of);
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let listening = table.lines().filter_map(|line| {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let is_ours = words.get(3) == Some(&"0A") && sockets.contains(*words.get(9)?);
        let (address, port) = words.get(1)?.split_once(':')?;
        assert!(
            !is_ours || address == "0100007F",
            "a local job listens on {address}"
        );
        is_ours.then(|| u16::from_str_radix(port, 16).unwrap())
    });
    listening.collect()
}

fn connect(port: u16) -> Option<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    Some(stream)
}

fn connect_locally(name: &str) -> Option<UnixStream> {
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let stream = UnixStream::connect_addr(&address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    Some(stream)
}

fn connect_as_advisor(name: &str) -> OwnedFd {
    let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    rustix::net::connect(&socket, &address).unwrap();
    socket
}

/// Says words that prove nothing, which get no answer: at most the greeting that all get, and an end.
fn say(stream: Option<impl Read + Write>, words: &[u8]) {
    let Some(mut stream) = stream else {
        return;
    };
    // It may be dropped in the middle.
    let _ = stream.write_all(words);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.len() <= 256, "{} bytes for a stranger", answer.len());
}

/// The job of a process, which is no secret.
fn job_of(pid: u32) -> Option<[u8; 16]> {
    let environment = fs::read_to_string(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = environment.split('\0');
    let digits = variables.find_map(|variable| variable.strip_prefix("ROPEWALK_JOB_ID="))?;
    u128::from_str_radix(digits, 16).ok().map(u128::to_be_bytes)
}

/// Greets as each member of the job would, and has no key: what it sends for a proof is the answerer's own. Returns how
/// often it was answered.
fn pretend(port: u16, job: [u8; 16]) -> usize {
    let members = [(0, 0, 0), (0, 1, 0), (1, 0, 0), (2, 0, 0), (2, 1, 7)];
    let answered = members.iter().filter(|&&(role, rank, incarnation)| {
        let Some(mut stream) = connect(port) else {
            return false;
        };
        let identity = handshake::identity(role, rank, incarnation);
        let Some((_, proof)) = handshake::answer(&mut stream, &handshake::greeting(job, identity, 5)) else {
            return false;
        };
        // It may be dropped already.
        let _ = stream.write_all(&proof);
        assert!(handshake::is_dropped(stream, Duration::from_secs(20)));
        true
    });
    answered.count()
}

/// Says to somebody what it has said itself, greeting and proof, as if that were one's own.
fn replay(port: u16, job: [u8; 16]) {
    let greeting = handshake::greeting(job, handshake::identity(0, 1, 0), 5);
    let recorded = connect(port).and_then(|mut stream| handshake::answer(&mut stream, &greeting));
    let Some((greeting, proof)) = recorded else {
        return;
    };
    say(connect(port), &[&greeting[..], &proof].concat());
}

/// Says these words so slowly that it is dropped before their end.
fn drip(stream: Option<TcpStream>, words: &[u8]) {
    let Some(mut stream) = stream else {
        return;
    };
    let dropped = words.iter().any(|&byte| {
        thread::sleep(Duration::from_millis(100));
        stream.write_all(&[byte]).is_err()
    });
    assert!(dropped, "{} bytes took {} ms", words.len(), 100 * words.len());
}

/// A job whose ranks wait, and then say much.
struct Waiting {
    job: Child,
    stdout: BufReader<ChildStdout>,
    folder: TempDir,
    ranks: usize,
}

impl Waiting {
    const LINES: usize = 5000;
    /// Far more than it takes beside other tests, and less than what would pass if anything waited for
    /// strangers' limits.
    const TIME_MAX: Duration = Duration::from_secs(20);

    /// Starts so many ranks with these options, and waits until all are up.
    fn start(ranks: usize, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // While they go on strangers come to the end of every time that they are given.
        let script = format!(
            "echo up; while [ ! -e {} ]; do sleep 0.1; done
             for part in $(seq 0 19); do seq $((part * {lines} + 1)) $((part * {lines} + {lines})); sleep 0.2; done",
            folder.path().join("go").display(),
            lines = Self::LINES / 20
        );
        let mut job = Command::new(ROPEWALK)
            .args([
                "run",
                "-n",
                &ranks.to_string(),
                "--detect",
                "10",
                "--timeout",
                "300",
                // The ports of libpmix are its own affair.
                "--pmi",
                "pmi2",
            ])
            .args(options)
            .args(["sh", "-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(job.stdout.take().unwrap());
        for _ in 0..ranks {
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            assert_eq!(line, "up\n");
        }
        Self {
            job,
            stdout,
            folder,
            ranks,
        }
    }

    /// Lets the ranks go on: all that they say comes, each line as often as there are ranks, nothing else, and soon.
    fn finish(mut self) {
        let begun = Instant::now();
        fs::write(self.folder.path().join("go"), "").unwrap();
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).unwrap();
        let output = self.job.wait_with_output().unwrap();
        assert!(begun.elapsed() < Self::TIME_MAX, "{:?}", begun.elapsed());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && stderr.is_empty(), "{stderr}");
        let mut said: Vec<usize> = text.lines().map(|line| line.parse().unwrap()).collect();
        said.sort_unstable();
        let expected = (1..=Self::LINES).flat_map(|line| iter::repeat_n(line, self.ranks));
        assert!(said.into_iter().eq(expected), "lines are missing or twice");
    }
}

/// A thousand idle connections to every port of a job, and beside them garbage, HTTP, another protocol, huge
/// lengths, one byte at a time, valid greetings without a key and what the job itself said, once more: nobody
/// gets more than what all get, and the job says all that it has to say while they are there, in time. It
/// listens on loopback only.
#[test]
fn strangers_do_not_disturb_a_job() {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.maximum.map_or(Some(8192), |most| Some(most.min(8192)));
    setrlimit(Resource::Nofile, Rlimit { current, ..limit }).unwrap();
    let waiting = Waiting::start(2, &["-launcher", "fork", "-hosts", "alpha,beta"]);
    let processes = descendants(waiting.job.id());
    let ports = ports(&processes);
    assert!(ports.len() >= 3, "launcher and two agents listen: {ports:?}");
    let job_id = processes.iter().find_map(|&pid| job_of(pid)).unwrap();
    for &port in &ports {
        assert_eq!(pretend(port, job_id), 5);
        replay(port, job_id);
    }
    let mut idle = Vec::new();
    for &port in &ports {
        let connected = (0..IDLE).filter_map(|_| connect(port));
        let before = idle.len();
        idle.extend(connected);
        assert_eq!(idle.len() - before, IDLE, "port {port}");
    }
    let valid = &handshake::greeting(job_id, handshake::identity(0, 1, 0), 5);
    let endless = &[&valid[..handshake::FIXED_SIZE], &[0xff; 4096]].concat();
    thread::scope(|scope| {
        for &port in &ports {
            scope.spawn(move || say(connect(port), b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"));
            scope.spawn(move || say(connect(port), &[0xff; 4096]));
            // A length of an address, longer than what a greeting may be.
            scope.spawn(move || say(connect(port), endless));
            // There may be no room for them.
            scope.spawn(move || pretend(port, job_id));
            scope.spawn(move || replay(port, job_id));
            scope.spawn(move || say(connect(port), b"cmd=init pmi_version=1 pmi_subversion=1\n"));
            scope.spawn(move || drip(connect(port), valid));
        }
        waiting.finish();
    });
    for mut stream in idle {
        let mut said = Vec::new();
        // The end of who has not been let in may be a reset.
        let _ = stream.read_to_end(&mut said);
        assert_eq!(said, [0; 0], "who says nothing is told nothing");
    }
}

/// The launcher of a job on its own host has no port at all; who calls it there by its name is a stranger as much.
#[test]
fn strangers_on_the_same_host_do_not_disturb_a_job() {
    let waiting = Waiting::start(1, &[]);
    let launcher = waiting.job.id();
    assert_eq!(ports(&BTreeSet::from([launcher])), BTreeSet::new());
    let processes = descendants(launcher);
    let links = names(&processes, SocketType::SEQPACKET);
    let [link] = &links.iter().collect::<Vec<_>>()[..] else {
        panic!("the agent listens for advisors: {links:?}")
    };
    let advisors: Vec<_> = (0..200).map(|_| connect_as_advisor(link)).collect();
    for (advisor, words) in advisors
        .iter()
        .zip([&[0xff; 9][..], &[0xff; 4096], b"GET / HTTP/1.1\r\n"])
    {
        // It may have been refused.
        let _ = send(advisor, words, SendFlags::NOSIGNAL);
    }
    let names = names(&processes, SocketType::STREAM);
    assert!(names.len() >= 2, "launcher and agent listen: {names:?}");
    // Those behind them wait in the backlog, which is what connecting would wait for too.
    let idle: Vec<_> = names
        .iter()
        .cycle()
        .take(200)
        .filter_map(|name| connect_locally(name))
        .collect();
    assert_eq!(idle.len(), 200);
    thread::scope(|scope| {
        for name in &names {
            scope.spawn(move || {
                say(
                    connect_locally(name),
                    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
                )
            });
            scope.spawn(move || say(connect_locally(name), &[0xff; 4096]));
        }
    });
    waiting.finish();
    drop(idle);
}
