//! Bulk handles of many shapes: what is pulled is what is shown, and what is pushed gets there.

use std::cell::RefCell;

use bytes::Bytes;
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use ropewalk_rpc::{Buffer, BulkHandle, Engine, SubmitError, TransferError, Withdrawn};

use crate::{LONG, MIB, Relayed, Shared, SumOf, call, content, drive, engines};

crate::on_every_transport! {
    bulk_null,
    bulk_size_0,
    bulk_whole,
    bulk_quarter_with_both_offsets,
    bulk_eighth_with_both_offsets,
    bulk_two_segments_of_8_bytes_crossed,
    bulk_16_segments,
    bulk_1024_segments,
    bulk_random_segments,
    bulk_with_itself,
    bulk_handle_forwarded_to_a_third,
    bulk_of_several_origins,
}

/// Lengths of segments at the origin and of parts at the target, and a range of what the segments show.
struct Shape<'a> {
    segments: &'a [usize],
    offset: usize,
    parts: &'a [usize],
}

/// Pulls the range of the shape and pushes something else there, and finds all as it must be.
fn move_both_ways(origin: &mut Engine, target: &mut Engine, shape: &Shape<'_>) {
    let shown: Vec<Vec<u8>> = (shape.segments.iter().enumerate())
        .map(|(seed, &length)| content(length, seed))
        .collect();
    let length: usize = shape.parts.iter().sum();
    let range = shape.offset..shape.offset + length;
    let mut expected = shown.concat();

    let readable = origin
        .expose_segments(shown.iter().cloned().map(Bytes::from).collect())
        .unwrap();
    let writable = origin
        .expose_segments_writable(shown.iter().map(|segment| Buffer::copy_of(segment)).collect())
        .unwrap();
    for handle in [&readable, &writable] {
        assert_eq!(handle.len(), expected.len() as u64);
        let into = shape.parts.iter().map(|&length| Buffer::zeroed(length)).collect();
        let offset = shape.offset as u64;
        let mut pull = target.pull_bulk_scattered(handle, offset, into, LONG).unwrap();
        let pulled = drive(&mut [origin, target], || pull.try_take()).unwrap();
        assert!(
            pulled
                .iter()
                .map(|part| part.len())
                .eq(shape.parts.iter().copied())
        );
        assert!(
            pulled
                .iter()
                .flat_map(|part| &**part)
                .eq(&expected[range.clone()])
        );
        let into = Buffer::zeroed(length);
        let mut pull = target.pull_bulk(handle, offset, into, LONG).unwrap();
        let pulled = drive(&mut [origin, target], || pull.try_take()).unwrap();
        assert!(*pulled == expected[range.clone()]);
    }

    let other = Bytes::from(content(length, 99));
    let mut at = 0;
    let from = shape.parts.iter().map(|length| {
        at += length;
        other.slice(at - length..at)
    });
    let mut push = target
        .push_bulk_gathered(&writable, shape.offset as u64, from.collect(), LONG)
        .unwrap();
    drive(&mut [origin, target], || push.try_take()).unwrap();
    expected[range].copy_from_slice(&other);
    let withdrawn = origin.withdraw_bulk(&writable);
    assert_eq!(withdrawn.len(), shape.segments.len());
    let written = withdrawn.iter().flat_map(|segment| match segment {
        Some(Withdrawn::Writable(buffer)) => buffer.to_vec(),
        other => panic!("a writable segment came back as {other:?}"),
    });
    assert!(written.eq(expected));
    let unchanged = origin.withdraw_bulk(&readable);
    assert!(unchanged.iter().zip(&shown).all(
        |(segment, shown)| matches!(segment, Some(Withdrawn::Immutable(bytes)) if bytes[..] == shown[..])
    ));
}

/// Between two engines of their own.
fn move_by_all(segments: &[usize], offset: usize, parts: &[usize]) {
    let shape = Shape {
        segments,
        offset,
        parts,
    };
    let [mut origin, mut target] = engines();
    move_both_ways(&mut origin, &mut target, &shape);
}

/// A handle that shows nothing travels, and transfers of nothing end well without anybody's help.
fn bulk_null() {
    let [mut origin, mut target] = engines();
    target.serve::<SumOf>(|_, handle| {
        assert_eq!(handle, BulkHandle::null());
        Ok(handle.len())
    });
    assert_eq!(
        call::<SumOf>(&mut origin, &mut target, &BulkHandle::null()).unwrap(),
        0
    );
    let null = origin.expose_segments(Vec::new()).unwrap();
    assert!(null.is_empty());
    assert!(
        target
            .pull_bulk(&null, 0, Buffer::default(), LONG)
            .unwrap()
            .try_take()
            .unwrap()
            .unwrap()
            .is_empty()
    );
    target
        .push_bulk(&null, 0, Bytes::new(), LONG)
        .unwrap()
        .try_take()
        .unwrap()
        .unwrap();
    let outside = target.pull_bulk(&null, 0, Buffer::zeroed(1), LONG);
    assert!(matches!(
        outside,
        Err(TransferError::Submit(SubmitError::OutOfRange { .. }))
    ));
    assert!(origin.withdraw_bulk(&null).is_empty());
}

/// Transfers of no bytes of handles that show some, and segments without bytes among others.
fn bulk_size_0() {
    for offset in [0, 5, 10] {
        move_by_all(&[10], offset, &[]);
        move_by_all(&[10], offset, &[0]);
    }
    move_by_all(&[0, 10, 0, 0, 10, 0], 0, &[0, 20, 0]);
    move_by_all(&[0, 0], 0, &[0, 0]);
}

/// All of it, in one segment and in four.
fn bulk_whole() {
    move_by_all(&[4 * MIB], 0, &[4 * MIB]);
    move_by_all(&[MIB; 4], 0, &[4 * MIB]);
    move_by_all(&[MIB; 4], 0, &[MIB; 4]);
}

/// A quarter, at an offset at the origin and at one at the target.
fn bulk_quarter_with_both_offsets() {
    for quarter in 0..4 {
        move_by_all(&[4 * MIB], quarter * MIB, &[4096, MIB - 4096]);
        move_by_all(&[3 * MIB / 2, 5 * MIB / 2], quarter * MIB, &[4096, MIB - 4096]);
    }
}

/// An eighth, at offsets that are no multiples of anything.
fn bulk_eighth_with_both_offsets() {
    for eighth in 0..7 {
        move_by_all(&[MIB + 3; 4], eighth * MIB / 2 + 17, &[13, MIB / 2 - 13]);
    }
}

/// Two segments of 8 bytes and a transfer across their border, into two parts with another border.
fn bulk_two_segments_of_8_bytes_crossed() {
    for offset in 0..=12 {
        move_by_all(&[8, 8], offset, &[4]);
        move_by_all(&[8, 8], offset, &[3, 1]);
    }
    move_by_all(&[8, 8], 0, &[5, 11]);
}

/// Sixteen segments, small and large ones in turn.
fn bulk_16_segments() {
    move_by_all(&[100; 16], 0, &[1600]);
    move_by_all(&[8, 100_000].repeat(8), 50_000, &[200_000, 300_000]);
}

/// A thousand segments, so small that they share a region, and so large that they do not.
fn bulk_1024_segments() {
    move_by_all(&[8; 1024], 0, &[8192]);
    move_by_all(&[8; 1024], 4, &[8; 1023]);
    move_by_all(&[8192; 1024], 1000, &[8192 * 1024 - 2000]);
}

/// Any segments, any range, any parts.
fn bulk_random_segments() {
    let length = || prop_oneof![0..20_usize, 0..5000_usize, 0..300_000_usize];
    let shapes = (
        vec(length(), 0..20),
        0..=1000_usize,
        0..=1000_usize,
        vec(length(), 0..6),
    );
    let pair = RefCell::new(engines::<2>());
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let result = runner.run(&shapes, |(segments, first, second, cuts)| {
        let total: usize = segments.iter().sum();
        let offset = total * first.min(second) / 1000;
        let mut left = total * first.max(second) / 1000 - offset;
        let mut parts = Vec::new();
        for cut in cuts {
            parts.push(cut.min(left));
            left -= cut.min(left);
        }
        parts.push(left);
        let shape = Shape {
            segments: &segments,
            offset,
            parts: &parts,
        };
        let [origin, target] = &mut *pair.borrow_mut();
        move_both_ways(origin, target, &shape);
        Ok(())
    });
    result.unwrap();
}

/// An engine pulls from and pushes to itself as to others.
fn bulk_with_itself() {
    let [mut engine] = engines();
    let handle = engine
        .expose_segments_writable(vec![Buffer::copy_of(&[1; 5000]), Buffer::copy_of(&[2; 5000])])
        .unwrap();
    let push = engine
        .push_bulk(&handle, 4999, Bytes::from_static(&[3, 3]), LONG)
        .unwrap();
    engine.block_on(push).unwrap();
    let pull = engine.pull_bulk(&handle, 4998, Buffer::zeroed(4), LONG).unwrap();
    assert_eq!(*engine.block_on(pull).unwrap(), [1, 3, 3, 2]);
}

/// A handle is passed on to a third, which pulls from the one who exposed it; the one in between moves nothing.
fn bulk_handle_forwarded_to_a_third() {
    let [mut origin, mut between, mut third] = engines();
    let segments: Vec<_> = (0..3).map(|seed| Bytes::from(content(100_000, seed))).collect();
    let expected: u64 = segments
        .iter()
        .flat_map(|segment| &segment[..])
        .map(|&byte| u64::from(byte))
        .sum();
    let handle = origin.expose_segments(segments).unwrap();
    let pulls: Shared<_> = Shared::default();
    let started = pulls.clone();
    third.serve_later::<SumOf>(move |engine, caller, handle, responder| {
        assert_ne!(
            handle.segments().next().unwrap().region.address,
            *caller.address()
        );
        let into = Buffer::zeroed(handle.len() as usize);
        let pull = engine.pull_bulk(&handle, 0, into, LONG).unwrap();
        started.lock().unwrap().push((pull, responder));
    });
    let third_address = third.address().clone();
    let forwarded: Shared<_> = Shared::default();
    let forwarding = forwarded.clone();
    between.serve_later::<Relayed>(move |engine, _, handle, responder| {
        let call = engine.call::<SumOf>(&third_address, &handle, LONG).unwrap();
        forwarding.lock().unwrap().push((call, responder));
    });
    let mut call = origin.call::<Relayed>(between.address(), &handle, LONG).unwrap();
    let sum = drive(&mut [&mut origin, &mut between, &mut third], || {
        let mut pulls = pulls.lock().unwrap();
        if let Some(pulled) = pulls.last_mut().and_then(|(pull, _)| pull.try_take()) {
            let (_, responder) = pulls.pop().unwrap();
            responder.answer(Ok(pulled.unwrap().iter().map(|&byte| u64::from(byte)).sum()));
        }
        let mut forwarded = forwarded.lock().unwrap();
        if let Some(sum) = forwarded.last_mut().and_then(|(call, _)| call.try_take()) {
            let (_, responder) = forwarded.pop().unwrap();
            responder.answer(Ok(sum.unwrap()));
        }
        call.try_take()
    });
    assert_eq!(sum.unwrap(), expected);
}

/// One handle may show memory of several processes, and one transfer moves it.
fn bulk_of_several_origins() {
    let [mut first, mut second, mut target] = engines();
    let handles = [
        first
            .expose_segments_writable(vec![Buffer::copy_of(&[1; 70_000])])
            .unwrap(),
        second
            .expose_segments_writable(vec![Buffer::copy_of(&[2; 70_000])])
            .unwrap(),
    ];
    let joined = BulkHandle::join([&handles[0], &handles[1], &handles[0].slice(5..15).unwrap()]).unwrap();
    let all = &mut [&mut first, &mut second, &mut target];
    let mut pull = all[2]
        .pull_bulk(&joined, 69_995, Buffer::zeroed(70_015), LONG)
        .unwrap();
    let pulled = drive(all, || pull.try_take()).unwrap();
    assert!(*pulled == [&[1; 5][..], &[2; 70_000], &[1; 10]].concat());
    let mut push = all[2]
        .push_bulk(&joined, 69_999, Bytes::from_static(&[8, 9]), LONG)
        .unwrap();
    drive(all, || push.try_take()).unwrap();
    let first_memory = first.withdraw_bulk(&joined);
    assert!(matches!(&first_memory[0], Some(Withdrawn::Writable(buffer)) if buffer[69_999] == 8));
    assert!(first_memory[1].is_none(), "that is the second's");
    assert!(matches!(&first_memory[2], Some(Withdrawn::Writable(buffer)) if **buffer == [1; 10]));
    let second_memory = second.withdraw_bulk(&handles[1]);
    assert!(matches!(&second_memory[0], Some(Withdrawn::Writable(buffer)) if buffer[0] == 9));
}
