//! What is to happen when something fails.

use anyhow::bail;
use ropewalk::launch::{OnFailure, OnStopped, RespawnPolicy, restart::RestartPolicy};

/// The value of `--on-failure`.
pub(super) fn on_failure(text: &str) -> anyhow::Result<OnFailure> {
    let counted = text.split_once('=').map(|(what, count)| (what, count.parse()));
    Ok(match (text, counted) {
        ("abort", _) => OnFailure::Abort,
        ("continue", _) => OnFailure::Continue,
        ("respawn", _) => OnFailure::Respawn(RespawnPolicy::default()),
        ("restart", _) => OnFailure::Restart(RestartPolicy::default()),
        (_, Some(("respawn", Ok(per_rank)))) => OnFailure::Respawn(RespawnPolicy {
            per_rank,
            ..RespawnPolicy::default()
        }),
        (_, Some(("restart", Ok(restarts)))) => OnFailure::Restart(RestartPolicy::at_most(restarts)),
        _ => bail!("option --on-failure wants abort, continue, respawn[=N] or restart[=N], not {text:?}"),
    })
}

/// The value of `--restart-limit`: how many attempts in a row may come to nothing.
pub(super) fn limit_restarts(on_failure: &mut OnFailure, attempts: u32) -> anyhow::Result<()> {
    match (on_failure, attempts) {
        (_, 0) => bail!("option --restart-limit wants 1 attempt at least"),
        (OnFailure::Restart(policy), attempts) => policy.in_vain_max = attempts,
        _ => bail!("option --restart-limit wants --on-failure restart"),
    }
    Ok(())
}

/// The value of `--stopped`.
pub(super) fn on_stopped(text: &str) -> anyhow::Result<OnStopped> {
    Ok(match text {
        "fail" => OnStopped::Fail,
        "notice" => OnStopped::Notice,
        _ => bail!("option --stopped wants notice or fail, not {text:?}"),
    })
}
