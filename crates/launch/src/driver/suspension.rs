//! The suspension of this process by its user, as with ^Z, on which all jobs that it runs have to agree: each has agents that
//! wait for a sign of life of it.

mod rounds;

use std::{
    future::pending,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    sync::{Notify, mpsc},
    time::timeout_at,
};

use super::signals::stop_this_process;
use crate::protocol::{Plan, SuspensionRound};
use rounds::{Rounds, Step};

/// A run of this process that is told before the process is stopped.
///
/// Whoever is [told](Self::next) says so to its agents, says when they [know](Self::set_ready), and waits until the suspension
/// is [over](Self::over).
#[derive(Debug)]
pub(super) struct Suspendable {
    number: u64,
    told: mpsc::UnboundedReceiver<SuspensionRound>,
}

static ROUNDS: Mutex<Rounds<mpsc::UnboundedSender<SuspensionRound>>> = Mutex::new(Rounds::new());
static CHANGED: Notify = Notify::const_new();

impl Suspendable {
    /// One that is ready `patience` after it is told, at the latest.
    pub(super) fn new(patience: Duration) -> Self {
        let (teller, told) = mpsc::unbounded_channel();
        let mut rounds = rounds();
        if let Some(round) = rounds.wanted() {
            let _ = teller.send(round);
        }
        let number = rounds.add(Instant::now(), patience, teller);
        Self { number, told }
    }

    /// The next suspension that somebody wants.
    pub(super) async fn next(&mut self) -> SuspensionRound {
        while let Some(round) = self.told.recv().await {
            if rounds().wanted() == Some(round) {
                return round;
            }
        }
        // The teller is dropped with this.
        pending().await
    }

    /// As far as this run is concerned, the process may be stopped.
    pub(super) fn set_ready(&self, round: SuspensionRound) {
        rounds().set_ready(self.number, round);
        CHANGED.notify_waiters();
    }

    /// Waits until all runs of this process are ready, and stops it then; returns when it goes on, or if the suspension is called
    /// off. A run that is not ready in its time is not waited for.
    pub(super) async fn over(&self, round: SuspensionRound) {
        loop {
            // It hears of changes from here on.
            let changed = CHANGED.notified();
            let until = {
                let mut rounds = rounds();
                match rounds.step(round, Instant::now()) {
                    Step::Over => return,
                    Step::Stop => {
                        let begun = Instant::now();
                        stop_this_process();
                        rounds.end(round, begun.elapsed());
                        CHANGED.notify_waiters();
                        return;
                    }
                    Step::Wait(until) => until,
                }
            };
            let _ = timeout_at(until.into(), changed).await;
        }
    }
}

impl Drop for Suspendable {
    fn drop(&mut self) {
        rounds().remove(self.number);
        CHANGED.notify_waiters();
    }
}

/// The user wants this process suspended: tells all its runs.
pub(super) fn request() -> SuspensionRound {
    let mut rounds = rounds();
    if let Some(round) = rounds.wanted() {
        return round;
    }
    let round = rounds.begin(Instant::now());
    for teller in rounds.tellers() {
        let _ = teller.send(round);
    }
    round
}

/// The user does not want it suspended after all.
pub(super) fn call_off(round: SuspensionRound) {
    rounds().end(round, Duration::ZERO);
    CHANGED.notify_waiters();
}

/// For how long this process was stopped, all in all.
pub(super) fn stopped() -> Duration {
    rounds().stopped()
}

/// How long agents may take to say that they know, after which whoever pressed ^Z waits no longer.
pub(super) fn patience(plan: &Plan) -> Duration {
    match plan.adopts() {
        // So long it may take until hosts below one that hangs miss it, and hear from the launcher.
        true => plan.detect * 2,
        false => plan.detect.min(PATIENCE),
    }
}

const PATIENCE: Duration = Duration::from_secs(3);

fn rounds() -> MutexGuard<'static, Rounds<mpsc::UnboundedSender<SuspensionRound>>> {
    // Nothing in here panics half-way.
    ROUNDS.lock().unwrap_or_else(PoisonError::into_inner)
}
