//! The suspension of this process by its user, as with ^Z, on which all jobs that it runs have to agree: each has agents that
//! wait for a sign of life of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::mpsc;

use super::signals::stop_this_process;
use crate::protocol::SuspensionRound;

/// A run of this process that is told before the process is stopped.
///
/// Whoever is [told](Self::next) says so to its agents, and then calls [`stop`](Self::stop).
#[derive(Debug)]
pub(super) struct Suspendable {
    number: u64,
    told: mpsc::UnboundedReceiver<SuspensionRound>,
}

#[derive(Debug)]
struct Runs {
    tellers: BTreeMap<u64, mpsc::UnboundedSender<SuspensionRound>>,
    /// Those whose agents know.
    ready: BTreeSet<u64>,
    next: u64,
    wanted: SuspensionRound,
    over: SuspensionRound,
}

static RUNS: Mutex<Runs> = Mutex::new(Runs {
    tellers: BTreeMap::new(),
    ready: BTreeSet::new(),
    next: 0,
    wanted: SuspensionRound(0),
    over: SuspensionRound(0),
});
static CHANGED: Condvar = Condvar::new();

impl Suspendable {
    pub(super) fn new() -> Self {
        let (teller, told) = mpsc::unbounded_channel();
        let mut runs = runs();
        let number = runs.next;
        runs.next += 1;
        if runs.wanted > runs.over {
            let _ = teller.send(runs.wanted);
        }
        runs.tellers.insert(number, teller);
        Self { number, told }
    }

    /// The next suspension that somebody wants.
    pub(super) async fn next(&mut self) -> SuspensionRound {
        while let Some(round) = self.told.recv().await {
            if round > runs().over {
                return round;
            }
        }
        // The teller is dropped with this.
        pending().await
    }

    /// Stops this process once all its runs are ready for that, and returns when it goes on. A run that is not ready after
    /// `patience` is not waited for.
    pub(super) fn stop(&self, round: SuspensionRound, patience: Duration) {
        let until = Instant::now() + patience;
        let mut runs = runs();
        runs.ready.insert(self.number);
        while runs.over < round {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || runs.ready.len() >= runs.tellers.len() {
                stop_this_process();
                runs.over = round;
                runs.ready.clear();
                CHANGED.notify_all();
            } else {
                let waited = CHANGED.wait_timeout(runs, left);
                (runs, _) = waited.unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl Drop for Suspendable {
    fn drop(&mut self) {
        let mut runs = runs();
        runs.tellers.remove(&self.number);
        runs.ready.remove(&self.number);
        CHANGED.notify_all();
    }
}

/// The user wants this process suspended: tells all its runs.
pub(super) fn request() -> SuspensionRound {
    let mut runs = runs();
    if runs.wanted == runs.over {
        runs.wanted.0 += 1;
        for teller in runs.tellers.values() {
            let _ = teller.send(runs.wanted);
        }
    }
    runs.wanted
}

fn runs() -> MutexGuard<'static, Runs> {
    // Nothing in here panics half-way.
    RUNS.lock().unwrap_or_else(PoisonError::into_inner)
}
