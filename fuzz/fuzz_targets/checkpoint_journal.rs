//! The journal of checkpoints. Its short form says the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_checkpoint::{Advisor, AdvisorOptions, History, Record};

fuzz_target!(|bytes: &[u8]| {
    let mut sealed = Vec::new();
    for line in bytes.split(|&byte| byte == b'\n') {
        // Nobody guesses a checksum: the same with the right one.
        let sum = crc32c::crc32c(line);
        let line = [format!("{sum:08x} ").as_bytes(), line].concat();
        if let Some(record) = Record::parse(&line) {
            let encoded = record.encode();
            assert_eq!(Record::parse(encoded.trim_end().as_bytes()), Some(record));
        }
        sealed.extend(line);
        sealed.push(b'\n');
    }
    for journal in [bytes, &sealed] {
        let history = History::read(journal);
        let short = History::read(history.encode().as_bytes());
        assert_eq!(short.totals().failures, history.totals().failures);
        assert_eq!(short.steps(), history.steps());
        let mut advisor = Advisor::new(&AdvisorOptions::default(), &history, 0.0);
        assert!(advisor.step_end(1.0).decision.interval.is_finite());
    }
});
