//! Many inputs, lists of them, and inputs that change meanwhile.

use std::{fs, os::unix::fs::PermissionsExt, process::Command, thread::sleep, time::Duration};

use super::{arrays, python, reduce, succeed};

/// Names come from lists with lines or NULs, and from standard input, in their order behind those of the command.
#[test]
fn names_come_from_lists() {
    let folder = arrays("for i in range(5):\n    np.save(f'{i} .npy', np.array([i], 'i4'))");
    fs::write(folder.path().join("lines"), "1 .npy\n2 .npy\n").unwrap();
    fs::write(folder.path().join("nul"), "3 .npy\x004 .npy\0").unwrap();
    let words = "--op=sum -o out.npy --files-from lines --files-from nul --files-from -";
    let mut words: Vec<_> = words.split(' ').map(str::to_owned).collect();
    words.push("0 .npy".into());
    let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
    command.arg("reduce").args(&words).current_dir(folder.path());
    command.stdin(fs::File::open(folder.path().join("lines")).unwrap());
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    python(folder.path(), "assert np.load('out.npy').tolist() == [13]");

    fs::write(folder.path().join("empty"), "").unwrap();
    for (list, reason) in [
        ("empty", "no arrays are named"),
        ("missing", "missing: No such file"),
    ] {
        let ran = reduce(
            &folder,
            &["--op", "sum", "-o", "out.npy", "--files-from", list].map(str::to_owned),
        );
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(2), "{said}");
        assert!(said.contains(reason), "{said}");
    }
}

/// Ten thousand inputs are reduced by a process that may open 256 files.
#[test]
fn ten_thousand_inputs_are_reduced() {
    let folder = arrays(
        "
for i in range(10_000):
    np.save(f'{i}.npy', np.array([i, 1, -1], 'i4'))
open('list', 'w').write('\\n'.join(f'{i}.npy' for i in range(10_000)))
",
    );
    let ran = Command::new("sh")
        .args([
            "-c",
            "ulimit -n 256; exec \"$@\"",
            "sh",
            env!("CARGO_BIN_EXE_ropewalk"),
        ])
        .args("reduce --op sum -n 3 -o out.npy --files-from list".split(' '))
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    python(
        folder.path(),
        "assert np.load('out.npy').tolist() == [49_995_000, 10_000, -10_000]",
    );
}

/// A file that changes after it was looked at is an error with its name, be it only its time, and there is no output.
#[test]
fn files_that_change_are_named() {
    let folder = arrays("for i in range(2):\n    np.save(f'{i}.npy', np.ones(1000))");
    let launcher = folder.path().join("launcher");
    for (change, reason) in [
        ("touch 1.npy", "1.npy: it was changed while it was read"),
        (
            "truncate -s 5000 1.npy",
            "1.npy: it is truncated: it has 4872 of the 8000 bytes",
        ),
        ("rm 1.npy", "1.npy: "),
    ] {
        // The files were looked at before agents are started.
        let script = format!(
            "#!/bin/sh\nshift\ncd {}\n{change}\nexec \"$@\"\n",
            folder.path().display()
        );
        fs::write(&launcher, script).unwrap();
        fs::set_permissions(&launcher, fs::Permissions::from_mode(0o755)).unwrap();
        let words = "--op sum -n 2 -hosts h1 -iface 127.0.0.1 -o out.npy 0.npy 1.npy -launcher-exec";
        let mut words: Vec<_> = words.split(' ').map(str::to_owned).collect();
        words.push(launcher.display().to_string());
        let ran = reduce(&folder, &words);
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(2), "{change}: {said}");
        assert!(
            said.starts_with("ropewalk reduce: ") && said.contains(reason),
            "{change}: {said}"
        );
        assert!(!folder.path().join("out.npy").exists());
    }
}

/// A file that is truncated at any moment of its reading is an error with its name, never a signal.
#[test]
fn truncated_files_are_named() {
    let folder = arrays("for i in range(3):\n    np.save(f'{i}.npy', np.ones(4 << 20))");
    let whole = folder.path().join("whole");
    fs::rename(folder.path().join("1.npy"), &whole).unwrap();
    let mut named = 0;
    for step in 0..16 {
        // Each time another file: what is in memory of an old one stays.
        let cut = folder.path().join("1.npy");
        let _ = fs::remove_file(&cut);
        fs::copy(&whole, &cut).unwrap();
        let _ = fs::remove_file(folder.path().join("out.npy"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
        command.args("reduce --op max -n 2 -o out.npy 0.npy 1.npy 2.npy".split(' '));
        command
            .current_dir(folder.path())
            .stderr(std::process::Stdio::piped());
        let running = command.spawn().unwrap();
        sleep(Duration::from_millis(8 * step));
        fs::File::options()
            .write(true)
            .open(&cut)
            .unwrap()
            .set_len(1 << 20)
            .unwrap();
        let ran = running.wait_with_output().unwrap();
        let said = String::from_utf8(ran.stderr).unwrap();
        match ran.status.code() {
            Some(0) => assert!(said.is_empty(), "{said}"),
            Some(2) => {
                named += 1;
                assert!(said.starts_with("ropewalk reduce: 1.npy: it "), "{said}");
                assert!(!folder.path().join("out.npy").exists());
            }
            code => panic!("{code:?}: {said}"),
        }
    }
    assert!(named > 2, "{named} of them were truncated in time");
    fs::rename(&whole, folder.path().join("1.npy")).unwrap();
    let words = "--op max -o out.npy 0.npy 1.npy 2.npy".split(' ');
    succeed(&folder, &words.map(str::to_owned).collect::<Vec<_>>());
}
