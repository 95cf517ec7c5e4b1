//! When a silent peer is asked for a sign of life, and when it is taken for dead.

use std::time::{Duration, Instant};

use crate::peer_table::Pulse;

/// The rhythm in which peers that are waited for are looked at.
#[derive(Debug)]
pub(super) struct Heartbeat {
    limit: Duration,
    latest: Option<Instant>,
}

/// What to do about a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Alive,
    Ask,
    Dead,
}

impl Heartbeat {
    /// How often peers are looked at within the limit.
    const LOOKS: u32 = 8;

    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, latest: None }
    }

    fn interval(&self) -> Duration {
        self.limit / Self::LOOKS
    }

    /// When peers have to be looked at next, if any is waited for.
    pub(super) fn next(&self) -> Option<Instant> {
        self.latest.map(|latest| latest + self.interval())
    }

    /// Peers are waited for from now on.
    pub(super) fn begin(&mut self, now: Instant) {
        self.latest.get_or_insert(now);
    }

    /// No peer is waited for any longer.
    pub(super) fn end(&mut self) {
        self.latest = None;
    }

    /// Begins a look at the peers. Returns whether signs of life may have been missed since the last one, because
    /// this side was not driven itself.
    pub(super) fn look(&mut self, now: Instant) -> bool {
        let missed = self
            .latest
            .is_some_and(|latest| now.saturating_duration_since(latest) > self.interval() * 3);
        self.latest = Some(now);
        missed
    }

    /// What to do about a peer of which so much was heard so far.
    pub(super) fn judge(
        &self,
        now: Instant,
        pulse: &mut Option<Pulse>,
        activity: (u64, u64),
        missed: bool,
    ) -> Verdict {
        match pulse {
            Some(known) if known.activity == activity && !missed => {
                let silent = now.saturating_duration_since(known.since);
                if silent + self.interval() >= self.limit {
                    Verdict::Dead
                } else if silent >= self.interval() {
                    Verdict::Ask
                } else {
                    Verdict::Alive
                }
            }
            _ => {
                *pulse = Some(Pulse { activity, since: now });
                Verdict::Alive
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(8);

    /// A silent peer is asked before it is given up, which happens within the limit of its last sign of life; one
    /// that gives signs is not.
    #[test]
    fn silence_is_death() {
        let start = Instant::now();
        let mut heartbeat = Heartbeat::new(LIMIT);
        heartbeat.begin(start);
        let mut pulse = None;
        let mut verdicts = Vec::new();
        for second in 1..=20 {
            let now = start + Duration::from_secs(second);
            assert_eq!(heartbeat.next(), Some(now));
            let missed = heartbeat.look(now);
            let heard = second.min(4);
            verdicts.push(heartbeat.judge(now, &mut pulse, (heard, 0), missed));
        }
        assert_eq!(verdicts[..4], [Verdict::Alive; 4]);
        assert_eq!(verdicts[4..10], [Verdict::Ask; 6]);
        assert_eq!(verdicts[10], Verdict::Dead);
    }

    /// A side that was itself stopped does not blame its peers for it.
    #[test]
    fn missing_signs_is_not_silence() {
        let start = Instant::now();
        let mut heartbeat = Heartbeat::new(LIMIT);
        heartbeat.begin(start);
        let mut pulse = None;
        let missed = heartbeat.look(start);
        heartbeat.judge(start, &mut pulse, (1, 1), missed);
        let now = start + LIMIT * 10;
        let missed = heartbeat.look(now);
        assert_eq!(heartbeat.judge(now, &mut pulse, (1, 1), missed), Verdict::Alive);
        let now = now + LIMIT / 8;
        let missed = heartbeat.look(now);
        assert_eq!(heartbeat.judge(now, &mut pulse, (1, 1), missed), Verdict::Ask);
    }
}
