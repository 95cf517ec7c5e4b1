//! Tests of journals: whole, short, torn and changed.

use proptest::prelude::*;

use super::*;

fn exposure_and_failures(history: &History) -> (f64, u64) {
    (history.totals.exposure, history.totals.failures)
}

fn record() -> impl Strategy<Value = Record> {
    let seconds = || 0.0..1e6f64;
    prop_oneof![
        (0u64..3).prop_map(|start| Record::Start { start }),
        seconds().prop_map(|seconds| Record::Ran { seconds }),
        seconds().prop_map(|seconds| Record::Step { seconds }),
        seconds().prop_map(|seconds| Record::Saved {
            level: Level::Full,
            seconds
        }),
        seconds().prop_map(|seconds| Record::Saved {
            level: Level::Fast,
            seconds
        }),
        seconds().prop_map(|seconds| Record::Copied {
            level: Level::Full,
            seconds
        }),
        Just(Record::Committed),
        seconds().prop_map(|seconds| Record::CommitTime {
            level: Level::Full,
            seconds
        }),
        (seconds(), seconds()).prop_map(|(seconds, slowdown)| Record::CopyTime { seconds, slowdown }),
        Just(Record::HostLost),
        (0u64..1 << 40).prop_map(|count| Record::Steps { count }),
        (0u64..9).prop_map(|count| Record::Failing { count }),
        seconds().prop_map(|seconds| Record::NotSaved {
            level: Level::Full,
            seconds
        }),
        seconds().prop_map(|seconds| Record::SaveLonger {
            level: Level::Full,
            seconds
        }),
        seconds().prop_map(|ran| Record::Repeated { ran }),
        seconds().prop_map(|seconds| Record::Restored { seconds }),
        seconds().prop_map(|seconds| Record::SaveTime {
            level: Level::Full,
            seconds
        }),
        seconds().prop_map(|seconds| Record::StepTime { seconds }),
        seconds().prop_map(|seconds| Record::RestoreTime { seconds }),
        seconds().prop_map(|ran| Record::Failed { ran }),
        Just(Record::Ended),
        Just(Record::Safe),
        (seconds(), any::<u64>(), seconds()).prop_map(|(exposure, failures, lost)| {
            Record::Before(Totals {
                exposure,
                failures,
                lost,
                ..Totals::default()
            })
        }),
    ]
}

proptest! {
    /// Every record comes back, and a flipped bit or a cut makes it unreadable, not another one.
    #[test]
    fn records_come_back(record in record(), at: prop::sample::Index, bit in 0u8..8) {
        let line = record.encode().trim_end().as_bytes().to_vec();
        prop_assert_eq!(Record::parse(&line), Some(record));
        let at = at.index(line.len());
        let mut changed = line.clone();
        changed[at] ^= 1 << bit;
        prop_assert_eq!(Record::parse(&changed), None);
        prop_assert_eq!(Record::parse(&line[..at]), None);
    }

    /// A journal made short says what the long one did.
    #[test]
    fn short_journals_say_the_same(records in proptest::collection::vec(record(), 0..60)) {
        let mut history = History::default();
        records.into_iter().for_each(|record| history.add(record));
        let short = History::read(history.encode().as_bytes());
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * (a.abs() + b.abs() + 1.0);
        prop_assert!(near(short.totals.exposure, history.totals.exposure));
        prop_assert!(near(short.totals.lost, history.totals.lost));
        prop_assert!(near(short.totals.save_seconds, history.totals.save_seconds));
        let unsaved = |history: &History| history.open.map_or(0.0, |open| open.unsaved);
        prop_assert!(near(unsaved(&short), unsaved(&history)));
        let ran = |history: &History| history.open.map_or(0.0, |open| open.ran);
        prop_assert!(near(ran(&short), ran(&history)));
        prop_assert_eq!(short.totals.failures, history.totals.failures);
        prop_assert_eq!(short.totals.saves, history.totals.saves);
        prop_assert_eq!(short.totals.hosts_lost, history.totals.hosts_lost);
        prop_assert_eq!(&short.saves, &history.saves);
        prop_assert_eq!(&short.commits, &history.commits);
        prop_assert_eq!(&short.copies, &history.copies);
        let copied = |history: &History| history.copied.map(|copied| (copied.level, copied.steps));
        prop_assert_eq!(copied(&short), copied(&history));
        let held = |history: &History| history.copied.map_or(0.0, |copied| copied.unsaved);
        prop_assert!(near(held(&short), held(&history)));
        prop_assert_eq!(&short.steps, &history.steps);
        prop_assert_eq!(short.open_steps(), history.open_steps());
        prop_assert_eq!(short.totals.failed_saves, history.totals.failed_saves);
        prop_assert_eq!(short.failing, history.failing);
    }
}

/// A start after a start says that the first one failed; the same start again says nothing, and an end is no failure.
#[test]
fn starts_without_an_end_are_failures() {
    let read = |records: &[Record]| {
        let text: String = records.iter().map(Record::encode).collect();
        exposure_and_failures(&History::read(text.as_bytes()))
    };
    let [one, two] = [1, 2].map(|start| Record::Start { start });
    let ran = Record::Ran { seconds: 10.0 };
    assert_eq!(read(&[one, ran, one, ran]), (0.0, 0));
    assert_eq!(read(&[one, ran, two, ran]), (15.0, 1));
    assert_eq!(read(&[one, ran, Record::Ended, two]), (10.0, 0));
    assert_eq!(read(&[one, ran, Record::Failed { ran: 12.0 }, two]), (12.0, 1));
}

/// A save in the background holds what was before it, from its commit on; a failure before that loses it.
#[test]
fn what_was_copied_is_safe_when_it_is_committed() {
    let step = Record::Step { seconds: 10.0 };
    let copied = Record::Copied {
        level: Level::Full,
        seconds: 1.0,
    };
    let read = |records: &[Record]| {
        let text: String = [
            &[Record::Start { start: 1 }],
            records,
            &[Record::Failed { ran: 0.0 }],
        ]
        .concat()
        .iter()
        .map(Record::encode)
        .collect();
        let history = History::read(text.as_bytes());
        let totals = *history.totals();
        (totals.saves, totals.lost, history.steps().len())
    };
    assert_eq!(read(&[step, step, copied, step]), (0, 31.0, 3));
    assert_eq!(read(&[step, step, copied, step, Record::Committed]), (1, 10.0, 1));
    assert_eq!(read(&[step, copied, Record::Committed, step]), (1, 10.0, 1));
}

/// The steps that a start left are known to the next one until it has steps of its own.
#[test]
fn steps_of_the_start_before_are_known() {
    let step = |seconds| Record::Step { seconds };
    let mut history = History::default();
    history.add(Record::Start { start: 1 });
    [1.0, 2.0]
        .into_iter()
        .for_each(|seconds| history.add(step(seconds)));
    history.add(Record::Start { start: 2 });
    assert_eq!(history.steps(), [1.0, 2.0]);
    assert_eq!(History::read(history.encode().as_bytes()).steps(), [1.0, 2.0]);
    history.add(step(3.0));
    assert_eq!(history.steps(), [3.0]);
    assert_eq!(History::read(history.encode().as_bytes()).steps(), [3.0]);
}

/// The line that a crash cut off, and one that a disk changed, are passed over and counted.
#[test]
fn torn_lines_are_passed_over() {
    let text = format!(
        "{}garbage\n{}",
        Record::Ran { seconds: 3.0 }.encode(),
        &Record::Ran { seconds: 4.0 }.encode()[..9]
    );
    let history = History::read(text.as_bytes());
    assert_eq!(exposure_and_failures(&history), (3.0, 0));
    assert_eq!(history.unreadable(), 2);
}

/// How long saves take in the background is remembered until one was not written there.
#[test]
fn commits_are_remembered() {
    let level = Level::Full;
    let mut history = History::default();
    history.add(Record::CommitTime { level, seconds: 4.0 });
    history.add(Record::CommitTime { level, seconds: 6.0 });
    assert_eq!(history.commits(level), [4.0, 6.0]);
    assert_eq!(history.commits(Level::Fast), [0.0; 0]);
    history.add(Record::Saved { level, seconds: 1.0 });
    assert_eq!(history.commits(level), [0.0; 0]);
}

/// Steps are counted from the start on, and those that are undone by a restore are not done.
#[test]
fn steps_are_counted() {
    let mut history = History::default();
    let mut done = |records: &[Record]| {
        records.iter().for_each(|&record| history.add(record));
        history.open_steps()
    };
    let step = Record::Step { seconds: 1.0 };
    let level = Level::Full;
    let saved = Record::Saved { level, seconds: 1.0 };
    let restored = Record::Restored { seconds: 1.0 };
    assert_eq!(done(&[]), None);
    assert_eq!(done(&[Record::Start { start: 7 }, restored]), Some((7, 0)));
    let many = Record::Steps { count: 100 };
    assert_eq!(done(&[step, many, saved, step]), Some((7, 102)));
    assert_eq!(done(&[restored]), Some((7, 101)));
    let copied = Record::Copied { level, seconds: 1.0 };
    assert_eq!(
        done(&[step, copied, step, Record::Committed, restored]),
        Some((7, 102))
    );
    assert_eq!(done(&[Record::Start { start: 8 }]), Some((8, 0)));
}

/// Saves that fail are counted, and it is known since when nothing was saved, also when the start is over.
#[test]
fn failed_saves_are_told() {
    let level = Level::Full;
    let failed = Record::NotSaved { level, seconds: 1.0 };
    let step = Record::Step { seconds: 10.0 };
    let mut history = History::default();
    let mut failing = |records: &[Record]| {
        records.iter().for_each(|&record| history.add(record));
        let failing = history.failing().map(|now| (now.count, now.unprotected));
        (history.totals.failed_saves, failing)
    };
    assert_eq!(failing(&[Record::Start { start: 1 }, step]), (0, None));
    assert_eq!(
        failing(&[Record::Saved { level, seconds: 2.0 }, step, failed]),
        (1, Some((1, 11.0)))
    );
    assert_eq!(failing(&[step, failed]), (2, Some((2, 22.0))));
    assert_eq!(failing(&[Record::Saved { level, seconds: 2.0 }]), (2, None));
    assert_eq!(
        failing(&[step, failed, step, Record::Ended]),
        (3, Some((1, 21.0)))
    );
    assert_eq!(failing(&[Record::Start { start: 2 }, step]), (3, None));
    assert_eq!(
        failing(&[failed, Record::Failed { ran: 15.0 }]),
        (4, Some((1, 15.0)))
    );
}

/// A failure that was seen before loses work, and is no further failure of the machine.
#[test]
fn what_is_repeated_is_no_failure() {
    let mut history = History::default();
    let step = Record::Step { seconds: 10.0 };
    for end in [Record::Failed { ran: 12.0 }, Record::Repeated { ran: 13.0 }] {
        [Record::Start { start: 1 }, step, end]
            .into_iter()
            .for_each(|record| history.add(record));
    }
    let totals = history.totals();
    assert_eq!((totals.failures, totals.lost, totals.exposure), (1, 25.0, 25.0));
    assert_eq!(history.steps(), [10.0]);
}

/// The slowest rank's time is the save's.
#[test]
fn a_save_may_take_longer_on_another_rank() {
    let level = Level::Full;
    let mut history = History::default();
    history.add(Record::Saved { level, seconds: 1.0 });
    history.add(Record::SaveLonger { level, seconds: 4.0 });
    assert_eq!(history.saves(level), [5.0]);
    assert_eq!((history.totals.saves, history.totals.save_seconds), (1, 5.0));
    assert_eq!(history.totals.exposure, 5.0);
}

/// A journal from before hosts were counted is read as if none was lost and no save failed.
#[test]
fn totals_without_hosts_are_read() {
    let text = "before 1 2 3 4 5 6 7";
    let line = format!("{:08x} {text}", crc32c::crc32c(text.as_bytes()));
    let Some(Record::Before(totals)) = Record::parse(line.as_bytes()) else {
        panic!("{line} is not read");
    };
    assert_eq!((totals.failures, totals.lost), (2, 7.0));
    assert_eq!((totals.hosts_lost, totals.failed_saves), (0, 0));
}
