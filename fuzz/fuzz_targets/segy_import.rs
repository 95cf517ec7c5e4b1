//! The import of a SEG-Y file: a good one, of IBM's or IEEE's floats, with some bytes changed, cut or continued. The
//! same bytes are the velocity model. Every shot that is imported survives being written and read again.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use psdm::{ConstantVelocity, ImportOptions, Positions, Segy, SegyReader, SurveyPlan, Trace, VelocityModel};

fuzz_target!(|bytes: &[u8]| {
    let Some((&[choice, kept_high, kept_low, count], rest)) = bytes.split_first_chunk() else {
        return;
    };
    let mut file = small_file(choice & 1 == 0);
    let kept = file.len() - usize::from(u16::from_be_bytes([kept_high, kept_low])) % (file.len() + 1);
    let (changes, continuation) = rest.split_at(rest.len().min(usize::from(count) * 3));
    for change in changes.chunks_exact(3) {
        let position = usize::from(u16::from_be_bytes([change[0], change[1]]));
        // The text before is not read.
        let headers = &mut file[TEXT_SIZE..];
        let span = headers.len();
        headers[position % span] = change[2];
    }
    file.truncate(kept);
    file.extend_from_slice(continuation);
    let Ok(mut data) = SegyReader::new(Cursor::new(&file)) else {
        return;
    };
    let velocity = match (choice & 2, SegyReader::new(Cursor::new(&file))) {
        (0, Ok(reader)) => VelocityModel::File(reader),
        _ => VelocityModel::Constant(ConstantVelocity {
            velocity_m_s: 2000.0,
            spacing_m: 10.0,
            depth_m: None,
        }),
    };
    let options = ImportOptions {
        positions: match choice >> 2 & 3 {
            0 => Positions::Cdp,
            1 => Positions::SourceGroup,
            _ => Positions::Auto,
        },
        tolerance_m: None,
        offset_classes: 4,
        offset_max_m: None,
    };
    let Ok(plan) = SurveyPlan::new(&mut data, velocity, &options) else {
        return;
    };
    for shot in 0..plan.shots() {
        if let Ok(record) = plan.shot(&mut data, shot) {
            let again = Segy::parse(&record.to_bytes()).expect("what was imported can be read");
            assert_eq!(again.traces, record.traces);
        }
    }
});

/// Three traces, whose amplitudes are velocities too.
fn small_file(ibm: bool) -> Vec<u8> {
    let trace = |shot, x_cm| Trace {
        shot,
        source_x_cm: x_cm,
        receiver_x_cm: x_cm + 400,
        samples: vec![1500.0, 1600.0],
    };
    let survey = Segy {
        text: vec![],
        sample_interval: 4000,
        samples: 2,
        traces: vec![trace(1, 1000), trace(2, 1400), trace(3, 1800)],
    };
    let mut bytes = survey.to_bytes();
    if ibm {
        bytes[FORMAT..][..2].copy_from_slice(&[0, 1]);
        for trace in 0..3 {
            let samples = TEXT_SIZE + 400 + trace * 248 + 240;
            bytes[samples..][..8].copy_from_slice(&[0x43, 0x5d, 0xc0, 0, 0x43, 0x64, 0, 0]);
        }
    }
    bytes
}

const TEXT_SIZE: usize = 3200;
const FORMAT: usize = 3224;
