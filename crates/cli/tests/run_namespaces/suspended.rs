//! Jobs that are suspended as by ^Z while links are broken: they go on all the same, and end with their launcher.

use std::{
    fs,
    ops::RangeInclusive,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use super::{DETECT, Guarded, HOSTS, Network, SLACK, ip, text, wait};

/// The value of `--detect`: so long a launcher waits until its hosts know that it is about to be stopped.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longer than anybody may be silent otherwise.
const SUSPENSION: Duration = Duration::from_secs(6);
/// The script of each rank. It writes for longer than it takes to suspend the job.
const SCRIPT: &str = "for part in $(seq 20); do echo $RANK $part; sleep 0.2; done";
const PARTS: u32 = 20;
/// How long a launcher that is suspended may be out of reach.
const OUT_OF_REACH: Duration = DETECT.saturating_mul(10);

/// A job whose ranks all run.
fn start(network: &Network, arity: u8, script: &str) -> Guarded {
    let seconds = PATIENCE.as_secs().to_string();
    start_with(network, arity, &["--detect", &seconds], script)
}

fn start_with(network: &Network, arity: u8, options: &[&str], script: &str) -> Guarded {
    let script = format!("touch {}/up-$RANK; {script}", network.folder().display());
    let mut job = network.job(arity, &[options, &["sh", "-c", &script]].concat());
    let job = job
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map(Guarded::from)
        .unwrap();
    for rank in 0..HOSTS {
        let up = network.folder().join(format!("up-{rank}"));
        await_true("a rank does not run", || up.exists());
        fs::remove_file(up).unwrap();
    }
    job
}

fn signal(job: &Child, name: &str) {
    signal_all(&[job.id().to_string()], name);
}

fn signal_all(pids: &[String], name: &str) {
    let status = Command::new("kill").args(["-s", name]).args(pids).status();
    assert!(status.unwrap().success());
}

fn await_stopped(job: &Child) {
    let stat = format!("/proc/{}/stat", job.id());
    await_true("it is not stopped", || {
        fs::read_to_string(&stat).unwrap().contains(") T ")
    });
}

fn await_true(otherwise: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_true() {
        assert!(Instant::now() < deadline, "{otherwise}");
        sleep(Duration::from_millis(10));
    }
}

/// Kills all connections of a host, and returns how many those were.
fn break_links(network: &Network, host: u8) -> usize {
    let words = ["ss", "--no-header", "--kill", "--tcp", "state", "established"];
    let listed = network.on(host, &words).output().unwrap();
    text(&listed.stdout).lines().count()
}

/// Kills those of all hosts. One between two hosts may be gone when the other has its turn.
fn break_all_links(network: &Network) {
    let broken: usize = (1..=HOSTS).map(|host| break_links(network, host)).sum();
    assert!(broken >= usize::from(HOSTS), "only {broken} links were broken");
}

/// Every rank has said all that it had to say.
fn check(job: Guarded, what: &str) {
    let output = wait(job, Duration::from_secs(30));
    let stderr = text(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{what}: {stderr}");
    let stdout = text(&output.stdout);
    let mut lines: Vec<_> = stdout.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    let said = |rank| (1..=PARTS).map(move |part| format!("{rank} {part}"));
    let mut expected: Vec<_> = (0..HOSTS).flat_map(said).collect();
    expected.sort_unstable();
    assert_eq!(lines, expected, "{what}");
}

/// Links that break while the launcher is stopped are made again when it goes on.
#[test]
fn links_that_break_while_it_is_suspended_are_mended() {
    let Some(network) = Network::new(86) else {
        return;
    };
    for arity in [1, HOSTS] {
        let job = start(&network, arity, SCRIPT);
        signal(&job, "TSTP");
        await_stopped(&job);
        break_all_links(&network);
        sleep(SUSPENSION);
        signal(&job, "CONT");
        check(job, &format!("arity {arity}"));
    }
}

/// A launcher that is killed while it is suspended is seen to be, though its links were broken.
#[test]
fn a_killed_launcher_is_missed_without_links() {
    let Some(network) = Network::new(87) else {
        return;
    };
    let mut job = start(&network, HOSTS, "exec sleep 100");
    signal(&job, "TSTP");
    await_stopped(&job);
    break_all_links(&network);
    sleep(SUSPENSION);
    for host in 1..=HOSTS {
        assert!(!network.pids_on(host).is_empty(), "host {host} is given up");
    }
    job.kill().unwrap();
    job.wait().unwrap();
    assert_empty(&network, 1..=HOSTS, PATIENCE + SLACK);
}

/// Nothing runs on these hosts any more when so much time has passed.
fn assert_empty(network: &Network, hosts: RangeInclusive<u8>, within: Duration) {
    let deadline = Instant::now() + within;
    for host in hosts {
        while !network.pids_on(host).is_empty() {
            assert!(Instant::now() < deadline, "something is left on host {host}");
            sleep(Duration::from_millis(10));
        }
    }
}

/// Takes the launcher's host off the network, or back to it. Its connections hear nothing of that.
fn set_in_reach(network: &Network, is_in_reach: bool) {
    let verb = if is_in_reach { "add" } else { "del" };
    let (address, bridge) = (network.address(1), network.bridge());
    assert!(ip(&format!("addr {verb} {address}/24 dev {bridge}")));
}

/// A launcher whose host goes away while it is suspended is waited for, but not for ever.
#[test]
fn a_suspended_launcher_out_of_reach_is_given_up() {
    let Some(network) = Network::new(91) else {
        return;
    };
    let mut job = start_with(&network, HOSTS, &[], "exec sleep 100");
    signal(&job, "TSTP");
    await_stopped(&job);
    set_in_reach(&network, false);
    break_all_links(&network);
    sleep(OUT_OF_REACH / 2);
    for host in 1..=HOSTS {
        assert!(!network.pids_on(host).is_empty(), "host {host} gives up too soon");
    }
    assert_empty(&network, 1..=HOSTS, OUT_OF_REACH / 2 + DETECT + SLACK);
    job.kill().unwrap();
    job.wait().unwrap();
}

/// Nor is it by hosts that go on below it when the one above them is lost.
#[test]
fn orphans_give_up_a_suspended_launcher_out_of_reach() {
    let Some(network) = Network::new(92) else {
        return;
    };
    let mut job = start_with(&network, 1, &["--on-failure", "continue"], "exec sleep 100");
    signal(&job, "TSTP");
    await_stopped(&job);
    set_in_reach(&network, false);
    let stopped = network.pids_on(1);
    signal_all(&stopped, "STOP");
    sleep(OUT_OF_REACH / 2);
    for host in 2..=HOSTS {
        assert!(!network.pids_on(host).is_empty(), "host {host} gives up too soon");
    }
    assert_empty(&network, 2..=HOSTS, OUT_OF_REACH / 2 + 3 * DETECT + SLACK);
    signal_all(&stopped, "CONT");
    job.kill().unwrap();
    job.wait().unwrap();
    assert_empty(&network, 1..=1, DETECT + SLACK);
}

/// How many connections wait until the launcher accepts them.
fn connections_in_queue(network: &Network) -> usize {
    let words = ["--no-header", "--listening", "--numeric", "--tcp", "src"];
    let listed = Command::new("ss").args(words).arg(network.address(1)).output();
    let listed = listed.unwrap();
    let (stdout, stderr) = (text(&listed.stdout), text(&listed.stderr));
    let sizes = stdout.lines().map(|line| line.split_whitespace().nth(1).unwrap());
    let [size] = sizes.collect::<Vec<_>>()[..] else {
        panic!("the launcher listens once: {stdout}{stderr}");
    };
    size.parse().unwrap()
}

/// Suspends a job, breaks its links, and returns when each host waits in the launcher's queue. Each has one
/// place there, however long it waits: once there is no room the launcher's host looks as if it were gone.
fn suspend_without_links(network: &Network, job: &Child, time: Duration) {
    signal(job, "TSTP");
    await_stopped(job);
    break_all_links(network);
    let hosts = usize::from(HOSTS);
    await_true("a host does not try again", || {
        connections_in_queue(network) >= hosts
    });
    sleep(time);
    assert_eq!(connections_in_queue(network), hosts);
}

/// A launcher that is suspended for so long that many attempts would have failed has one of each host in its
/// queue, and all goes on over these.
#[test]
fn a_suspended_launcher_is_waited_for_in_its_queue() {
    let Some(network) = Network::new(94) else {
        return;
    };
    let job = start_with(&network, HOSTS, &[], SCRIPT);
    suspend_without_links(&network, &job, OUT_OF_REACH);
    signal(&job, "CONT");
    check(job, "out of the queue");
}

/// Who waits in the queue misses the launcher's host as well, by probes of the system.
#[test]
fn hosts_in_the_queue_give_up_a_suspended_launcher_out_of_reach() {
    /// How many times the detection time it takes to notice that a host does not answer probes.
    const PROBES: u32 = 4;
    let Some(network) = Network::new(95) else {
        return;
    };
    let mut job = start_with(&network, HOSTS, &[], "exec sleep 100");
    suspend_without_links(&network, &job, 3 * DETECT);
    set_in_reach(&network, false);
    sleep(OUT_OF_REACH);
    for host in 1..=HOSTS {
        assert!(!network.pids_on(host).is_empty(), "host {host} gives up too soon");
    }
    assert_empty(&network, 1..=HOSTS, PROBES * DETECT + SLACK);
    job.kill().unwrap();
    job.wait().unwrap();
}

/// Its host may be away for a while, and then nobody says any more when it will go on.
#[test]
fn a_suspended_launcher_comes_back_into_reach() {
    let Some(network) = Network::new(93) else {
        return;
    };
    let job = start_with(&network, HOSTS, &[], SCRIPT);
    signal(&job, "TSTP");
    await_stopped(&job);
    set_in_reach(&network, false);
    break_all_links(&network);
    sleep(OUT_OF_REACH / 2);
    set_in_reach(&network, true);
    sleep(OUT_OF_REACH);
    signal(&job, "CONT");
    check(job, "after its host was away");
}

/// Suspends a job while its first host has lost its links and is off the network, to which it comes back just
/// after. All goes on.
fn suspend_while_a_host_is_away(network: &Network, arity: u8, is_known: bool) {
    let job = start(network, arity, SCRIPT);
    let link = |state| {
        let status = network.on(1, &["ip", "link", "set", "eth0", state]).status();
        assert!(status.unwrap().success());
    };
    link("down");
    assert!(break_links(network, 1) > 0);
    if is_known {
        let address = network.address(11);
        let words = ["--kill", "--tcp", "state", "established", "dst", &address];
        let killed = Command::new("ss").arg("--no-header").args(words).output();
        assert_eq!(text(&killed.unwrap().stdout).lines().count(), 1);
    }
    signal(&job, "TSTP");
    sleep(Duration::from_millis(100));
    link("up");
    await_stopped(&job);
    sleep(SUSPENSION);
    signal(&job, "CONT");
    check(job, &format!("arity {arity}"));
}

/// A launcher that is to be stopped first says so to a host that is about to make its link again.
#[test]
fn a_host_that_comes_back_hears_that_it_is_suspended() {
    let Some(network) = Network::new(88) else {
        return;
    };
    suspend_while_a_host_is_away(&network, HOSTS, true);
}

/// A host whose link is gone without a word, so that only it knows, is waited for until it has made another
/// and has heard.
#[test]
fn a_host_that_was_not_reached_hears_that_it_is_suspended() {
    let Some(network) = Network::new(89) else {
        return;
    };
    for arity in [1, HOSTS] {
        suspend_while_a_host_is_away(&network, arity, false);
    }
}
