//! The signals that end a job from outside.

use std::io;

use tokio::signal::unix::{self, SignalKind};

use super::signals::is_ignored;

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
            hangup: match is_ignored(hangup.as_raw_value()) {
                true => None,
                false => Some(unix::signal(hangup)?),
            },
            interrupt: unix::signal(SignalKind::interrupt())?,
            terminate: unix::signal(SignalKind::terminate())?,
        })
    }
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
