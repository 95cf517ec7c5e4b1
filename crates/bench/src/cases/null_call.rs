//! Calls of nothing for nothing.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::Case;
use crate::{
    floors::{
        Floor,
        ring::RingEnd,
        sockets::{Asking, Service, Waiting},
    },
    origin::Origin,
    protocol::Null,
    row::{Row, Unit},
    rows::Rows,
    timing::{Measured, Pace, sampled, seconds},
};

/// One call after the other, nobody ever idle. Floor: a ring in shared memory, or TCP, both sides spinning.
pub(super) fn spinning(origin: &mut Origin, pace: &Pace) -> anyhow::Result<Row> {
    let measured = pace.measure(
        origin,
        |origin, turn| {
            if origin.shares_memory() {
                return on_ring(origin, |ring| {
                    sampled(turn, || Ok(seconds(|| ring.call(1, CHUNK))? / CHUNK as f64 * 1e6))
                });
            }
            let mut tcp = Asking::tcp(origin.port(echo(Waiting::Spinning))?, Waiting::Spinning)?;
            sampled(turn, || {
                let chunk = || (0..CHUNK).try_for_each(|_| Ok(tcp.echo(1)?));
                Ok(seconds(chunk)? / CHUNK as f64 * 1e6)
            })
        },
        |origin, turn| {
            sampled(turn, || {
                let chunk = || (0..CHUNK).try_for_each(|_| origin.ask::<Null>(&()));
                Ok(seconds(chunk)? / CHUNK as f64 * 1e6)
            })
        },
    )?;
    Ok(row(
        origin,
        Case::NullCall,
        "spinning",
        1,
        Unit::Microseconds,
        measured,
    ))
}

/// A call now and then, between which both processes sleep. Floor: blocking sockets of the same pace, UNIX or TCP.
pub(super) fn sleeping(origin: &mut Origin, pace: &Pace) -> anyhow::Result<Row> {
    let measured = pace.measure(
        origin,
        |origin, turn| {
            if origin.shares_memory() {
                let mut unix = Asking::unix(&origin.name(Floor::Unix)?)?;
                return sampled(turn * PAUSES_TURNS, || after_a_pause(|| Ok(unix.echo(1)?)));
            }
            let mut tcp = Asking::tcp(origin.port(echo(Waiting::Blocking))?, Waiting::Blocking)?;
            sampled(turn * PAUSES_TURNS, || after_a_pause(|| Ok(tcp.echo(1)?)))
        },
        |origin, turn| sampled(turn * PAUSES_TURNS, || after_a_pause(|| origin.ask::<Null>(&()))),
    )?;
    Ok(row(
        origin,
        Case::NullCall,
        "sleeping",
        1,
        Unit::Microseconds,
        measured,
    ))
}

/// As many as possible, one, some and many at once. Floor: the ring with as many in flight, or TCP with as many
/// requests in each write.
pub(super) fn per_second(origin: &mut Origin, pace: &Pace, rows: &mut Rows) -> anyhow::Result<()> {
    for in_flight in [1, 64, 256] {
        let measured = pace.measure(
            origin,
            |origin, turn| {
                let rounds = (4 * CHUNK).div_ceil(in_flight);
                let calls = (rounds * in_flight) as f64;
                if origin.shares_memory() {
                    return on_ring(origin, |ring| {
                        sampled(turn, || Ok(calls / seconds(|| ring.call(in_flight, rounds))?))
                    });
                }
                let mut tcp = Asking::tcp(origin.port(echo(Waiting::Spinning))?, Waiting::Spinning)?;
                sampled(turn, || {
                    let chunk = || (0..rounds).try_for_each(|_| Ok(tcp.echo(in_flight)?));
                    Ok(calls / seconds(chunk)?)
                })
            },
            |origin, turn| origin.null_calls(in_flight, turn),
        )?;
        rows.add(row(
            origin,
            Case::CallsPerSecond,
            "spinning",
            in_flight as u64,
            Unit::CallsPerSecond,
            measured,
        ));
    }
    Ok(())
}

/// Has the ring for as long as the work lasts.
fn on_ring(
    origin: &mut Origin,
    work: impl FnOnce(&mut RingEnd) -> anyhow::Result<f64>,
) -> anyhow::Result<f64> {
    let mut ring = RingEnd::asking(origin.shared(Floor::Ring)?);
    let result = work(&mut ring);
    ring.stop();
    result
}

/// Microseconds of the work, before which nothing happens for long enough that everybody sleeps.
fn after_a_pause(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    thread::sleep(PAUSE);
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64() * 1e6)
}

fn echo(waiting: Waiting) -> Floor {
    Floor::Tcp {
        service: Service::Echo,
        waiting,
    }
}

fn row(origin: &Origin, case: Case, mode: &str, in_flight: u64, unit: Unit, measured: Measured) -> Row {
    Row {
        case: case.name(),
        provider: origin.provider().to_owned(),
        mode: mode.to_owned(),
        size: None,
        in_flight: Some(in_flight),
        value: measured.value,
        least: Some(measured.least),
        most: Some(measured.most),
        unit,
        floor: measured.floor,
    }
}

/// Calls between two looks at the clock.
const CHUNK: usize = 128;
const PAUSE: Duration = Duration::from_millis(1);
/// Pauses take most of the time: more of it is needed for as many samples.
const PAUSES_TURNS: u32 = 3;
