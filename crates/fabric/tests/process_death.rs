//! A process that is killed: what was in progress with it ends at once. The process is this test's own program,
//! started again.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use bytes::Bytes;
use ropewalk_fabric::{
    Address, Completion, Endpoint, EndpointOptions, Event, Identity, JobKey, OperationError, PeerDeath, Role,
    Transports,
};
use ropewalk_names::{Incarnation, JobId, Rank};

/// Longer than anything takes on a loaded machine.
const LONG: Duration = Duration::from_secs(30);
const CALLS: usize = 16;
/// Tells the program that it is the one to be killed: the transports, and how much memory it is to hold.
const VICTIM: &str = "ROPEWALK_TEST_VICTIM";

fn endpoint(rank: u32, transports: &str) -> Endpoint {
    let identity = Identity {
        role: Role::Rank,
        rank: Rank(rank),
        incarnation: Incarnation(0),
    };
    let mut options = EndpointOptions::new(JobId([1; 16]), JobKey::from_bytes([2; 32]), identity);
    options.transports = Transports {
        tcp: transports != "shm",
        shm: transports != "tcp",
        ..Transports::default()
    };
    Endpoint::bind(options).unwrap()
}

/// Runs as the process to be killed; does nothing in other processes.
#[test]
fn victim() {
    let Ok(role) = std::env::var(VICTIM) else {
        return;
    };
    let (transports, megabytes) = role.split_once(' ').unwrap();
    let memory = vec![1_u8; megabytes.parse::<usize>().unwrap() << 20];
    let mut endpoint = endpoint(1, transports);
    let mut stdout = std::io::stdout();
    writeln!(stdout, "\naddress {}", endpoint.address()).unwrap();
    stdout.flush().unwrap();
    let start = Instant::now();
    let mut heard = 0;
    while start.elapsed() < LONG {
        endpoint.wait(Duration::from_secs(1));
        endpoint.progress();
        while let Some(event) = endpoint.poll_event() {
            if matches!(event, Event::Unexpected { .. }) {
                heard += 1;
            }
            if heard == CALLS {
                writeln!(stdout, "ready").unwrap();
                stdout.flush().unwrap();
                heard = 0;
            }
        }
        std::hint::black_box(&memory);
    }
}

struct Victim {
    process: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    address: Address,
}

impl Victim {
    fn start(transports: &str, megabytes: usize) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "victim", "--nocapture"])
            .env(VICTIM, format!("{transports} {megabytes}"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = lines
            .find_map(|line| line.unwrap().strip_prefix("address ").map(str::to_owned))
            .unwrap();
        Self {
            process,
            lines,
            address: address.parse().unwrap(),
        }
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Kills a process with calls in flight. Returns how long it took until the last of them had ended.
fn kill(transports: &str, megabytes: usize, sleeping: bool) -> Duration {
    let mut victim = Victim::start(transports, megabytes);
    let mut endpoint = endpoint(0, transports);
    let peer = endpoint.peer(&victim.address).unwrap();
    for tag in 0..CALLS {
        endpoint.send_unexpected(peer, tag as u64, Bytes::new()).unwrap();
        endpoint.receive_reply(peer, LONG).unwrap();
    }
    assert!(endpoint.flush(LONG));
    let lines = &mut victim.lines;
    let ready = std::thread::scope(|scope| {
        let ready = scope.spawn(|| lines.find(|line| line.as_ref().unwrap().ends_with("ready")));
        while !ready.is_finished() {
            endpoint.progress();
        }
        ready.join().unwrap()
    });
    assert!(ready.is_some(), "the process ended too early");
    assert!(endpoint.poll_event().is_none());
    if transports == "tcp" {
        assert_eq!(endpoint.provider_of(peer), Some("tcp"));
    } else {
        assert_eq!(endpoint.provider_of(peer), Some("shm"));
    }

    victim.process.kill().unwrap();
    let killed = Instant::now();
    let mut ended = 0;
    while ended < CALLS {
        if sleeping {
            endpoint.wait(LONG);
        }
        endpoint.progress();
        while let Some(event) = endpoint.poll_event() {
            match event {
                Event::Completed { result, .. } => {
                    assert_is_death(&result);
                    ended += 1;
                }
                Event::PeerDied { peer: dead, .. } => assert_eq!(dead, peer),
                event => panic!("{event:?}"),
            }
        }
        assert!(killed.elapsed() < LONG);
    }
    killed.elapsed()
}

fn assert_is_death(result: &Result<Completion, OperationError>) {
    let Err(OperationError::PeerDied { source, .. }) = result else {
        panic!("{result:?}");
    };
    assert!(
        matches!(source, PeerDeath::Closed | PeerDeath::Killed | PeerDeath::Io(_)),
        "{source:?}"
    );
}

/// The best of a few attempts: others may have the processor.
fn best(transports: &str, megabytes: usize) -> Duration {
    let mut best = LONG;
    for sleeping in [false, true] {
        let attempts = (0..5).map(|_| kill(transports, megabytes, sleeping));
        let time = attempts.min().unwrap();
        println!("{transports}, {megabytes} MiB, sleeping: {sleeping}: {time:?}");
        best = best.min(time);
    }
    best
}

/// All calls to a small process end within a millisecond of its death, over shared memory and TCP.
#[test]
fn calls_to_a_killed_process_end_at_once() {
    for transports in ["shm", "tcp", "automatic"] {
        let time = best(transports, 0);
        assert!(time < Duration::from_millis(1), "{transports}: {time:?}");
    }
}

/// The death of a process that holds much memory is seen before the system has taken that memory.
#[test]
fn the_death_of_a_large_process_is_seen_early() {
    let (shm, tcp) = (best("shm", 512), best("tcp", 512));
    assert!(shm < tcp, "{shm:?} by the mutex, {tcp:?} by the socket");
}
