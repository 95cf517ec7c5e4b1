//! Folders of time steps.

use std::collections::BTreeSet;

/// The name of a folder that OpenFOAM takes for a time step.
#[derive(Clone, Debug, PartialEq)]
pub struct Time {
    name: String,
    value: f64,
}

impl Time {
    /// The time that a folder of this name is of; nothing if it is another folder.
    pub fn parse(name: &str) -> Option<Self> {
        let is_number = |byte: u8| byte.is_ascii_digit() || b".+-eE".contains(&byte);
        // "inf" and "nan" are numbers for Rust, but not for OpenFOAM.
        if name.len() > NAME_BYTES_MAX || !name.bytes().all(is_number) {
            return None;
        }
        let value: f64 = name.parse().ok()?;
        value.is_finite().then(|| Self {
            name: name.to_owned(),
            value,
        })
    }

    /// The name of the folder.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The time, in the units of the case.
    pub fn value(&self) -> f64 {
        self.value
    }
}

/// Those of several times that are newer than one, or the same by another name.
pub fn newer(times: impl IntoIterator<Item = Time>, than: &Time) -> Vec<Time> {
    times
        .into_iter()
        .filter(|time| time.value >= than.value && time.name != than.name)
        .collect()
}

/// Those outputs of a run that are not among its `keep` newest. What is not after `origin`, where the run
/// began, is no output of it, nor are the times whose names are `saved`.
pub fn outdated(
    times: impl IntoIterator<Item = Time>,
    origin: &Time,
    saved: &BTreeSet<String>,
    keep: usize,
) -> Vec<Time> {
    let mut outputs: Vec<Time> = times
        .into_iter()
        .filter(|time| time.value > origin.value && !saved.contains(&time.name))
        .collect();
    outputs.sort_by(|a, b| a.value.total_cmp(&b.value));
    outputs.truncate(outputs.len().saturating_sub(keep));
    outputs
}

/// Longer names are not of numbers.
const NAME_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Folders of other names are left alone.
    #[test]
    fn numbers_are_times() {
        for name in ["0", "0.005", "1e-05", "-0.1", "100"] {
            assert_eq!(Time::parse(name).unwrap().name(), name);
        }
        for name in [
            "constant",
            "0.orig",
            "inf",
            "nan",
            "",
            "processor0",
            "1_000",
            "1 ",
            "e",
            "1e999",
        ] {
            assert_eq!(Time::parse(name), None, "{name}");
        }
    }

    /// Times are compared as numbers, and two names of one time do not both stay.
    #[test]
    fn newer_times_are_found() {
        let time = |name| Time::parse(name).unwrap();
        let times = ["0", "0.5", "10", "9", "9.0", "8.99"].map(time);
        let found: Vec<_> = newer(times, &time("9"))
            .into_iter()
            .map(|time| time.name)
            .collect();
        assert_eq!(found, ["10", "9.0"]);
    }

    /// The newest outputs stay, and what is none: saves, and what was there before the run.
    #[test]
    fn outdated_outputs_are_found() {
        let times = ["0", "0.1", "0.25", "0.3", "0.5", "0.75", "1"].map(|name| Time::parse(name).unwrap());
        let origin = Time::parse("0.1").unwrap();
        let saved = BTreeSet::from(["0.3".to_owned()]);
        let found = |keep| -> Vec<String> {
            let found = outdated(times.clone(), &origin, &saved, keep);
            found.into_iter().map(|time| time.name).collect()
        };
        assert_eq!(found(2), ["0.25", "0.5"]);
        assert_eq!(found(4), [""; 0]);
        assert_eq!(found(0), ["0.25", "0.5", "0.75", "1"]);
    }
}
