//! Places of values along an axis, and round values to mark on it.

/// An axis of a picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    from: f64,
    to: f64,
    begin: f64,
    end: f64,
    logarithmic: bool,
}

impl Axis {
    /// Equal lengths are equal differences. `from` stands at `begin`, `to` stands at `end`.
    pub fn linear((from, to): (f64, f64), (begin, end): (f64, f64)) -> Self {
        Self {
            from,
            to: if to > from { to } else { from + 1.0 },
            begin,
            end,
            logarithmic: false,
        }
    }

    /// Equal lengths are equal factors. Both values are positive.
    pub fn logarithmic((from, to): (f64, f64), places: (f64, f64)) -> Self {
        let from = from.max(f64::MIN_POSITIVE);
        Self {
            logarithmic: true,
            ..Self::linear((from, to.max(from * 1.01)), places)
        }
    }

    /// The place of a value, also of one outside of the axis.
    pub fn place(self, value: f64) -> f64 {
        let part = match self.logarithmic {
            true => (value / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        };
        self.begin + part * (self.end - self.begin)
    }

    /// Says if a value lies on the axis.
    pub fn contains(self, value: f64) -> bool {
        (self.from..=self.to).contains(&value)
    }

    /// Round values from one end to the other, at most eleven on a linear axis.
    pub fn ticks(self) -> Vec<f64> {
        match self.logarithmic {
            true => self.logarithmic_ticks(),
            false => self.linear_ticks(),
        }
    }

    fn linear_ticks(self) -> Vec<f64> {
        let length = self.to - self.from;
        let unit = 10f64.powf((length / 5.0).log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * unit);
        let step = steps.into_iter().find(|step| length / step <= 10.0);
        let step = step.unwrap_or(length);
        let first = (self.from / step).ceil();
        (0..=TICKS_MAX)
            .map(|index| (first + f64::from(index)) * step)
            .take_while(|value| *value <= self.to + step * 1e-9)
            .collect()
    }

    fn logarithmic_ticks(self) -> Vec<f64> {
        let (first, last) = (self.from.log10().floor() as i32, self.to.log10().ceil() as i32);
        let factors: &[f64] = match last - first {
            ..=3 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let decades = (first..=last).step_by(((last - first) / TICKS_MAX + 1) as usize);
        decades
            .flat_map(|decade| {
                factors.iter().map(move |factor| match decade < 0 {
                    // Division by a whole number is exact where it can be.
                    true => factor / 10f64.powi(-decade),
                    false => factor * 10f64.powi(decade),
                })
            })
            .filter(|value| self.contains(*value))
            .collect()
    }
}

/// The unit that suits all times of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeUnit {
    /// Its short name.
    pub name: &'static str,
    /// Its length.
    pub seconds: f64,
}

impl TimeUnit {
    /// The unit for times about as long as this one.
    pub fn of(seconds: f64) -> Self {
        let (name, seconds) = match seconds {
            _ if seconds < 0.5 => ("ms", 1e-3),
            _ if seconds < 7200.0 => ("s", 1.0),
            _ if seconds < 2.0 * 86_400.0 => ("h", 3600.0),
            _ => ("days", 86_400.0),
        };
        Self { name, seconds }
    }
}

/// A number on an axis, without the digits that only the binary form brought in.
pub fn label(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if !(1e-4..1e6).contains(&size) => format!("{value:.0e}"),
        _ => format!("{}", (value * 1e6).round() / 1e6),
    }
}

const TICKS_MAX: i32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Marked values are round and lie on the axis.
    #[test]
    fn ticks_are_round() {
        let labels = |axis: Axis| -> Vec<String> { axis.ticks().into_iter().map(label).collect() };
        let places = (0.0, 100.0);
        assert_eq!(
            labels(Axis::linear((0.0, 0.31), places)),
            ["0", "0.05", "0.1", "0.15", "0.2", "0.25", "0.3"]
        );
        assert_eq!(
            labels(Axis::logarithmic((0.4, 30.0), places)),
            ["0.5", "1", "2", "5", "10", "20"]
        );
        assert_eq!(
            labels(Axis::logarithmic((1e-3, 1e3), places)),
            ["0.001", "0.01", "0.1", "1", "10", "100", "1000"]
        );
        let long = labels(Axis::logarithmic((1e-300, 1e300), places));
        assert!((2..=12).contains(&long.len()), "{long:?}");
        assert_eq!(label(3e9), "3e9");
    }

    /// Values stand where they belong, and no axis is so short that its places are no numbers.
    #[test]
    fn places_are_in_proportion() {
        let axis = Axis::logarithmic((1.0, 100.0), (0.0, 200.0));
        assert!((axis.place(10.0) - 100.0).abs() < 1e-9 && axis.contains(100.0) && !axis.contains(101.0));
        let up = Axis::linear((0.0, 4.0), (400.0, 0.0));
        assert_eq!((up.place(1.0), up.place(5.0)), (300.0, -100.0));
        assert!(Axis::linear((2.0, 2.0), (0.0, 1.0)).place(2.0).is_finite());
        assert!(Axis::logarithmic((0.0, 0.0), (0.0, 1.0)).place(1.0).is_finite());
    }
}
