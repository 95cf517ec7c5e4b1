//! The least that a call through shared memory can cost: cache lines that carry their own sequence numbers.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::ensure;

use super::shared_memory::SharedMemory;

/// One end of a pair of rings, one for each direction. The sender need not know how far the receiver is: there
/// are never more messages unanswered than half the slots.
pub(crate) struct RingEnd {
    memory: SharedMemory,
    sends_at: usize,
    receives_at: usize,
    sent: u64,
    received: u64,
}

impl RingEnd {
    /// How many messages may be unanswered.
    pub(crate) const UNANSWERED_MAX: usize = SLOTS / 2;
    /// The memory that a pair needs.
    pub(crate) const MEMORY: usize = 2 * SLOTS * WORDS * 8;

    /// The end that asks.
    pub(crate) fn asking(memory: SharedMemory) -> Self {
        Self::new(memory, 0, SLOTS * WORDS)
    }

    /// The end that answers.
    pub(crate) fn answering(memory: SharedMemory) -> Self {
        Self::new(memory, SLOTS * WORDS, 0)
    }

    fn new(memory: SharedMemory, sends_at: usize, receives_at: usize) -> Self {
        Self {
            memory,
            sends_at,
            receives_at,
            sent: 0,
            received: 0,
        }
    }

    /// Makes `rounds` times as many calls as shall be in flight.
    pub(crate) fn call(&mut self, in_flight: usize, rounds: usize) -> anyhow::Result<()> {
        ensure!(
            in_flight <= Self::UNANSWERED_MAX,
            "at most {} in flight",
            Self::UNANSWERED_MAX
        );
        let (mut unsent, mut unanswered, mut looks) = (in_flight * rounds, 0, 0);
        while unsent > 0 || unanswered > 0 {
            while unsent > 0 && unanswered < in_flight {
                self.send(CALL);
                unsent -= 1;
                unanswered += 1;
            }
            looks += 1;
            while unanswered > 0 && self.receive().is_some() {
                unanswered -= 1;
                looks = 0;
            }
            ensure!(looks < LOOKS_MAX, "nobody answers in the shared ring");
        }
        Ok(())
    }

    /// Tells the other end to stop.
    pub(crate) fn stop(mut self) {
        self.send(STOP);
    }

    /// Answers until it is told to stop, or nothing came for a long time.
    pub(crate) fn answer(mut self) {
        let mut looks = 0;
        while looks < LOOKS_MAX {
            looks += 1;
            match self.receive() {
                Some(STOP) => return,
                Some(word) => {
                    self.send(word);
                    looks = 0;
                }
                None => {}
            }
        }
    }

    fn send(&mut self, word: u64) {
        let slot = self.slot(self.sends_at, self.sent);
        for payload in &slot[1..] {
            payload.store(word, Ordering::Relaxed);
        }
        slot[0].store(self.sent + 1, Ordering::Release);
        self.sent += 1;
    }

    fn receive(&mut self) -> Option<u64> {
        let slot = self.slot(self.receives_at, self.received);
        if slot[0].load(Ordering::Acquire) != self.received + 1 {
            return None;
        }
        let word = (slot[1..].iter()).fold(0, |all, payload| all | payload.load(Ordering::Relaxed));
        self.received += 1;
        Some(word)
    }

    fn slot(&self, at: usize, number: u64) -> &[AtomicU64] {
        let start = at + (number as usize % SLOTS) * WORDS;
        &self.memory.words()[start..start + WORDS]
    }
}

const SLOTS: usize = 512;
/// A slot is one cache line.
const WORDS: usize = 8;
const CALL: u64 = 1;
const STOP: u64 = 2;
/// Fruitless looks at the ring, which take some ten seconds: longer than any pause of a machine that is not
/// broken. A clock would cost more than a look.
const LOOKS_MAX: u64 = 1 << 33;

#[cfg(test)]
mod tests {
    use super::*;

    /// Every call is answered, whatever is in flight, over many rounds of the ring.
    #[test]
    fn every_call_is_answered() {
        let memory = SharedMemory::create(RingEnd::MEMORY).unwrap();
        let answering = RingEnd::answering(SharedMemory::open(memory.place()).unwrap());
        let answers = std::thread::spawn(move || answering.answer());
        let mut asking = RingEnd::asking(memory);
        for (in_flight, rounds) in [(1, 2000), (64, 100), (RingEnd::UNANSWERED_MAX, 10)] {
            asking.call(in_flight, rounds).unwrap();
        }
        assert_eq!(asking.sent, 2000 + 6400 + 10 * RingEnd::UNANSWERED_MAX as u64);
        assert_eq!(asking.received, asking.sent);
        asking.stop();
        answers.join().unwrap();
    }
}
