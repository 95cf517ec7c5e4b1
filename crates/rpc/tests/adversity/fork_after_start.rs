//! Processes that fork after they made an endpoint, as libraries do behind their users' backs.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use ropewalk_rpc::{Address, CallError, Engine, Limits};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    Hang, LONG, Null, engine, finish,
    forking::fork_idle,
    settings::{heed, tell},
};

/// Tells a process that it is the one that forks.
const CALLER: &str = "ROPEWALK_TEST_CALLER";

crate::on_every_transport! { any_driver: fork_after_start_disturbs_nobody, }

/// A process that is killed while it holds a lock of libfabric's `shm` keeps it, and whoever sends to it next turns in
/// libfabric for ever.
mod dying {
    use super::fork_after_start_hides_no_death;

    crate::on_every_transport! { any_driver_without_ofi_shm: fork_after_start_hides_no_death, }
}

/// A process that forked goes on calling and being called, also when the copy is killed.
fn fork_after_start_disturbs_nobody() {
    let mut engine = engine(0);
    let mut forking = Forking::start(&mut engine);
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
fn fork_after_start_hides_no_death() {
    let mut engine = engine(0);
    let mut forking = Forking::start(&mut engine);
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
    fn start(engine: &mut Engine) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args([
                "--exact",
                "fork_after_start::be_the_forking_process",
                "--nocapture",
            ])
            .env(CALLER, engine.address().to_string())
            .stdout(Stdio::piped());
        tell(&mut command);
        let mut process = command.spawn().unwrap();
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

/// Not a test, but the process that the others start: it forks, and serves until it is killed.
#[test]
fn be_the_forking_process() {
    let Ok(caller) = env::var(CALLER) else {
        return;
    };
    let caller: Address = caller.parse().unwrap();
    assert!(heed(), "it is told over what it calls");
    let mut engine = engine(1);
    let call = engine.call::<Null>(&caller, &(), LONG).unwrap();
    engine.block_on(call).unwrap();
    let copy = fork_idle(LONG * 2);
    println!("\nforked {copy} {}", engine.address());
    std::io::stdout().flush().unwrap();
    let start = Instant::now();
    while start.elapsed() < LONG * 2 {
        engine.wait(Duration::from_secs(1));
    }
    std::process::exit(1);
}
