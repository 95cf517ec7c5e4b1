//! `ropewalk run` where the system gives little.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::process::{Command, Stdio};

const ROPEWALK: &str = env!("CARGO_BIN_EXE_ropewalk");

/// With any limit of descriptors a job runs, or one line says that descriptors were missing, with the system's own
/// words behind ours; nothing panics or hangs.
#[test]
fn any_limit_of_descriptors_is_survived_or_named() {
    for limit in 4..40 {
        let script = format!("ulimit -n {limit}; exec timeout 60 {ROPEWALK} run -n 1 true");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stdin(Stdio::null());
        let job = command.output().unwrap();
        let said = String::from_utf8(job.stderr).unwrap();
        match job.status.code() {
            Some(0) => assert!(said.is_empty(), "{limit}: {said}"),
            Some(125) => {
                let is_one_line = said.starts_with("ropewalk: ") && said.lines().count() == 1;
                assert!(is_one_line, "{limit}: {said}");
                assert!(said.contains("(os error 24)"), "{limit}: {said}");
            }
            code => panic!("{limit}: {code:?}: {said}"),
        }
        assert!(limit < 36 || job.status.success(), "{limit}: {said}");
    }
}
