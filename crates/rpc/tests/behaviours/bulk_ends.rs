//! Bulk transfers that end otherwise than well.

use std::{
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use bytes::Bytes;
use ropewalk_rpc::{
    AccessError, Buffer, BulkHandle, EndpointOptions, Engine, InProgress, Limits, Pipeline, SubmitError,
    TransferError,
};

use crate::{LONG, MIB, drive, engines, engines_that_send, options};

crate::on_every_transport! {
    cancel_of_a_bulk_transfer,
    target_dies_in_a_bulk_transfer,
    bulk_write_to_a_read_only_handle,
    forged_and_stale_bulk_handles,
    bulk_beyond_all_limits,
    bulk_deadline,
    dropped_engines_end_their_bulk_transfers,
    bulk_checksums_are_checked_end_to_end,
}

/// The error with which a transfer that was started ends.
fn error_of<T>(engines: &mut [&mut Engine], mut transfer: ropewalk_rpc::Transfer<T>) -> TransferError {
    match drive(engines, || transfer.try_take()) {
        Ok(_) => panic!("the transfer ended well"),
        Err(error) => error,
    }
}

/// A bulk transfer that is dropped is cancelled at whatever stage, and what comes after it is right.
fn cancel_of_a_bulk_transfer() {
    let [mut origin, mut target] = engines();
    let readable = origin
        .expose_segments(vec![Bytes::from(vec![5; MIB]); 16])
        .unwrap();
    let writable = origin
        .expose_segments_writable(vec![Buffer::zeroed(MIB); 16])
        .unwrap();
    for steps in 0..8 {
        let pull = target
            .pull_bulk(&readable, 0, Buffer::zeroed(16 * MIB), LONG)
            .unwrap();
        let push = target
            .push_bulk(&writable, 0, Bytes::from(vec![6; 16 * MIB]), LONG)
            .unwrap();
        for _ in 0..steps {
            origin.progress();
            target.progress();
        }
        drop((pull, push));
        let mut pull = target
            .pull_bulk(&readable, 9 * MIB as u64 - 50, Buffer::zeroed(100), LONG)
            .unwrap();
        let pulled = drive(&mut [&mut origin, &mut target], || pull.try_take());
        assert_eq!(*pulled.unwrap(), [5; 100]);
        assert_eq!(target.in_progress(), InProgress::default());
    }
}

/// The death of the origin in a bulk transfer of either direction, or in a pipeline, ends it at once.
fn target_dies_in_a_bulk_transfer() {
    let forever = Duration::from_secs(3600);
    let start = Instant::now();
    for steps in 0..4 {
        let [mut origin, mut target] = engines();
        let readable = origin
            .expose_segments(vec![Bytes::from(vec![5; 8 * MIB]); 8])
            .unwrap();
        let writable = origin
            .expose_segments_writable(vec![Buffer::zeroed(8 * MIB); 8])
            .unwrap();
        let pull = target
            .pull_bulk(&readable, 0, Buffer::zeroed(64 * MIB), forever)
            .unwrap();
        let push = target
            .push_bulk(&writable, 0, Bytes::from(vec![6; 64 * MIB]), forever)
            .unwrap();
        let all = 0..readable.len();
        let mut chunks = target
            .pull_pipelined(&readable, all, Pipeline::default(), forever)
            .unwrap();
        for _ in 0..steps {
            origin.progress();
            target.progress();
        }
        drop(origin);
        assert!(matches!(
            target.block_on(pull),
            Err(TransferError::PeerDied { .. })
        ));
        assert!(matches!(
            target.block_on(push),
            Err(TransferError::PeerDied { .. })
        ));
        let error = loop {
            match chunks.next_blocking(&mut target) {
                Some(Ok(_)) => {}
                Some(Err(error)) => break error,
                None => panic!("all chunks came from the dead"),
            }
        };
        assert!(matches!(error, TransferError::PeerDied { .. }));
        assert!(chunks.next_blocking(&mut target).is_none() && chunks.is_finished());
        assert_eq!(target.in_progress(), InProgress::default());
    }
    assert!(start.elapsed() < LONG);
}

/// Writing by a handle for reading is refused here, and by the origin if the handle lies.
fn bulk_write_to_a_read_only_handle() {
    let [mut origin, mut target] = engines();
    let readable = origin
        .expose_segments(vec![Bytes::from(vec![5; 5000]); 2])
        .unwrap();
    let writable = origin
        .expose_segments_writable(vec![Buffer::zeroed(5000)])
        .unwrap();
    let mixed = BulkHandle::join([&writable, &readable]).unwrap();
    for (handle, offset) in [(&readable, 0), (&mixed, 4000)] {
        let push = target.push_bulk(handle, offset, Bytes::from(vec![1; 2000]), LONG);
        assert!(matches!(push, Err(TransferError::Submit(SubmitError::ReadOnly))));
    }
    // Of a handle that may be written in part, that part is.
    let mut push = target
        .push_bulk(&mixed, 0, Bytes::from(vec![1; 5000]), LONG)
        .unwrap();
    drive(&mut [&mut origin, &mut target], || push.try_take()).unwrap();

    let lies = readable.segments().map(|segment| {
        let mut region = segment.region.clone();
        region.writable = true;
        BulkHandle::from(region)
    });
    let lying = BulkHandle::join(&lies.collect::<Vec<_>>()).unwrap();
    let push = target
        .push_bulk(&lying, 0, Bytes::from(vec![1; 10_000]), LONG)
        .unwrap();
    let error = error_of(&mut [&mut origin, &mut target], push);
    assert!(matches!(
        error,
        TransferError::Access {
            source: AccessError::ReadOnly,
            ..
        }
    ));
    let mut pull = target
        .pull_bulk(&readable, 0, Buffer::zeroed(10_000), LONG)
        .unwrap();
    let pulled = drive(&mut [&mut origin, &mut target], || pull.try_take()).unwrap();
    assert!(*pulled == [5; 10_000]);
}

/// One segment of a handle that is forged, too long or withdrawn spoils the transfer, and no memory is shown.
fn forged_and_stale_bulk_handles() {
    let [mut origin, mut target] = engines();
    let handle = origin
        .expose_segments_writable(vec![Buffer::zeroed(5000), Buffer::zeroed(5000)])
        .unwrap();
    let regions: Vec<_> = handle.segments().map(|segment| segment.region.clone()).collect();
    let mut forged = regions[1].clone();
    forged.token ^= 1 << 77;
    let mut too_long = regions[1].clone();
    too_long.length += 1;
    let stale = origin
        .expose_segments_writable(vec![Buffer::zeroed(5000)])
        .unwrap();
    assert!(matches!(origin.withdraw_bulk(&stale)[..], [Some(_)]));
    let bad = [
        (BulkHandle::from(forged), AccessError::Unknown),
        (BulkHandle::from(too_long), AccessError::OutOfRange),
        (stale, AccessError::Unknown),
    ];
    for (bad, expected) in bad {
        let spoilt = BulkHandle::join([&BulkHandle::from(regions[0].clone()), &bad]).unwrap();
        let length = spoilt.len() as usize;
        let pull = target
            .pull_bulk(&spoilt, 0, Buffer::zeroed(length), LONG)
            .unwrap();
        let push = target
            .push_bulk(&spoilt, 0, Bytes::from(vec![1; length]), LONG)
            .unwrap();
        let all = &mut [&mut origin, &mut target];
        for error in [error_of(all, pull), error_of(all, push)] {
            assert!(matches!(error, TransferError::Access { source, .. } if source == expected));
        }
    }
}

/// More pieces than the peer serves at once, and than may be in progress here: all get there.
fn bulk_beyond_all_limits() {
    let limited = |rank, limits| {
        Engine::new(
            ropewalk_rpc::bind(EndpointOptions {
                limits,
                ..options(rank)
            })
            .unwrap(),
        )
    };
    let serving_few = Limits {
        served_transfers_max: 3,
        ..Limits::default()
    };
    let asking_few = Limits {
        operations_max: 5,
        ..Limits::default()
    };
    for (here, there) in [
        (Limits::default(), serving_few),
        (asking_few, Limits::default()),
        (asking_few, serving_few),
    ] {
        let (mut origin, mut target) = (limited(0, there), limited(1, here));
        let handle = origin
            .expose_segments(vec![Bytes::from(vec![7; 5000]); 400])
            .unwrap();
        let mut pulls: Vec<_> = (0..3)
            .map(|_| target.pull_bulk(&handle, 1, Buffer::zeroed(1_999_998), LONG))
            .filter_map(Result::ok)
            .collect();
        assert!(!pulls.is_empty());
        drive(&mut [&mut origin, &mut target], || {
            pulls.retain_mut(|pull| match pull.try_take() {
                Some(pulled) => {
                    assert!(pulled.unwrap().iter().all(|&byte| byte == 7));
                    false
                }
                None => true,
            });
            pulls.is_empty().then_some(())
        });
    }
}

/// A bulk transfer ends by its deadline although the origin is not driven; also one that waits for room.
fn bulk_deadline() {
    let [mut origin, mut target] = engines_that_send();
    let handle = origin
        .expose_segments(vec![Bytes::from(vec![7; 5000]); 400])
        .unwrap();
    // Connected, so that only the origin's silence is left.
    let mut pull = target.pull_bulk(&handle, 0, Buffer::zeroed(1), LONG).unwrap();
    drive(&mut [&mut origin, &mut target], || pull.try_take()).unwrap();
    let timeout = Duration::from_millis(50);
    let all = 0..handle.len();
    let pull = target
        .pull_bulk(&handle, 0, Buffer::zeroed(2_000_000), timeout)
        .unwrap();
    let mut chunks = target
        .pull_pipelined(&handle, all, Pipeline::default(), timeout)
        .unwrap();
    let start = Instant::now();
    assert!(matches!(
        target.block_on(pull),
        Err(TransferError::TimedOut { .. })
    ));
    let ended = chunks.next_blocking(&mut target).unwrap();
    assert!(matches!(ended, Err(TransferError::TimedOut { .. })));
    assert_eq!(target.in_progress(), InProgress::default());
    assert!(start.elapsed() < LONG / 2);
}

/// Bulk transfers in progress when their engine is dropped end too.
fn dropped_engines_end_their_bulk_transfers() {
    let [mut origin, mut target] = engines();
    let handle = origin
        .expose_segments(vec![Bytes::from(vec![7; 5000]); 4])
        .unwrap();
    let mut pull = target
        .pull_bulk(&handle, 0, Buffer::zeroed(20_000), LONG)
        .unwrap();
    let all = 0..handle.len();
    let mut chunks = target
        .pull_pipelined(&handle, all, Pipeline::default(), LONG)
        .unwrap();
    drop(target);
    assert!(matches!(pull.try_take(), Some(Err(TransferError::Stopped))));
    assert!(matches!(chunks.try_next(), Some(Err(TransferError::Stopped))));
    assert!(chunks.try_next().is_none());
    let mut context = Context::from_waker(Waker::noop());
    let next = futures_core::Stream::poll_next(std::pin::Pin::new(&mut chunks), &mut context);
    assert!(matches!(next, Poll::Ready(None)));
}

/// A checksum that was computed at exposure is checked by whoever pulls the whole segment, at once or chunk by
/// chunk; what does not match is an error that names the segment.
fn bulk_checksums_are_checked_end_to_end() {
    let [mut origin, mut target] = engines();
    let segments = (0..3).map(|seed| Bytes::from(vec![seed; 100_000])).collect();
    let handle = origin.expose_segments_checked(segments).unwrap();
    // The checksum of the last segment is the last thing that is encoded of a handle.
    let mut encoded = postcard::to_allocvec(&handle).unwrap();
    *encoded.last_mut().unwrap() ^= 1;
    let wrong: BulkHandle = postcard::from_bytes(&encoded).unwrap();
    assert_ne!(wrong, handle);
    let all = &mut [&mut origin, &mut target];
    for (handle, range, is_right) in [
        (&handle, 0..300_000, true),
        (&wrong, 0..300_000, false),
        (&wrong, 0..299_999, true),
        (&wrong, 150_000..300_000, false),
        (&wrong, 200_001..300_000, true),
    ] {
        let into = Buffer::zeroed((range.end - range.start) as usize);
        let mut pull = all[1].pull_bulk(handle, range.start, into, LONG).unwrap();
        let pulled = drive(all, || pull.try_take());
        let pipeline = Pipeline {
            chunk: ropewalk_rpc::Amount::Exactly(7000),
            ..Pipeline::default()
        };
        let mut chunks = all[1].pull_pipelined(handle, range, pipeline, LONG).unwrap();
        let mut pulled_chunks = Ok(());
        drive(all, || {
            while let Some(chunk) = chunks.try_next() {
                pulled_chunks = chunk.map(drop);
            }
            chunks.is_finished().then_some(())
        });
        for result in [pulled.map(drop), pulled_chunks] {
            match result {
                Ok(()) => assert!(is_right),
                Err(TransferError::ChecksumMismatch { segment, .. }) => assert!(!is_right && segment == 2),
                Err(error) => panic!("the wrong error: {error}"),
            }
        }
    }
}
