//! An engine that moves its own memory, as it moves that of others.

use std::cell::RefCell;

use bytes::Bytes;
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use ropewalk_rpc::{
    AccessError, Amount, Buffer, BulkHandle, Engine, InProgress, Pipeline, SubmitError, Transfer,
    TransferError, Withdrawn,
};

use crate::{
    LONG, MIB, content, drive,
    oneself::{one, settle},
};

mod over_loopback {
    crate::spinning_and_sleeping! { either,
        bulk_null,
        bulk_size_0,
        bulk_whole,
        bulk_quarter_with_offset,
        bulk_eighth_with_offset,
        bulk_two_segments_of_8_bytes_crossed,
        bulk_16_segments,
        bulk_1024_segments,
        bulk_random_segments,
        cancel_of_a_bulk_transfer,
        bulk_write_to_a_read_only_handle,
        forged_and_stale_bulk_handles,
        pipelined_pull,
    }
}

fn end<T>(engine: &mut Engine, mut transfer: Transfer<T>) -> Result<T, TransferError> {
    drive(&mut [engine], || transfer.try_take())
}

/// Pulls a range of what the segments show, pushes something else there, and finds all as it must be.
fn move_both_ways(engine: &mut Engine, segments: &[usize], offset: usize, length: usize) {
    let shown: Vec<_> = (segments.iter().enumerate())
        .map(|(seed, &length)| content(length, seed))
        .collect();
    let mut expected = shown.concat();
    let buffers = shown.iter().map(|segment| Buffer::copy_of(segment)).collect();
    let handle = engine.expose_segments_writable(buffers).unwrap();
    let pull = engine
        .pull_bulk(&handle, offset as u64, Buffer::zeroed(length), LONG)
        .unwrap();
    assert!(*end(engine, pull).unwrap() == expected[offset..offset + length]);
    let other = Bytes::from(content(length, 99));
    expected[offset..offset + length].copy_from_slice(&other);
    let push = engine.push_bulk(&handle, offset as u64, other, LONG).unwrap();
    end(engine, push).unwrap();
    let written = engine
        .withdraw_bulk(&handle)
        .into_iter()
        .flat_map(|segment| match segment {
            Some(Withdrawn::Writable(buffer)) => buffer.to_vec(),
            other => panic!("a writable segment came back as {other:?}"),
        });
    assert!(written.eq(expected));
}

/// Transfers of no bytes of a handle that shows some, and segments without bytes among others.
fn bulk_size_0() {
    let engine = &mut one();
    move_both_ways(engine, &[10], 5, 0);
    move_both_ways(engine, &[0, 10, 0, 0, 10, 0], 0, 20);
}

/// All of it, in one segment and in four.
fn bulk_whole() {
    let engine = &mut one();
    move_both_ways(engine, &[4 * MIB], 0, 4 * MIB);
    move_both_ways(engine, &[MIB; 4], 0, 4 * MIB);
    assert_eq!(engine.in_progress(), InProgress::default());
}

/// Each quarter, in one segment and across a border.
fn bulk_quarter_with_offset() {
    let engine = &mut one();
    for quarter in 0..4 {
        move_both_ways(engine, &[4 * MIB], quarter * MIB, MIB);
        move_both_ways(engine, &[3 * MIB / 2, 5 * MIB / 2], quarter * MIB, MIB);
    }
}

/// Eighths, at offsets that are no multiples of anything.
fn bulk_eighth_with_offset() {
    let engine = &mut one();
    for eighth in 0..7 {
        move_both_ways(engine, &[MIB + 3; 4], eighth * MIB / 2 + 17, MIB / 2);
    }
}

/// Two segments of 8 bytes and a transfer across their border.
fn bulk_two_segments_of_8_bytes_crossed() {
    let engine = &mut one();
    for offset in 0..=12 {
        move_both_ways(engine, &[8, 8], offset, 4);
    }
}

/// Sixteen segments, small and large ones in turn.
fn bulk_16_segments() {
    let engine = &mut one();
    move_both_ways(engine, &[100; 16], 0, 1600);
    move_both_ways(engine, &[8, 100_000].repeat(8), 50_000, 500_000);
}

/// A thousand segments, small and large.
fn bulk_1024_segments() {
    let engine = &mut one();
    move_both_ways(engine, &[8; 1024], 4, 8184);
    move_both_ways(engine, &[8192; 1024], 1000, 8192 * 1024 - 2000);
}

/// Any segments, any range.
fn bulk_random_segments() {
    let length = || prop_oneof![0..20_usize, 0..5000_usize, 0..300_000_usize];
    let shapes = (vec(length(), 0..20), 0..=1000_usize, 0..=1000_usize);
    let engine = RefCell::new(one());
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 32,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let result = runner.run(&shapes, |(segments, first, second)| {
        let total: usize = segments.iter().sum();
        let (start, end) = (total * first.min(second) / 1000, total * first.max(second) / 1000);
        move_both_ways(&mut engine.borrow_mut(), &segments, start, end - start);
        Ok(())
    });
    result.unwrap();
}

/// A handle that shows nothing, of which nothing can be moved.
fn bulk_null() {
    let mut engine = one();
    let null = engine.expose_segments(Vec::new()).unwrap();
    assert_eq!(null, BulkHandle::null());
    let pull = engine.pull_bulk(&null, 0, Buffer::default(), LONG).unwrap();
    assert!(end(&mut engine, pull).unwrap().is_empty());
    let outside = engine.pull_bulk(&null, 0, Buffer::zeroed(1), LONG);
    assert!(matches!(
        outside,
        Err(TransferError::Submit(SubmitError::OutOfRange { .. }))
    ));
}

/// A transfer that is dropped is cancelled at whatever stage, and the next is right.
fn cancel_of_a_bulk_transfer() {
    let mut engine = one();
    let handle = engine
        .expose_segments_writable(vec![
            Buffer::copy_of(&[5; 1 << 20]),
            Buffer::copy_of(&[5; 1 << 20]),
        ])
        .unwrap();
    for steps in 0..4 {
        let pull = engine
            .pull_bulk(&handle, 0, Buffer::zeroed(2 << 20), LONG)
            .unwrap();
        let push = engine
            .push_bulk(&handle, 0, Bytes::from(vec![5; 2 << 20]), LONG)
            .unwrap();
        for _ in 0..steps {
            engine.progress();
        }
        drop((pull, push));
        let pull = engine
            .pull_bulk(&handle, (1 << 20) - 50, Buffer::zeroed(100), LONG)
            .unwrap();
        assert_eq!(*end(&mut engine, pull).unwrap(), [5; 100]);
        settle(&mut engine);
    }
}

/// Writing by a handle for reading is refused, also if the handle lies.
fn bulk_write_to_a_read_only_handle() {
    let mut engine = one();
    let readable = engine.expose_segments(vec![Bytes::from(vec![5; 5000])]).unwrap();
    let refused = engine.push_bulk(&readable, 0, Bytes::from(vec![1; 10]), LONG);
    assert!(matches!(
        refused,
        Err(TransferError::Submit(SubmitError::ReadOnly))
    ));
    let mut lying = readable.segments().next().unwrap().region.clone();
    lying.writable = true;
    let push = engine
        .push_bulk(&lying.into(), 0, Bytes::from(vec![1; 5000]), LONG)
        .unwrap();
    assert_eq!(refusal(&mut engine, push), AccessError::ReadOnly);
    let pull = engine
        .pull_bulk(&readable, 0, Buffer::zeroed(5000), LONG)
        .unwrap();
    assert_eq!(*end(&mut engine, pull).unwrap(), [5; 5000]);
}

/// Forged, too long and stale handles give an error, never memory.
fn forged_and_stale_bulk_handles() {
    let mut engine = one();
    let [shown, stale] = [5, 6].map(|byte| {
        engine
            .expose_segments(vec![Bytes::from(vec![byte; 5000])])
            .unwrap()
    });
    assert_eq!(engine.withdraw_bulk(&stale).len(), 1);
    let region = shown.segments().next().unwrap().region.clone();
    let (mut forged, mut too_long) = (region.clone(), region);
    forged.token ^= 1 << 77;
    too_long.length += 1;
    let bad = [
        (BulkHandle::from(forged), AccessError::Unknown),
        (BulkHandle::from(too_long), AccessError::OutOfRange),
        (stale, AccessError::Unknown),
    ];
    for (bad, expected) in bad {
        let into = Buffer::zeroed(bad.len() as usize);
        let pull = engine.pull_bulk(&bad, 0, into, LONG).unwrap();
        assert_eq!(refusal(&mut engine, pull), expected);
    }
}

fn refusal<T>(engine: &mut Engine, transfer: Transfer<T>) -> AccessError {
    match end(engine, transfer) {
        Err(TransferError::Access { source, .. }) => source,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("the transfer ended well"),
    }
}

/// The chunks of a pipelined pull from oneself are the range, in order.
fn pipelined_pull() {
    let mut engine = one();
    let shown = content(5 << 20, 1);
    let handle = engine.expose_segments(vec![Bytes::from(shown.clone())]).unwrap();
    for pipeline in [
        Pipeline::default(),
        Pipeline {
            depth: Amount::Exactly(3),
            chunk: Amount::Exactly(100_000),
        },
    ] {
        let mut chunks = engine
            .pull_pipelined(&handle, 7..shown.len() as u64, pipeline, LONG)
            .unwrap();
        let mut at = 7;
        drive(&mut [&mut engine], || {
            while let Some(chunk) = chunks.try_next() {
                let chunk = chunk.unwrap();
                assert!(chunk.offset() == at as u64 && *chunk == shown[at..at + chunk.len()]);
                at += chunk.len();
            }
            chunks.is_finished().then_some(())
        });
        assert_eq!(at, shown.len());
    }
}
