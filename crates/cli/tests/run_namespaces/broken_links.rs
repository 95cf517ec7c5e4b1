//! Links between agents that break although both ends live: the job goes on as if nothing had been. And those that stay
//! broken: a verdict, in time.

use std::{
    process::Stdio,
    sync::atomic::Ordering,
    thread::{self, sleep},
    time::{Duration, Instant},
};

use super::{
    DETECT, HOSTS, Network, SLACK,
    relay::{Relay, Weather},
    text, wait,
};

const RANKS: usize = 4;
const LINES: usize = 100_000;
const INPUT: usize = 3 << 20;

/// Runs a job that says much, and is said much, over such a link; every byte must come through once. Returns
/// the relay, which has counted.
fn run_through(subnet: u8, weather: Weather, lines: usize, input: usize) -> Option<Relay> {
    let relay = Relay::new(subnet, weather)?;
    // Longer than the detection time, by the end of which a link has to stand.
    let script = format!("seq {lines}; sleep 1.2; if [ $RANK = 0 ]; then wc -c; fi");
    let mut stdin = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut stdin, &vec![b'x'; input]).unwrap();
    std::io::Seek::rewind(&mut stdin).unwrap();
    let job = relay
        .job(&[
            "-n",
            &RANKS.to_string(),
            "-prepend-pattern",
            "%r ",
            "sh",
            "-c",
            &script,
        ])
        .stdin(stdin)
        .output()
        .unwrap();
    let stderr = text(&job.stderr);
    assert!(job.status.success(), "{weather:?} {:?}: {stderr}", relay.count);
    assert_eq!(stderr, "", "{weather:?} {:?}", relay.count);
    let stdout = text(&job.stdout);
    for rank in 0..RANKS {
        let prefix = format!("{rank} ");
        let mut said = stdout.lines().filter_map(|line| line.strip_prefix(&prefix));
        for number in 1..=lines {
            assert_eq!(said.next(), Some(number.to_string().as_str()), "{weather:?}");
        }
        let expected = (rank == 0).then(|| input.to_string());
        assert_eq!(said.next(), expected.as_deref(), "{weather:?}");
        assert_eq!(said.next(), None);
    }
    Some(relay)
}

/// A link that is reset again and again carries everything once.
#[test]
fn a_reset_link_is_mended() {
    let weather = Weather {
        reset_every: Some(500_000),
        dial_delay: Duration::from_millis(50),
        ..Weather::default()
    };
    let Some(relay) = run_through(81, weather, LINES, INPUT) else {
        return;
    };
    assert!(
        relay.count.resets.load(Ordering::Relaxed) > 4,
        "{:?}",
        relay.count
    );
    assert!(
        relay.count.connections.load(Ordering::Relaxed) > 4,
        "{:?}",
        relay.count
    );
}

/// A link that is reset and cannot be made again for most of the detection time is mended.
#[test]
fn an_outage_is_mended() {
    for tenths in [3, 5, 7] {
        let weather = Weather {
            outage: Some((300_000, DETECT * tenths / 10)),
            ..Weather::default()
        };
        let Some(relay) = run_through(86, weather, LINES, INPUT) else {
            return;
        };
        let tried = relay.count.turned_away.load(Ordering::Relaxed);
        assert!(tried > 1, "{:?}", relay.count);
    }
}

/// One wrong bit in each megabyte is found, and what it was in sent again.
#[test]
fn a_link_with_wrong_bits_is_mended() {
    let weather = Weather {
        flip_every: Some(1_000_000),
        ..Weather::default()
    };
    let Some(relay) = run_through(82, weather, LINES, INPUT) else {
        return;
    };
    assert!(relay.count.flips.load(Ordering::Relaxed) > 4, "{:?}", relay.count);
}

/// A link that says nothing for half the detection time, or is slow, is as good as any.
#[test]
fn a_slow_link_is_no_fault() {
    let stall = Weather {
        stall: Some((200_000, DETECT / 2)),
        ..Weather::default()
    };
    let slow = Weather {
        rate: Some(125_000),
        ..Weather::default()
    };
    for (weather, lines) in [(stall, LINES), (slow, 5_000)] {
        let Some(relay) = run_through(83, weather, lines, 100_000) else {
            return;
        };
        assert_eq!(relay.count.connections.load(Ordering::Relaxed), 1);
    }
}

/// A link that is silent for ever in one direction or both, or reset for ever, ends the job with a verdict.
#[test]
fn a_link_that_stays_broken_is_named() {
    let cut = |ways| Weather {
        cut: Some((100_000, ways)),
        ..Weather::default()
    };
    let reset = Weather {
        end_after: Some(100_000),
        ..Weather::default()
    };
    for weather in [cut(&[0, 1]), cut(&[0]), reset] {
        let Some(relay) = Relay::new(84, weather) else {
            return;
        };
        let job = relay
            .job(&["-n", "2", "sh", "-c", "seq 100000; exec sleep 100"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let output = wait(job, DETECT + Duration::from_secs(1) + SLACK);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{weather:?}: {stderr}");
        assert!(
            stderr.contains("the agent on host "),
            "{weather:?} after {:?}: {stderr}",
            begun.elapsed()
        );
    }
}

/// In a chain of agents, connections may be killed on all hosts, again and again, and nobody hears of it;
/// also where agents whose node above is lost would go on below the launcher.
#[test]
fn connections_of_a_chain_are_mended() {
    let Some(network) = Network::new(85) else {
        return;
    };
    for on_failure in ["abort", "continue"] {
        let script = "for part in 1 2 3 4 5 6 7 8 9 10; do seq 5000; sleep 0.1; done";
        let words = [
            "--on-failure",
            on_failure,
            "-prepend-pattern",
            "%r ",
            "sh",
            "-c",
            script,
        ];
        let mut job = network.job(1, &words);
        let job = job.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = thread::spawn(|| job.wait_with_output().unwrap());
        let mut killed = 0;
        while !output.is_finished() {
            sleep(Duration::from_millis(100));
            for host in 1..=HOSTS {
                let words = ["ss", "--no-header", "--kill", "--tcp", "state", "established"];
                let listed = network.on(host, &words).output().unwrap();
                killed += text(&listed.stdout).lines().count();
            }
        }
        let output = output.join().unwrap();
        let stderr = text(&output.stderr);
        assert!(
            output.status.success() && stderr.is_empty(),
            "{on_failure}: {stderr}"
        );
        assert!(
            killed > 2 * usize::from(HOSTS),
            "only {killed} connections were killed"
        );
        let stdout = text(&output.stdout);
        for rank in 0..HOSTS {
            let prefix = format!("{rank} ");
            let said = stdout.lines().filter_map(|line| line.strip_prefix(&prefix));
            let expected = (0..10)
                .flat_map(|_| 1..=5000)
                .map(|number: u32| number.to_string());
            assert!(
                said.eq(expected),
                "{on_failure}: not all that rank {rank} said, or not in order"
            );
        }
    }
}
