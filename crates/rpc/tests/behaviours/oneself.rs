//! An engine that calls itself and moves its own memory: what it does with others it does with itself.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use bytes::Bytes;
use ropewalk_rpc::{
    Buffer, BusyReason, CallError, CallOptions, Engine, EngineOptions, Fault, Hedge, InProgress, Procedure,
    Responder, TransferError,
};

use crate::{
    Count, Describe, Double, Echo, LONG, Null, Refuse, Relay, Shared, SumOf, Survey, drive, engines, options,
    serve_sum_of,
};

mod over_loopback {
    crate::spinning_and_sleeping! { either,
        null_call,
        struct_both_ways,
        registered_then_removed_procedure,
        procedure_unknown_to_the_target,
        faults_and_mismatches,
        one_way,
        overflow_both_ways,
        input_beyond_the_eager_limit,
        one_way_input_beyond_the_eager_limit,
        output_beyond_the_eager_limit,
        cancel_in_flight,
        deadline,
        many_calls,
        many_calls_from_many_threads,
        several_engines_in_a_process,
        repeated_connect_and_disconnect,
        nested_calls,
        batches,
        hedged,
        at_most_once,
        busy,
        timing_and_counts,
        handle_in_an_argument,
        dropped_engine_ends_everything,
    }
}

const LARGE: usize = 200_000;

pub(crate) fn one() -> Engine {
    let [engine] = engines();
    engine
}

/// Calls itself and drives until there is a result.
fn call<P: Procedure>(engine: &mut Engine, input: &P::Input) -> Result<P::Output, CallError> {
    let itself = engine.address().clone();
    let mut call = engine.call::<P>(&itself, input, LONG)?;
    drive(&mut [engine], || call.try_take())
}

/// Drives until nothing is in progress.
pub(crate) fn settle(engine: &mut Engine) {
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

/// A call of a procedure that was never served ends with an error that names it.
fn procedure_unknown_to_the_target() {
    let mut engine = one();
    engine.serve::<Double>(|_, number| Ok(number * 2));
    expect_unknown(&mut engine);
    assert_eq!(call::<Double>(&mut engine, &4).unwrap(), 8);
}

/// A procedure that is served no longer is an error that names it, and one that is served again works.
fn registered_then_removed_procedure() {
    let mut engine = one();
    for _ in 0..3 {
        engine.serve::<Null>(|_, ()| Ok(()));
        call::<Null>(&mut engine, &()).unwrap();
        assert!(engine.stop_serving::<Null>());
        expect_unknown(&mut engine);
    }
}

fn expect_unknown(engine: &mut Engine) {
    match call::<Null>(engine, &()) {
        Err(CallError::UnknownProcedure { procedure, .. }) => assert_eq!(procedure, Null::NAME),
        other => panic!("{other:?}"),
    }
}

/// The fault of the handler, in its words, and an input of another type are reported to the caller.
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

/// A large input comes whole, and nothing but a small answer goes back.
fn input_beyond_the_eager_limit() {
    let mut engine = one();
    engine.serve::<Echo>(|_, bytes| {
        assert!(bytes == vec![3; LARGE]);
        Ok(vec![1])
    });
    assert_eq!(call::<Echo>(&mut engine, &vec![3; LARGE]).unwrap(), [1]);
    settle(&mut engine);
}

/// A large input of a notification comes whole.
fn one_way_input_beyond_the_eager_limit() {
    let mut engine = one();
    let seen: Shared<Vec<u8>> = Arc::default();
    let log = seen.clone();
    engine.serve::<Echo>(move |_, bytes| {
        log.lock().unwrap().push(bytes);
        Ok(vec![])
    });
    let itself = engine.address().clone();
    engine.notify::<Echo>(&itself, &vec![3; LARGE]).unwrap();
    let came = drive(&mut [&mut engine], || seen.lock().unwrap().pop());
    assert!(came == vec![3; LARGE]);
    settle(&mut engine);
}

/// A large output of a call with a small input comes whole.
fn output_beyond_the_eager_limit() {
    let mut engine = one();
    engine.serve::<Echo>(|_, _| Ok(vec![3; LARGE]));
    assert!(call::<Echo>(&mut engine, &vec![]).unwrap() == vec![3; LARGE]);
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

/// Many threads have one engine call itself at once, and each gets its own answers.
fn many_calls_from_many_threads() {
    let mut engine = one();
    engine.serve::<Double>(|_, number| Ok(number * 2));
    let itself = engine.address().clone();
    let handle = engine.handle();
    let running = AtomicUsize::new(8);
    thread::scope(|scope| {
        for thread in 0..8_u64 {
            let (handle, itself, running) = (handle.clone(), &itself, &running);
            scope.spawn(move || {
                for number in thread * 1000..thread * 1000 + 100 {
                    let doubled = handle.call_blocking::<Double>(itself, number, LONG);
                    assert_eq!(doubled.unwrap(), number * 2);
                }
                running.fetch_sub(1, Ordering::SeqCst);
            });
        }
        drive(&mut [&mut engine], || {
            (running.load(Ordering::SeqCst) == 0).then_some(())
        });
    });
}

/// Each of several engines in a process that calls itself reaches itself, and not another.
fn several_engines_in_a_process() {
    let mut engines = engines::<4>();
    for engine in &mut engines {
        let rank = u64::from(engine.identity().rank.0);
        engine.serve::<Double>(move |_, number| Ok(number * 2 + rank * 1000));
    }
    for engine in &mut engines {
        let rank = u64::from(engine.identity().rank.0);
        assert_eq!(call::<Double>(engine, &7).unwrap(), 14 + rank * 1000);
    }
}

/// Engines that call themselves come and go, and nothing is told as lost.
fn repeated_connect_and_disconnect() {
    for number in 0..20 {
        let mut engine = one();
        engine.serve::<Double>(|_, number| Ok(number * 2));
        assert_eq!(call::<Double>(&mut engine, &number).unwrap(), number * 2);
        assert!(engine.poll_lost_peer().is_none());
        assert_eq!(engine.in_progress(), InProgress::default());
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
    let mut engine = Engine::with_options(ropewalk_rpc::bind(options(0)).unwrap(), limits);
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
        (
            metrics.calls.sent,
            metrics.requests.started,
            metrics.calls.in_progress
        ),
        (1, 1, 0)
    );
}

/// A handle in an argument is pulled from by the handler, which runs in the engine that shows the memory.
fn handle_in_an_argument() {
    let mut engine = one();
    serve_sum_of(&mut engine);
    let handle = engine
        .expose_segments(vec![Bytes::from(vec![1; 70_000]), Bytes::from(vec![2; 5])])
        .unwrap();
    assert_eq!(call::<SumOf>(&mut engine, &handle).unwrap(), 70_010);
}

/// Calls and transfers of an engine with itself end when the engine goes.
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
