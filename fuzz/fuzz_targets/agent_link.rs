//! The messages between a rank and its agent.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_fabric::{FromAgent, ToAgent};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = postcard::from_bytes::<ToAgent>(bytes) {
        let encoded = postcard::to_allocvec(&message).expect("what was decoded can be encoded");
        assert_eq!(postcard::from_bytes(&encoded), Ok(message));
    }
    if let Ok(message) = postcard::from_bytes::<FromAgent>(bytes) {
        let encoded = postcard::to_allocvec(&message).expect("what was decoded can be encoded");
        assert_eq!(postcard::from_bytes(&encoded), Ok(message));
    }
});
