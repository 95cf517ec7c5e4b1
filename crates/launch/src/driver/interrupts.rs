//! The signals that end a job from outside.

use std::{fs, io};

use tokio::signal::unix::{self, SignalKind};

/// The signals by which users and batch systems end a job.
pub(super) struct Signals {
    /// Not if whoever started us wants it ignored, as nohup(1) does.
    hangup: Option<unix::Signal>,
    interrupt: unix::Signal,
    terminate: unix::Signal,
}

impl Signals {
    /// From now on these signals do not end this process, but are told.
    pub(super) fn listen() -> io::Result<Self> {
        let hangup = SignalKind::hangup();
        Ok(Self {
            hangup: match is_ignored(hangup) {
                true => None,
                false => Some(unix::signal(hangup)?),
            },
            interrupt: unix::signal(SignalKind::interrupt())?,
            terminate: unix::signal(SignalKind::terminate())?,
        })
    }
}

/// Whether this process ignores a signal so far, as /proc has it (proc(5)).
fn is_ignored(kind: SignalKind) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask >> (kind.as_raw_value() - 1) & 1 == 1)
}

/// The number of the next signal; never one if none is listened for.
pub(super) async fn next_signal(signals: &mut Option<Signals>) -> i32 {
    let Some(signals) = signals else {
        return std::future::pending().await;
    };
    let hangup = async {
        match &mut signals.hangup {
            Some(hangup) => hangup.recv().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        Some(()) = hangup => SignalKind::hangup().as_raw_value(),
        Some(()) = signals.interrupt.recv() => SignalKind::interrupt().as_raw_value(),
        Some(()) = signals.terminate.recv() => SignalKind::terminate().as_raw_value(),
    }
}
