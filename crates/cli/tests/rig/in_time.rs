//! Faults that are to be named within a promised time, also where tests run beside each other on few cores.

use std::time::Duration;

/// The promise about a fault that only silence, or the end of a grace period, tells of: a `--detect` of a second, and
/// another second.
pub(crate) const LIMIT: Duration = Duration::from_secs(2);
/// How often a fault is made at most.
pub(crate) const TRIES: u32 = 3;
/// As many of them have to be in time: one may be by chance.
const ENOUGH: u32 = 2;

/// Makes the fault until it was often enough named in time, or too often too late. `make` returns the time until it was
/// named.
pub(crate) fn assert_in_time(limit: Duration, tries: u32, mut make: impl FnMut() -> Duration) {
    let (mut late, mut in_time) = (Vec::new(), 0);
    while in_time < ENOUGH {
        let time = make();
        if time <= limit {
            in_time += 1;
            continue;
        }
        late.push(time);
        let left = tries - late.len() as u32;
        assert!(left >= ENOUGH, "took {late:?} and not at most {limit:?}");
    }
}
