//! Streaming reductions in virtual time. `ROPEWALK_SEED` and `ROPEWALK_SEEDS` choose the first seed and their number.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeSet,
    env, fmt,
    hash::{DefaultHasher, Hash, Hasher},
};

use ropewalk_reduce_core::{End, GiveUp, Member, OnLoss, OnRootLoss, Order, Relays};
use ropewalk_sim::{
    Nanos, Process,
    reduction::{Burst, Collective, Fault, Made, Setting, Shared, Slow, run, run_in_turns, run_watched},
};

const MIB: u64 = 1 << 20;

/// The end of a job whose root, rank 0, has a result of all members.
fn all_of_them() -> Option<End> {
    Some(End::Done {
        root: Member(0),
        excluded: Vec::new(),
    })
}

fn factor(setting: &Setting) -> f64 {
    let outcome = run(setting).unwrap();
    assert_eq!(outcome.end, all_of_them());
    outcome.time.as_seconds() / setting.floor().as_seconds()
}

/// Every number of hosts, every root, and sizes around a chunk give the exact result.
#[test]
fn results_are_exact() {
    for order in [Order::Any, Order::Ordered] {
        for hosts in [1, 2, 3, 5, 8, 16, 33] {
            for bytes in [0, 1, 4_095, 4_096, 4_097, MIB] {
                for root in [0, hosts / 2, hosts - 1] {
                    let mut setting = Setting::new(hosts, bytes);
                    (setting.calls.order, setting.calls.root) = (order, root);
                    let outcome = run(&setting);
                    assert_eq!(
                        outcome.map(|outcome| outcome.end),
                        Ok(Some(End::Done {
                            root: Member(root),
                            excluded: Vec::new()
                        })),
                        "{hosts} hosts, {bytes} bytes, root {root}, {order:?}"
                    );
                }
            }
        }
    }
}

/// All ranks call at about the same time: the result of one goes to all others by one plan. One that is late gets its
/// own plan, and nobody else waits for it.
#[test]
fn a_broadcast_takes_one_plan() {
    for (hosts, bytes, limit) in [(50, MIB, 1.5), (200, 128 << 10, 5.0), (200, MIB, 2.0)] {
        let mut setting = Setting::new(hosts, bytes);
        (setting.calls.made, setting.calls.is_spread) = (Made::ByOne(0), true);
        let outcome = run(&setting).unwrap();
        let factor = outcome.time.as_seconds() / setting.floor().as_seconds();
        let rows = outcome.messages_from_scheduler;
        assert!(
            rows <= 3 * u64::from(hosts) && factor <= limit,
            "{hosts} hosts: {rows}, {factor}"
        );
        setting.late.push((hosts / 2, Nanos::from_millis(2_000)));
        let outcome = run(&setting).unwrap();
        let rows = outcome.messages_from_scheduler;
        assert!(rows <= 5 * u64::from(hosts), "{hosts} hosts, one late: {rows}");
        assert!(outcome.time < Nanos::from_millis(2_100), "{:?}", outcome.time);
    }
}

/// The blocks of many ranks come in by the root's link as if one rank sent them, and go on to all meanwhile. Short ones
/// come with their announcements.
#[test]
fn blocks_of_many_ranks_fill_the_link() {
    for (collective, hosts, root, bytes, limit) in [
        (Collective::Gather, 200, 66, 128 << 10, 1.05),
        (Collective::Gather, 1_000, 333, 32 << 10, 1.2),
        (Collective::Allgather, 50, 16, MIB, 1.2),
        (Collective::Allgather, 200, 66, 128 << 10, 1.25),
        // The scheduler is on the root's host, and is not.
        (Collective::Gather, 200, 0, 1 << 10, 1.6),
        (Collective::Gather, 200, 66, 1 << 10, 3.6),
    ] {
        let mut setting = Setting::new(hosts, bytes);
        setting.cluster.rate = 800e6;
        setting.calls.root = root;
        setting.set_collective(collective);
        let outcome = run(&setting).unwrap();
        let factor = outcome.time.as_seconds() / setting.floor().as_seconds();
        assert!(
            factor < limit,
            "{collective:?} of {bytes} on {hosts} hosts: {factor:.3}"
        );
    }
}

/// Short contributions come with their announcements: two messages for each rank and one row. The root has its result
/// after one hop, if the scheduler is there too, and everybody knows after another one; elsewhere after two more.
#[test]
fn short_contributions_take_one_hop() {
    for order in [Order::Any, Order::Ordered] {
        for (root, hops) in [(0, 2), (5, 4)] {
            let mut setting = Setting::new(8, 4_000);
            (setting.calls.order, setting.calls.root) = (order, root);
            let outcome = run(&setting).unwrap();
            let from_scheduler = outcome.messages_from_scheduler;
            assert_eq!((from_scheduler, outcome.messages_to_scheduler), (9, 9));
            let links = 2.0 * 8.0 * 4_500.0 / setting.cluster.rate;
            let time = outcome.time.as_seconds() - links;
            assert!(
                time <= f64::from(hops) * setting.cluster.latency.as_seconds(),
                "{:?}",
                outcome.time
            );
        }
    }
}

/// The scheduler of a large job has few messages at once, and a short reduction is over in less than half of the time.
/// A relay that dies with what it holds costs no more than to see that it is lost.
#[test]
fn relays_spare_the_scheduler() {
    const RELAY: u32 = 14;
    let mut setting = Setting::new(200, 8);
    // So fast that links are no matter.
    setting.cluster.rate = 1e9;
    let relayed = run(&setting).unwrap();
    let messages = relayed.messages_to_scheduler + relayed.messages_from_scheduler;
    assert!(messages < 100, "{messages}");
    for micros in [60, 120, 180] {
        setting.faults = vec![(Nanos::from_micros(micros), Fault::KillRank(RELAY))];
        let killed = run(&setting).unwrap();
        assert_eq!(killed.end, all_of_them());
        let limit = relayed.time + setting.timeouts.detection + Nanos::from_millis(1);
        assert!(killed.time < limit, "{:?} of {limit:?}", killed.time);
    }
    setting.faults.clear();
    setting.relays = Relays::in_groups(200, 1);
    let direct = run(&setting).unwrap();
    assert!(relayed.time.as_seconds() < 0.5 * direct.time.as_seconds());
}

/// Undisturbed, on equal links: near the time that one link takes for the vector.
#[test]
fn undisturbed_it_is_at_the_floor() {
    for (hosts, bytes, limit) in [
        (8, 8 * MIB, 1.10),
        (16, 4 * MIB, 1.20),
        (8, MIB, 1.30),
        (200, 128 * MIB, 1.15),
    ] {
        let factor = factor(&Setting::new(hosts, bytes));
        assert!(factor < limit, "{hosts} hosts, {bytes} bytes: {factor:.3}");
    }
}

/// In a fixed order several blocks of ranks are folded with each other, on sites that take turns.
#[test]
fn blocks_of_a_fixed_order_share_the_links() {
    for (hosts, mib, limit) in [(16, 8, 1.15), (64, 8, 1.25), (200, 8, 1.40), (64, 128, 1.25)] {
        let mut setting = Setting::new(hosts, mib * MIB);
        setting.calls.order = Order::Ordered;
        let factor = factor(&setting);
        assert!(factor < limit, "{hosts} hosts, {mib} MiB: {factor:.3}");
    }
}

/// Two runs of a setting have the same outcome and the same log: the time, the process and the content of every event.
#[test]
fn runs_are_reproducible() {
    let logged = |setting: &Setting| {
        let mut digest = DefaultHasher::new();
        let mut watch = |at: Nanos, process: Process, what: &dyn fmt::Debug| {
            (at, process.0, format!("{what:?}")).hash(&mut digest);
        };
        let outcome = run_watched(setting, &mut watch);
        (outcome, digest.finish())
    };
    let mut digests = BTreeSet::new();
    for setting in (0..100).flat_map(Setting::of_seed) {
        let (outcome, digest) = logged(&setting);
        assert_eq!((outcome, digest), logged(&setting), "{setting:#?}");
        digests.insert(digest);
    }
    // The log tells settings apart, but for the jobs of a seed that are alike.
    assert!(digests.len() > 150, "{} logs of 200 jobs", digests.len());
}

/// A rank that dies in the middle costs a refill of the pipeline, and nothing else.
#[test]
fn a_kill_in_the_middle_costs_little() {
    for victim in 1..8 {
        let mut setting = Setting::new(8, 32 * MIB);
        let undisturbed = run(&setting).unwrap().time.as_seconds();
        setting.faults = vec![(Nanos::from_seconds(undisturbed / 2.0), Fault::KillRank(victim))];
        let outcome = run(&setting).unwrap();
        assert_eq!(outcome.end, all_of_them());
        let limit = 1.15 * undisturbed + 0.005;
        let time = outcome.time.as_seconds();
        assert!(
            time < limit,
            "rank {victim}: {time:.4} s, undisturbed {undisturbed:.4} s"
        );
    }
}

/// The copy of each contribution lacks what the root has merged when it is made. A host that dies later is not missed.
#[test]
fn copies_need_not_have_what_is_merged() {
    let mut setting = Setting::new(8, 32 * MIB);
    let undisturbed = run(&setting).unwrap().time.as_seconds();
    let at = |part: f64| Nanos::from_seconds(part * undisturbed);
    setting.copies = Some(at(0.5));
    for victim in 1..8 {
        setting.faults = vec![(at(0.7), Fault::KillHost(victim))];
        assert_eq!(run(&setting).unwrap().end, all_of_them());
    }
}

/// Ranks that come late, one by one or one alone, cost the time of one transfer after the last has come.
#[test]
fn late_ranks_cost_one_transfer() {
    let one_by_one = (1..8)
        .map(|host| (host, Nanos::from_millis(u64::from(host) * 40)))
        .collect();
    let shortly = vec![(5, Nanos::from_millis(100))];
    let long = vec![(5, Nanos::from_millis(3_000))];
    for late in [one_by_one, shortly, long] {
        let mut setting = Setting::new(8, 32 * MIB);
        setting.late = late;
        let outcome = run(&setting).unwrap();
        assert_eq!(outcome.end, all_of_them());
        let last = setting.late.iter().map(|(_, late)| late.as_seconds());
        let last = last.fold(0.0, f64::max);
        let (time, floor) = (outcome.time.as_seconds(), setting.floor().as_seconds());
        let factor = (time - last) / floor;
        assert!(factor < 1.10, "{:?}: {factor:.3} after the last", setting.late);
    }
}

/// Nothing arrives at one host from another, for ever: whichever the two are, the scheduler's and the root's too, a
/// third host that reaches both is all that it takes.
#[test]
fn one_way_cuts_are_gone_around() {
    const FOR_EVER: Nanos = Nanos::from_millis(500_000);
    for (hosts, order) in [
        (3, Order::Any),
        (3, Order::Ordered),
        (5, Order::Any),
        (5, Order::Ordered),
    ] {
        for (root, is_spread) in [(0, false), (1, false), (0, true)] {
            let mut setting = Setting::new(hosts, 4 * MIB);
            (setting.calls.order, setting.calls.root, setting.calls.is_spread) = (order, root, is_spread);
            let undisturbed = run(&setting).unwrap().time.as_seconds();
            for (from, to) in (0..hosts).flat_map(|from| (0..hosts).map(move |to| (from, to))) {
                if from == to {
                    continue;
                }
                for at in [0.0, undisturbed / 4.0, undisturbed / 2.0, undisturbed * 0.75] {
                    setting.faults = vec![(Nanos::from_seconds(at), Fault::Cut(from, to, FOR_EVER))];
                    let outcome = run(&setting).unwrap();
                    let expected = End::Done {
                        root: Member(root),
                        excluded: Vec::new(),
                    };
                    let case = format!(
                        "{hosts} hosts, root {root}, {order:?}, spread: {is_spread}, {from} to {to} at {at} s"
                    );
                    assert_eq!(outcome.end, Some(expected), "{case}");
                    let limit = 4.0 * undisturbed + 3.0 * setting.timeouts.link.as_seconds();
                    assert!(
                        outcome.time.as_seconds() < limit,
                        "{case}: {}",
                        outcome.time.as_seconds()
                    );
                }
            }
        }
    }
}

/// A lost host takes a contribution with it. The others go on without it if they may.
#[test]
fn a_lost_host_can_be_excluded() {
    let mut setting = Setting::new(8, 8 * MIB);
    setting.faults = vec![(Nanos::from_millis(60), Fault::KillHost(3))];
    let lost = vec![Member(3)];
    assert_eq!(run(&setting).unwrap().end, Some(End::Lost(lost.clone())));
    setting.calls.on_loss = OnLoss::Exclude;
    let end = End::Done {
        root: Member(0),
        excluded: lost,
    };
    assert_eq!(run(&setting).unwrap().end, Some(end));
}

/// The root may move when its rank dies, which the first scheduler's rank is as well.
#[test]
fn the_root_can_move() {
    let mut setting = Setting::new(8, 8 * MIB);
    setting.faults = vec![(Nanos::from_millis(60), Fault::KillRank(0))];
    assert_eq!(run(&setting).unwrap().end, Some(End::RootLost));
    setting.calls.on_root_loss = OnRootLoss::MoveTo(Member(5));
    let end = End::Done {
        root: Member(5),
        excluded: Vec::new(),
    };
    assert_eq!(run(&setting).unwrap().end, Some(end));
    // Where it should move to may be lost too.
    setting.faults.push((Nanos::from_millis(50), Fault::KillRank(5)));
    assert_eq!(run(&setting).unwrap().end, Some(End::RootLost));
}

/// Whatever dies, stops or is cut off, and whenever: the result is exact or the verdict is right, and nobody hangs.
#[test]
fn random_faults_break_no_promise() {
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let begin = number("ROPEWALK_SEED").unwrap_or(0);
    let seeds = number("ROPEWALK_SEEDS").unwrap_or(2_000);
    let (mut done, mut jobs) = (0, 0);
    for seed in begin..begin + seeds {
        for setting in Setting::of_seed(seed) {
            jobs += 1;
            match run(&setting) {
                Ok(outcome) => done += u64::from(matches!(outcome.end, Some(End::Done { .. }))),
                Err(violation) => {
                    panic!("ROPEWALK_SEED={seed} ROPEWALK_SEEDS=1: {violation:?} in {setting:#?}")
                }
            }
        }
    }
    println!("{done} of {jobs} jobs have a result");
    // A test of errors alone would show little.
    assert!(done > jobs / 4 || seeds < 100, "{done} of {jobs}");
}

/// The same where contributions come with announcements and results with ends, and all happens within three
/// milliseconds.
#[test]
fn random_faults_in_short_collectives() {
    const SPAN: u64 = 3_000_000;
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let begin = number("ROPEWALK_SEED").unwrap_or(0);
    let seeds = number("ROPEWALK_SEEDS").unwrap_or(2_000);
    for seed in begin..begin + seeds {
        let mut setting = Setting::random(seed);
        setting.calls.shared = None;
        if setting.calls.made == Made::SideBySide {
            setting.calls.made = Made::ByEach;
        }
        setting.calls.bytes %= 1_025;
        setting.calls.is_spread = seed % 4 > 0;
        for (_, at) in &mut setting.late {
            at.0 %= SPAN;
        }
        for (at, _) in &mut setting.faults {
            at.0 %= SPAN;
        }
        if let Err(violation) = run(&setting) {
            panic!("ROPEWALK_SEED={seed} ROPEWALK_SEEDS=1: {violation:?} in {setting:#?}");
        }
    }
}

/// Contributions that all ranks hold are folded as by a serial loop, in runs of equal length; a rank that dies costs
/// time only, whether it had called or not, and the root too if it may move.
#[test]
fn shared_contributions_survive_any_rank() {
    for (hosts, members) in [(1, 1), (1, 7), (2, 64), (4, 3), (5, 200)] {
        for victim in 0..hosts {
            for at in [0, 3, 20, 60] {
                let mut setting = Setting::new(hosts, 4 * MIB);
                setting.calls.shared = Some(Shared {
                    members,
                    holders: hosts,
                });
                setting.calls.order = Order::Ordered;
                setting.calls.on_root_loss = OnRootLoss::MoveToLowest;
                setting.late = vec![(hosts - 1, Nanos::from_millis(2))];
                if hosts > 1 {
                    setting.faults = vec![(Nanos::from_millis(at), Fault::KillRank(victim))];
                }
                let outcome = run(&setting);
                let is_done = |end: &Option<End>| match end {
                    Some(End::Done { excluded, .. }) => excluded.is_empty(),
                    _ => false,
                };
                assert!(
                    outcome.as_ref().is_ok_and(|outcome| is_done(&outcome.end)),
                    "{hosts} hosts, {members} members, {victim} dies at {at}: {outcome:?}"
                );
            }
        }
    }
}

/// A contribution that is on another host too survives the loss of its host.
#[test]
fn copies_survive_hosts() {
    for victim in 1..5 {
        let mut setting = Setting::new(5, 4 * MIB);
        setting.faults = vec![(Nanos::from_millis(30), Fault::KillHost(victim))];
        let lost = run(&setting).unwrap();
        assert_eq!(lost.end, Some(End::Lost(vec![Member(victim)])));
        setting.copies = Some(Nanos::from_millis(20));
        assert_eq!(run(&setting).unwrap().end, all_of_them());
    }
}

/// Copies that are stored before the calls count cost the time until they are stored, and no more: nobody reads them.
#[test]
fn acknowledged_copies_are_not_read() {
    for hosts in [5, 32] {
        let mut setting = Setting::new(hosts, 8 * MIB);
        let plain = run(&setting).unwrap().time;
        let (copied, answered) = (setting.floor(), Nanos::from_micros(200));
        setting.copies = Some(copied);
        setting.acknowledged = Some(answered);
        let outcome = run(&setting).unwrap();
        assert_eq!(outcome.end, all_of_them());
        let most = (copied + answered + plain).as_seconds() * 1.1;
        assert!(
            outcome.time.as_seconds() < most,
            "{hosts}: {:?} of {most} s",
            outcome.time
        );
    }
}

/// A setting of eight hosts, of which some turn out to receive at a tenth of the rate.
fn receiving_slowly(bytes: u64, hosts: &[u32]) -> Setting {
    let mut setting = Setting::new(8, bytes);
    let slow = |host: &u32| Slow {
        host: *host,
        outwards: 1.0,
        inwards: 0.1,
        folding: 1.0,
        is_known: false,
    };
    setting.cluster.slow = BTreeSet::from_iter(hosts).into_iter().map(slow).collect();
    setting
}

/// Hosts that turn out to receive at a tenth of the rate, which nobody knew, become leaves before they cost much,
/// wherever they are in the chain.
#[test]
fn slow_hosts_are_found() {
    let factor_with = |bytes, hosts: &[u32]| factor(&receiving_slowly(bytes, hosts));
    for host in 1..8 {
        for (bytes, limit) in [(8 * MIB, 2.0), (32 * MIB, 1.4)] {
            let factor = factor_with(bytes, &[host]);
            assert!(factor < limit, "{bytes} bytes, {host}: {factor:.3}");
        }
    }
    for hosts in [[1, 2], [1, 5], [3, 6], [6, 7]] {
        let factor = factor_with(32 * MIB, &hosts);
        assert!(factor < 5.0, "{hosts:?}: {factor:.3}");
    }
}

/// Up to three slow hosts of eight are found in the first calls, and later ones go around them, wherever they are.
#[test]
fn later_calls_go_around_slow_hosts() {
    let sets =
        (1..8).flat_map(|one| (one..8).flat_map(move |two| (two..8).map(move |three| [one, two, three])));
    for hosts in sets {
        for bytes in [MIB, 4 * MIB] {
            let mut setting = receiving_slowly(bytes, &hosts);
            setting.calls.count = 7;
            let outcomes = run_in_turns(&setting).unwrap();
            let factors = outcomes
                .iter()
                .map(|outcome| outcome.time.as_seconds() / setting.floor().as_seconds());
            let factors: Vec<_> = factors.collect();
            let are_fast = factors[4..].iter().all(|factor| *factor < 1.5);
            assert!(are_fast, "hosts {hosts:?}, {bytes} bytes: {factors:.2?}");
        }
    }
}

/// A link that lets through some chunks at once is not faster than others, and nobody is slow beside it.
#[test]
fn token_buckets_make_nobody_slow() {
    for (order, hosts) in [(Order::Ordered, 16), (Order::Ordered, 32), (Order::Any, 16)] {
        let mut setting = Setting::new(hosts, 32 * MIB);
        setting.calls.order = order;
        setting.calls.count = 6;
        setting.cluster.rate = 18.75e6;
        setting.cluster.burst = Some(Burst {
            bytes: 64 << 10,
            peak: 110e6,
        });
        for outcome in run_in_turns(&setting).unwrap() {
            let factor = outcome.time.as_seconds() / setting.floor().as_seconds();
            assert!(factor < 1.4, "{hosts} hosts, {order:?}: {factor:.3}");
        }
    }
}

/// Several calls at once give exact results, each of its own contributions, also when ranks and hosts are lost. They
/// share the links: together they take as long as their vectors do one after the other.
#[test]
fn calls_at_once_keep_apart() {
    let mut setting = Setting::new(8, MIB);
    let alone = factor(&setting);
    setting.calls.count = 8;
    let times = factor(&setting) / alone;
    assert!((4.0..9.0).contains(&times), "{times:.2}");
    for seed in 0..30 {
        let mut setting = Setting::random(seed);
        setting.calls.count = 3;
        run(&setting).unwrap_or_else(|violation| panic!("seed {seed}: {violation:?}"));
    }
}

/// A rank cancels in the middle: all are told that. One that cancels after the end changes nothing.
#[test]
fn a_cancelled_call_ends_for_all() {
    let mut setting = Setting::new(8, 32 * MIB);
    let undisturbed = run(&setting).unwrap().time.as_seconds();
    setting.faults = vec![(Nanos::from_seconds(undisturbed / 2.0), Fault::Cancel(3))];
    let outcome = run(&setting).unwrap();
    let cancelled = End::GivenUp {
        member: Member(3),
        reason: GiveUp::Cancelled,
        missing: Vec::new(),
    };
    assert_eq!(outcome.end, Some(cancelled));
    assert!(outcome.time.as_seconds() < 0.6 * undisturbed);
    setting.faults = vec![(Nanos::from_seconds(undisturbed * 2.0), Fault::Cancel(3))];
    assert_eq!(run(&setting).unwrap().end, all_of_them());
}

/// A call that was made before is planned before it is made again: its ranks do not wait for the scheduler.
#[test]
fn repeated_calls_are_planned_ahead() {
    for is_spread in [false, true] {
        for (bytes, limit) in [(16 << 10, 0.85), (128 << 10, 0.95)] {
            let mut setting = Setting::new(200, bytes);
            setting.cluster.rate = 1.25e9;
            setting.calls.is_spread = is_spread;
            setting.calls.count = 4;
            let outcomes = run_in_turns(&setting).unwrap();
            let times: Vec<f64> = outcomes.iter().map(|outcome| outcome.time.as_seconds()).collect();
            assert!(
                times[2..].iter().all(|time| *time < limit * times[0]),
                "{times:?}"
            );
        }
    }
}
