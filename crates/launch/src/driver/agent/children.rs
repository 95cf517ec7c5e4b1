//! The ends, stops and continuations of the processes that an agent started.

use ropewalk_membership::Cause;
use rustix::time::{ClockId, clock_gettime};

use super::Agent;
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
                if let ChildNews::Gone(cause) = news
                    && !self.handle_helper_gone(pid, cause)
                    && self.branch.is_starter(pid)
                {
                    self.branch.handle_reaped(pid, Ended::from(cause));
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
}

pub(super) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
