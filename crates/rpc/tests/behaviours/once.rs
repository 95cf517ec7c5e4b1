//! Calls that are made again after their connection was lost, and run at most once all the same.

use std::{
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use ropewalk_rpc::{
    Address, BusyReason, CallError, CallOptions, Engine, EngineOptions, InProgress, Responder,
};
use rustix::{
    net::{Shutdown, SocketAddrUnix, getpeername, shutdown},
    process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open},
};

use crate::{Double, Echo, LONG, Null, Shared, call, drive, engines, options, options_at};

crate::on_every_transport! { what_cannot_be_remembered_does_not_run, retries_are_bounded, }

/// libfabric's `shm` names endpoints by the number of their process: nobody can come to the address of another.
mod succeeded {
    use super::{server_restarted_on_the_same_address, targets_may_come_late};

    crate::on_every_transport! { without_ofi_shm: server_restarted_on_the_same_address, targets_may_come_late, }
}

/// They cut connections and go on when that is seen. libfabric connects again by itself, in either direction, and tells
/// nobody; if something was on its way, silence tells.
mod cut {
    use super::{cancel_after_a_reconnect, duplicates_after_a_reconnect, outputs_outlive_connections};

    crate::on_every_transport! { without_ofi:
        duplicates_after_a_reconnect,
        outputs_outlive_connections,
        cancel_after_a_reconnect,
    }
}

const RETRIES: CallOptions = CallOptions {
    retries: 20,
    ..CallOptions::new(LONG)
};

/// Cuts the connections that this process has made to the address.
fn cut(address: &Address) {
    let myself = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let own_descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    let sockets = own_descriptors.filter_map(|entry| {
        let number = entry.unwrap().file_name().to_str()?.parse().ok()?;
        pidfd_getfd(&myself, number, PidfdGetfdFlags::empty()).ok()
    });
    let name = format!("ropewalk/{}", address.location());
    let connected: Vec<OwnedFd> = sockets
        .filter(|socket| {
            let Ok(Some(peer)) = getpeername(socket) else {
                return false;
            };
            match SocketAddrUnix::try_from(peer.clone()) {
                Ok(unix) => unix.abstract_name() == Some(name.as_bytes()),
                Err(_) => SocketAddr::try_from(peer).is_ok_and(|peer| peer.to_string() == address.location()),
            }
        })
        .collect();
    assert!(!connected.is_empty(), "there is no connection to cut");
    for socket in connected {
        shutdown(&socket, Shutdown::Both).unwrap();
    }
}

/// A call whose connection is lost while it is handled is asked for again, and gets the answer of the one time
/// that it ran; duplicates after a reconnect do not run.
fn duplicates_after_a_reconnect() {
    let [mut origin, mut target] = engines();
    let held: Shared<(u64, Responder<u64>)> = Arc::default();
    let runs = Arc::new(AtomicUsize::new(0));
    let (holding, counter) = (held.clone(), runs.clone());
    target.serve_later::<Double>(move |_, _, number, responder| {
        counter.fetch_add(1, Ordering::SeqCst);
        holding.lock().unwrap().push((number, responder));
    });
    let address = target.address().clone();
    for round in 0..10 {
        let mut call = origin.call::<Double>(&address, &round, RETRIES).unwrap();
        let (number, responder) = drive(&mut [&mut origin, &mut target], || held.lock().unwrap().pop());
        cut(&address);
        // Answered before the loss is seen, after it, or after the next attempt has come.
        for _ in 0..round * 20 {
            origin.progress();
            target.progress();
        }
        if round == 9 {
            std::thread::sleep(Duration::from_millis(5));
            for _ in 0..50 {
                origin.progress();
                target.progress();
            }
        }
        assert!(!responder.is_cancelled(), "its caller comes back");
        responder.answer(Ok(number * 2));
        let answer = drive(&mut [&mut origin, &mut target], || call.try_take());
        assert_eq!(answer.unwrap(), round * 2);
        assert_eq!(runs.load(Ordering::SeqCst), round as usize + 1);
    }
    assert_eq!(origin.in_progress(), InProgress::default());
}

/// A large output that was lost with its connection is fetched again, without running the call again.
fn outputs_outlive_connections() {
    let [mut origin, mut target] = engines();
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = runs.clone();
    target.serve::<Echo>(move |_, bytes| {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(bytes)
    });
    let address = target.address().clone();
    call::<Echo>(&mut origin, &mut target, &vec![1]).unwrap();
    for (round, size) in [100, 300_000, 300_000, 5_000_000].into_iter().enumerate() {
        let round = round + 1;
        let mut call = origin.call::<Echo>(&address, &vec![7; size], RETRIES).unwrap();
        while runs.load(Ordering::SeqCst) == round {
            origin.progress();
            target.progress();
        }
        cut(&address);
        let output = drive(&mut [&mut origin, &mut target], || call.try_take());
        assert!(output.unwrap() == vec![7; size]);
        assert_eq!(runs.load(Ordering::SeqCst), round + 1);
    }
}

/// A call that is cancelled after its connection was lost, when it was asked for again or before, ends for the handler
/// that the first attempt began.
fn cancel_after_a_reconnect() {
    let [mut origin, mut target] = engines();
    target.serve::<Null>(|_, ()| Ok(()));
    let held: Shared<Responder<u64>> = Arc::default();
    let holding = held.clone();
    target.serve_later::<Double>(move |_, _, _, responder| holding.lock().unwrap().push(responder));
    let address = target.address().clone();
    for asked_again in [true, false] {
        let call_again = origin.metrics().calls.retries + 1;
        // Its deadline would end it, too.
        let later = CallOptions {
            timeout: LONG * 3,
            ..RETRIES
        };
        let cancelled = origin.call::<Double>(&address, &1, later).unwrap();
        let responder = drive(&mut [&mut origin, &mut target], || held.lock().unwrap().pop());
        cut(&address);
        while origin.in_progress().retries == 0 {
            origin.progress();
        }
        if asked_again {
            while origin.metrics().calls.retries < call_again {
                origin.progress();
                target.progress();
            }
            call::<Null>(&mut origin, &mut target, &()).unwrap();
        }
        assert!(!responder.is_cancelled(), "its caller comes back");
        drop(cancelled);
        drive(&mut [&mut origin, &mut target], || {
            responder.is_cancelled().then_some(())
        });
        drop(responder);
        drive(&mut [&mut origin, &mut target], || {
            held.lock().unwrap().is_empty().then_some(())
        });
        call::<Null>(&mut origin, &mut target, &()).unwrap();
        assert_eq!(origin.in_progress(), InProgress::default());
    }
}

/// A call is not run again by another engine at the same address, which cannot know whether it ran, unless it may
/// run twice.
fn server_restarted_on_the_same_address() {
    for idempotent in [false, true] {
        let [mut origin, mut target] = engines();
        target.serve_later::<Double>(|_, _, _, responder| std::mem::forget(responder));
        target.serve::<Null>(|_, ()| Ok(()));
        let address = target.address().clone();
        call::<Null>(&mut origin, &mut target, &()).unwrap();
        let options_again = CallOptions {
            idempotent,
            ..RETRIES
        };
        let mut call = origin.call::<Double>(&address, &4, options_again).unwrap();
        while target.in_progress().deferred == 0 {
            origin.progress();
            target.progress();
        }
        drop(target);
        let mut successor = Engine::new(ropewalk_rpc::bind(options_at(1, &address)).unwrap());
        successor.serve::<Double>(move |_, number| {
            assert!(idempotent, "it ran twice");
            Ok(number * 2)
        });
        match drive(&mut [&mut origin, &mut successor], || call.try_take()) {
            Ok(answer) => assert!(idempotent && answer == 8),
            Err(CallError::Replaced { peer, .. }) => assert!(!idempotent && peer == address),
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// A target that is not there yet is waited for, which cannot run a call twice.
fn targets_may_come_late() {
    let [mut origin, target] = engines();
    let address = target.address().clone();
    drop(target);
    let mut call = origin.call::<Double>(&address, &4, RETRIES).unwrap();
    while origin.in_progress().retries == 0 {
        origin.progress();
    }
    let mut late = Engine::new(ropewalk_rpc::bind(options_at(1, &address)).unwrap());
    late.serve::<Double>(|_, number| Ok(number * 2));
    assert_eq!(
        drive(&mut [&mut origin, &mut late], || call.try_take()).unwrap(),
        8
    );
}

/// Retries end with their number, or with the time of the call.
fn retries_are_bounded() {
    let [mut origin, target] = engines();
    let address = target.address().clone();
    drop(target);
    for (retries, timeout) in [(2, LONG), (1000, Duration::from_millis(100))] {
        let bounded = CallOptions {
            retries,
            timeout,
            ..RETRIES
        };
        let start = std::time::Instant::now();
        let mut call = origin.call::<Null>(&address, &(), bounded).unwrap();
        let ended = drive(&mut [&mut origin], || call.try_take());
        assert!(matches!(
            ended,
            Err(CallError::PeerDied { .. } | CallError::TimedOut { .. })
        ));
        assert!(start.elapsed() < LONG / 2);
        assert_eq!(origin.in_progress(), InProgress::default());
    }
}

/// A target that cannot remember one more call does not run it.
fn what_cannot_be_remembered_does_not_run() {
    let forgetful = EngineOptions {
        executed_max: 3,
        ..EngineOptions::default()
    };
    let [mut origin] = engines();
    let mut target = Engine::with_options(ropewalk_rpc::bind(options(1)).unwrap(), forgetful);
    target.serve_later::<Double>(|_, _, _, responder| std::mem::forget(responder));
    let address = target.address().clone();
    let mut calls: Vec<_> = (0..3)
        .map(|number| origin.call::<Double>(&address, &number, RETRIES).unwrap())
        .collect();
    let mut last = calls.pop().unwrap();
    match drive(&mut [&mut origin, &mut target], || last.try_take()) {
        Err(CallError::Busy { reason, .. }) => assert_eq!(reason, BusyReason::Executed),
        other => panic!("{other:?}"),
    }
    assert_eq!(target.in_progress().deferred, 2);
}
