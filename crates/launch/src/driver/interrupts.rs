//! The signals that end a job from outside, and those that are for its ranks.

use std::{
    future::{pending, ready},
    io,
};

use tokio::signal::unix::{self, SignalKind};

use super::{signals::is_ignored, suspension};

/// The signals by which users and batch systems end a job, or tell its ranks something.
pub(super) struct Signals {
    interrupt: Listener,
    terminate: Listener,
    hangup: Listener,
    quit: Listener,
    user: [Listener; 2],
    suspend: Listener,
    resume: Listener,
}

/// What a signal is for.
pub(super) enum Signalled {
    /// To end the job.
    End(i32),
    /// To go to all ranks.
    Forward(i32),
    /// To stop the job until it is let go on, as by ^Z.
    Suspend,
    /// To let it go on, as by fg. Whoever is not about to be stopped has gone on already.
    Resume,
}

/// Listens for one signal, if it does.
struct Listener {
    kind: SignalKind,
    signal: Option<unix::Signal>,
}

impl Signals {
    /// From now on these signals do not end this process, but are told. Some are not if whoever started us wants them ignored, as
    /// nohup(1) does.
    pub(super) fn listen() -> io::Result<Self> {
        let unless_ignored = |kind: SignalKind| match is_ignored(kind.as_raw_value()) {
            true => Ok(Listener { kind, signal: None }),
            false => Listener::new(kind),
        };
        let suspend = unless_ignored(SignalKind::from_raw(libc::SIGTSTP))?;
        let resume = SignalKind::from_raw(libc::SIGCONT);
        let resume = match suspend.signal {
            Some(_) => Listener::new(resume)?,
            None => Listener {
                kind: resume,
                signal: None,
            },
        };
        Ok(Self {
            interrupt: Listener::new(SignalKind::interrupt())?,
            terminate: Listener::new(SignalKind::terminate())?,
            hangup: unless_ignored(SignalKind::hangup())?,
            quit: unless_ignored(SignalKind::quit())?,
            user: [
                unless_ignored(SignalKind::user_defined1())?,
                unless_ignored(SignalKind::user_defined2())?,
            ],
            suspend,
            resume,
        })
    }

    /// Forgets what let this process go on after it was stopped: it is none of the next suspension.
    pub(super) async fn forget_resumed(&mut self) {
        // The runtime looks at what came.
        tokio::task::yield_now().await;
        tokio::select! {
            biased;
            _ = self.resume.next() => {}
            () = ready(()) => {}
        }
    }
}

impl Listener {
    fn new(kind: SignalKind) -> io::Result<Self> {
        let signal = Some(unix::signal(kind)?);
        Ok(Self { kind, signal })
    }

    /// The number of the signal, once it has come.
    async fn next(&mut self) -> i32 {
        if let Some(signal) = &mut self.signal
            && signal.recv().await.is_some()
        {
            return self.kind.as_raw_value();
        }
        pending().await
    }
}

/// The next signal; never one if none is listened for.
pub(super) async fn next_signal(signals: &mut Option<Signals>) -> Signalled {
    let Some(signals) = signals else {
        return pending().await;
    };
    let [user1, user2] = &mut signals.user;
    // Of signals that came together nothing tells the order. A stopped process whom nobody lets go on is worse than one that was
    // not stopped: so it is let go on last.
    tokio::select! {
        biased;
        signal = signals.interrupt.next() => Signalled::End(signal),
        signal = signals.terminate.next() => Signalled::End(signal),
        signal = signals.hangup.next() => Signalled::End(signal),
        signal = signals.quit.next() => Signalled::End(signal),
        signal = user1.next() => Signalled::Forward(signal),
        signal = user2.next() => Signalled::Forward(signal),
        _ = signals.suspend.next() => Signalled::Suspend,
        _ = signals.resume.next() => Signalled::Resume,
    }
}

/// The next signal that is to end the job, while there is no rank that could be told another.
pub(super) async fn next_ending_signal(signals: &mut Option<Signals>) -> i32 {
    loop {
        match next_signal(signals).await {
            Signalled::End(signal) => {
                suspension::call_off();
                return signal;
            }
            Signalled::Forward(_) => {}
            Signalled::Resume => suspension::call_off(),
            Signalled::Suspend => suspension::request(),
        }
    }
}
