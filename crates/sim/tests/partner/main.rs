//! Whole jobs whose hosts copy checkpoints from each other and are lost, drawn from seeds. `ROPEWALK_SEED` and
//! `ROPEWALK_SEEDS` choose the first seed and their number.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod world;

use std::{collections::BTreeSet, env};

use ropewalk_sim::Nanos;
use world::Job;

/// Checks many jobs; of one that breaks a promise the seed is told.
fn check(test: impl Fn(Job) + std::panic::RefUnwindSafe) {
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let begin = number("ROPEWALK_SEED").unwrap_or(0);
    for seed in begin..begin + number("ROPEWALK_SEEDS").unwrap_or(2000) {
        let result = std::panic::catch_unwind(|| test(Job::new(seed)));
        assert!(result.is_ok(), "ROPEWALK_SEED={seed} ROPEWALK_SEEDS=1");
    }
}

/// Again and again a host loses its disk and the ranks of the others go on saving, for long. That host answers that it
/// has nothing, or not at all; a new one takes its place or none, and ranks may come to other hosts. Generations that
/// were protected are found, also if nobody had heard that they were, and those that were there at the start without
/// that host. If all stop at once, the newest one that is whole without it is found.
#[test]
fn what_is_protected_outlives_a_disk() {
    check(|mut job| {
        while job.disks.len() > 1 {
            job.go_on_for(400);
            if job.dice.once_in(2) {
                job.start_again();
                job.go_on_for(400);
            }
            let lost = job.below(job.disks.len());
            let mut expected = job.newest_protected().max(job.left_without[lost]);
            let newest = job.newest_without(lost);
            assert!(
                newest >= expected,
                "before: {newest:?} is older than {expected:?}"
            );
            job.lose(lost);
            if job.dice.once_in(10) {
                expected = newest;
            } else {
                job.go_on_for(400);
            }
            let without = job.dice.once_in(2);
            let found = job.recover(lost, without);
            assert!(found >= expected, "{found:?} is older than {expected:?}");
        }
    });
}

/// Where no host is lost, the newest that is protected stays so until something newer is.
#[test]
fn what_is_protected_stays_so() {
    check(|mut job| {
        if job.is_on_one_host() {
            return;
        }
        job.protected = Some(None);
        for _ in 0..1 + job.below(3) {
            job.go_on_for(500);
            job.start_again();
            let (protected, now) = (job.protected.unwrap(), job.newest_protected());
            assert!(now >= protected, "{now:?} is older than {protected:?}");
        }
    });
}

/// Whichever process fails, nothing newer is lost than what not all ranks had saved, whether it was copied or not.
#[test]
fn a_failed_process_costs_no_more_than_since_the_last_save() {
    check(|mut job| {
        for _ in 0..3 {
            job.go_on_for(400);
            let slowest = job.saved.iter().min().copied();
            let expected = slowest.filter(|&saved| saved >= job.next).or(job.base);
            let found = job.start_again();
            assert!(found >= expected, "{found:?} is older than {expected:?}");
        }
    });
}

/// Where nothing fails, copies come to their end: the newest generation is soon on two hosts, and old ones are gone.
#[test]
fn copies_come_to_an_end() {
    check(|mut job| {
        job.go_on_for(300);
        if job.dice.once_in(2) {
            job.start_again();
            job.go_on_for(300);
        }
        job.settle();
        job.go_on(Nanos::from_millis(200_000));
        let newest = (job.next..=job.saved[0])
            .rev()
            .find(|&generation| job.is_full(generation));
        assert_eq!(job.newest_protected(), newest.or(job.base));
        for disk in &job.disks {
            let generations: BTreeSet<u64> = disk.iter().map(|part| part.generation).collect();
            assert!(generations.len() <= 12, "{generations:?}");
        }
    });
}

/// Copies that take longer than it takes to save many generations, on one host or on all, do not stop for ever:
/// something newer is protected again and again.
#[test]
fn slow_copies_get_on() {
    for seed in 0..12 {
        let mut job = Job::new(seed);
        job.faults = 0;
        job.full_period = 1 << job.below(4);
        job.full_offset = job.dice.below(job.full_period);
        if job.is_on_one_host() {
            continue;
        }
        let hosts = job.disks.len();
        let slow = job.dice.once_in(2).then(|| job.below(hosts));
        let saves = [3, 9, 20, 50][job.below(4)] * job.full_period;
        let period = Nanos::from_millis([50, 5000][job.below(2)]);
        let copying = Nanos(saves * period.0);
        job.begin_rounds(period, |host| slow.is_none_or(|slow| slow == host), copying);
        let mut protected = None;
        for quarter in 0..4 {
            job.go_on(Nanos(40 * copying.0));
            let newest = job.newest_protected();
            assert!(newest > protected, "seed {seed}, quarter {quarter}: {newest:?}");
            protected = newest;
        }
    }
}

/// A seed is one history: two runs are the same.
#[test]
fn runs_are_reproducible() {
    for seed in 0..20 {
        let run = || {
            let mut job = Job::new(seed);
            job.go_on(Nanos::from_millis(30_000));
            (job.disks, job.saved)
        };
        assert_eq!(run(), run(), "seed {seed}");
    }
}
