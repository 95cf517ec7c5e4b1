//! How the engines of a test reach each other, and what they do while there is nothing to do.

use std::{
    cell::RefCell,
    env,
    os::fd::AsFd,
    process::Command,
    time::{Duration, Instant},
};

use ropewalk_rpc::{Engine, Transports};
use rustix::event::{PollFd, PollFlags, poll};

/// The behaviour of engines while there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// They are asked again and again.
    Spinning,
    /// They are left alone until their descriptor or their deadline says that there is something.
    Sleeping,
}

thread_local! {
    static TRANSPORTS: RefCell<Transports> = RefCell::default();
    static WAITING: RefCell<Waiting> = const { RefCell::new(Waiting::Spinning) };
}

/// By which the engines of the test in this thread reach each other.
pub(crate) fn transports() -> Transports {
    TRANSPORTS.with_borrow(Clone::clone)
}

/// The behaviour of the engines of the test in this thread while there is nothing to do.
pub(crate) fn waiting() -> Waiting {
    WAITING.with_borrow(|waiting| *waiting)
}

/// Tells another process of a test, which is started so, by which ways it reaches this one, and what it does
/// while there is nothing to do.
pub(crate) fn tell(command: &mut Command) {
    let Transports {
        tcp, shm, external, ..
    } = transports();
    let sleeping = waiting() == Waiting::Sleeping;
    let told = format!("{tcp} {shm} {sleeping} {}", external.unwrap_or_default());
    command.env(TOLD, told);
}

/// Heeds what this process was [told](tell). Returns whether it was.
pub(crate) fn heed() -> bool {
    let Ok(told) = env::var(TOLD) else { return false };
    let [tcp, shm, sleeping, external] = told.splitn(4, ' ').collect::<Vec<_>>().try_into().unwrap();
    TRANSPORTS.set(Transports {
        tcp: tcp.parse().unwrap(),
        shm: shm.parse().unwrap(),
        external: Some(external.to_owned()).filter(|provider| !provider.is_empty()),
        ..Transports::default()
    });
    WAITING.set(match sleeping.parse().unwrap() {
        true => Waiting::Sleeping,
        false => Waiting::Spinning,
    });
    true
}

const TOLD: &str = "ROPEWALK_TEST_SETTINGS";

pub(crate) fn tcp(waiting: Waiting, test: fn()) {
    over(true, false, waiting, test);
}

pub(crate) fn shm(waiting: Waiting, test: fn()) {
    over(false, true, waiting, test);
}

/// By what two engines on one host choose.
pub(crate) fn either(waiting: Waiting, test: fn()) {
    over(true, true, waiting, test);
}

#[cfg(feature = "ofi")]
pub(crate) fn ofi_shm(waiting: Waiting, test: fn()) {
    over_ofi("shm", waiting, test);
}

#[cfg(feature = "ofi")]
pub(crate) fn ofi_sockets(waiting: Waiting, test: fn()) {
    over_ofi("sockets", waiting, test);
}

#[cfg(feature = "ofi")]
pub(crate) fn ofi_tcp(waiting: Waiting, test: fn()) {
    over_ofi("tcp;ofi_rxm", waiting, test);
}

fn over(tcp: bool, shm: bool, waiting: Waiting, test: fn()) {
    TRANSPORTS.set(Transports {
        tcp,
        shm,
        ..Transports::default()
    });
    WAITING.set(waiting);
    test();
}

/// Where libfabric does not have the provider it is said and the test is left out.
#[cfg(feature = "ofi")]
fn over_ofi(provider: &str, waiting: Waiting, test: fn()) {
    TRANSPORTS.set(Transports {
        external: Some(format!("ofi:{provider}")),
        ..Transports::default()
    });
    WAITING.set(waiting);
    match ropewalk_rpc::bind(crate::options(0)) {
        Ok(endpoint) => drop(endpoint),
        Err(error @ ropewalk_rpc::BindError::External { .. }) => return eprintln!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    }
    test();
}

/// The longest sleep: the event that is waited for may be none of the engines' doing.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Sleeps until one of the engines says that there is something to do.
pub(crate) fn sleep(engines: &mut [&mut Engine]) {
    let deadlines = engines.iter_mut().filter_map(|engine| engine.next_deadline());
    let deadline = deadlines.min();
    let now = Instant::now();
    let left = deadline.map_or(SLEEP_MAX, |deadline| deadline.saturating_duration_since(now));
    if left.is_zero() || is_readable(engines, left.min(SLEEP_MAX)) || left < SLEEP_MAX {
        return;
    }
    // It slept to the end, so there must be nothing, unless that came just now.
    if !is_readable(engines, Duration::ZERO) {
        for engine in engines.iter_mut() {
            let slept_over = engine.progress();
            let overdue = deadline.is_some_and(|deadline| deadline <= Instant::now());
            assert!(
                slept_over == 0 || overdue,
                "{engine:?} slept although there were {slept_over} things to do"
            );
        }
    }
}

fn is_readable(engines: &[&mut Engine], timeout: Duration) -> bool {
    let mut polled: Vec<_> = (engines.iter())
        .map(|engine| PollFd::from_borrowed_fd(engine.as_fd(), PollFlags::IN))
        .collect();
    poll(&mut polled, Some(&timeout.try_into().unwrap())).unwrap() > 0
}
