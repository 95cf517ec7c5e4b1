//! The pace at which a session's plans change because sites are slow.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::Site;

/// A change costs a row for each site, and what is under way in the old trees and has not passed the slow sites. It
/// pays where sites are slow for long. Where other programs come and go everywhere none pays, since the next slow site
/// bounds the new plan: so the time between two changes grows with the time that the session takes.
#[derive(Debug, Default)]
pub(super) struct Pace {
    begun: Option<Duration>,
    /// The session had lasted so long at the first change.
    first: Option<Duration>,
    /// No change before that.
    next: Duration,
    /// Sites that became slow since the last change.
    slow: BTreeSet<Site>,
    /// The sites that plans go around, and the parts of the usual rate that they reach. A verdict may run out while a
    /// session lasts, since nobody sends to a slow site any more: then the next change would bring the site back.
    gone_around: BTreeMap<Site, f64>,
}

impl Pace {
    /// After a change the next one comes when the session has lasted so many times as long, or later.
    const GROWTH: f64 = 1.5;

    /// A plan is made: the session begins, if it has not.
    pub(super) fn begin(&mut self, now: Duration) {
        self.begun.get_or_insert(now);
    }

    /// When the next change comes, if there is a reason for one.
    pub(super) fn due(&self) -> Option<Duration> {
        (!self.slow.is_empty()).then_some(self.next)
    }

    /// How long the session had lasted at the first change: until then its trees had begun to stream.
    pub(super) fn first(&self) -> Duration {
        self.first.unwrap_or_default()
    }

    /// The part of the usual rate that a site counts with: of 1, if plans do not go around it.
    pub(super) fn part(&self, site: Site) -> f64 {
        self.gone_around.get(&site).copied().unwrap_or(1.0)
    }

    /// Takes the sites that have become slow, and all that are slow now. Returns those to go around from now on.
    pub(super) fn take(
        &mut self,
        now: Duration,
        fallen: BTreeSet<Site>,
        slow: &BTreeMap<Site, f64>,
    ) -> BTreeSet<Site> {
        self.slow.extend(fallen);
        self.slow.retain(|site| slow.contains_key(site));
        let Some(begun) = self.begun.filter(|_| !self.slow.is_empty()) else {
            return BTreeSet::new();
        };
        if now < self.next {
            return BTreeSet::new();
        }
        let lasted = now.saturating_sub(begun);
        self.first.get_or_insert(lasted);
        self.next = begun + lasted.mul_f64(Self::GROWTH);
        self.gone_around.extend(slow);
        std::mem::take(&mut self.slow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first change comes at once, later ones after ever longer times, with all sites that have become slow since.
    #[test]
    fn changes_become_rare() {
        let mut pace = Pace::default();
        let at = |millis: u64| Duration::from_millis(1_000 + millis);
        pace.begin(at(0));
        pace.begin(at(5));
        let mut changes = Vec::new();
        for millis in 0..200 {
            let fallen = match millis {
                0..20 => BTreeSet::new(),
                _ => BTreeSet::from([Site(millis as u32)]),
            };
            let known = (0..200).map(|site| (Site(site), 0.1)).collect();
            let slow = pace.take(at(millis), fallen, &known);
            if !slow.is_empty() {
                changes.push((millis, slow.len()));
            }
        }
        assert_eq!(
            changes,
            [(20, 1), (30, 10), (45, 15), (68, 23), (102, 34), (153, 51)]
        );
        assert_eq!(pace.due(), Some(at(229) + Duration::from_micros(500)));
        assert_eq!((pace.part(Site(1)), pace.part(Site(200))), (0.1, 1.0));
        // Those that are not slow any more are forgotten, if no plan went around them.
        assert!(pace.take(at(199), BTreeSet::new(), &BTreeMap::new()).is_empty());
        assert_eq!(pace.due(), None);
    }
}
