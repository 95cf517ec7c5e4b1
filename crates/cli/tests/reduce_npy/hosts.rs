//! `ropewalk reduce` on several hosts, which are this machine.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};

use tempfile::TempDir;

use super::{arrays, python, reduce, succeed};

/// On one host or three, given by options, in a file, or by Slurm's variables, the result is the same to the last bit.
#[test]
fn hosts_are_given_as_for_run() {
    let folder = arrays("for i in range(7):\n    np.save(f'{i}.npy', rng.normal(size=40_000).astype('f4'))");
    let inputs = (0..7).map(|i| format!("{i}.npy"));
    let words = |words: &str| {
        let words = format!("--op sum -o out.npy {words}");
        let words = words.trim_end().split(' ').map(str::to_owned);
        words.chain(inputs.clone()).collect::<Vec<_>>()
    };
    succeed(&folder, &words(""));
    let expected = fs::read(folder.path().join("out.npy")).unwrap();
    fs::write(folder.path().join("hosts"), "h1:2\nh2 slots=2\n").unwrap();
    for given in [
        "-hosts h1",
        "-hosts h1,h2,h3 -n 3",
        "--hosts=h1:2,h2 -n 9",
        "-f hosts",
        "-f hosts -n 4",
    ] {
        succeed(&folder, &words(&format!("-launcher fork {given}")));
        let found = fs::read(folder.path().join("out.npy")).unwrap();
        assert!(found == expected, "{given}");
    }
    let ran = Command::new(env!("CARGO_BIN_EXE_ropewalk"))
        .arg("reduce")
        .args(words("-launcher fork -n 4"))
        .env("SLURM_JOB_NODELIST", "node[1-2]")
        .env("SLURM_TASKS_PER_NODE", "2(x2)")
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(fs::read(folder.path().join("out.npy")).unwrap() == expected);

    let ran = reduce(&folder, &words("-detect 0"));
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(
        ran.status.code() == Some(2) && said.contains("--detect wants more than 0"),
        "{said}"
    );
}

/// Hosts with files of their own: namespaces in which a folder with the name of the host is mounted over `data`. The
/// command itself sees an empty one.
struct Hosts {
    folder: TempDir,
}

impl Hosts {
    /// `None` without root.
    fn new(script: &str) -> Option<Self> {
        let can_mount = Command::new("unshare").args(["-m", "true"]).status();
        if !can_mount.is_ok_and(|status| status.success()) {
            eprintln!("skipped: no mount namespaces here");
            return None;
        }
        let folder = arrays(&format!(
            "import os\nfor d in 'data h1 h2 h3'.split():\n    os.mkdir(d)\n{script}"
        ));
        let launcher = folder.path().join("launcher");
        let path = folder.path().display();
        // Each is a machine of its own, too: none can reach the output file.
        let script = format!(
            "#!/bin/sh
host=$1; shift
export host
exec unshare -m sh -c 'mount --bind {path}/$host {path}/data && echo $host > {path}/boot-$host &&
    mount --bind {path}/boot-$host /proc/sys/kernel/random/boot_id && exec \"$@\"' sh \"$@\"
"
        );
        fs::write(&launcher, script).unwrap();
        fs::set_permissions(&launcher, fs::Permissions::from_mode(0o755)).unwrap();
        Some(Self { folder })
    }

    fn reduce(&self, words: &str) -> Output {
        let launcher = self.folder.path().join("launcher");
        let mut words: Vec<_> = words.split(' ').map(str::to_owned).collect();
        words.extend(["-iface", "127.0.0.1", "-launcher-exec"].map(str::to_owned));
        words.push(launcher.display().to_string());
        reduce(&self.folder, &words)
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Each input is read by a host that can open it, and the result comes back from hosts that cannot reach the output. If
/// one is nowhere, it is named.
#[test]
fn inputs_are_read_where_they_are() {
    let Some(hosts) = Hosts::new(
        "
for i, host in enumerate(['h1', 'h2', 'h2', 'h3']):
    np.save(f'{host}/{i}.npy', np.arange(300_000, dtype='f4') * (i + 1))
np.save('h1/4.npy', np.arange(300_000, dtype='f4'))
np.save('h3/4.npy', np.arange(300_000, dtype='f4'))
np.save('h3/other.npy', np.zeros(3))
",
    ) else {
        return;
    };
    let inputs = "data/0.npy data/1.npy data/2.npy data/3.npy data/4.npy";
    for options in ["", "-n 3 ", "-n 7 "] {
        let ran = hosts.reduce(&format!(
            "--op sum -hosts h1,h2:2,h3 {options}-o out.npy {inputs}"
        ));
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        python(
            hosts.path(),
            "np.testing.assert_array_equal(np.load('out.npy'), np.arange(300_000, dtype='f4') * 11)",
        );
        fs::remove_file(hosts.path().join("out.npy")).unwrap();
    }
    for (odd, reason) in [
        ("data/5.npy", "data/5.npy: no host can open it: "),
        (
            "data/other.npy",
            "data/other.npy: its element type is f64, that of the others f32",
        ),
    ] {
        let ran = hosts.reduce(&format!("--op sum -hosts h1,h2,h3 -o out.npy {inputs} {odd}"));
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(2), "{said}");
        assert!(said.contains(reason), "{said}");
        assert!(!hosts.path().join("out.npy").exists());
    }
}
