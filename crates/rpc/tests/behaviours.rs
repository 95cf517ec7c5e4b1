//! What calls, notifications and bulk handles have to do, between engines in one process and between threads.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    task::{Context, Poll, Wake},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use ropewalk_group::{Incarnation, JobId, Rank};
use ropewalk_rpc::{
    AccessError, Address, Buffer, Call, CallError, Endpoint, EndpointOptions, Engine, Fault, Identity,
    JobKey, Limits, Procedure, RegionHandle, Responder, Role, SubmitError, TransferError, Withdrawn,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Longer than anything takes on a loaded machine.
const LONG: Duration = Duration::from_secs(30);

macro_rules! procedures {
    ($($name:ident($input:ty) -> $output:ty;)+) => {
        $(
            struct $name;

            impl Procedure for $name {
                const NAME: &'static str = concat!("test.", stringify!($name));
                type Input = $input;
                type Output = $output;
            }
        )+
    };
}

procedures! {
    Null(()) -> ();
    Describe(Survey) -> Survey;
    Echo(Vec<u8>) -> Vec<u8>;
    Count(u64) -> ();
    Refuse(String) -> ();
    Relay((Address, u64)) -> u64;
    Double(u64) -> u64;
    Checksum(RegionHandle) -> u64;
    Fill(RegionHandle) -> ();
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Survey {
    name: String,
    shots: Vec<(f64, Option<i32>)>,
}

/// What a handler leaves to be done outside it.
type Shared<T> = Arc<Mutex<Vec<T>>>;

fn options(rank: u32) -> EndpointOptions {
    let identity = Identity {
        role: Role::Rank,
        rank: Rank(rank),
        incarnation: Incarnation(0),
    };
    EndpointOptions::new(JobId([1; 16]), JobKey::from_bytes([2; 32]), identity)
}

fn engines<const N: usize>() -> [Engine; N] {
    std::array::from_fn(|rank| Engine::new(Endpoint::bind(options(rank as u32)).unwrap()))
}

/// Drives all of them until there is what is wanted.
fn drive<T>(engines: &mut [&mut Engine], mut wanted: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = wanted() {
            return found;
        }
        for engine in engines.iter_mut() {
            engine.progress();
        }
        assert!(start.elapsed() < LONG, "what was waited for did not happen");
    }
}

/// Calls and drives both until there is a result.
fn call<P: Procedure>(
    origin: &mut Engine,
    target: &mut Engine,
    input: &P::Input,
) -> Result<P::Output, CallError> {
    let mut call = origin.call::<P>(target.address(), input, LONG)?;
    drive(&mut [origin, target], || call.try_take())
}

/// A call of nothing for nothing comes back, also to oneself.
#[test]
fn null_call() {
    let [mut origin, mut target] = engines();
    target.serve::<Null>(|_, ()| Ok(()));
    origin.serve::<Null>(|_, ()| Ok(()));
    call::<Null>(&mut origin, &mut target, &()).unwrap();
    let itself = origin.call::<Null>(&origin.address().clone(), &(), LONG).unwrap();
    origin.block_on(itself).unwrap();
}

/// Structured arguments arrive as they went, both ways, and the handler knows who called and how long it waits.
#[test]
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

/// What is not served, or is served no longer, is an error that names it; what is served again works.
#[test]
fn unknown_procedure() {
    let [mut origin, mut target] = engines();
    for served in [false, true, false] {
        if served {
            target.serve::<Null>(|_, ()| Ok(()));
        } else {
            target.stop_serving::<Null>();
        }
        match call::<Null>(&mut origin, &mut target, &()) {
            Ok(()) => assert!(served),
            Err(CallError::UnknownProcedure { procedure, peer }) => {
                assert!(!served && procedure == Null::NAME && peer == *target.address());
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(!target.stop_serving::<Null>());
}

/// What a handler says went wrong is told to the caller, in its words.
#[test]
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
#[test]
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
#[test]
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

/// Inputs, one-way inputs and outputs far beyond what fits into one packet or buffer are carried all the same; beyond
/// the limit they are errors that say what to do, on the side where it shows.
#[test]
fn overflow_both_ways() {
    let limits = Limits {
        message_size_max: 3 << 20,
        ..Limits::default()
    };
    let mut engines = [0, 1].map(|rank| {
        let limited = EndpointOptions {
            limits,
            ..options(rank)
        };
        Engine::new(Endpoint::bind(limited).unwrap())
    });
    let [origin, target] = &mut engines;
    target.serve::<Echo>(|_, bytes| Ok(bytes));
    for size in [0, 1, 65_000, 1 << 20, (3 << 20) - 100] {
        let input: Vec<u8> = (0..size).map(|at| (at * 7) as u8).collect();
        assert!(
            call::<Echo>(origin, target, &input).unwrap() == input,
            "{size} bytes"
        );
    }
    match call::<Echo>(origin, target, &vec![0; 3 << 20]) {
        Err(CallError::Submit {
            source: SubmitError::TooLarge { .. },
            ..
        }) => {}
        other => panic!("{:?}", other.map(|output| output.len())),
    }
    target.serve::<Echo>(|_, _| Ok(vec![1; 3 << 20]));
    match call::<Echo>(origin, target, &vec![]) {
        Err(CallError::Fault { source, .. }) => assert!(source.to_string().contains("region handle")),
        other => panic!("{:?}", other.map(|output| output.len())),
    }
}

/// A cancelled call is forgotten: its answer harms nobody, and the next calls are answered.
#[test]
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
#[test]
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
#[test]
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

/// Thousands of calls in flight at once are each given their own answer.
#[test]
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

/// A handler that needs another's answer first calls it, and answers when that is there: origin to relay to target.
#[test]
fn nested_calls() {
    let [mut origin, mut relay, mut target] = engines();
    target.serve::<Double>(|_, number| Ok(number * 2));
    let nested: Shared<(Call<u64>, Responder<u64>)> = Arc::default();
    let started = nested.clone();
    relay.serve_later::<Relay>(move |engine, caller, (address, number), responder| {
        let remaining = caller.remaining().unwrap();
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
}

/// A handler that gives its caller up says so, instead of letting it wait.
#[test]
fn dropped_responders_answer() {
    let [mut origin, mut target] = engines();
    target.serve_later::<Null>(|_, _, (), responder| drop(responder));
    assert!(matches!(
        call::<Null>(&mut origin, &mut target, &()),
        Err(CallError::Fault { .. })
    ));
}

/// Answers may be given from another thread, which wakes the engine that sleeps; the caller sleeps too.
#[test]
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
#[test]
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
    thread::scope(|scope| {
        let awaiting = scope.spawn(move || {
            let waker = Arc::new(Unpark(thread::current())).into();
            let mut context = Context::from_waker(&waker);
            loop {
                match std::pin::Pin::new(&mut call).poll(&mut context) {
                    Poll::Ready(result) => return result,
                    Poll::Pending => thread::park_timeout(LONG),
                }
            }
        });
        drive(&mut [&mut origin, &mut target], || {
            awaiting.is_finished().then_some(())
        });
        assert_eq!(awaiting.join().unwrap().unwrap(), 42);
    });
}

/// The target pulls what the arguments name, in quarters, and the caller's application does nothing for it.
#[test]
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
#[test]
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
#[test]
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

/// A target that dies while it handles a call, in a transfer either way and before it was ever reached, ends all that
/// is in progress with it at once, and is told as lost.
#[test]
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
    let unreachable = origin.call::<Null>(&nowhere, &(), forever).unwrap();
    assert!(matches!(
        origin.block_on(unreachable),
        Err(CallError::PeerDied { .. })
    ));
    assert!(start.elapsed() < LONG / 2);
}

/// A late answer to a call of an earlier engine is none to a call of the engine that has its address now.
#[test]
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
            origin = Engine::new(
                Endpoint::bind(EndpointOptions {
                    bind: address.location().parse().unwrap(),
                    ..options(0)
                })
                .unwrap(),
            );
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

/// What is in progress when its engine is dropped ends too: nobody waits for ever.
#[test]
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
#[test]
fn waiting_costs_nothing() {
    let [mut engine] = engines();
    let before = processor_time();
    let start = Instant::now();
    assert_eq!(engine.wait(Duration::from_millis(300)), 0);
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert!(processor_time() - before < Duration::from_millis(30));
}

/// What this thread has used.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split_whitespace().next().unwrap().parse().unwrap())
}
