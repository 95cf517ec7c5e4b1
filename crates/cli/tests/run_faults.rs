//! Effects of the machine, the terminal and users on a job: stopped ranks and agents, no descriptors, full
//! disks, much input.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    thread::{self, sleep},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rig::{LIMIT, PATIENCE, ROPEWALK, TRIES, assert_in_time, output, run, signal, text};

/// A folder whose name nothing else has in its arguments.
struct Marker {
    folder: tempfile::TempDir,
}

impl Marker {
    fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("ropewalk-faults")
            .tempdir()
            .unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A program that stays until it is ended, and is known by its arguments.
    fn stay(&self) -> String {
        format!("exec tail -f {} /dev/null", self.path("stay").display())
    }

    /// "Nothing left 2 s after exit."
    fn assert_none_left(&self) {
        rig::assert_none_left(self.folder.path().to_str().unwrap());
    }
}

fn since(path: &Path) -> Duration {
    let struck: u64 = fs::read_to_string(path).unwrap().trim().parse().unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.saturating_sub(Duration::from_nanos(struck))
}

/// The first line with `part` in it, as it comes, and after what time.
fn await_line(lines: &mpsc::Receiver<String>, part: &str) -> (String, Duration) {
    let begin = Instant::now();
    loop {
        match lines.recv_timeout(PATIENCE.saturating_sub(begin.elapsed())) {
            Ok(line) if line.contains(part) => return (line, begin.elapsed()),
            Ok(_) => {}
            Err(error) => panic!("no {part:?}: {error}"),
        }
    }
}

/// A killed rank is the end of the job within 100 ms, and what the rank was is told.
#[test]
fn a_killed_rank_is_known_at_once() {
    assert_in_time(Duration::from_millis(100), 5, || {
        let marker = Marker::new();
        let when = marker.path("when");
        let script = format!(
            "[ $RANK = 2 ] || {}\nsleep 0.5; date +%s%N >{}; kill -9 $$",
            marker.stay(),
            when.display()
        );
        let job = output(run(&["-n", "4", "sh", "-c", &script]));
        let time = since(&when);
        assert_eq!(job.status.code(), Some(137), "{job:?}");
        assert!(text(&job.stderr).contains("rank 2 on host"), "{job:?}");
        marker.assert_none_left();
        time
    });
}

/// A verdict says how far a rank was with PMI, if the program has to do with it.
#[test]
fn a_verdict_names_the_stage() {
    let init = "printf 'cmd=init pmi_version=1 pmi_subversion=1\n' >&$PMI_FD; read -r answer <&$PMI_FD";
    let fence = "printf 'cmd=barrier_in\n' >&$PMI_FD; sleep 0.3";
    let finalize = "printf 'cmd=finalize\n' >&$PMI_FD; read -r answer <&$PMI_FD";
    for (first, then, expected) in [
        ("true".to_owned(), "true", " s after start, pid "),
        (init.to_owned(), "true", " s after start, before PMI_Init, pid "),
        (init.to_owned(), init, ", between PMI_Init and PMI_Finalize, pid "),
        (
            init.to_owned(),
            &format!("{init}; {fence}"),
            ", in fence WORLD, pid ",
        ),
        (
            init.to_owned(),
            &format!("{init}; {finalize}"),
            ", after PMI_Finalize, pid ",
        ),
    ] {
        let marker = Marker::new();
        let script = format!(
            "if [ $RANK = 0 ]; then {first}; {}; fi\nsleep 0.3; {then}; kill -9 $$",
            marker.stay()
        );
        let job = output(run(&["-n", "2", "bash", "-c", &script]));
        assert_eq!(job.status.code(), Some(137), "{job:?}");
        let verdict = text(&job.stderr);
        assert!(verdict.contains("rank 1 on host"), "{verdict}");
        assert!(verdict.contains(expected), "{verdict}");
        marker.assert_none_left();
    }
}

/// A program that is not there is named at once, and nothing is left of those that are.
#[test]
fn a_missing_program_is_named_at_once() {
    assert_in_time(LIMIT, TRIES, || {
        let marker = Marker::new();
        let stay = marker.stay();
        let begin = Instant::now();
        let words = ["-n", "2", "sh", "-c", &stay, ":", "-n", "1", "no-such-program"];
        let job = output(run(&words));
        let time = begin.elapsed();
        assert_eq!(job.status.code(), Some(127), "{job:?}");
        let verdict = text(&job.stderr);
        assert!(verdict.contains("rank 2 on host"), "{verdict}");
        assert!(
            verdict.contains("could not be started: no-such-program"),
            "{verdict}"
        );
        marker.assert_none_left();
        time
    });
}

/// A script that is there and was not found, or is not executable, is told how to be started.
#[test]
fn a_script_is_told_how_it_starts() {
    let folder = tempfile::TempDir::new().unwrap();
    fs::write(folder.path().join("train.py"), "print(1)\n").unwrap();
    for (program, code, advice) in [
        (
            "train.py",
            127,
            "; programs are looked for in PATH: `python train.py` starts",
        ),
        (
            "./train.py",
            126,
            "; the file is not executable: `python ./train.py` starts",
        ),
    ] {
        let mut job = run(&["-n", "2", program]);
        job.current_dir(folder.path());
        let job = output(job);
        assert_eq!(job.status.code(), Some(code), "{job:?}");
        let verdict = text(&job.stderr);
        assert!(verdict.contains(advice), "{verdict}");
    }
}

/// An interrupt ends ranks that listen at once, others within two seconds, and a second one ends those at once too.
#[test]
fn interrupts_end_the_job_in_time() {
    let at_once = Duration::from_millis(500);
    for (trap, interrupts, limit, log) in [
        ("", 1, at_once, &[][..]),
        ("trap '' INT;", 1, LIMIT, &[][..]),
        ("trap '' INT TERM;", 2, at_once, &[][..]),
        ("trap '' INT TERM;", 2, at_once, &["--log", "json"]),
        // Whoever is in a hurry goes on.
        ("trap '' INT TERM;", 5, at_once, &[][..]),
    ] {
        assert_in_time(limit, TRIES, || {
            let marker = Marker::new();
            let script = format!("{trap} echo ready; {}", marker.stay());
            let words = ["-n", "3", "--grace", "1"];
            let mut job = run(&[&words, log, &["sh", "-c", &script]].concat());
            let mut job = job.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let mut stdout = BufReader::new(job.stdout.take().unwrap());
            for _ in 0..3 {
                stdout.read_line(&mut String::new()).unwrap();
            }
            let struck = Instant::now();
            for _ in 0..interrupts {
                signal("INT", job.id());
                // Signals of one kind that come at once are one.
                sleep(Duration::from_millis(50));
            }
            let job = job.wait_with_output().unwrap();
            let time = struck.elapsed();
            assert_eq!(job.status.code(), Some(130), "{job:?}");
            let told = text(&job.stderr);
            let verdict = told.lines().last().unwrap_or_default();
            assert!(
                verdict.contains("the job was ended by signal 2 (SIGINT)"),
                "{told}"
            );
            if !log.is_empty() {
                let events = |name| told.matches(&format!("\"event\":\"{name}\"")).count();
                assert_eq!((events("departed"), events("finished")), (3, 1), "{told}");
            }
            marker.assert_none_left();
            time
        });
    }
}

/// A rank that is stopped is named in time, with its process, and so is that it goes on; an interrupt ends it
/// in any case.
#[test]
fn a_stopped_rank_is_named() {
    assert_in_time(LIMIT, TRIES, || {
        let marker = Marker::new();
        let script = format!("[ $RANK = 1 ] && kill -STOP $$; {}", marker.stay());
        let mut job = run(&["-n", "3", "--detect", "1", "sh", "-c", &script]);
        let mut job = job.stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let stderr = job.stderr.take().unwrap();
        let reader = thread::spawn(move || {
            for line in BufReader::new(stderr).lines() {
                // Nobody may be interested any more.
                let _ = sender.send(line.unwrap());
            }
        });
        let (line, time) = await_line(&lines, "rank 1 on host");
        assert!(line.contains("is stopped by signal 19"), "{line}");
        let pid = line
            .split("pid ")
            .nth(1)
            .unwrap()
            .split(';')
            .next()
            .unwrap()
            .to_owned();
        signal("CONT", &pid);
        let (line, _) = await_line(&lines, "rank 1 on host");
        assert!(line.contains("goes on"), "{line}");
        signal("STOP", &pid);
        let (_, again) = await_line(&lines, "is stopped by signal 19");
        signal("TERM", job.id());
        assert_eq!(job.wait().unwrap().code(), Some(143));
        reader.join().unwrap();
        marker.assert_none_left();
        time.max(again)
    });
}

/// Where the user wants it, a rank that stays stopped is killed in time, and the verdict says why; the others
/// end with it.
#[test]
fn a_stopped_rank_may_end_the_job() {
    assert_in_time(LIMIT, TRIES, || {
        let marker = Marker::new();
        let when = marker.path("when");
        let script = format!(
            "[ $RANK = 1 ] || {}\nsleep 0.3; date +%s%N >{}; kill -STOP $$",
            marker.stay(),
            when.display()
        );
        let words = [
            "-n",
            "3",
            "--detect",
            "1",
            "--stopped",
            "fail",
            "sh",
            "-c",
            &script,
        ];
        let job = output(run(&words));
        let time = since(&when);
        assert_eq!(job.status.code(), Some(137), "{job:?}");
        let verdict = text(&job.stderr);
        assert!(verdict.contains("rank 1 on host"), "{verdict}");
        let why = "stayed stopped by signal 19 (SIGSTOP) for 1 s and was killed, ";
        assert!(verdict.contains(why), "{verdict}");
        marker.assert_none_left();
        time
    });
}

/// A hangup, as when the terminal goes away, ends the job by what it is called, whether the ranks listen or
/// not, and leaves nothing: within two seconds, of which a rank that does not listen has one.
#[test]
fn a_hangup_ends_the_job() {
    for trap in ["", "trap '' HUP;"] {
        assert_in_time(LIMIT, TRIES, || {
            let marker = Marker::new();
            let stay = marker.path("stay");
            let stay = format!("tail -q -f {} /dev/null", stay.display());
            let script = format!("{trap} {stay} & setsid {stay} & echo ready; exec {stay}");
            // Whoever runs the tests may ignore hangups, and then the launcher would too.
            let mut job = Command::new("env")
                .args(["--default-signal=HUP", ROPEWALK, "run", "-n", "3", "--grace", "1"])
                .args(["sh", "-c", &script])
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let stdout = BufReader::new(job.stdout.take().unwrap());
            let mut lines = stdout.lines().map(Result::unwrap);
            assert_eq!(lines.by_ref().take(3).collect::<Vec<_>>(), ["ready"; 3]);
            let struck = Instant::now();
            signal("HUP", job.id());
            let job = job.wait_with_output().unwrap();
            let time = struck.elapsed();
            marker.assert_none_left();
            assert_eq!(job.status.code(), Some(129), "{job:?}");
            let verdict = text(&job.stderr);
            let cause = "ropewalk: the job was ended by signal 1 (SIGHUP)\n";
            assert!(verdict.ends_with(cause), "{verdict}");
            time
        });
    }
}

/// An agent that is stopped on the launcher's own host is named within `--detect` and a second.
#[test]
fn a_stopped_agent_is_named() {
    assert_in_time(LIMIT, TRIES, || {
        let marker = Marker::new();
        let when = marker.path("when");
        let script = format!(
            "[ $RANK = 1 ] || {}\nsleep 0.5; date +%s%N >{}; kill -STOP $PPID; {}",
            marker.stay(),
            when.display(),
            marker.stay()
        );
        let job = output(run(&["-n", "2", "--detect", "1", "sh", "-c", &script]));
        let time = since(&when);
        assert_eq!(job.status.code(), Some(125), "{job:?}");
        let verdict = text(&job.stderr);
        assert!(verdict.contains("gave no sign of life for 1 s"), "{verdict}");
        marker.assert_none_left();
        time
    });
}

/// A hundred megabytes of input reach rank 0 whole.
#[test]
fn much_input_arrives_whole() {
    let mut job = run(&["-n", "2", "wc", "-c"]);
    let mut job = job.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = job.stdin.take().unwrap();
    let writer = thread::spawn(move || {
        let block = vec![b'x'; 1_000_000];
        for _ in 0..100 {
            stdin.write_all(&block).unwrap();
        }
    });
    let output = job.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success());
    let text = text(&output.stdout);
    let mut counts: Vec<_> = text.lines().map(str::trim).collect();
    counts.sort_unstable();
    assert_eq!(counts, ["0", "100000000"]);
}

/// 5,000 lines of 170 bytes of each of eight ranks come out whole, each rank's in their order.
#[test]
fn many_lines_stay_whole() {
    let job = output(run(&["-n", "8", "sh", "-c", "seq -f \"$RANK %0167.0f\" 5000"]));
    assert!(job.status.success(), "{}", text(&job.stderr));
    let mut next = [1; 8];
    for line in text(&job.stdout).lines() {
        let rank: usize = line[..1].parse().unwrap();
        assert_eq!(line, format!("{rank} {:0167}", next[rank]));
        next[rank] += 1;
    }
    assert_eq!(next, [5001; 8]);
}

/// Where descriptors run out, the rank that could not be started is named with the reason, and the others end.
#[test]
fn a_lack_of_descriptors_is_named() {
    assert_in_time(LIMIT, TRIES, || {
        let marker = Marker::new();
        let script = format!(
            "ulimit -n 64; exec {ROPEWALK} run -n 200 --detect 1 sh -c '{}'",
            marker.stay()
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stdin(Stdio::null());
        let begin = Instant::now();
        let job = output(command);
        let time = begin.elapsed();
        assert_eq!(job.status.code(), Some(125), "{job:?}");
        let verdict = text(&job.stderr);
        assert!(verdict.contains("could not be started"), "{verdict}");
        assert!(verdict.contains("Too many open files"), "{verdict}");
        marker.assert_none_left();
        time
    });
}

/// A control group whose processes have little memory, by either version; gone when this is dropped.
struct LittleMemory {
    folder: PathBuf,
}

impl LittleMemory {
    /// `None` where none can be made.
    fn new() -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let path_of = |prefix: &str| {
            let line = own.lines().find(|line| line.contains(prefix))?;
            Some(line.splitn(3, ':').nth(2)?.trim_start_matches('/').to_owned())
        };
        let name = format!("ropewalk-faults-{}", std::process::id());
        let places = [
            (":memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("0::", "/sys/fs/cgroup", "memory.max"),
        ];
        places.into_iter().find_map(|(prefix, root, limit)| {
            let folder = Path::new(root).join(path_of(prefix)?).join(&name);
            fs::create_dir(&folder).ok()?;
            let group = Self { folder };
            fs::write(group.folder.join(limit), "67108864").ok()?;
            Some(group)
        })
    }
}

impl Drop for LittleMemory {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}

/// A rank that the kernel kills for lack of memory is told from one that somebody else killed, with the
/// limit. Needs root and a control group.
#[test]
fn a_lack_of_memory_is_named() {
    let Some(group) = LittleMemory::new() else {
        eprintln!("skipped: this test makes a control group with a limit on memory, for which it needs root");
        return;
    };
    for (fault, expected) in [
        // It keeps what has no end until there is a line.
        (
            "exec tail /dev/zero",
            "for lack of memory: its control group may have 64 MiB, ",
        ),
        ("kill -9 $$", "was killed by signal 9 (SIGKILL) "),
    ] {
        let marker = Marker::new();
        let mut command = Command::new("sh");
        let script = format!("[ $RANK = 1 ] || {}\n{fault}", marker.stay());
        let enter = format!(
            "echo $$ >{}; exec \"$@\"",
            group.folder.join("cgroup.procs").display()
        );
        command.args([
            "-c", &enter, "sh", ROPEWALK, "run", "-n", "2", "sh", "-c", &script,
        ]);
        let job = output(command);
        assert_eq!(job.status.code(), Some(137), "{job:?}");
        let verdict = text(&job.stderr);
        assert!(verdict.contains("rank 1 on host"), "{verdict}");
        assert!(verdict.contains(expected), "{verdict}");
        let is_shortage = verdict.contains("lack of memory");
        assert_eq!(is_shortage, fault != "kill -9 $$", "{verdict}");
        marker.assert_none_left();
    }
}

/// Output that cannot be written is told, and ends the job.
#[test]
fn a_full_output_is_told() {
    assert_in_time(LIMIT, TRIES, || {
        let marker = Marker::new();
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let script = format!("seq 10000; {}", marker.stay());
        let mut command = run(&["-n", "3", "--detect", "1", "sh", "-c", &script]);
        let begin = Instant::now();
        let mut job = command.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        while job.try_wait().unwrap().is_none() {
            if begin.elapsed() > PATIENCE {
                job.kill().unwrap();
            }
            sleep(Duration::from_millis(10));
        }
        let time = begin.elapsed();
        let job = job.wait_with_output().unwrap();
        assert_eq!(job.status.code(), Some(125), "{job:?}");
        let verdict = text(&job.stderr);
        assert!(
            verdict.contains("cannot write the output of the ranks"),
            "{verdict}"
        );
        assert!(verdict.contains("No space left on device"), "{verdict}");
        marker.assert_none_left();
        time
    });
}

/// In the background of a terminal a job that reads nothing runs to its end, though others may not read there.
#[test]
fn a_terminal_does_not_stop_a_job_in_the_background() {
    let marker = Marker::new();
    let script = marker.path("script");
    // With job control the job has a process group of its own, which is not that of the terminal; `wait` gives 149 for
    // one that SIGTTIN stopped.
    let text_of_script =
        format!("set -m\n{ROPEWALK} run -n 2 sh -c 'sleep 0.5; echo up' &\nwait $!\necho code $?\n");
    fs::write(&script, text_of_script).unwrap();
    let mut terminal = Command::new("script");
    let command = format!("bash {}", script.display());
    terminal
        .args(["-qec", &command, "/dev/null"])
        .stdin(Stdio::piped());
    let job = output(terminal);
    let stdout = text(&job.stdout);
    assert!(stdout.contains("code 0"), "{stdout}");
    assert_eq!(stdout.matches("up").count(), 2, "{stdout}");
    marker.assert_none_left();
}

/// A rank that is bound to a core runs on the processors of one core, and no two ranks on the same while
/// there are enough.
#[test]
fn ranks_are_bound_to_cores() {
    let allowed = |binding: &str, ranks: usize| -> Vec<String> {
        let script = "echo $RANK $(grep Cpus_allowed_list /proc/self/status | cut -f2)";
        let job = output(run(&[
            "-n",
            &ranks.to_string(),
            "-bind-to",
            binding,
            "sh",
            "-c",
            script,
        ]));
        assert!(job.status.success(), "{job:?}");
        let mut lines: Vec<_> = text(&job.stdout).lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
            .iter()
            .map(|line| line.split_once(' ').unwrap().1.to_owned())
            .collect()
    };
    let own = text(&fs::read("/proc/self/status").unwrap());
    let own = own
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:\t"))
        .unwrap()
        .to_owned();
    assert_eq!(allowed("none", 2), [own.as_str(), own.as_str()]);
    let core_of = |list: &str| {
        let first: String = list.chars().take_while(char::is_ascii_digit).collect();
        let path = format!("/sys/devices/system/cpu/cpu{first}/topology/thread_siblings_list");
        fs::read_to_string(path).map_or(first, |list| list.trim().to_owned())
    };
    let lists = allowed("core", 2);
    for list in &lists {
        assert_eq!(*list, core_of(list));
    }
    let cores = fs::read_dir("/sys/devices/system/cpu")
        .unwrap()
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let number = name
                .strip_prefix("cpu")
                .filter(|number| number.parse::<u32>().is_ok());
            number.map(core_of)
        });
    let cores: std::collections::BTreeSet<_> = cores.collect();
    // A machine may keep some of its cores from us, as containers do.
    if cores.len() > 1 && own.contains(['-', ',']) && core_of(&own) != own {
        assert_ne!(lists[0], lists[1]);
    }
}
