//! The ends, stops and continuations of the processes that an agent started.

use ropewalk_launch_core::protocol::Report;
use ropewalk_membership::Cause;
use ropewalk_names::Rank;
use rustix::time::{ClockId, clock_gettime};

use super::{Agent, pmix};
use crate::driver::{
    signals::{ChildNews, next_child},
    starter::Ended,
};

const SIGKILL: i32 = 9;

impl Agent {
    /// Takes what became of children: ranks, and those that start agents on other hosts.
    pub(super) fn handle_children(&mut self) {
        for signal in self.ends.children.drain() {
            self.handle_signal_for_job(signal);
        }
        while let Some((pid, news)) = next_child() {
            let Some(&index) = self.ranks.pids.get(&pid.as_raw_nonzero().get()) else {
                match news {
                    ChildNews::Gone(cause) if self.pmix.is_helper(pid) => self.handle_helper_gone(cause),
                    ChildNews::Gone(cause) if self.branch.is_starter(pid) => {
                        self.branch.handle_reaped(pid, Ended::from(cause));
                    }
                    _ => {}
                }
                continue;
            };
            let Some(io) = &self.ranks.ios[index] else {
                continue;
            };
            let (rank, was_killed) = (io.rank, io.was_killed);
            match news {
                ChildNews::Continued => self.mind.handle_stopped(rank, None),
                ChildNews::Stopped(signal) => self.mind.handle_stopped(rank, Some(signal)),
                ChildNews::Gone(cause) => {
                    if cause != Cause::Exited(0) {
                        self.ends.killed.add(pid.as_raw_nonzero().get());
                    }
                    // What a process sent before it died counts.
                    while self.read_link(index) {}
                    while self.read_pmi(index) {}
                    self.read_helper();
                    self.close_advised(rank);
                    self.ranks.pids.remove(&pid.as_raw_nonzero().get());
                    self.handle_closed(Some(rank));
                    let shortage = match cause {
                        Cause::Signalled(SIGKILL) if !was_killed && !self.mind.is_ending() => {
                            self.ends.memory_kills.claim()
                        }
                        _ => None,
                    };
                    self.notice_silent_end(rank, cause);
                    self.mind.handle_exit(rank, cause, shortage, monotonic_ns());
                    self.inputs.close(index);
                    self.inputs.report_taken(&mut self.branch);
                    // Its memory is looked for under its number before it is told who gets it.
                    self.settle();
                    if let Some(io) = &mut self.ranks.ios[index] {
                        io.sockets = None;
                    }
                    self.ranks.forget_if_over(index);
                }
            }
        }
    }

    /// Takes all that the PMIx server of the host says.
    pub(super) fn read_helper(&mut self) {
        while self.pmix.receive(&mut self.buffer, &self.poller) {
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
            self.branch.report(Report::Aborted {
                rank,
                exit_code: pmix::LOST,
                message: reason,
            });
        }
    }

    /// A rank that ended well, needs others, and never asked for them was probably a job of its own.
    fn notice_silent_end(&mut self, rank: Rank, cause: Cause) {
        if cause == Cause::Exited(0)
            && !self.mind.has_spoken(rank)
            && let Some(text) = self.kit.groups.silent_end(rank)
        {
            self.branch.report(Report::Notice { rank, text });
        }
    }

    /// Of a process that is not our child the end of its connection is all that is seen.
    pub(super) fn end_if_foreign(&mut self, index: usize) {
        let Some(io) = self.ranks.ios.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        if io.foreign.is_some() && io.sockets.is_some() {
            let rank = io.rank;
            self.mind
                .handle_exit(rank, Cause::Exited(0), None, monotonic_ns());
            self.settle();
            self.ranks.ios[index] = None;
        }
    }
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
