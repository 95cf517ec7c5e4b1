use std::{
    fmt,
    ops::{Add, AddAssign, Sub},
    time::Duration,
};

/// A moment, or a span, of virtual time, in nanoseconds. 584 years fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The beginning of every simulation.
    pub const ZERO: Self = Self(0);
    /// A moment that never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// A span of so many microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000)
    }

    /// A span of so many milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// A span of so many seconds, rounded up to a nanosecond.
    pub fn from_seconds(seconds: f64) -> Self {
        Self((seconds * 1e9).ceil() as u64)
    }

    /// The time that `bytes` take at `rate` bytes per second; [`Self::NEVER`] if the rate is 0.
    pub fn of_transfer(bytes: u64, rate: f64) -> Self {
        if rate > 0.0 {
            Self::from_seconds(bytes as f64 / rate)
        } else {
            Self::NEVER
        }
    }

    /// In seconds.
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

/// Stays at [`Nanos::NEVER`].
impl Add for Nanos {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// The span between two moments; zero if the other is later.
impl Sub for Nanos {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl From<Duration> for Nanos {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for Duration {
    fn from(nanos: Nanos) -> Self {
        Self::from_nanos(nanos.0)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6} s", self.as_seconds())
    }
}
