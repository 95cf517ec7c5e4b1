//! Tests of a guard while a copy or an answer is under way.

use core::time::Duration;
use std::collections::BTreeSet;

use super::{Action, Guard, GuardOptions, Part};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn guard_of_first(hosts: usize) -> Guard {
    Guard::new(GuardOptions {
        host: 0,
        hosts,
        host_of_rank: vec![0, 1],
        base: None,
        fallbacks: BTreeSet::new(),
        next: 1,
    })
}

fn parts(generations: impl IntoIterator<Item = u64>, rank: u32) -> BTreeSet<Part> {
    let part = |generation| Part::of_two(generation, rank);
    generations.into_iter().map(part).collect()
}

/// While a copy takes its time old generations go, the one that is being copied stays, and no second copy is begun.
#[test]
fn old_generations_go_while_one_is_copied() {
    let mut guard = guard_of_first(2);
    guard.handle_own(parts(1..=1, 0));
    assert_eq!(guard.poll(ms(0)), Some(Action::Ask { host: 1 }));
    guard.handle_parts(ms(0), 1, parts(1..=1, 1));
    let copied = Part::of_two(1, 1);
    let copy = Action::Copy {
        from: 1,
        part: copied,
    };
    assert_eq!(guard.poll(ms(0)), Some(copy));

    let mut kept: BTreeSet<u64> = [1].into();
    for newest in 2..200 {
        let now = ms(newest * 250);
        kept.insert(newest);
        guard.handle_own(parts(kept.iter().copied(), 0));
        while let Some(action) = guard.poll(now) {
            match action {
                Action::Ask { host } => guard.handle_parts(now, host, parts([newest], 1)),
                Action::Retire { generations } => kept.retain(|kept| !generations.contains(kept)),
                other => panic!("{other:?} while a copy is under way"),
            }
        }
        assert!(kept.contains(&1) && kept.len() <= 14, "{kept:?}");
    }
    guard.handle_copied(copied);
    let next = guard.poll(ms(199 * 250));
    assert!(matches!(next, Some(Action::Copy { .. })), "{next:?}");
}

/// Hosts from which no answer comes keep nobody waiting: the others are asked, copied from and told of. A
/// host that was asked is not asked again before that question has come to an end.
#[test]
fn silent_hosts_keep_nobody_waiting() {
    let mut guard = guard_of_first(200);
    guard.handle_own(parts(1..=1, 0));
    let mut asked = Vec::new();
    while let Some(Action::Ask { host }) = guard.poll(ms(0)) {
        asked.push(host);
    }
    assert_eq!(asked, Vec::from_iter(1..=32), "they are not asked all at once");
    assert!(
        guard.next_deadline(ms(0)) > ms(0),
        "those that are left wait for an answer"
    );
    guard.handle_parts(ms(0), 1, parts(1..=1, 1));
    assert_eq!(guard.poll(ms(0)), Some(Action::Ask { host: 33 }));
    let copy = Action::Copy {
        from: 1,
        part: Part::of_two(1, 1),
    };
    assert_eq!(guard.poll(ms(0)), Some(copy));
    assert_eq!(guard.poll(ms(0)), None);

    // All but hosts 1 and 199 turn out to be gone, and are asked in vain again.
    let mut now = ms(10_000);
    for host in 2..=33 {
        guard.handle_silence(now, host);
    }
    for _ in 0..20 {
        now += ms(10_000);
        while let Some(action) = guard.poll(now) {
            match action {
                Action::Ask { host: 1 | 199 } => {}
                Action::Ask { host } => guard.handle_silence(now, host),
                Action::Lost { .. } => {}
                other => panic!("{other:?}"),
            }
            guard.handle_parts(now, 1, parts(1..=1, 1));
            guard.handle_parts(now, 199, BTreeSet::new());
        }
    }
    now += ms(10_000);
    let mut asked = Vec::new();
    while let Some(Action::Ask { host }) = guard.poll(now) {
        asked.push(host);
    }
    assert_eq!(asked[..2], [1, 199], "those that answer come first");
    assert_eq!(asked.len(), 2 + 32);
    assert!(!asked[2..].contains(&1) && !asked[2..].contains(&199));
}
