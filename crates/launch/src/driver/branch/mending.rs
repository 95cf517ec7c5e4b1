//! How long a lost connection to the node above is made again, by the times at which attempts fail.

use std::{
    io,
    time::{Duration, Instant},
};

use ropewalk_fabric::PeerDeath;

/// A connection that is lost and made again. All reconnections are one mending as long as each is lost before
/// it carries anything of what there is to carry.
pub(super) struct Mending {
    pub(super) until: Instant,
    pub(super) next: Instant,
    /// The link's when it began.
    pub(super) progress: u64,
    /// Since when the node above answers.
    pub(super) answered: Option<Instant>,
    /// How it was lost last.
    pub(super) why: String,
    begun: Instant,
    pause: Duration,
    /// Since when nothing was heard of the host of the node above, not even of its kernel.
    out_of_reach: Option<Instant>,
}

impl Mending {
    /// Between two attempts; it doubles, but there are always some within the detection time.
    const PAUSE: Duration = Duration::from_millis(20);
    const ATTEMPTS_MIN: u32 = 8;
    /// How many times the detection time is granted to a link that had nothing to carry and answered, and
    /// broke all the same: the messages of the other end may never get through.
    const IDLE_MAX: u32 = 10;
    /// How many times the detection time the host of a suspended launcher may be out of reach. A launcher
    /// that is not suspended is granted less: nothing goes on during a suspension, and the launcher may be
    /// moved from one network to another.
    pub(super) const OUT_OF_REACH_MAX: u32 = 10;

    pub(super) fn begin(now: Instant, detect: Duration, progress: u64, why: String) -> Self {
        Self {
            until: now + detect,
            next: now,
            progress,
            answered: None,
            why,
            begun: now,
            pause: Self::PAUSE,
            out_of_reach: None,
        }
    }

    /// Until when the connection has to be there to be no worse than another.
    pub(super) fn stands_at(&self) -> Option<Instant> {
        self.answered.map(|since| since + self.pause)
    }

    /// A connection was lost too, or could not be made. That it was `idle` says that there was nothing to carry.
    pub(super) fn handle_broken(&mut self, now: Instant, detect: Duration, was_idle: bool, why: String) {
        if self.answered.take().is_some() && was_idle {
            self.until = (now + detect).min(self.begun + detect * Self::IDLE_MAX);
        }
        self.why = why;
        self.wait(now, detect);
    }

    /// An attempt could not even begin. That costs next to nothing, so attempts use all of the detection
    /// time, and its end too. But if `is_excused`, the node above may be out of reach for much longer.
    pub(super) fn handle_failed(&mut self, now: Instant, detect: Duration, is_excused: bool, why: String) {
        self.why = why;
        match is_excused {
            true => self.wait(now, detect),
            false => self.next = now + Self::PAUSE,
        }
    }

    fn wait(&mut self, now: Instant, detect: Duration) {
        self.next = now + self.pause;
        self.pause = (self.pause * 2).min(detect / Self::ATTEMPTS_MIN).max(Self::PAUSE);
    }

    /// An attempt has shown this of the host of the node above.
    pub(super) fn note_sight(&mut self, now: Instant, sight: Sight) {
        match sight {
            Sight::Something => self.out_of_reach = None,
            Sight::Nothing => {
                self.out_of_reach.get_or_insert(now);
            }
        }
    }

    /// While the node above is stopped, and just after that, the lack of a new connection says nothing about
    /// it. But a host that stays out of reach does after a while: nobody would ever be told that it does not
    /// come back.
    pub(super) fn excuse_silence(&mut self, now: Instant, detect: Duration) {
        let last = self
            .out_of_reach
            .map(|since| since + detect * Self::OUT_OF_REACH_MAX);
        self.begun = now;
        self.until = last.map_or(now + detect, |last| last.min(now + detect));
    }
}

/// The evidence that an attempt to connect gives of the host at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// Its kernel answered.
    Something,
    Nothing,
}

impl Sight {
    /// The evidence that the end of an attempt gives.
    pub(super) fn of(cause: &PeerDeath) -> Self {
        match cause {
            PeerDeath::ConnectTimedOut => Self::Nothing,
            PeerDeath::Io(error) => match error.kind() {
                // Only who is there resets; and a UNIX socket whose queue is full has somebody behind it.
                io::ErrorKind::ConnectionReset | io::ErrorKind::WouldBlock => Self::Something,
                _ => Self::Nothing,
            },
            _ => Self::Something,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const DETECT: Duration = Duration::from_secs(3);
    const PATIENCE: Duration = Duration::from_secs(30);

    /// Seeks a suspended launcher from second 0 on, with attempts that show `sight` of each second. Returns
    /// the second in which the launcher is given up.
    fn given_up(sight: impl Fn(u64) -> Sight) -> Option<u64> {
        let begun = Instant::now();
        let mut mending = Mending::begin(begun, DETECT, 0, "it was reset".to_owned());
        (0..1000).find(|&second| {
            let now = begun + Duration::from_secs(second);
            mending.excuse_silence(now, DETECT);
            let is_over = mending.until <= now;
            mending.note_sight(now, sight(second));
            is_over
        })
    }

    /// A suspended launcher is waited for as long as its host answers.
    #[test]
    fn a_stopped_launcher_is_waited_for() {
        assert_eq!(given_up(|_| Sight::Something), None);
    }

    /// Once the host was out of reach for the granted time, nobody waits any more. Whenever it answers, it
    /// has that time again.
    #[test]
    fn a_host_out_of_reach_is_given_up() {
        let seconds = PATIENCE.as_secs();
        assert_eq!(given_up(|_| Sight::Nothing), Some(seconds));
        let back = |second| match second {
            20 => Sight::Something,
            _ => Sight::Nothing,
        };
        assert_eq!(given_up(back), Some(21 + seconds));
    }

    /// A launcher that goes on has the time that it always has, also just after its host was out of reach.
    #[test]
    fn a_launcher_that_goes_on_has_its_time() {
        let begun = Instant::now();
        let mut mending = Mending::begin(begun, DETECT, 0, String::new());
        mending.note_sight(begun, Sight::Nothing);
        let back = begun + PATIENCE - Duration::from_secs(1);
        mending.note_sight(back, Sight::Something);
        mending.excuse_silence(back, DETECT);
        assert_eq!(mending.until, back + DETECT);
    }

    /// While nobody is stopped, attempts that cannot even begin go on until the end of the detection time: a
    /// host that is back just before that is not lost.
    #[test]
    fn attempts_without_a_way_last_until_the_end() {
        let begun = Instant::now();
        let mut mending = Mending::begin(begun, DETECT, 0, String::new());
        let mut last = begun;
        while mending.next < mending.until {
            last = mending.next;
            mending.handle_failed(last, DETECT, false, "no route to host".to_owned());
        }
        assert!(
            mending.until - last <= Mending::PAUSE,
            "{:?}",
            mending.until - last
        );
    }

    /// Attempts that cannot even begin show that there is no way, and become rarer while the launcher is stopped.
    #[test]
    fn attempts_without_a_way_become_rarer() {
        let begun = Instant::now();
        let mut mending = Mending::begin(begun, DETECT, 0, String::new());
        let mut attempts = 0;
        loop {
            mending.excuse_silence(mending.next, DETECT);
            if mending.until <= mending.next {
                break;
            }
            mending.note_sight(mending.next, Sight::Nothing);
            mending.handle_failed(mending.next, DETECT, true, "no route to host".to_owned());
            attempts += 1;
        }
        assert!((80..100).contains(&attempts), "{attempts}");
        assert_eq!(mending.why, "no route to host");
    }

    /// Who resets a connection, or has a full queue, is there; nobody else who does not answer is known to be.
    #[test]
    fn what_attempts_show() {
        let io = |kind: io::ErrorKind| PeerDeath::Io(Arc::new(kind.into()));
        for (cause, expected) in [
            (PeerDeath::ConnectTimedOut, Sight::Nothing),
            (io(io::ErrorKind::HostUnreachable), Sight::Nothing),
            (io(io::ErrorKind::NetworkUnreachable), Sight::Nothing),
            (io(io::ErrorKind::TimedOut), Sight::Nothing),
            (io(io::ErrorKind::ConnectionReset), Sight::Something),
            (io(io::ErrorKind::WouldBlock), Sight::Something),
            (PeerDeath::Closed, Sight::Something),
        ] {
            assert_eq!(Sight::of(&cause), expected, "{cause:?}");
        }
    }
}
