//! The signals that end a job from outside, those that are for its ranks, and ^Z, which stops the launcher.

use std::{
    future::{pending, ready},
    io,
    pin::pin,
    sync::LazyLock,
    time::{Duration, Instant},
};

use tokio::{
    signal::unix::{self, SignalKind},
    sync::watch,
    task::yield_now,
};

use super::signals::{is_ignored, stop_this_process};

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

/// The purpose of a signal.
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
    /// From now on these signals do not end this process, but are told, unless whoever started it wants them ignored,
    /// as nohup(1) and a shell without job control do.
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
            interrupt: unless_ignored(SignalKind::interrupt())?,
            terminate: unless_ignored(SignalKind::terminate())?,
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

    /// Forgets the signals that stopped this process and let it go on.
    async fn forget_stop(&mut self) {
        // The runtime looks at what came.
        yield_now().await;
        for listener in [&mut self.suspend, &mut self.resume] {
            tokio::select! {
                biased;
                _ = listener.next() => {}
                () = ready(()) => {}
            }
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
    // Of signals that came together nothing tells the order. A stopped process whom nobody lets go on is worse than
    // one that was not stopped: so it is let go on last.
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
                call_off();
                return signal;
            }
            Signalled::Forward(_) => {}
            Signalled::Resume => call_off(),
            Signalled::Suspend => suspend(),
        }
    }
}

/// This process, which may run several jobs, and is stopped for all of them together.
#[derive(Debug, Default)]
struct Process {
    /// Its user wants it stopped, and it has not been since.
    is_to_stop: bool,
    runs: usize,
    /// Runs whose agents have heard that it is to be stopped.
    ready: usize,
    /// How long it was stopped, all in all.
    stopped: Duration,
}

static PROCESS: LazyLock<watch::Sender<Process>> = LazyLock::new(watch::Sender::default);

impl Process {
    /// Stops this process if all its runs are ready. Returns when it goes on; meanwhile no thread of it does
    /// anything.
    fn stop_if_ready(&mut self) {
        if self.is_to_stop && self.ready == self.runs {
            let begun = Instant::now();
            stop_this_process();
            self.stopped += begun.elapsed();
            self.is_to_stop = false;
        }
    }
}

/// The user wants this process stopped. It is as soon as all its runs are ready: at once, if it has none.
pub(super) fn suspend() {
    PROCESS.send_modify(|process| {
        process.is_to_stop = true;
        process.stop_if_ready();
    });
}

/// The user does not want it stopped after all.
fn call_off() {
    PROCESS.send_modify(|process| process.is_to_stop = false);
}

/// How long this process was stopped, all in all.
pub(super) fn stopped() -> Duration {
    PROCESS.borrow().stopped
}

/// One run of a job by this process, which is not stopped before that run is ready.
pub(super) struct RunInProcess {
    process: watch::Receiver<Process>,
}

impl Default for RunInProcess {
    fn default() -> Self {
        PROCESS.send_modify(|process| process.runs += 1);
        let process = PROCESS.subscribe();
        Self { process }
    }
}

impl RunInProcess {
    /// Waits until this process is to be stopped: then call [`stop_after`](Self::stop_after).
    pub(super) async fn is_to_stop(&mut self) {
        // It never fails: the sender is static.
        let _ = self.process.wait_for(|process| process.is_to_stop).await;
    }

    /// Lets this process be stopped after the agents have `heard` of that. Returns when it goes on, and how long it was
    /// stopped. Of the signals that come before, any but another ^Z calls the stop off, and is returned.
    pub(super) async fn stop_after(
        &mut self,
        heard: impl Future<Output = ()>,
        signals: &mut Option<Signals>,
    ) -> (Duration, Option<Signalled>) {
        let stopped_before = stopped();
        let mut gone_on = pin!(async {
            heard.await;
            let _ready = Ready::new();
            let _ = self.process.wait_for(|process| !process.is_to_stop).await;
        });
        let signal = loop {
            tokio::select! {
                biased;
                signal = next_signal(signals) => match signal {
                    Signalled::Suspend => {}
                    signal => break Some(signal),
                },
                () = &mut gone_on => break None,
            }
        };
        match (&signal, signals) {
            (Some(_), _) => call_off(),
            (None, Some(signals)) => signals.forget_stop().await,
            (None, None) => {}
        }
        (stopped() - stopped_before, signal)
    }
}

impl Drop for RunInProcess {
    fn drop(&mut self) {
        PROCESS.send_modify(|process| {
            process.runs -= 1;
            process.stop_if_ready();
        });
    }
}

/// A run that is ready for the stop, as long as this is there.
struct Ready;

impl Ready {
    fn new() -> Self {
        PROCESS.send_modify(|process| {
            process.ready += 1;
            process.stop_if_ready();
        });
        Self
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        PROCESS.send_modify(|process| process.ready -= 1);
    }
}
