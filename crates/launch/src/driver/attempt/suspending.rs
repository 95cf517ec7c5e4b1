//! An attempt that is suspended by its user, as by ^Z, with the process that runs it.

use std::{
    future::Future,
    io,
    os::fd::OwnedFd,
    pin::Pin,
    time::{Duration, Instant},
};

use tokio::time::sleep_until;

use super::AttemptRun;
use crate::{
    driver::{
        branch::Branch,
        interrupts::{Signalled, Signals, next_signal},
        suspension::{self, Suspendable},
        watched::{Watched, is_readable},
    },
    protocol::{Down, Order, SuspensionRound},
};

/// What is looked at while a suspension goes on.
pub(super) struct Suspending<'a> {
    pub(super) round: SuspensionRound,
    pub(super) suspendable: &'a Suspendable,
    pub(super) branch: &'a mut Branch,
    /// Readable when the branch has something to do.
    pub(super) descriptor: &'a Watched<OwnedFd>,
    pub(super) signals: &'a mut Option<Signals>,
}

/// What came of a suspension.
pub(super) struct Suspended {
    /// For how long the process was stopped, which counts for nobody.
    pub(super) stopped: Duration,
    /// What the suspension was called off for, and is to be acted on.
    pub(super) signal: Option<Signalled>,
}

impl AttemptRun {
    /// Tells the agents that this process is about to be stopped, and stops it until somebody lets it go on. Ranks of a job that
    /// no signal is for, as that beside another job which copies its checkpoints, work on. Boxed, because few jobs need it.
    pub(super) fn suspend<'a>(
        &'a mut self,
        mut suspending: Suspending<'a>,
    ) -> Pin<Box<dyn Future<Output = io::Result<Suspended>> + 'a>> {
        Box::pin(async move {
            let before = suspension::stopped();
            let signal = self.await_stopped(&mut suspending).await?;
            let stopped = suspension::stopped().saturating_sub(before);
            let Suspending { branch, signals, .. } = suspending;
            if let Some(signals) = signals {
                signals.forget_resumed().await;
            }
            self.started += stopped;
            branch.handle_resumed(stopped);
            branch.send(Down::Order(Order::Resume));
            self.supervisor.handle_resumed(self.now(), stopped);
            Ok(Suspended { stopped, signal })
        })
    }

    /// Returns when this process was stopped and goes on, or is not to be stopped any more, with the signal that ended that.
    async fn await_stopped(&self, suspending: &mut Suspending<'_>) -> io::Result<Option<Signalled>> {
        let Suspending {
            round,
            suspendable,
            branch,
            descriptor,
            signals,
        } = suspending;
        let stops_ranks = signals.is_some();
        let round = *round;
        branch.send(Down::Order(Order::Suspend { round, stops_ranks }));
        branch.await_suspended(round, self.supervisor.hosts_left());
        let until = Instant::now() + suspension::patience(&self.plan);
        let mut is_ready = false;
        let signal = loop {
            branch.progress();
            branch.flush();
            let now = Instant::now();
            if !is_ready && (!branch.is_unsuspended() || until <= now) {
                is_ready = true;
                branch.end_awaiting_suspended();
                suspendable.set_ready(round);
            }
            // What came for this job waits until the process goes on.
            let due = branch.next_due().into_iter().chain((!is_ready).then_some(until));
            let due = due.min().map(|due| due.max(now + STEP));
            let timer = async {
                match due {
                    Some(due) => sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // The process is not to be stopped by what is taken back.
                biased;
                signal = next_signal(signals) => match signal {
                    Signalled::End(_) => break Some(signal),
                    Signalled::Resume => break None,
                    Signalled::Forward(signal) => branch.send(Down::Order(Order::Forward { signal })),
                    // It is what happens.
                    Signalled::Suspend => {}
                },
                () = suspendable.over(round) => break None,
                ready = descriptor.readable() => {
                    let mut ready = ready?;
                    if !is_readable(descriptor.get_ref()) {
                        ready.clear_ready();
                    }
                }
                () = timer => {}
            }
        };
        // One that is over stays as it is.
        suspension::call_off(round);
        if !is_ready {
            branch.end_awaiting_suspended();
        }
        Ok(signal)
    }
}

/// How long is waited at least, whatever is due.
const STEP: Duration = Duration::from_millis(1);
