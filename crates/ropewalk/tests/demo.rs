//! The demo, on a small survey.

use std::time::Duration;

use assert_cmd::Command;

/// Whoever is killed, the image is that of the serial run (the demo fails otherwise), and what is promised is there.
#[test]
fn the_image_is_the_serial_one_whoever_dies() {
    let folder = tempfile::tempdir().unwrap();
    for (workers, kill) in [(2, 0), (3, 1), (5, 3)] {
        let out = folder.path().join(format!("{workers}"));
        let mut demo = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
        demo.args(["demo", "--size", "small", "--seed", "5"])
            .args(["--workers", &workers.to_string(), "--kill", &kill.to_string()])
            .arg("--out")
            .arg(&out)
            .timeout(Duration::from_secs(180));
        let output = demo.output().unwrap();
        let (stdout, stderr) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "{stdout}{stderr}");
        assert_eq!(stdout.matches("equal to the serial one").count(), 2, "{stdout}");
        assert!(
            std::fs::read(out.join("image.png"))
                .unwrap()
                .starts_with(b"\x89PNG")
        );
        let report = std::fs::read_to_string(out.join("report.html")).unwrap();
        assert!(report.contains("equal, bit for bit"));
        assert_eq!(
            report.matches("✝").count(),
            stdout.matches("killed by signal 9").count() * 2,
            "{stdout}"
        );
    }
}

/// All workers cannot be killed: rank 0 gets the result.
#[test]
fn somebody_has_to_live() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
    let output = demo
        .args(["demo", "--workers", "4", "--kill", "4"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("rank 0"));
}
