//! One target and ever more clients.

use ropewalk_rpc::Address;

use super::{
    Case,
    bulk_pipelined::{WRITTEN, stream},
    points::Points,
};
use crate::{
    crowd::{BUFFER, WRITTEN_AT_ONCE},
    floors::{
        Floor,
        ring::RingEnd,
        sockets::{Asking, Service, Waiting},
    },
    origin::Origin,
    process::Process,
    protocol::{Done, Resident, Work},
    row::{Row, Unit},
    rows::Rows,
    timing::{Measured, Pace, sampled, seconds},
};

/// Each client makes one call after the other, and one write after the other. Floor: one bare connection, or ring,
/// with one request in flight, and one bare stream.
pub(super) fn of_all_counts(
    origin: &mut Origin,
    pace: &Pace,
    points: &Points,
    rows: &mut Rows,
) -> anyhow::Result<()> {
    let counts: Vec<u32> = points.clients(origin.chosen()).collect();
    for clients in counts {
        // Memory that earlier clients left to the target would hide that of these.
        let mut origin = origin.another()?;
        let before = origin.ask::<Resident>(&())?;
        let crowds = gather(&origin, clients, points.client_processes())?;
        let addresses: Vec<Address> = crowds.iter().map(|(_, address)| address.clone()).collect();
        let mut crowd = Crowd {
            origin,
            addresses,
            clients,
        };
        for work in [Work::Call, Work::Write] {
            crowd.measure(work, pace, rows)?;
            if work == Work::Call {
                crowd.weigh(before, rows)?;
            }
        }
    }
    Ok(())
}

/// Processes with all clients.
fn gather(origin: &Origin, clients: u32, processes: u32) -> anyhow::Result<Vec<(Process, Address)>> {
    let processes = processes.min(clients);
    let first = |process: u32| (u64::from(clients) * u64::from(process) / u64::from(processes)) as u32;
    (0..processes)
        .map(|process| origin.crowd(first(process)..first(process + 1)))
        .collect()
}

/// One target and its clients.
struct Crowd {
    origin: Origin,
    addresses: Vec<Address>,
    clients: u32,
}

impl Crowd {
    /// The rate of all together, and the slowest one's part.
    fn measure(&mut self, work: Work, pace: &Pace, rows: &mut Rows) -> anyhow::Result<()> {
        let turn = pace.turn * TURNS;
        let pace = Pace {
            rounds: pace.rounds.div_ceil(2),
            ..*pace
        };
        let mut calls = vec![0; self.clients as usize];
        let (unit, each) = match work {
            Work::Call => (Unit::CallsPerSecond, 1.0),
            Work::Write => (Unit::GigabytesPerSecond, WRITTEN_AT_ONCE as f64 / 1e9),
        };
        let measured = pace.measure(
            self,
            |crowd, turn| match work {
                Work::Call => one_at_a_time(&mut crowd.origin, turn),
                Work::Write => stream(&mut crowd.origin, WRITTEN, BUFFER as usize, |pull| {
                    sampled(turn, pull)
                }),
            },
            |crowd, _| {
                let done = crowd.origin.have_done(&crowd.addresses, work, turn)?;
                let of_all = done.iter().flat_map(|done| &done.calls);
                for (sum, count) in calls.iter_mut().zip(of_all) {
                    *sum += count;
                }
                Ok(done.iter().map(rate).sum::<f64>() * each)
            },
        )?;
        let name = match work {
            Work::Call => "calls",
            Work::Write => "writes",
        };
        rows.add(self.row(name, work, unit, measured));
        let mean = calls.iter().sum::<u64>() as f64 / calls.len() as f64;
        let slowest = calls.iter().copied().min().unwrap_or_default() as f64;
        let slowest = self.single(&format!("{name}_slowest"), slowest / mean * 100.0, Unit::Percent);
        rows.add(slowest);
        Ok(())
    }

    /// The target's memory.
    fn weigh(&mut self, before: u64, rows: &mut Rows) -> anyhow::Result<()> {
        let resident = self.origin.ask::<Resident>(&())?;
        let each = resident.saturating_sub(before) as f64 / f64::from(self.clients);
        rows.add(self.single("memory", resident as f64 / f64::from(1 << 20), Unit::Mebibytes));
        rows.add(self.single("memory_per_client", each / 1024.0, Unit::Kibibytes));
        Ok(())
    }

    fn single(&self, mode: &str, value: f64, unit: Unit) -> Row {
        Row {
            case: Case::ManyClients.name(),
            provider: self.origin.provider().to_owned(),
            mode: mode.to_owned(),
            size: None,
            in_flight: Some(u64::from(self.clients)),
            value,
            least: None,
            most: None,
            unit,
            floor: None,
        }
    }

    fn row(&self, mode: &str, work: Work, unit: Unit, measured: Measured) -> Row {
        Row {
            size: (work == Work::Write).then_some(WRITTEN_AT_ONCE as u64),
            least: Some(measured.least),
            most: Some(measured.most),
            floor: measured.floor,
            ..self.single(mode, measured.value, unit)
        }
    }
}

/// Calls a second.
fn rate(done: &Done) -> f64 {
    done.calls.iter().sum::<u64>() as f64 / (done.nanoseconds as f64 / 1e9)
}

/// Bare round trips a second.
fn one_at_a_time(origin: &mut Origin, turn: std::time::Duration) -> anyhow::Result<f64> {
    if origin.shares_memory() {
        let mut ring = RingEnd::asking(origin.shared(Floor::Ring)?);
        let result = sampled(turn, || Ok(CHUNK as f64 / seconds(|| ring.call(1, CHUNK))?));
        ring.stop();
        return result;
    }
    let address = origin.port(Floor::Tcp {
        service: Service::Echo,
        waiting: Waiting::Spinning,
    })?;
    let mut tcp = Asking::tcp(address, Waiting::Spinning)?;
    sampled(turn, || {
        let chunk = || (0..CHUNK).try_for_each(|_| Ok(tcp.echo(1)?));
        Ok(CHUNK as f64 / seconds(chunk)?)
    })
}

/// Calls between two looks at the clock.
const CHUNK: usize = 128;
/// So many turns at once: each of many clients shall end several calls.
const TURNS: u32 = 2;
