//! A SEG-Y file: a good one with some bytes changed, cut or continued. One that is understood survives being written
//! and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use psdm::{Segy, Trace};

fuzz_target!(|bytes: &[u8]| {
    let Some((&[kept_high, kept_low, count], rest)) = bytes.split_first_chunk() else {
        return;
    };
    let mut file = small_file();
    // Most of the header is text that nobody reads: changes go where they matter.
    let kept = file.len() - usize::from(u16::from_be_bytes([kept_high, kept_low])) % (file.len() + 1);
    let (changes, continuation) = rest.split_at(rest.len().min(usize::from(count) * 3));
    for change in changes.chunks_exact(3) {
        let position = usize::from(u16::from_be_bytes([change[0], change[1]]));
        let headers = &mut file[TEXT_SIZE..];
        let span = headers.len();
        headers[position % span] = change[2];
    }
    file.truncate(kept);
    file.extend_from_slice(continuation);
    if let Ok(survey) = Segy::parse(&file) {
        let encoded = survey.to_bytes();
        let again = Segy::parse(&encoded).expect("what was written can be read");
        assert_eq!(again.to_bytes(), encoded);
    }
});

fn small_file() -> Vec<u8> {
    let trace = Trace {
        shot: 1,
        source_x_cm: 0,
        receiver_x_cm: 1000,
        samples: vec![1.0, -1.0],
    };
    let survey = Segy {
        text: vec![],
        sample_interval: 4000,
        samples: 2,
        traces: vec![trace.clone(), trace],
    };
    survey.to_bytes()
}

const TEXT_SIZE: usize = 3200;
