//! Calls with data behind their input.

use bytes::Bytes;
use ropewalk_rpc::Procedure;

use crate::{LONG, drive, engines};

crate::on_every_transport! {
    data_of_any_size,
    calls_without_data,
}

struct Both;

impl Procedure for Both {
    const NAME: &'static str = "tests.both";
    type Input = Vec<u8>;
    type Output = (Vec<u8>, Vec<u8>, bool);
}

/// Data comes as it went, behind inputs of any length: in messages, and where it is too large for one. Numbers in it
/// are aligned.
fn data_of_any_size() {
    let [mut origin, mut target] = engines();
    target.serve_with_data::<Both>(|_, _, input, data, responder| {
        let is_aligned = data.is_empty() || (data.as_ptr() as usize).is_multiple_of(align_of::<u128>());
        responder.answer(Ok((input, data.to_vec(), is_aligned)));
    });
    for (input, data) in [
        (0, 1),
        (1, 8),
        (15, 0),
        (16, 4096),
        (17, 65_000),
        (100, 65_500),
        (3, 3 << 20),
    ] {
        let input: Vec<u8> = (0..input).collect();
        let data: Vec<u8> = (0..data).map(|at| (at % 251) as u8).collect();
        let sent = Bytes::from(data.clone());
        let address = target.address().clone();
        let mut call = origin
            .call_with_data::<Both>(&address, &input, &sent, LONG)
            .unwrap();
        let answer = drive(&mut [&mut origin, &mut target], || call.try_take());
        let (input_there, data_there, is_aligned) = answer.unwrap();
        assert_eq!((input_there, is_aligned), (input, true), "{} bytes", data.len());
        assert!(data_there == data, "{} bytes", data.len());
    }
}

/// A call without data brings none, whoever serves it.
fn calls_without_data() {
    let [mut origin, mut target] = engines();
    target.serve_with_data::<Both>(|_, _, input, data, responder| {
        responder.answer(Ok((input, data.to_vec(), true)));
    });
    for length in [0, 14, 15, 16, 70_000] {
        let input = vec![7; length];
        let answer = crate::call::<Both>(&mut origin, &mut target, &input);
        assert_eq!(answer.unwrap(), (input, Vec::new(), true));
    }
}
