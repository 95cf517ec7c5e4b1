//! The end of a run.

use super::{CAUTION, forecast::Forecast};
use crate::policy::Reason;

/// The end of a run, if something is known of it.
#[derive(Clone, Debug)]
pub(super) struct RunEnd {
    pub(super) remaining_steps: Option<u64>,
    /// When the time of the job is over.
    limit: Option<f64>,
    pub(super) notice: Option<Notice>,
}

/// The job will be ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Notice {
    pub(super) end: f64,
    pub(super) is_saved: bool,
}

impl RunEnd {
    pub(super) fn new(remaining_steps: Option<u64>, limit: Option<f64>) -> Self {
        Self {
            remaining_steps,
            limit,
            notice: None,
        }
    }

    /// A step is over.
    pub(super) fn step(&mut self) {
        self.remaining_steps = self.remaining_steps.map(|steps| steps.saturating_sub(1));
    }

    /// Some steps have to be done again.
    pub(super) fn lose(&mut self, steps: u64) {
        self.remaining_steps = self
            .remaining_steps
            .map(|remaining| remaining.saturating_add(steps));
    }

    /// The job will be ended at this time.
    pub(super) fn announce(&mut self, end: f64) {
        self.notice = Some(Notice { end, is_saved: false });
    }

    /// A save protects.
    pub(super) fn save_committed(&mut self) {
        if let Some(notice) = &mut self.notice {
            notice.is_saved = true;
        }
    }

    /// The time of the job is over at `limit`, or earlier if that is known.
    pub(super) fn limit_to(&mut self, limit: f64) {
        self.limit = Some(self.limit.map_or(limit, |before| before.min(limit)));
    }

    /// The time until the last step is done, in seconds.
    pub(super) fn remaining(&self, forecast: &Forecast) -> Option<f64> {
        Some(self.remaining_steps? as f64 * forecast.mean())
    }

    /// The reason for an advice that follows from the limit alone. Nearly all saves take less than `save` seconds;
    /// `is_saved` if nothing was computed since the last full one.
    pub(super) fn advice_at_limit(
        &self,
        now: f64,
        forecast: &Forecast,
        save: f64,
        is_saved: bool,
    ) -> Option<Reason> {
        let limit = self.limit?;
        let is_finished_in_time = |remaining| now + remaining * CAUTION < limit;
        if self.remaining(forecast).is_some_and(is_finished_in_time) {
            return None;
        }
        let last_start = limit - save;
        if now > last_start {
            return Some(Reason::NoTimeLeft);
        }
        let is_near = now + forecast.next() * CAUTION > last_start;
        (is_near && !is_saved).then_some(Reason::LimitIsNear)
    }
}
