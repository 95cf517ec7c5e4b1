//! The suspension of this process by its user, as with ^Z.
//!
//! Agents wait for a sign of life of the launcher, so that they have to hear of its suspension first. A process may run several
//! jobs: it is stopped once the agents of all of them know, or the time for that is over. An agent that did not hear of it
//! counts the launcher as lost when it misses it, and is counted as lost in turn when the launcher goes on.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
    time::{Duration, Instant},
};

use ropewalk_launch_core::protocol::Plan;
use ropewalk_names::HostId;
use tokio::sync::watch;

use super::signals::stop_this_process;

/// One run of a job by this process, that is told before the process is stopped.
///
/// Await [`changed`](Self::changed) and act on it. While the job is suspended, say which hosts know of it by
/// [`note_aware`](Self::note_aware), and call [`stop_if_ready`](Self::stop_if_ready) in each turn.
#[derive(Debug)]
pub(super) struct Suspendable {
    number: u64,
    process: watch::Receiver<Process>,
    patience: Duration,
    suspended: Option<Suspended>,
}

/// The next step of a job.
#[derive(Debug)]
pub(super) enum Change {
    /// To stand still, and to have its agents know.
    Suspend,
    /// To go on.
    Resume {
        /// How long the job was suspended.
        suspended: Duration,
        /// The part of that in which this process was stopped.
        stopped: Duration,
    },
}

/// A suspension that goes on.
#[derive(Debug)]
struct Suspended {
    since: Instant,
    stopped_before: Duration,
    aware: BTreeSet<HostId>,
    is_ready: bool,
}

/// The state that the runs of this process share.
#[derive(Debug, Default)]
struct Process {
    /// Its user wants it stopped, and it has not gone on since.
    is_wanted: bool,
    /// By their numbers, with `true` for a run that is ready for the stop. A run takes that back when it goes on.
    runs: BTreeMap<u64, bool>,
    next_number: u64,
    /// How long it was stopped, all in all.
    stopped: Duration,
}

static PROCESS: LazyLock<watch::Sender<Process>> = LazyLock::new(watch::Sender::default);

/// The user wants this process stopped. It is as soon as all its runs are ready: at once, if it has none.
pub(super) fn request() {
    PROCESS.send_modify(|process| {
        process.is_wanted = true;
        process.stop_if_ready();
    });
}

/// The user does not want it stopped after all.
pub(super) fn call_off() {
    PROCESS.send_modify(|process| process.is_wanted = false);
}

/// For how long this process was stopped, all in all.
pub(super) fn stopped() -> Duration {
    PROCESS.borrow().stopped
}

impl Process {
    /// Stops this process, and returns when it goes on. Meanwhile no thread of it does anything.
    fn stop_if_ready(&mut self) {
        if self.is_wanted && self.runs.values().all(|&is_ready| is_ready) {
            let begun = Instant::now();
            stop_this_process();
            self.stopped += begun.elapsed();
            self.is_wanted = false;
        }
    }
}

impl Suspendable {
    pub(super) fn new(plan: &Plan) -> Self {
        let mut number = 0;
        PROCESS.send_modify(|process| {
            number = process.next_number;
            process.next_number += 1;
            process.runs.insert(number, false);
        });
        Self {
            number,
            process: PROCESS.subscribe(),
            patience: match plan.adopts() {
                // So long it may take until hosts below one that hangs miss it, and hear from the launcher.
                true => plan.detect * 2,
                false => plan.detect.min(PATIENCE),
            },
            suspended: None,
        }
    }

    /// Waits until the job is to be suspended or, when it is, until it is to go on.
    pub(super) async fn changed(&mut self) -> Change {
        loop {
            let was_suspended = self.suspended.is_some();
            // It never fails: the sender is static.
            let _ = self
                .process
                .wait_for(|process| process.is_wanted != was_suspended)
                .await;
            let mut change = None;
            // It may have changed again, and the run is not ready any more once it goes on.
            PROCESS.send_modify(|process| change = self.follow(process));
            if let Some(change) = change {
                return change;
            }
        }
    }

    fn follow(&mut self, process: &mut Process) -> Option<Change> {
        match (process.is_wanted, self.suspended.take()) {
            (true, None) => {
                self.suspended = Some(Suspended {
                    since: Instant::now(),
                    stopped_before: process.stopped,
                    aware: BTreeSet::new(),
                    is_ready: false,
                });
                Some(Change::Suspend)
            }
            (false, Some(before)) => {
                process.runs.insert(self.number, false);
                Some(Change::Resume {
                    suspended: before.since.elapsed(),
                    stopped: process.stopped.saturating_sub(before.stopped_before),
                })
            }
            (_, suspended) => {
                self.suspended = suspended;
                None
            }
        }
    }

    /// Since when the job is suspended, if it is.
    pub(super) fn since(&self) -> Option<Instant> {
        self.suspended.as_ref().map(|suspended| suspended.since)
    }

    /// The agent of a host knows that the job is suspended.
    pub(super) fn note_aware(&mut self, host: HostId) {
        if let Some(suspended) = &mut self.suspended {
            suspended.aware.insert(host);
        }
    }

    /// When to call [`stop_if_ready`](Self::stop_if_ready) although no host has said anything.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let suspended = self.suspended.as_ref();
        let waiting = suspended.filter(|suspended| !suspended.is_ready)?;
        Some(waiting.since + self.patience)
    }

    /// Stops this process if all these hosts know, or have had the time for it, and other runs are ready too. Returns when it
    /// goes on.
    pub(super) fn stop_if_ready(&mut self, mut hosts: impl Iterator<Item = HostId>) {
        let Some(deadline) = self.deadline() else {
            return;
        };
        if let Some(suspended) = &mut self.suspended
            && (hosts.all(|host| suspended.aware.contains(&host)) || deadline <= Instant::now())
        {
            suspended.is_ready = true;
            PROCESS.send_modify(|process| {
                process.runs.insert(self.number, true);
                process.stop_if_ready();
            });
        }
    }
}

impl Drop for Suspendable {
    fn drop(&mut self) {
        PROCESS.send_modify(|process| {
            process.runs.remove(&self.number);
            process.stop_if_ready();
        });
    }
}

/// How long whoever pressed ^Z waits for agents that do not say that they know.
const PATIENCE: Duration = Duration::from_secs(3);
