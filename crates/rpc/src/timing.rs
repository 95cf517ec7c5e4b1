//! Where the time of one call went.

use std::time::{Duration, Instant};

/// Where the time of one call went, by the clock of its caller; what the target did, by the target's own. The
/// clocks of two hosts are never compared, so the ways there and back are one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallTiming {
    /// Encoding the input and handing the request to the fabric, the last time if it was tried again.
    pub sending: Duration,
    /// On the way there and back, and waiting at either end: the network, the queues, and the target until it
    /// began and after it had answered.
    pub travelling: Duration,
    /// Handling at the target, until it answered.
    pub handling: Duration,
    /// From the arrival of the answer until the caller took it: its being woken, mostly.
    pub waking: Duration,
    /// Decoding the output.
    pub decoding: Duration,
}

impl CallTiming {
    /// All of it: from making the call to having its output.
    pub fn total(&self) -> Duration {
        self.sending + self.travelling + self.handling + self.waking + self.decoding
    }
}

/// When what happened to one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallTimes {
    pub(crate) made: Instant,
    pub(crate) sent: Instant,
    pub(crate) answered: Instant,
    /// How long the target handled it, as it says.
    pub(crate) handling: Duration,
}

impl CallTimes {
    /// The timing of the call, whose output was taken and decoded at these times.
    pub(crate) fn timing(&self, taken: Instant, decoded: Instant) -> CallTiming {
        let away = self.answered.saturating_duration_since(self.sent);
        // A target that counts longer than we waited has a clock of another pace.
        let handling = self.handling.min(away);
        CallTiming {
            sending: self.sent.saturating_duration_since(self.made),
            travelling: away - handling,
            handling,
            waking: taken.saturating_duration_since(self.answered),
            decoding: decoded.saturating_duration_since(taken),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts are what they are called, and together all there was, whatever the target says.
    #[test]
    fn parts_add_up() {
        let made = Instant::now();
        let after = |micros| made + Duration::from_micros(micros);
        for (said, handling) in [(40, 40), (0, 0), (1000, 70)] {
            let times = CallTimes {
                made,
                sent: after(10),
                answered: after(80),
                handling: Duration::from_micros(said),
            };
            let timing = times.timing(after(85), after(86));
            let expected = CallTiming {
                sending: Duration::from_micros(10),
                travelling: Duration::from_micros(70 - handling),
                handling: Duration::from_micros(handling),
                waking: Duration::from_micros(5),
                decoding: Duration::from_micros(1),
            };
            assert_eq!((timing, timing.total()), (expected, Duration::from_micros(86)));
        }
    }
}
