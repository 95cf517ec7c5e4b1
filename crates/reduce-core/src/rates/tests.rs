use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Sends chunks of 100 bytes to receivers, each of which takes some milliseconds for one, for a while. Two are on
/// their way to each.
fn reports(times: &[(u32, u64)], from: Site, table: &mut RateTable) -> usize {
    let mut rates = SendRates::new(Site(99));
    let mut reports = 0;
    for (to, _) in [times, times].concat() {
        rates.handle_begun(Duration::ZERO, Site(to), 100);
    }
    for ms in 1..200 {
        let now = Duration::from_millis(ms);
        for (to, span) in times {
            if ms % span == 0 {
                if let Some(report) = rates.handle_ended(now, Site(*to), 100, now) {
                    reports += 1;
                    table.note(now, from, report);
                    table.judge(now);
                }
                rates.handle_begun(now, Site(*to), 100);
            }
        }
    }
    reports
}

/// Sends eight chunks at once, 16 times. They take so many milliseconds there, and wait for so many on their way;
/// the answers take so many back. The clock of the receiver is 5 s behind.
fn window_after(there: u64, waits: u64, back: u64) -> u32 {
    let ms = Duration::from_millis;
    let mut rates = SendRates::new(Site(99));
    let (mut now, behind) = (ms(10_000), ms(5_000));
    for chunk in 0..16 {
        let waits = if chunk == 0 { 0 } else { waits };
        for _ in 0..8 {
            rates.handle_begun(now, Site(1), 100);
        }
        for _ in 0..8 {
            let arrived = now + ms(there + waits) - behind;
            rates.handle_ended(now + ms(there + waits + back), Site(1), 100, arrived);
        }
        now += ms(there + waits + back);
    }
    rates.window()
}

/// The window makes up for answers that wait behind data, and not for a queue before the receiver, which would only
/// grow.
#[test]
fn windows_follow_the_way_back() {
    assert_eq!(window_after(5, 0, 5), 18);
    assert_eq!(window_after(5, 0, 45), 18);
    let queued = window_after(5, 40, 5);
    assert!(queued < 9, "{queued}");
}

/// Of two chunks that begin at once the second waits for the first; a third that goes alone does not.
#[test]
fn sends_are_counted() {
    let ms = Duration::from_millis;
    let mut rates = SendRates::new(Site(99));
    assert_eq!(rates.counters(), SendCounters::default());
    rates.handle_begun(ms(0), Site(1), 100);
    rates.handle_begun(ms(0), Site(1), 100);
    rates.handle_ended(ms(5), Site(1), 100, ms(5));
    rates.handle_ended(ms(12), Site(1), 100, ms(12));
    rates.handle_begun(ms(20), Site(1), 50);
    rates.handle_ended(ms(25), Site(1), 50, ms(25));
    let expected = SendCounters {
        chunks: 3,
        bytes: 250,
        send_time: ms(5 + 12 + 5),
        wait_time: ms(7),
        last_send_time: ms(5),
        queue_max: 2,
    };
    assert_eq!(rates.counters(), expected);
    // What does not arrive does not count.
    rates.handle_begun(ms(30), Site(1), 100);
    rates.forget(Site(1));
    assert_eq!(rates.counters(), expected);
}

/// A rate is told each 100 ms, and one of a receiver that answers nothing before its chunks have arrived.
#[test]
fn rates_are_told_rarely() {
    let mut table = RateTable::default();
    assert_eq!(reports(&[(1, 5)], Site(0), &mut table), 2);
    let count = reports(&[(1, 5), (2, 5), (3, 60)], Site(0), &mut table);
    assert!((2..7).contains(&count), "{count} reports");
}

/// Each of many receivers gets a part of what a site sends: that is no sign of a slow link. One that gets far less than
/// the others is.
#[test]
fn receivers_share_a_link_out() {
    let outwards = |arrived, others| Outwards { arrived, others };
    let before = outwards(5_000, 0);
    assert_eq!(before.alone(100, before), 100);
    assert_eq!(outwards(6_500, 15).alone(100, before), 1_600);
    assert_eq!(outwards(6_500, 15).alone(10, before), 151);
    assert_eq!(outwards(5_900, 1).alone(100, before), 111);

    let ms = Duration::from_millis;
    let mut rates = SendRates::new(Site(99));
    let mut told = BTreeMap::new();
    for round in 0..40 {
        for to in 0..16 {
            rates.handle_begun(ms(16 * round), Site(to), 100);
        }
        for to in 0..16 {
            let now = ms(16 * round + u64::from(to) + 1);
            told.extend(rates.handle_ended(now, Site(to), 100, now).into_iter().flatten());
        }
    }
    assert_eq!(told.len(), 16);
    for (to, rate) in told {
        let most = if rate.most.is_finite() { rate.most } else { 100e3 };
        assert!((50e3..110e3).contains(&most), "{to:?}: {rate:?}");
        assert!((50e3..110e3).contains(&rate.least), "{to:?}: {rate:?}");
    }
}

/// A receiver that has not answered for 20 ms is told as halted, unless others' answers are as late.
#[test]
fn late_answers_are_not_missing_ones() {
    let is_halted = |late: u64| {
        const PERIOD: u64 = 10;
        let ms = Duration::from_millis;
        let mut rates = SendRates::new(Site(99));
        let mut halted = false;
        for at in (0..40 * PERIOD).step_by(5) {
            let now = ms(at);
            // The chunks to one site arrive after 5 ms each; their answers come late from the tenth on.
            let late = if at < 10 * PERIOD { 0 } else { late };
            if at % PERIOD == 5 && at > late {
                let report = rates.handle_ended(now, Site(1), 100, now.saturating_sub(ms(late)));
                let told = report.into_iter().flatten();
                halted |= told
                    .filter(|(to, _)| *to == Site(2))
                    .any(|(_, rate)| rate.most.is_finite());
            }
            if at % PERIOD == 0 {
                rates.handle_begun(now, Site(1), 100);
            }
            if at == 37 * PERIOD {
                rates.handle_begun(now, Site(2), 100);
            }
        }
        halted
    };
    assert_eq!([0, 30].map(is_halted), [true, false]);
}

/// In a chain a receiver has one sender, and is known by the rates of the others.
#[test]
fn a_slow_link_in_a_chain_is_found() {
    let mut table = RateTable::default();
    for from in 1..8 {
        reports(
            &[(from - 1, if from == 5 { 40 } else { 5 })],
            Site(from),
            &mut table,
        );
    }
    let slow = table.slow(Duration::from_millis(200));
    assert_eq!(slow.keys().collect::<Vec<_>>(), [&Site(4)]);
    // What is on its way counts as if it had arrived.
    assert!((20e3..30e3).contains(&table.usual().unwrap()));
    // It was the sender: to other receivers it is as slow.
    reports(&[(6, 40)], Site(5), &mut table);
    assert_eq!(table.slow(Duration::from_millis(200)).len(), 1);
    reports(&[(2, 40)], Site(5), &mut table);
    assert_eq!(table.slow(Duration::from_millis(200)), BTreeMap::new());
}

/// Whose link is slow follows from several senders: a slow receiver is, a slow sender is not. A verdict lasts, and
/// the next one longer.
#[test]
fn the_slow_link_is_found() {
    let mut table = RateTable::default();
    let tell = |table: &mut RateTable| {
        for from in [0, 1, 2] {
            reports(&[(4, 5), (5, 5), (6, 5), (7, 50)], Site(from), table);
        }
        // Everything from this one is slow.
        reports(&[(4, 50), (5, 50), (6, 50), (7, 120)], Site(3), table);
    };
    tell(&mut table);
    let slow = table.slow(SECOND);
    assert_eq!(slow.keys().collect::<Vec<_>>(), [&Site(7)]);
    assert!((0.05..0.3).contains(&slow[&Site(7)]), "{slow:?}");
    assert_eq!(table.slow(3 * SECOND), BTreeMap::new());
    table.judge(3 * SECOND);
    let told = [(4, 20e3), (5, 20e3), (7, 2e3)].map(|(to, rate)| {
        let (least, most) = (rate, rate);
        (Site(to), RateBounds { least, most })
    });
    table.note(3 * SECOND, Site(0), told.into());
    table.judge(3 * SECOND);
    assert_eq!(table.slow(6 * SECOND).len(), 1);
    assert_eq!(table.slow(8 * SECOND).len(), 0);
}

const INFINITE: f64 = f64::INFINITY;

fn told(table: &mut RateTable, now: Duration, bounds: &[(u32, u32, f64, f64)]) -> Vec<u32> {
    for &(from, to, least, most) in bounds {
        table.note(now, Site(from), vec![(Site(to), RateBounds { least, most })]);
    }
    table.judge(now);
    table.slow(now).keys().map(|site| site.0).collect()
}

/// Chunks that come one by one pass a token bucket at once, and their links seem fast. A site that receives as much
/// as all others do is not slow for that, unless it is far slower than they seem.
#[test]
fn what_passes_at_once_makes_nobody_slow() {
    let links = |rate: f64| {
        [1, 2, 3, 4].map(|to| match to {
            4 => (5, 4, rate, rate),
            _ => (to + 1, to, 80.0, INFINITE),
        })
    };
    let received = [1, 2, 3].map(|site| (site, site, 25.0, INFINITE));
    let slow_at = |rate| {
        let told_all = [&links(rate)[..], &received, &[(4, 4, rate, INFINITE)]].concat();
        told(&mut RateTable::default(), SECOND, &told_all)
    };
    assert_eq!(slow_at(25.0), [0; 0]);
    assert_eq!(slow_at(9.0), [4]);
}

/// Of two slow sites one hides the other, after their verdicts have run out too: both come back. Only one that
/// receives enough is cleared.
#[test]
fn verdicts_that_are_open_come_back() {
    let mut table = RateTable::default();
    let fast = [1, 2, 3].map(|to| (to + 1, to, 50.0, INFINITE));
    let received = [1, 2, 3].map(|site| (site, site, 50.0, INFINITE));
    let slow = [(5, 4, 5.0, 5.0), (6, 5, 5.0, 5.0)];
    assert_eq!(
        told(&mut table, SECOND, &[&fast[..], &received, &slow].concat()),
        [4, 5]
    );
    // A chunk alone passes at once.
    let alone = [(6, 5, 90.0, INFINITE)];
    assert_eq!(told(&mut table, 2 * SECOND, &alone), [4, 5]);
    assert_eq!(table.slow(4 * SECOND), BTreeMap::new());
    let again = [&fast[..], &received, &slow[..1]].concat();
    assert_eq!(told(&mut table, 4 * SECOND, &again), [4, 5]);
    let enough = [(5, 5, 40.0, INFINITE)];
    assert_eq!(told(&mut table, 5 * SECOND, &enough), [4]);
}

/// In trees each site sends to several, and what little passes each link shows no rate. A receiver is slow that two
/// are slow to, and to none else; a sender that is slow to several is slow itself, and who is slow to one alone may
/// be so too.
#[test]
fn two_that_have_shown_nothing_are_believed() {
    let unknown = |from: u32| [10, 11, 12].map(|to| (from, to, 0.0, INFINITE));
    let received = [
        (6, 6, 50.0, INFINITE),
        (7, 7, 5.0, INFINITE),
        (8, 8, 5.0, INFINITE),
    ];
    let slow_with = |accusations: &[(u32, u32, f64, f64)]| {
        let usual = [6, 13, 14, 15].map(|to| (1, to, 50.0, 60.0));
        let others = [unknown(1), unknown(2), unknown(3)].concat();
        let told_all = [
            &usual[..],
            &others,
            &received,
            accusations,
            &unknown(4),
            &unknown(5),
        ]
        .concat();
        told(&mut RateTable::default(), SECOND, &told_all)
    };
    assert_eq!(slow_with(&[(4, 7, 4.0, 5.0)]), [0; 0]);
    assert_eq!(slow_with(&[(4, 7, 4.0, 5.0), (4, 8, 4.0, 5.0)]), [0; 0]);
    assert_eq!(slow_with(&[(4, 7, 4.0, 5.0), (5, 7, 0.0, 6.0)]), [7]);
    // The other one receives enough, from others.
    let enough = [(4, 7, 4.0, 5.0), (5, 7, 0.0, 6.0), (5, 6, 0.0, 6.0)];
    assert_eq!(slow_with(&enough), [7]);
    let slow_sender = [(4, 7, 4.0, 5.0), (4, 8, 4.0, 5.0), (5, 7, 0.0, 6.0)];
    assert_eq!(slow_with(&slow_sender), [0; 0]);
}

/// A sender that was believed is so while it sends to new ones of which nothing is known yet, until it turns out to be
/// slow to several. Receivers of a plan before say nothing of it.
#[test]
fn new_receivers_make_no_sender_slow() {
    let mut table = RateTable::default();
    let usual = [6, 13, 14, 15].map(|to| (1, to, 50.0, 60.0));
    let received = [(7, 7, 5.0, INFINITE)];
    let unknown = [10, 11, 12].map(|to| (4, to, 0.0, INFINITE));
    let slow = [(4, 7, 4.0, 5.0)];
    let late = SECOND * 3 / 2;
    assert_eq!(
        told(&mut table, SECOND, &[&usual[..], &received, &slow].concat()),
        [7]
    );
    assert_eq!(told(&mut table, SECOND, &unknown), [7]);
    let slow_to_all = [10, 11].map(|to| (4, to, 4.0, 5.0));
    assert_eq!(told(&mut table, SECOND, &slow_to_all), [0; 0]);

    let mut table = RateTable::default();
    let before = [&usual[..], &unknown].concat();
    assert_eq!(told(&mut table, SECOND, &before), [0; 0]);
    let again = [&usual[..], &received, &slow].concat();
    assert_eq!(told(&mut table, late, &again), [7]);
}

/// Of one fast link and one slow one the fast one is usual. The receiver of the slow one stays as slow as it was found,
/// while little passes to it at once, and what was told of it long before says nothing any more.
#[test]
fn the_latest_tell_how_slow_a_site_is() {
    let mut table = RateTable::default();
    let fast = [(2, 1, 50.0, 60.0), (1, 1, 50.0, INFINITE)];
    let before = [(9, 3, 5.0, 30.0)];
    assert_eq!(told(&mut table, SECOND, &before), [0; 0]);
    let slow = [(4, 3, 5.0, 5.0)];
    let later = SECOND * 6 / 5;
    assert_eq!(told(&mut table, later, &[&fast[..], &slow].concat()), [3]);
    assert_eq!(table.slow(later)[&Site(3)], 0.1);
    assert_eq!(told(&mut table, later, &[(4, 3, 15.0, 15.0)]), [3]);
    assert_eq!(table.slow(later)[&Site(3)], 0.1);
}
