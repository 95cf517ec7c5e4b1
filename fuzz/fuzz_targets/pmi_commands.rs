//! PMI-1 messages in either direction. One that is understood survives being written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_pmi::{Request, Response};

fuzz_target!(|line: &[u8]| {
    if let Ok(request) = Request::decode(line) {
        if let Ok(encoded) = request.encode() {
            assert_eq!(Request::decode(without_end(&encoded)).as_ref(), Ok(&request));
        }
    }
    if let Ok(response) = Response::decode(line) {
        if let Ok(encoded) = response.encode() {
            assert_eq!(Response::decode(without_end(&encoded)).as_ref(), Ok(&response));
        }
    }
});

fn without_end(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").expect("a line has an end")
}
