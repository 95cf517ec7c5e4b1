//! The cost of idle connections.

use std::time::{Duration, Instant};

use ropewalk_rpc::JobKey;

use super::Case;
use crate::{
    origin::Origin,
    process::Process,
    protocol::Usage,
    provider::Provider,
    row::{Row, Unit},
    rows::Rows,
    timing::Pace,
};

/// The processor time of a target with many idle connections. Floor: nothing at all.
pub(super) fn watched(key: &JobKey, provider: &Provider, pace: &Pace, rows: &mut Rows) -> anyhow::Result<()> {
    let mut origin = Origin::start(key, provider)?;
    let target = origin.target().clone();
    let connections = provider.connections_max().min(CONNECTIONS);
    let _crowd = Process::crowd(key, provider, 0..connections, &target)?;
    // Until what connecting has left to do is done.
    idle(&mut origin, pace.idle / 4);
    let before = origin.ask::<Usage>(&())?;
    let start = Instant::now();
    idle(&mut origin, pace.idle);
    let used = Duration::from_nanos(origin.ask::<Usage>(&())?.saturating_sub(before));
    rows.add(Row {
        case: Case::IdleConnections.name(),
        provider: origin.provider().to_owned(),
        mode: "target".to_owned(),
        size: None,
        in_flight: Some(u64::from(connections)),
        value: used.as_secs_f64() / start.elapsed().as_secs_f64() * 100.0,
        least: None,
        most: None,
        unit: Unit::Percent,
        floor: Some(0.0),
    });
    Ok(())
}

/// Does nothing but to stay alive.
fn idle(origin: &mut Origin, time: Duration) {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        origin.engine().wait(left);
    }
}

const CONNECTIONS: u32 = 1000;
