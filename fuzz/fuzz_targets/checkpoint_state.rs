//! The header of a file of named state. One that is understood is, to the byte, what would be written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_checkpoint::{SavedPart, StateHeader, plan_restore};

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    // Nobody guesses a length and a checksum: the same lines with the right ones. Version 2 has partitioned arrays.
    let length = 26 + bytes.len() + 69;
    for version in 1..=2 {
        let mut sealed = format!("ropewalk state {version} {length:08}\n").into_bytes();
        sealed.extend_from_slice(bytes);
        let sum = blake3::hash(&sealed).to_hex();
        sealed.extend_from_slice(format!("end {sum}\n").as_bytes());
        check(&sealed);
    }
});

fn check(bytes: &[u8]) {
    if let Ok(header) = StateHeader::parse(bytes) {
        assert_eq!(header.encode().as_bytes(), bytes);
        let offsets = header.offsets();
        assert_eq!(offsets.len(), header.entries().len() + 1);
        for (entry, pair) in header.entries().iter().zip(offsets.windows(2)) {
            assert!(pair[0] + entry.bytes() <= pair[1]);
        }
        assert_eq!(
            header.matching(&header).map(|found| found.len()),
            Ok(header.entries().len())
        );
        let saved = SavedPart {
            header: header.clone(),
            copies: Default::default(),
        };
        let plan = plan_restore(std::slice::from_ref(&header), &[saved], 0).expect("the same state fits");
        for (entry, source) in header.entries().iter().zip(plan) {
            let bytes: u64 = source
                .parts
                .iter()
                .map(|part| part.from.end - part.from.start)
                .sum();
            assert_eq!(bytes, entry.bytes());
        }
    }
}
