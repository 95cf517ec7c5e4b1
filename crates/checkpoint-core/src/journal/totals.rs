//! The sums over a journal.

use super::SECONDS_MAX;

/// The sums over starts that are over, and the sums of all saves and restores.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// How many seconds the program ran.
    pub exposure: f64,
    /// How often it failed.
    pub failures: u64,
    /// How many saves were made.
    pub saves: u64,
    /// How many seconds they took.
    pub save_seconds: f64,
    /// How often a save was restored.
    pub restores: u64,
    /// How many seconds that took.
    pub restore_seconds: f64,
    /// How many seconds lay between the last save, restore or start and each failure.
    pub lost: f64,
    /// How many of the failures were the loss of a host.
    pub hosts_lost: u64,
    /// How many saves failed.
    pub failed_saves: u64,
}

/// Saves fail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failing {
    /// How many did in a row, the last one included.
    pub count: u64,
    /// For how many seconds the program has run since its last save, restore or start: that much a failure would cost.
    pub unprotected: f64,
}

impl Totals {
    /// The sums since an earlier time, of which `before` are the totals.
    pub fn since(&self, before: &Self) -> Self {
        let since = |now: f64, before: f64| (now - before).max(0.0);
        Self {
            exposure: since(self.exposure, before.exposure),
            failures: self.failures.saturating_sub(before.failures),
            saves: self.saves.saturating_sub(before.saves),
            save_seconds: since(self.save_seconds, before.save_seconds),
            restores: self.restores.saturating_sub(before.restores),
            restore_seconds: since(self.restore_seconds, before.restore_seconds),
            lost: since(self.lost, before.lost),
            hosts_lost: self.hosts_lost.saturating_sub(before.hosts_lost),
            failed_saves: self.failed_saves.saturating_sub(before.failed_saves),
        }
    }

    /// The same within what is read again.
    pub(super) fn bounded(&self) -> Self {
        Self {
            exposure: self.exposure.min(SECONDS_MAX),
            save_seconds: self.save_seconds.min(SECONDS_MAX),
            restore_seconds: self.restore_seconds.min(SECONDS_MAX),
            lost: self.lost.min(SECONDS_MAX),
            ..*self
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.exposure += other.exposure;
        self.failures = self.failures.saturating_add(other.failures);
        self.saves = self.saves.saturating_add(other.saves);
        self.save_seconds += other.save_seconds;
        self.restores = self.restores.saturating_add(other.restores);
        self.restore_seconds += other.restore_seconds;
        self.lost += other.lost;
        self.hosts_lost = self.hosts_lost.saturating_add(other.hosts_lost);
        self.failed_saves = self.failed_saves.saturating_add(other.failed_saves);
    }
}
