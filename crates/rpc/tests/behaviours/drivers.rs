//! The thread and the task that drive an engine.

use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

use ropewalk_rpc::{
    CallError,
    thread::{Driver, DriverError},
};

use crate::{Double, LONG, Null, driving::processor_time, engines};

crate::on_every_transport! {
    any_driver:
    a_stopped_thread_gives_the_engine_back,
    a_dropped_driver_ends_calls,
    a_panic_ends_the_engine,
    stopping_is_bounded,
    a_task_drives,
    idle_drivers_cost_nothing,
}

/// A stopped driver gives the engine back, which can be driven otherwise and keeps its procedures.
fn a_stopped_thread_gives_the_engine_back() {
    let [mut engine] = engines();
    engine.serve::<Double>(|_, number| Ok(number * 2));
    let (driver, handle) = Driver::spawn(engine).unwrap();
    let address = handle.address().clone();
    assert_eq!(handle.call_blocking::<Double>(&address, 1, LONG).unwrap(), 2);
    let mut engine = driver.stop(LONG).unwrap();
    let call = engine.call::<Double>(&address, &2, LONG).unwrap();
    assert_eq!(engine.block_on(call).unwrap(), 4);
}

/// A driver that is dropped ends its thread, and what was in progress ends as stopped.
fn a_dropped_driver_ends_calls() {
    let [origin, target] = engines();
    let address = target.address().clone();
    let (driver, handle) = Driver::spawn(origin).unwrap();
    let call = std::thread::spawn({
        let handle = handle.clone();
        move || handle.call_blocking::<Null>(&address, (), LONG)
    });
    // Nobody drives the target, so the call is in progress until the engine goes.
    while handle
        .with_blocking(|engine| format!("{engine:?}"), LONG)
        .is_err()
    {}
    let start = Instant::now();
    drop(driver);
    let ended = call.join().unwrap();
    assert!(matches!(ended, Err(CallError::Stopped { .. })), "{ended:?}");
    assert!(start.elapsed() < LONG / 2);
}

/// A panic in a handler ends the engine, tells everybody who waits for it, and says what it was.
fn a_panic_ends_the_engine() {
    let [mut engine] = engines();
    engine.serve::<Null>(|_, ()| panic!("as meant"));
    let (driver, handle) = Driver::spawn(engine).unwrap();
    let address = handle.address().clone();
    let call = handle.call_blocking::<Null>(&address, (), LONG);
    assert!(matches!(call, Err(CallError::Stopped { .. })), "{call:?}");
    let stopped = driver.stop(LONG).unwrap_err();
    assert_eq!(
        stopped.to_string(),
        "the thread that drove the engine panicked: as meant"
    );
}

/// A handler that does not return does not keep the one who stops the driver.
fn stopping_is_bounded() {
    let [mut engine] = engines();
    let (sender, receiver) = mpsc::channel::<()>();
    engine.serve::<Null>(move |_, ()| {
        receiver.recv().unwrap();
        Ok(())
    });
    let (driver, handle) = Driver::spawn(engine).unwrap();
    let address = handle.address().clone();
    let call = handle.call::<Null>(&address, (), LONG);
    let timeout = Duration::from_millis(100);
    // By now it is in the handler: what is submitted does not run.
    while handle.with_blocking(|_| (), timeout).is_ok() {}
    let stopped = driver.stop(timeout);
    assert!(matches!(stopped, Err(DriverError::TimedOut { .. })));
    sender.send(()).unwrap();
    let [mut other] = engines();
    assert!(other.block_on(call).is_err());
}

/// In a task of a current-thread runtime an engine serves and calls, beside the runtime's own tasks; it is
/// given back when asked for.
fn a_task_drives() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let [origin, mut target] = engines();
        target.serve::<Double>(|_, number| Ok(number * 2));
        let (handle, there) = (origin.handle(), target.address().clone());
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let origin = tokio::spawn(ropewalk_rpc::tokio::drive(origin));
        let target = tokio::spawn(ropewalk_rpc::tokio::drive_until(target, stopped));
        for number in 0..100 {
            let doubled = handle.call::<Double>(&there, number, LONG).await.unwrap();
            assert_eq!(doubled, number * 2);
        }
        // All at once, and with pauses in which both sleep.
        let calls: Vec<_> = (0..100)
            .map(|number| tokio::spawn(handle.call::<Double>(&there, number, LONG)))
            .collect();
        for (number, call) in calls.into_iter().enumerate() {
            assert_eq!(call.await.unwrap().unwrap(), number as u64 * 2);
        }
        for number in 0..5 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let doubled = handle.call::<Double>(&there, number, LONG).await.unwrap();
            assert_eq!(doubled, number * 2);
        }
        // The deadline of a call is seen although nothing comes.
        stop.send(()).unwrap();
        let (_silent, _) = target.await.unwrap().unwrap();
        let start = Instant::now();
        let timeout = Duration::from_millis(50);
        let silent = handle.call::<Double>(&there, 1, timeout).await;
        assert!(matches!(silent, Err(CallError::TimedOut { .. })), "{silent:?}");
        assert!(start.elapsed() >= timeout && start.elapsed() < LONG / 2);
        origin.abort();
        assert!(origin.await.unwrap_err().is_cancelled());
        let gone = handle.call::<Double>(&there, 1, LONG).await;
        assert!(matches!(gone, Err(CallError::Stopped { .. })));
    });
}

/// With nothing to do neither driver uses the processor.
fn idle_drivers_cost_nothing() {
    let [first, second] = engines();
    let (_driver, first) = Driver::spawn(first).unwrap();
    let second_handle = second.handle();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let task = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(ropewalk_rpc::tokio::drive_until(second, stopped))
    });
    // Each tells what its thread has used so far.
    let used =
        || [&first, &second_handle].map(|handle| handle.with_blocking(|_| processor_time(), LONG).unwrap());
    let before = used();
    std::thread::sleep(Duration::from_millis(400));
    for (after, before) in used().into_iter().zip(before) {
        assert!(after - before < Duration::from_millis(20), "{:?}", after - before);
    }
    stop.send(()).unwrap();
    let (_engine, told) = task.join().unwrap().unwrap();
    told.unwrap();
}
