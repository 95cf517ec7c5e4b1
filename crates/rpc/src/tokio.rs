//! Driving an engine by a task of tokio.

#[allow(unsafe_code, reason = "the runtime asks for a promise about the descriptor")]
mod watched;

use std::{
    convert::Infallible,
    future::{pending, poll_fn},
    io,
    os::fd::AsFd,
    pin::pin,
    task::Poll,
    time::Instant,
};

use ::tokio::{task::yield_now, time::sleep_until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::watched::watch;
use crate::Engine;

/// How often the engine is driven before other tasks of the runtime have their turn.
const ROUNDS_MAX: usize = 16;

/// Drives the engine for as long as the future lives, usually in a task of its own, while others use its
/// [`Handle`](crate::Handle). Dropping the future drops the engine; to have it back use [`drive_until`].
///
/// It needs a runtime with I/O and time, current-thread or not. It does not spin: what waits is awaited in
/// the runtime, so that its other tasks go on.
///
/// # Errors
/// If the runtime cannot watch the engine's descriptor.
///
/// # Panics
/// With the panic of a handler.
///
/// # Example
/// ```
/// # use std::time::Duration;
/// # use ropewalk_names::{Incarnation, JobId, Rank};
/// # use ropewalk_rpc::{Endpoint, EndpointOptions, Engine, Identity, JobKey, Procedure, Role};
/// # struct Add;
/// # impl Procedure for Add {
/// #     const NAME: &'static str = "example.add";
/// #     type Input = (u32, u32);
/// #     type Output = u32;
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let identity = Identity { role: Role::Rank, rank: Rank(0), incarnation: Incarnation(0) };
/// # let options = EndpointOptions::new(JobId([7; 16]), JobKey::generate()?, identity);
/// let mut engine = Engine::new(Endpoint::bind(options)?);
/// engine.serve::<Add>(|_caller, (a, b)| Ok(a + b));
/// let handle = engine.handle();
/// let driver = tokio::spawn(ropewalk_rpc::tokio::drive(engine));
///
/// let target = handle.address().clone();
/// let sum = handle.call::<Add>(&target, (2, 3), Duration::from_secs(5)).await?;
/// assert_eq!(sum, 5);
/// driver.abort();
/// # Ok(())
/// # }
/// ```
pub async fn drive(engine: Engine) -> io::Result<Infallible> {
    match drive_until(engine, pending::<Infallible>()).await {
        Ok((_, never)) => match never {},
        Err(error) => Err(error),
    }
}

/// Drives the engine until `stop` is ready, and gives it back with what that gave. What was queued may not
/// have been sent by then; see [`Engine::flush`].
///
/// # Errors
/// As for [`drive`].
///
/// # Panics
/// As for [`drive`].
pub async fn drive_until<S: Future>(mut engine: Engine, stop: S) -> io::Result<(Engine, S::Output)> {
    let mut stop = pin!(stop);
    let descriptor = watch(&engine)?;
    let mut rounds = 0;
    loop {
        if let Poll::Ready(output) = poll_fn(|context| Poll::Ready(stop.as_mut().poll(context))).await {
            return Ok((engine, output));
        }
        rounds += 1;
        if engine.progress() > 0 {
            if rounds >= ROUNDS_MAX {
                rounds = 0;
                yield_now().await;
            }
            continue;
        }
        rounds = 0;
        let deadline = engine.next_deadline();
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            yield_now().await;
            continue;
        }
        let overdue = async {
            match deadline {
                Some(deadline) => sleep_until(deadline.into()).await,
                None => pending().await,
            }
        };
        ::tokio::select! {
            output = &mut stop => return Ok((engine, output)),
            () = overdue => {}
            guard = descriptor.readable() => {
                let mut guard = guard?;
                // The runtime hears of a change only, and the engine may leave some of what there is: as long as
                // there is something the runtime must not wait for the next.
                if !is_readable(descriptor.get_ref())? {
                    guard.clear_ready();
                }
            }
        }
    }
}

fn is_readable(descriptor: &impl AsFd) -> io::Result<bool> {
    let mut polled = [PollFd::new(descriptor, PollFlags::IN)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    Ok(poll(&mut polled, Some(&at_once))? > 0)
}
