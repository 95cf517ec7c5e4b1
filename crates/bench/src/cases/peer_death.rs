//! How soon calls to a dead target end.

use std::time::{Duration, Instant};

use anyhow::ensure;
use ropewalk_rpc::JobKey;
use rustix::process::Signal;

use super::Case;
use crate::{
    floors::{
        Floor,
        shared_memory::Owner,
        sockets::{Asking, Service, Waiting},
    },
    origin::Origin,
    protocol::Touch,
    provider::Provider,
    row::{Row, Unit},
    rows::Rows,
    timing::Pace,
};

/// SIGKILL, once of a small target and once of one that has much memory to give back. Floor: what tells of it
/// first, the target's robust mutex on the same host, and the end of a TCP connection elsewhere.
pub(super) fn killed(key: &JobKey, provider: &Provider, pace: &Pace, rows: &mut Rows) -> anyhow::Result<()> {
    for touched in [0, MUCH_MEMORY] {
        let pace = Pace {
            rounds: pace.rounds.min(ROUNDS_MAX),
            ..*pace
        };
        let mut carrier = provider.to_string();
        let measured = pace.measure(
            &mut carrier,
            |_, _| floor(key, provider, touched),
            |carrier, _| {
                let mut origin = victim(key, provider, touched)?;
                origin.provider().clone_into(carrier);
                Ok(milliseconds(end(&mut origin, Signal::KILL)?))
            },
        )?;
        let mode = if touched == 0 { "small" } else { "512 MiB touched" };
        rows.add(Row {
            case: Case::PeerKilled.name(),
            provider: carrier.clone(),
            mode: mode.to_owned(),
            size: Some(touched),
            in_flight: Some(IN_FLIGHT as u64),
            value: measured.value,
            least: Some(measured.least),
            most: Some(measured.most),
            unit: Unit::Milliseconds,
            floor: measured.floor,
        });
    }
    Ok(())
}

/// SIGSTOP, which nothing but silence tells of.
pub(super) fn stopped(key: &JobKey, provider: &Provider, rows: &mut Rows) -> anyhow::Result<()> {
    let mut origin = victim(key, provider, 0)?;
    let took = end(&mut origin, Signal::STOP)?;
    rows.add(Row {
        case: Case::PeerStopped.name(),
        provider: origin.provider().to_owned(),
        mode: "default heartbeat".to_owned(),
        size: None,
        in_flight: Some(IN_FLIGHT as u64),
        value: milliseconds(took),
        least: None,
        most: None,
        unit: Unit::Milliseconds,
        floor: None,
    });
    Ok(())
}

fn victim(key: &JobKey, provider: &Provider, touched: u64) -> anyhow::Result<Origin> {
    let mut origin = Origin::start(key, provider)?;
    // In pieces: a target that finds memory for all at once may take longer than heartbeats allow it to be silent.
    let mut left = touched;
    while left > 0 {
        let piece = left.min(TOUCHED_AT_ONCE);
        origin.ask::<Touch>(&piece)?;
        left -= piece;
    }
    Ok(origin)
}

/// How long it takes from the signal until all calls have ended.
fn end(origin: &mut Origin, signal: Signal) -> anyhow::Result<Duration> {
    let hanging = origin.hang(IN_FLIGHT)?;
    let start = Instant::now();
    origin.process()?.signal(signal)?;
    origin.wait_for_death(hanging, start)
}

fn floor(key: &JobKey, provider: &Provider, touched: u64) -> anyhow::Result<f64> {
    let mut origin = victim(key, provider, touched)?;
    if origin.shares_memory() {
        let mutex = origin.shared(Floor::Mutex)?;
        let start = Instant::now();
        origin.process()?.signal(Signal::KILL)?;
        let owner = mutex.wait_for_owner()?;
        ensure!(
            owner == Owner::Died,
            "the mutex of a killed process was {owner:?}"
        );
        return Ok(milliseconds(start.elapsed()));
    }
    let address = origin.port(Floor::Tcp {
        service: Service::Echo,
        waiting: Waiting::Blocking,
    })?;
    let mut tcp = Asking::tcp(address, Waiting::Blocking)?;
    tcp.echo(1)?;
    let start = Instant::now();
    origin.process()?.signal(Signal::KILL)?;
    tcp.wait_for_end()?;
    Ok(milliseconds(start.elapsed()))
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

const IN_FLIGHT: usize = 64;
const MUCH_MEMORY: u64 = 512 << 20;
const TOUCHED_AT_ONCE: u64 = 16 << 20;
/// Each takes a process.
const ROUNDS_MAX: usize = 5;
