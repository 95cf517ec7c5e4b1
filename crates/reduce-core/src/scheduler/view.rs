//! The sites as a scheduler knows them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Site, detours::Troubles};
use crate::{planner::Costs, rates::RateTable};

/// The sites as a seat knows them.
#[derive(Debug)]
pub(super) struct View {
    pub(super) lost: BTreeSet<Site>,
    /// Relative rates that were set, where they are not 1.
    pub(super) capacities: BTreeMap<Site, f64>,
    pub(super) rates: RateTable,
    /// Relative rates of the sites that are slow, as measured.
    pub(super) slow: BTreeMap<Site, f64>,
    pub(super) troubles: Troubles,
    pub(super) costs: Costs,
    pub(super) patience: Duration,
    /// The time of the last input.
    pub(super) now: Duration,
}

impl View {
    pub(super) fn new(costs: Costs, patience: Duration) -> Self {
        Self {
            lost: BTreeSet::new(),
            capacities: BTreeMap::new(),
            rates: RateTable::default(),
            slow: BTreeMap::new(),
            troubles: Troubles::default(),
            costs,
            patience,
            now: Duration::ZERO,
        }
    }

    pub(super) fn capacity(&self, site: Site) -> f64 {
        let set = self.capacities.get(&site).copied().unwrap_or(1.0);
        set * self.slow.get(&site).copied().unwrap_or(1.0)
    }

    /// Looks again at what was measured. Returns the sites that are far slower than they counted before.
    pub(super) fn measure(&mut self, now: Duration) -> BTreeSet<Site> {
        const FAR: f64 = 0.6;
        self.rates.judge(now);
        let slow = self.rates.slow(now);
        if let Some(usual) = self.rates.usual() {
            self.costs.rate = usual;
        }
        let counted = |site: &Site| self.slow.get(site).copied().unwrap_or(1.0);
        let fallen = slow.iter().filter(|(site, rate)| **rate < FAR * counted(site));
        let fallen = fallen.map(|(site, _)| *site).collect();
        self.slow = slow;
        fallen
    }
}
