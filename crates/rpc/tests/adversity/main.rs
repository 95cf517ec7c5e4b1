//! Others that do harm to an engine: they speak another version or garbage, do not read, fork, and use up the
//! descriptors.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod corrupted_frame;
mod descriptors_exhausted;
#[path = "../behaviours/every_transport.rs"]
mod every_transport;
mod fork_after_start;
mod forking;
#[path = "../behaviours/listed.rs"]
mod listed;
#[path = "../behaviours/settings.rs"]
mod settings;
mod slow_consumer;
mod version_mismatch;

use std::time::{Duration, Instant};

use every_transport::{each_over, on_every_transport, spinning_and_sleeping};
use ropewalk_names::{Incarnation, JobId, Rank};
use ropewalk_rpc::{Call, CallError, Endpoint, EndpointOptions, Engine, Identity, JobKey, Procedure, Role};
use settings::Waiting;

/// Longer than anything takes on a loaded machine.
const LONG: Duration = Duration::from_secs(30);

/// Does nothing.
struct Null;

impl Procedure for Null {
    const NAME: &'static str = "test.null";
    type Input = ();
    type Output = ();
}

/// Is never answered.
struct Hang;

impl Procedure for Hang {
    const NAME: &'static str = "test.hang";
    type Input = ();
    type Output = ();
}

fn options(rank: u32) -> EndpointOptions {
    let identity = Identity {
        role: Role::Rank,
        rank: Rank(rank),
        incarnation: Incarnation(0),
    };
    let mut options = EndpointOptions::new(JobId([1; 16]), JobKey::from_bytes([2; 32]), identity);
    options.transports = settings::transports();
    options
}

/// An engine that serves what the tests call.
fn engine(rank: u32) -> Engine {
    let mut engine = Engine::new(Endpoint::bind(options(rank)).unwrap());
    engine.serve::<Null>(|_, ()| Ok(()));
    let mut held = Vec::new();
    engine.serve_later::<Hang>(move |_, _, (), responder| held.push(responder));
    engine
}

/// Drives all of them until there is what is wanted.
fn drive<T>(engines: &mut [&mut Engine], mut wanted: impl FnMut(&mut [&mut Engine]) -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        let happened: usize = engines.iter_mut().map(|engine| engine.progress()).sum();
        if let Some(found) = wanted(engines) {
            return found;
        }
        if happened == 0 && settings::waiting() == Waiting::Sleeping {
            settings::sleep(engines);
        }
        assert!(start.elapsed() < LONG, "what was waited for did not happen");
    }
}

fn finish<O: serde::de::DeserializeOwned>(
    engines: &mut [&mut Engine],
    mut call: Call<O>,
) -> Result<O, CallError> {
    drive(engines, |_| call.try_take())
}

/// A null call from one to the other.
fn call(origin: &mut Engine, target: &mut Engine) -> Result<(), CallError> {
    let call = origin.call::<Null>(target.address(), &(), LONG)?;
    finish(&mut [origin, target], call)
}
