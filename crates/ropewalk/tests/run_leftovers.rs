//! Shared memory that MPICH gives names to, and that killed ranks leave behind.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs::File,
    path::PathBuf,
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

const ROPEWALK: &str = env!("CARGO_BIN_EXE_ropewalk");

/// The folder is the whole system's, and what belongs to nobody is removed by whichever job ends first: one test at a time.
fn alone() -> File {
    let path = std::env::temp_dir().join("ropewalk-test-run-leftovers");
    let file = File::create(path).unwrap();
    file.lock().unwrap();
    file
}

/// Runs two ranks that each make segments as MPICH does, and then this. Returns the segments.
fn segments(end: &str) -> Vec<PathBuf> {
    let script = format!(
        "cd /dev/shm; for name in mpich_shar_tmp-$$ $$:0:0; do echo x > $name; echo $PWD/$name; done; {end}"
    );
    let output = Command::new(ROPEWALK)
        .args(["run", "-n", "2", "sh", "-c", &script])
        .output()
        .unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let segments: Vec<_> = lines.lines().map(PathBuf::from).collect();
    assert_eq!(segments.len(), 4, "{segments:?}");
    segments
}

/// Nothing is left of ranks that are killed, and of those that then are ended with them.
#[test]
fn shared_memory_of_killed_ranks_is_removed() {
    let _alone = alone();
    let end = "if [ $RANK = 1 ]; then sleep 0.3; kill -9 $$; fi; exec sleep 100";
    for segment in segments(end) {
        assert!(!segment.exists(), "{} is left", segment.display());
    }
}

/// Nothing is left either if the agent is killed first, which removes it otherwise.
#[test]
fn shared_memory_is_removed_without_the_agent() {
    let _alone = alone();
    let end = "if [ $RANK = 1 ]; then sleep 0.3; kill -9 $PPID; fi; exec sleep 100";
    let segments = segments(end);
    let deadline = Instant::now() + Duration::from_secs(2);
    while let Some(left) = segments.iter().find(|segment| segment.exists()) {
        assert!(Instant::now() < deadline, "{} is left", left.display());
        sleep(Duration::from_millis(10));
    }
}

/// What ranks leave that come to their end is their own affair.
#[test]
fn shared_memory_of_others_stays() {
    let _alone = alone();
    for segment in segments("exit 0") {
        std::fs::remove_file(segment).unwrap();
    }
}
