//! Calls that are too many, and calls that nobody waits for any longer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use ropewalk_rpc::{BusyReason, CallError, Engine, EngineOptions, InProgress, Responder};

use crate::{Count, Double, Echo, LONG, Shared, call, drive, engines, engines_that_send, options};

crate::on_every_transport! {
    busy_says_which_limit,
    cancellation_reaches_the_handler,
    cancelled_while_queued,
}

/// Calls above the limit of a peer, or of all, are told so and not handled; those below are answered, and then
/// there is room again.
fn busy_says_which_limit() {
    let tight = EngineOptions {
        calls_max: 6,
        calls_per_peer_max: 4,
        ..EngineOptions::default()
    };
    let [mut first, mut second] = engines();
    let mut target = Engine::with_options(ropewalk_rpc::bind(options(9)).unwrap(), tight);
    let held: Shared<(u64, Responder<u64>)> = Arc::default();
    let holding = held.clone();
    target.serve_later::<Double>(move |_, _, number, responder| {
        holding.lock().unwrap().push((number, responder));
    });
    let address = target.address().clone();
    for (caller, expected, room) in [(0, BusyReason::CallsOfPeer, 4), (1, BusyReason::Calls, 2)] {
        let origin = if caller == 0 { &mut first } else { &mut second };
        let mut calls: Vec<_> = (0..10)
            .map(|number| origin.call::<Double>(&address, &number, LONG).unwrap())
            .collect();
        drive(&mut [&mut *origin, &mut target], || {
            calls.retain_mut(|call| match call.try_take() {
                Some(Err(CallError::Busy { reason, .. })) => {
                    assert_eq!(reason, expected);
                    false
                }
                Some(other) => panic!("{other:?}"),
                None => true,
            });
            (calls.len() == room).then_some(())
        });
        // Those with room are the first that came. They are given up here.
        assert_eq!(held.lock().unwrap().len(), [4, 6][caller]);
        std::mem::forget(calls);
    }
    assert_eq!(target.in_progress().deferred, 6);
    for (number, responder) in held.lock().unwrap().drain(..) {
        responder.answer(Ok(number * 2));
    }
    target.progress();
    assert_eq!(target.in_progress().deferred, 0);
    let mut call = first.call::<Double>(&address, &21, LONG).unwrap();
    let answer = drive(&mut [&mut first, &mut target], || {
        if let Some((number, responder)) = held.lock().unwrap().pop() {
            responder.answer(Ok(number * 2));
        }
        call.try_take()
    });
    assert_eq!(answer.unwrap(), 42);
}

/// The handler of a deferred call sees that its caller has dropped it, is gone, or has waited long enough; each
/// time those who asked are told once.
fn cancellation_reaches_the_handler() {
    for by in ["drop", "death", "deadline"] {
        let [mut origin, mut target] = engines();
        let told = Arc::new(AtomicUsize::new(0));
        let held: Shared<Responder<u64>> = Arc::default();
        let (holding, counter) = (held.clone(), told.clone());
        target.serve_later::<Double>(move |_, _, _, responder| {
            let counter = counter.clone();
            responder.cancellation().on_cancel(move || {
                counter.fetch_add(1, Ordering::SeqCst);
            });
            holding.lock().unwrap().push(responder);
        });
        let timeout = if by == "deadline" {
            Duration::from_millis(50)
        } else {
            LONG
        };
        let call = origin.call::<Double>(target.address(), &1, timeout).unwrap();
        let responder = drive(&mut [&mut origin, &mut target], || held.lock().unwrap().pop());
        let cancelled = || responder.is_cancelled().then_some(());
        match by {
            "drop" => {
                drop(call);
                drive(&mut [&mut origin, &mut target], cancelled);
            }
            "death" => {
                drop(origin);
                drive(&mut [&mut target], cancelled);
            }
            _ => drive(&mut [&mut origin, &mut target], cancelled),
        }
        assert_eq!(told.load(Ordering::SeqCst), 1, "{by}");
        assert_eq!(target.in_progress().deferred, 1);
        responder.answer(Ok(2));
        target.progress();
        assert_eq!(target.in_progress(), InProgress::default(), "{by}");
    }
}

/// A call that waits at the target behind a large input is not handled if it is dropped meanwhile.
fn cancelled_while_queued() {
    let [mut origin, mut target] = engines_that_send();
    let handled = Arc::new(AtomicUsize::new(0));
    let counter = handled.clone();
    target.serve::<Count>(move |_, number| {
        assert_eq!(number, 2, "a call that was dropped is handled");
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    target.serve::<Echo>(|_, _| Ok(vec![]));
    let address = target.address().clone();
    call::<Echo>(&mut origin, &mut target, &vec![]).unwrap();
    let mut large = origin.call::<Echo>(&address, &vec![1; 8 << 20], LONG).unwrap();
    let dropped = origin.call::<Count>(&address, &1, LONG).unwrap();
    let mut kept = origin.call::<Count>(&address, &2, LONG).unwrap();
    // The target has both calls before it has the input, for which the origin has to be driven.
    origin.flush(LONG);
    for _ in 0..3 {
        target.progress();
    }
    if target.in_progress().arrivals == 3 {
        drop(dropped);
        origin.progress();
    }
    drive(&mut [&mut origin, &mut target], || kept.try_take()).unwrap();
    drive(&mut [&mut origin, &mut target], || large.try_take()).unwrap();
    assert_eq!(handled.load(Ordering::SeqCst), 1);
}
