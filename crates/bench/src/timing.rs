//! How long and how often something is measured, and what is made of the samples.

use std::time::{Duration, Instant};

/// How much time a measurement takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// How often the floor and what is measured take turns.
    pub(super) rounds: usize,
    /// How long one of them runs in one round, about.
    pub(super) turn: Duration,
    /// How long idle connections are watched.
    pub(super) idle: Duration,
    /// A measurement that has taken so long begins no further round: on a machine that is busy with other things
    /// a round may take much longer than its turns.
    pub(super) patience: Duration,
}

/// The medians of all rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    pub(super) value: f64,
    pub(super) least: f64,
    pub(super) most: f64,
    pub(super) floor: Option<f64>,
}

impl Measured {
    /// # Panics
    /// If there are no values.
    pub(super) fn of(values: &mut [f64], floors: &mut [f64]) -> Self {
        let value = median(values);
        Self {
            value,
            // They are in order now.
            least: values[0],
            most: values[values.len() - 1],
            floor: (!floors.is_empty()).then(|| median(floors)),
        }
    }
}

impl Pace {
    /// How long a first impression may take as a whole, less than the 40 seconds that are promised: processes start
    /// and end, too, and no round is broken off.
    const QUICK_TIME: Duration = Duration::from_secs(32);

    /// For a first impression that began so long ago, of which so many [measurements](super::cases::Case::measurements)
    /// are left to do: what is left of the time is shared among them, so that a busy machine costs rounds and not time.
    pub(super) fn quick(elapsed: Duration, left: u32) -> Self {
        let rounds = 3;
        let patience = Self::QUICK_TIME.saturating_sub(elapsed) / left.max(1);
        // A round is a turn of the floor and one of the value.
        let turn = patience / (2 * rounds);
        Self {
            rounds: rounds as usize,
            turn: turn.clamp(Duration::from_millis(5), Duration::from_millis(50)),
            idle: (patience * 2).clamp(Duration::from_millis(500), Duration::from_secs(2)),
            patience: patience.min(Duration::from_millis(700)),
        }
    }

    /// For numbers that are written down.
    pub(super) const THOROUGH: Self = Self {
        rounds: 9,
        turn: Duration::from_millis(300),
        idle: Duration::from_secs(10),
        patience: Duration::from_secs(60),
    };

    /// Measures the floor and the value in turns, so that whatever else the machine does meets both. Both get
    /// what they measure `with`.
    ///
    /// # Errors
    /// Those of the value. A floor that cannot be measured is none, and why is told on the standard error.
    pub(super) fn measure<W>(
        &self,
        with: &mut W,
        mut floor: impl FnMut(&mut W, Duration) -> anyhow::Result<f64>,
        mut value: impl FnMut(&mut W, Duration) -> anyhow::Result<f64>,
    ) -> anyhow::Result<Measured> {
        let start = Instant::now();
        let (mut floors, mut values) = (Vec::new(), Vec::new());
        while values.is_empty() || (values.len() < self.rounds && start.elapsed() < self.patience) {
            match floor(with, self.turn) {
                Ok(sample) => floors.push(sample),
                Err(error) => eprintln!("ropewalk bench: no floor: {error:#}"),
            }
            values.push(value(with, self.turn)?);
        }
        Ok(Measured::of(&mut values, &mut floors))
    }
}

/// The median of samples that are taken for a turn, of at least three if they do not take too long; each is what
/// `once` returns. The first ones, which find caches and windows cold, do not count.
pub(super) fn sampled(turn: Duration, mut once: impl FnMut() -> anyhow::Result<f64>) -> anyhow::Result<f64> {
    let start = Instant::now();
    while start.elapsed() < turn / 5 {
        once()?;
    }
    let mut samples = Vec::new();
    while samples.is_empty() || start.elapsed() < turn || (samples.len() < 3 && start.elapsed() < turn * 4) {
        samples.push(once()?);
    }
    Ok(median(&mut samples))
}

/// Seconds that something takes.
pub(super) fn seconds(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

/// # Panics
/// If there is nothing to take a median of.
pub(super) fn median(samples: &mut [f64]) -> f64 {
    assert!(!samples.is_empty(), "no sample");
    samples.sort_by(f64::total_cmp);
    let middle = samples.len() / 2;
    if samples.len().is_multiple_of(2) {
        f64::midpoint(samples[middle - 1], samples[middle])
    } else {
        samples[middle]
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    /// The median is the middle one, or lies between the two middle ones.
    #[test]
    fn medians() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 100.0]), 3.0);
    }

    /// Whatever the measurements take, what they may begin to take is never more than there is in all; and one that
    /// finds no time left is still made, once and shortly.
    #[test]
    fn quick_measurements_share_their_time() {
        for left in 1..100 {
            let mut elapsed = Duration::ZERO;
            for left in (1..=left).rev() {
                let pace = Pace::quick(elapsed, left);
                assert!(elapsed + pace.patience * left <= Pace::QUICK_TIME);
                assert!(pace.patience <= Duration::from_millis(700));
                elapsed += pace.patience;
            }
        }
        let late = Pace::quick(Duration::from_secs(60), 7);
        assert_eq!(
            (late.patience, late.turn),
            (Duration::ZERO, Duration::from_millis(5))
        );
        let mut made = 0;
        let count = |_: &mut (), _| {
            made += 1;
            Ok(1.0)
        };
        late.measure(&mut (), |_, _| Ok(1.0), count).unwrap();
        assert_eq!(made, 1);
    }

    /// A floor that cannot be measured is none, while a value that cannot be is an error.
    #[test]
    fn floors_may_be_missing() {
        let pace = Pace {
            rounds: 3,
            turn: Duration::ZERO,
            idle: Duration::ZERO,
            patience: Duration::from_secs(60),
        };
        let measured = pace.measure(
            &mut 0.0,
            |_, _| Err(anyhow!("not permitted")),
            |next, _| {
                *next += 1.0;
                Ok(*next)
            },
        );
        assert_eq!(
            measured.unwrap(),
            Measured {
                value: 2.0,
                least: 1.0,
                most: 3.0,
                floor: None
            }
        );
        assert!((pace.measure(&mut (), |_, _| Ok(1.0), |_, _| Err(anyhow!("broken")))).is_err());
    }
}
