//! Processes that fork after they made an endpoint, as libraries do behind their users' backs.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use ropewalk_rpc::{Address, CallError, Engine, Limits, Transports};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    Hang, LONG, Null, engine, finish,
    forking::fork_idle,
    over_each_transport,
    settings::{set_transports, transports},
};

/// Tells a process that it is the one that forks.
const CALLER: &str = "ROPEWALK_TEST_CALLER";
/// Tell it by which ways it reaches its caller.
const TCP: &str = "ROPEWALK_TEST_TCP";
const SHM: &str = "ROPEWALK_TEST_SHM";

/// A process that forked goes on calling and being called, also when the copy is killed.
#[test]
fn fork_after_start_disturbs_nobody() {
    be_the_forking_process();
    over_each_transport(|| call_a_forking_process("fork_after_start::fork_after_start_disturbs_nobody"));
}

fn call_a_forking_process(test: &str) {
    let mut engine = engine(0);
    let mut forking = Forking::start(&mut engine, test);
    for _ in 0..100 {
        forking.call(&mut engine).unwrap();
    }
    forking.kill_the_copy();
    for _ in 0..100 {
        forking.call(&mut engine).unwrap();
    }
    assert!(engine.poll_lost_peer().is_none());
}

/// A process that dies is told as dead although its copy holds all its connections open: at the latest when
/// heartbeats stay away.
#[test]
fn fork_after_start_hides_no_death() {
    be_the_forking_process();
    over_each_transport(|| kill_a_forking_process("fork_after_start::fork_after_start_hides_no_death"));
}

fn kill_a_forking_process(test: &str) {
    let mut engine = engine(0);
    let mut forking = Forking::start(&mut engine, test);
    forking.call(&mut engine).unwrap();
    let hanging = engine.call::<Hang>(&forking.address, &(), LONG).unwrap();
    forking.call(&mut engine).unwrap();
    forking.process.kill().unwrap();
    let start = Instant::now();
    let ended = finish(&mut [&mut engine], hanging);
    assert!(matches!(ended, Err(CallError::PeerDied { .. })), "{ended:?}");
    let limit = Limits::default().heartbeat.unwrap();
    assert!(
        start.elapsed() < limit * 2 + Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
}

/// A process with an engine, and its copy.
struct Forking {
    process: Child,
    copy: Option<Pid>,
    address: Address,
}

impl Forking {
    /// Starts a process that runs the same test, there only to be called.
    fn start(engine: &mut Engine, test: &str) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(CALLER, engine.address().to_string())
            .env(TCP, transports().tcp.to_string())
            .env(SHM, transports().shm.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // It calls once before it forks, so that the copy has a connection.
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let start = Instant::now();
        let said = std::thread::spawn(move || {
            let said = lines.find_map(|line| line.unwrap().strip_prefix("forked ").map(str::to_owned));
            // The rest has to go somewhere.
            std::thread::spawn(move || lines.count());
            said
        });
        while !said.is_finished() {
            engine.wait(Duration::from_millis(10));
            assert!(start.elapsed() < LONG);
        }
        let said = said.join().unwrap().unwrap();
        let (copy, address) = said.split_once(' ').unwrap();
        Self {
            process,
            copy: Pid::from_raw(copy.parse().unwrap()),
            address: address.parse().unwrap(),
        }
    }

    fn call(&mut self, engine: &mut Engine) -> Result<(), CallError> {
        let call = engine.call::<Null>(&self.address, &(), LONG)?;
        engine.block_on(call)
    }

    fn kill_the_copy(&mut self) {
        if let Some(copy) = self.copy.take() {
            kill_process(copy, Signal::KILL).unwrap();
        }
    }
}

impl Drop for Forking {
    fn drop(&mut self) {
        self.kill_the_copy();
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// If this is the process that is to fork, it does, and serves until it is killed.
fn be_the_forking_process() {
    let Ok(caller) = env::var(CALLER) else {
        return;
    };
    let caller: Address = caller.parse().unwrap();
    let [tcp, shm] = [TCP, SHM].map(|name| env::var(name).unwrap().parse().unwrap());
    set_transports(Transports {
        tcp,
        shm,
        ..Transports::default()
    });
    let mut engine = engine(1);
    let call = engine.call::<Null>(&caller, &(), LONG).unwrap();
    engine.block_on(call).unwrap();
    let copy = fork_idle(LONG * 2);
    println!("forked {copy} {}", engine.address());
    std::io::stdout().flush().unwrap();
    let start = Instant::now();
    while start.elapsed() < LONG * 2 {
        engine.wait(Duration::from_secs(1));
    }
    std::process::exit(1);
}
