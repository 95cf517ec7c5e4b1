//! Inputs and outputs that are too large for a message.

use std::{sync::Arc, time::Duration};

use ropewalk_rpc::{BusyReason, CallError, Engine, EngineOptions, InProgress, Responder};

use crate::{Count, Echo, LONG, Null, Shared, call, drive, engines, options};

crate::on_every_transport! {
    overflow_both_ways,
    input_beyond_the_eager_limit,
    one_way_input_beyond_the_eager_limit,
    output_beyond_the_eager_limit,
    large_inputs_keep_their_place,
    too_large_is_refused,
    too_much_is_busy,
    refused_notifications_are_counted,
    cancelled_overflow_leaves_nothing,
    overdue_overflow_leaves_nothing,
    deferred_overflow,
}

/// It drops engines with transfers in progress by the dozen, upon which libfabric 1.17 now and then reads memory that
/// it has freed (`rxm_close_conn`).
mod dying {
    use super::deaths_leave_nothing_of_overflow;

    crate::on_every_transport! { without_ofi: deaths_leave_nothing_of_overflow, }
}

/// Larger than what goes in a message.
const LARGE: usize = 200_000;

fn limited<const N: usize>(limits: EngineOptions) -> [Engine; N] {
    std::array::from_fn(|rank| {
        Engine::with_options(ropewalk_rpc::bind(options(rank as u32)).unwrap(), limits)
    })
}

/// Drives both until neither has anything in progress.
fn settle(origin: &mut Engine, target: &mut Engine) {
    let start = std::time::Instant::now();
    while [&mut *origin, &mut *target].map(|engine| engine.in_progress()) != [InProgress::default(); 2] {
        origin.progress();
        target.progress();
        let left = [origin.in_progress(), target.in_progress()];
        assert!(start.elapsed() < LONG, "something stays: {left:?}");
    }
}

/// Inputs, one-way inputs and outputs of any size are carried, and nothing stays of them.
fn overflow_both_ways() {
    let [mut origin, mut target] = engines();
    target.serve::<Echo>(|_, bytes| Ok(bytes));
    for size in [0, 1, 65_000, 65_536, 65_537, 1 << 20, 20 << 20] {
        let input = pattern(size);
        let output = call::<Echo>(&mut origin, &mut target, &input).unwrap();
        assert!(output == input, "{size} bytes");
        origin.notify::<Echo>(target.address(), &input).unwrap();
    }
    settle(&mut origin, &mut target);
}

/// A large input comes whole, and nothing but a small answer goes back.
fn input_beyond_the_eager_limit() {
    let [mut origin, mut target] = engines();
    target.serve::<Echo>(|_, bytes| {
        assert!(bytes == pattern(LARGE));
        Ok(vec![1])
    });
    let output = call::<Echo>(&mut origin, &mut target, &pattern(LARGE));
    assert_eq!(output.unwrap(), [1]);
    settle(&mut origin, &mut target);
}

/// A large input of a notification comes whole, and nobody has to wait for it.
fn one_way_input_beyond_the_eager_limit() {
    let [mut origin, mut target] = engines();
    let seen: Shared<Vec<u8>> = Arc::default();
    let log = seen.clone();
    target.serve::<Echo>(move |_, bytes| {
        log.lock().unwrap().push(bytes);
        Ok(vec![])
    });
    origin.notify::<Echo>(target.address(), &pattern(LARGE)).unwrap();
    let came = drive(&mut [&mut origin, &mut target], || seen.lock().unwrap().pop());
    assert!(came == pattern(LARGE));
    settle(&mut origin, &mut target);
}

/// A large output of a call with a small input comes whole.
fn output_beyond_the_eager_limit() {
    let [mut origin, mut target] = engines();
    target.serve::<Echo>(|_, _| Ok(pattern(LARGE)));
    let output = call::<Echo>(&mut origin, &mut target, &vec![]);
    assert!(output.unwrap() == pattern(LARGE));
    settle(&mut origin, &mut target);
}

fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 7) as u8).collect()
}

/// A request that comes after a large input is handled after it, whether it is large, small or one-way.
fn large_inputs_keep_their_place() {
    let [mut origin, mut target] = engines();
    let seen: Shared<u64> = Arc::default();
    let log = seen.clone();
    target.serve::<Echo>(move |_, bytes| {
        log.lock().unwrap().push(u64::from(bytes[0]));
        Ok(vec![])
    });
    let log = seen.clone();
    target.serve::<Count>(move |_, number| {
        log.lock().unwrap().push(number);
        Ok(())
    });
    let address = target.address().clone();
    let mut calls = Vec::new();
    for number in 0..60 {
        let size = LARGE * (60 - number) / 20;
        match number % 4 {
            0 => calls.push(
                origin
                    .call::<Echo>(&address, &vec![number as u8; size], LONG)
                    .unwrap(),
            ),
            1 => origin
                .notify::<Echo>(&address, &vec![number as u8; size])
                .unwrap(),
            2 => origin.notify::<Echo>(&address, &vec![number as u8]).unwrap(),
            _ => origin.notify::<Count>(&address, &(number as u64)).unwrap(),
        }
    }
    drive(&mut [&mut origin, &mut target], || {
        (seen.lock().unwrap().len() == 60).then_some(())
    });
    assert_eq!(*seen.lock().unwrap(), (0..60).collect::<Vec<_>>());
    drive(&mut [&mut origin, &mut target], || {
        calls.retain_mut(|call| call.try_take().map(Result::unwrap).is_none());
        calls.is_empty().then_some(())
    });
    settle(&mut origin, &mut target);
}

/// An input or output larger than accepted is refused, on the side where it shows, in words that say how much
/// is.
fn too_large_is_refused() {
    let small = EngineOptions {
        overflow_size_max: 1 << 20,
        ..EngineOptions::default()
    };
    let [mut origin, mut target] = limited(small);
    target.serve::<Echo>(|_, bytes| Ok(bytes));
    match call::<Echo>(&mut origin, &mut target, &vec![0; 1 << 20]) {
        Err(CallError::InputTooLarge { size_max, .. }) => assert_eq!(size_max, 1 << 20),
        other => panic!("{:?}", other.map(|output| output.len())),
    }
    target.serve::<Echo>(|_, _| Ok(vec![1; 1 << 20]));
    match call::<Echo>(&mut origin, &mut target, &vec![]) {
        Err(CallError::OutputTooLarge { size, size_max, .. }) => assert!(size > size_max),
        other => panic!("{:?}", other.map(|output| output.len())),
    }
    settle(&mut origin, &mut target);
}

/// Inputs and outputs that would be too much together are refused as busy, and the others arrive.
fn too_much_is_busy() {
    let tight = EngineOptions {
        overflow_bytes_max: 3 * LARGE as u64,
        ..EngineOptions::default()
    };
    for of_inputs in [true, false] {
        let [mut origin, mut target] = limited(tight);
        target.serve::<Echo>(move |_, bytes| {
            Ok(if of_inputs {
                vec![]
            } else {
                vec![1; bytes.len() + LARGE]
            })
        });
        let size = if of_inputs { LARGE } else { 0 };
        let address = target.address().clone();
        let mut calls: Vec<_> = (0..20)
            .map(|_| origin.call::<Echo>(&address, &vec![1; size], LONG).unwrap())
            .collect();
        let (mut answered, mut busy) = (0, 0);
        drive(&mut [&mut origin, &mut target], || {
            calls.retain_mut(|call| match call.try_take() {
                Some(Ok(_)) => {
                    answered += 1;
                    false
                }
                Some(Err(CallError::Busy { reason, .. })) => {
                    let expected = if of_inputs {
                        BusyReason::Inputs
                    } else {
                        BusyReason::Outputs
                    };
                    assert_eq!(reason, expected);
                    busy += 1;
                    false
                }
                Some(Err(error)) => panic!("{error:?}"),
                None => true,
            });
            calls.is_empty().then_some(())
        });
        assert!(answered > 0 && busy > 0, "{answered} answered, {busy} busy");
        assert!(call::<Echo>(&mut origin, &mut target, &vec![1; size]).is_ok());
        settle(&mut origin, &mut target);
    }
}

/// Notifications that find no room, because the input of one before them is still to be pulled, are counted on both
/// sides, whether they are large or small; so is what nobody serves.
fn refused_notifications_are_counted() {
    let tight = EngineOptions {
        arrivals_max: 3,
        ..EngineOptions::default()
    };
    let [mut origin, mut target] = limited(tight);
    let handled: Shared<u64> = Arc::default();
    let log = handled.clone();
    target.serve::<Count>(move |_, number| {
        log.lock().unwrap().push(number);
        Ok(())
    });
    target.serve::<Echo>(|_, bytes| Ok(bytes));
    let address = target.address().clone();
    // So that all of it comes at once.
    call::<Echo>(&mut origin, &mut target, &vec![]).unwrap();
    origin.notify::<Echo>(&address, &vec![1; 20 * LARGE]).unwrap();
    for number in 0..50 {
        origin.notify::<Count>(&address, &number).unwrap();
    }
    origin.notify::<Echo>(&address, &vec![1; LARGE]).unwrap();
    origin.flush(Duration::from_millis(1));
    settle(&mut origin, &mut target);
    // Its answer comes behind all that was refused.
    call::<Echo>(&mut origin, &mut target, &vec![]).unwrap();
    let (handled, refused) = (
        handled.lock().unwrap().len() as u64,
        target.metrics().requests.failures.busy,
    );
    assert!(refused > 0, "{handled} were handled");
    let large_refused = origin.metrics().notifications.failures.busy - (50 - handled);
    assert!(large_refused <= 1, "{:?}", origin.metrics());
    assert_eq!(refused, origin.metrics().notifications.failures.busy);

    origin.notify::<Null>(&address, &()).unwrap();
    call::<Echo>(&mut origin, &mut target, &vec![]).unwrap();
    assert_eq!(target.metrics().requests.failures.unknown_procedure, 1);
}

/// A call with a large input or output that is cancelled, at whatever moment, leaves nothing behind.
fn cancelled_overflow_leaves_nothing() {
    let [mut origin, mut target] = engines();
    target.serve::<Echo>(|_, bytes| Ok(bytes));
    let address = target.address().clone();
    for steps in 0..40 {
        let cancelled = origin.call::<Echo>(&address, &vec![1; LARGE], LONG).unwrap();
        for _ in 0..steps {
            origin.progress();
            if steps % 2 == 0 {
                target.progress();
            }
        }
        drop(cancelled);
    }
    settle(&mut origin, &mut target);
    assert!(call::<Echo>(&mut origin, &mut target, &vec![1; LARGE]).is_ok());
}

/// A call with a large input or output that ends by its deadline leaves nothing behind.
fn overdue_overflow_leaves_nothing() {
    let [mut origin, mut target] = engines();
    target.serve::<Echo>(|_, bytes| Ok(bytes));
    let address = target.address().clone();
    let short = Duration::from_millis(20);
    let mut call = origin.call::<Echo>(&address, &vec![1; LARGE], short).unwrap();
    let ended = drive(&mut [&mut origin], || call.try_take());
    assert!(matches!(ended, Err(CallError::TimedOut { .. })), "{ended:?}");
    let mut call = origin.call::<Echo>(&address, &vec![1; LARGE], short).unwrap();
    origin.progress();
    std::thread::sleep(short);
    let ended = drive(&mut [&mut target, &mut origin], || call.try_take());
    assert!(matches!(ended, Err(CallError::TimedOut { .. })), "{ended:?}");
    settle(&mut origin, &mut target);
}

/// A target that dies while it pulls an input, handles the call, or has its output pulled, ends the call, and
/// nothing stays with the caller; a caller that dies leaves nothing with the target.
fn deaths_leave_nothing_of_overflow() {
    for steps in 0..30 {
        for dies in [0, 1] {
            let [mut origin, mut target] = engines();
            target.serve::<Echo>(|_, bytes| Ok(bytes));
            target.serve::<Null>(|_, ()| Ok(()));
            call::<Null>(&mut origin, &mut target, &()).unwrap();
            let address = target.address().clone();
            let mut call = origin.call::<Echo>(&address, &vec![1; LARGE * 10], LONG).unwrap();
            for _ in 0..steps {
                origin.progress();
                target.progress();
            }
            if dies == 0 {
                drop(target);
                match drive(&mut [&mut origin], || call.try_take()) {
                    Err(CallError::PeerDied { .. }) => {}
                    Ok(output) => assert_eq!(output.len(), LARGE * 10),
                    Err(other) => panic!("{other:?}"),
                }
                assert_eq!(origin.in_progress(), InProgress::default());
            } else {
                drop(origin);
                assert!(matches!(
                    call.try_take(),
                    Some(Ok(_) | Err(CallError::Stopped { .. }))
                ));
                while target.in_progress() != InProgress::default() || target.poll_lost_peer().is_none() {
                    target.wait(Duration::from_millis(1));
                }
            }
        }
    }
}

/// A large answer that is given later, from elsewhere, is carried too.
fn deferred_overflow() {
    let [mut origin, mut target] = engines();
    let held: Shared<Responder<Vec<u8>>> = Arc::default();
    let holding = held.clone();
    target.serve_later::<Echo>(move |_, _, _, responder| holding.lock().unwrap().push(responder));
    let mut call = origin
        .call::<Echo>(target.address(), &vec![1; LARGE], LONG)
        .unwrap();
    let responder = drive(&mut [&mut origin, &mut target], || held.lock().unwrap().pop());
    assert_eq!(target.in_progress().deferred, 1);
    responder.answer(Ok(vec![2; LARGE]));
    let output = drive(&mut [&mut origin, &mut target], || call.try_take()).unwrap();
    assert!(output == vec![2; LARGE]);
    settle(&mut origin, &mut target);
}
