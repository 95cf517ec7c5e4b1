//! An engine's account of its work: counts, times, traces.

use std::{
    future::pending,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bytes::Bytes;
use ropewalk_rpc::{Buffer, CallError, CallOptions, Engine, Fault, thread::Driver};

use crate::{Count, Double, Echo, LONG, Null, call, drive, engines};

crate::on_every_transport! {
    calls_are_counted,
    failures_are_counted,
    transfers_are_counted,
    procedures_are_counted_if_wanted,
    a_call_says_where_its_time_went,
    calls_are_traced,
    batched_calls_are_timed_and_traced,
    heartbeats_are_counted,
}

/// Each call is counted once, by how it ended, on both sides; what goes on is counted while it does.
fn calls_are_counted() {
    let [mut origin, mut target] = engines();
    target.serve::<Double>(|_, number| match number {
        0 => Err(Fault::new("no")),
        number => Ok(number * 2),
    });
    target.serve_async::<Null, _>(|_, ()| pending());
    target.serve::<Count>(|_, _| Ok(()));
    for number in [1, 2, 0] {
        let _ = call::<Double>(&mut origin, &mut target, &number);
    }
    let unknown = call::<Echo>(&mut origin, &mut target, &vec![1]);
    assert!(matches!(unknown, Err(CallError::UnknownProcedure { .. })));
    origin.notify::<Count>(target.address(), &1).unwrap();
    let short = Duration::from_millis(20);
    let mut overdue = origin.call::<Null>(target.address(), &(), short).unwrap();
    let overdue = drive(&mut [&mut origin, &mut target], || overdue.try_take());
    assert!(matches!(overdue, Err(CallError::TimedOut { .. })));
    let kept = origin.call::<Null>(target.address(), &(), LONG).unwrap();
    let cancelled = origin.call::<Null>(target.address(), &(), LONG).unwrap();
    // By its answer the two before it are known to have come.
    call::<Double>(&mut origin, &mut target, &1).unwrap();
    assert!(target.metrics().tasks >= 2);
    drop(cancelled);
    call::<Double>(&mut origin, &mut target, &1).unwrap();
    origin.progress();

    let made = origin.metrics();
    assert_eq!(
        (made.calls.sent, made.calls.in_progress, made.notifications.sent),
        (9, 1, 1)
    );
    let failures = made.calls.failures;
    assert_eq!((failures.fault, failures.unknown_procedure), (1, 1));
    assert_eq!(
        (failures.timed_out, failures.cancelled, failures.total()),
        (1, 1, 4)
    );
    let start = Instant::now();
    while target.metrics().requests.failures.cancelled < 2 && start.elapsed() < LONG {
        target.progress();
    }
    let handled = target.metrics();
    assert_eq!(handled.requests.started, 9);
    let failures = handled.requests.failures;
    assert_eq!(
        (failures.fault, failures.unknown_procedure, failures.cancelled),
        (1, 1, 2)
    );
    assert!(made.message_bytes.sent > 9 * 16);
    assert_eq!(made.message_bytes.sent, handled.message_bytes.received);
    assert!(made.procedures.is_empty() && handled.procedures.is_empty());
    drop(kept);
}

/// A call that cannot be sent, and one whose target dies, are counted as what they are.
fn failures_are_counted() {
    let [mut origin, target] = engines();
    let unreachable = "nowhere://here".parse().unwrap();
    assert!(origin.call::<Null>(&unreachable, &(), LONG).is_err());
    let call = origin.call::<Null>(target.address(), &(), LONG).unwrap();
    drop(target);
    assert!(origin.block_on(call).is_err());
    let failures = origin.metrics().calls.failures;
    assert_eq!(
        (failures.refused, failures.peer_died, failures.total()),
        (1, 1, 2)
    );
    let metrics = origin.metrics();
    assert_eq!(
        (metrics.calls.sent, metrics.calls.in_progress, metrics.peers_lost),
        (1, 0, 1)
    );
}

/// Transfers are counted with their bytes.
fn transfers_are_counted() {
    let [mut origin, mut target] = engines();
    let readable = target.expose(Bytes::from(vec![1; 1000]));
    let writable = target.expose_writable(Buffer::zeroed(500));
    let mut pull = origin.pull(&readable, 0, Buffer::zeroed(1000), LONG).unwrap();
    let mut push = origin
        .push(&writable, 0, Bytes::from(vec![2; 300]), LONG)
        .unwrap();
    let all = &mut [&mut origin, &mut target];
    drive(all, || pull.try_take()).unwrap();
    drive(all, || push.try_take()).unwrap();
    let withdrawn = target.withdraw(&readable);
    assert!(withdrawn.is_some());
    let mut refused = origin.pull(&readable, 0, Buffer::zeroed(10), LONG).unwrap();
    assert!(drive(&mut [&mut origin, &mut target], || refused.try_take()).is_err());
    let (pulls, pushes) = (origin.metrics().pulls, origin.metrics().pushes);
    assert_eq!((pulls.started, pulls.failed, pulls.bytes), (2, 1, 1000));
    assert_eq!((pushes.started, pushes.failed, pushes.bytes), (1, 0, 300));
}

/// For each procedure there is, if wanted, how long its calls take, as seen by either side; a handler that
/// answers later is counted until it does.
fn procedures_are_counted_if_wanted() {
    let [mut origin, mut target] = engines();
    target.serve::<Double>(|_, number| Ok(number * 2));
    target.serve_async::<Null, _>(|context, ()| async move {
        context.handle().sleep(Duration::from_millis(20)).await;
        Ok(())
    });
    call::<Double>(&mut origin, &mut target, &1).unwrap();
    for engine in [&mut origin, &mut target] {
        engine.count_procedures(true);
    }
    for number in 0..5 {
        call::<Double>(&mut origin, &mut target, &number).unwrap();
    }
    call::<Null>(&mut origin, &mut target, &()).unwrap();
    let (made, handled) = (origin.metrics().procedures, target.metrics().procedures);
    assert_eq!(
        (
            made["test.Double"].calls.count(),
            handled["test.Double"].requests.count()
        ),
        (5, 5)
    );
    for slow in [&made["test.Null"].calls, &handled["test.Null"].requests] {
        assert_eq!(slow.count(), 1);
        assert!(slow.sum() >= Duration::from_millis(20), "{slow:?}");
    }
}

/// A call says where its time went, if it is asked to: most of it in a handler that takes its time, and all
/// of it together no more than passed.
fn a_call_says_where_its_time_went() {
    let [mut origin, mut target] = engines();
    let pause = Duration::from_millis(30);
    target.serve_async::<Double, _>(move |context, number| async move {
        context.handle().sleep(pause).await;
        Ok(number * 2)
    });
    target.serve::<Echo>(|_, bytes| Ok(bytes));
    let options = CallOptions {
        timing: true,
        ..LONG.into()
    };
    let start = Instant::now();
    let mut call = origin.call::<Double>(target.address(), &4, options).unwrap();
    assert!(call.timing().is_none());
    let answer = drive(&mut [&mut origin, &mut target], || call.try_take());
    assert_eq!(answer.unwrap(), 8);
    let timing = call.timing().unwrap();
    assert!(timing.handling >= pause, "{timing:?}");
    assert!(
        timing.total() <= start.elapsed() && timing.total() >= pause,
        "{timing:?}"
    );
    // Also if the output is too large for a message, and by a handle.
    let handle = origin.handle();
    let large = vec![7; 1 << 20];
    let mut call = handle.call::<Echo>(target.address(), large.clone(), options);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let echoed = drive(&mut [&mut origin, &mut target], || {
        match std::pin::Pin::new(&mut call).poll(&mut context) {
            std::task::Poll::Ready(echoed) => Some(echoed),
            std::task::Poll::Pending => None,
        }
    });
    assert_eq!(echoed.unwrap(), large);
    let timing = call.timing().unwrap();
    assert!(
        timing.travelling > Duration::ZERO && timing.total() < LONG,
        "{timing:?}"
    );
    let mut plain = origin.call::<Echo>(target.address(), &vec![1], LONG).unwrap();
    drive(&mut [&mut origin, &mut target], || plain.try_take()).unwrap();
    assert!(plain.timing().is_none());
}

/// Prometheus gets the metrics of an engine as text, also from another thread than the one that drives it.
#[test]
fn metrics_are_text_for_prometheus() {
    let [mut engine] = engines();
    engine.serve::<Double>(|_, number| Ok(number * 2));
    engine.count_procedures(true);
    let (_driver, handle) = Driver::spawn(engine).unwrap();
    let target = handle.address().clone();
    handle.call_blocking::<Double>(&target, 2, LONG).unwrap();
    let metrics = handle.with_blocking(|engine| engine.metrics(), LONG).unwrap();
    let text = metrics.to_openmetrics();
    assert!(text.contains("\nropewalk_rpc_calls_total 1\n"), "{text}");
    assert!(
        text.contains("ropewalk_rpc_call_seconds_count{procedure=\"test.Double\"} 1\n"),
        "{text}"
    );
    assert!(text.ends_with("# EOF\n"), "{text}");
}

/// A collector of spans, by their names and fields.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Spans {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("ropewalk_rpc")
    }

    fn new_span(&self, attributes: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        let mut spans = self.0.lock().unwrap();
        spans.push(format!(
            "{} {}",
            attributes.metadata().name(),
            attributes.values()
        ));
        tracing::span::Id::from_u64(spans.len() as u64)
    }

    fn record(&self, span: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        let mut spans = self.0.lock().unwrap();
        spans.push(format!("{} {values:?}", span.into_u64()));
    }

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {}

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// A subscriber of traces sees a span of each call, with its error, and of each request that is handled.
fn calls_are_traced() {
    fn run(origin: &mut Engine, target: &mut Engine) {
        call::<Double>(origin, target, &4).unwrap();
        call::<Null>(origin, target, &()).unwrap_err();
    }
    let [mut origin, mut target] = engines();
    target.serve::<Double>(|_, number| Ok(number * 2));
    let spans = Spans::default();
    run(&mut origin, &mut target);
    tracing::subscriber::with_default(spans.clone(), || run(&mut origin, &mut target));
    run(&mut origin, &mut target);
    let spans = spans.0.lock().unwrap();
    for (kind, peer) in [("call", target.address()), ("handle", origin.address())] {
        let of_double = |span: &&String| {
            span.starts_with(kind) && span.contains("test.Double") && span.contains(&peer.to_string())
        };
        assert_eq!(spans.iter().filter(of_double).count(), 1, "{spans:?}");
    }
    assert!(
        spans
            .iter()
            .any(|record| record.contains("does not serve test.Null")),
        "{spans:?}"
    );
}

/// Each call of a batch says where its time went, if it is asked to, is counted for its procedure, and has spans of
/// its own, also if it is too large for the batch.
fn batched_calls_are_timed_and_traced() {
    let [mut origin, mut target] = engines();
    let pause = Duration::from_millis(20);
    target.serve_async::<Double, _>(move |context, number| async move {
        context.handle().sleep(pause).await;
        Ok(number * 2)
    });
    target.serve::<Echo>(|_, bytes| Ok(bytes));
    let options = CallOptions {
        timing: true,
        ..LONG.into()
    };
    let spans = Spans::default();
    let start = Instant::now();
    for engine in [&mut origin, &mut target] {
        engine.count_procedures(true);
    }
    tracing::subscriber::with_default(spans.clone(), || {
        let mut batch = origin.batch(target.address()).unwrap();
        let mut slow: Vec<_> = (0..3)
            .map(|number| batch.push::<Double>(&number).unwrap())
            .collect();
        let sizes = [10, 1 << 20];
        let mut quick = sizes.map(|size| batch.push::<Echo>(&vec![7; size]).unwrap());
        let mut unknown = batch.push::<Null>(&()).unwrap();
        batch.send(options);
        let all = &mut [&mut origin, &mut target];
        for call in &mut slow {
            drive(all, || call.try_take()).unwrap();
            let timing = call.timing().unwrap();
            assert!(
                timing.handling >= pause && timing.total() <= start.elapsed(),
                "{timing:?}"
            );
        }
        for call in &mut quick {
            drive(all, || call.try_take()).unwrap();
            assert!(call.timing().unwrap().total() <= start.elapsed());
        }
        assert!(drive(all, || unknown.try_take()).is_err());
    });
    let (made, handled) = (origin.metrics().procedures, target.metrics().procedures);
    for (name, count) in [("test.Double", 3), ("test.Echo", 2)] {
        assert_eq!(made[name].calls.count(), count);
        assert_eq!(handled[name].requests.count(), count);
    }
    let spans = spans.0.lock().unwrap();
    for (kind, name, expected) in [
        ("call", "test.Double", 3),
        ("call", "test.Echo", 2),
        ("call", "test.Null", 1),
        ("handle", "test.Double", 3),
        ("handle", "test.Echo", 2),
    ] {
        let found = spans
            .iter()
            .filter(|span| span.starts_with(kind) && span.contains(name));
        assert_eq!(found.count(), expected, "{kind} {name}: {spans:?}");
    }
    assert!(
        spans
            .iter()
            .any(|record| record.contains("does not serve test.Null"))
    );
}

/// A peer that is waited for and does nothing is asked for a sign of life, and taken for dead without one; both sides
/// count what they asked and answered.
fn heartbeats_are_counted() {
    let [mut origin, mut target] = std::array::from_fn(|rank| {
        let mut options = crate::options(rank as u32);
        options.limits.heartbeat = Some(Duration::from_millis(400));
        Engine::new(ropewalk_rpc::bind(options).unwrap())
    });
    target.serve_later::<Null>(|_, _, (), responder| std::mem::forget(responder));
    let call = origin.call::<Null>(target.address(), &(), LONG).unwrap();
    let asked = |engine: &Engine| engine.metrics().heartbeats.asked;
    let start = Instant::now();
    while target.metrics().heartbeats.answered < 2 {
        for engine in [&mut origin, &mut target] {
            engine.wait(Duration::from_millis(1));
        }
        assert!(start.elapsed() < LONG, "{:?}", origin.metrics().heartbeats);
    }
    assert!(asked(&origin) >= 2 && origin.metrics().heartbeats.silent == 0);
    // From now on the target is not driven.
    let ended = origin.block_on(call);
    assert!(matches!(ended, Err(CallError::PeerDied { .. })), "{ended:?}");
    let counts = origin.metrics().heartbeats;
    assert_eq!((counts.answered, counts.silent), (0, 1));
    assert_eq!(target.metrics().heartbeats.asked, 0);
}
