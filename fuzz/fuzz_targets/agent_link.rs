//! The messages between a rank and its agent, and the memory that a rank has left.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_fabric::{FromAgent, ToAgent, fuzzing};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = postcard::from_bytes::<ToAgent>(bytes) {
        let encoded = postcard::to_allocvec(&message).expect("what was decoded can be encoded");
        assert_eq!(postcard::from_bytes(&encoded), Ok(message));
    }
    if let Ok(message) = postcard::from_bytes::<FromAgent>(bytes) {
        let encoded = postcard::to_allocvec(&message).expect("what was decoded can be encoded");
        assert_eq!(postcard::from_bytes(&encoded), Ok(message));
    }
    fuzzing::labelled_memory(bytes);
    // Memory is longer than what is tried mostly.
    let memory = [
        &[0; 4096],
        bytes,
        &vec![0; 8192_usize.saturating_sub(bytes.len())],
    ]
    .concat();
    fuzzing::labelled_memory(&memory);
});
