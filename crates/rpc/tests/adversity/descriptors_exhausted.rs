//! Processes that have no descriptor left.

use std::{
    env,
    fs::File,
    os::fd::AsRawFd,
    process::Command,
    time::{Duration, Instant},
};

use ropewalk_rpc::{CallError, Endpoint};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{
    LONG, Null, call, engine, finish, options,
    settings::{heed, tell},
};

crate::on_every_transport! { without_ofi_shm: descriptors_exhausted_is_an_error_and_passes, }

/// Without descriptors nothing new comes about, which is told by errors in time, and what is connected goes on;
/// when there are some again, everything works again. In a process of its own, since it uses up those of the process.
fn descriptors_exhausted_is_an_error_and_passes() {
    let mut command = Command::new(env::current_exe().unwrap());
    let test = "descriptors_exhausted::be_the_process_without_descriptors";
    command.args(["--exact", test, "--nocapture"]);
    tell(&mut command);
    let output = command.output().unwrap();
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|output| String::from_utf8_lossy(output));
    let is_done = output.status.success() && stdout.contains("everything works again");
    assert!(is_done, "{stdout}{stderr}");
}

/// Not a test, but the process of the others.
#[test]
fn be_the_process_without_descriptors() {
    if heed() {
        exhaust();
        println!("everything works again");
    }
}

fn exhaust() {
    let [mut member, mut target, mut early, mut late] = [0, 1, 2, 3].map(engine);
    let address = target.address().clone();
    call(&mut member, &mut target).unwrap();
    // A first reply through shared memory may overtake the target's descriptors, which come by the socket.
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(50) {
        member.progress();
    }

    let unlimited = getrlimit(Resource::Nofile);
    limit(unlimited, 0);
    let bound = Endpoint::bind(options(4));
    assert!(bound.is_err(), "an endpoint without descriptors");
    let start = Instant::now();
    let refused = early.call::<Null>(&address, &(), Duration::from_secs(2));
    let refused = refused.and_then(|call| finish(&mut [&mut early, &mut target, &mut member], call));
    assert!(refused.is_err());
    assert!(start.elapsed() < LONG / 2, "{:?}", start.elapsed());
    call(&mut member, &mut target).unwrap();
    drop(early);

    // Enough to dial, not to be accepted.
    limit(unlimited, 1);
    let waiting = late.call::<Null>(&address, &(), Duration::from_secs(2));
    let waiting = waiting.and_then(|call| finish(&mut [&mut late, &mut target, &mut member], call));
    assert!(
        matches!(
            waiting,
            Err(CallError::TimedOut { .. } | CallError::PeerDied { .. } | CallError::Submit { .. })
        ),
        "{waiting:?}"
    );
    call(&mut member, &mut target).unwrap();

    setrlimit(Resource::Nofile, unlimited).unwrap();
    let start = Instant::now();
    while let Err(error) = call(&mut late, &mut target) {
        assert!(start.elapsed() < LONG, "{error:?}");
    }
    call(&mut member, &mut target).unwrap();
}

/// Leaves room for so many more descriptors.
fn limit(unlimited: Rlimit, more: u64) {
    setrlimit(Resource::Nofile, unlimited).unwrap();
    // All numbers below that of the next one are in use.
    let next = File::open("/dev/null").unwrap().as_raw_fd().unsigned_abs();
    let current = Some(u64::from(next) + more);
    setrlimit(Resource::Nofile, Rlimit { current, ..unlimited }).unwrap();
}
