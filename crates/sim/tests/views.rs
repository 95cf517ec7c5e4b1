//! Agreement on views in virtual time. `ROPEWALK_SEED` and `ROPEWALK_SEEDS` choose the first seed and their number.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeSet, env};

use ropewalk_membership::Stop;
use ropewalk_names::Rank;
use ropewalk_sim::{
    Dice, Nanos,
    views::{Fault, Setting, run},
};

/// The seeds that are asked for, or so many from 1 on.
fn seeds(default: u64) -> std::ops::Range<u64> {
    let read = |name| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = read("ROPEWALK_SEED").unwrap_or(1);
    first..first + read("ROPEWALK_SEEDS").unwrap_or(default)
}

fn millis(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

/// Whatever goes wrong: there is one chain of views, each decided by a majority of the one before it, and after the
/// faults all that live and have not stopped themselves are the members of its end, or nobody is left.
#[test]
fn random_faults_leave_one_chain() {
    let (mut views, mut minorities, mut fenced, mut survivors) = (0, 0, 0, 0);
    for seed in seeds(4_000) {
        let setting = Setting::drawn(seed);
        let outcome =
            run(&setting).unwrap_or_else(|violation| panic!("seed {seed}: {violation:?}\n{setting:?}"));
        views += outcome.chain.len() - 1;
        survivors += usize::from(!outcome.members.is_empty());
        for stop in outcome.stopped.values() {
            match stop {
                Stop::Fenced { .. } => fenced += 1,
                _ => minorities += 1,
            }
        }
    }
    if env::var_os("ROPEWALK_SEEDS").is_none() {
        // The faults are such that all of this happens often.
        assert!(
            views > 1_000 && minorities > 1_000 && fenced > 200 && survivors > 1_500,
            "{views} views, {minorities} in minorities, {fenced} fenced, {survivors} with survivors"
        );
    }
}

/// If fewer than half of the members die, whenever, the others go on, all of them, and soon.
#[test]
fn a_majority_survives_deaths() {
    for seed in seeds(1_000) {
        let mut dice = Dice::new(seed);
        let members = dice.within(3..12) as u32;
        let mut setting = Setting::new(members, seed);
        let deaths = dice.within(1..u64::from(members).div_ceil(2));
        let mut dead = BTreeSet::new();
        while (dead.len() as u64) < deaths {
            dead.insert(dice.below(u64::from(members)) as u32);
        }
        let is_at_once = dice.once_in(3);
        for &one in &dead {
            let at = match is_at_once {
                true => 500,
                false => dice.below(2_000),
            };
            setting.faults.push((millis(at), Fault::Kill(one)));
        }
        let outcome = run(&setting).unwrap();
        let living: Vec<Rank> = (0..members)
            .filter(|rank| !dead.contains(rank))
            .map(Rank)
            .collect();
        assert_eq!(outcome.members, living, "seed {seed}");
        assert!(outcome.stopped.is_empty(), "seed {seed}: {:?}", outcome.stopped);
        assert!(
            outcome.settled < millis(4_000),
            "seed {seed}: {:?}",
            outcome.settled
        );
    }
}

/// A proposer that dies in the middle of its proposal leaves no fork, whichever its last message was.
#[test]
fn a_proposer_may_die_at_any_moment() {
    for step in 0..400 {
        let mut setting = Setting::new(5, step);
        setting.faults.push((millis(100), Fault::Kill(4)));
        // The silence is noticed between 600 and 700 ms, and the attempt takes some.
        setting
            .faults
            .push((Nanos(600_000_000 + step * 500_000), Fault::Kill(0)));
        let outcome = run(&setting).unwrap();
        assert_eq!(outcome.members, [1, 2, 3].map(Rank), "step {step}");
    }
}

/// Of two sides the one with more members goes on, or at a tie the one with the lowest rank. The others stop
/// themselves, and say that they are in the minority.
#[test]
fn a_minority_stops_itself() {
    for (members, side) in [
        (5, vec![3, 4]),
        (5, vec![0, 1]),
        (4, vec![1, 2]),
        (4, vec![3]),
        (2, vec![1]),
    ] {
        let mut setting = Setting::new(members, 7);
        setting.cuts_stay = true;
        for one in 0..members {
            for other in 0..members {
                if side.contains(&one) != side.contains(&other) {
                    setting.faults.push((millis(100), Fault::Cut(one, other)));
                }
            }
        }
        let outcome = run(&setting).unwrap();
        let others: Vec<Rank> = (0..members)
            .filter(|rank| !side.contains(rank))
            .map(Rank)
            .collect();
        assert_eq!(outcome.members, others, "{members} members, {side:?} apart");
        for rank in side.iter().copied().map(Rank) {
            let Stop::Minority {
                reached,
                members: of,
                lost,
                ..
            } = &outcome.stopped[&rank]
            else {
                panic!("{:?}", outcome.stopped);
            };
            assert_eq!((*reached, *of, lost), (side.len() as u32, members, &others));
        }
    }
}

/// A member that stood still while the others went on without it is told that it is fenced.
#[test]
fn a_fenced_member_is_told() {
    let mut setting = Setting::new(4, 3);
    setting.faults = vec![(millis(100), Fault::Stop(0)), (millis(2_500), Fault::Continue(0))];
    let outcome = run(&setting).unwrap();
    assert_eq!(outcome.members, [1, 2, 3].map(Rank));
    assert!(
        matches!(outcome.stopped[&Rank(0)], Stop::Fenced { rank: Rank(0), epoch } if epoch.counter.0 == 1)
    );
}

/// Two members that do not hear each other, while all others hear both: one of them is left out, and only one.
#[test]
fn a_cut_between_two_costs_one() {
    for ways in [
        vec![(1, 2)],
        vec![(2, 1)],
        vec![(1, 2), (2, 1)],
        vec![(0, 3), (3, 0)],
    ] {
        let mut setting = Setting::new(4, 5);
        setting.cuts_stay = true;
        let cuts = ways
            .iter()
            .map(|(one, other)| (millis(100), Fault::Cut(*one, *other)));
        setting.faults = cuts.collect();
        let outcome = run(&setting).unwrap();
        assert_eq!(outcome.members.len(), 3, "{ways:?}: {outcome:?}");
    }
}

/// The same seed gives the same events.
#[test]
fn runs_repeat() {
    for seed in 1..50 {
        let setting = Setting::drawn(seed);
        assert_eq!(run(&setting), run(&setting));
    }
}
