//! The manifest of a checkpoint. One that is understood is, to the byte, what would be written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_checkpoint::Manifest;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(manifest) = Manifest::parse(bytes) {
        assert_eq!(manifest.encode().as_bytes(), bytes);
    }
    // Nobody guesses a checksum: the same with the right one.
    let mut sealed = bytes.to_vec();
    let sum = blake3::hash(bytes).to_hex();
    sealed.extend_from_slice(format!("end {sum}\n").as_bytes());
    if let Ok(manifest) = Manifest::parse(&sealed) {
        assert_eq!(manifest.encode().as_bytes(), sealed);
    }
});
