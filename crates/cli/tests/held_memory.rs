//! The memory that a rank handed to its agent outlives it, and everybody who asked learns where it is.
//!
//! The ranks of these jobs are this test program itself, with [`ROLE`] set.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    env,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use ropewalk::{
    fabric::{
        AgentLink, Buffer, Completion, Endpoint, EndpointOptions, Event, FromAgent, Held, HoldId,
        RegionHandle, ToAgent, TraceEvent, Welcome, memfd::WritableMemfd,
    },
    launch::{JobEvent, JobSpec, Launcher, OnFailure, Segment},
    membership::Cause,
    names::Rank,
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Signal, getpid, kill_process},
    time::Timespec,
};

const ROLE: &str = "ROPEWALK_TEST_ROLE";
const PATIENCE: Duration = Duration::from_secs(60);
const LENGTH: usize = 3 << 20;

/// Rank 1 hands over memory and kills itself at once; ranks 0 and 2, one of which asks only later, are told
/// where the memory is, then that rank 1 is gone, and read what it wrote.
#[test]
fn held_memory_outlives_its_rank() {
    if env::var_os(ROLE).is_some() {
        return match rank() {
            Rank(1) => hand_over_and_die(),
            rank => inherit(rank),
        };
    }
    let program = env::current_exe().unwrap();
    let program = Segment {
        arguments: ["held_memory_outlives_its_rank", "--exact", "--nocapture"]
            .map(Into::into)
            .to_vec(),
        ranks: 3,
        environment: vec![(ROLE.into(), "rank".into())],
        ..Segment::new(program)
    };
    let mut spec = JobSpec {
        reactions: OnFailure::Continue.into(),
        ..JobSpec::new(env!("CARGO_BIN_EXE_ropewalk"), program)
    };
    spec.time_limits.timeout = Some(PATIENCE);
    let mut launcher = Launcher::start(spec).unwrap();
    let (mut marks, mut departures, mut output) = (Vec::new(), Vec::new(), String::new());
    let verdict = loop {
        match launcher.next_event(Some(2 * PATIENCE)).unwrap().unwrap() {
            JobEvent::Departed { departure, .. } => departures.push((departure.rank, departure.cause)),
            JobEvent::Finished(outcome) => break outcome.verdict,
            JobEvent::Output { line, .. } => output.push_str(&String::from_utf8_lossy(&line)),
            JobEvent::Trace {
                rank,
                event: TraceEvent::Mark { label, .. },
            } => marks.push((rank, label)),
            _ => {}
        }
    };
    // The other rank heard of it and went well: the program did without.
    assert!(verdict.recovered, "{verdict}\n{output}");
    assert_eq!(verdict.exit_code(), 0, "{verdict}\n{output}");
    assert_eq!(verdict.failures.len(), 1, "{verdict}\n{output}");
    assert_eq!(departures[0], (Rank(1), Cause::Signalled(9)));
    // What the dead rank said just before its death counts.
    assert_eq!(marks[0], (Rank(1), "farewell".to_owned()));
}

/// A rank that says something malformed on its agent link gets an error when it goes on, and is not left to
/// wait for ever for somebody to read.
#[test]
fn a_malformed_message_ends_the_link() {
    let script = format!("yes >&${} 2>/dev/null; echo over", AgentLink::VARIABLE);
    let output = assert_cmd::Command::new(env!("CARGO_BIN_EXE_ropewalk"))
        .args(["run", "-n", "1", "--timeout", "30", "bash", "-c", &script])
        .timeout(PATIENCE)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(output.stdout, b"over\n", "{output:?}");
}

fn hand_over_and_die() {
    let link = AgentLink::from_env().unwrap().unwrap();
    for (id, kept) in [(1, false), (2, true)] {
        let mut memory = WritableMemfd::with("test", &[], LENGTH).unwrap();
        let held = Held {
            id: HoldId(id),
            label: b"a label".to_vec(),
        };
        link.send(&ToAgent::Hold(held), Some(memory.as_fd())).unwrap();
        // What counts is what is in it at the end.
        memory.fill(id as u8);
        if !kept {
            link.send(&ToAgent::Release(HoldId(id)), None).unwrap();
        }
    }
    let label = "farewell".to_owned();
    link.send(&ToAgent::Trace(TraceEvent::Mark { label, at_ns: 0 }), None)
        .unwrap();
    kill_process(getpid(), Signal::KILL).unwrap();
}

fn inherit(rank: Rank) {
    let link = AgentLink::from_env().unwrap().unwrap();
    let welcome = link.join().unwrap();
    assert_eq!((welcome.key.identity().rank, welcome.size), (rank, 3));
    if rank == Rank(2) {
        // By now rank 1 is gone, most probably: what was before comes all the same.
        std::thread::sleep(Duration::from_millis(200));
    }
    link.send(&ToAgent::Attach, None).unwrap();
    let FromAgent::Inherited {
        rank: Rank(1),
        held,
        handle,
        ..
    } = next(&link)
    else {
        panic!("nothing was inherited");
    };
    assert_eq!((held.id, &held.label[..]), (HoldId(2), &b"a label"[..]));
    let FromAgent::Departed(departure) = next(&link) else {
        panic!("no departure was told");
    };
    assert_eq!((departure.rank, departure.cause), (Rank(1), Cause::Signalled(9)));
    assert_eq!(&*read(&welcome, &handle), &vec![2; LENGTH][..]);
}

fn read(welcome: &Welcome, handle: &RegionHandle) -> Buffer {
    let options = EndpointOptions::of_welcome(welcome.clone());
    let mut endpoint = Endpoint::bind(options).unwrap();
    let into = Buffer::zeroed(handle.length as usize);
    endpoint.get(handle, 0, into, PATIENCE).unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline, "the agent does not serve its memory");
        endpoint.wait(PATIENCE);
        endpoint.progress();
        if let Some(Event::Completed { result, .. }) = endpoint.poll_event() {
            match result.unwrap() {
                Completion::Got(buffer) => return buffer,
                other => panic!("{other:?}"),
            }
        }
    }
}

fn next(link: &AgentLink) -> FromAgent {
    loop {
        if let Some((message, _)) = link.receive().unwrap() {
            return message;
        }
        let timeout = Timespec::try_from(PATIENCE).unwrap();
        let ready = poll(&mut [PollFd::new(link, PollFlags::IN)], Some(&timeout)).unwrap();
        assert_eq!(ready, 1, "the agent says nothing");
    }
}

fn rank() -> Rank {
    Rank(env::var("RANK").unwrap().parse().unwrap())
}
