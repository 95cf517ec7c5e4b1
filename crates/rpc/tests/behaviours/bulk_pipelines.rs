//! Pipelined pulls: in order, bounded, and as fast as they are consumed.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_core::Stream;
use ropewalk_rpc::{Amount, BulkHandle, Engine, InProgress, Pipeline, SubmitError, TransferError};

use crate::{LONG, MIB, content, drive, engines};

crate::on_every_transport! {
    pipelined_pull_gives_chunks_in_order,
    pipelined_pull_blocking_and_as_a_stream,
    pipelined_pull_waits_for_its_consumer,
    pipelined_pull_deadline,
}

/// A handle of segments of different lengths, and what it shows.
fn exposed(origin: &mut Engine, length: usize) -> (BulkHandle, Vec<u8>) {
    let content = content(length, 0);
    let mut rest = Bytes::from(content.clone());
    let mut segments = Vec::new();
    for size in [10, 300_000, 2000, 2 * MIB].into_iter().cycle() {
        if rest.is_empty() {
            break;
        }
        segments.push(rest.split_to(size.min(rest.len())));
    }
    (origin.expose_segments(segments).unwrap(), content)
}

/// Depth and chunk chosen or given, all of it or part of it: the chunks are the range, in order.
fn pipelined_pull_gives_chunks_in_order() {
    let [mut origin, mut target] = engines();
    let (handle, content) = exposed(&mut origin, 5 * MIB + 12_345);
    let pipelines = [
        Pipeline::default(),
        Pipeline {
            depth: Amount::Exactly(1),
            chunk: Amount::Exactly(100_000),
        },
        Pipeline {
            depth: Amount::Exactly(4),
            chunk: Amount::Auto,
        },
        Pipeline {
            depth: Amount::Auto,
            chunk: Amount::Exactly(5000),
        },
    ];
    for pipeline in pipelines {
        for range in [0..content.len(), 7..3 * MIB, MIB..MIB] {
            let wanted = range.start as u64..range.end as u64;
            let mut chunks = target.pull_pipelined(&handle, wanted, pipeline, LONG).unwrap();
            let mut at = range.start;
            drive(&mut [&mut origin, &mut target], || {
                while let Some(chunk) = chunks.try_next() {
                    let chunk = chunk.unwrap();
                    assert_eq!(chunk.offset(), at as u64);
                    assert!(*chunk == content[at..at + chunk.len()]);
                    if let Amount::Exactly(length) = pipeline.chunk {
                        assert_eq!(chunk.len(), length.min(range.end - at));
                    }
                    at += chunk.len();
                }
                chunks.is_finished().then_some(())
            });
            assert_eq!(at, range.end);
        }
    }
    let outside = target.pull_pipelined(&handle, 0..handle.len() + 1, Pipeline::default(), LONG);
    assert!(matches!(
        outside,
        Err(TransferError::Submit(SubmitError::OutOfRange { .. }))
    ));
}

/// The paper's example: four stages, each piece worked on while the next ones come; as a loop, and as a stream
/// that any executor polls from another thread than the one that drives.
fn pipelined_pull_blocking_and_as_a_stream() {
    let [mut origin, mut target] = engines();
    let (handle, content) = exposed(&mut origin, 8 * MIB);
    let expected: u64 = content.iter().map(|&byte| u64::from(byte)).sum();
    let sum_of = |bytes: &[u8]| bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    let pipeline = Pipeline {
        depth: Amount::Exactly(4),
        chunk: Amount::Auto,
    };
    let (stop, stopped) = mpsc::channel::<()>();
    let driver = thread::spawn(move || {
        while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
            origin.wait(Duration::from_millis(10));
        }
    });
    let mut chunks = target
        .pull_pipelined(&handle, 0..handle.len(), pipeline, LONG)
        .unwrap();
    let mut sum = 0;
    while let Some(chunk) = chunks.next_blocking(&mut target) {
        sum += sum_of(&chunk.unwrap());
    }
    assert_eq!(sum, expected);

    let mut chunks = target
        .pull_pipelined(&handle, 0..handle.len(), Pipeline::default(), LONG)
        .unwrap();
    let consumer = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async move {
            let mut sum = 0;
            while let Some(chunk) = poll_fn(|context| Pin::new(&mut chunks).poll_next(context)).await {
                sum += sum_of(&chunk.unwrap());
            }
            sum
        })
    });
    while !consumer.is_finished() {
        target.wait(Duration::from_millis(10));
    }
    assert_eq!(consumer.join().unwrap(), expected);
    drop(stop);
    driver.join().unwrap();
}

/// A pipeline whose owner takes nothing asks for no more than its depth, and goes on when it takes; one whose
/// owner has dropped it asks for nothing more.
fn pipelined_pull_waits_for_its_consumer() {
    let [mut origin, mut target] = engines();
    let (handle, content) = exposed(&mut origin, 4 * MIB);
    let pipeline = Pipeline {
        depth: Amount::Exactly(3),
        chunk: Amount::Exactly(100_000),
    };
    let mut chunks = target
        .pull_pipelined(&handle, 0..handle.len(), pipeline, LONG)
        .unwrap();
    let settle = |origin: &mut Engine, target: &mut Engine| {
        let (mut latest, mut idle) = (Instant::now(), 0);
        while idle < 2000 || latest.elapsed() < Duration::from_millis(300) {
            idle += 1;
            if origin.progress() + target.progress() > 0 {
                (latest, idle) = (Instant::now(), 0);
            }
        }
    };
    // How long it takes to connect is the network's affair.
    let first = drive(&mut [&mut origin, &mut target], || chunks.try_next()).unwrap();
    assert!(*first == content[..100_000]);
    settle(&mut origin, &mut target);
    // What was not asked for by now cannot be there: the origin is not driven.
    let mut here = 1;
    while let Some(chunk) = chunks.try_next() {
        assert!(*chunk.unwrap() == content[here * 100_000..(here + 1) * 100_000]);
        here += 1;
    }
    assert_eq!(here, 4, "the first, and as many as the depth");
    let next = drive(&mut [&mut origin, &mut target], || chunks.try_next()).unwrap();
    assert_eq!(next.offset(), 400_000);
    drop(chunks);
    settle(&mut origin, &mut target);
    assert_eq!(target.in_progress(), InProgress::default());
    // Its memory goes with it, but what was taken stays.
    assert!(*next == content[400_000..500_000]);
    assert!(*next.into_buffer() == content[400_000..500_000]);
}

/// A pull ends by its deadline, also if all that is missing is an owner who takes what has come.
fn pipelined_pull_deadline() {
    let [mut origin, mut target] = engines();
    let (handle, _) = exposed(&mut origin, 4 * MIB);
    let timeout = Duration::from_millis(100);
    let mut chunks = target
        .pull_pipelined(&handle, 0..handle.len(), Pipeline::default(), timeout)
        .unwrap();
    let start = Instant::now();
    while target.in_progress() != InProgress::default() {
        assert!(start.elapsed() < LONG / 2);
        origin.progress();
        target.progress();
    }
    assert!(start.elapsed() >= timeout / 2);
    let ended = chunks.try_next();
    assert!(
        matches!(ended, Some(Err(TransferError::TimedOut { .. }))),
        "{ended:?}"
    );
    assert!(chunks.try_next().is_none() && chunks.is_finished());
}
