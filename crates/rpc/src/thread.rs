//! Driving an engine by a thread of its own.

use std::{
    any::Any,
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use ropewalk_fabric::Waker;
use thiserror::Error;

use crate::{Engine, Handle};

/// A thread that drives one engine, from other threads used by its [`Handle`].
///
/// Dropping the driver stops the thread and drops the engine; what was in progress ends as stopped. It waits
/// for a handler in progress, but not longer than [`STOP_TIMEOUT`](Self::STOP_TIMEOUT).
pub struct Driver {
    shared: Arc<Shared>,
    waker: Waker,
    running: Option<Running>,
}

struct Running {
    thread: JoinHandle<()>,
    /// Gives the engine when the thread has stopped, and nothing if it panicked.
    stopped: Receiver<Engine>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
}

/// Why a driver gave no engine back.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DriverError {
    /// A handler, or something submitted, panicked, and the engine is gone.
    #[error("the thread that drove the engine panicked: {message}")]
    Panicked {
        /// The message of the panic.
        message: String,
    },
    /// A handler did not return in time. The thread stops when it does.
    #[error("a handler did not return within {timeout:?}")]
    TimedOut {
        /// How long it was waited for.
        timeout: Duration,
    },
}

impl Driver {
    /// How long dropping a driver waits for its thread.
    pub const STOP_TIMEOUT: Duration = Duration::from_secs(5);

    /// Starts a thread that drives the engine until the driver is stopped or dropped.
    ///
    /// # Errors
    /// If the operating system gives no thread.
    pub fn spawn(engine: Engine) -> io::Result<(Self, Handle)> {
        let handle = engine.handle();
        let waker = engine.waker();
        let shared = Arc::new(Shared::default());
        let (sender, stopped) = sync_channel(1);
        let told = shared.clone();
        let thread = thread::Builder::new()
            .name("ropewalk-rpc".to_owned())
            .spawn(move || {
                let mut engine = engine;
                while !told.stop.load(Ordering::SeqCst) {
                    engine.wait(Duration::from_secs(1));
                }
                // Nobody wants it if the driver was dropped meanwhile.
                let _ = sender.send(engine);
            })?;
        let running = Some(Running { thread, stopped });
        let driver = Self {
            shared,
            waker,
            running,
        };
        Ok((driver, handle))
    }

    /// Stops the thread and gives the engine back, to be flushed or driven otherwise.
    ///
    /// # Errors
    /// If a handler panicked, or did not return within `timeout`.
    pub fn stop(mut self, timeout: Duration) -> Result<Engine, DriverError> {
        self.stop_within(timeout)
            .expect("a driver runs until it is stopped, which is done once")
    }

    fn stop_within(&mut self, timeout: Duration) -> Option<Result<Engine, DriverError>> {
        let running = self.running.take()?;
        self.shared.stop.store(true, Ordering::SeqCst);
        self.waker.wake();
        Some(match running.stopped.recv_timeout(timeout) {
            Ok(engine) => {
                // It has nothing left to do but to end.
                let _ = running.thread.join();
                Ok(engine)
            }
            Err(RecvTimeoutError::Timeout) => Err(DriverError::TimedOut { timeout }),
            Err(RecvTimeoutError::Disconnected) => Err(DriverError::Panicked {
                message: running
                    .thread
                    .join()
                    .map_or_else(|panic| panic_message(&*panic), |()| "without a word".to_owned()),
            }),
        })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Whether it ended well was for `stop` to ask.
        drop(self.stop_within(Self::STOP_TIMEOUT));
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let owned = || panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(owned).unwrap_or("without a word").to_owned()
}
