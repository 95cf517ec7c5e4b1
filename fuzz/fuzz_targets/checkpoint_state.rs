//! The header of a file of named state. One that is understood is, to the byte, what would be written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_checkpoint::StateHeader;

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    // Nobody guesses a length and a checksum: the same lines with the right ones.
    let length = 26 + bytes.len() + 69;
    let mut sealed = format!("ropewalk state 1 {length:08}\n").into_bytes();
    sealed.extend_from_slice(bytes);
    let sum = blake3::hash(&sealed).to_hex();
    sealed.extend_from_slice(format!("end {sum}\n").as_bytes());
    check(&sealed);
});

fn check(bytes: &[u8]) {
    if let Ok(header) = StateHeader::parse(bytes) {
        assert_eq!(header.encode().as_bytes(), bytes);
        let offsets = header.offsets();
        assert_eq!(offsets.len(), header.entries().len() + 1);
        for (entry, pair) in header.entries().iter().zip(offsets.windows(2)) {
            assert!(pair[0] + entry.bytes() <= pair[1]);
        }
        assert_eq!(header.matching(&header).map(|found| found.len()), Ok(header.entries().len()));
    }
}
