//! The server, and how it takes the place of another.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use ropewalk_rpc::{Address, Buffer, Engine, RegionHandle};

use crate::{
    job::{Key, engine},
    ledger::Ledger,
    procedures::{Balance, HandOver, Leave, Put},
};

/// How long anything between the two servers may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How often a deposit that waits looks whether the server goes on after all.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The state that the handlers share.
#[derive(Default)]
struct Serving {
    ledger: Ledger,
    /// Whom the ledger was given to, who may take this server's place any moment.
    successor: Option<Successor>,
    leaves: bool,
}

struct Successor {
    address: Address,
    region: RegionHandle,
    /// When it is no longer believed to come.
    until: Instant,
}

type Shared = Arc<Mutex<Serving>>;

/// Serves at this port, or at any, until a successor has taken over. `ready` is told the address.
pub(crate) fn serve(key: Key, port: u16, ready: impl FnOnce(&Address)) -> Result<()> {
    run(engine(key, 0, port)?, Ledger::default(), ready)
}

/// Takes the place of the server at `old`, and then serves there.
pub(crate) fn take_over(key: Key, old: &Address, ready: impl FnOnce(&Address)) -> Result<()> {
    let mut beside = engine(key, 0, 0)?;
    let call = beside.call::<HandOver>(old, &(), TIMEOUT)?;
    let region = beside
        .block_on(call)
        .context("the old server does not hand over")?;
    let length = usize::try_from(region.length).context("the ledger is too large for this machine")?;
    let pull = beside.pull(&region, 0, Buffer::zeroed(length), TIMEOUT)?;
    let encoded = beside.block_on(pull).context("cannot get the ledger")?;
    let ledger = postcard::from_bytes(&encoded).context("the ledger is of another version")?;
    beside.notify::<Leave>(old, &())?;
    beside.flush(TIMEOUT);
    let deadline = Instant::now() + TIMEOUT;
    let port = old
        .location()
        .rsplit(':')
        .next()
        .and_then(|port| port.parse().ok());
    let port = port.with_context(|| format!("{old} has no port"))?;
    let engine = loop {
        match engine(key, 0, port) {
            Ok(engine) => break engine,
            Err(_) if Instant::now() < deadline => sleep(Duration::from_millis(1)),
            Err(error) => return Err(error.context("the old server does not leave")),
        }
    };
    run(engine, ledger, ready)
}

fn run(mut engine: Engine, ledger: Ledger, ready: impl FnOnce(&Address)) -> Result<()> {
    let serving = Shared::default();
    lock(&serving).ledger = ledger;
    register(&mut engine, &serving);
    ready(engine.address());
    while !lock(&serving).leaves {
        engine.wait(LOOK_AGAIN);
        give_up_lost_successor(&mut engine, &mut lock(&serving));
    }
    // The answers to what was counted; what waits to be counted goes to the successor.
    if !engine.flush(TIMEOUT) {
        bail!("not all answers could be sent");
    }
    Ok(())
}

fn register(engine: &mut Engine, serving: &Shared) {
    let shared = serving.clone();
    engine.serve_async::<Put, _>(move |context, deposit| {
        let shared = shared.clone();
        async move {
            // When this server leaves, this is dropped with it, and the client turns to the successor.
            while lock(&shared).successor.is_some() {
                context.handle().sleep(LOOK_AGAIN).await;
            }
            lock(&shared).ledger.deposit(deposit);
            Ok(())
        }
    });
    let shared = serving.clone();
    engine.serve::<Balance>(move |_, ()| Ok(lock(&shared).ledger.balance()));
    let shared = serving.clone();
    engine.serve_later::<HandOver>(move |engine, caller, (), responder| {
        let mut serving = lock(&shared);
        let encoded = postcard::to_extend(&serving.ledger, Vec::new()).map(Bytes::from);
        let encoded = encoded.expect("a ledger is plain data");
        let region = engine.expose(encoded);
        let successor = Successor {
            address: caller.address().clone(),
            region: region.clone(),
            until: Instant::now() + TIMEOUT,
        };
        if let Some(earlier) = serving.successor.replace(successor) {
            engine.withdraw(&earlier.region);
        }
        responder.answer(Ok(region));
    });
    let shared = serving.clone();
    engine.serve::<Leave>(move |caller, ()| {
        let mut serving = lock(&shared);
        // One that came too late has an old ledger, and must not take over.
        let successor = serving.successor.as_ref();
        serving.leaves |= successor.is_some_and(|successor| successor.address == *caller.address());
        Ok(())
    });
}

/// If the successor died, or does not come, this server goes on.
fn give_up_lost_successor(engine: &mut Engine, serving: &mut Serving) {
    let lost: Vec<_> = std::iter::from_fn(|| engine.poll_lost_peer()).collect();
    let is_lost = |successor: &mut Successor| {
        successor.until <= Instant::now() || lost.iter().any(|peer| peer.address == successor.address)
    };
    if !serving.leaves
        && let Some(successor) = serving.successor.take_if(is_lost)
    {
        engine.withdraw(&successor.region);
    }
}

fn lock(serving: &Shared) -> std::sync::MutexGuard<'_, Serving> {
    // Nothing panics while it is held.
    serving.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::ledger::Deposit;

    /// A server whose successor dies after it got the ledger goes on, and counts what waited meanwhile; one that
    /// has left counts no more.
    #[test]
    fn a_lost_successor_is_given_up() -> Result<()> {
        let key = Key::generate()?;
        let (sender, address) = mpsc::channel();
        let server = std::thread::spawn(move || serve(key, 0, |address| drop(sender.send(address.clone()))));
        let server_address = address.recv()?;
        let mut client = engine(key, 1, 0)?;
        let mut deposit = |number, timeout| -> Result<()> {
            let deposit = Deposit {
                client: 0,
                number,
                amount: 1,
            };
            let call = client.call::<Put>(&server_address, &deposit, timeout)?;
            Ok(client.block_on(call)?)
        };
        deposit(0, TIMEOUT)?;
        for leaves in [false, true] {
            let mut successor = engine(key, 2, 0)?;
            let call = successor.call::<HandOver>(&server_address, &(), TIMEOUT)?;
            successor.block_on(call)?;
            assert!(
                deposit(1, LOOK_AGAIN * 10).is_err(),
                "it is counted although the ledger is given away"
            );
            if leaves {
                successor.notify::<Leave>(&server_address, &())?;
                successor.flush(TIMEOUT);
                break;
            }
            drop(successor);
            deposit(2, TIMEOUT)?;
        }
        server.join().expect("the server does not panic")?;
        assert!(deposit(3, TIMEOUT).is_err(), "nobody is there to count it");
        Ok(())
    }
}
