//! The clients.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use ropewalk_rpc::{Address, CallOptions, Handle};

use crate::{ledger::Deposit, procedures::Put};

/// How a client calls: a restart takes much less than this.
const OPTIONS: CallOptions = CallOptions {
    retries: u32::MAX,
    idempotent: true,
    ..CallOptions::new(Duration::from_secs(20))
};

/// The deposits of one client: their number, their sum and the longest time that one took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) deposits: u64,
    pub(crate) amount: u64,
    pub(crate) longest: Duration,
}

/// A client that deposits as fast as it can, until it is told to stop.
pub(crate) struct Client {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Done>>,
}

impl Client {
    pub(crate) fn start(handle: Handle, server: Address, client: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let thread = thread::spawn(move || {
            let mut done = Done::default();
            while !told.load(Ordering::SeqCst) {
                let deposit = Deposit {
                    client,
                    number: done.deposits,
                    amount: 1 + done.deposits % 7,
                };
                let start = Instant::now();
                handle
                    .call_blocking::<Put>(&server, deposit, OPTIONS)
                    .with_context(|| format!("deposit {} of client {client}", done.deposits))?;
                done.longest = done.longest.max(start.elapsed());
                done.deposits += 1;
                done.amount += deposit.amount;
            }
            Ok(done)
        });
        Self { stop, thread }
    }

    /// Ends the client after its deposit in progress.
    pub(crate) fn stop(self) -> Result<Done> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().map_err(|_| anyhow!("a client panicked"))?
    }
}
