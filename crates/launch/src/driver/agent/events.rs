//! The events of a host: ranks speak, write and end, and so does the PMIx server.

use std::time::Instant;

use ropewalk_fabric::ToAgent;
use ropewalk_launch_core::protocol::Report;
use ropewalk_membership::Cause;
use ropewalk_names::Rank;
use rustix::{
    event::epoll::EventFlags,
    time::{ClockId, clock_gettime},
};

use super::{
    Agent,
    held_memory::HeldMemory,
    pmix,
    poller::Channel,
    rank_io::{RankIo, Reading},
    rank_link::from_rank,
    silence::SilentEnd,
};
use crate::driver::{
    signals::{ChildNews, next_child},
    starter::Ended,
};

impl Agent {
    /// Takes what one of a rank's descriptors is ready for.
    pub(super) fn handle_rank_ready(&mut self, index: usize, channel: Channel, flags: EventFlags) {
        let may_read = flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR);
        match channel {
            Channel::Pmi => {
                if flags.contains(EventFlags::OUT) {
                    self.ranks.send_answers(index, &self.poller);
                }
                if may_read {
                    self.read_pmi(index);
                }
            }
            Channel::Link => {
                if flags.contains(EventFlags::OUT) {
                    self.ranks.send_link(index, &self.poller);
                }
                if may_read {
                    self.read_link(index);
                }
            }
            Channel::Stdin => {
                self.inputs.write_to(index, &self.poller, &mut self.uplink.branch);
            }
            // Another poller waits for these.
            Channel::Stderr | Channel::Stdout => {}
        }
    }

    /// Takes what a rank says to PMI. Returns whether there may be more.
    fn read_pmi(&mut self, index: usize) -> bool {
        if !self.ranks.accept_pmi(index, &self.poller) {
            return false;
        }
        match self.ranks.read_pmi(index) {
            Some((rank, Reading::Some(request))) => {
                self.activity.note();
                self.mind.handle_pmi(rank, request);
                true
            }
            Some((rank, Reading::Over)) => {
                self.ranks.ignore(index, Channel::Pmi, &self.poller);
                if self.ranks.is_foreign(index) {
                    self.mind.handle_pmi_closed(rank);
                    self.end_foreign(index);
                } else {
                    self.ends.handle_closing(rank, Instant::now());
                }
                false
            }
            Some((_, Reading::Drained)) | None => false,
        }
    }

    /// Looks for a while whether the rank that was answered last asks again, which it does soon or not at all. Returns
    /// whether it did.
    pub(super) fn look_for_request(&mut self) -> bool {
        let Some(index) = self.asking.candidate() else {
            return false;
        };
        let mut turn = self.asking.spin.begin();
        while turn.goes_on() && self.ranks.takes_requests(index) {
            match self.ranks.read_pmi(index) {
                Some((_, Reading::Drained)) => {}
                Some((rank, Reading::Some(request))) => {
                    self.activity.note();
                    self.mind.handle_pmi(rank, request);
                    self.asking.handle_found();
                    turn.handle_found();
                }
                // The poller tells of it.
                Some((_, Reading::Over)) | None => break,
            }
        }
        self.asking.spin.end(&turn);
        turn.has_found()
    }

    /// Takes one message from a rank's link. Returns whether there may be more.
    fn read_link(&mut self, index: usize) -> bool {
        let Some((rank, sockets)) = self.ranks.sockets(index) else {
            return false;
        };
        match sockets.read_link() {
            Reading::Drained => false,
            Reading::Some(Ok((message, memory))) => {
                self.activity.note();
                let size = memory.as_ref().map(|memory| memory.length() as u64);
                let held = match (&message, memory) {
                    (ToAgent::Hold(held), Some(memory)) => Some((held.id, HeldMemory::Described(memory))),
                    (ToAgent::HoldLabelled(id), Some(memory)) => Some((*id, HeldMemory::Labelled(memory))),
                    _ => None,
                };
                let keep = self.mind.handle_link(rank, from_rank(message), size);
                if let Some((id, memory)) = held.filter(|_| keep) {
                    self.ranks.held.insert((rank, id), memory);
                }
                true
            }
            Reading::Some(Err(error)) => {
                sockets.close_link();
                self.ranks.ignore(index, Channel::Link, &self.poller);
                self.mind.handle_link_broken(rank, error.to_string());
                false
            }
            Reading::Over => {
                self.ranks.ignore(index, Channel::Link, &self.poller);
                false
            }
        }
    }

    /// Takes what ranks have written.
    pub(super) fn read_outputs(&mut self) {
        if self.outputs.read(&mut self.ranks, &mut self.uplink.branch) {
            self.activity.note();
            self.ends.sweep.handle_output(Instant::now());
        }
    }

    /// A rank is gone, or has closed its end and still lives long after: those who wait for it hear of that.
    pub(super) fn handle_closed(&mut self, gone: Option<Rank>) {
        for rank in self.ends.take_closed(gone, Instant::now()) {
            self.mind.handle_pmi_closed(rank);
        }
    }

    /// Takes what became of children: ranks, and those that start agents on other hosts.
    pub(super) fn handle_children(&mut self) {
        for signal in self.ends.children.drain() {
            self.uplink.handle_signal(signal, self.mind.is_ending());
        }
        while let Some((pid, news)) = next_child() {
            let Some(&index) = self.ranks.pids.get(&pid.as_raw_nonzero().get()) else {
                match news {
                    ChildNews::Gone(cause) if self.pmix.is_helper(pid) => self.handle_helper_gone(cause),
                    ChildNews::Gone(cause) if self.uplink.branch.is_starter(pid) => {
                        self.uplink.branch.handle_reaped(pid, Ended::from(cause));
                    }
                    _ => {}
                }
                continue;
            };
            let Some(io) = &self.ranks.ios[index] else {
                continue;
            };
            let rank = io.rank;
            match news {
                ChildNews::Continued => self.mind.handle_stopped(rank, None),
                ChildNews::Stopped(signal) => self.mind.handle_stopped(rank, Some(signal)),
                ChildNews::Gone(cause) => self.handle_rank_gone(index, cause),
            }
        }
    }

    /// The process of a rank is gone.
    fn handle_rank_gone(&mut self, index: usize, cause: Cause) {
        let Some(RankIo {
            rank,
            pid,
            was_killed,
            ..
        }) = self.ranks.ios[index]
        else {
            return;
        };
        self.ends.handle_gone(pid, cause);
        // What a process sent before it died counts.
        while self.read_link(index) {}
        while self.read_pmi(index) {}
        self.read_helper();
        self.advisors
            .close(rank, &self.ranks, &self.poller, &mut self.uplink.branch);
        self.ranks.pids.remove(&pid.as_raw_nonzero().get());
        self.handle_closed(Some(rank));
        let shortage = match was_killed || self.mind.is_ending() {
            true => None,
            false => self.ends.shortage(cause),
        };
        self.notice_silent_end(rank, cause);
        self.mind.handle_exit(rank, cause, shortage, monotonic_ns());
        self.inputs.close(index);
        self.inputs.report_taken(&mut self.uplink.branch);
        // Its memory is looked for under its number before it is told who gets it.
        self.settle();
        if let Some(io) = &mut self.ranks.ios[index] {
            io.sockets = None;
        }
        self.ranks.forget_if_over(index);
    }

    /// Takes all that the PMIx server of the host says.
    pub(super) fn read_helper(&mut self) {
        while self.pmix.receive(&self.poller) {
            self.activity.note();
            loop {
                match self.pmix.next_message(&mut self.kit.groups) {
                    Ok(Some(message)) => {
                        self.mind.handle_helper(message);
                        self.settle();
                    }
                    Ok(None) => break,
                    Err(_) => return,
                }
            }
        }
    }

    /// The PMIx server of the host is gone: ranks that it served cannot go on.
    fn handle_helper_gone(&mut self, cause: Cause) {
        self.read_helper();
        self.pmix.forget();
        let reason = pmix::loss(cause);
        self.kit.groups.refuse_pmix(&reason);
        if let Some(rank) = self.mind.handle_helper_lost() {
            self.uplink.report(Report::Aborted {
                rank,
                exit_code: pmix::LOST,
                message: reason,
            });
        }
    }

    /// A rank that ended well, needs others, and never asked for them was probably a job of its own. If it was seen to
    /// be one, the job has failed, whatever its exit code says.
    fn notice_silent_end(&mut self, rank: Rank, cause: Cause) {
        if cause != Cause::Exited(0) || self.mind.has_spoken(rank) || self.mind.is_ending() {
            return;
        }
        match self.kit.groups.silent_end(rank) {
            Some(SilentEnd::OfSingleton) => self.uplink.report(Report::Aborted {
                rank,
                exit_code: SilentEnd::EXIT_CODE,
                message: SilentEnd::VERDICT.to_owned(),
            }),
            Some(SilentEnd::Odd(text)) => self.uplink.report(Report::Notice { rank, text }),
            None => {}
        }
    }

    /// Of a process that is not our child the end of its connection is all that is seen.
    fn end_foreign(&mut self, index: usize) {
        let Some(rank) = self.ranks.sockets(index).map(|(rank, _)| rank) else {
            return;
        };
        self.mind
            .handle_exit(rank, Cause::Exited(0), None, monotonic_ns());
        self.settle();
        self.ranks.ios[index] = None;
    }
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
