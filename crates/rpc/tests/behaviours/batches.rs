//! Several calls in one message.

use std::{sync::Arc, time::Duration};

use ropewalk_rpc::{CallError, Fault, InProgress, Responder};

use crate::{Count, Double, Echo, LONG, Null, Refuse, Shared, drive, engines};

crate::on_every_transport! {
    each_call_of_a_batch_has_its_own_end,
    batches_that_nobody_answers,
}

/// The calls of a batch are handled in order, and each has its own output or error, whatever its size and whether
/// its answer comes at once.
fn each_call_of_a_batch_has_its_own_end() {
    let [mut origin, mut target] = engines();
    let held: Shared<Responder<()>> = Arc::default();
    let holding = held.clone();
    let order: Shared<u64> = Arc::default();
    let log = order.clone();
    target.serve::<Double>(move |caller, number| {
        assert!(caller.remaining().unwrap() > LONG / 2);
        log.lock().unwrap().push(number);
        Ok(number * 2)
    });
    target.serve_later::<Null>(move |_, _, (), responder| holding.lock().unwrap().push(responder));
    target.serve::<Refuse>(|_, reason| Err(Fault::new(reason)));
    target.serve::<Echo>(|_, bytes| Ok(bytes));
    let address = target.address().clone();
    let mut batch = origin.batch(&address).unwrap();
    let mut doubled: Vec<_> = (0..10_000)
        .map(|number| batch.push::<Double>(&number).unwrap())
        .collect();
    let mut deferred = batch.push::<Null>(&()).unwrap();
    let mut refused = batch.push::<Refuse>(&"no".to_owned()).unwrap();
    let mut unknown = batch.push::<Count>(&1).unwrap();
    let mut echoed: Vec<_> = [10, 60_000, 65_000, 500_000]
        .map(|size| (size, batch.push::<Echo>(&vec![1; size]).unwrap()))
        .into();
    drop(batch.push::<Double>(&10_001).unwrap());
    assert_eq!(batch.len(), 10_008);
    batch.send(LONG);
    drive(&mut [&mut origin, &mut target], || {
        echoed.retain_mut(|(size, call)| match call.try_take() {
            Some(output) => {
                assert_eq!(output.unwrap().len(), *size);
                false
            }
            None => true,
        });
        echoed.is_empty().then_some(())
    });
    for (number, call) in doubled.iter_mut().enumerate() {
        let output = drive(&mut [&mut origin, &mut target], || call.try_take());
        assert_eq!(output.unwrap(), number as u64 * 2);
    }
    assert_eq!(*order.lock().unwrap(), (0..10_000).collect::<Vec<_>>());
    let refusal = drive(&mut [&mut origin, &mut target], || refused.try_take());
    assert!(matches!(refusal, Err(CallError::Fault { .. })));
    let unserved = drive(&mut [&mut origin, &mut target], || unknown.try_take());
    assert!(matches!(unserved, Err(CallError::UnknownProcedure { .. })));
    assert!(deferred.try_take().is_none());
    held.lock().unwrap().pop().unwrap().answer(Ok(()));
    drive(&mut [&mut origin, &mut target], || deferred.try_take()).unwrap();
    assert_eq!(origin.in_progress(), InProgress::default());
}

/// The calls of a batch that is dropped end, those of a batch to one who dies or is silent too.
fn batches_that_nobody_answers() {
    let [mut origin, mut target] = engines();
    let held: Shared<Responder<()>> = Arc::default();
    let holding = held.clone();
    target.serve_later::<Null>(move |_, _, (), responder| holding.lock().unwrap().push(responder));
    let address = target.address().clone();
    let mut batch = origin.batch(&address).unwrap();
    let mut unsent = batch.push::<Null>(&()).unwrap();
    drop(batch);
    assert!(matches!(unsent.try_take(), Some(Err(CallError::Unsent { .. }))));
    for timeout in [Duration::from_millis(30), LONG] {
        let mut batch = origin.batch(&address).unwrap();
        let mut calls: Vec<_> = (0..3).map(|_| batch.push::<Null>(&()).unwrap()).collect();
        batch.send(timeout);
        drive(&mut [&mut origin, &mut target], || {
            (held.lock().unwrap().len() >= 3).then_some(())
        });
        if timeout == LONG {
            drop(std::mem::replace(
                &mut target,
                engines::<1>().into_iter().next().unwrap(),
            ));
        }
        for call in &mut calls {
            match drive(&mut [&mut origin], || call.try_take()) {
                Err(CallError::TimedOut { .. }) => assert_ne!(timeout, LONG),
                Err(CallError::PeerDied { .. }) => assert_eq!(timeout, LONG),
                other => panic!("{other:?}"),
            }
        }
        held.lock().unwrap().clear();
    }
    assert_eq!(origin.in_progress(), InProgress::default());
}
