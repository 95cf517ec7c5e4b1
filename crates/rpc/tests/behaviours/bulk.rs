//! Handles in arguments, pulled from and pushed to.

use std::sync::Arc;

use bytes::Bytes;
use ropewalk_rpc::{AccessError, Buffer, Fault, RegionHandle, Responder, TransferError, Withdrawn};

use crate::{Checksum, Fill, LONG, Shared, drive, engines};

crate::on_every_transport! {
    bulk_handle_pulled_by_the_target,
    bulk_handle_pushed_by_the_target,
    cancelled_transfers,
}

/// The target pulls what the arguments name, in quarters, and the caller's application does nothing for it.
fn bulk_handle_pulled_by_the_target() {
    const LENGTH: usize = 4 << 20;
    let [mut origin, mut target] = engines();
    let content: Vec<u8> = (0..LENGTH).map(|at| (at * 13) as u8).collect();
    let expected: u64 = content.iter().map(|&byte| u64::from(byte)).sum();
    let handle = origin.expose(Bytes::from(content));
    let jobs: Shared<(RegionHandle, Responder<u64>)> = Arc::default();
    let queue = jobs.clone();
    target.serve_later::<Checksum>(move |_, _, handle, responder| {
        queue.lock().unwrap().push((handle, responder));
    });
    let mut call = origin.call::<Checksum>(target.address(), &handle, LONG).unwrap();
    let (handle, responder) = drive(&mut [&mut origin, &mut target], || jobs.lock().unwrap().pop());
    let mut pulls: Vec<_> = (0..4)
        .map(|quarter| {
            let into = Buffer::zeroed(LENGTH / 4);
            target
                .pull(&handle, quarter * (LENGTH as u64 / 4), into, LONG)
                .unwrap()
        })
        .collect();
    let mut sum = 0;
    drive(&mut [&mut origin, &mut target], || {
        pulls.retain_mut(|pull| match pull.try_take() {
            Some(buffer) => {
                sum += buffer.unwrap().iter().map(|&byte| u64::from(byte)).sum::<u64>();
                false
            }
            None => true,
        });
        pulls.is_empty().then_some(())
    });
    responder.answer(Ok(sum));
    let result = drive(&mut [&mut origin, &mut target], || call.try_take());
    assert_eq!(result.unwrap(), expected);
}

/// The target pushes into what the arguments name, right from its handler; a forged handle is refused.
fn bulk_handle_pushed_by_the_target() {
    let [mut origin, mut target] = engines();
    let handle = origin.expose_writable(Buffer::zeroed(1 << 20));
    let pushes: Shared<_> = Arc::default();
    let started = pushes.clone();
    target.serve_later::<Fill>(move |engine, _, handle, responder| {
        match engine.push(&handle, 0, Bytes::from(vec![9; 1 << 20]), LONG) {
            Ok(push) => started.lock().unwrap().push((push, responder)),
            Err(error) => responder.answer(Err(Fault::new(error))),
        }
    });
    let mut forged = handle.clone();
    forged.token ^= 1;
    for (handle, allowed) in [(&forged, false), (&handle, true)] {
        let mut call = origin.call::<Fill>(target.address(), handle, LONG).unwrap();
        let result = drive(&mut [&mut origin, &mut target], || {
            let mut pushes = pushes.lock().unwrap();
            if let Some(result) = pushes.last_mut().and_then(|(push, _)| push.try_take()) {
                assert!(matches!(
                    (&result, allowed),
                    (Ok(()), true)
                        | (
                            Err(TransferError::Access {
                                source: AccessError::Unknown,
                                ..
                            }),
                            false
                        )
                ));
                let (_, responder) = pushes.pop().unwrap();
                responder.answer(result.map_err(Fault::new));
            }
            call.try_take()
        });
        assert_eq!(result.is_ok(), allowed);
    }
    let Some(Withdrawn::Writable(buffer)) = origin.withdraw(&handle) else {
        panic!("the region is gone");
    };
    assert!(*buffer == [9; 1 << 20]);
}

/// A transfer that is dropped is cancelled, and what comes after it is right.
fn cancelled_transfers() {
    let [mut origin, mut target] = engines();
    let handle = target.expose(Bytes::from(vec![5; 32 << 20]));
    for steps in 0..5 {
        let cancelled = origin.pull(&handle, 0, Buffer::zeroed(32 << 20), LONG).unwrap();
        for _ in 0..steps {
            origin.progress();
            target.progress();
        }
        drop(cancelled);
        let mut pull = origin.pull(&handle, 0, Buffer::zeroed(100), LONG).unwrap();
        let buffer = drive(&mut [&mut origin, &mut target], || pull.try_take());
        assert_eq!(*buffer.unwrap(), [5; 100]);
    }
}
