//! The messages between advisors and stores of checkpoints and the agent of their host.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_agent_link::{ToAgent, ToProgram};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = ToAgent::parse(bytes) {
        assert_eq!(message.encode(), bytes);
    }
    if let Ok(message) = ToProgram::parse(bytes) {
        assert_eq!(message.encode(), bytes);
    }
});
