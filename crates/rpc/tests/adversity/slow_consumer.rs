//! Callers that do not read.

use ropewalk_rpc::{Call, CallError, Endpoint, Engine, Limits, Procedure};

use crate::{LONG, call, drive, engine, options, over_each_transport_and_waiting};

/// Answers with a mebibyte.
struct Large;

impl Procedure for Large {
    const NAME: &'static str = "test.large";
    type Input = ();
    type Output = Vec<u8>;
}

/// A caller that asks for far more than it reads, and than may be queued for it, slows nobody else down; as soon
/// as it reads, each of its calls ends, with its answer or as `Busy`.
#[test]
fn slow_consumers_slow_nobody_else_down() {
    over_each_transport_and_waiting(consume_slowly);
}

fn consume_slowly() {
    let mut options = options(1);
    options.limits = Limits {
        queued_bytes_max: 4 << 20,
        ..options.limits
    };
    let mut target = Engine::new(Endpoint::bind(options).unwrap());
    target.serve::<crate::Null>(|_, ()| Ok(()));
    target.serve::<Large>(|_, ()| Ok(vec![1; 1 << 20]));
    let (mut slow, mut brisk) = (engine(2), engine(3));
    call(&mut slow, &mut target).unwrap();
    call(&mut brisk, &mut target).unwrap();

    let mut large: Vec<Call<Vec<u8>>> = (0..200)
        .map(|_| slow.call::<Large>(target.address(), &(), LONG).unwrap())
        .collect();
    assert!(slow.flush(LONG), "its requests are on their way");
    for _ in 0..1000 {
        call(&mut brisk, &mut target).unwrap();
    }

    let (mut answered, mut refused) = (0, 0);
    drive(&mut [&mut slow, &mut target], |_| {
        large.retain_mut(|call| {
            match call.try_take() {
                None => return true,
                Some(Ok(answer)) => {
                    assert_eq!(answer.len(), 1 << 20);
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
    call(&mut slow, &mut target).unwrap();
}
