//! The price of typed arguments, beside raw bytes.

use ropewalk_rpc::{ByteBuf, Procedure};
use serde::{Serialize, de::DeserializeOwned};

use super::Case;
use crate::{
    origin::Origin,
    protocol::{Arguments, Doubles, Raw, Typed},
    row::{Row, Unit},
    rows::Rows,
    timing::{Measured, Pace, sampled, seconds},
};

/// Arguments of a call, and an array of numbers. Floor: a call with as many raw bytes as the values have in memory,
/// and copies of these bytes.
pub(super) fn of_all_kinds(origin: &mut Origin, pace: &Pace, rows: &mut Rows) -> anyhow::Result<()> {
    let arguments = Arguments {
        path: "/scratch/project/run-0042/checkpoint.h5".to_owned(),
        offset: 7 << 30,
        length: 16 << 20,
        mode: 0o644,
        owner: (1000, 1000),
        times: [1_700_000_000, 1_700_000_123],
        is_appended: false,
    };
    let fixed = 2 * size_of::<u64>() + 3 * size_of::<u32>() + 2 * size_of::<u64>() + size_of::<bool>();
    let raw = arguments.path.len() + fixed;
    of_one_kind::<Typed>("arguments", &arguments, raw, origin, pace, rows)?;
    let doubles: Vec<f64> = (0..1024).map(|at| f64::from(at).sqrt()).collect();
    let raw = size_of_val(&*doubles);
    of_one_kind::<Doubles>("doubles", &doubles, raw, origin, pace, rows)
}

fn of_one_kind<P>(
    name: &str,
    input: &P::Input,
    raw: usize,
    origin: &mut Origin,
    pace: &Pace,
    rows: &mut Rows,
) -> anyhow::Result<()>
where
    P: Procedure<Output = (), Input: Serialize + DeserializeOwned>,
{
    let bytes = ByteBuf::from(vec![1; raw]);
    let encoded = postcard::to_allocvec(input)?.len();
    let row = |origin: &Origin, part: &str, unit: Unit, measured: Measured| Row {
        case: Case::Encoding.name(),
        provider: origin.provider().to_owned(),
        mode: format!("{name}_{part}"),
        size: Some(raw as u64),
        in_flight: Some(1),
        value: measured.value,
        least: Some(measured.least),
        most: Some(measured.most),
        unit,
        floor: measured.floor,
    };
    let length = Measured::of(&mut [encoded as f64], &mut [raw as f64]);
    rows.add(row(origin, "encoded", Unit::Bytes, length));
    let coded = pace.measure(
        origin,
        |_, turn| {
            sampled(turn, || {
                let copies = || {
                    for _ in 0..CHUNK {
                        // Into the message, and out of it.
                        let message = std::hint::black_box(&bytes).to_vec();
                        std::hint::black_box(std::hint::black_box(&message).clone());
                    }
                    Ok(())
                };
                Ok(seconds(copies)? / CHUNK as f64 * 1e6)
            })
        },
        |_, turn| {
            sampled(turn, || {
                let code = || {
                    for _ in 0..CHUNK {
                        let message = postcard::to_allocvec(std::hint::black_box(input))?;
                        std::hint::black_box(postcard::from_bytes::<P::Input>(&message)?);
                    }
                    Ok(())
                };
                Ok(seconds(code)? / CHUNK as f64 * 1e6)
            })
        },
    )?;
    rows.add(row(origin, "coding", Unit::Microseconds, coded));
    let called = pace.measure(
        origin,
        |origin, turn| called_with::<Raw>(origin, &bytes, turn),
        |origin, turn| called_with::<P>(origin, input, turn),
    )?;
    rows.add(row(origin, "call", Unit::Microseconds, called));
    Ok(())
}

/// Microseconds of a call.
fn called_with<P: Procedure>(
    origin: &mut Origin,
    input: &P::Input,
    turn: std::time::Duration,
) -> anyhow::Result<f64> {
    sampled(turn, || {
        let chunk = || (0..CHUNK).try_for_each(|_| origin.ask::<P>(input).map(drop));
        Ok(seconds(chunk)? / CHUNK as f64 * 1e6)
    })
}

/// Calls between two looks at the clock.
const CHUNK: usize = 128;
