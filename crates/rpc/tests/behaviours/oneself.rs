//! An engine that calls itself and moves its own memory: what it does with others it does with itself.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use ropewalk_rpc::{
    AccessError, Amount, Buffer, BulkHandle, BusyReason, CallError, CallOptions, Endpoint, Engine,
    EngineOptions, Fault, Hedge, InProgress, Pipeline, Procedure, Responder, SubmitError, Transfer,
    TransferError, Withdrawn,
};

use crate::{
    Count, Describe, Double, Echo, LONG, Null, Refuse, Relay, Shared, SumOf, Survey, drive, engines, options,
};

mod over_loopback {
    crate::spinning_and_sleeping! { either,
        null_call,
        struct_both_ways,
        unknown_and_removed_procedure,
        faults_and_mismatches,
        one_way,
        overflow_both_ways,
        cancel_in_flight,
        deadline,
        many_calls,
        nested_calls,
        batches,
        hedged,
        at_most_once,
        busy,
        timing_and_counts,
        handle_in_an_argument,
        bulk_of_every_shape,
        bulk_random_segments,
        bulk_null,
        bulk_cancelled,
        bulk_errors,
        pipelined_pull,
        dropped_engine_ends_everything,
    }
}

const LARGE: usize = 200_000;

fn one() -> Engine {
    let [engine] = engines();
    engine
}

/// Calls itself and drives until there is a result.
fn call<P: Procedure>(engine: &mut Engine, input: &P::Input) -> Result<P::Output, CallError> {
    let itself = engine.address().clone();
    let mut call = engine.call::<P>(&itself, input, LONG)?;
    drive(&mut [engine], || call.try_take())
}

fn end<T>(engine: &mut Engine, mut transfer: Transfer<T>) -> Result<T, TransferError> {
    drive(&mut [engine], || transfer.try_take())
}

/// Drives until nothing is in progress.
fn settle(engine: &mut Engine) {
    let start = std::time::Instant::now();
    while engine.in_progress() != InProgress::default() {
        engine.progress();
        assert!(
            start.elapsed() < LONG,
            "something stays: {:?}",
            engine.in_progress()
        );
    }
}

/// A call of nothing for nothing, a hundred times.
fn null_call() {
    let mut engine = one();
    engine.serve::<Null>(|_, ()| Ok(()));
    for _ in 0..100 {
        call::<Null>(&mut engine, &()).unwrap();
    }
    assert_eq!(engine.in_progress(), InProgress::default());
}

/// Structured arguments arrive as they went, and the caller is the engine itself.
fn struct_both_ways() {
    let mut engine = one();
    let itself = engine.address().clone();
    engine.serve::<Describe>(move |caller, mut survey| {
        assert_eq!(caller.address(), &itself);
        assert!(caller.remaining().unwrap() > LONG / 2);
        survey.shots.reverse();
        Ok(survey)
    });
    let survey = |shots: &[_]| Survey {
        name: "line 7".into(),
        shots: shots.to_vec(),
    };
    let shots = [(1.5, None), (-0.0, Some(-3))];
    let described = call::<Describe>(&mut engine, &survey(&shots)).unwrap();
    assert_eq!(described, survey(&[shots[1], shots[0]]));
}

/// What is not served, or no longer, is an error that names it.
fn unknown_and_removed_procedure() {
    let mut engine = one();
    for served in [false, true, false] {
        if served {
            engine.serve::<Null>(|_, ()| Ok(()));
        } else {
            engine.stop_serving::<Null>();
        }
        match call::<Null>(&mut engine, &()) {
            Ok(()) => assert!(served),
            Err(CallError::UnknownProcedure { procedure, .. }) => assert!(!served && procedure == Null::NAME),
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// What the handler says went wrong, and inputs of another type, are told.
fn faults_and_mismatches() {
    struct OtherInput;
    impl Procedure for OtherInput {
        const NAME: &'static str = Refuse::NAME;
        type Input = ();
        type Output = ();
    }
    let mut engine = one();
    engine.serve::<Refuse>(|_, reason| Err(Fault::new(reason)));
    let fault = call::<Refuse>(&mut engine, &"no such shot".to_owned());
    assert!(matches!(&fault, Err(CallError::Fault { source, .. }) if source.to_string() == "no such shot"));
    let mismatch = call::<OtherInput>(&mut engine, &());
    assert!(matches!(mismatch, Err(CallError::InputMalformed { .. })));
}

/// Notifications arrive in order among themselves and with calls, whatever their size.
fn one_way() {
    let mut engine = one();
    let seen: Shared<u64> = Arc::default();
    let log = seen.clone();
    engine.serve::<Count>(move |_, number| {
        log.lock().unwrap().push(number);
        Ok(())
    });
    let log = seen.clone();
    engine.serve::<Echo>(move |_, bytes| {
        log.lock().unwrap().push(u64::from(bytes[0]));
        Ok(bytes)
    });
    let itself = engine.address().clone();
    for number in 0..200 {
        match number % 10 {
            5 => engine
                .notify::<Echo>(&itself, &vec![number as u8; LARGE])
                .unwrap(),
            _ => engine.notify::<Count>(&itself, &number).unwrap(),
        }
    }
    call::<Count>(&mut engine, &200).unwrap();
    assert_eq!(*seen.lock().unwrap(), (0..=200).collect::<Vec<_>>());
    settle(&mut engine);
}

/// Inputs, one-way inputs and outputs of any size are carried, and nothing stays of them.
fn overflow_both_ways() {
    let mut engine = one();
    engine.serve::<Echo>(|_, bytes| Ok(bytes));
    let itself = engine.address().clone();
    for size in [0, 65_000, 65_537, 1 << 20, 8 << 20] {
        let input: Vec<u8> = (0..size).map(|at| (at * 7) as u8).collect();
        assert!(
            call::<Echo>(&mut engine, &input).unwrap() == input,
            "{size} bytes"
        );
        engine.notify::<Echo>(&itself, &input).unwrap();
    }
    settle(&mut engine);
}

/// A cancelled call, small or large, is forgotten, its handler hears of it, and the next calls are answered.
fn cancel_in_flight() {
    let mut engine = one();
    let held: Shared<Responder<()>> = Arc::default();
    let holding = held.clone();
    engine.serve_later::<Null>(move |_, _, (), responder| holding.lock().unwrap().push(responder));
    engine.serve::<Echo>(|_, bytes| Ok(bytes));
    let itself = engine.address().clone();
    for steps in 0..6 {
        let small = engine.call::<Null>(&itself, &(), LONG).unwrap();
        let large = engine.call::<Echo>(&itself, &vec![1; LARGE], LONG).unwrap();
        for _ in 0..steps {
            engine.progress();
        }
        drop((small, large));
        assert_eq!(call::<Echo>(&mut engine, &vec![2]).unwrap(), [2]);
    }
    let cancelled = |responder: &Responder<()>| responder.is_cancelled();
    drive(&mut [&mut engine], || {
        held.lock().unwrap().iter().all(cancelled).then_some(())
    });
    assert!(!held.lock().unwrap().is_empty());
    held.lock().unwrap().clear();
    settle(&mut engine);
}

/// A call that is not answered ends in time, and its late answer is ignored.
fn deadline() {
    let mut engine = one();
    let held: Shared<Responder<()>> = Arc::default();
    let holding = held.clone();
    engine.serve_later::<Null>(move |_, _, (), responder| holding.lock().unwrap().push(responder));
    engine.serve::<Double>(|_, number| Ok(number * 2));
    let itself = engine.address().clone();
    let mut never = engine
        .call::<Null>(&itself, &(), Duration::from_millis(50))
        .unwrap();
    let ended = drive(&mut [&mut engine], || never.try_take());
    assert!(matches!(ended, Err(CallError::TimedOut { .. })));
    held.lock()
        .unwrap()
        .drain(..)
        .for_each(|late| late.answer(Ok(())));
    assert_eq!(call::<Double>(&mut engine, &4).unwrap(), 8);
}

/// Thousands in flight are each given their own answer.
fn many_calls() {
    let mut engine = one();
    engine.serve::<Double>(|_, number| Ok(number * 2));
    let itself = engine.address().clone();
    let calls: Vec<_> = (0..5000)
        .map(|number| engine.call::<Double>(&itself, &number, LONG).unwrap())
        .collect();
    for (number, mut call) in calls.into_iter().enumerate() {
        let answer = drive(&mut [&mut engine], || call.try_take());
        assert_eq!(answer.unwrap(), number as u64 * 2);
    }
}

/// A handler calls the engine that runs it, many at once.
fn nested_calls() {
    let mut engine = one();
    engine.serve::<Double>(|_, number| Ok(number * 2));
    engine.serve_async::<Relay, _>(|context, (there, number)| async move {
        let doubled = context.call::<Double>(&there, number, Duration::MAX).await;
        Ok(doubled.map_err(Fault::new)? + 1)
    });
    let itself = engine.address().clone();
    let calls: Vec<_> = (0..100)
        .map(|number| {
            engine
                .call::<Relay>(&itself, &(itself.clone(), number), LONG)
                .unwrap()
        })
        .collect();
    for (number, mut call) in calls.into_iter().enumerate() {
        let answer = drive(&mut [&mut engine], || call.try_take());
        assert_eq!(answer.unwrap(), number as u64 * 2 + 1);
    }
}

/// The calls of a batch each have their own end.
fn batches() {
    let mut engine = one();
    engine.serve::<Double>(|_, number| Ok(number * 2));
    engine.serve::<Echo>(|_, bytes| Ok(bytes));
    let itself = engine.address().clone();
    let mut batch = engine.batch(&itself).unwrap();
    let mut doubled: Vec<_> = (0..1000)
        .map(|number| batch.push::<Double>(&number).unwrap())
        .collect();
    let mut echoed = batch.push::<Echo>(&vec![3; LARGE]).unwrap();
    let mut unknown = batch.push::<Count>(&1).unwrap();
    batch.send(LONG);
    for (number, call) in doubled.iter_mut().enumerate() {
        let answer = drive(&mut [&mut engine], || call.try_take());
        assert_eq!(answer.unwrap(), number as u64 * 2);
    }
    let echoed = drive(&mut [&mut engine], || echoed.try_take());
    assert!(echoed.unwrap() == vec![3; LARGE]);
    let unknown = drive(&mut [&mut engine], || unknown.try_take());
    assert!(matches!(unknown, Err(CallError::UnknownProcedure { .. })));
    settle(&mut engine);
}

/// An engine may be one of the targets of its own hedged call.
fn hedged() {
    let mut engine = one();
    engine.serve::<Double>(|_, number| Ok(number * 2));
    let itself = engine.address().clone();
    let call = engine.call_hedged::<Double>(&[itself.clone(), itself], 4, Hedge::After(LONG), LONG);
    assert_eq!(engine.block_on(call).unwrap(), 8);
}

/// Calls that may be made again run once.
fn at_most_once() {
    let mut engine = one();
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = runs.clone();
    engine.serve::<Echo>(move |_, bytes| {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(bytes)
    });
    let itself = engine.address().clone();
    let options = CallOptions {
        retries: 3,
        ..CallOptions::new(LONG)
    };
    for size in [1, LARGE] {
        let mut call = engine.call::<Echo>(&itself, &vec![5; size], options).unwrap();
        let answer = drive(&mut [&mut engine], || call.try_take());
        assert!(answer.unwrap() == vec![5; size]);
    }
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

/// More calls than the engine takes are refused, visibly.
fn busy() {
    let limits = EngineOptions {
        calls_max: 3,
        ..EngineOptions::default()
    };
    let mut engine = Engine::with_options(Endpoint::bind(options(0)).unwrap(), limits);
    let held: Shared<Responder<()>> = Arc::default();
    let holding = held.clone();
    engine.serve_later::<Null>(move |_, _, (), responder| holding.lock().unwrap().push(responder));
    let itself = engine.address().clone();
    let mut calls: Vec<_> = (0..4)
        .map(|_| engine.call::<Null>(&itself, &(), LONG).unwrap())
        .collect();
    let mut last = calls.pop().unwrap();
    match drive(&mut [&mut engine], || last.try_take()) {
        Err(CallError::Busy { reason, .. }) => assert_eq!(reason, BusyReason::Calls),
        other => panic!("{other:?}"),
    }
    held.lock()
        .unwrap()
        .drain(..)
        .for_each(|responder| responder.answer(Ok(())));
    for mut call in calls {
        drive(&mut [&mut engine], || call.try_take()).unwrap();
    }
}

/// A call to oneself says where its time went, and is counted on both sides.
fn timing_and_counts() {
    let mut engine = one();
    engine.serve::<Double>(|_, number| Ok(number * 2));
    let itself = engine.address().clone();
    let options = CallOptions {
        timing: true,
        ..LONG.into()
    };
    let mut call = engine.call::<Double>(&itself, &4, options).unwrap();
    assert_eq!(drive(&mut [&mut engine], || call.try_take()).unwrap(), 8);
    assert!(call.timing().unwrap().total() > Duration::ZERO);
    let metrics = engine.metrics();
    assert_eq!(
        (metrics.calls, metrics.requests, metrics.calls_in_progress),
        (1, 1, 0)
    );
}

/// A handle in an argument is pulled from by the handler, which runs in the engine that shows the memory.
fn handle_in_an_argument() {
    let mut engine = one();
    engine.serve_async::<SumOf, _>(|context, handle| async move {
        let into = Buffer::zeroed(handle.len() as usize);
        let pull = context
            .handle()
            .with(move |engine| engine.pull_bulk(&handle, 0, into, LONG));
        let pulled = pull.await.map_err(Fault::new)?.map_err(Fault::new)?.await;
        Ok(pulled
            .map_err(Fault::new)?
            .iter()
            .map(|&byte| u64::from(byte))
            .sum())
    });
    let handle = engine
        .expose_segments(vec![Bytes::from(vec![1; 70_000]), Bytes::from(vec![2; 5])])
        .unwrap();
    assert_eq!(call::<SumOf>(&mut engine, &handle).unwrap(), 70_010);
}

fn content(length: usize, seed: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at * 31 + at / 251 + seed * 7) as u8)
        .collect()
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

/// Size 0, whole, quarter, eighth, two segments of 8 bytes crossed, 16 and 1,024 segments.
fn bulk_of_every_shape() {
    const MIB: usize = 1 << 20;
    let engine = &mut one();
    move_both_ways(engine, &[10], 5, 0);
    move_both_ways(engine, &[0, 10, 0, 0, 10, 0], 0, 20);
    move_both_ways(engine, &[4 * MIB], 0, 4 * MIB);
    for part in 0..4 {
        move_both_ways(engine, &[3 * MIB / 2, 5 * MIB / 2], part * MIB, MIB);
        move_both_ways(engine, &[MIB + 3; 4], part * MIB / 2 + 17, MIB / 2);
    }
    for offset in 0..=12 {
        move_both_ways(engine, &[8, 8], offset, 4);
    }
    move_both_ways(engine, &[8, 100_000].repeat(8), 50_000, 500_000);
    move_both_ways(engine, &[8; 1024], 4, 8184);
    assert_eq!(engine.in_progress(), InProgress::default());
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
fn bulk_cancelled() {
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

/// Read-only, forged, too long and stale handles give an error, never memory.
fn bulk_errors() {
    let mut engine = one();
    let readable = engine.expose_segments(vec![Bytes::from(vec![5; 5000])]).unwrap();
    let refused = engine.push_bulk(&readable, 0, Bytes::from(vec![1; 10]), LONG);
    assert!(matches!(
        refused,
        Err(TransferError::Submit(SubmitError::ReadOnly))
    ));
    let region = readable.segments().next().unwrap().region.clone();
    let (mut lying, mut forged) = (region.clone(), region);
    lying.writable = true;
    forged.token ^= 1 << 77;
    let push = engine
        .push_bulk(&lying.into(), 0, Bytes::from(vec![1; 5000]), LONG)
        .unwrap();
    let result = end(&mut engine, push);
    assert!(matches!(
        result,
        Err(TransferError::Access {
            source: AccessError::ReadOnly,
            ..
        })
    ));
    assert_eq!(engine.withdraw_bulk(&readable).len(), 1);
    let bad = [
        (BulkHandle::from(forged), AccessError::Unknown),
        (readable, AccessError::Unknown),
    ];
    for (bad, expected) in bad {
        let pull = engine.pull_bulk(&bad, 0, Buffer::zeroed(5000), LONG).unwrap();
        let result = end(&mut engine, pull);
        assert!(matches!(result, Err(TransferError::Access { source, .. }) if source == expected));
    }
    let shown = engine.expose_segments(vec![Bytes::from(vec![5; 5000])]).unwrap();
    let mut too_long = shown.segments().next().unwrap().region.clone();
    too_long.length += 1;
    let pull = engine
        .pull_bulk(&too_long.into(), 0, Buffer::zeroed(5001), LONG)
        .unwrap();
    let result = end(&mut engine, pull);
    assert!(matches!(
        result,
        Err(TransferError::Access {
            source: AccessError::OutOfRange,
            ..
        })
    ));
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

/// What is in progress with itself ends when the engine goes.
fn dropped_engine_ends_everything() {
    let mut engine = one();
    engine.serve_later::<Null>(|_, _, (), responder| std::mem::forget(responder));
    let handle = engine.expose_segments(vec![Bytes::from(vec![7; 5000])]).unwrap();
    let itself = engine.address().clone();
    let mut call = engine.call::<Null>(&itself, &(), LONG).unwrap();
    let mut pull = engine.pull_bulk(&handle, 0, Buffer::zeroed(5000), LONG).unwrap();
    drop(engine);
    assert!(matches!(call.try_take(), Some(Err(CallError::Stopped { .. }))));
    assert!(matches!(pull.try_take(), Some(Err(TransferError::Stopped))));
}
