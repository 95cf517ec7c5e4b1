//! Decides over a job: when it is being ended, how, and what the verdict is.
//!
//! Each fact has its part: `Losses` who failed, `Stoppages` who is stopped, `Respawns` who is started again,
//! `Groups` what was spawned, `Progress` if the job moves, `Notices` when it is to end and if it saved for
//! that. The parts stand on one `Ground` and do not end the job: they say that it is to end, and the
//! [`Supervisor`] ends it.

mod action;
mod ground;
mod groups;
mod losses;
mod memory;
mod names;
mod notices;
mod pmi_root;
mod reports;
mod respawns;
mod stalls;
mod star;
mod stopped;

use std::{ops::Not, time::Duration};

use crate::{
    injection::Injector,
    job::{Injection, OnFailure, OnStopped},
    protocol::{Down, Order, Plan},
    verdict::{Ending, Verdict},
};
pub use action::{Action, WantedSpawn};
use ground::Ground;
use groups::Groups;
use losses::Losses;
use memory::ServedMemory;
pub use names::NameAsker;
use names::NameFailures;
use notices::Notices;
use respawns::Respawns;
use stalls::Progress;
use stopped::Stoppages;

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// The launcher's mind. `now` is the time since the start of the job.
///
/// Tell it what happens with `handle_*`; after each call do what [`poll_action`](Self::poll_action) says until
/// it says nothing, and call [`handle_timeout`](Self::handle_timeout) when
/// [`deadline`](Self::deadline) has come. It is over when [`Action::Finished`] came out.
#[derive(Debug)]
pub struct Supervisor {
    ground: Ground,
    groups: Groups,
    losses: Losses,
    names: NameFailures,
    notices: Notices,
    progress: Progress,
    respawns: Respawns,
    served: ServedMemory,
    stoppages: Stoppages,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// The ranks were asked to end; at `kill_at` they are killed, and so are the agents if they show no sign of
    /// that until `despair_at`.
    Ending {
        ending: Ending,
        kill_at: Option<Duration>,
        despair_at: Option<Duration>,
    },
    Over,
}

impl Supervisor {
    /// The supervisor of a job that is about to start; `limit` is the time that it may take.
    pub fn new(plan: &Plan, on_failure: OnFailure, limit: Option<Duration>) -> Self {
        Self {
            ground: Ground::new(plan, on_failure),
            groups: Groups::default(),
            losses: Losses::default(),
            names: NameFailures::default(),
            notices: Notices::new(limit),
            progress: Progress::default(),
            respawns: Respawns::default(),
            served: ServedMemory::default(),
            stoppages: Stoppages::default(),
        }
    }

    /// How long ranks have to end, and how long the batch system gives the job.
    pub fn set_notices(&mut self, grace: Duration, allocation: Option<Duration>) {
        self.notices.set(grace, allocation);
    }

    /// From now on this is what happens to ranks that stay stopped.
    pub fn set_on_stopped(&mut self, on_stopped: OnStopped) {
        self.stoppages.on_stopped = on_stopped;
    }

    /// Kills ranks at random from now on.
    pub fn inject(&mut self, injection: Injection, attempt: u32) {
        self.respawns.injector = Some(Injector::new(injection, attempt));
    }

    /// Somebody wants the job to end, and says so with this signal.
    pub fn handle_interrupt(&mut self, now: Duration, signal: i32) {
        let ending = Ending::Interrupted(signal);
        let kill_at = Some(now + self.notices.grace);
        // Whoever types ^C does not want to wait.
        if signal != SIGTERM || !self.notices.give(now, &mut self.ground, &ending, kill_at) {
            self.end(now, ending, signal);
        }
    }

    /// Somebody wants the job to end, and says so again: ranks have no time left. Why the job is being ended
    /// stays as it was.
    pub fn handle_insistence(&mut self, now: Duration, signal: i32) {
        match &mut self.ground.phase {
            Phase::Running => self.end(now, Ending::Interrupted(signal), SIGKILL),
            Phase::Ending { kill_at, .. } => {
                *kill_at = None;
                self.ground.signal_all(SIGKILL);
            }
            Phase::Over => {}
        }
    }

    /// A signal for the ranks came, which is a notice if it is SIGUSR1 and somebody can save.
    pub fn handle_user_signal(&mut self, now: Duration, signal: i32) {
        if !self.notices.is_notice(now, &mut self.ground, signal) {
            self.ground.send(Down::Order(Order::Forward { signal }));
        }
    }

    /// The job was suspended, with its clock, and goes on.
    pub fn handle_resumed(&mut self, now: Duration, suspended: Duration) {
        self.progress.note(now);
        self.notices.handle_resumed(suspended);
    }

    /// The time has come that [`deadline`](Self::deadline) named.
    pub fn handle_timeout(&mut self, now: Duration) {
        let ground = &mut self.ground;
        self.stoppages.handle_timeout(now, ground);
        self.respawns.handle_timeout(now, ground);
        let stalled = self
            .progress
            .handle_timeout(now, ground, &self.respawns, &self.stoppages);
        if let Some(ending) = stalled {
            self.end(now, ending, SIGTERM);
        }
        let due = |at: &Option<Duration>| at.is_some_and(|at| at <= now);
        match &mut self.ground.phase {
            Phase::Running => {
                if let Some(ending) = self.notices.handle_timeout(now, &mut self.ground) {
                    self.end(now, ending, SIGTERM);
                }
            }
            Phase::Ending { kill_at, .. } if due(kill_at) => {
                *kill_at = None;
                self.ground.signal_all(SIGKILL);
            }
            Phase::Ending {
                kill_at: None,
                despair_at,
                ..
            } if due(despair_at) => {
                *despair_at = None;
                // If no rank is left the agents wait for somebody to take the output, and rightly.
                let hosts = &self.ground.hosts;
                if !self.ground.running.is_empty() || hosts.iter().any(|host| !host.is_ready && !host.is_over)
                {
                    self.despair();
                }
            }
            _ => {}
        }
    }

    /// The time at which to call [`handle_timeout`](Self::handle_timeout).
    pub fn deadline(&self) -> Option<Duration> {
        let next = match &self.ground.phase {
            Phase::Running => self.notices.deadline(),
            Phase::Ending {
                kill_at, despair_at, ..
            } => kill_at.or(*despair_at),
            Phase::Over => return None,
        };
        self.stoppages
            .deadline()
            .into_iter()
            .chain(next)
            .chain(self.respawns.deadline(&self.ground))
            .chain(self.progress.deadline(&self.ground, &self.respawns))
            .min()
    }

    /// The next thing that has to be done for this machine.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.ground.actions.pop_front()
    }

    /// Returns true if nothing of the job is left.
    pub fn is_over(&self) -> bool {
        self.ground.phase == Phase::Over
    }

    /// Nothing more is waited for, neither agents nor output that they have: the verdict is about what is known.
    pub fn despair(&mut self) {
        if self.ground.phase != Phase::Over {
            self.ground.actions.push_back(Action::AbandonAgents);
            self.finish();
        }
    }

    fn end(&mut self, now: Duration, ending: Ending, signal: i32) {
        if !self.ground.is_running() {
            return;
        }
        let (ending, grace_end) = self.notices.take(now, ending);
        let kill_at = (signal != SIGKILL).then_some(grace_end);
        self.ground.phase = Phase::Ending {
            ending,
            kill_at,
            despair_at: Some(kill_at.unwrap_or(now) + self.ground.detect()),
        };
        self.ground.signal_all(signal);
    }

    fn finish_if_all_are_over(&mut self) {
        self.served.release_if_all_are_closed(&mut self.ground);
        if self.ground.hosts.iter().all(|host| host.is_over) {
            self.finish();
        }
    }

    fn finish(&mut self) {
        let ending = match std::mem::replace(&mut self.ground.phase, Phase::Over) {
            Phase::Ending { ending, .. } => ending,
            Phase::Over => return,
            Phase::Running => self.losses.ending(self.ground.tree.is_single().not()),
        };
        let verdict = Verdict {
            ending,
            failures: std::mem::take(&mut self.losses.failures),
            recovered: self.losses.is_recovered(),
            respawned: std::mem::take(&mut self.respawns.failures),
            injected: self.respawns.injected,
            saved: self.notices.is_saved(),
            ..Verdict::new(self.ground.members.size())
        };
        self.ground.actions.push_back(Action::Finished(verdict));
    }
}

#[cfg(test)]
mod tests;
