//! The file controlDict of a case: our block goes in and out, and the user's text comes back to the byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_openfoam::{Block, Entries, Time, with_block, without_block};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let block = Block {
        library: "/lib.so".into(),
        directory: text
            .chars()
            .take(64)
            .filter(|character| !character.is_control())
            .collect(),
        keep: 2,
        mtbf: None,
        every: None,
        resumed: None,
    };
    let _ = Entries::read(text);
    let _ = Time::parse(text);
    let own = without_block(text);
    // What is left of blocks that were cut into each other may look like one again.
    if without_block(&own) == own
        && !own.contains("// ropewalk:")
        && !block.directory.contains("// ropewalk:")
    {
        assert_eq!(without_block(&with_block(&own, &block)), own);
    }
});
