//! The advisor in runs of some steps.

use super::*;
use crate::interval::optimal_interval;

fn options(mtbf: f64, save: f64) -> AdvisorOptions {
    AdvisorOptions {
        mtbf: Mtbf::Known(mtbf),
        save: Some(save),
        restore: save,
        ..AdvisorOptions::default()
    }
}

/// Steps until one is to be followed by a save: how many there were, and why.
fn until_save(advisor: &mut Advisor, now: &mut f64, step: f64) -> (u32, Reason) {
    for count in 1..10_000 {
        *now += step;
        let advice = advisor.step_end(*now);
        if advice.decision.save {
            return (count, advice.decision.reason);
        }
    }
    panic!("no save in 10,000 steps");
}

/// Without an idea of how long saves take, the first save is made at once, to measure it, unless the run is
/// over. The times in a journal are an idea.
#[test]
fn an_unknown_save_is_measured_first() {
    let unknown = AdvisorOptions {
        save: None,
        ..options(0.1, 1.0)
    };
    let mut advisor = Advisor::new(&unknown, &History::default(), 0.0);
    assert_eq!(advisor.step_end(0.001).decision.reason, Reason::SaveTimeUnknown);
    advisor.save_begin(Level::Full, 0.001);
    advisor.save_end(Level::Full, 0.002);
    assert_eq!(advisor.step_end(0.003).decision.reason, Reason::NotYet);
    let mut history = History::default();
    history.add(crate::journal::Record::Saved {
        level: Level::Full,
        seconds: 0.001,
    });
    let mut advisor = Advisor::new(&unknown, &history, 0.0);
    assert_eq!(advisor.step_end(0.001).decision.reason, Reason::NotYet);
    let over = AdvisorOptions {
        steps: Some(1),
        ..unknown
    };
    assert!(
        !Advisor::new(&over, &History::default(), 0.0)
            .step_end(1.0)
            .decision
            .save
    );
}

/// The clock of the interval starts at the end of a save, and saves are measured.
#[test]
fn intervals_start_when_a_save_is_done() {
    let mut advisor = Advisor::new(&options(25.0, 5.0), &History::default(), 100.0);
    let mut now = 100.0;
    until_save(&mut advisor, &mut now, 1.0);
    for _ in 0..100 {
        advisor.save_begin(Level::Full, now);
        now += 0.6;
        assert!((advisor.save_end(Level::Full, now) - 0.6).abs() < 1e-9);
        let (steps, reason) = until_save(&mut advisor, &mut now, 1.0);
        assert_eq!((steps, reason), (5, Reason::CheaperNow));
    }
    assert!((advisor.costs(Level::Full).unwrap().interval() - 5.0847).abs() < 1e-3);
}

/// The last save before the limit starts early enough to be done, and no other is tried after it.
#[test]
fn the_last_save_is_done_before_the_limit() {
    let options = AdvisorOptions {
        limit: Some(1000.0),
        ..options(1e9, 10.0)
    };
    let mut advisor = Advisor::new(&options, &History::default(), 0.0);
    let mut now = 0.0;
    let (steps, reason) = until_save(&mut advisor, &mut now, 7.0);
    assert_eq!(reason, Reason::LimitIsNear);
    // Fifteen seconds for the save, which was never measured, and a step that may be longer than the last.
    assert_eq!(steps, 140);
    advisor.save_begin(Level::Full, now);
    now += 10.0;
    advisor.save_end(Level::Full, now);
    for _ in 0..20 {
        now += 7.0;
        let advice = advisor.step_end(now);
        assert!(!advice.decision.save && advice.decision.reason == Reason::NoTimeLeft);
    }
}

/// An announced end leads to one save at once, if there is time.
#[test]
fn an_announced_end_is_answered_by_a_save() {
    let mut advisor = Advisor::new(&options(1e9, 10.0), &History::default(), 0.0);
    assert!(!advisor.step_end(1.0).decision.save);
    advisor.preempt(30.0, 1.5);
    let advice = advisor.step_end(2.0);
    assert!(advice.decision.save && advice.decision.reason == Reason::EndIsAnnounced);
    advisor.save_begin(Level::Full, 2.0);
    advisor.save_end(Level::Full, 12.0);
    assert!(!advisor.step_end(13.0).decision.save);
    advisor.preempt(10.0, 13.0);
    assert_eq!(advisor.step_end(14.0).decision.reason, Reason::NoTimeLeft);
}

/// A save that fails is not tried again at every step, but is tried again.
#[test]
fn a_failed_save_is_tried_again_later() {
    let mut advisor = Advisor::new(&options(25.0, 0.6), &History::default(), 0.0);
    let mut now = 0.0;
    until_save(&mut advisor, &mut now, 1.0);
    advisor.save_begin(Level::Full, now);
    advisor.save_failed(Level::Full, now);
    assert_eq!(
        advisor.step_end(now + 1.0).decision.reason,
        Reason::LastSaveFailed
    );
    now += 1.0;
    let (steps, _) = until_save(&mut advisor, &mut now, 1.0);
    assert!((4..7).contains(&steps), "{steps}");
    advisor.save_begin(Level::Full, now);
    advisor.save_failed(Level::Full, now);
    advisor.save_begin(Level::Full, now);
    now += 0.6;
    advisor.save_end(Level::Full, now);
    assert_eq!(advisor.step_end(now + 1.0).decision.reason, Reason::NotYet);
}

/// Failures and time without them move the belief, and what the journal knows counts.
#[test]
fn the_mtbf_is_learned() {
    let options = AdvisorOptions {
        mtbf: Mtbf::Learned(200.0),
        ..AdvisorOptions::default()
    };
    let mut advisor = Advisor::new(&options, &History::default(), 0.0);
    let before = advisor.mtbf();
    assert!((10.0..200.0).contains(&before), "{before}");
    advisor.step_end(1000.0);
    assert!(advisor.mtbf() > 800.0, "{}", advisor.mtbf());
    for _ in 0..10 {
        advisor.failed(1000.0);
    }
    advisor.restored(1000.0);
    assert!((80.0..120.0).contains(&advisor.mtbf()), "{}", advisor.mtbf());
    assert_eq!(advisor.failures(), 10);
    let mut history = History::default();
    history.add(crate::journal::Record::Before(crate::journal::Totals {
        exposure: 9900.0,
        failures: 99,
        ..Default::default()
    }));
    let learned = Advisor::new(&options, &history, 7.0).mtbf();
    assert!((95.0..105.0).contains(&learned), "{learned}");
    assert_eq!(learned, history.believed_mtbf(options.mtbf));
}

/// Until something fails, a save is made each hour, unless saves take so long that this costs over a percent.
/// A machine that is known to be reliable, or has failed, is believed.
#[test]
fn an_hour_is_the_longest_risk_before_a_failure() {
    let hours = |mtbf, save: f64| {
        let options = AdvisorOptions {
            mtbf,
            ..options(1.0, save)
        };
        let mut advisor = Advisor::new(&options, &History::default(), 0.0);
        let mut now = 0.0;
        let (steps, _) = until_save(&mut advisor, &mut now, 60.0);
        f64::from(steps) / 60.0
    };
    let guess = Mtbf::Learned(MTBF_AT_FIRST);
    let hourly = hours(guess, 1.0);
    assert!((0.9..=1.0).contains(&hourly), "{hourly}");
    let rare = hours(guess, 120.0);
    assert!((3.0..3.4).contains(&rare), "{rare}");
    assert!(hours(Mtbf::Known(MTBF_AT_FIRST), 1.0) > 4.0);
}

/// Two levels have periods of their own, and a full save counts for both.
#[test]
fn two_levels_have_their_own_periods() {
    let options = AdvisorOptions {
        fast: Some(FastLevel {
            save: 0.06,
            covers: 0.9,
        }),
        ..options(25.0, 0.6)
    };
    let mut advisor = Advisor::new(&options, &History::default(), 0.0);
    let (mut now, mut fast, mut full) = (0.0, 0, 0);
    while now < 1000.0 {
        now += 0.1;
        let advice = advisor.step_end(now);
        if !advice.decision.save {
            continue;
        }
        advisor.save_begin(advice.level, now);
        now += match advice.level {
            Level::Fast => {
                fast += 1;
                0.06
            }
            Level::Full => {
                full += 1;
                0.6
            }
        };
        advisor.save_end(advice.level, now);
    }
    // A full save stands in the place of a fast one, and costs only what it takes longer.
    for (level, expected) in [
        (Level::Fast, optimal_interval(0.06, 25.0 / 0.9)),
        (Level::Full, optimal_interval(0.54, 250.0)),
    ] {
        let interval = advisor.costs(level).unwrap().interval();
        assert!(
            (interval / expected - 1.0).abs() < 1e-6,
            "{interval}, not {expected}"
        );
    }
    let round = 10.0 * optimal_interval(0.54, 250.0) / 10.0 + 0.6;
    let expected = 1000.0 / round;
    assert!(
        (f64::from(full) / expected - 1.0).abs() < 0.05,
        "{full}, not {expected}"
    );
    // Nine segments of equal length between two full saves, the last of which needs no fast one.
    assert_eq!((fast as f64 / f64::from(full)).round(), 8.0, "{fast} {full}");
}

/// A fast way that does not pay is not used, and the full one is used as if it were alone.
#[test]
fn a_fast_level_that_does_not_pay_is_left_out() {
    let options = AdvisorOptions {
        fast: Some(FastLevel {
            save: 0.5,
            covers: 0.5,
        }),
        ..options(25.0, 0.6)
    };
    let mut advisor = Advisor::new(&options, &History::default(), 0.0);
    let mut now = 0.0;
    for _ in 0..1000 {
        now += 0.1;
        let advice = advisor.step_end(now);
        if advice.decision.save {
            assert_eq!(advice.level, Level::Full);
            advisor.save_begin(Level::Full, now);
            now += 0.6;
            advisor.save_end(Level::Full, now);
        }
    }
    let interval = advisor.costs(Level::Full).unwrap().interval();
    assert!((interval / optimal_interval(0.6, 25.0) - 1.0).abs() < 1e-6);
}

/// A save written in the background costs only the time that the program waits. Nothing else is saved
/// meanwhile, and a failure before it protects goes back to the save before it.
#[test]
fn saves_in_the_background_cost_what_the_program_waits() {
    let options = AdvisorOptions {
        steps: Some(1000),
        ..options(25.0, 0.1)
    };
    let mut advisor = Advisor::new(&options, &History::default(), 0.0);
    let mut now = 0.0;
    for round in 0..3 {
        until_save(&mut advisor, &mut now, 0.5);
        advisor.save_begin(Level::Full, now);
        now += 0.1;
        assert!((advisor.save_copied(Level::Full, now) - 0.1).abs() < 1e-9);
        now += 0.5;
        assert_eq!(
            advisor.step_end(now).decision.reason,
            Reason::LastSaveUnderWay,
            "round {round}"
        );
        // In the middle of a step, which keeps its length.
        assert!((advisor.save_end(Level::Full, now + 0.2) - 0.7).abs() < 1e-9);
        now += 0.5;
        assert_eq!(advisor.step_end(now).decision.reason, Reason::NotYet);
    }
    let costs = advisor.costs(Level::Full).unwrap();
    assert!((costs.interval() - optimal_interval(0.1, 25.0)).abs() < 1e-9);
    assert!((costs.commit() - 0.7).abs() < 1e-9);
    assert!((advisor.save_p99() - 0.8).abs() < 0.05, "{}", advisor.save_p99());

    let done = |advisor: &Advisor| 1000 - advisor.end.remaining_steps.unwrap();
    until_save(&mut advisor, &mut now, 0.5);
    let saved = done(&advisor) - advisor.steps;
    advisor.save_begin(Level::Full, now);
    advisor.save_copied(Level::Full, now + 0.1);
    advisor.step_end(now + 0.6);
    advisor.failed(now + 0.7);
    assert!(!advisor.is_writing());
    assert_eq!(done(&advisor), saved);
    // A save that could not be written is as one that could not be made: what it held is still to be saved.
    advisor.restored(now + 1.0);
    now += 1.0;
    let (steps, _) = until_save(&mut advisor, &mut now, 0.5);
    advisor.save_begin(Level::Full, now);
    advisor.save_copied(Level::Full, now);
    advisor.save_failed(Level::Full, now);
    assert_eq!(advisor.levels.full.elapsed, f64::from(steps) * 0.5);
}

/// How a program went whose full saves are copied in the background: how many of each level there were.
fn run_with_copies(advisor: &mut Advisor, until: f64, slowdown: f64) -> (u32, u32) {
    let (mut now, mut fast, mut full) = (0.0, 0, 0);
    let mut copied_at = f64::INFINITY;
    while now < until {
        now += if advisor.is_copying() { 1.0 + slowdown } else { 1.0 };
        let advice = advisor.step_end(now);
        if now >= copied_at {
            let (took, _) = advisor.copy_end(copied_at).unwrap();
            assert!((took - 4.0).abs() < 1e-9);
            copied_at = f64::INFINITY;
        }
        if !advice.decision.save {
            continue;
        }
        advisor.save_begin(advice.level, now);
        now += 0.5;
        advisor.save_end(advice.level, now);
        match advice.level {
            Level::Fast => fast += 1,
            Level::Full => {
                assert_eq!(copied_at, f64::INFINITY, "one copy at a time");
                copied_at = now + 4.0;
                full += 1;
            }
        }
    }
    (fast, full)
}

/// Copies on another host have a period of their own, that of what they cost and of how often a host is lost.
#[test]
fn copies_are_a_level_of_their_own() {
    let options = AdvisorOptions {
        host_mtbf: Some(1e5),
        ..options(100.0, 0.5)
    };
    let mut advisor = Advisor::new(&options, &History::default(), 0.0);
    let (fast, full) = run_with_copies(&mut advisor, 1e5, 0.25);
    // A copy of four seconds makes four steps longer by a quarter of a second each.
    let expected = [optimal_interval(0.5, 100.0), optimal_interval(1.0, 1e5)];
    let found = [Level::Fast, Level::Full].map(|level| advisor.costs(level).unwrap().interval());
    for (found, expected) in found.into_iter().zip(expected) {
        assert!((found / expected - 1.0).abs() < 0.02, "{found}, not {expected}");
    }
    let [_, expected] = expected.map(|interval| 1e5 / interval);
    assert!(
        (f64::from(full) / expected - 1.0).abs() < 0.05,
        "{full}, not {expected}"
    );
    let segments = f64::from(fast + full) / f64::from(full);
    assert!((40.0..50.0).contains(&segments), "{fast} {full}");
}

/// Where a host is lost as often as a process every save is copied, but for those that are due while a copy is made.
#[test]
fn every_save_is_copied_if_hosts_fail_often() {
    let options = AdvisorOptions {
        host_mtbf: Some(25.0),
        ..options(25.0, 0.5)
    };
    let mut advisor = Advisor::new(&options, &History::default(), 0.0);
    let (fast, full) = run_with_copies(&mut advisor, 1e4, 0.0);
    assert!(full > 1000 && fast == 0, "{fast} {full}");
    // Work of three seconds lies between two saves, and the copy takes four.
    let options = AdvisorOptions {
        mtbf: Mtbf::Known(8.0),
        host_mtbf: Some(8.0),
        ..options
    };
    let mut advisor = Advisor::new(&options, &History::default(), 0.0);
    let (fast, full) = run_with_copies(&mut advisor, 1e4, 0.0);
    assert!(
        full > 1000 && fast.abs_diff(full) <= 1 + full / 20,
        "{fast} {full}"
    );
}

/// A copy that is never made does not keep others from being made, and what is saved meanwhile is saved here.
#[test]
fn a_copy_that_never_ends_is_given_up() {
    let options = AdvisorOptions {
        host_mtbf: Some(1e3),
        ..options(25.0, 0.5)
    };
    let mut advisor = Advisor::new(&options, &History::default(), 0.0);
    let (mut now, mut full) = (0.0, Vec::new());
    let mut last = 0.0;
    while now < 1000.0 {
        now += 1.0;
        let advice = advisor.step_end(now);
        if advice.decision.save {
            assert!(now - last < 8.0, "{now} after {last}");
            last = now;
            advisor.save_begin(advice.level, now);
            advisor.save_end(advice.level, now + 0.5);
            if advice.level == Level::Full {
                full.push(now);
            }
        }
    }
    assert!(full.len() > 10, "{full:?}");
    assert!(full.windows(2).all(|pair| pair[1] - pair[0] >= 60.0), "{full:?}");
}

/// How long saves take in the background is known from the journal, until one is not written there.
#[test]
fn commits_are_known_from_the_journal() {
    let mut history = History::default();
    let level = Level::Full;
    history.add(crate::journal::Record::CommitTime { level, seconds: 3.0 });
    let mut advisor = Advisor::new(&options(25.0, 0.6), &history, 0.0);
    assert_eq!(advisor.costs(level).unwrap().commit(), 3.0);
    advisor.step_end(1.0);
    advisor.save_begin(level, 1.0);
    advisor.save_end(level, 1.6);
    assert_eq!(advisor.costs(level).unwrap().commit(), 0.0);
}

/// Senseless times do no harm.
#[test]
fn senseless_times_do_no_harm() {
    for odd in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
        let options = AdvisorOptions {
            mtbf: Mtbf::Learned(odd),
            save: Some(odd),
            restore: if odd.is_nan() { 0.0 } else { odd },
            limit: None,
            steps: Some(3),
            fast: Some(FastLevel {
                save: odd,
                covers: if odd.is_nan() { 0.5 } else { odd },
            }),
            host_mtbf: None,
        };
        let host_mtbf = Some(odd);
        for options in [options, AdvisorOptions { host_mtbf, ..options }] {
            let mut advisor = Advisor::new(&options, &History::default(), 0.0);
            advisor.step_end(-5.0);
            advisor.save_end(Level::Fast, 1.0);
            advisor.save_begin(Level::Full, 1.0);
            advisor.save_end(Level::Full, 0.0);
            advisor.copy_end(-1.0);
            assert!(advisor.step_end(1e300).decision.interval.is_finite());
        }
    }
}

/// A notice leads to a save even before any save was measured: nothing is lost if the save does not fit. A
/// limit that is told later counts if it is earlier.
#[test]
fn a_notice_is_followed_though_nobody_knows_how_long_a_save_takes() {
    let options = AdvisorOptions {
        limit: Some(1e6),
        ..AdvisorOptions::default()
    };
    let mut advisor = Advisor::new(&options, &History::default(), 0.0);
    advisor.preempt(0.1, 1.0);
    let advice = advisor.step_end(1.05);
    assert_eq!(
        (advice.decision.save, advice.decision.reason),
        (true, Reason::EndIsAnnounced)
    );
    assert!(!advisor.step_end(1.2).decision.save, "it is too late");

    let mut limited = Advisor::new(&options, &History::default(), 0.0);
    for (begin, end) in [(1.0, 1.1), (2.0, 2.1)] {
        limited.step_end(begin);
        limited.save_begin(Level::Full, begin);
        limited.save_end(Level::Full, end);
    }
    limited.set_limit(1e7, 2.1);
    assert_ne!(limited.step_end(3.1).decision.reason, Reason::LimitIsNear);
    limited.set_limit(2.0, 3.1);
    assert_eq!(limited.step_end(4.1).decision.reason, Reason::LimitIsNear);
    assert!(!limited.is_saved_for_notice());
}
