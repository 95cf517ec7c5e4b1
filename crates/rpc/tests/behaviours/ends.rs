//! Calls that end otherwise than by an answer in time.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use ropewalk_rpc::{Buffer, CallError, Engine, InProgress, Responder, TransferError};

use crate::{Double, LONG, Null, Shared, call, drive, engines, options, options_at};

crate::on_every_transport! {
    cancel_in_flight,
    deadline,
    deadlines_are_propagated,
    dropped_responders_answer,
    target_dies,
    answers_to_an_earlier_life,
    dropped_engines_end_their_calls,
    repeated_connect_and_disconnect,
}

/// A cancelled call is forgotten: its answer harms nobody, and the next calls are answered.
fn cancel_in_flight() {
    let [mut origin, mut target] = engines();
    let handled = Arc::new(AtomicUsize::new(0));
    let counter = handled.clone();
    target.serve::<Double>(move |_, number| {
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(number * 2)
    });
    let address = target.address().clone();
    for steps in 0..6 {
        let cancelled = origin.call::<Double>(&address, &1, LONG).unwrap();
        for _ in 0..steps {
            origin.progress();
        }
        drop(cancelled);
        assert_eq!(
            call::<Double>(&mut origin, &mut target, &steps).unwrap(),
            steps * 2
        );
    }
    // It may have been sent before it was cancelled, and then is handled.
    assert!(handled.load(Ordering::Relaxed) >= 6);
}

/// A call that is not answered in time ends in time, its late answer is ignored, and the caller can go on.
fn deadline() {
    let [mut origin, mut target] = engines();
    let responders: Shared<Responder<()>> = Arc::default();
    let kept = responders.clone();
    target.serve_later::<Null>(move |_, _, (), responder| kept.lock().unwrap().push(responder));
    target.serve::<Double>(|_, number| Ok(number * 2));
    let start = Instant::now();
    let timeout = Duration::from_millis(100);
    let mut never = origin.call::<Null>(target.address(), &(), timeout).unwrap();
    let ended = drive(&mut [&mut origin, &mut target], || never.try_take());
    assert!(matches!(ended, Err(CallError::TimedOut { .. })));
    assert!(start.elapsed() >= timeout && start.elapsed() < LONG / 2);
    responders
        .lock()
        .unwrap()
        .drain(..)
        .for_each(|late| late.answer(Ok(())));
    assert_eq!(call::<Double>(&mut origin, &mut target, &4).unwrap(), 8);
}

/// The time that a caller has left goes with the call, and so can limit the calls that it leads to.
fn deadlines_are_propagated() {
    let [mut origin, mut target] = engines();
    let remaining = Arc::new(Mutex::new(None));
    let seen = remaining.clone();
    target.serve::<Null>(move |caller, ()| {
        *seen.lock().unwrap() = caller.remaining();
        Ok(())
    });
    let timeout = Duration::from_secs(7);
    let mut call = origin.call::<Null>(target.address(), &(), timeout).unwrap();
    drive(&mut [&mut origin, &mut target], || call.try_take()).unwrap();
    let remaining = remaining.lock().unwrap().unwrap();
    assert!(remaining <= timeout && remaining > Duration::ZERO);
}

/// A late answer to a caller that is gone is dropped: whoever has its address now is not called.
#[test]
fn dead_callers_are_not_called_back() {
    let [mut origin, mut target] = engines();
    let held: Shared<Responder<()>> = Arc::default();
    let holding = held.clone();
    target.serve_later::<Null>(move |_, _, (), responder| holding.lock().unwrap().push(responder));
    let _call = origin.call::<Null>(target.address(), &(), LONG).unwrap();
    let responder = drive(&mut [&mut origin, &mut target], || held.lock().unwrap().pop());
    let location = origin.address().location().to_owned();
    drop(origin);
    while target.poll_lost_peer().is_none() {
        assert!(target.wait(LONG) > 0, "the caller's end is not seen");
    }
    let successor = std::net::TcpListener::bind(location).unwrap();
    successor.set_nonblocking(true).unwrap();
    responder.answer(Ok(()));
    assert!(target.wait(LONG) > 0 && target.flush(LONG));
    assert!(successor.accept().is_err() && target.poll_lost_peer().is_none());
}

/// A handler that gives its caller up says so, instead of letting it wait.
fn dropped_responders_answer() {
    let [mut origin, mut target] = engines();
    target.serve_later::<Null>(|_, _, (), responder| drop(responder));
    assert!(matches!(
        call::<Null>(&mut origin, &mut target, &()),
        Err(CallError::Fault { .. })
    ));
}

/// A target that dies while it handles a call, in a transfer either way and before it was ever reached, ends
/// all that is in progress with it at once, and is told as lost.
fn target_dies() {
    let [mut origin, mut target, other] = engines();
    let forever = Duration::from_secs(3600);
    let held: Shared<Responder<()>> = Arc::default();
    let holding = held.clone();
    target.serve_later::<Null>(move |_, _, (), responder| holding.lock().unwrap().push(responder));
    let address = target.address().clone();
    let readable = target.expose(Bytes::from(vec![1; 64 << 20]));
    let writable = target.expose_writable(Buffer::zeroed(64 << 20));
    let calls: Vec<_> = (0..20)
        .map(|_| origin.call::<Null>(&address, &(), forever).unwrap())
        .collect();
    drive(&mut [&mut origin, &mut target], || {
        (held.lock().unwrap().len() == 20).then_some(())
    });
    let pull = origin
        .pull(&readable, 0, Buffer::zeroed(64 << 20), forever)
        .unwrap();
    let push = origin
        .push(&writable, 0, Bytes::from(vec![2; 64 << 20]), forever)
        .unwrap();
    for _ in 0..4 {
        origin.progress();
        target.progress();
    }
    drop(target);
    let start = Instant::now();
    for call in calls {
        assert!(matches!(origin.block_on(call), Err(CallError::PeerDied { .. })));
    }
    assert!(matches!(
        origin.block_on(pull),
        Err(TransferError::PeerDied { .. })
    ));
    assert!(matches!(
        origin.block_on(push),
        Err(TransferError::PeerDied { .. })
    ));
    assert_eq!(origin.poll_lost_peer().unwrap().address, address);

    let nowhere = other.address().clone();
    drop(other);
    // A provider may see that as soon as it is asked to send.
    let unreachable = origin.call::<Null>(&nowhere, &(), forever);
    assert!(matches!(
        unreachable.and_then(|unreachable| origin.block_on(unreachable)),
        Err(CallError::PeerDied { .. } | CallError::Submit { .. })
    ));
    assert!(start.elapsed() < LONG / 2);
}

/// A late answer to a call of an earlier engine is none to a call of the engine that has its address now.
fn answers_to_an_earlier_life() {
    let [mut origin, mut target] = engines();
    let held: Shared<Responder<u64>> = Arc::default();
    let holding = held.clone();
    target.serve_later::<Double>(move |_, _, _, responder| holding.lock().unwrap().push(responder));
    let address = origin.address().clone();
    let mut calls = Vec::new();
    for life in 1..=2 {
        if life == 2 {
            drop(origin);
            origin = Engine::new(ropewalk_rpc::bind(options_at(0, &address)).unwrap());
        }
        calls.push(origin.call::<Double>(target.address(), &1, LONG).unwrap());
        drive(&mut [&mut origin, &mut target], || {
            (held.lock().unwrap().len() == life).then_some(())
        });
    }
    let mut call = calls.pop().unwrap();
    for (answer, responder) in held.lock().unwrap().drain(..).enumerate() {
        responder.answer(Ok(answer as u64 + 1));
    }
    let answer = drive(&mut [&mut origin, &mut target], || call.try_take());
    assert_eq!(answer.unwrap(), 2);
}

/// Calls and transfers in progress when their engine is dropped end too: nobody waits for ever.
fn dropped_engines_end_their_calls() {
    let [mut origin, mut target] = engines();
    let handle = target.expose(Bytes::from(vec![1; 100]));
    let mut call = origin.call::<Null>(target.address(), &(), LONG).unwrap();
    let mut pull = origin.pull(&handle, 0, Buffer::zeroed(100), LONG).unwrap();
    drop(origin);
    assert!(matches!(call.try_take(), Some(Err(CallError::Stopped { .. }))));
    assert!(matches!(pull.try_take(), Some(Err(TransferError::Stopped))));
    target.progress();
}

/// Engines come, call, are called back and go again, by turns and several at once: each time the other sees it go, and
/// then has nothing of it left.
fn repeated_connect_and_disconnect() {
    let [mut target] = engines();
    target.serve::<Double>(|_, number| Ok(number * 2));
    for round in 0..12 {
        let mut origins: Vec<Engine> = (0..1 + round % 3)
            .map(|index| {
                let mut origin = Engine::new(ropewalk_rpc::bind(options(1 + index)).unwrap());
                origin.serve::<Double>(|_, number| Ok(number * 3));
                origin
            })
            .collect();
        for origin in &mut origins {
            assert_eq!(call::<Double>(origin, &mut target, &7).unwrap(), 14);
            assert_eq!(call::<Double>(&mut target, origin, &7).unwrap(), 21);
        }
        let mut gone: Vec<_> = origins.iter().map(|origin| origin.address().clone()).collect();
        drop(origins);
        while !gone.is_empty() {
            let start = Instant::now();
            let lost = loop {
                match target.poll_lost_peer() {
                    Some(lost) => break lost,
                    None => target.wait(Duration::from_millis(100)),
                };
                assert!(start.elapsed() < LONG, "those who went are not missed");
            };
            let index = gone.iter().position(|address| *address == lost.address);
            gone.swap_remove(index.expect("only those who went are lost"));
        }
        assert_eq!(target.in_progress(), InProgress::default());
    }
}
