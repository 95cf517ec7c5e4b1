//! Pipelined pushes: all of the range is written, bounded, as fast as it is made and taken.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_core::Stream;
use ropewalk_rpc::{
    AccessError, Amount, Buffer, BulkHandle, ChunkToFill, Engine, InProgress, Pipeline, PushedChunks,
    SubmitError, TransferError, Withdrawn,
};

use crate::{LONG, MIB, content, drive, engines, engines_that_send};

crate::on_every_transport! {
    pipelined_push_writes_the_range,
    pipelined_push_blocking_and_as_a_stream,
    pipelined_push_waits_for_room,
    pipelined_push_to_oneself,
    dropped_pipelined_pushes_are_cancelled,
    target_dies_in_a_pipelined_push,
    pipelined_push_deadline,
    pipelined_push_refused,
    dropped_engines_end_their_pipelined_pushes,
}

/// A handle of segments of different lengths, all zero.
fn exposed(origin: &mut Engine, length: usize) -> BulkHandle {
    let (mut segments, mut left) = (Vec::new(), length);
    for size in [10, 300_000, 2000, 2 * MIB].into_iter().cycle() {
        if left == 0 {
            break;
        }
        segments.push(Buffer::zeroed(size.min(left)));
        left -= size.min(left);
    }
    origin.expose_segments_writable(segments).unwrap()
}

fn written(origin: &mut Engine, handle: &BulkHandle) -> Vec<u8> {
    let segments = origin.withdraw_bulk(handle).into_iter();
    let bytes = segments.map(|segment| match segment {
        Some(Withdrawn::Writable(buffer)) => buffer.to_vec(),
        other => panic!("a writable segment came back as {other:?}"),
    });
    bytes.collect::<Vec<_>>().concat()
}

/// Fills a chunk with what belongs at its place, and sends it.
fn fill(mut chunk: ChunkToFill, content: &[u8]) {
    let at = chunk.offset() as usize;
    let length = chunk.len();
    chunk.copy_from_slice(&content[at..at + length]);
    chunk.push();
}

/// Fills all that there is room for, until that is all; gives the error that ended it.
fn fill_all(
    engines: &mut [&mut Engine],
    chunks: &mut PushedChunks,
    content: &[u8],
) -> Result<(), TransferError> {
    let mut result = Ok(());
    drive(engines, || {
        while let Some(chunk) = chunks.try_next() {
            match chunk {
                Ok(chunk) => fill(chunk, content),
                Err(error) => result = Err(error),
            }
        }
        chunks.is_finished().then_some(())
    });
    result
}

/// Depth and chunk chosen or given, all of it or part of it: exactly the range is written.
fn pipelined_push_writes_the_range() {
    let [mut origin, mut target] = engines();
    let content = content(5 * MIB + 12_345, 0);
    let pipelines = [
        Pipeline::default(),
        Pipeline {
            depth: Amount::Exactly(1),
            chunk: Amount::Exactly(100_000),
        },
        Pipeline {
            depth: Amount::Auto,
            chunk: Amount::Exactly(5000),
        },
    ];
    for pipeline in pipelines {
        for range in [0..content.len(), 7..3 * MIB, MIB..MIB] {
            let handle = exposed(&mut origin, content.len());
            let wanted = range.start as u64..range.end as u64;
            let mut chunks = target.push_pipelined(&handle, wanted, pipeline, LONG).unwrap();
            fill_all(&mut [&mut origin, &mut target], &mut chunks, &content).unwrap();
            let mut expected = vec![0; content.len()];
            expected[range.clone()].copy_from_slice(&content[range]);
            assert!(written(&mut origin, &handle) == expected);
            assert_eq!(target.in_progress(), InProgress::default());
        }
    }
}

/// As a loop, and as a stream that any executor polls from another thread than the one that drives, with chunks that
/// are filled in another order than they are given.
fn pipelined_push_blocking_and_as_a_stream() {
    let [mut origin, mut target] = engines();
    let content = content(8 * MIB, 0);
    let handles = [exposed(&mut origin, 8 * MIB), exposed(&mut origin, 8 * MIB)];
    let all = 0..8 * MIB as u64;
    let (stop, stopped) = mpsc::channel::<()>();
    let driver = thread::spawn(move || {
        while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
            origin.wait(Duration::from_millis(10));
        }
        origin
    });
    let mut chunks = target
        .push_pipelined(&handles[0], all.clone(), Pipeline::default(), LONG)
        .unwrap();
    while let Some(chunk) = chunks.next_blocking(&mut target) {
        fill(chunk.unwrap(), &content);
    }
    assert!(chunks.is_finished());

    let mut chunks = target
        .push_pipelined(&handles[1], all, Pipeline::default(), LONG)
        .unwrap();
    let made = content.clone();
    let producer = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async move {
            let mut held = None;
            while let Some(chunk) = poll_fn(|context| Pin::new(&mut chunks).poll_next(context)).await {
                match held.take() {
                    None if chunk.as_ref().unwrap().offset() < 7 * MIB as u64 => held = chunk.ok(),
                    earlier => {
                        fill(chunk.unwrap(), &made);
                        earlier.into_iter().for_each(|earlier| fill(earlier, &made));
                    }
                }
            }
        });
    });
    while !producer.is_finished() {
        target.wait(Duration::from_millis(10));
    }
    producer.join().unwrap();
    drop(stop);
    let mut origin = driver.join().unwrap();
    for handle in handles {
        assert!(written(&mut origin, &handle) == content);
    }
}

/// One who makes chunks faster than they are taken gets no more of them than the depth and one, and goes on when the
/// first were taken.
fn pipelined_push_waits_for_room() {
    let [mut origin, mut target] = engines_that_send();
    let handle = exposed(&mut origin, 4 * MIB);
    let content = content(4 * MIB, 0);
    let pipeline = Pipeline {
        depth: Amount::Exactly(3),
        chunk: Amount::Exactly(100_000),
    };
    let mut chunks = target
        .push_pipelined(&handle, 0..handle.len(), pipeline, LONG)
        .unwrap();
    let mut made = 0;
    let start = Instant::now();
    // The origin, which has to take them, is not driven.
    while start.elapsed() < Duration::from_millis(20) {
        target.progress();
        while let Some(chunk) = chunks.try_next() {
            fill(chunk.unwrap(), &content);
            made += 1;
        }
    }
    assert_eq!(made, 4);
    fill_all(&mut [&mut origin, &mut target], &mut chunks, &content).unwrap();
    assert!(written(&mut origin, &handle) == content);
}

/// An engine writes its own memory so.
fn pipelined_push_to_oneself() {
    let [mut engine] = engines();
    let content = content(3 * MIB, 0);
    let handle = exposed(&mut engine, 3 * MIB);
    let mut chunks = engine
        .push_pipelined(&handle, 0..handle.len(), Pipeline::default(), LONG)
        .unwrap();
    fill_all(&mut [&mut engine], &mut chunks, &content).unwrap();
    assert!(written(&mut engine, &handle) == content);
    assert_eq!(engine.in_progress(), InProgress::default());
}

/// A push that is dropped asks for nothing more and leaves nothing, at whatever stage; chunks that its owner holds
/// still go nowhere.
fn dropped_pipelined_pushes_are_cancelled() {
    let [mut origin, mut target] = engines();
    let content = content(4 * MIB, 0);
    for steps in 0..8 {
        let handle = exposed(&mut origin, 4 * MIB);
        let mut chunks = target
            .push_pipelined(&handle, 0..handle.len(), Pipeline::default(), LONG)
            .unwrap();
        let held = chunks.try_next().unwrap().unwrap();
        if let Some(chunk) = chunks.try_next() {
            fill(chunk.unwrap(), &content);
        }
        for _ in 0..steps {
            target.progress();
            origin.progress();
        }
        drop(chunks);
        target.progress();
        assert_eq!(target.in_progress(), InProgress::default());
        held.push();
        let mut pull = target.pull_bulk(&handle, 0, Buffer::zeroed(5), LONG).unwrap();
        let pulled = drive(&mut [&mut origin, &mut target], || pull.try_take());
        assert_eq!(*pulled.unwrap(), [0; 5], "what was held was not written");
        origin.withdraw_bulk(&handle);
    }
}

/// The death of the one who shows the memory ends the push at once, also while nothing is on its way.
fn target_dies_in_a_pipelined_push() {
    let start = Instant::now();
    let content = content(8 * MIB, 0);
    for pushed in 0..4 {
        let [mut origin, mut target] = engines();
        let handle = exposed(&mut origin, 8 * MIB);
        let mut chunks = target
            .push_pipelined(&handle, 0..handle.len(), Pipeline::default(), LONG)
            .unwrap();
        for _ in 0..pushed {
            if let Some(chunk) = chunks.try_next() {
                fill(chunk.unwrap(), &content);
            }
            target.progress();
            origin.progress();
        }
        drop(origin);
        let ended = fill_all(&mut [&mut target], &mut chunks, &content);
        assert!(
            matches!(
                ended,
                Err(TransferError::PeerDied { .. } | TransferError::Submit(_))
            ),
            "{ended:?}"
        );
        assert!(chunks.try_next().is_none() && chunks.is_finished());
        assert_eq!(target.in_progress(), InProgress::default());
    }
    assert!(start.elapsed() < LONG);
}

/// A push ends by its deadline, whether the one who shows the memory does not take it or the owner does not make it.
fn pipelined_push_deadline() {
    let content = content(4 * MIB, 0);
    for fills in [true, false] {
        let [mut origin, mut target] = engines_that_send();
        let handle = exposed(&mut origin, 4 * MIB);
        // Connected, so that only silence is left.
        let mut pull = target.pull_bulk(&handle, 0, Buffer::zeroed(1), LONG).unwrap();
        drive(&mut [&mut origin, &mut target], || pull.try_take()).unwrap();
        let start = Instant::now();
        let timeout = Duration::from_millis(50);
        let mut chunks = target
            .push_pipelined(&handle, 0..handle.len(), Pipeline::default(), timeout)
            .unwrap();
        let mut held = Vec::new();
        let ended = loop {
            match chunks.next_blocking(&mut target) {
                Some(Ok(chunk)) if fills => fill(chunk, &content),
                Some(Ok(chunk)) => held.push(chunk),
                Some(Err(error)) => break error,
                None => panic!("nobody took it"),
            }
        };
        assert!(matches!(ended, TransferError::TimedOut { .. }), "{ended:?}");
        assert!(start.elapsed() >= timeout && start.elapsed() < LONG / 2);
        assert!(chunks.next_blocking(&mut target).is_none());
        assert_eq!(target.in_progress(), InProgress::default());
    }
}

/// A push to memory that may not be written, or is not there, is refused, here or by the one who shows the
/// memory. A chunk that is dropped unfilled is reported, too.
fn pipelined_push_refused() {
    let [mut origin, mut target] = engines();
    let content = content(2 * MIB, 0);
    let readable = origin
        .expose_segments(vec![Bytes::from(vec![5; 2 * MIB])])
        .unwrap();
    let pipeline = Pipeline::default();
    let refused = target.push_pipelined(&readable, 0..readable.len(), pipeline, LONG);
    assert!(matches!(
        refused,
        Err(TransferError::Submit(SubmitError::ReadOnly))
    ));
    let writable = exposed(&mut origin, 2 * MIB);
    let outside = target.push_pipelined(&writable, 1..writable.len() + 1, pipeline, LONG);
    assert!(matches!(
        outside,
        Err(TransferError::Submit(SubmitError::OutOfRange { .. }))
    ));

    let region = |handle: &BulkHandle| handle.segments().last().unwrap().region.clone();
    let (mut lying, mut forged) = (region(&readable), region(&writable));
    lying.writable = true;
    forged.token ^= 1 << 77;
    for (bad, expected) in [(lying, AccessError::ReadOnly), (forged, AccessError::Unknown)] {
        let bad = BulkHandle::from(bad);
        let mut chunks = target.push_pipelined(&bad, 0..bad.len(), pipeline, LONG).unwrap();
        let ended = fill_all(&mut [&mut origin, &mut target], &mut chunks, &content);
        assert!(matches!(ended, Err(TransferError::Access { source, .. }) if source == expected));
    }

    let mut chunks = target
        .push_pipelined(&writable, 0..writable.len(), pipeline, LONG)
        .unwrap();
    drop(chunks.try_next().unwrap().unwrap());
    let ended = fill_all(&mut [&mut origin, &mut target], &mut chunks, &content);
    assert!(matches!(ended, Err(TransferError::Unfilled { offset: 0 })));
    target.progress();
    assert_eq!(target.in_progress(), InProgress::default());
}

/// A push in progress when its engine is dropped ends too, and chunks that are held still harm nobody.
fn dropped_engines_end_their_pipelined_pushes() {
    let [mut origin, mut target] = engines();
    let handle = exposed(&mut origin, 4 * MIB);
    let mut chunks = target
        .push_pipelined(&handle, 0..handle.len(), Pipeline::default(), LONG)
        .unwrap();
    let held = chunks.try_next().unwrap().unwrap();
    drop(target);
    assert!(matches!(chunks.try_next(), Some(Err(TransferError::Stopped))));
    held.push();
    assert!(chunks.try_next().is_none() && chunks.is_finished());
}
