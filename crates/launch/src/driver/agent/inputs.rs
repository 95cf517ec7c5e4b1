//! Handing standard input on to those ranks of a host that have it.

use std::{collections::VecDeque, os::fd::OwnedFd};

use bytes::Bytes;
use ropewalk_launch_core::protocol::{Report, STDIN_WINDOW};
use rustix::{
    event::epoll::EventFlags,
    io::{Errno, write},
};

use super::poller::{Channel, Poller, Source};
use crate::driver::branch::Branch;

/// The inputs of a host's ranks, by their number on it.
pub(super) struct Inputs {
    inputs: Vec<Input>,
    /// Other hosts read it too: it goes on when nobody here reads any more.
    is_shared: bool,
    pushed: u64,
    /// How much the slowest has taken, as it was told.
    told: u64,
}

/// The standard input of one rank.
#[derive(Default)]
struct Input {
    /// Once the rank is started.
    pipe: Option<OwnedFd>,
    queue: VecDeque<Bytes>,
    written: u64,
    /// No more will come.
    ended: bool,
    /// It wants no more.
    closed: bool,
}

impl Inputs {
    /// For so many ranks, the first of the host; shared with other hosts or not.
    pub(super) fn new(ranks: usize, is_shared: bool) -> Self {
        Self {
            inputs: std::iter::repeat_with(Input::default).take(ranks).collect(),
            is_shared,
            pushed: 0,
            told: 0,
        }
    }

    /// Returns true if the rank has input.
    pub(super) fn has(&self, index: usize) -> bool {
        index < self.inputs.len()
    }

    /// The end of the pipe to write of a rank that is started.
    pub(super) fn set_pipe(&mut self, index: usize, pipe: OwnedFd) {
        self.inputs[index].pipe = Some(pipe);
    }

    pub(super) fn push(&mut self, bytes: Vec<u8>) {
        let bytes = Bytes::from(bytes);
        self.pushed += bytes.len() as u64;
        for input in self.inputs.iter_mut().filter(|input| !input.closed) {
            input.queue.push_back(bytes.clone());
        }
    }

    pub(super) fn end(&mut self) {
        for input in &mut self.inputs {
            input.ended = true;
        }
    }

    /// Writes what ranks take now, and reports how much that was.
    pub(super) fn write(&mut self, poller: &Poller, branch: &mut Branch) {
        for index in 0..self.inputs.len() {
            self.write_to(index, poller, branch);
        }
        self.report_taken(branch);
    }

    /// Writes what a rank takes now, and reports how much that was. The poller tells when it takes more.
    pub(super) fn write_to(&mut self, index: usize, poller: &Poller, branch: &mut Branch) {
        let Some(input) = self.inputs.get_mut(index).filter(|input| input.pipe.is_some()) else {
            return;
        };
        let is_left = input.write();
        if let Some(pipe) = &input.pipe {
            // A pipe without a reader is told without being asked for, and again and again: not from here on.
            poller.delete(pipe);
            if is_left {
                let _ = poller.add(pipe, Source::Rank(index, Channel::Stdin), EventFlags::OUT);
            }
        }
        self.report_taken(branch);
    }

    /// Reports how much of the input was taken. Those that take no more count no more.
    pub(super) fn report_taken(&mut self, branch: &mut Branch) {
        if let Some(taken) = self.taken() {
            branch.report(Report::StdinTaken(taken));
        }
    }

    /// A rank is gone.
    pub(super) fn close(&mut self, index: usize) {
        if let Some(input) = self.inputs.get_mut(index) {
            input.close();
        }
    }

    /// How many more bytes the slowest of those that read has taken since this was last told. Few are told only with
    /// the last that have come: each report wakes the launcher for one more piece of input. Once nobody reads any
    /// more, it is nothing, or all if others do.
    fn taken(&mut self) -> Option<u32> {
        let open = self.inputs.iter().filter(|input| !input.closed);
        let slowest = open.map(|input| input.written).min();
        let taken = slowest.or(self.is_shared.then_some(self.pushed))?;
        let more = taken.checked_sub(self.told)?;
        let least = if taken == self.pushed { 1 } else { TOLD_MIN };
        if more < least {
            return None;
        }
        self.told = taken;
        u32::try_from(more).ok()
    }
}

impl Input {
    /// Writes what the rank takes now. Returns true if something is left for later.
    fn write(&mut self) -> bool {
        let Some(pipe) = &self.pipe else {
            return false;
        };
        while let Some(bytes) = self.queue.front_mut() {
            match write(pipe, bytes) {
                Ok(length) => {
                    self.written += length as u64;
                    bytes::Buf::advance(bytes, length);
                    if bytes.is_empty() {
                        self.queue.pop_front();
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => {
                    self.close();
                    return false;
                }
            }
        }
        if self.ended {
            self.pipe = None;
        }
        false
    }

    fn close(&mut self) {
        self.closed = true;
        self.pipe = None;
        self.queue.clear();
    }
}

/// As long as more is there for a rank, no fewer bytes are told: half of the window is under way meanwhile.
const TOLD_MIN: u64 = STDIN_WINDOW as u64 / 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// While input waits for a rank it is told of in large parts; all is told in the end.
    #[test]
    fn a_slow_rank_causes_few_reports() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        let mut inputs = Inputs::new(1, false);
        inputs.set_pipe(0, writer);
        let pieces = STDIN_WINDOW / (64 << 10);
        for _ in 0..pieces {
            inputs.push(vec![1; 64 << 10]);
        }
        let (mut told, mut reports) = (0, 0);
        let mut buffer = [0; 16 << 10];
        while told < STDIN_WINDOW {
            inputs.inputs[0].write();
            if let Some(more) = inputs.taken() {
                told += more as usize;
                reports += 1;
            }
            rustix::io::read(&reader, &mut buffer).unwrap();
        }
        assert_eq!(told, STDIN_WINDOW);
        assert!((2..=4).contains(&reports), "{reports} reports");
    }

    /// Where others read the same, they wait neither for a rank that is gone nor for a host on which nobody reads.
    #[test]
    fn whoever_is_gone_keeps_nobody_waiting() {
        let pipe = || rustix::pipe::pipe().unwrap();
        for is_shared in [false, true] {
            let mut inputs = Inputs::new(2, is_shared);
            let (reader, writer) = pipe();
            inputs.set_pipe(0, writer);
            inputs.push(vec![0; 100]);
            assert!(!inputs.inputs[0].write());
            assert_eq!(inputs.taken(), None);
            inputs.close(1);
            assert_eq!(inputs.taken(), Some(100));
            drop(reader);
            inputs.push(vec![0; 10]);
            assert!(!inputs.inputs[0].write());
            assert_eq!(inputs.taken(), is_shared.then_some(10));
        }
    }
}
