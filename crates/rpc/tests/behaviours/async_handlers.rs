//! Handlers that are futures: nested calls, deadlines, cancelling.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use ropewalk_rpc::{CallError, Engine, Fault, Procedure, Responder};

use crate::{Count, Double, LONG, Null, Relay, Shared, call, drive, engines};

crate::on_every_transport! {
    nested_calls,
    nested_calls_to_oneself,
    deadlines_reach_nested_calls,
    handlers_may_sleep,
    faults_and_notifications,
    handlers_go_with_the_engine,
    handlers_end_with_their_callers,
}

/// Counts down when the handler that owns it is gone.
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Passes a number on to another engine, and its answer back.
fn serve_relay(engine: &mut Engine) {
    engine.serve_async::<Relay, _>(|context, (there, number)| async move {
        let doubled = context.call::<Double>(&there, number, Duration::MAX).await;
        Ok(doubled.map_err(Fault::new)? + 1)
    });
}

/// A handler awaits a call to a third engine, many of them at once.
fn nested_calls() {
    let [mut origin, mut between, mut last] = engines();
    serve_relay(&mut between);
    last.serve::<Double>(|_, number| Ok(number * 2));
    let there = last.address().clone();
    let calls: Vec<_> = (0..200)
        .map(|number| {
            let input = (there.clone(), number);
            origin.call::<Relay>(between.address(), &input, LONG).unwrap()
        })
        .collect();
    for (number, mut call) in calls.into_iter().enumerate() {
        let answer = drive(&mut [&mut origin, &mut between, &mut last], || call.try_take());
        assert_eq!(answer.unwrap(), number as u64 * 2 + 1);
    }
}

/// An engine may call itself from its own handlers, and then awaits itself.
fn nested_calls_to_oneself() {
    let [mut engine] = engines();
    serve_relay(&mut engine);
    engine.serve::<Double>(|_, number| Ok(number * 2));
    let itself = engine.address().clone();
    let call = engine
        .call::<Relay>(&itself, &(itself.clone(), 20), LONG)
        .unwrap();
    assert_eq!(engine.block_on(call).unwrap(), 41);
}

/// A nested call has no more time than the caller has left: it ends when the caller stops waiting, and so does
/// the handler, although both asked for more.
fn deadlines_reach_nested_calls() {
    let [mut origin, mut between, mut last] = engines();
    let alive = Arc::new(AtomicUsize::new(0));
    let count = alive.clone();
    let (sender, ended) = mpsc::channel();
    between.serve_async::<Relay, _>(move |context, (there, number)| {
        let (alive, sender) = (Alive::new(&count), sender.clone());
        async move {
            assert!(context.remaining().unwrap() <= Duration::from_millis(300));
            let nested = context.call::<Double>(&there, number, LONG).await;
            sender.send(nested).unwrap();
            pending::<()>().await;
            drop(alive);
            Ok(0)
        }
    });
    let (sender, seen) = mpsc::channel();
    last.serve_later::<Double>(move |_, caller, _, responder| {
        sender.send((caller.remaining().unwrap(), responder)).unwrap();
    });
    let input = (last.address().clone(), 1);
    let timeout = Duration::from_millis(300);
    let start = Instant::now();
    let mut call = origin.call::<Relay>(between.address(), &input, timeout).unwrap();
    let all = &mut [&mut origin, &mut between, &mut last];
    let answer = drive(all, || call.try_take());
    assert!(matches!(answer, Err(CallError::TimedOut { .. })), "{answer:?}");
    assert!(start.elapsed() < LONG / 2);
    let (remaining, _responder) = drive(all, || seen.try_recv().ok());
    assert!(remaining <= timeout, "{remaining:?}");
    // The handler is dropped at about the time at which its nested call ends: it may see that or not.
    drive(all, || (alive.load(Ordering::SeqCst) == 0).then_some(()));
    if let Ok(nested) = ended.try_recv() {
        assert!(matches!(nested, Err(CallError::TimedOut { .. })), "{nested:?}");
    }
}

/// A handler may take what time it wants of its own, by the engine's timers.
fn handlers_may_sleep() {
    let [mut origin, mut target] = engines();
    target.serve_async::<Null, _>(|context, ()| async move {
        context.handle().sleep(Duration::from_millis(30)).await;
        Ok(())
    });
    let start = Instant::now();
    call::<Null>(&mut origin, &mut target, &()).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(30));
}

/// Errors, and inputs of another type, come back as they do from other handlers; a notification runs too.
fn faults_and_notifications() {
    struct Text;
    impl Procedure for Text {
        const NAME: &'static str = Double::NAME;
        type Input = ();
        type Output = u64;
    }
    let [mut origin, mut target] = engines();
    target.serve_async::<Double, _>(|_, number| async move {
        Err(Fault::new(format_args!("{number} is enough")))
    });
    let (sender, seen) = mpsc::channel();
    target.serve_async::<Count, _>(move |context, number| {
        let sender = sender.clone();
        async move {
            assert!(context.deadline().is_none());
            sender.send(number).unwrap();
            Ok(())
        }
    });
    let fault = call::<Double>(&mut origin, &mut target, &3);
    assert!(matches!(&fault, Err(CallError::Fault { source, .. }) if source.to_string() == "3 is enough"));
    let malformed = call::<Text>(&mut origin, &mut target, &());
    assert!(matches!(malformed, Err(CallError::InputMalformed { .. })));
    origin.notify::<Count>(target.address(), &9).unwrap();
    let number = drive(&mut [&mut origin, &mut target], || seen.try_recv().ok());
    assert_eq!(number, 9);
}

/// When the engine goes its handlers go, and their callers are not left to wait.
fn handlers_go_with_the_engine() {
    let [mut origin, mut target] = engines();
    let alive = Arc::new(AtomicUsize::new(0));
    let count = alive.clone();
    target.serve_async::<Null, _>(move |_, ()| {
        let alive = Alive::new(&count);
        async move {
            pending::<()>().await;
            drop(alive);
            Ok(())
        }
    });
    let mut call = origin.call::<Null>(target.address(), &(), LONG).unwrap();
    drive(&mut [&mut origin, &mut target], || {
        (alive.load(Ordering::SeqCst) == 1).then_some(())
    });
    drop(target);
    assert_eq!(alive.load(Ordering::SeqCst), 0);
    let start = Instant::now();
    let answer = drive(&mut [&mut origin], || call.try_take());
    assert!(matches!(answer, Err(CallError::PeerDied { .. })), "{answer:?}");
    assert!(start.elapsed() < LONG / 2);
}

/// A handler is dropped, and the call nested in it cancelled, when its caller cancels the call or dies.
fn handlers_end_with_their_callers() {
    let [mut origin, mut between, mut last] = engines();
    let alive = Arc::new(AtomicUsize::new(0));
    let count = alive.clone();
    between.serve_async::<Relay, _>(move |context, (there, number)| {
        let alive = Alive::new(&count);
        async move {
            let nested = context.call::<Double>(&there, number, LONG).await;
            drop(alive);
            nested.map_err(Fault::new)
        }
    });
    let responders: Shared<Responder<u64>> = Arc::default();
    let kept = responders.clone();
    last.serve_later::<Double>(move |_, _, _, responder| kept.lock().unwrap().push(responder));
    for cancels in [true, false] {
        let input = (last.address().clone(), 1);
        let call = origin.call::<Relay>(between.address(), &input, LONG).unwrap();
        let all = &mut [&mut origin, &mut between, &mut last];
        drive(all, || (!responders.lock().unwrap().is_empty()).then_some(()));
        let nested = responders.lock().unwrap().remove(0);
        assert!(alive.load(Ordering::SeqCst) == 1 && !nested.is_cancelled());
        if cancels {
            drop(call);
        } else {
            let [other] = engines();
            drop((call, std::mem::replace(&mut origin, other)));
        }
        let all = &mut [&mut origin, &mut between, &mut last];
        drive(all, || nested.is_cancelled().then_some(()));
        assert_eq!(alive.load(Ordering::SeqCst), 0);
    }
}
