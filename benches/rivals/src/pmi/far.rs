//! A process manager that is far away, and a program that asks it by several threads over the C API.

use std::{
    collections::VecDeque,
    env, fs,
    io::{Read, Write},
    os::{
        fd::{AsRawFd, FromRawFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{FdFlags, fcntl_setfd},
};
use serde::Serialize;

use super::{Arguments, rows_under};

/// Asks over the library that is its first word, with each number of threads.
const SOURCE: &str = include_str!("far.c");

/// The rates of one contestant.
#[derive(Serialize)]
pub(super) struct FarRow {
    pub(super) contestant: &'static str,
    delay_us: u64,
    pub(super) threads: u32,
    pub(super) per_second: Vec<f64>,
}

/// Asks by several threads over each library. PMI-1's has one request under way in a process, and so has Slurm's, which
/// holds its lock until the answer is there.
pub(super) fn measure(own: &str, ropewalk: &str, arguments: &Arguments) -> anyhow::Result<Vec<FarRow>> {
    let folder = tempfile::tempdir()?;
    let (source, program) = (folder.path().join("far.c"), folder.path().join("far"));
    fs::write(&source, SOURCE)?;
    let status = Command::new("cc")
        .args(["-O2", "-Wall", "-Werror", "-pthread", "-o"])
        .args([&program, &source])
        .arg("-ldl")
        .status();
    ensure!(
        status
            .context("cc is missing: install the Debian package gcc")?
            .success(),
        "cc failed"
    );
    let program = program.to_string_lossy();
    let built = |name: &str| -> anyhow::Result<String> {
        let library = Path::new(ropewalk).with_file_name(name);
        ensure!(
            library.exists(),
            "there is no {}: build it first",
            library.display()
        );
        Ok(library.to_string_lossy().into_owned())
    };
    let (first, second) = (built("libpmi.so")?, built("libpmi2.so")?);
    let ours = [ropewalk, "run"];
    let contestants: [(&str, &[&str], &str, &str); 4] = [
        ("ropewalk, our libpmi2", &ours, &second, "2"),
        ("ropewalk, Slurm's libpmi2", &ours, "libpmi2.so.0", "2"),
        ("ropewalk, PMI-1 behind a lock", &ours, &first, "1"),
        ("Hydra, our libpmi2", &["mpiexec.hydra"], &second, "2"),
    ];
    let delay_us = arguments.delay_us;
    let mut rows: Vec<FarRow> = contestants
        .iter()
        .flat_map(|(contestant, ..)| {
            arguments.threads.iter().map(|&threads| FarRow {
                contestant,
                delay_us,
                threads,
                per_second: Vec::new(),
            })
        })
        .collect();
    let threads: Vec<_> = arguments.threads.iter().map(u32::to_string).collect();
    let (delay, turn, threads) = (
        delay_us.to_string(),
        arguments.turn_ms.to_string(),
        threads.join(","),
    );
    let words = [
        "pmi",
        "--turn-ms",
        &turn,
        "--delay-us",
        &delay,
        "--threads",
        &threads,
    ];
    let words = [&words[..], &["--requests", arguments.requests.word()]].concat();
    for _ in 0..arguments.rounds.max(1) {
        for (name, manager, library, dialect) in contestants {
            let program = ["--far", &program, library, dialect];
            let rates = rows_under(manager, own, &[&words[..], &program].concat());
            for rate in rates.with_context(|| format!("over {name}"))? {
                let is_its =
                    |row: &&mut FarRow| row.contestant == name && row.threads as usize == rate.in_flight;
                let row = rows
                    .iter_mut()
                    .find(is_its)
                    .context("a rate of threads that nobody wanted")?;
                row.per_second.push(rate.per_second);
            }
        }
    }
    Ok(rows)
}

/// Runs a program, with the library and all else that it is told, as if the process manager were `delay` away: what it
/// answers arrives so much later.
pub(super) fn run_far(words: &[String], arguments: &Arguments) -> anyhow::Result<()> {
    let mut program = Command::new(&words[0]);
    program
        .args(&words[1..])
        .args([arguments.requests.word(), &arguments.turn_ms.to_string()])
        .args(arguments.threads.iter().map(u32::to_string));
    if arguments.delay_us == 0 {
        // Near, with nothing between: this process becomes the program.
        return Err(program.exec()).with_context(|| format!("cannot run {}", words[0]));
    }
    let number = env::var("PMI_FD").context("there is no process manager to be measured")?;
    let number: i32 = number.parse().context("PMI_FD is no number")?;
    let (near, its) = UnixStream::pair()?;
    fcntl_setfd(&its, FdFlags::empty())?;
    let mut child = program
        .env("PMI_FD", its.as_raw_fd().to_string())
        .spawn()
        .with_context(|| format!("cannot run {}", words[0]))?;
    drop(its);
    // SAFETY: the process manager gave this process the descriptor, and nothing else here uses it.
    let manager = unsafe { UnixStream::from_raw_fd(number) };
    forward(&near, &manager, Duration::from_micros(arguments.delay_us))?;
    let status = child.wait()?;
    ensure!(status.success(), "it ended with {status}");
    Ok(())
}

/// Until the program or the process manager closes its connection.
fn forward(mut program: &UnixStream, mut manager: &UnixStream, delay: Duration) -> anyhow::Result<()> {
    let mut under_way: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let left = under_way
            .front()
            .map(|(due, _)| due.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut polled = [program, manager].map(|socket| PollFd::new(socket, PollFlags::IN));
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let [is_asked, is_answered] = polled.map(|polled| !polled.revents().is_empty());
        if is_asked {
            match program.read(&mut buffer) {
                Ok(length @ 1..) => manager.write_all(&buffer[..length])?,
                Ok(_) | Err(_) => return Ok(()),
            }
        }
        if is_answered {
            let length = manager.read(&mut buffer)?;
            if length == 0 {
                // After the program's last request; if it had more, it tells.
                for (due, answer) in under_way {
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    program.write_all(&answer)?;
                }
                return Ok(());
            }
            under_way.push_back((Instant::now() + delay, buffer[..length].to_vec()));
        }
        while under_way.front().is_some_and(|(due, _)| *due <= Instant::now())
            && let Some((_, answer)) = under_way.pop_front()
        {
            program.write_all(&answer)?;
        }
    }
}
