//! One-sided reads of the target's memory.

use anyhow::ensure;

use super::Case;
use crate::{
    floors::{
        Floor,
        sockets::{Asking, Service, Waiting},
    },
    origin::Origin,
    protocol::{Expose, Memory},
    row::{Row, Unit},
    rows::Rows,
    timing::{Pace, sampled, seconds},
};
use ropewalk_rpc::Buffer;

/// From 4 KiB to 64 MiB, out of each kind of memory that makes a difference. Floor: a copy from mapped memory,
/// `process_vm_readv`, or TCP whose two ends spin.
pub(super) fn of_all_sizes(origin: &mut Origin, pace: &Pace, rows: &mut Rows) -> anyhow::Result<()> {
    let memories: &[Memory] = if origin.shares_memory() {
        &[Memory::Arena, Memory::Heap]
    } else {
        &[Memory::Heap]
    };
    for memory in memories {
        for size in SIZES {
            rows.add(of_one_size(origin, pace, *memory, size)?);
        }
    }
    Ok(())
}

fn of_one_size(origin: &mut Origin, pace: &Pace, memory: Memory, size: usize) -> anyhow::Result<Row> {
    let region = origin.ask::<Expose>(&(memory, size as u64))?;
    let mut into = match memory {
        Memory::Arena => origin.allocate(size),
        Memory::Heap => Buffer::zeroed(size),
    };
    let mut bare = Buffer::zeroed(size);
    let gigabytes = size as f64 / 1e9;
    let measured = pace.measure(
        origin,
        |origin, turn| {
            let length = size as u64;
            match memory {
                _ if !origin.shares_memory() => {
                    let address = origin.port(Floor::Tcp {
                        service: Service::Bulk,
                        waiting: Waiting::Spinning,
                    })?;
                    let mut tcp = Asking::tcp(address, Waiting::Spinning)?;
                    sampled(turn, || Ok(gigabytes / seconds(|| Ok(tcp.pull(&mut bare)?))?))
                }
                Memory::Arena => {
                    let mapped = origin.shared(Floor::Mapped { length })?;
                    sampled(turn, || {
                        let copy = || {
                            mapped.copy_to(&mut bare);
                            std::hint::black_box(&bare);
                            Ok(())
                        };
                        Ok(gigabytes / seconds(copy)?)
                    })
                }
                Memory::Heap => {
                    let foreign = origin.foreign(Floor::Heap { length })?;
                    sampled(turn, || Ok(gigabytes / seconds(|| Ok(foreign.read(&mut bare)?))?))
                }
            }
        },
        |origin, turn| {
            sampled(turn, || {
                let taken = std::mem::take(&mut into);
                let pull = || {
                    into = origin.pull(&region, taken)?;
                    Ok(())
                };
                Ok(gigabytes / seconds(pull)?)
            })
        },
    )?;
    let wrong = into.iter().filter(|byte| **byte != 1).count();
    ensure!(wrong == 0, "{wrong} of {size} bytes are wrong");
    Ok(Row {
        case: Case::BulkPull.name(),
        provider: origin.provider().to_owned(),
        mode: match memory {
            Memory::Arena => "arena".to_owned(),
            Memory::Heap => "heap".to_owned(),
        },
        size: Some(size as u64),
        in_flight: Some(1),
        value: measured.value,
        least: Some(measured.least),
        most: Some(measured.most),
        unit: Unit::GigabytesPerSecond,
        floor: measured.floor,
    })
}

const SIZES: [usize; 7] = [4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];
