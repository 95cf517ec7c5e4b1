//! A process manager that is far away, and a program that asks it by several threads over the C API.

use std::{
    collections::VecDeque,
    env, fs,
    io::{Read, Write},
    os::{
        fd::{AsRawFd, FromRawFd},
        unix::net::UnixStream,
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

use super::{Arguments, Row, rows_under};

/// Asks over the library that is its first word: rounds of 1 and of 8 threads that put.
const SOURCE: &str = include_str!("far.c");

/// How many times as often our library is answered when eight threads ask instead of one, and Slurm's, which holds its
/// lock until the answer is there.
pub(super) fn measure(
    own: &str,
    ropewalk: &str,
    arguments: &Arguments,
) -> anyhow::Result<Vec<(String, Vec<Row>)>> {
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
    let ours = Path::new(ropewalk).with_file_name("libpmi2.so");
    ensure!(ours.exists(), "there is no {}: build it first", ours.display());
    let mut measured = Vec::new();
    for (name, library) in [
        ("our libpmi2", ours.as_path()),
        ("Slurm's libpmi2", Path::new("libpmi2.so.0")),
    ] {
        let delay = arguments.delay_us.to_string();
        let (turn, rounds) = (arguments.turn_ms.to_string(), arguments.rounds.to_string());
        let library = library.to_string_lossy();
        let words = [
            "pmi",
            "--turn-ms",
            &turn,
            "--rounds",
            &rounds,
            "--delay-us",
            &delay,
        ];
        let program = ["--far", &program, &library];
        let rows = rows_under(&[ropewalk, "run"], own, &[&words[..], &program].concat());
        measured.push((name.to_owned(), rows.with_context(|| format!("over {name}"))?));
    }
    Ok(measured)
}

/// Runs a program, with the library and all else that it is told, as if the process manager were `delay` away: what it
/// answers arrives so much later.
pub(super) fn run_far(words: &[String], arguments: &Arguments) -> anyhow::Result<()> {
    let number = env::var("PMI_FD").context("there is no process manager to be measured")?;
    let number: i32 = number.parse().context("PMI_FD is no number")?;
    let (near, its) = UnixStream::pair()?;
    fcntl_setfd(&its, FdFlags::empty())?;
    let mut child = Command::new(&words[0])
        .args(&words[1..])
        .args([arguments.turn_ms, u64::from(arguments.rounds)].map(|number| number.to_string()))
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
