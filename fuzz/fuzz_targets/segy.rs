//! A SEG-Y file. One that is understood survives being written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use psdm::Segy;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(survey) = Segy::parse(bytes) {
        let encoded = survey.to_bytes();
        let again = Segy::parse(&encoded).expect("what was written can be read");
        assert_eq!(again.to_bytes(), encoded);
    }
});
