//! The side that has the data.

use std::{fs::File, io::Read, path::Path, time::Duration};

use anyhow::Context;
use bytes::Bytes;
use ropewalk_rpc::{Address, BulkHandle, CallError, Engine};

use crate::{Stages, Write, WriteRequest, Written};

/// How long the segments are that data is exposed in.
const SEGMENT_LENGTH: u64 = 4 << 20;

/// Has the target write what the handle shows to a file, and waits until it has.
///
/// # Errors
/// If the target is not reached, or fails.
pub fn write(
    engine: &mut Engine,
    target: &Address,
    name: &str,
    data: &BulkHandle,
    stages: Stages,
    timeout: Duration,
) -> Result<Written, CallError> {
    let request = WriteRequest {
        name: name.to_owned(),
        data: data.clone(),
        stages,
    };
    let call = engine.call::<Write>(target, &request, timeout)?;
    engine.block_on(call)
}

/// Exposes the content of a file, in segments.
///
/// # Errors
/// If it cannot be read.
pub fn expose_file(engine: &mut Engine, path: &Path) -> anyhow::Result<BulkHandle> {
    let mut expose = || {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        expose_segments(engine, length, |_, segment| Ok(file.read_exact(segment)?))
    };
    expose().with_context(|| format!("cannot read {}", path.display()))
}

/// Exposes so many bytes of a pattern, in segments.
///
/// # Errors
/// If it needs more segments than a handle may have.
pub fn expose_pattern(engine: &mut Engine, length: u64) -> anyhow::Result<BulkHandle> {
    expose_segments(engine, length, |start, segment| {
        for (at, byte) in (start..).zip(segment) {
            *byte = (at * 31 + at / 251) as u8;
        }
        Ok(())
    })
}

fn expose_segments(
    engine: &mut Engine,
    length: u64,
    mut fill: impl FnMut(u64, &mut [u8]) -> anyhow::Result<()>,
) -> anyhow::Result<BulkHandle> {
    let mut segments = Vec::new();
    let mut start = 0;
    while start < length {
        // At most the length of a segment, which is a usize.
        let mut segment = engine.allocate(SEGMENT_LENGTH.min(length - start) as usize);
        fill(start, &mut segment)?;
        start += segment.len() as u64;
        segments.push(Bytes::from(segment));
    }
    Ok(engine.expose_segments(segments)?)
}
