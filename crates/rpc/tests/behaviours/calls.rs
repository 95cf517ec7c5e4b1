//! Calls and notifications that are answered.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use ropewalk_names::Rank;
use ropewalk_rpc::{Call, CallError, Engine, Fault, Procedure, Responder};

use crate::{Count, Describe, Double, Echo, LONG, Null, Refuse, Relay, Shared, Survey, call, drive, engines};

crate::on_every_transport! {
    null_call,
    struct_both_ways,
    registered_then_removed_procedure,
    procedure_unknown_to_the_target,
    faults_are_told,
    mismatched_definitions,
    one_way,
    many_calls,
    nested_calls,
    large_answers_to_a_burst,
    flushing_sends_what_waited_for_room,
    panics_of_handlers_leave_the_engine_whole,
}

/// A call of nothing for nothing comes back, also to oneself.
fn null_call() {
    let [mut origin, mut target] = engines();
    target.serve::<Null>(|_, ()| Ok(()));
    origin.serve::<Null>(|_, ()| Ok(()));
    call::<Null>(&mut origin, &mut target, &()).unwrap();
    let itself = origin.call::<Null>(&origin.address().clone(), &(), LONG).unwrap();
    origin.block_on(itself).unwrap();
}

/// Structured arguments arrive as they went, both ways, and the handler knows who called and how long it
/// waits.
fn struct_both_ways() {
    let [mut origin, mut target] = engines();
    let address = origin.address().clone();
    target.serve::<Describe>(move |caller, mut survey| {
        assert_eq!((caller.address(), caller.identity().rank), (&address, Rank(0)));
        assert!(caller.remaining().unwrap() > LONG / 2 && caller.remaining().unwrap() <= LONG);
        survey.name.push_str(" seen");
        survey.shots.reverse();
        Ok(survey)
    });
    let survey = Survey {
        name: "line 7".into(),
        shots: vec![(1.5, None), (-0.0, Some(-3))],
    };
    let expected = Survey {
        name: "line 7 seen".into(),
        shots: vec![(-0.0, Some(-3)), (1.5, None)],
    };
    assert_eq!(
        call::<Describe>(&mut origin, &mut target, &survey).unwrap(),
        expected
    );
}

/// A call of a procedure that was never served ends with an error that names it and the target, while calls
/// of another that is served work.
fn procedure_unknown_to_the_target() {
    let [mut origin, mut target] = engines();
    target.serve::<Double>(|_, number| Ok(number * 2));
    expect_unknown(&mut origin, &mut target);
    assert_eq!(call::<Double>(&mut origin, &mut target, &4).unwrap(), 8);
}

/// A procedure that is served no longer is an error that names it, and one that is served again works.
fn registered_then_removed_procedure() {
    let [mut origin, mut target] = engines();
    for _ in 0..3 {
        target.serve::<Null>(|_, ()| Ok(()));
        call::<Null>(&mut origin, &mut target, &()).unwrap();
        assert!(target.stop_serving::<Null>());
        expect_unknown(&mut origin, &mut target);
    }
    assert!(!target.stop_serving::<Null>());
}

fn expect_unknown(origin: &mut Engine, target: &mut Engine) {
    match call::<Null>(origin, target, &()) {
        Err(CallError::UnknownProcedure { procedure, peer }) => {
            assert!(procedure == Null::NAME && peer == *target.address());
        }
        other => panic!("{other:?}"),
    }
}

/// The fault of a handler reaches the caller, in the handler's words.
fn faults_are_told() {
    let [mut origin, mut target] = engines();
    target.serve::<Refuse>(|_, reason| Err(Fault::new(reason)));
    match call::<Refuse>(&mut origin, &mut target, &"no such shot".into()) {
        Err(CallError::Fault { source, .. }) => assert_eq!(source.to_string(), "no such shot"),
        other => panic!("{other:?}"),
    }
    let long = "ä".repeat(Fault::MESSAGE_SIZE_MAX);
    match call::<Refuse>(&mut origin, &mut target, &long) {
        Err(CallError::Fault { source, .. }) => assert_eq!(source.to_string().len(), Fault::MESSAGE_SIZE_MAX),
        other => panic!("{other:?}"),
    }
}

/// Two definitions of one procedure are told from each other, on the side where it shows.
fn mismatched_definitions() {
    struct OtherInput;
    impl Procedure for OtherInput {
        const NAME: &'static str = Double::NAME;
        type Input = ();
        type Output = u64;
    }
    struct OtherOutput;
    impl Procedure for OtherOutput {
        const NAME: &'static str = Double::NAME;
        type Input = u64;
        type Output = (String, String);
    }
    let [mut origin, mut target] = engines();
    target.serve::<Double>(|_, number| Ok(number * 2));
    assert!(matches!(
        call::<OtherInput>(&mut origin, &mut target, &()),
        Err(CallError::InputMalformed { .. })
    ));
    assert!(matches!(
        call::<OtherOutput>(&mut origin, &mut target, &100),
        Err(CallError::OutputMalformed { .. })
    ));
}

/// Notifications arrive in order among themselves and with calls, whatever their size, and bring no answer.
fn one_way() {
    let [mut origin, mut target] = engines();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    target.serve::<Count>(move |caller, number| {
        assert_eq!(caller.deadline().is_none(), number % 10 != 0);
        log.lock().unwrap().push(number);
        Ok(())
    });
    let log = seen.clone();
    target.serve::<Echo>(move |_, bytes| {
        log.lock().unwrap().push(u64::from(bytes[0]));
        Ok(bytes)
    });
    let address = target.address().clone();
    let mut calls = Vec::new();
    for number in 0..200 {
        if number % 10 == 0 {
            calls.push(origin.call::<Count>(&address, &number, LONG).unwrap());
        } else if number % 10 == 5 {
            origin
                .notify::<Echo>(&address, &vec![number as u8; 200_000])
                .unwrap();
        } else {
            origin.notify::<Count>(&address, &number).unwrap();
        }
    }
    // What nobody serves is dropped without harm.
    origin.notify::<Null>(&address, &()).unwrap();
    call::<Count>(&mut origin, &mut target, &200).unwrap();
    assert_eq!(*seen.lock().unwrap(), (0..=200).collect::<Vec<_>>());
    assert!(
        calls
            .iter_mut()
            .all(|call| matches!(call.try_take(), Some(Ok(()))))
    );
}

/// Thousands of calls in flight at once are each given their own answer.
fn many_calls() {
    let [mut origin, mut target] = engines();
    target.serve::<Double>(|_, number| Ok(number * 2));
    let address = target.address().clone();
    let mut calls: VecDeque<(u64, Call<u64>)> = (0..5000)
        .map(|number| (number, origin.call::<Double>(&address, &number, LONG).unwrap()))
        .collect();
    drive(&mut [&mut origin, &mut target], || {
        calls.retain_mut(|(number, call)| match call.try_take() {
            Some(result) => {
                assert_eq!(result.unwrap(), *number * 2);
                false
            }
            None => true,
        });
        calls.is_empty().then_some(())
    });
}

/// A handler that needs another's answer first calls it, and answers when that is there: origin to relay to
/// target. The inner call inherits what is left of the outer one's time.
fn nested_calls() {
    let [mut origin, mut relay, mut target] = engines();
    let times: Shared<Duration> = Arc::default();
    let inner = times.clone();
    target.serve::<Double>(move |caller, number| {
        inner.lock().unwrap().push(caller.remaining().unwrap());
        Ok(number * 2)
    });
    let outer = times.clone();
    let nested: Shared<(Call<u64>, Responder<u64>)> = Arc::default();
    let started = nested.clone();
    relay.serve_later::<Relay>(move |engine, caller, (address, number), responder| {
        let remaining = caller.remaining().unwrap();
        outer.lock().unwrap().push(remaining);
        match engine.call::<Double>(&address, &(number + 1), remaining) {
            Ok(call) => started.lock().unwrap().push((call, responder)),
            Err(error) => responder.answer(Err(Fault::new(error))),
        }
    });
    let input = (target.address().clone(), 20);
    let mut call = origin.call::<Relay>(relay.address(), &input, LONG).unwrap();
    let result = drive(&mut [&mut origin, &mut relay, &mut target], || {
        let mut nested = nested.lock().unwrap();
        if let Some(result) = nested.last_mut().and_then(|(call, _)| call.try_take()) {
            let (_, responder) = nested.pop().unwrap();
            responder.answer(result.map_err(Fault::new));
        }
        call.try_take()
    });
    assert_eq!(result.unwrap(), 42);
    let times = times.lock().unwrap();
    assert!(LONG >= times[0] && times[0] >= times[1] && times[1] > LONG / 2);
}

/// A burst of calls whose outputs are, together, far more than may be queued for one caller: all are
/// answered, as fast as the caller reads.
fn large_answers_to_a_burst() {
    let [mut origin, mut target] = engines();
    target.serve::<Echo>(|_, _| Ok(vec![1; 1 << 20]));
    let address = target.address().clone();
    let mut calls: Vec<_> = (0..150)
        .map(|_| origin.call::<Echo>(&address, &vec![], LONG).unwrap())
        .collect();
    drive(&mut [&mut origin, &mut target], || {
        calls.retain_mut(|call| match call.try_take() {
            Some(result) => {
                assert_eq!(result.unwrap().len(), 1 << 20);
                false
            }
            None => true,
        });
        calls.is_empty().then_some(())
    });
}

/// Everything that was answered reaches the caller, also what had to wait for room, when the target is
/// flushed before it is dropped.
fn flushing_sends_what_waited_for_room() {
    let [mut origin, mut target] = engines();
    let handled = Arc::new(Mutex::new(0));
    let count = handled.clone();
    target.serve::<Echo>(move |_, _| {
        *count.lock().unwrap() += 1;
        Ok(vec![1; 1 << 20])
    });
    let address = target.address().clone();
    let mut calls: Vec<_> = (0..100)
        .map(|_| origin.call::<Echo>(&address, &vec![], LONG).unwrap())
        .collect();
    drive(&mut [&mut origin, &mut target], || {
        (*handled.lock().unwrap() == 100).then_some(())
    });
    thread::scope(|scope| {
        scope.spawn(move || assert!(target.flush(Duration::MAX)));
        drive(&mut [&mut origin], || {
            calls.retain_mut(|call| call.try_take().map(Result::unwrap).is_none());
            calls.is_empty().then_some(())
        });
    });
}

/// A handler that panics takes its owner with it, unless that catches it: then the engine serves on.
fn panics_of_handlers_leave_the_engine_whole() {
    let [mut origin, mut target] = engines();
    target.serve::<Double>(|_, number| {
        assert!(number != 13, "unlucky");
        Ok(number * 2)
    });
    let address = target.address().clone();
    origin.notify::<Double>(&address, &13).unwrap();
    drive(&mut [&mut origin], || {
        catch_unwind(AssertUnwindSafe(|| target.progress())).err()
    });
    assert_eq!(call::<Double>(&mut origin, &mut target, &4).unwrap(), 8);
}
