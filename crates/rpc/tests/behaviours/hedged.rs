//! Calls to several targets, of which the first answer counts.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use ropewalk_rpc::{Address, CallError, Engine, Fault, Hedge, HedgedCall, Procedure, Responder};

use crate::{Double, LONG, Shared, drive, engines};

crate::on_every_transport! {
    the_first_answers,
    a_slow_target_is_outrun,
    a_failure_brings_the_next,
    all_fail,
    the_deadline_is_for_all,
    the_delay_is_learned,
    the_engine_goes,
}

const SOON: Hedge = Hedge::After(Duration::from_millis(20));

/// Drives all until the hedged call has ended.
fn end<P>(engines: &mut [&mut Engine], mut call: HedgedCall<P>) -> <HedgedCall<P> as Future>::Output
where
    P: Procedure<Input: Send + Sync + 'static, Output: Send + 'static> + 'static,
{
    let mut context = Context::from_waker(Waker::noop());
    drive(engines, || {
        match std::pin::Pin::new(&mut call).poll(&mut context) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    })
}

fn addresses(engines: &[&Engine]) -> Vec<Address> {
    engines.iter().map(|engine| engine.address().clone()).collect()
}

/// A target that answers at once is the only one that is called.
fn the_first_answers() {
    let [mut origin, mut first, mut second] = engines();
    first.serve::<Double>(|_, number| Ok(number * 2));
    let called = Arc::new(AtomicUsize::new(0));
    let counter = called.clone();
    second.serve::<Double>(move |_, number| {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(number * 2)
    });
    let targets = addresses(&[&first, &second]);
    let hedge = Hedge::After(LONG);
    let call = origin.call_hedged::<Double>(&targets, 4, hedge, LONG);
    let answer = end(&mut [&mut origin, &mut first, &mut second], call);
    assert_eq!(answer.unwrap(), 8);
    assert_eq!(called.load(Ordering::SeqCst), 0);
}

/// One that does not answer soon is outrun by the next, and the call to it is cancelled: its late answer harms
/// nobody.
fn a_slow_target_is_outrun() {
    let [mut origin, mut slow, mut fast] = engines();
    let responders: Shared<Responder<u64>> = Arc::default();
    let kept = responders.clone();
    slow.serve_later::<Double>(move |_, _, _, responder| kept.lock().unwrap().push(responder));
    fast.serve::<Double>(|_, number| Ok(number * 2));
    let targets = addresses(&[&slow, &fast]);
    let start = Instant::now();
    let call = origin.call_hedged::<Double>(&targets, 4, SOON, LONG);
    let all = &mut [&mut origin, &mut slow, &mut fast];
    assert_eq!(end(all, call).unwrap(), 8);
    assert!(start.elapsed() >= Duration::from_millis(20) && start.elapsed() < LONG / 2);
    drive(all, || (responders.lock().unwrap().len() == 1).then_some(()));
    responders
        .lock()
        .unwrap()
        .drain(..)
        .for_each(|late| late.answer(Ok(0)));
    let call = all[0].call_hedged::<Double>(&targets[1..], 5, SOON, LONG);
    assert_eq!(end(all, call).unwrap(), 10);
}

/// A target that fails is replaced at once, without waiting for the delay.
fn a_failure_brings_the_next() {
    let [mut origin, mut faulty, mut without, mut good] = engines();
    faulty.serve::<Double>(|_, _| Err(Fault::new("no")));
    good.serve::<Double>(|_, number| Ok(number * 2));
    let targets = addresses(&[&faulty, &without, &good]);
    let start = Instant::now();
    let call = origin.call_hedged::<Double>(&targets, 4, Hedge::After(LONG), LONG);
    let answer = end(&mut [&mut origin, &mut faulty, &mut without, &mut good], call);
    assert_eq!(answer.unwrap(), 8);
    assert!(start.elapsed() < LONG / 2);
}

/// If all fail the error names all, and the last failure is its source.
fn all_fail() {
    let [mut origin, mut faulty, mut without, gone] = engines();
    faulty.serve::<Double>(|_, _| Err(Fault::new("no")));
    let targets = addresses(&[&faulty, &gone, &without]);
    drop(gone);
    let call = origin.call_hedged::<Double>(&targets, 4, Hedge::After(LONG), LONG);
    let error = end(&mut [&mut origin, &mut faulty, &mut without], call).unwrap_err();
    assert!(matches!(
        error.failures(),
        [
            (_, CallError::Fault { .. }),
            (_, CallError::PeerDied { .. } | CallError::Submit { .. }),
            (_, CallError::UnknownProcedure { .. })
        ]
    ));
    let text = error.to_string();
    assert!(
        targets.iter().all(|target| text.contains(&target.to_string())),
        "{text}"
    );
    assert!(error.source().unwrap().to_string().contains("does not serve"));
    let none = origin.call_hedged::<Double>(&[], 4, SOON, LONG);
    assert!(end(&mut [&mut origin], none).unwrap_err().failures().is_empty());
}

/// When nobody answers all calls end by the one deadline.
fn the_deadline_is_for_all() {
    let [mut origin, first, second] = engines();
    let targets = addresses(&[&first, &second]);
    let timeout = Duration::from_millis(100);
    let start = Instant::now();
    let call = origin.call_hedged::<Double>(&targets, 4, SOON, timeout);
    let error = origin.block_on(call).unwrap_err();
    assert!(error.failures().len() == 2 && start.elapsed() >= timeout && start.elapsed() < LONG / 2);
    for (_, failure) in error.failures() {
        assert!(matches!(failure, CallError::TimedOut { .. }), "{failure:?}");
    }
}

/// The automatic delay is learned: at first as told, later as the calls have shown.
fn the_delay_is_learned() {
    let [mut origin, mut slow, mut fast] = engines();
    fast.serve::<Double>(|_, number| Ok(number * 2));
    let targets = addresses(&[&fast, &slow]);
    let hedge = Hedge::Automatic { until_known: LONG };
    let all = &mut [&mut origin, &mut slow, &mut fast];
    for number in 0..Hedge::KNOWN_MIN {
        let call = all[0].call_hedged::<Double>(&targets, number, hedge, LONG);
        assert_eq!(end(all, call).unwrap(), number * 2);
    }
    // The one called first is silent now; with the delay of before this would take very long.
    all[1].serve_later::<Double>(|_, _, _, responder| std::mem::forget(responder));
    let turned: Vec<_> = targets.iter().rev().cloned().collect();
    let start = Instant::now();
    let call = all[0].call_hedged::<Double>(&turned, 4, hedge, LONG);
    assert_eq!(end(all, call).unwrap(), 8);
    assert!(start.elapsed() < LONG / 2);
}

/// A hedged call ends when its engine goes.
fn the_engine_goes() {
    let [mut origin, mut other, silent] = engines();
    let targets = addresses(&[&silent, &silent]);
    let call = origin.call_hedged::<Double>(&targets, 4, Hedge::After(LONG), LONG);
    let mut call = std::pin::pin!(call);
    let mut context = Context::from_waker(Waker::noop());
    assert!(call.as_mut().poll(&mut context).is_pending());
    origin.progress();
    drop(origin);
    let error = other.block_on(call).unwrap_err();
    for (_, failure) in error.failures() {
        assert!(matches!(failure, CallError::Stopped { .. }), "{failure:?}");
    }
}
