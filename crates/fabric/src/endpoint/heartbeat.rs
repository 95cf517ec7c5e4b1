//! When a silent peer is asked for a sign of life, and when it is taken for dead.

use std::time::{Duration, Instant};

use crate::peer_table::{Activity, Pulse};

/// The rhythm in which peers that are waited for are looked at.
#[derive(Debug)]
pub(super) struct Heartbeat {
    limit: Duration,
    latest: Option<Instant>,
}

/// How often an endpoint and its peers asked each other for a sign of life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeartbeatCounts {
    /// Questions to silent peers.
    pub asked: u64,
    /// Answers to peers that asked.
    pub answered: u64,
    /// Peers that were taken for dead because they stayed silent.
    pub silent: u64,
}

/// The verdict on a peer: it lives, is to be asked, or is dead.
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

    /// The verdict on a peer by its activity so far.
    ///
    /// Only what came from it shows that its process lives: its system takes bytes for one that is stopped too. But
    /// while the question itself waits behind other data, that this data moves is all that can be seen.
    pub(super) fn judge(
        &self,
        now: Instant,
        pulse: &mut Option<Pulse>,
        activity: Activity,
        missed: bool,
    ) -> Verdict {
        let Some(known) = pulse
            .as_mut()
            .filter(|known| !missed && known.activity.heard == activity.heard)
        else {
            *pulse = Some(Pulse {
                activity,
                since: now,
                asked: None,
            });
            return Verdict::Alive;
        };
        let on_its_way = known.asked.is_some_and(|asked| activity.taken < asked);
        if on_its_way && activity.taken > known.activity.taken {
            known.since = now;
        }
        known.activity = activity;
        let silent = now.saturating_duration_since(known.since);
        if silent + self.interval() >= self.limit {
            Verdict::Dead
        } else if silent >= self.interval() {
            Verdict::Ask
        } else {
            Verdict::Alive
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(8);

    /// The verdicts on a peer that is looked at each second; `activity` says what was seen of it by then.
    fn verdicts(seconds: u64, activity: impl Fn(u64) -> Activity) -> Vec<Verdict> {
        let start = Instant::now();
        let mut heartbeat = Heartbeat::new(LIMIT);
        heartbeat.begin(start);
        let mut pulse = None;
        let looks = (1..=seconds).map(|second| {
            let now = start + Duration::from_secs(second);
            assert_eq!(heartbeat.next(), Some(now));
            let missed = heartbeat.look(now);
            let verdict = heartbeat.judge(now, &mut pulse, activity(second), missed);
            if verdict == Verdict::Ask {
                let asked = activity(second).queued + 1;
                pulse.as_mut().unwrap().asked.get_or_insert(asked);
            }
            verdict
        });
        looks.collect()
    }

    /// A silent peer is asked before it is given up, which happens within the limit of its last sign of life, even
    /// if its system goes on taking what is sent; one that gives signs is not.
    #[test]
    fn silence_is_death() {
        let verdicts = verdicts(11, |second| Activity {
            heard: second.min(4),
            taken: second * 100,
            queued: second * 100,
        });
        assert_eq!(verdicts[..4], [Verdict::Alive; 4]);
        assert_eq!(verdicts[4..10], [Verdict::Ask; 6]);
        assert_eq!(verdicts[10], Verdict::Dead);
    }

    /// Over a slow link a peer is not given up before the question has reached it, as long as what goes before it
    /// moves.
    #[test]
    fn slow_links_are_not_silent() {
        let verdicts = verdicts(60, |second| Activity {
            heard: 0,
            taken: second.min(40),
            queued: 50,
        });
        assert!(!verdicts[..46].contains(&Verdict::Dead));
        assert!(verdicts[46..].contains(&Verdict::Dead));
    }

    /// A side that was itself stopped does not blame its peers for it.
    #[test]
    fn missing_signs_is_not_silence() {
        let start = Instant::now();
        let mut heartbeat = Heartbeat::new(LIMIT);
        heartbeat.begin(start);
        let mut pulse = None;
        let activity = Activity::default();
        let missed = heartbeat.look(start);
        heartbeat.judge(start, &mut pulse, activity, missed);
        let now = start + LIMIT * 10;
        let missed = heartbeat.look(now);
        assert_eq!(heartbeat.judge(now, &mut pulse, activity, missed), Verdict::Alive);
        let now = now + LIMIT / 8;
        let missed = heartbeat.look(now);
        assert_eq!(heartbeat.judge(now, &mut pulse, activity, missed), Verdict::Ask);
    }
}
