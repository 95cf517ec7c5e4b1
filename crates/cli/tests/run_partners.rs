//! `ropewalk run --checkpoint DIR --partner` on hosts of which each has a DIR of its own: processes of this
//! machine, each host's with another folder mounted there. Needs the right to mount.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{
    collections::BTreeSet,
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use ropewalk::checkpoint::{History, JournalFile, Level, Manifest, Totals};
use tempfile::TempDir;

use rig::{PATIENCE, ROPEWALK, signal, write_script};

const STEPS: &str = "1500";
const EVERY: &str = "40";
/// Longer than the `--detect` of the jobs, with what it may take to be acted on.
const SUSPENSION: Duration = Duration::from_millis(2500);

/// Hosts behind a command that is used like rsh.
struct Hosts {
    folder: TempDir,
    names: Vec<String>,
}

impl Hosts {
    fn new(names: &[&str]) -> Self {
        let hosts = Self {
            folder: TempDir::new().unwrap(),
            names: names.iter().map(|&name| name.to_owned()).collect(),
        };
        let folder = hosts.folder.path();
        fs::create_dir(folder.join("saves")).unwrap();
        for name in names {
            fs::create_dir(hosts.disk(name)).unwrap();
        }
        let root = folder.display();
        let script = format!(
            "#!/bin/sh\nhost=$1; shift\n[ ! -e {root}/down-$host ] || exit 255\necho $$ >> {root}/agents-$host\n\
             exec unshare -m sh -c 'mount --bind {root}/disk-'$host' {root}/saves && exec \"$@\"' sh \"$@\"\n"
        );
        let path = folder.join("like-rsh");
        write_script(&path, &script);
        hosts
    }

    fn disk(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("disk-{name}"))
    }

    /// A job of some ranks that compute, save and print.
    fn start(&self, ranks: &str) -> Job {
        self.start_with(ranks, &[], &[STEPS, EVERY])
    }

    fn start_with(&self, ranks: &str, options: &[&str], words: &[&str]) -> Job {
        let said = self.folder.path().join("said");
        let child = Command::new(ROPEWALK)
            .args(["run", "-launcher-exec"])
            .arg(self.folder.path().join("like-rsh"))
            .args(["-iface", "127.0.0.1", "--detect", "1", "-hosts"])
            .arg(self.names.join(","))
            .args([
                "-n",
                ranks,
                "--on-failure",
                "restart=3",
                "--partner",
                "--checkpoint",
            ])
            .arg(self.folder.path().join("saves"))
            .args(options)
            .arg(program())
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&said).unwrap())
            .spawn()
            .unwrap();
        Job { child, said }
    }

    /// The host is gone with all that runs on it, and so is what was on its disk.
    fn lose(&self, name: &str) {
        fs::rename(self.disk(name), self.folder.path().join("lost")).unwrap();
        fs::create_dir(self.disk(name)).unwrap();
        let agents = fs::read_to_string(self.folder.path().join(format!("agents-{name}"))).unwrap();
        let killed = Command::new("kill")
            .arg("-9")
            .args(agents.split_whitespace())
            .output();
        killed.unwrap();
    }

    /// The generations of which each rank's part has a manifest on two hosts.
    fn safe(&self, ranks: u32) -> BTreeSet<u64> {
        self.on_hosts(ranks, 2)
    }

    /// The same on so many hosts.
    fn on_hosts(&self, ranks: u32, hosts: usize) -> BTreeSet<u64> {
        let mut parts: Vec<(u64, u32)> = Vec::new();
        for name in &self.names {
            parts.extend(manifests(&self.disk(name)));
        }
        let is_there = |&generation: &u64| {
            (0..ranks).all(|rank| parts.iter().filter(|&&part| part == (generation, rank)).count() >= hosts)
        };
        let generations = parts.iter().map(|&(generation, _)| generation);
        generations.filter(is_there).collect()
    }

    /// The history of the job that a journal on a host has.
    fn history(&self, name: &str, journal: &str) -> Option<History> {
        JournalFile::look(&self.disk(name).join(journal)).unwrap()
    }

    fn wait_until_safe(&self, ranks: u32, job: &mut Job) -> u64 {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let [.., newest] = self.safe(ranks).into_iter().collect::<Vec<_>>()[..]
                && newest % 1000 >= 3
            {
                return newest;
            }
            assert!(Instant::now() < deadline, "no copies: {}", job.said());
            assert!(job.child.try_wait().unwrap().is_none(), "{}", job.said());
            sleep(Duration::from_millis(5));
        }
    }
}

fn program() -> PathBuf {
    rig::example("saving_ranks")
}

fn manifests(disk: &Path) -> Vec<(u64, u32)> {
    let parts = levels(disk).into_iter();
    parts.map(|(generation, rank, _)| (generation, rank)).collect()
}

fn levels(disk: &Path) -> Vec<(u64, u32, Level)> {
    let mut found = Vec::new();
    for generation in fs::read_dir(disk).unwrap().flatten() {
        for file in fs::read_dir(generation.path()).into_iter().flatten().flatten() {
            if file
                .path()
                .extension()
                .is_some_and(|extension| extension == "manifest")
            {
                let manifest = fs::read(file.path())
                    .ok()
                    .and_then(|text| Manifest::parse(&text).ok());
                found.extend(manifest.map(|manifest| (manifest.generation, manifest.rank, manifest.level)));
            }
        }
    }
    found
}

/// Waits until something is so, while the job goes on.
fn wait_until(job: &mut Job, what: &str, mut is_so: impl FnMut(&mut Job) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so(job) {
        assert!(Instant::now() < deadline, "{what}: {}", job.said());
        assert!(
            job.child.try_wait().unwrap().is_none(),
            "{what}, but it is over: {}",
            job.said()
        );
        sleep(Duration::from_millis(5));
    }
}

struct Job {
    child: Child,
    said: PathBuf,
}

impl Job {
    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }

    /// Waits for the end of the job. Returns the output lines of the ranks in order, and what the job said.
    fn finish(mut self) -> (Vec<String>, String) {
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "it does not end: {}", self.said());
            sleep(Duration::from_millis(10));
        }
        let mut output = String::new();
        let stdout = self.child.stdout.as_mut().unwrap();
        stdout.read_to_string(&mut output).unwrap();
        assert!(self.child.wait().unwrap().success(), "{}", self.said());
        let mut lines: Vec<_> = output.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        (lines, self.said())
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // Only where a test has failed there is something to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The generation from which the second attempt has started.
fn started_from(said: &str) -> u64 {
    attempt_from(said, 2)
}

fn attempt_from(said: &str, attempt: u32) -> u64 {
    let words = format!("attempt {attempt} starts from generation ");
    let (_, rest) = said.split_once(&words).expect(said);
    rest.split(',').next().unwrap().parse().unwrap()
}

/// A host is lost with its disk and a new one takes its place: it gets its ranks' parts from its partner, and the job
/// ends as if nothing had happened. Without a loss nothing but the newest generations is left, on two hosts each.
#[test]
fn a_new_host_goes_on_from_copies() {
    let hosts = Hosts::new(&["a", "b", "c"]);
    let (expected, _) = hosts.start("4").finish();
    assert_eq!(expected.len(), 4, "{expected:?}");
    let left: BTreeSet<u64> = hosts
        .names
        .iter()
        .flat_map(|name| manifests(&hosts.disk(name)))
        .map(|(generation, _)| generation)
        .collect();
    assert!(left.len() < 25, "old generations are removed: {left:?}");

    let hosts = Hosts::new(&["a", "b", "c"]);
    let mut job = hosts.start("4");
    let safe = hosts.wait_until_safe(4, &mut job);
    hosts.lose("b");
    let (found, said) = job.finish();
    assert_eq!(found, expected, "{said}");
    assert!(started_from(&said) >= safe, "{safe}: {said}");
    assert!(said.contains("came from other hosts"), "{said}");
}

/// A host is lost for good: the job goes on without it from the copies on the other.
#[test]
fn the_survivor_goes_on_from_copies() {
    let hosts = Hosts::new(&["a", "b"]);
    let (expected, _) = hosts.start("2").finish();
    let hosts = Hosts::new(&["a", "b"]);
    let mut job = hosts.start("2");
    let safe = hosts.wait_until_safe(2, &mut job);
    fs::write(hosts.folder.path().join("down-a"), "").unwrap();
    hosts.lose("a");
    let (found, said) = job.finish();
    assert_eq!(found, expected, "{said}");
    assert!(started_from(&said) >= safe, "{safe}: {said}");
    assert!(said.contains("the job goes on without host a"), "{said}");
    assert!(said.contains("checkpoints have no copy"), "{said}");
}

/// A job that is suspended and goes on has copies as before: those who make them are not taken for dead, and
/// do not take the launcher for it.
#[test]
fn a_suspended_job_goes_on_with_copies() {
    let hosts = Hosts::new(&["a", "b"]);
    let mut job = hosts.start_with("2", &[], &["4000", EVERY]);
    hosts.wait_until_safe(2, &mut job);
    let pid = job.child.id();
    signal("TSTP", pid);
    sleep(SUSPENSION);
    assert_eq!(rig::state(pid), Some('T'));
    let safe = hosts.safe(2).last().copied();
    signal("CONT", pid);
    wait_until(&mut job, "what is saved now is copied", |_| {
        hosts.safe(2).last().copied() > safe
    });
    let (found, said) = job.finish();
    assert_eq!(found.len(), 2, "{said}");
    assert!(!said.contains("neither copies"), "{said}");
}

/// Where an advisor decides, most saves stay on their host and some are copied. A process that fails goes on
/// from the newest of all; when the host of rank 0 is lost with its disk, the job goes on from the newest
/// that was copied, and what was learned is still known.
#[test]
fn two_levels_have_their_own_failures() {
    const STEPS: &str = "8000";
    let alone = TempDir::new().unwrap();
    let undisturbed = Command::new(ROPEWALK)
        .args(["run", "-n", "2", "--checkpoint"])
        .arg(alone.path())
        .arg(program())
        .args([STEPS, "1000000", "0"])
        .output()
        .unwrap();
    assert!(undisturbed.status.success(), "{undisturbed:?}");
    let text = String::from_utf8(undisturbed.stdout).unwrap();
    let mut expected: Vec<_> = text.lines().map(str::to_owned).collect();
    expected.sort_unstable();

    let hosts = Hosts::new(&["a", "b"]);
    let options = ["--mtbf-known", "2", "--host-mtbf-known", "50", "-verbose"];
    let mut job = hosts.start_with("2", &options, &[STEPS, "advised"]);
    wait_until(&mut job, "copies are made, and other saves", |_| {
        let newest = [1, 2].map(|copies| hosts.on_hosts(2, copies).last().copied());
        hosts
            .history("a", "journal")
            .is_some_and(|known| !known.copies().is_empty() && known.saves(Level::Fast).len() > 3)
            && newest[1].is_some()
            && newest[0] > newest[1]
    });
    for (host, own) in [("a", 0), ("b", 1)] {
        for (generation, rank, level) in levels(&hosts.disk(host)) {
            assert!(
                level == Level::Full || rank == own,
                "{generation} of {rank} on {host}"
            );
        }
    }
    let newest = hosts.on_hosts(2, 1).last().copied().unwrap();
    let said = job.said();
    let (_, pid) = said.split_once("rank 1 on host b runs, pid ").expect(&said);
    let pid = pid.split_whitespace().next().unwrap();
    signal("KILL", pid);
    wait_until(&mut job, "the job is started again", |job| {
        job.said().contains("attempt 2 starts")
    });
    assert!(started_from(&job.said()) >= newest, "{newest}: {}", job.said());

    let base = started_from(&job.said());
    wait_until(&mut job, "what is saved now is copied", |_| {
        hosts.safe(2).last().is_some_and(|&safe| safe > base)
            && hosts
                .history("b", "journal-of-partner")
                .is_some_and(|known| known.totals().failures > 0)
    });
    let safe = hosts.safe(2).last().copied().unwrap();
    let known = hosts.history("b", "journal-of-partner").unwrap();
    hosts.lose("a");
    let (found, said) = job.finish();
    assert_eq!(found, expected, "{said}");
    assert!(attempt_from(&said, 3) >= safe, "{safe}: {said}");
    let after = hosts.history("a", "journal").unwrap();
    assert!(after.totals().failures > known.totals().failures, "{after:?}");
    assert!(after.totals().saves >= known.totals().saves, "{after:?}");
    assert!(after.copies().len() >= known.copies().len(), "{after:?}");
    let saves = format!("{}, ", after.totals().saves);
    assert!(row(&said, "saves").starts_with(&saves), "{after:?}: {said}");
}

/// The value of the row with a name, in the table at the end.
fn row<'a>(said: &'a str, name: &str) -> &'a str {
    let cells = |line: &'a str| {
        let (name, value) = line.strip_prefix('│')?.strip_suffix('│')?.split_once('┆')?;
        Some((name.trim(), value.trim()))
    };
    let mut rows = said.lines().filter_map(cells);
    rows.find(|(found, _)| *found == name).expect(said).1
}

/// The table takes the cost of saving from the journal on rank 0's host, though the launcher is on another,
/// and counts of a second run of a job only what that run did. If a program keeps no journal, the cost is not
/// known.
#[test]
fn the_table_says_what_rank_0_has_measured() {
    let hosts = Hosts::new(&["a", "b"]);
    let options = ["--mtbf-known", "2", "--host-mtbf-known", "50"];
    let known = || hosts.history("a", "journal").map(|history| *history.totals());
    let mut before = Totals::default();
    for steps in ["1500", "3000"] {
        let (_, said) = hosts.start_with("2", &options, &[steps, "advised"]).finish();
        let totals = known().unwrap();
        let own = totals.since(&before);
        assert!(own.saves > 0, "{own:?}");
        let saves = row(&said, "saves").split_once(", ").unwrap();
        assert_eq!(saves.0.parse(), Ok(own.saves), "{said}");
        assert_ne!(saves.1, "0 s in all", "{said}");
        let restores = row(&said, "restores").split_once(", ").unwrap().0;
        assert_eq!(restores.parse(), Ok(u64::from(steps == "3000")), "{said}");
        let number = |name: &str, unit: &str| -> f64 {
            let text = row(&said, name).strip_suffix(unit).expect(&said);
            text.trim().parse().unwrap()
        };
        let useful = own.exposure - own.save_seconds - own.restore_seconds - own.lost;
        // To start such a program takes milliseconds.
        let expected = own.exposure / useful - 1.0;
        let measured = number("measured overhead", "%") / 100.0;
        assert!((measured - expected).abs() < 0.02, "{expected}: {said}");
        before = totals;
    }

    let hosts = Hosts::new(&["a", "b"]);
    let (_, said) = hosts.start_with("2", &[], &["200", EVERY]).finish();
    assert!(hosts.history("a", "journal").is_none());
    for name in ["saves", "measured overhead"] {
        assert_eq!(row(&said, name), "not known", "{said}");
    }
}

/// Copies need a directory and another host.
#[test]
fn what_cannot_be_copied_is_refused() {
    for (words, why) in [
        (&["--partner", "-hosts", "a,b", "true"][..], "--checkpoint"),
        (&["--partner", "--checkpoint", "/tmp", "true"], "two hosts"),
        (
            &["--partner", "--checkpoint", "/tmp", "-hosts", "a,a", "true"],
            "two hosts",
        ),
        (&["--host-mtbf", "9", "--checkpoint", "/tmp", "true"], "--partner"),
    ] {
        let output = Command::new(ROPEWALK).arg("run").args(words).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(125) && said.contains(why), "{said}");
    }
}
