//! Who drives an engine, and who waits.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    task::{Context, Poll, Wake},
    thread,
    time::{Duration, Instant},
};

use ropewalk_rpc::{Call, Engine, Responder};
use serde::de::DeserializeOwned;

use crate::{Double, LONG, drive, engines};

crate::on_every_transport! {
    any_driver:
    answers_from_another_thread,
    calls_are_futures,
    waiting_costs_nothing,
}

/// Answers may be given from another thread, which wakes the engine that sleeps; the caller sleeps too.
fn answers_from_another_thread() {
    let [mut origin, mut target] = engines();
    let address = target.address().clone();
    let (sender, receiver) = mpsc::channel::<(u64, Responder<u64>)>();
    target.serve_later::<Double>(move |_, _, number, responder| sender.send((number, responder)).unwrap());
    let done = AtomicBool::new(false);
    let waker = target.waker();
    thread::scope(|scope| {
        scope.spawn(|| {
            for (number, responder) in receiver {
                responder.answer(Ok(number * 2));
            }
        });
        let done = &done;
        scope.spawn(move || {
            while !done.load(Ordering::SeqCst) {
                target.wait(LONG);
            }
        });
        for number in 0..200 {
            let call = origin.call::<Double>(&address, &number, LONG).unwrap();
            assert_eq!(origin.block_on(call).unwrap(), number * 2);
        }
        done.store(true, Ordering::SeqCst);
        waker.wake();
    });
}

/// A call can be awaited in a task of any executor, in another thread than the one that drives the engine.
fn calls_are_futures() {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let [mut origin, mut target] = engines();
    target.serve::<Double>(|_, number| Ok(number * 2));
    let mut call = origin.call::<Double>(target.address(), &21, LONG).unwrap();
    // Not a scoped thread, which would be waited for if it is never woken.
    let awaiting = thread::spawn(move || {
        let waker = Arc::new(Unpark(thread::current())).into();
        let mut context = Context::from_waker(&waker);
        loop {
            match std::pin::Pin::new(&mut call).poll(&mut context) {
                Poll::Ready(result) => return result,
                Poll::Pending => thread::park(),
            }
        }
    });
    drive(&mut [&mut origin, &mut target], || {
        awaiting.is_finished().then_some(())
    });
    assert_eq!(awaiting.join().unwrap().unwrap(), 42);
}

/// Engines can be moved to other threads, and calls polled there.
#[test]
fn engines_and_calls_are_send() {
    fn is_send<T: Send>() {}
    fn of<O: DeserializeOwned>() {
        is_send::<Call<O>>();
    }
    is_send::<Engine>();
    is_send::<Responder<std::rc::Rc<u8>>>();
    of::<u64>();
}

/// With nothing to do a waiting engine sleeps as long as it was told, without using the processor.
fn waiting_costs_nothing() {
    let [mut engine] = engines();
    let before = processor_time();
    let start = Instant::now();
    assert_eq!(engine.wait(Duration::from_millis(300)), 0);
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert!(processor_time() - before < Duration::from_millis(30));
}

/// The processor time that this thread has used.
pub(crate) fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split_whitespace().next().unwrap().parse().unwrap())
}
