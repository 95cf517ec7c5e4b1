//! PMI messages of any form, in either direction. What is understood and can be written is understood again as the
//! same; in a line, spaces at the end of a value may get lost where it moves away from the end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_pmi::{Form, MessageBuffer, Request, Response};

fuzz_target!(|bytes: &[u8]| {
    let mut buffer = MessageBuffer::default();
    buffer.push(bytes);
    while let Ok(Some(message)) = buffer.next_message() {
        let form = message.form;
        if let Ok(request) = Request::decode(message) {
            let thread = request.thread.as_ref().map(AsRef::as_ref);
            if let Ok(encoded) = request.command.encode(form, thread) {
                let again = decode(&encoded, |message| {
                    Request::decode(message).expect("it was just written")
                });
                assert_eq!(again.command.name(form), request.command.name(form));
                if form != Form::Line {
                    assert_eq!(again, request);
                }
            }
        }
        if let Ok(response) = Response::decode(message) {
            let thread = response.thread.as_ref().map(AsRef::as_ref);
            if let Ok(encoded) = response.command.encode(form, thread) {
                let again = decode(&encoded, |message| {
                    Response::decode(message).expect("it was just written")
                });
                assert_eq!(again.command.name(form), response.command.name(form));
                if form == Form::Frame {
                    assert_eq!(again, response);
                }
            }
        }
    }
});

fn decode<T>(encoded: &[u8], decode: impl Fn(ropewalk_pmi::Message<'_>) -> T) -> T {
    let mut buffer = MessageBuffer::default();
    buffer.push(encoded);
    decode(buffer.next_message().expect("a message").expect("a whole one"))
}
