//! Reductions by real processes under `ropewalk run`. What is checked stands in `examples/reduce_scenarios.rs`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use rig::{example, run_example, told};

type Told = (Option<i32>, String, String);

fn run(ranks: u32, scenario: &str, environment: &[(&str, &str)]) -> Told {
    run_on(&[], ranks, scenario, environment)
}

fn run_on(hosts: &[&str], ranks: u32, scenario: &str, environment: &[(&str, &str)]) -> Told {
    let mut command = run_example("reduce_scenarios", ranks, hosts, &[scenario]);
    command.envs(environment.iter().copied());
    told(command)
}

/// Runs a scenario of which `dead` ranks do not come back.
fn check(ranks: u32, scenario: &str, dead: u32) {
    check_with(ranks, scenario, dead, &[]);
}

fn check_with(ranks: u32, scenario: &str, dead: u32, environment: &[(&str, &str)]) {
    check_on(&[], ranks, scenario, dead, environment);
}

fn check_on(hosts: &[&str], ranks: u32, scenario: &str, dead: u32, environment: &[(&str, &str)]) {
    let (code, stdout, stderr) = run_on(hosts, ranks, scenario, environment);
    let ok = stdout
        .lines()
        .filter(|line| *line == format!("{scenario}: ok"))
        .count();
    assert_eq!(ok as u32, ranks - dead, "{stdout}{stderr}");
    // Whoever dies, the others hear of it and go well: the program did without.
    assert_eq!(code, Some(0), "{stdout}{stderr}");
}

/// Another rank of another host takes the scheduler over.
#[test]
fn a_scheduler_of_several_hosts_may_die() {
    check_on(
        &["-launcher", "fork", "-hosts", "h1,h2"],
        5,
        "dead-scheduler",
        1,
        &[],
    );
}

/// A rank that works on one thing for longer than the detection time is silent meanwhile, and nobody gives it up.
#[test]
fn an_operation_may_take_its_time() {
    let detect = ["--detect", "0.5"];
    check_on(&detect, 4, "slow", 0, &[]);
    let hosts = ["-launcher", "fork", "-hosts", "h1,h2,h3,h4"];
    check_on(&[&detect[..], &hosts[..]].concat(), 4, "slow", 0, &[]);
}

/// By whatever ways the ranks are told to reach each other, results are the same; where they name none, it is said.
#[test]
fn transports_are_chosen_by_the_environment() {
    const VARIABLE: &str = "ROPEWALK_TRANSPORTS";
    for transports in ["tcp", "shm", "shm,no-process-vm", "unix"] {
        check_with(3, "sizes", 0, &[(VARIABLE, transports)]);
    }
    let (code, _, stderr) = run(2, "arithmetic", &[(VARIABLE, "carrier-pigeon")]);
    assert_ne!(code, Some(0), "{stderr}");
    assert!(
        stderr.contains("ROPEWALK_TRANSPORTS cannot be understood"),
        "{stderr}"
    );
}

/// A contribution outlives its rank on several hosts too: where others share its host, and where it was alone.
#[test]
fn contributions_outlive_ranks_of_other_hosts() {
    for hosts in ["h1:3,h2:3", "h1,h2,h3,h4,h5,h6"] {
        let hosts = ["-launcher", "fork", "-hosts", hosts];
        check_on(&hosts, 6, "dead-after-its-call", 1, &[]);
    }
}

/// A rank that stands still for ten seconds, that with the scheduler or another, disturbs nothing.
#[test]
fn a_stopped_rank_is_waited_for() {
    for stopped in ["0", "2"] {
        check_with(3, "stopped", 0, &[("STOPPED", stopped)]);
    }
}

/// After an error a rank waits for the others for seconds only, and says for whom in vain.
#[test]
fn after_an_error_nobody_waits_long_to_leave() {
    let (_, _, stderr) = run(3, "impatient", &[]);
    let told = stderr.matches("impatient: the process manager did not answer");
    assert_eq!(told.count(), 2, "{stderr}");
}

/// A rank joins its job with one program. Another hears at once that it is too late, whether the first lives, and
/// reads what the agent says, or is gone.
#[test]
fn a_second_program_of_a_rank_is_refused_at_once() {
    let program = example("reduce_scenarios");
    let program = program.display();
    // The process manager would refuse it too.
    let second = format!("env -u PMI_FD timeout 10 {program} sizes");
    // A program has memory of its endpoint once its agent has told it who it is. Rank 1 does not begin before the
    // second program of rank 0 was refused, so that the first cannot be over by then.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let refused = folder.path().join("refused");
    let refused = refused.display();
    let script = format!(
        "case $RANK in
            0) {program} sizes &
               until ls -l /proc/$!/fd | grep -q memfd:ropewalk; do sleep 0.02; done
               {second}; touch {refused}; wait $!;;
            1) until [ -e {refused} ]; do sleep 0.02; done; exec {program} sizes;;
            2) {program} sizes; {second}; exit 0;;
        esac"
    );
    let job = rig::run(&["-n", "3", "--timeout", "60", "sh", "-c", &script]);
    let (code, stdout, stderr) = told(job);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert_eq!(stdout.matches("sizes: ok").count(), 3, "{stdout}{stderr}");
    let refused = stderr.matches("another program of this rank has joined");
    assert_eq!(refused.count(), 2, "{stdout}{stderr}");
}

/// Whichever rank dies, and whenever, contributions that all can read are in the result, in order and once.
#[test]
fn sources_survive_any_rank() {
    for victim in [0, 1, 2, 9] {
        for reads in [0, 1, 6] {
            let arguments = [victim, reads].map(|number: u32| number.to_string());
            let arguments = [arguments[0].as_str(), &arguments[1]];
            let (_, stdout, stderr) = told(run_example("reduce_sources", 3, &[], &arguments));
            let said = |line: &str| stdout.matches(line).count();
            let (ok, results) = (said("sources: ok"), said("result: 262144"));
            let is_right = match (victim, reads) {
                (9, _) => ok == 3,
                (_, 0) => ok == 2,
                // One that is late reads nothing, and so lives.
                _ => ok == 2 || ok == 3,
            };
            assert!(
                is_right && results == 1,
                "{victim} dies in read {reads}: {stdout}{stderr}"
            );
        }
    }
}

/// Vectors that each rank can make are made again if a rank dies; if they are others then, all are told.
#[test]
fn vectors_are_made_again() {
    for (victim, how) in [
        (9, "alike"),
        (0, "alike"),
        (1, "alike"),
        (9, "otherwise"),
        (1, "otherwise"),
    ] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let dies = folder.path().join("dies");
        let arguments = [&victim.to_string(), how, dies.to_str().unwrap()];
        let (_, stdout, stderr) = told(run_example("reduce_made", 3, &[], &arguments));
        let said = |line: &str| stdout.matches(line).count();
        let expected = match (victim, how) {
            (9, "otherwise") => (3, 0, 0),
            (_, "otherwise") => (2, 0, 2),
            (9, _) => (3, 1, 0),
            _ => (2, 1, 0),
        };
        assert_eq!(
            (said("made: ok"), said("result without"), said("odd: ")),
            expected,
            "{victim} dies, {how}: {stdout}{stderr}"
        );
    }
}

/// A contribution that another host has a copy of survives the loss of its host, that with the scheduler and the root
/// too; without a copy it is lost, and all are told whose it was.
#[test]
fn copies_survive_their_hosts() {
    for (victim, how) in [
        (1, "background"),
        (2, "acknowledged"),
        (0, "acknowledged"),
        (1, "process"),
        (9, "background"),
    ] {
        let options = ["-launcher", "fork", "-hosts", "h1,h2,h3,h4", "--detect", "1"];
        let job = run_example("reduce_copies", 4, &options, &[&victim.to_string(), how]);
        let (_, stdout, stderr) = told(job);
        let said = |line: &str| stdout.matches(line).count();
        let (ok, results) = match (victim, how) {
            (9, _) => (4, 1),
            (_, "process") => (3, 0),
            _ => (3, 1),
        };
        assert_eq!(
            (said("copies: ok"), said("result without")),
            (ok, results),
            "{victim} dies, {how}: {stdout}{stderr}"
        );
    }
}

macro_rules! scenarios {
    ($($(#[$doc:meta])* $name:ident: $ranks:expr, $scenario:literal, $dead:literal;)*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            for ranks in $ranks {
                check(ranks, $scenario, $dead);
            }
        }
    )*};
}

scenarios! {
    /// Predefined operations are right for every number of ranks and every root.
    arithmetic: [1, 2, 3, 8], "arithmetic", 0;
    /// A reduction can be awaited.
    awaited: [3], "awaited", 0;
    /// Many reductions go on at once.
    concurrent: [5], "concurrent", 0;
    /// An error that one rank has by itself reaches the others.
    broken_link: [3], "broken-link", 0;
    /// A contribution that was never made is named.
    dead_before_its_call: [5], "dead-before-its-call", 1;
    /// A dead root ends the reduction.
    dead_root: [5], "dead-root", 1;
    /// A dead scheduler costs nothing but time.
    dead_scheduler: [5], "dead-scheduler", 1;
    /// A scheduler that died before the call is missed as a member.
    dead_scheduler_before: [3], "dead-scheduler-before", 1;
    /// A late rank is waited for.
    late: [4], "late", 0;
    /// Operations that do not commute come out in order.
    matrices: [2, 5, 8], "matrices", 0;
    /// Members that do not agree are told.
    mismatch: [4], "mismatch", 0;
    /// The root can move.
    moved_root: [5], "moved-root", 1;
    /// Objects are reduced whole.
    objects: [2, 6], "objects", 0;
    /// Ordered sums are bitwise reproducible.
    ordered: [2, 7], "ordered", 0;
    /// A panic in an operation stays in its reduction.
    panics: [3], "panic", 0;
    /// An identifier serves once.
    reused_id: [2], "reused-id", 0;
    /// No size is special.
    sizes: [3], "sizes", 0;
    /// Groups reduce by themselves.
    subgroups: [5], "subgroups", 0;
    /// Threads reduce side by side.
    threads: [1, 3], "threads", 0;
    /// A call that fails on one rank is told to the others.
    withdrawn: [4], "withdrawn", 0;
}
