//! The demo, on a small survey.

use std::{fs, path::Path, time::Duration};

use assert_cmd::Command;

const ROPEWALK: &str = env!("CARGO_BIN_EXE_ropewalk");
const WORKER: &str = env!("CARGO_BIN_EXE_ropewalk-demo-worker");

/// The demo as it is outside cargo, for which it would build its application again.
fn demo(ropewalk: &Path) -> Command {
    let mut demo = Command::new(ropewalk);
    demo.arg("demo")
        .env_remove("CARGO")
        .timeout(Duration::from_secs(180));
    demo
}

/// The image is that of the serial run (the demo fails otherwise) whoever is killed, and the promised output
/// is there.
#[test]
fn the_image_is_the_serial_one_whoever_dies() {
    let folder = tempfile::tempdir().unwrap();
    for (workers, kill) in [(2, 0), (3, 1), (5, 3)] {
        let out = folder.path().join(format!("{workers}"));
        let mut demo = demo(ROPEWALK.as_ref());
        demo.args(["--size", "small", "--seed", "5"])
            .args(["--workers", &workers.to_string(), "--kill", &kill.to_string()])
            .arg("--out")
            .arg(&out);
        let output = demo.output().unwrap();
        let (stdout, stderr) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "{stdout}{stderr}");
        assert_eq!(stdout.matches("equal to the serial one").count(), 2, "{stdout}");
        assert!(fs::read(out.join("image.png")).unwrap().starts_with(b"\x89PNG"));
        let report = fs::read_to_string(out.join("report.html")).unwrap();
        assert!(report.contains("equal, bit for bit"));
        let in_time = stdout.matches(" had called").count();
        assert!(kill == 0 || in_time > 0, "all were killed too late: {stdout}");
        assert_eq!(stdout.matches("killed by signal 9").count(), kill, "{stdout}");
        assert_eq!(report.matches("✝").count(), kill * 2, "{stdout}");
    }
}

/// Without `--out` the results go to a folder `ropewalk-demo` below the one where the user is. The demo says so first.
#[test]
fn results_go_to_a_folder_here() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = demo(ROPEWALK.as_ref());
    let output = demo
        .args(["--size", "small", "--workers", "2", "--kill", "0"])
        .current_dir(&folder)
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let out = folder.path().canonicalize().unwrap().join("ropewalk-demo");
    let first = format!("The results go to {}.\n", out.display());
    assert!(stdout.starts_with(&first), "{stdout}");
    assert!(out.join("report.html").is_file());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "more than that folder");
}

/// All workers cannot be killed: rank 0 gets the result.
#[test]
fn somebody_has_to_live() {
    let output = demo(ROPEWALK.as_ref())
        .args(["--workers", "4", "--kill", "4"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("rank 0"));
}

/// The seismic code is in an executable of its own and not in the one that starts jobs. Without it the demo names the
/// file that it lacks.
#[test]
fn the_application_is_another_executable() {
    const SOURCES: &[u8] = b"examples/psdm/src/";
    let has_application = |path: &str| {
        let executable = fs::read(path).unwrap();
        executable.windows(SOURCES.len()).any(|bytes| bytes == SOURCES)
    };
    assert!(has_application(WORKER));
    assert!(!has_application(ROPEWALK));

    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let alone = folder.path().join("ropewalk");
    fs::hard_link(ROPEWALK, &alone).unwrap();
    let output = demo(&alone).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    let worker = folder.path().join("ropewalk-demo-worker");
    assert!(stderr.contains(worker.to_str().unwrap()), "{stderr}");
}
