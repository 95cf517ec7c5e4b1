//! A log of failures: times come out in order, written again they are the same, and an estimate lies in its interval.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_checkpoint::FailureLog;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let Ok(log) = FailureLog::parse(text) else {
        return;
    };
    assert!(log.times().windows(2).all(|pair| pair[0] < pair[1]));
    // Dates may lie beyond the seconds that are taken for a time.
    if log.times().iter().all(|time| (0.0..=1e11).contains(time)) {
        let lines: Vec<String> = log.times().iter().map(f64::to_string).collect();
        assert_eq!(FailureLog::parse(&lines.join("\n")), Ok(log.clone()));
    }
    if let Ok(found) = log.mtbf()
        && found.mtbf > 1e-9
    {
        assert!(found.low < found.high && (found.low..=found.high).contains(&found.mtbf));
    }
});
