//! PMI-1 messages in either direction. One that is understood and can be written is understood again as the same
//! command; spaces at the end of a value may get lost where it moves away from the end of its line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_pmi::{Request, Response};

fuzz_target!(|line: &[u8]| {
    if let Ok(request) = Request::decode(line)
        && let Ok(encoded) = request.encode()
    {
        let again = Request::decode(without_end(&encoded)).expect("what was written can be read");
        assert_eq!(again.name(), request.name());
    }
    if let Ok(response) = Response::decode(line)
        && let Ok(encoded) = response.encode()
    {
        let again = Response::decode(without_end(&encoded)).expect("what was written can be read");
        assert_eq!(again.name(), response.name());
    }
});

fn without_end(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").expect("a line has an end")
}
