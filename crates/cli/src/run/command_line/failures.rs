//! The policy for failures, and limits of time.

use std::time::Duration;

use anyhow::bail;
use ropewalk_launch::{Injection, OnFailure, RespawnPolicy, Stall, restart::RestartPolicy};

use super::given::Given;
use crate::times::{TIMES, duration};

/// Options that say something about others.
#[derive(Default)]
pub(super) struct Failures {
    /// How many attempts in a row may come to nothing.
    pub(super) restart_limit: Option<u32>,
    pub(super) injected_after: Option<Duration>,
    pub(super) seed: u64,
}

impl Failures {
    pub(super) fn finish(&self, on_failure: &mut OnFailure) -> anyhow::Result<Option<Injection>> {
        match (self.restart_limit, on_failure) {
            (None, _) => {}
            (Some(0), _) => bail!("option --restart-limit wants 1 attempt at least"),
            (Some(attempts), OnFailure::Restart(policy)) => policy.in_vain_max = attempts,
            (Some(_), _) => bail!("option --restart-limit wants --on-failure restart"),
        }
        let seed = self.seed;
        Ok(self.injected_after.map(|mtbf| Injection { mtbf, seed }))
    }
}

/// The value of `--on-failure`.
pub(super) fn on_failure(given: &mut Given<'_>) -> anyhow::Result<OnFailure> {
    let text = given.text()?;
    let counted = text.split_once('=').map(|(what, count)| (what, count.parse()));
    Ok(match (text.as_str(), counted) {
        ("abort", _) => OnFailure::Abort,
        ("continue", _) => OnFailure::Continue,
        ("respawn", _) => OnFailure::Respawn(RespawnPolicy::default()),
        ("restart", _) => OnFailure::Restart(RestartPolicy::default()),
        (_, Some(("respawn", Ok(per_rank)))) => OnFailure::Respawn(RespawnPolicy {
            per_rank,
            ..RespawnPolicy::default()
        }),
        (_, Some(("restart", Ok(restarts)))) => OnFailure::Restart(RestartPolicy::at_most(restarts)),
        _ => return Err(given.wants("abort, continue, respawn[=N] or restart[=N]", &text)),
    })
}

/// The value of `--stall`: never for 0 too.
pub(super) fn stall(given: &mut Given<'_>) -> anyhow::Result<Stall> {
    let text = given.text()?;
    match duration(&text) {
        Some(Duration::ZERO) => Ok(Stall::Never),
        Some(limit) => Ok(Stall::After(limit)),
        None if text == "off" => Ok(Stall::Never),
        None => Err(given.wants(&format!("off or {TIMES}"), &text)),
    }
}

/// The value of `MPIEXEC_TIMEOUT`: as for Hydra, no limit if it is empty or negative.
pub(super) fn time_limit(given: &mut Given<'_>) -> anyhow::Result<Option<Duration>> {
    let text = given.text()?;
    if text.is_empty() || text.parse().is_ok_and(|seconds: f64| seconds < 0.0) {
        return Ok(None);
    }
    let limit = duration(&text).ok_or_else(|| given.wants(TIMES, &text))?;
    Ok(Some(limit))
}
