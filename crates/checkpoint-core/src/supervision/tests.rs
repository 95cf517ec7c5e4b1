use super::*;
use crate::Level;

const HOUR: Duration = Duration::from_secs(3600);

fn held(generation: u64, step: u64) -> Held {
    let ranks = 2;
    Held {
        generation,
        step,
        ranks,
    }
}

fn add(history: &mut History, records: Vec<Record>) {
    records.into_iter().for_each(|record| history.add(record));
}

/// A job that fails once and is done then: each start has its number, and the sum counts both attempts.
#[test]
fn two_attempts_are_summed_up() {
    let mut job = Supervision::new(5, SupervisionOptions::default());
    let mut journal = History::default();
    let first = job.handle_preparing(1, 2);
    assert_eq!(first, 5 << COMMAND_BITS | 1);
    assert_eq!(job.default_mtbf(), MTBF_AT_FIRST / 2.0);
    add(&mut journal, job.handle_started(Duration::ZERO, None, 0));
    job.handle_journal(&journal);
    let level = Level::Full;
    add(&mut journal, vec![Record::Saved { level, seconds: 2.0 }]);
    job.handle_saved(held(1, 10));
    let progress = job.progress(None, Some(&journal));
    assert_eq!((progress.came_to_something, progress.step), (true, Some(10)));
    add(
        &mut journal,
        job.handle_failed(Duration::ZERO, HOUR, AttemptEnd::HostLost, None),
    );

    assert_eq!(job.handle_preparing(2, 1), first + 1);
    add(&mut journal, job.handle_started(HOUR * 2, Some(held(1, 10)), 3));
    let last = job.last_records(HOUR * 3, AttemptEnd::Planned, &journal);
    assert!(
        matches!(last[..], [Record::Ran { .. }, Record::Ended]),
        "{last:?}"
    );
    add(&mut journal, last);
    job.handle_over(HOUR * 3, AttemptEnd::Planned, Some(held(2, 20)));
    let account = job.account(HOUR * 3, AttemptEnd::Planned, &journal, None);
    assert_eq!(
        (account.attempt_count, account.failures, account.repeated),
        (2, 1, 0)
    );
    assert_eq!((account.attempts_lasted, account.quarantined), (HOUR * 2, 3));
    let steps = |past: &PastAttempt| (past.from_step, past.to_step, past.failed);
    assert_eq!(
        account.attempts.iter().map(steps).collect::<Vec<_>>(),
        [(0, 10, true), (10, 20, false)]
    );
    let totals = account.totals.unwrap();
    assert_eq!((totals.saves, totals.failures, totals.hosts_lost), (1, 1, 1));
    assert_eq!((account.save, account.mtbf_is_known), (Some(2.0), false));
}

/// An attempt that another follows is a failure, also if it ended as somebody wanted; a repeated one stays one.
#[test]
fn what_another_follows_has_failed() {
    let mut job = Supervision::new(1, SupervisionOptions::default());
    job.handle_preparing(1, 1);
    let records = job.handle_failed(Duration::ZERO, HOUR, AttemptEnd::Planned, None);
    assert_eq!(records, [Record::Failed { ran: 3600.0 }]);
    let records = job.handle_failed(HOUR, HOUR, AttemptEnd::Repeated, None);
    assert_eq!(records, [Record::Repeated { ran: 3600.0 }]);
}

/// A journal whose start is over, by the program's own records, gets none from us.
#[test]
fn a_closed_journal_stays_as_it_is() {
    let mut job = Supervision::new(1, SupervisionOptions::default());
    job.handle_preparing(1, 1);
    let mut journal = History::default();
    add(&mut journal, job.handle_started(Duration::ZERO, None, 0));
    add(&mut journal, vec![Record::Ended]);
    assert_eq!(job.last_records(HOUR, AttemptEnd::Failed, &journal), []);
}

/// The newer of what hosts tell and what lies here counts, in either order.
#[test]
fn the_newest_save_counts() {
    let mut job = Supervision::new(1, SupervisionOptions::default());
    assert_eq!(job.newest(Some(held(1, 5))), Some(held(1, 5)));
    job.handle_saved(held(2, 9));
    assert_eq!(job.newest(Some(held(1, 5))), Some(held(2, 9)));
    assert_eq!(job.newest(Some(held(3, 12))), Some(held(3, 12)));
}

/// Of last words the writer's own ends the wait; else the copy that knows most is taken.
#[test]
fn the_best_last_word_is_taken() {
    let of_saves = |count| {
        let mut history = History::default();
        let level = Level::Full;
        add(&mut history, vec![Record::Start { start: 1 }]);
        (0..count).for_each(|_| history.add(Record::Saved { level, seconds: 1.0 }));
        history
    };
    let mut words = LastWords::of_writer(2);
    for (host, saves) in [(0, 1), (1, 3), (3, 2)] {
        assert!(words.handle_told(host, of_saves(saves)).is_none());
    }
    let own = words.clone().handle_told(2, of_saves(0));
    assert!(matches!(own, Some(LastWord::Own(_))));
    let Some(LastWord::Copy(best)) = words.into_best() else {
        panic!("there are copies");
    };
    assert_eq!(best.totals().saves, 3);
    assert!(LastWords::of_writer(0).into_best().is_none());
}

/// With partners the journal here measures nothing unless it has saves of this command; the writer's does.
#[test]
fn the_writers_journal_measures() {
    let mut job = Supervision::new(
        1,
        SupervisionOptions {
            has_partners: true,
            ..Default::default()
        },
    );
    let start = job.handle_preparing(1, 2);
    job.handle_before_elsewhere(Some(Totals::default()));
    let mut here = History::default();
    add(&mut here, job.handle_started(Duration::ZERO, None, 0));
    let end = AttemptEnd::Planned;
    assert_eq!(job.account(HOUR, end, &here, None).totals, None);
    let mut own = History::default();
    let level = Level::Fast;
    add(
        &mut own,
        vec![Record::Start { start }, Record::Saved { level, seconds: 4.0 }],
    );
    let account = job.account(HOUR, end, &here, Some(LastWord::Own(own)));
    assert_eq!(account.totals.map(|totals| totals.saves), Some(1));
    assert_eq!(account.save, Some(4.0));
}
