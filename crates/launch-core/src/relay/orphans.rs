//! A node's part when another node is lost that had some below it.

use std::time::Duration;

use super::{Action, Child, Own, Parent, Relay, adoption::Taken, plain};
use crate::{
    protocol::{Down, OUTPUT_WINDOW, Report, Up},
    tree::NodeId,
};

impl Relay {
    /// Those that were below a lost node have this many times the detection time to ask the launcher: they may need one
    /// to see that it is lost, and it another to hear that nobody answers it, if it lives behind a cut.
    const PATIENCE: u32 = 3;

    /// Returns true if a node that is not right below may say that it lost the one above it.
    pub fn may_adopt(&self, node: NodeId) -> bool {
        let accounts = self.accounts.as_ref();
        accounts.is_some_and(|accounts| accounts.may_adopt(node)) && !self.children.contains_key(&node)
    }

    /// Returns true if nodes that were below a lost one have not asked the launcher yet.
    pub fn misses_nodes(&self) -> bool {
        let accounts = self.accounts.as_ref();
        accounts.is_some_and(|accounts| accounts.deadline().is_some())
    }

    pub(super) fn adopts(&self) -> bool {
        self.accounts.is_some() || self.kept.is_some()
    }

    /// An agent asks the launcher to be the node above it. One that was given up hears nothing, and so ends itself.
    pub(super) fn adopt(&mut self, node: NodeId, heard: u64) {
        if !self.may_adopt(node) {
            return;
        }
        self.children.insert(node, Child::Connected);
        self.send_child(node, Down::Adopted, None);
        let missed: Vec<_> = match &mut self.accounts {
            Some(accounts) => accounts.adopt(node, heard).cloned().collect(),
            None => Vec::new(),
        };
        for (number, down) in missed {
            let is_for_it = match &down {
                Down::To(to, _) => self.towards(*to) == Some(node),
                _ => true,
            };
            if is_for_it {
                self.send_child(node, down, Some(number));
            }
        }
    }

    /// Asks the launcher to be the node above, if that helps: there may be nothing more to say, and the lost node may
    /// have been the launcher. Returns whether it does.
    pub(super) fn seek_launcher(&mut self, signal: i32) -> bool {
        let (Some(kept), Some(host)) = (&mut self.kept, self.node.host()) else {
            return false;
        };
        if self.own == Own::Told && !kept.has_end() {
            self.parent = Parent::Satisfied;
            return true;
        }
        let is_below_launcher = self.tree.parent(self.node) == Some(NodeId::ROOT);
        if is_below_launcher || std::mem::replace(&mut kept.has_asked, true) {
            return false;
        }
        kept.next_number = None;
        // It is the last, and comes after the ends of those below, which are said again too.
        if kept.take_back_end() {
            self.own = Own::Finished;
        }
        // What was before that was perhaps lost, and without it nobody is finished.
        self.waiting
            .retain(|(from, up)| from.is_none() || !matches!(up.report, Report::Finished));
        for child in self.children.values_mut() {
            if matches!(child, Child::Finished) {
                *child = Child::Connected;
            }
        }
        let heard = kept.heard();
        let until = None;
        self.parent = Parent::Seeking { until, signal };
        self.actions.push_back(Action::SeekLauncher);
        let question = plain(host, Report::Orphaned { heard });
        self.actions.push_back(Action::SendParent(question));
        true
    }

    /// The launcher is suspended by its user: that it does not answer says nothing. Returns whether it is
    /// asked to be the node above.
    pub fn excuse_launcher(&mut self) -> bool {
        match &mut self.parent {
            Parent::Seeking { until, .. } => {
                *until = None;
                true
            }
            _ => false,
        }
    }

    /// The launcher is the node above from now on.
    pub(super) fn go_on(&mut self) {
        if matches!(self.parent, Parent::Seeking { .. }) {
            self.parent = Parent::Listening;
            self.actions.push_back(Action::Adopted);
            self.credit = OUTPUT_WINDOW as i64;
            self.say_again();
        }
    }

    /// Says again what may have been lost on its way, and has those below do so too.
    pub(super) fn say_again(&mut self) {
        if let Some(kept) = &self.kept
            && self.parent == Parent::Listening
        {
            for up in kept.all() {
                self.credit -= up.report.output_size() as i64;
                self.actions.push_back(Action::SendParent(up.clone()));
            }
            for child in self.children.keys().copied().collect::<Vec<_>>() {
                self.send_child(child, Down::Resend, None);
            }
            self.send_waiting();
        }
    }

    /// A node's reports have reached the launcher. If that was all, it may go.
    pub(super) fn hand_on_acknowledgement(&mut self, down: Down) {
        let Down::Acknowledged {
            node,
            control,
            output,
            is_last,
        } = down
        else {
            return;
        };
        if node == self.node {
            if let Some(kept) = &mut self.kept {
                kept.acknowledge(control, output);
            }
            return;
        }
        let Some(child) = self.towards(node) else {
            return;
        };
        self.send_child(child, down, None);
        if is_last && child == node && matches!(self.children.get(&node), Some(Child::Finished)) {
            self.send_child(node, Down::Bye, None);
            self.children.insert(node, Child::Over);
        }
    }

    /// Returns true if a report is new, and its agent is the one to say it.
    pub(super) fn takes(&mut self, up: &Up) -> bool {
        let Some(accounts) = &mut self.accounts else {
            return true;
        };
        if accounts.take(up) == Taken::Known {
            return false;
        }
        let node = NodeId::of(up.host);
        let is_of_another = up.stamp.is_some_and(|stamp| stamp.from != node);
        match up.report {
            Report::Finished | Report::Lost { .. } if is_of_another && !accounts.may_be_ended(node) => false,
            Report::Finished if is_of_another => {
                accounts.handle_ended(node);
                true
            }
            Report::Lost { .. } => {
                accounts.handle_lost(node);
                true
            }
            // The stamp was all.
            Report::Heard => false,
            _ => true,
        }
    }

    /// Gives up those that did not come after the node above them was lost.
    pub(super) fn look_for_missing(&mut self, now: Duration) {
        let Some(accounts) = &mut self.accounts else {
            return;
        };
        let patience = self.detect.saturating_mul(Self::PATIENCE);
        for node in accounts.overdue(now, patience) {
            let seconds = patience.as_secs_f64();
            let how = format!("was not heard of within {seconds} s after the agent above it was lost");
            accounts.handle_lost(node);
            if let Some(host) = node.host() {
                let up = plain(host, Report::Lost { how });
                self.actions.push_back(Action::SendParent(up));
            }
        }
    }
}
