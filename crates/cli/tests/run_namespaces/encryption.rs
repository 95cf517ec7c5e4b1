//! The texts that somebody can read who sees all packets between the hosts.

use std::{
    env,
    num::NonZero,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use ropewalk::{
    names::Rank,
    reduce::{Job, ReduceOptions, Sum},
};
use rustix::{
    io::Errno,
    net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with, sockopt},
};

use super::{
    relay::{Relay, Weather},
    *,
};

const ROLE: &str = "ROPEWALK_TEST_ROLE";
/// The text that ranks write, and (`REDUCED`) the one that they reduce.
const WRITTEN: &[u8] = b"what ranks write to the launcher";
const REDUCED: &[u8] = b"and what they give to one another";
/// So often that one of them is in one packet.
const TIMES: usize = 200;

/// Without encryption output and partial results are read by who sees all packets, with it they are not; the
/// job is the same.
#[test]
fn nothing_is_read_on_the_way() {
    if env::var_os(ROLE).is_some() {
        return write_and_reduce();
    }
    let Some(network) = Network::new(90) else {
        return;
    };
    for encrypt in [false, true] {
        let exe = env::current_exe().unwrap();
        let mut words = vec![exe.to_str().unwrap(), "encryption::nothing_is_read_on_the_way"];
        words.extend(["--exact", "--nocapture"]);
        if encrypt {
            words.insert(0, "--encrypt");
        }
        let mut job = network.job(2, &words);
        job.env(ROLE, "rank").args(["--test-threads", "1"]);
        let (output, seen) = beside_a_listener(|| job.output().unwrap());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let stdout = text(&output.stdout);
        let written = stdout.matches(std::str::from_utf8(WRITTEN).unwrap()).count();
        assert_eq!(written, TIMES * usize::from(HOSTS), "{stdout}");
        assert_eq!(seen, [!encrypt; 2], "encrypt: {encrypt}");
    }
}

fn write_and_reduce() {
    let job = Job::from_env().unwrap();
    for _ in 0..TIMES {
        println!("{}", text(WRITTEN));
    }
    let mut part: Vec<u8> = REDUCED
        .iter()
        .copied()
        .cycle()
        .take(TIMES * REDUCED.len())
        .collect();
    if job.rank() != Rank(2) {
        part.fill(0);
    }
    let options = ReduceOptions::default();
    let reduction = job.world().reduce(part, Sum, Rank(0), &options).unwrap();
    let sum = reduction.get().unwrap();
    if let Some(sum) = sum.value {
        assert!(sum.starts_with(REDUCED) && sum.len() == TIMES * REDUCED.len());
    }
    job.finalize().unwrap();
}

/// Returns the result of the work, and which of the texts were in a packet of this machine meanwhile.
fn beside_a_listener<T>(work: impl FnOnce() -> T) -> (T, [bool; 2]) {
    let all = Protocol::from_raw(NonZero::new(u32::from(3u16.to_be())).unwrap());
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let packets = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, Some(all)).unwrap();
    let _ = sockopt::set_socket_recv_buffer_size_force(&packets, 64 << 20);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let listener = scope.spawn(|| {
            let mut seen = [false; 2];
            let mut packet = vec![0; 1 << 16];
            loop {
                // Looked at first, so that nothing is left unread.
                let last = is_over.load(Ordering::Acquire);
                match recv(&packets, &mut packet[..], RecvFlags::empty()) {
                    Ok((length, _)) => {
                        for (seen, part) in seen.iter_mut().zip([WRITTEN, REDUCED]) {
                            *seen |= packet[..length].windows(part.len()).any(|window| window == part);
                        }
                    }
                    Err(Errno::AGAIN) if last => return seen,
                    Err(Errno::AGAIN) => sleep(Duration::from_millis(1)),
                    Err(Errno::INTR | Errno::NOBUFS) => {}
                    Err(errno) => panic!("{errno}"),
                }
            }
        });
        let done = work();
        is_over.store(true, Ordering::Release);
        (done, listener.join().unwrap())
    })
}

/// On an encrypted link a wrong bit is found as on others, and what it was in is sent again.
#[test]
fn an_encrypted_link_with_wrong_bits_is_mended() {
    const LINES: usize = 100_000;
    let weather = Weather {
        flip_every: Some(1_000_000),
        ..Weather::default()
    };
    let Some(relay) = Relay::new(91, weather) else {
        return;
    };
    let job = relay
        .job(&["--encrypt", "-n", "4", "seq", &LINES.to_string()])
        .output()
        .unwrap();
    let stderr = text(&job.stderr);
    assert!(job.status.success() && stderr.is_empty(), "{stderr}");
    let mut lines: Vec<usize> = text(&job.stdout)
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    lines.sort_unstable();
    let expected: Vec<_> = (1..=LINES).flat_map(|number| [number; 4]).collect();
    assert!(lines == expected, "{} lines", lines.len());
    assert!(relay.count.flips.load(Ordering::Relaxed) > 0, "{:?}", relay.count);
}
