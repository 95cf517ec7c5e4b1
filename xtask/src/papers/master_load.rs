//! The load of the scheduler in real processes, on hosts of namespaces.

use std::fmt::Write;

use anyhow::Context;
use ropewalk_launch::{JobSpec, Segment};
use ropewalk_rig::{Network, messages_a_second};

use super::{
    Extent,
    reduction::{length, lengths, time},
    setup::Setup,
};
use crate::rig::job;

/// A reduction in real processes.
struct Measured {
    bytes: u64,
    seconds: f64,
    /// Messages received and their bytes, messages sent and their bytes.
    load: [u64; 4],
}

/// Rows of real processes: messages and bytes of the scheduler, beside the most that a host receives.
pub(super) fn real(setup: &Setup, text: &mut String) -> anyhow::Result<()> {
    let (counts, rounds): (&[u8], usize) = match setup.extent {
        Extent::Full => (&[8, 16], 9),
        Extent::Quick => (&[4], 1),
    };
    for &hosts in counts {
        let network = Network::new(hosts, MBIT)?;
        let peak = messages_a_second(&network, 2, 1)?;
        write!(
            text,
            "\nReal processes, {hosts} hosts at {MBIT} Mbit/s, one rank each, medians of {rounds} reductions. A host \
             receives at most\n{peak:.0} datagrams of 100 bytes a second over such a link.\n\n\
             | length | time | received / sent, a reduction | bytes | received / sent, a second | bytes a second \
             |\n|---|---|---|---|---|---|\n"
        )?;
        for bytes in lengths(setup.extent) {
            let measured = median(&measure(setup, &network, bytes, rounds)?)?;
            let Measured {
                bytes,
                seconds,
                load: [received, received_bytes, sent, sent_bytes],
            } = measured;
            let a_second = |count: u64| count as f64 / seconds;
            writeln!(
                text,
                "| {} | {} | {received} / {sent} | {received_bytes} / {sent_bytes} | {:.0} / {:.0} | {:.0} / {:.0} |",
                length(bytes as f64),
                time(seconds),
                a_second(received),
                a_second(sent),
                a_second(received_bytes),
                a_second(sent_bytes),
            )?;
        }
    }
    Ok(())
}

/// Runs a job that reduces vectors of one length.
fn measure(setup: &Setup, network: &Network, bytes: u64, rounds: usize) -> anyhow::Result<Vec<Measured>> {
    let folder = setup.executables.folder()?;
    let words = format!("--rounds {rounds} --scheduler 1 reduce any {bytes}");
    let spec = JobSpec::new(
        folder.join("ropewalk"),
        Segment {
            arguments: words.split(' ').map(Into::into).collect(),
            ..Segment::new(folder.join("reduce-vs-mpi"))
        },
    );
    let said = job(network, 1, spec)?;
    said.lines().map(read).collect()
}

/// Reads a line of `reduce-vs-mpi --scheduler 1`.
fn read(line: &str) -> anyhow::Result<Measured> {
    let numbers = line.split(' ').map(str::parse::<u64>);
    let numbers: Vec<u64> = numbers
        .collect::<Result<_, _>>()
        .with_context(|| format!("not six numbers: {line}"))?;
    let [bytes, nanoseconds, load @ ..] = &numbers[..] else {
        anyhow::bail!("not six numbers: {line}");
    };
    Ok(Measured {
        bytes: *bytes,
        seconds: *nanoseconds as f64 / 1e9,
        load: load
            .try_into()
            .with_context(|| format!("not six numbers: {line}"))?,
    })
}

/// The median of each number by itself.
fn median(rounds: &[Measured]) -> anyhow::Result<Measured> {
    let middle = |of: &dyn Fn(&Measured) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(of).collect();
        values.sort_unstable_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    let first = rounds.first().context("no round was measured")?;
    Ok(Measured {
        bytes: first.bytes,
        seconds: middle(&|round| round.seconds),
        load: [0, 1, 2, 3].map(|at| middle(&|round| round.load[at] as f64) as u64),
    })
}

const MBIT: u32 = 400;

#[cfg(test)]
mod tests {
    use super::*;

    /// A line has six numbers, and a median is that of each of them.
    #[test]
    fn medians_are_of_each_number() {
        let lines = ["8 1000 1 10 100 5", "8 3000 3 30 300 6", "8 2000 2 90 200 7"];
        let rounds: Vec<Measured> = lines.map(|line| read(line).unwrap()).into();
        let found = median(&rounds).unwrap();
        assert_eq!(
            (found.bytes, found.seconds, found.load),
            (8, 2e-6, [2, 30, 200, 6])
        );
        for wrong in ["8 1000", "8 1000 1 10 100", "8 1000 1 10 100 x"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
