//! Ranks that are gone: what others hear of them and in which order, and until when the memory that they left
//! is served.

use std::collections::btree_map::Entry;

use ropewalk_membership::{Cause, Departure};
use ropewalk_names::{Held, HoldId, Incarnation, Rank, RegionHandle};

use super::{Action, HostAgent, ToRank};
use crate::{protocol::Report, verdict::MemoryShortage};

/// A rank that is gone, of whose memory so many pieces are still to be exposed.
#[derive(Debug)]
pub(super) struct Departing {
    departure: Departure,
    exposures: usize,
    /// Tells the launcher of the departure.
    report: Report,
}

/// The facts that decide if the agent may leave its host.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    /// The processes that the ranks left behind are gone.
    is_swept: bool,
    /// Ranks of other hosts may need the memory that is served here.
    serves_others: bool,
    /// They need it no more, says the launcher.
    is_released: bool,
    is_finished: bool,
}

impl HostAgent {
    /// A rank's process is gone, and all that it had sent was handled; `shortage` is known if the kernel ended it.
    pub fn handle_exit(&mut self, rank: Rank, cause: Cause, shortage: Option<MemoryShortage>, at_ns: u64) {
        let process = self.groups.process(rank);
        let unfinished = self.pmi.is_unfinished(process);
        let stage = self
            .lives
            .stages
            .remove(&rank)
            .or_else(|| self.pmi.stage(process));
        let stage = stage.filter(|_| unfinished || !cause.is_success());
        self.pmi
            .handle_departure(process, unfinished || !cause.is_success());
        self.pmix.handle_life(rank, None);
        if unfinished || !cause.is_success() {
            self.pmix.handle_departure(rank);
        }
        self.forward_pmi();
        self.lives.running.remove(&rank);
        // Before the departure: what the launcher says of that depends on it.
        self.tell_whether_ranks_may_hang();
        self.suspension.forget(rank);
        if unfinished || !cause.is_success() {
            self.await_respawn(rank);
        }
        let attached = self.audience.leave(rank);
        let incarnation = self.members.incarnation(rank).unwrap_or_default();
        let Some(departure) = self.members.handle_departure(rank, incarnation, cause) else {
            return;
        };
        self.fence(departure);
        let report = Report::Departed {
            departure,
            unfinished,
            attached,
            shortage,
            stage,
            at_ns,
        };
        let before = self.actions.len();
        let left = self.holdings.of(rank);
        self.actions.extend(left.map(|held| Action::Expose(rank, held)));
        let exposures = self.actions.len() - before;
        let departing = Departing {
            departure,
            exposures,
            report,
        };
        self.departing.insert(rank, departing);
        self.depart_after_exposures(rank);
    }

    /// A rank failed: the launcher says if it gets another process, and this host waits for that.
    fn await_respawn(&mut self, rank: Rank) {
        if self.start.respawns && !self.lives.is_ending && rank.0 < self.start.size {
            self.lives.waiting.insert(rank);
        }
    }

    /// A rank that failed gets another process.
    pub fn handle_respawn(&mut self, rank: Rank, incarnation: Incarnation) {
        if !self.lives.waiting.remove(&rank) || !self.members.handle_return(rank, incarnation) {
            return;
        }
        // The memory of the one before is served by now; the new one may use its numbers.
        self.holdings.disown(rank);
        self.open_pmi(rank);
        self.lives.to_spawn.push_back(rank);
        self.forward_pmi();
    }

    /// Memory of a rank that is gone is served under this handle.
    pub fn handle_exposed(&mut self, rank: Rank, held: Held, handle: RegionHandle) {
        let Some(departing) = self.departing.get_mut(&rank) else {
            return;
        };
        departing.exposures -= 1;
        let incarnation = departing.departure.incarnation;
        self.holdings.note_served(rank, handle.clone());
        if !self.start.is_alone {
            self.leaving.serves_others = true;
            self.report(Report::Inherited {
                rank,
                incarnation,
                held: held.clone(),
                handle: handle.clone(),
            });
        }
        self.audience.announce(
            &mut self.actions,
            ToRank::Inherited {
                rank,
                incarnation,
                held,
                handle,
            },
        );
        self.depart_after_exposures(rank);
    }

    /// Memory of a rank that is gone does not count.
    pub fn handle_not_exposed(&mut self, rank: Rank, id: HoldId) {
        if let Some(departing) = self.departing.get_mut(&rank) {
            departing.exposures -= 1;
            self.holdings.release(rank, id);
            self.depart_after_exposures(rank);
        }
    }

    /// Who hears of a departure, here or on another host, must know already where the data of that rank is.
    fn depart_after_exposures(&mut self, rank: Rank) {
        if let Entry::Occupied(departing) = self.departing.entry(rank)
            && departing.get().exposures == 0
        {
            let Departing {
                departure, report, ..
            } = departing.remove();
            self.report(report);
            // Those that the job began with work together; what one of them spawned is its own affair.
            if rank.0 < self.start.size {
                self.audience
                    .announce(&mut self.actions, ToRank::Departed(departure));
            }
            self.tell_if_group_is_over(self.groups.first_beside(rank));
            self.sweep_if_all_are_gone();
        }
    }

    pub(super) fn sweep_if_all_are_gone(&mut self) {
        if self.departing.is_empty() && self.lives.are_over() && !self.lives.swept {
            self.lives.swept = true;
            self.report(Report::Closed);
            self.actions.push_back(Action::Sweep);
        }
    }

    /// All processes that the ranks left behind are gone, and all their output was sent.
    pub fn handle_swept(&mut self) {
        self.leaving.is_swept = true;
        self.finish_if_not_needed();
    }

    /// No host has ranks any more that may need the memory that is served here.
    pub fn handle_released(&mut self) {
        self.leaving.is_released = true;
        self.finish_if_not_needed();
    }

    /// Ends the work of this host, unless others need the memory that its ranks left; in a job that is being
    /// ended nobody does.
    pub(super) fn finish_if_not_needed(&mut self) {
        let leaving = &mut self.leaving;
        let is_needed = leaving.serves_others && !leaving.is_released && !self.lives.is_ending;
        if leaving.is_swept && !is_needed && !std::mem::replace(&mut leaving.is_finished, true) {
            self.report(Report::Finished);
        }
    }
}
