//! Writes that the target pulls buffer by buffer, several in flight.

use anyhow::ensure;
use bytes::Bytes;
use ropewalk_rpc::{Buffer, BulkHandle};

use super::{Case, points::Points};
use crate::{
    floors::{
        Floor,
        sockets::{Asking, Service, Waiting},
    },
    origin::Origin,
    protocol::{Cut, Write},
    provider::Provider,
    row::{Row, Unit},
    rows::Rows,
    timing::{Measured, Pace, sampled, seconds},
};

/// All points in turns. Floor: as many bytes through a bare TCP connection whose two ends spin, or copied from mapped
/// memory; both into one buffer of the same size, again and again.
pub(super) fn at_all_points(
    origin: &mut Origin,
    pace: &Pace,
    points: &Points,
    rows: &mut Rows,
) -> anyhow::Result<()> {
    let all: Vec<_> = points.pipelines().collect();
    let mut handles = Vec::new();
    for &segments in points.segments() {
        handles.push((segments, expose(origin, segments)?));
    }
    let mut values = vec![Vec::new(); all.len()];
    let mut floors: Vec<_> = points
        .buffers()
        .iter()
        .map(|buffer| (*buffer, Vec::new()))
        .collect();
    let turn = pace.turn / TURN_SHARE;
    let start = std::time::Instant::now();
    let patience = pace.patience * all.len() as u32;
    let mut rounds = 0;
    while rounds == 0 || (rounds < pace.rounds && start.elapsed() < patience) {
        for (buffer, samples) in &mut floors {
            match stream(origin, WRITTEN, *buffer as usize, |pull| sampled(turn, pull)) {
                Ok(sample) => samples.push(sample),
                Err(error) => eprintln!("ropewalk bench: no floor: {error:#}"),
            }
        }
        for (point, samples) in all.iter().zip(&mut values) {
            let handle = handles.iter().find(|(segments, _)| *segments == point.segments);
            let (_, handle) = handle.expect("there is one for each number of segments");
            let mut cut = Cut {
                depth: point.depth,
                buffer: point.buffer,
                is_checked: true,
            };
            if rounds == 0 {
                // Each byte is 1.
                let sum = origin.ask::<Write>(&(handle.clone(), cut))?;
                ensure!(
                    sum == handle.len(),
                    "{sum} instead of {} at {point:?}",
                    handle.len()
                );
            }
            cut.is_checked = false;
            let input = (handle.clone(), cut);
            let gigabytes = handle.len() as f64 / 1e9;
            samples.push(sampled(turn, || {
                Ok(gigabytes / seconds(|| origin.ask::<Write>(&input).map(drop))?)
            })?);
        }
        rounds += 1;
    }
    for (point, mut samples) in all.into_iter().zip(values) {
        let floor = floors.iter_mut().find(|(buffer, _)| *buffer == point.buffer);
        let (_, floors) = floor.expect("there is one for each size of buffers");
        let measured = Measured::of(&mut samples, floors);
        rows.add(Row {
            case: Case::BulkPipelined.name(),
            provider: origin.provider().to_owned(),
            mode: match point.segments {
                1 => "contiguous".to_owned(),
                segments => format!("{segments} segments"),
            },
            size: Some(u64::from(point.buffer)),
            in_flight: Some(u64::from(point.depth)),
            value: measured.value,
            least: Some(measured.least),
            most: Some(measured.most),
            unit: Unit::GigabytesPerSecond,
            floor: measured.floor,
        });
    }
    for (_, handle) in handles {
        origin.engine().withdraw_bulk(&handle);
    }
    Ok(())
}

/// Memory of this process in segments that do not lie one after the other.
fn expose(origin: &mut Origin, segments: u32) -> anyhow::Result<BulkHandle> {
    let length = WRITTEN / segments as usize;
    let filled = (0..segments).map(|_| {
        let mut buffer = Provider::allocate(origin.engine(), length);
        buffer.fill(1);
        Bytes::from_owner(buffer)
    });
    let filled = filled.collect();
    Ok(origin.engine().expose_segments(filled)?)
}

/// GB/s of one bare stream of `length` bytes into a buffer of the size, as `sample` has them measured.
pub(super) fn stream(
    origin: &mut Origin,
    length: usize,
    buffer: usize,
    sample: impl FnOnce(&mut dyn FnMut() -> anyhow::Result<f64>) -> anyhow::Result<f64>,
) -> anyhow::Result<f64> {
    let mut piece = Buffer::zeroed(buffer);
    let gigabytes = length as f64 / 1e9;
    if origin.shares_memory() {
        let mapped = origin.shared(Floor::Mapped {
            length: length as u64,
        })?;
        return sample(&mut || {
            let copy = || {
                mapped.copy_in_pieces(&mut piece);
                Ok(())
            };
            Ok(gigabytes / seconds(copy)?)
        });
    }
    let address = origin.port(Floor::Tcp {
        service: Service::Bulk,
        waiting: Waiting::Spinning,
    })?;
    let mut tcp = Asking::tcp(address, Waiting::Spinning)?;
    sample(&mut || Ok(gigabytes / seconds(|| Ok(tcp.pull_in_pieces(length, &mut piece)?))?))
}

/// The bytes of each write.
pub(super) const WRITTEN: usize = 16 << 20;
/// There are many points.
const TURN_SHARE: u32 = 3;
