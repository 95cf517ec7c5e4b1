//! The connections below the links to the neighbours: who is at the other end, and what if one breaks.
//!
//! A connection that breaks although both ends live, by a reset or a byte that came wrong, is made again by
//! the node below, which has the detection time for that. Nobody but the two hears of it, for messages that
//! were under way are [sent again](Link).

use std::{io, time::Instant};

use ropewalk_fabric::{Address, Body, Endpoint, PeerDeath, PeerId, SubmitError};
use ropewalk_launch_core::{
    link::Link,
    protocol::{Down, TAG_DOWN, TAG_UP, Up},
    tree::NodeId,
};
use ropewalk_names::HostId;
use serde::Serialize;

use super::{
    Branch, BranchEvent, SIGKILL, Wait,
    mending::{Mending, Sight},
};
use crate::driver::launch_error::with_causes;

/// The link to the node above.
pub(super) struct Above {
    /// Who that has to be.
    pub(super) node: NodeId,
    /// Where it listens; `None` for the launcher, which has none.
    address: Option<Address>,
    pub(super) peer: Option<PeerId>,
    pub(super) link: Link<Up>,
    was_connected: bool,
    pub(super) mending: Option<Mending>,
    /// True if the user has stopped the launcher, which need not be the node above.
    is_launcher_suspended: bool,
    /// Its silence was excused when this node looked last.
    was_excused: bool,
    /// Nothing is said to it any more.
    pub(super) is_lost: bool,
    pub(super) why_lost: String,
}

impl Above {
    pub(super) fn new(node: NodeId, address: Option<Address>) -> Self {
        Self {
            node,
            is_lost: address.is_none(),
            address,
            peer: None,
            link: Link::default(),
            was_connected: false,
            mending: None,
            is_launcher_suspended: false,
            was_excused: false,
            why_lost: String::new(),
        }
    }

    /// Begins to connect.
    pub(super) fn connect(&mut self, endpoint: &mut Endpoint) -> Result<(), SubmitError> {
        if let Some(address) = &self.address {
            let peer = endpoint.peer(address)?;
            self.reach(peer, endpoint)?;
            self.peer = Some(peer);
        }
        Ok(())
    }

    /// Connects, and waits for a sign of life unless none is needed. A launcher that is suspended answers no
    /// attempt, and each attempt that is given up keeps a place in its queue: there are not enough places to
    /// try again and again. A node on this host may be stopped without a word, as by `kill -STOP`; the system
    /// tells when it is gone.
    fn reach(&self, peer: PeerId, endpoint: &mut Endpoint) -> Result<(), SubmitError> {
        match self.is_suspended() {
            true => endpoint.connect_patiently(peer),
            false if self.is_on_this_host() => endpoint.connect(peer),
            false => endpoint.watch(peer),
        }
    }

    /// True if the node above has a UNIX socket, as a launcher has all of whose hosts are its own.
    pub(super) fn is_on_this_host(&self) -> bool {
        let address = self.address.as_ref();
        address.is_some_and(|address| address.provider() == "unix")
    }

    /// True if the node above is a launcher that its user has suspended.
    fn is_suspended(&self) -> bool {
        self.node == NodeId::ROOT && self.is_launcher_suspended
    }

    /// Returns true if the node above has proven itself, and this one to it.
    pub(super) fn is_connected(&self, endpoint: &Endpoint) -> bool {
        let known = self.peer.and_then(|peer| endpoint.peer_info(peer));
        known.is_some_and(|known| known.identity == self.node.identity())
    }

    /// When the connection is to be made again, or given up.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let mending = self.mending.as_ref()?;
        Some(match self.peer {
            Some(_) => mending.until,
            None => mending.next.min(mending.until),
        })
    }
}

impl Branch {
    /// Handles a message of a neighbour, and drops any other message, such as one from a rank.
    pub(super) fn handle_message(&mut self, from: PeerId, tag: u64, body: &[u8]) {
        if tag == TAG_DOWN && Some(from) == self.above.peer {
            if !self.is_connected() {
                return self.lose_parent("another member of the job answered in its place".to_owned());
            }
            match self.above.link.handle_body::<Down>(body) {
                Ok(downs) => {
                    if let Some(mending) = &mut self.above.mending {
                        mending.answered.get_or_insert_with(Instant::now);
                    }
                    for down in downs {
                        self.relay.handle_down(down);
                        self.perform_actions();
                    }
                }
                Err(error) => self.lose_parent(format!("it {error}")),
            }
        } else if tag == TAG_UP
            && let Some(node) = self.child(from)
            && let Some(child) = self.children.get_mut(&node)
        {
            match child.link.handle_body::<Up>(body) {
                Ok(ups) => {
                    for up in ups {
                        self.relay.handle_up(node, up);
                        self.perform_actions();
                    }
                }
                Err(error) => {
                    self.relay.handle_child_lost(node, error.to_string());
                    self.perform_actions();
                }
            }
        }
    }

    /// The child that a peer is. It is one from its first message on.
    fn child(&mut self, peer: PeerId) -> Option<NodeId> {
        if let Some(&node) = self.peers.get(&peer) {
            return Some(node);
        }
        let identity = self.endpoint.peer_info(peer)?.identity;
        let node = NodeId::of(HostId(identity.rank.0));
        let is_awaited = self.relay.is_awaited(node);
        let is_back = self.children.get(&node).is_some_and(|child| child.may_come_back);
        if identity != node.identity() || !(is_awaited || is_back || self.relay.may_adopt(node)) {
            return None;
        }
        self.peers.insert(peer, node);
        let child = self.children.entry(node).or_default();
        child.peer = Some(peer);
        (child.has_connected, child.may_come_back) = (true, false);
        if let Some(starter) = &mut child.starter {
            starter.handle_connected();
        }
        child
            .wait_until
            .take_if(|(_, wait)| is_back && matches!(wait, Wait::Explain(_)));
        // If that is refused its death is told by the system only.
        let _ = self.endpoint.watch(peer);
        if is_awaited {
            self.relay.handle_connected(node);
            self.perform_actions();
        }
        Some(node)
    }

    pub(super) fn handle_peer_died(&mut self, peer: PeerId, cause: &PeerDeath) {
        if Some(peer) == self.above.peer {
            return self.handle_above_died(cause);
        }
        let Some(node) = self.peers.remove(&peer) else {
            return;
        };
        let Some(child) = self.children.get_mut(&node) else {
            return;
        };
        child.peer = None;
        child.link.handle_cut();
        let detect = self.position.plan.detect;
        let how = match cause {
            PeerDeath::Silent => format!("gave no sign of life for {} s", detect.as_secs_f64()),
            cause => format!("lost its connection: {}", with_causes(cause)),
        };
        child.may_come_back = is_break(cause) && !child.is_given_up;
        let wait = match child.starter {
            _ if child.may_come_back => Some(detect.max(Self::EXPLANATION)),
            Some(_) if !matches!(cause, PeerDeath::Silent) => Some(Self::EXPLANATION),
            _ => None,
        };
        match wait {
            Some(wait) if child.wait_until.is_none() => {
                child.wait_until = Some((Instant::now() + wait, Wait::Explain(how)));
            }
            Some(_) if child.may_come_back => {}
            _ => {
                self.relay.handle_child_lost(node, how);
                self.perform_actions();
            }
        }
    }

    fn handle_above_died(&mut self, cause: &PeerDeath) {
        let above = &mut self.above;
        above.peer = None;
        above.link.handle_cut();
        let (now, why) = (Instant::now(), with_causes(cause));
        let detect = self.position.plan.detect;
        let progress = above.link.progress();
        let was_idle = above.link.is_idle();
        let is_same = |mending: &Mending| {
            let stood = mending.stands_at().is_some_and(|then| then <= now);
            mending.progress == progress && !(was_idle && stood)
        };
        let sight = match &above.mending {
            Some(mending) if mending.answered.is_some() => Sight::Something,
            _ => Sight::of(cause),
        };
        above.mending = match above.mending.take() {
            Some(mut mending) if is_break(cause) && is_same(&mending) || is_failure(cause) => {
                mending.note_sight(now, sight);
                mending.handle_broken(now, detect, was_idle, why);
                Some(mending)
            }
            _ if above.was_connected && is_break(cause) => Some(Mending::begin(now, detect, progress, why)),
            // It is gone, and the end of the connection said why.
            Some(mending) if is_refused(cause) => return self.lose_parent(mending.why),
            _ => return self.lose_parent(why),
        };
    }

    /// Returns true if all agents right below have what was said to them. Asks those that have not said so.
    pub(in crate::driver) fn is_heard(&mut self) -> bool {
        let mut is_heard = !self.relay.misses_nodes();
        for (&node, child) in &mut self.children {
            let is_idle = child.link.is_idle();
            is_heard &= !self.relay.is_awaited(node) && (is_idle || !self.relay.is_listening(node));
            if child.link.is_sent() && !is_idle {
                child.link.greet();
            }
        }
        is_heard
    }

    /// Makes a lost connection to the node above again, or gives that up.
    pub(super) fn mend(&mut self) {
        let is_connected = self.is_connected();
        self.above.was_connected |= is_connected;
        if self.above.mending.is_some() || self.above.is_suspended() {
            self.go_on_mending();
        }
    }

    fn go_on_mending(&mut self) {
        let now = Instant::now();
        let is_reached = self.above.peer.is_some_and(|peer| self.endpoint.is_reached(peer));
        if let Some(mending) = self.above.mending.as_mut().filter(|_| is_reached) {
            mending.note_sight(now, Sight::Something);
        }
        self.excuse_launcher(now);
        let above = &mut self.above;
        let Some(mut mending) = above.mending.take() else {
            return;
        };
        if mending.until <= now {
            match mending.stands_at() {
                Some(then) if then <= now => {}
                // It was made again in time, and may be as good as any.
                Some(then) => {
                    mending.until = then;
                    above.mending = Some(mending);
                }
                None => self.lose_parent(mending.why),
            }
            return;
        }
        if above.peer.is_none() && mending.next <= now {
            match above.connect(&mut self.endpoint) {
                Ok(()) => above.link.greet(),
                Err(SubmitError::Connect { source, .. })
                    if source.kind() == io::ErrorKind::ConnectionRefused =>
                {
                    return self.lose_parent(mending.why);
                }
                Err(error) => {
                    if matches!(error, SubmitError::Connect { .. }) {
                        mending.note_sight(now, Sight::Nothing);
                    }
                    let detect = self.position.plan.detect;
                    mending.handle_failed(now, detect, above.is_suspended(), error.to_string());
                }
            }
        }
        above.mending = Some(mending);
    }

    /// At an agent: the launcher says nothing from now on, or does again. The agent still sees if the
    /// launcher is killed, by the end of its connection and of the life line.
    pub(in crate::driver) fn set_launcher_suspended(&mut self, is_suspended: bool) {
        let above = &mut self.above;
        above.is_launcher_suspended = is_suspended;
        if above.node != NodeId::ROOT {
            return;
        }
        if let Some(mending) = &mut above.mending {
            mending.excuse_silence(Instant::now(), self.position.plan.detect);
        }
        match above.peer {
            Some(peer) if is_suspended => self.endpoint.unwatch(peer),
            // One that cannot be watched any more is gone, which is told by itself.
            Some(peer) => drop(above.reach(peer, &mut self.endpoint)),
            None => {}
        }
    }

    /// A launcher that is suspended neither answers nor adopts.
    fn excuse_launcher(&mut self, now: Instant) {
        if !self.above.is_suspended() {
            return;
        }
        if let Some(mending) = &mut self.above.mending {
            mending.excuse_silence(now, self.position.plan.detect);
        }
        // Once there is a connection it goes on, and has the time that it always has: from now on, not since the last
        // look.
        let is_excused = !self.is_connected();
        let was_excused = std::mem::replace(&mut self.above.was_excused, is_excused);
        if (is_excused || was_excused) && self.relay.excuse_launcher() {
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

    fn lose_parent(&mut self, why: String) {
        self.above.peer = None;
        self.above.mending = None;
        self.above.is_lost = true;
        self.above.why_lost = why;
        self.relay.handle_parent_lost(SIGKILL);
        self.perform_actions();
    }
}

/// Returns true if a connection ended in a way that both ends may survive.
fn is_break(cause: &PeerDeath) -> bool {
    match cause {
        PeerDeath::Closed | PeerDeath::Protocol(_) => true,
        PeerDeath::Io(_) => !is_refused(cause),
        _ => false,
    }
}

/// Returns true if nobody listens there any more.
fn is_refused(cause: &PeerDeath) -> bool {
    matches!(cause, PeerDeath::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Returns true if another attempt to connect may succeed after this one failed: a byte of it may have come
/// wrong too.
fn is_failure(cause: &PeerDeath) -> bool {
    matches!(cause, PeerDeath::ConnectTimedOut | PeerDeath::Handshake(_))
}

/// Sends what there is. Returns whether something was sent. What finds no room waits for the next turn.
pub(super) fn send_bodies<T: Serialize>(
    endpoint: &mut Endpoint,
    peer: PeerId,
    tag: u64,
    link: &mut Link<T>,
) -> bool {
    let mut sent = false;
    while let Some(body) = link.poll_body() {
        // If it did not go, there is no room, or the peer is gone, which its event tells.
        if endpoint
            .send_unexpected_body(peer, tag, &Body::from(body))
            .is_err()
        {
            break;
        }
        link.handle_sent();
        sent = true;
    }
    sent
}
