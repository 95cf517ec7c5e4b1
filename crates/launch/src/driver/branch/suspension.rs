//! A launcher that its user suspends, as with ^Z, and that is not to be taken for dead meanwhile.

use std::time::{Duration, Instant};

use ropewalk_fabric::{Endpoint, PeerId, SubmitError};
use ropewalk_group::HostId;

use super::{Branch, BranchEvent, SIGKILL, links::Above, mending::Mending};
use crate::{
    protocol::{Report, SuspensionRound, Up},
    tree::NodeId,
};

impl Branch {
    /// At the launcher, before it is stopped: it is wanted to know when all these hosts have heard of that, also those that are
    /// expected to connect, or to do so again. What is only on its way may be lost with a link that is gone without a word, and
    /// nobody says it again while the launcher is stopped.
    pub(in crate::driver) fn await_suspended(
        &mut self,
        round: SuspensionRound,
        hosts: impl Iterator<Item = HostId>,
    ) {
        self.unsuspended = Some((round, hosts.collect()));
    }

    /// At the launcher: that is wanted no more. Waits for a moment until what was to be sent is handed to the system.
    pub(in crate::driver) fn end_awaiting_suspended(&mut self) {
        self.unsuspended = None;
        self.endpoint.flush(Self::HANDING_OVER);
    }

    const HANDING_OVER: Duration = Duration::from_millis(100);

    /// At the launcher: a host that is at its end need not hear anything.
    pub(super) fn note_suspended(&mut self, up: &Up) {
        let Some((awaited, hosts)) = &mut self.unsuspended else {
            return;
        };
        if match up.report {
            Report::Suspended { round } => round == *awaited,
            Report::Finished | Report::Lost { .. } => true,
            _ => false,
        } {
            hosts.remove(&up.host);
        }
    }

    /// At the launcher: whether hosts do not know yet that it is about to be stopped.
    pub(in crate::driver) fn is_unsuspended(&self) -> bool {
        let unsuspended = self.unsuspended.as_ref();
        unsuspended.is_some_and(|(_, hosts)| !hosts.is_empty())
    }

    /// At the launcher: it was stopped for so long, in which it could hear nobody.
    pub(in crate::driver) fn handle_resumed(&mut self, stopped: Duration) {
        self.begun += stopped;
        for child in self.children.values_mut() {
            if let Some((until, _)) = &mut child.wait_until {
                *until += stopped;
            }
        }
    }

    /// At an agent: the launcher says nothing from now on, or does again. That it is killed is seen all the same, by the end of
    /// its connection and of the life line.
    pub(in crate::driver) fn set_launcher_suspended(&mut self, is_suspended: bool) {
        let detect = self.position.plan.detect;
        self.above
            .set_launcher_suspended(is_suspended, &mut self.endpoint, detect);
    }

    /// A launcher that is suspended neither answers nor adopts.
    pub(super) fn excuse_launcher(&mut self, now: Instant) {
        if !self.above.is_suspended() {
            return;
        }
        if let Some(mending) = &mut self.above.mending {
            mending.excuse_silence(now, self.position.plan.detect);
        }
        // Once there is a connection it goes on, and has the time that it always has.
        if !self.is_connected() && self.relay.excuse_launcher() {
            self.events.push_back(BranchEvent::SeeksLauncher);
        }
    }

    /// The node above is lost; what was to be sent there is said to the launcher, or not at all.
    pub(super) fn seek_launcher(&mut self) {
        self.events.push_back(BranchEvent::SeeksLauncher);
        let is_launcher_suspended = self.above.is_launcher_suspended;
        self.above = Above::new(NodeId::ROOT, self.position.launcher.clone());
        self.above.is_launcher_suspended = is_launcher_suspended;
        if is_launcher_suspended {
            let (now, detect) = (Instant::now(), self.position.plan.detect);
            let why = "the launcher, which was suspended, is gone".to_owned();
            // It is tried until somebody answers, or nobody could for long.
            let progress = self.above.link.progress();
            self.above.mending = Some(Mending::begin(now, detect, progress, why));
        } else if let Err(error) = self.above.connect(&mut self.endpoint) {
            self.above.is_lost = true;
            self.above.why_lost = error.to_string();
            self.relay.handle_parent_lost(SIGKILL);
        }
    }
}

impl Above {
    fn set_launcher_suspended(&mut self, is_suspended: bool, endpoint: &mut Endpoint, detect: Duration) {
        self.is_launcher_suspended = is_suspended;
        if self.node != NodeId::ROOT {
            return;
        }
        if let Some(mending) = &mut self.mending {
            mending.excuse_silence(Instant::now(), detect);
        }
        match self.peer {
            Some(peer) if is_suspended => endpoint.unwatch(peer),
            // One that cannot be watched any more is gone, which is told by itself.
            Some(peer) => drop(endpoint.watch(peer)),
            None => {}
        }
    }

    /// Whether its user has stopped the node above: that is the launcher, if it is any.
    pub(super) fn is_suspended(&self) -> bool {
        self.node == NodeId::ROOT && self.is_launcher_suspended
    }

    /// Connects, and waits for a sign of life unless there can be none. A launcher that is suspended answers no attempt, and
    /// each that is given up has a place in its queue all the same: of those there are not enough to try again and again.
    pub(super) fn reach(&self, peer: PeerId, endpoint: &mut Endpoint) -> Result<(), SubmitError> {
        match self.is_suspended() {
            true => endpoint.connect_patiently(peer),
            false => endpoint.watch(peer),
        }
    }
}
