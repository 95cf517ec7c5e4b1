//! An agent's place in the job: the tree of nodes, the keeper, and those who may end it.

use std::{
    io::{self, Write},
    time::{Duration, Instant},
};

use ropewalk_launch_core::protocol::Report;

use crate::driver::{
    branch::{Branch, BranchEvent},
    keeper::{FAILED, KeeperLine},
};

const SIGTERM: i32 = 15;
/// How long after the first the same signal is the same: batch systems send it to several processes of a step.
const SAME_SIGNAL: Duration = Duration::from_secs(1);
/// How long reports may wait for company while ranks are being started.
const FLUSH_INTERVAL: Duration = Duration::from_millis(5);

/// The agent's links to the nodes above and below, and to its keeper.
pub(super) struct Uplink {
    pub(super) branch: Branch,
    keeper: KeeperLine,
    /// How long it takes to notice a loss.
    detect: Duration,
    /// The node above was lost.
    is_orphaned: bool,
    /// When reports were sent last.
    flushed: Instant,
    /// When the agent was first told to end by a signal, and handed that on.
    terminated: Option<Instant>,
    /// It was told so when nobody was there to hear of it.
    is_terminated: bool,
}

impl Uplink {
    pub(super) fn new(branch: Branch, keeper: KeeperLine, detect: Duration) -> Self {
        Self {
            branch,
            keeper,
            detect,
            is_orphaned: false,
            flushed: Instant::now(),
            terminated: None,
            is_terminated: false,
        }
    }

    /// Tells the node above something about this host.
    pub(super) fn report(&mut self, report: Report) {
        self.branch.report(report);
    }

    /// The next event of the branch. The keeper hears first of one that concerns the node above.
    pub(super) fn poll_event(&mut self) -> Option<BranchEvent> {
        let event = self.branch.poll_event()?;
        match &event {
            BranchEvent::Adopted => self.keeper.tell_adopted(),
            BranchEvent::SeeksLauncher => self.keeper.tell_orphaned(self.detect),
            BranchEvent::ParentLost(why) => {
                self.is_orphaned = true;
                // Whoever reads it is not there any more, or never was reached.
                let _ = writeln!(io::stderr(), "cannot reach the node above: {why}");
            }
            _ => {}
        }
        Some(event)
    }

    /// Sends reports, unless they may wait for those about ranks that are being started. Returns true if it did.
    pub(super) fn flush_if_due(&mut self, is_spawning: bool, now: Instant) -> bool {
        let may_wait = is_spawning && self.branch.is_connected();
        if may_wait && now < self.flushed + FLUSH_INTERVAL {
            return false;
        }
        self.branch.flush();
        self.flushed = now;
        true
    }

    /// Handles a signal for the job that somebody sent to this process: the launcher decides what comes of
    /// it. An agent without a launcher, or one that ends its ranks anyway, ends.
    pub(super) fn handle_signal(&mut self, signal: i32, is_ending: bool) {
        if signal == SIGTERM {
            let now = Instant::now();
            let first = *self.terminated.get_or_insert(now);
            if !self.branch.is_connected() || (is_ending && now > first + SAME_SIGNAL) {
                self.is_terminated = true;
                return;
            }
        }
        self.report(Report::Signalled { signal });
    }

    /// Returns true if the agent is to end by a signal.
    pub(super) fn is_terminated(&self) -> bool {
        self.is_terminated
    }

    /// Takes leave. Returns the exit code of the agent.
    pub(super) fn finish(&mut self) -> u8 {
        self.branch.finish();
        self.keeper.wake();
        match self.is_orphaned {
            true => FAILED,
            false => 0,
        }
    }
}
