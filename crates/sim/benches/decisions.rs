//! The cost of a scheduler's decisions by the number of hosts: a plan, the plan after a loss, and each message.
//! `cargo bench -p ropewalk-sim --bench decisions`
//!
//! One rank on each host, a result of 128 MiB for all, links of 400 Mbit/s and 50 microseconds. Times are of one
//! processor, and the least of five sessions: the first one touches new memory.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use ropewalk_reduce_core::{
    Call, Costs, Member, RateBounds, Scheduler, SchedulerAction, Session, Site, Term, ToScheduler, Token,
};

const SESSION: Session = Session { group: 1, call: 0 };
const COSTS: Costs = Costs {
    latency: 50e-6,
    per_chunk: 20e-6,
    rate: 50e6,
};

fn main() {
    println!(
        "{:>6} {:>14} {:>10} {:>14} {:>12} {:>14} {:>10} {:>14}",
        "hosts", "announcement", "plan", "report", "lost host", "complete", "end", "end heard"
    );
    for hosts in [8, 100, 1_000, 10_000] {
        let sessions = (0..5).map(|_| session(hosts));
        let least = sessions.reduce(|one, other| std::array::from_fn(|at| one[at].min(other[at])));
        let [announced, plan, report, loss, complete, end, heard] = least.unwrap_or_default();
        let each = |all: Duration| format!("{:.2} us", all.as_secs_f64() * 1e6 / f64::from(hosts - 1));
        let whole = |all: Duration| format!("{:.2} ms", all.as_secs_f64() * 1e3);
        println!(
            "{hosts:>6} {:>14} {:>10} {:>14} {:>12} {:>14} {:>10} {:>14}",
            each(announced),
            whole(plan),
            each(report),
            whole(loss),
            each(complete),
            whole(end),
            each(heard)
        );
    }
}

/// The times of the steps of a session of so many hosts: all announcements, the plan for the contributions and for the
/// result, a report of each host, a loss, the completions of all but the last, the end, and the answers of all to it.
fn session(hosts: u32) -> [Duration; 7] {
    let now = Duration::from_secs(1);
    let mut scheduler = Scheduler::new(Site(0), COSTS, Duration::from_millis(5));
    scheduler.add_group(SESSION.group, (0..hosts).map(Site).collect());
    // Each host has a rank, and an agent that folds nothing.
    scheduler.set_hosts((0..2 * hosts).map(|site| (Site(site), u64::from(site % hosts))));
    (hosts..2 * hosts).for_each(|agent| scheduler.set_capacity(Site(agent), 0.0));
    let call = Call {
        bytes: 128 << 20,
        element_bytes: 1,
        is_spread: true,
        ..Call::default()
    };
    let announce = |scheduler: &mut Scheduler, site: u32, member: u32| {
        let message = ToScheduler::Announce {
            session: SESSION,
            call: call.clone(),
            originals: vec![(Member(member), Token(1 << (member % 64)))],
            are_enclosed: false,
        };
        scheduler.handle_message(now, Site(site), message);
        drain(scheduler)
    };
    let (announced, _) = timed(|| {
        (1..hosts).for_each(|site| {
            announce(&mut scheduler, site, site);
        });
    });
    let (plan, rows) = timed(|| announce(&mut scheduler, 0, 0));
    assert!(rows >= hosts as usize, "{rows} rows");
    let rate = RateBounds {
        least: 48e6,
        most: 52e6,
    };
    let (reports, _) = timed(|| {
        for site in 1..hosts {
            scheduler.handle_message(now, Site(site), ToScheduler::Rates(vec![(Site(site - 1), rate)]));
            drain(&mut scheduler);
        }
    });
    // The agent has inherited the contribution of its rank.
    let lost = hosts / 2;
    announce(&mut scheduler, hosts + lost, lost);
    let (loss, rows) = timed(|| {
        scheduler.handle_lost(now, Site(lost));
        drain(&mut scheduler)
    });
    assert!(rows >= hosts as usize, "{rows} rows");
    let tokens = Token::sum((0..hosts).map(|member| Token(1 << (member % 64))));
    let complete = |scheduler: &mut Scheduler, site: u32| {
        let message = ToScheduler::Complete {
            session: SESSION,
            term: Term(0),
            generation: 0,
            tokens,
            is_for_all: false,
            is_enclosed: false,
        };
        scheduler.handle_message(now, Site(site), message);
        drain(scheduler)
    };
    let last = hosts - 1;
    let (completed, _) = timed(|| {
        for site in (0..last).filter(|site| *site != lost) {
            complete(&mut scheduler, site);
        }
    });
    let (end, ends) = timed(|| complete(&mut scheduler, last));
    assert_eq!(scheduler.sessions(), 0);
    assert!(ends >= hosts as usize);
    let (heard, _) = timed(|| {
        for site in 1..hosts {
            scheduler.handle_end_heard(now, Site(site), SESSION);
            drain(&mut scheduler);
        }
    });
    [announced, plan, reports, loss, completed, end, heard]
}

/// Takes all that the scheduler wants done. Returns the number of messages.
fn drain(scheduler: &mut Scheduler) -> usize {
    let actions = std::iter::from_fn(|| scheduler.poll_action());
    let sends = actions.filter(|action| matches!(black_box(action), SchedulerAction::Send(..)));
    sends.count()
}

/// The time that something takes, and its outcome.
fn timed<T>(run: impl FnOnce() -> T) -> (Duration, T) {
    let began = Instant::now();
    let outcome = run();
    (began.elapsed(), outcome)
}
