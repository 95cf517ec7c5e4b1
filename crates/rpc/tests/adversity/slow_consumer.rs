//! Callers that do not read.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use ropewalk_rpc::{Address, Call, CallError, Endpoint, Engine, Limits, Procedure};

use crate::{
    LONG, drive, engine, finish, options,
    settings::{self, Waiting},
};

/// Answers with much text, which is encoded at once: a target that encodes element by element is itself silent for
/// long.
struct Large;

impl Procedure for Large {
    const NAME: &'static str = "test.large";
    type Input = ();
    type Output = String;
}

const TEXT_SIZE: usize = 256 << 10;

/// How long a caller does not read: well within the limit of heartbeats, after which it would be taken for dead.
const UNREADING: Duration = Duration::from_millis(800);

crate::on_every_transport! { slow_consumers_slow_nobody_else_down, }

/// A caller that asks for far more than it reads, and than may be queued for it, slows nobody else down; as soon
/// as it reads, each of its calls ends, with its answer or as `Busy`.
fn slow_consumers_slow_nobody_else_down() {
    let mut options = options(1);
    options.limits = Limits {
        queued_bytes_max: 4 << 20,
        ..options.limits
    };
    let mut target = Engine::new(Endpoint::bind(options).unwrap());
    target.serve::<crate::Null>(|_, ()| Ok(()));
    target.serve::<Large>(|_, ()| Ok("1".repeat(TEXT_SIZE)));
    let (address, waiting) = (target.address().clone(), settings::waiting());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // A thread of its own: a network may count as sent only what the target has read.
        scope.spawn(|| serve(&mut target, waiting, &is_over));
        let _over = EndOfServing(&is_over);
        call_slowly(&address);
    });
}

/// Ends the target's thread, also if the test fails.
struct EndOfServing<'a>(&'a AtomicBool);

impl Drop for EndOfServing<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn serve(target: &mut Engine, waiting: Waiting, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        if target.progress() == 0 {
            match waiting {
                // On few cores the others need this one.
                Waiting::Spinning => thread::yield_now(),
                Waiting::Sleeping => settings::sleep(&mut [target]),
            }
        }
    }
}

fn call_slowly(target: &Address) {
    let (mut slow, mut brisk) = (engine(2), engine(3));
    call(&mut slow, target);
    call(&mut brisk, target);

    let mut large: Vec<Call<String>> = (0..200)
        .map(|_| slow.call::<Large>(target, &(), LONG).unwrap())
        .collect();
    assert!(slow.flush(LONG), "its requests are on their way");
    // The target has handled them all when it answers this one.
    call(&mut brisk, target);
    let (start, mut calls) = (Instant::now(), 0);
    while calls < 1000 && start.elapsed() < UNREADING {
        call(&mut brisk, target);
        calls += 1;
    }
    assert!(calls >= 5, "{calls} calls in {:?}", start.elapsed());

    let (mut answered, mut refused) = (0, 0);
    drive(&mut [&mut slow], |_| {
        large.retain_mut(|call| {
            match call.try_take() {
                None => return true,
                Some(Ok(answer)) => {
                    assert_eq!(answer.len(), TEXT_SIZE);
                    answered += 1;
                }
                Some(Err(CallError::Busy { .. })) => refused += 1,
                Some(Err(error)) => panic!("{error:?}"),
            }
            false
        });
        large.is_empty().then_some(())
    });
    assert!(answered > 0, "{answered} answered, {refused} refused");
    call(&mut slow, target);
}

/// A null call to the target, which somebody else drives.
fn call(origin: &mut Engine, target: &Address) {
    let call = origin.call::<crate::Null>(target, &(), LONG).unwrap();
    finish(&mut [origin], call).unwrap();
}
