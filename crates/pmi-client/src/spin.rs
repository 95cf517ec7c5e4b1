//! The decision to look for the next message on a socket before sleeping until it comes.

use std::time::{Duration, Instant};

/// Knows if looking has paid lately, for a client that waits for an answer, and for a process manager that
/// waits for the next request. To be woken takes several times as long as the other side needs if it runs on
/// another processor. If it runs on this one, or the answer is that to a fence, looking only delays.
#[derive(Debug, Default)]
pub struct Spin {
    /// How many more waits go by without looking.
    skipped: u32,
    /// How many are to go by after the next one in which looking does not pay.
    interval: u32,
}

/// The looking of one wait.
#[derive(Debug)]
pub struct Turn {
    outcome: Outcome,
    /// How long to look.
    limit: Duration,
    until: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Found,
    InVain,
    NotTried,
}

impl Spin {
    /// About what it costs to be woken.
    const LIMIT: Duration = Duration::from_micros(30);
    const INTERVAL_MAX: u32 = 1024;
    /// About what a server needs for one of many requests.
    const ANSWER: Duration = Duration::from_micros(5);
    const OTHERS_MAX: u32 = 32;

    /// A wait begins.
    pub fn begin(&self) -> Turn {
        self.begin_among(1)
    }

    /// One of so many waits for answers of the same server begins: each of them takes its time.
    pub fn begin_among(&self, waits: u32) -> Turn {
        let outcome = match self.skipped {
            0 => Outcome::InVain,
            _ => Outcome::NotTried,
        };
        let others = waits.saturating_sub(1).min(Self::OTHERS_MAX);
        Turn {
            outcome,
            limit: Self::LIMIT + Self::ANSWER * others,
            until: None,
        }
    }

    /// A wait has ended.
    pub fn end(&mut self, turn: &Turn) {
        match turn.outcome {
            Outcome::Found => self.interval = 0,
            Outcome::InVain => {
                self.interval = (2 * self.interval + 1).min(Self::INTERVAL_MAX);
                self.skipped = self.interval;
            }
            Outcome::NotTried => self.skipped = self.skipped.saturating_sub(1),
        }
    }
}

impl Turn {
    /// Returns true if the wait is to look once more.
    pub fn goes_on(&mut self) -> bool {
        if self.outcome != Outcome::InVain {
            return false;
        }
        let now = Instant::now();
        now < *self.until.get_or_insert_with(|| now + self.limit)
    }

    /// Looking has paid.
    pub fn handle_found(&mut self) {
        self.outcome = Outcome::Found;
    }

    /// Returns true if looking has paid.
    pub fn has_found(&self) -> bool {
        self.outcome == Outcome::Found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where looking never pays it is tried ever more seldom, and where it does always.
    #[test]
    fn looking_has_to_pay() {
        let mut spin = Spin::default();
        let mut wait = |pays: bool| {
            let mut turn = spin.begin();
            let looks = turn.goes_on();
            if looks && pays {
                turn.handle_found();
            }
            spin.end(&turn);
            looks
        };
        let tried = (0..10_000).filter(|_| wait(false)).count();
        assert!((2..30).contains(&tried), "{tried}");
        assert!((0..=Spin::INTERVAL_MAX).any(|_| wait(true)));
        assert!((0..100).all(|_| wait(true)));
    }

    /// Looking ends by itself.
    #[test]
    fn looking_ends() {
        let mut turn = Spin::default().begin();
        let start = Instant::now();
        while turn.goes_on() {}
        assert!(start.elapsed() >= Spin::LIMIT);
    }
}
