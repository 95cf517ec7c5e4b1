//! The header of a NumPy file. One that is understood survives being written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_reduce_files::npy::Header;

fuzz_target!(|bytes: &[u8]| {
    if let Ok((header, length)) = Header::parse(bytes) {
        assert!(length <= bytes.len());
        let encoded = header.encode();
        assert_eq!(Header::parse(&encoded), Ok((header, encoded.len())));
    }
});
