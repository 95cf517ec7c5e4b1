//! Submitting to an engine that another thread drives.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use ropewalk_rpc::{CallError, Engine, Handle, HandleError, SubmitError, thread::Driver};

use crate::{Count, Double, LONG, Null, drive, engines};

crate::on_every_transport! {
    any_driver:
    many_calls_from_many_threads,
    several_engines_in_a_process,
    submissions_run_in_order,
    dropping_cancels,
    the_engine_goes,
}

/// Many threads call by one handle at once, each many times, and each gets its own answers.
fn many_calls_from_many_threads() {
    let [origin, mut target] = engines();
    target.serve::<Double>(|_, number| Ok(number * 2));
    let address = target.address().clone();
    let (_target_driver, _) = Driver::spawn(target).unwrap();
    let (_origin_driver, handle) = Driver::spawn(origin).unwrap();
    thread::scope(|scope| {
        for thread in 0..8_u64 {
            let (handle, address) = (handle.clone(), &address);
            scope.spawn(move || {
                for number in thread * 1000..thread * 1000 + 250 {
                    let doubled = handle.call_blocking::<Double>(address, number, LONG);
                    assert_eq!(doubled.unwrap(), number * 2);
                }
            });
        }
    });
}

/// Several engines of one process, each with its driver, call each other, and are called by one handle each.
fn several_engines_in_a_process() {
    let engines = engines::<4>().map(|mut engine| {
        let rank = u64::from(engine.identity().rank.0);
        engine.serve::<Double>(move |_, number| Ok(number * 2 + rank * 1000));
        engine
    });
    let driven = engines.map(|engine| Driver::spawn(engine).unwrap());
    for (_, from) in &driven {
        for (rank, (_, to)) in driven.iter().enumerate() {
            let answer = from.call_blocking::<Double>(to.address(), 7, LONG).unwrap();
            assert_eq!(answer, 14 + rank as u64 * 1000);
        }
    }
}

/// Submissions run in order, once, also when nobody waits for them.
fn submissions_run_in_order() {
    let [engine, mut target] = engines();
    let (sender, receiver) = mpsc::channel();
    target.serve::<Count>(move |_, number| {
        sender.send(number).unwrap();
        Ok(())
    });
    let address = target.address().clone();
    let (_driver, handle) = Driver::spawn(engine).unwrap();
    for number in 0..100 {
        let address = address.clone();
        drop(handle.with(move |engine| engine.notify::<Count>(&address, &number)));
    }
    let last = handle.with_blocking(|engine| engine.identity().rank.0, LONG);
    assert_eq!(last, Ok(0));
    let mut seen = Vec::new();
    drive(&mut [&mut target], || {
        seen.extend(receiver.try_iter());
        (seen.len() == 100).then_some(())
    });
    assert_eq!(seen, (0..100).collect::<Vec<_>>());
}

/// A call whose future is dropped is cancelled, before the engine takes it and after.
fn dropping_cancels() {
    let [mut origin, mut target] = engines();
    let handled = Arc::new(AtomicUsize::new(0));
    let counter = handled.clone();
    target.serve::<Double>(move |_, number| {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(number * 2)
    });
    let handle = origin.handle();
    drop(handle.call::<Double>(target.address(), 1, LONG));
    let queued = handle.call::<Double>(target.address(), 2, LONG);
    origin.progress();
    drop(queued);
    let mut last = origin.call::<Double>(target.address(), &3, LONG).unwrap();
    let last = drive(&mut [&mut origin, &mut target], || last.try_take());
    assert_eq!(last.unwrap(), 6);
    // The first was never sent; the second may have been.
    assert!((1..=2).contains(&handled.load(Ordering::SeqCst)));
}

/// When the engine goes, what waits for it ends at once, and so does what is submitted later.
fn the_engine_goes() {
    fn assert_stopped(handle: &Handle, engine: Engine) {
        let target = engine.address().clone();
        let before = handle.call::<Null>(&target, (), LONG);
        let submitted = handle.with(|engine| engine.identity());
        let sleep = handle.sleep(LONG);
        drop(engine);
        let [mut other] = engines();
        let start = Instant::now();
        let stopped = CallError::Stopped {
            procedure: "test.Null",
        };
        assert_eq!(
            other.block_on(before).unwrap_err().to_string(),
            stopped.to_string()
        );
        assert_eq!(other.block_on(submitted), Err(HandleError::Stopped));
        other.block_on(sleep);
        let later = handle.call_blocking::<Null>(&target, (), LONG);
        assert!(matches!(later, Err(CallError::Stopped { .. })));
        assert_eq!(handle.with_blocking(|_| (), LONG), Err(HandleError::Stopped));
        assert!(start.elapsed() < LONG / 2);
    }
    let [engine] = engines();
    assert_stopped(&engine.handle(), engine);
    let [mut engine] = engines();
    engine.progress();
    assert_stopped(&engine.handle(), engine);
}

/// More than an engine takes is refused, visibly, and goes through once it was driven.
#[test]
fn submissions_are_bounded() {
    let [mut engine] = engines();
    let handle = engine.handle();
    for _ in 0..Handle::SUBMISSIONS_MAX {
        drop(handle.with(|_| ()));
    }
    assert_eq!(handle.with_blocking(|_| (), LONG), Err(HandleError::Busy));
    let target = engine.address().clone();
    let refused = handle.call_blocking::<Null>(&target, (), LONG);
    let Err(CallError::Submit { source, .. }) = refused else {
        panic!("what is too much was taken: {refused:?}");
    };
    assert!(matches!(source, SubmitError::Busy { .. }));
    engine.progress();
    let taken = handle.with(|_| 5);
    assert_eq!(engine.block_on(taken), Ok(5));
}

/// A blocking call to an engine that nobody drives ends by its deadline.
#[test]
fn nobody_drives() {
    let [engine] = engines();
    let timeout = Duration::from_millis(50);
    let start = Instant::now();
    let call = engine
        .handle()
        .call_blocking::<Null>(engine.address(), (), timeout);
    assert!(matches!(call, Err(CallError::TimedOut { .. })));
    let with = engine.handle().with_blocking(|_| (), timeout);
    assert_eq!(with, Err(HandleError::TimedOut));
    assert!(start.elapsed() >= timeout * 2 && start.elapsed() < LONG / 2);
}

/// A sleep ends when its time has come, by the engine alone, and not before.
#[test]
fn sleeps() {
    let [mut engine] = engines();
    let handle = engine.handle();
    let start = Instant::now();
    engine.block_on(async {
        handle.sleep(Duration::from_millis(20)).await;
        handle.sleep(Duration::from_millis(20)).await;
    });
    assert!(start.elapsed() >= Duration::from_millis(40) && start.elapsed() < LONG / 2);
}
