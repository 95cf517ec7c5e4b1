//! A rank of a running job that pretends to be somebody else, to the other ranks and to the agent.
//!
//! The ranks of the job are this test program itself, with [`ROLE`] set.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{
    env, fs,
    io::Write,
    net::TcpStream,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use hmac::{Hmac, KeyInit, Mac};
use ropewalk::{
    fabric::{
        Address, AgentLink, Endpoint, EndpointOptions, Event, FromAgent, HandshakeError, Identity, JobKey,
        MemberKey, PeerDeath, Role, ToAgent, Welcome,
    },
    launch::{JobEvent, JobSpec, Launcher, OnFailure, Segment, Verdict},
    names::{Incarnation, Rank},
    pmi::client::Client,
    reduce::{Job, ReduceError, ReduceOptions, ReductionError, Sum},
};
use rustix::process::{Signal, getpid, kill_process};
use sha2::Sha256;

use rig::{PATIENCE, handshake};

const ROLE: &str = "ROPEWALK_TEST_ROLE";
const FOLDER: &str = "ROPEWALK_TEST_FOLDER";
/// For how long one who was let in is watched.
const WATCHED: Duration = Duration::from_millis(300);
const HONEST: u64 = 1;
const LIE: u64 = 2;
const END: u64 = 3;

/// Rank 1 tries to be let in as the agent, as the launcher and, by the agent, as other ranks: with its own key, with
/// one that is made up, without one, with what it has recorded, and with the key of rank 2, which is gone. Nothing of
/// that is let in, and the job goes on.
#[test]
fn a_rank_cannot_pose_as_another() {
    if env::var_os(ROLE).is_some() {
        let (link, welcome) = join();
        return match welcome.key.identity().rank {
            Rank(0) => watch(&link, &welcome),
            Rank(1) => pretend(&welcome),
            _ => give_key_away_and_die(&welcome),
        };
    }
    let folder = tempfile::tempdir().unwrap();
    let (verdict, output) = run("a_rank_cannot_pose_as_another", 3, folder.path());
    assert!(verdict.recovered, "{verdict}\n{output}");
    assert_eq!(verdict.exit_code(), 0, "{verdict}\n{output}");
    assert_eq!(verdict.failures.len(), 1, "{verdict}\n{output}");
    assert!(folder.path().join("over").exists(), "{output}");
}

/// A rank that still runs, but is fenced by the one with the scheduler, ends its reductions with an error that says so,
/// long before its time is over.
#[test]
fn a_fenced_rank_is_told() {
    if env::var_os(ROLE).is_some() {
        return match env::var("PMI_RANK").unwrap().as_str() {
            "0" => fence_rank_1(),
            _ => be_told(),
        };
    }
    let folder = tempfile::tempdir().unwrap();
    let (verdict, output) = run("a_fenced_rank_is_told", 2, folder.path());
    assert_eq!(verdict.exit_code(), 0, "{verdict}\n{output}");
    assert!(folder.path().join("told").exists(), "{output}");
}

/// Runs this program's test of that name as the ranks of a job.
fn run(test: &str, ranks: u32, folder: &Path) -> (Verdict, String) {
    let program = Segment {
        arguments: [test, "--exact", "--nocapture"].map(Into::into).to_vec(),
        ranks,
        environment: vec![(ROLE.into(), "rank".into()), (FOLDER.into(), folder.into())],
        ..Segment::new(env::current_exe().unwrap())
    };
    let mut spec = JobSpec {
        reactions: OnFailure::Continue.into(),
        ..JobSpec::new(env!("CARGO_BIN_EXE_ropewalk"), program)
    };
    spec.time_limits.timeout = Some(PATIENCE);
    let mut launcher = Launcher::start(spec).unwrap();
    let mut output = String::new();
    loop {
        match launcher.next_event(Some(2 * PATIENCE)).unwrap().unwrap() {
            JobEvent::Finished(outcome) => return (outcome.verdict, output),
            JobEvent::Output { line, .. } => output.push_str(&String::from_utf8_lossy(&line)),
            _ => {}
        }
    }
}

fn fence_rank_1() {
    let (_link, welcome) = join();
    let pmi = Client::from_env().unwrap().unwrap();
    let mut endpoint = Endpoint::bind(options(&welcome, welcome.key.clone())).unwrap();
    endpoint.fence(rank(1, 0));
    // The address, and the mark of a host.
    pmi.put("ropewalk-address-0", format!("{}#0", endpoint.address()))
        .unwrap();
    pmi.fence().unwrap();
    let begun = Instant::now();
    while !path("told").exists() {
        assert!(begun.elapsed() < PATIENCE, "it does not notice");
        endpoint.wait(Duration::from_millis(5));
        endpoint.progress();
        let event = endpoint.poll_event();
        assert!(event.is_none(), "{event:?}");
    }
    pmi.fence().unwrap();
    pmi.finalize().unwrap();
}

fn be_told() {
    let job = Job::from_env().unwrap();
    let reduce_options = ReduceOptions {
        timeout: Some(2 * PATIENCE),
        ..ReduceOptions::default()
    };
    let reduction = job.world().reduce(vec![1u8; 10], Sum, Rank(0), &reduce_options);
    let error = reduction.unwrap().get().unwrap_err();
    let expected = ReductionError::Fenced {
        rank: Rank(1),
        incarnation: Incarnation(0),
    };
    assert!(
        matches!(&error, ReduceError::Reduction(error) if *error == expected),
        "{error:?}"
    );
    leave("told", b"");
    job.finalize().unwrap();
}

fn join() -> (AgentLink, Welcome) {
    let link = AgentLink::from_env().unwrap().unwrap();
    let welcome = link.join().unwrap();
    link.send(&ToAgent::Attach, None).unwrap();
    (link, welcome)
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env::var_os(FOLDER).unwrap()).join(name)
}

/// Leaves something for the other ranks, all of it at once.
fn leave(name: &str, bytes: &[u8]) {
    fs::write(path("new").with_extension(name), bytes).unwrap();
    fs::rename(path("new").with_extension(name), path(name)).unwrap();
}

fn await_file(name: &str) -> Vec<u8> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Ok(bytes) = fs::read(path(name)) {
            return bytes;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("nobody left {name}");
}

/// Rank 2.
fn give_key_away_and_die(welcome: &Welcome) {
    leave("key", &postcard::to_allocvec(&welcome.key).unwrap());
    // It is the key that is right as long as its owner lives: rank 0 says when it was used.
    await_file("used");
    kill_process(getpid(), Signal::KILL).unwrap();
}

/// Rank 0: hears nothing but what is true.
fn watch(link: &AgentLink, welcome: &Welcome) {
    let mut endpoint = Endpoint::bind(options(welcome, welcome.key.clone())).unwrap();
    leave("address", endpoint.address().to_string().as_bytes());
    let begun = Instant::now();
    let mut heard = Vec::new();
    while begun.elapsed() < PATIENCE {
        endpoint.wait(Duration::from_millis(5));
        endpoint.progress();
        while let Some(event) = endpoint.poll_event() {
            let Event::Unexpected { from, tag, .. } = event else {
                continue;
            };
            let identity = endpoint.peer_info(from).unwrap().identity;
            heard.push((identity.rank.0, tag));
            match (identity.rank, tag) {
                (Rank(2), _) => leave("used", b""),
                (_, END) => {
                    assert_eq!(heard, [(1, HONEST), (2, HONEST), (1, END)]);
                    leave("over", b"");
                    return;
                }
                _ => {}
            }
        }
        while let Some((message, _)) = link.receive().unwrap() {
            if let FromAgent::Departed(departure) = message {
                endpoint.fence(rank(departure.rank.0, departure.incarnation.0));
                leave("fenced", b"");
            }
        }
    }
    panic!("only {heard:?} came");
}

/// Rank 1.
fn pretend(welcome: &Welcome) {
    let other: Address = String::from_utf8(await_file("address")).unwrap().parse().unwrap();
    let own = welcome.key.clone();
    let mut honest = Endpoint::bind(options(welcome, own.clone())).unwrap();
    say(&mut honest, &other, HONEST);
    let of_role = |role| Identity { role, ..rank(0, 0) };
    let roles = [of_role(Role::Agent), of_role(Role::Launcher)];
    let ranks = [rank(0, 0), rank(2, 0), rank(1, 1)];
    // Ranks believe each other which rank they are.
    for (target, claims) in [
        (&other, &roles[..]),
        (&welcome.agent, &[&roles[..], &ranks].concat()),
    ] {
        for &claimed in claims {
            let error = refusal(welcome, forged(&own, claimed), target);
            assert_eq!(error, HandshakeError::Proof, "{claimed} to {target}");
        }
        let made_up = JobKey::generate().unwrap();
        let error = refusal(welcome, made_up.key_of(own.identity()), target);
        assert_eq!(error, HandshakeError::Proof, "{target}");
    }
    replay(welcome);

    let stolen: MemberKey = postcard::from_bytes(&await_file("key")).unwrap();
    // It is a good key for as long as its owner lives.
    let mut second = Endpoint::bind(options(welcome, stolen.clone())).unwrap();
    say(&mut second, &other, HONEST);
    await_file("fenced");
    for target in [&other, &welcome.agent] {
        let error = refusal(welcome, stolen.clone(), target);
        let identity = rank(2, 0);
        assert_eq!(error, HandshakeError::Fenced { identity }, "{target}");
    }
    // Whoever hears this ends at once, so that no more can be said of the connection.
    honest.send_unexpected(&other, END, b"bye".to_vec()).unwrap();
    let begun = Instant::now();
    while !path("over").exists() {
        assert!(begun.elapsed() < PATIENCE, "nobody left over");
        honest.wait(Duration::from_millis(5));
        honest.progress();
    }
}

/// To the agent: a valid greeting with no proof of its own behind it, a true proof, and both of these once more.
fn replay(welcome: &Welcome) {
    let connect = || TcpStream::connect(welcome.agent.location()).unwrap();
    let own = handshake::identity(2, 1, 0);
    let greeting = handshake::greeting(welcome.job.0, own, 5);

    let mut keyless = connect();
    let (_, theirs) = handshake::answer(&mut keyless, &greeting).unwrap();
    keyless.write_all(&theirs).unwrap();
    assert!(handshake::is_dropped(keyless, PATIENCE));

    let mut genuine = connect();
    let (answer, _) = handshake::answer(&mut genuine, &greeting).unwrap();
    let secret = own_secret(&welcome.key);
    let proof = hash(&secret, &[b"ropewalk initiator", &greeting, &answer]);
    genuine.write_all(&proof).unwrap();
    assert!(!handshake::is_dropped(genuine.try_clone().unwrap(), WATCHED));

    let mut replayed = connect();
    handshake::answer(&mut replayed, &greeting).unwrap();
    replayed.write_all(&proof).unwrap();
    assert!(handshake::is_dropped(replayed, PATIENCE));
    let mut at_once = connect();
    at_once.write_all(&[&greeting[..], &proof].concat()).unwrap();
    assert!(handshake::is_dropped(at_once, PATIENCE));
    // Nor does it disturb whose it was.
    assert!(!handshake::is_dropped(genuine, WATCHED));
}

/// The secret that a rank shares with the agents: the 32 bytes behind its identity and the kind of its
/// secret.
fn own_secret(key: &MemberKey) -> [u8; 32] {
    let bytes = postcard::to_allocvec(key).unwrap();
    let identity = postcard::to_allocvec(&key.identity()).unwrap();
    bytes[identity.len() + 1..][..32].try_into().unwrap()
}

fn hash(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Hmac::<Sha256>::new_from_slice(key).unwrap();
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().into_bytes().into()
}

/// The key of one member with the name of another on it.
fn forged(key: &MemberKey, claimed: Identity) -> MemberKey {
    let encode = |identity: &Identity| postcard::to_allocvec(identity).unwrap();
    let bytes = postcard::to_allocvec(key).unwrap();
    let secret = bytes.strip_prefix(&encode(&key.identity())[..]).unwrap();
    postcard::from_bytes(&[&encode(&claimed)[..], secret].concat()).unwrap()
}

fn rank(rank: u32, incarnation: u32) -> Identity {
    Identity {
        role: Role::Rank,
        rank: Rank(rank),
        incarnation: Incarnation(incarnation),
    }
}

fn options(welcome: &Welcome, key: MemberKey) -> EndpointOptions {
    EndpointOptions::of_member(welcome.job, key)
}

/// Why one with this key is not let in.
fn refusal(welcome: &Welcome, key: MemberKey, target: &Address) -> HandshakeError {
    let mut endpoint = Endpoint::bind(options(welcome, key)).unwrap();
    endpoint
        .send_unexpected(target, LIE, b"let me in".to_vec())
        .unwrap();
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        endpoint.wait(Duration::from_millis(5));
        endpoint.progress();
        match endpoint.poll_event() {
            Some(Event::PeerDied {
                cause: PeerDeath::Handshake(error),
                ..
            }) => return error,
            None => {}
            other => panic!("{other:?}"),
        }
    }
    panic!("{target} let it in");
}

/// Sends a message, and makes sure that it can have come.
fn say(endpoint: &mut Endpoint, target: &Address, tag: u64) {
    endpoint.send_unexpected(target, tag, b"hello".to_vec()).unwrap();
    let peer = endpoint.peer(target).unwrap();
    let begun = Instant::now();
    loop {
        endpoint.wait(Duration::from_millis(5));
        endpoint.progress();
        let event = endpoint.poll_event();
        assert!(event.is_none(), "{event:?}");
        if endpoint.peer_info(peer).is_some() && !endpoint.has_unsent() {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{target} cannot be reached");
    }
}
