//! The load of the master, and the formulas of the papers on reduction.

use std::fmt::Write;

use ropewalk_sim::baseline::{self, Baseline};

use super::{
    Extent, Made, master_load,
    points::{FOLD_RATE, HOSTS, LATENCY, RATE, on_all_processors, ours, setting},
    reduction::{length, lengths, time},
    setup::Setup,
};

/// Messages of the master, beside the paper's own numbers.
pub(super) fn table1(setup: &Setup) -> anyhow::Result<Made> {
    let extent = setup.extent;
    let rows = on_all_processors(&lengths(extent), |&bytes| {
        let setting = setting(HOSTS, bytes);
        let ours = ours(&setting)?;
        let paper = baseline::run(&setting, Baseline::Paper);
        Ok([
            (
                ours.messages_to_scheduler,
                ours.messages_from_scheduler,
                ours.time.as_seconds(),
            ),
            (
                paper.messages_to_scheduler,
                paper.messages_from_scheduler,
                paper.time.as_seconds(),
            ),
        ])
    })?;
    let mut text = String::from(
        "Messages that the master receives / sends:\n\n| length | a second, in the paper | a second, its policy | a \
         second, ropewalk | a reduction, its policy | a reduction, ropewalk |\n|---|---|---|---|---|---|\n",
    );
    for (bytes, [ours, paper]) in lengths(extent).into_iter().zip(rows) {
        let published = PUBLISHED.iter().find(|(length, ..)| *length == bytes);
        let published =
            published.map_or_else(String::new, |(_, received, sent)| format!("{received} / {sent}"));
        let a_second = |(received, sent, seconds): (u64, u64, f64)| {
            format!("{:.0} / {:.0}", received as f64 / seconds, sent as f64 / seconds)
        };
        writeln!(
            text,
            "| {} | {published} | {} | {} | {} / {} | {} / {} |",
            length(bytes as f64),
            a_second(paper),
            a_second(ours),
            paper.0,
            paper.1,
            ours.0,
            ours.1
        )?;
    }
    master_load::real(setup, &mut text)?;
    Ok(Made { text, picture: None })
}

/// Formulas (1) and (3) beside simulated times, and beside the times that follow from the paper's table 1.
pub(super) fn formulas(extent: Extent) -> anyhow::Result<Made> {
    let (levels, hosts) = (f64::from(HOSTS).log2(), f64::from(HOSTS));
    let (a, beta, gamma) = (LATENCY.as_seconds(), 1.0 / RATE, 1.0 / FOLD_RATE);
    let tree = |n: f64| (a + n * beta + n * gamma) * levels;
    let halves = |n: f64| 2.0 * a * levels + (hosts - 1.0) / hosts * n * (2.0 * beta + gamma);
    let tasks = |n: f64| task_time(HOSTS, n);
    let times = on_all_processors(&lengths(extent), |&bytes| {
        let setting = setting(HOSTS, bytes);
        let time = |baseline| baseline::run(&setting, baseline).time.as_seconds();
        Ok([Baseline::Binomial, Baseline::Rabenseifner, Baseline::Paper].map(time))
    })?;
    let published: Vec<(f64, f64)> = PUBLISHED
        .iter()
        .map(|row| (row.0 as f64, published_time(row)))
        .collect();
    let (fixed, per_byte) = fitted(&published);
    let mut text = String::from(
        "| length | T1 | simulated | T2 | simulated | (3) | simulated | from the paper's table 1 | (3), fitted to it \
         |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for (bytes, [binomial, rabenseifner, paper]) in lengths(extent).into_iter().zip(times) {
        let n = bytes as f64;
        let of_paper = PUBLISHED
            .iter()
            .find(|(length, ..)| *length == bytes)
            .map(published_time);
        let cells = [tree(n), binomial, halves(n), rabenseifner, tasks(n), paper];
        let cells = cells
            .into_iter()
            .chain(of_paper)
            .chain([fixed + per_byte * n])
            .map(time);
        writeln!(
            text,
            "| {} | {} |",
            length(n),
            cells.collect::<Vec<_>>().join(" | ")
        )?;
    }
    write!(
        text,
        "\nT1, T2 and (3) with the constants of the simulator: a = {:.0} us, beta = {:.2} ns/B, gamma = {:.2} ns/B,\n\
         theta = a, lambda = 0, lb 200 = {levels:.2}.\nFitted to the paper's table 1 by least squares of relative \
         errors: beta + gamma = {:.2} ns/B, and\n{:.1} ms a level for a, theta and lambda together.\n",
        a * 1e6,
        beta * 1e9,
        gamma * 1e9,
        per_byte / levels * 1e9,
        fixed / levels * 1e3
    )?;
    Ok(Made { text, picture: None })
}

/// Formula (3) with the constants of the simulator, in seconds. A message to or from the master takes as long as any
/// short one, and waits for nothing there.
pub(super) fn task_time(hosts: u32, bytes: f64) -> f64 {
    let (a, beta, gamma) = (LATENCY.as_seconds(), 1.0 / RATE, 1.0 / FOLD_RATE);
    (a + bytes * (beta + gamma) + 2.0 * a + a + 4.0 * beta) * f64::from(hosts).log2()
}

/// The line `fixed + per_byte * n` with the least sum of squares of relative errors.
fn fitted(points: &[(f64, f64)]) -> (f64, f64) {
    let sum = |term: fn(f64, f64) -> f64| points.iter().map(|(n, time)| term(*n, *time)).sum::<f64>();
    let (ones, lengths) = (sum(|_, time| 1.0 / time.powi(2)), sum(|n, time| n / time.powi(2)));
    let squares = sum(|n, time| n * n / time.powi(2));
    let (right, lengths_right) = (sum(|_, time| 1.0 / time), sum(|n, time| n / time));
    let determinant = ones * squares - lengths * lengths;
    (
        (right * squares - lengths_right * lengths) / determinant,
        (ones * lengths_right - lengths * right) / determinant,
    )
}

/// The paper divides the messages of a reduction by its time, and its master sends a task for each fold.
fn published_time(&(_, _, sent): &(u64, u32, u32)) -> f64 {
    f64::from(HOSTS - 1) / f64::from(sent)
}

/// Table 1 of the paper: bytes, messages received and sent by the master in a second.
const PUBLISHED: [(u64, u32, u32); 11] = [
    (1 << 17, 5220, 2604),
    (1 << 18, 5005, 2496),
    (1 << 19, 4996, 2492),
    (1 << 20, 4460, 2225),
    (1 << 21, 3957, 1973),
    (1 << 22, 3302, 1647),
    (1 << 23, 2400, 1197),
    (1 << 24, 1543, 769),
    (1 << 25, 923, 461),
    (1 << 26, 479, 239),
    (1 << 27, 250, 124),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Points on a line give the line; and the paper's master receives 2 p - 1 messages for p - 1 that it sends, as
    /// `published_time` takes for granted.
    #[test]
    fn a_line_is_found() {
        let (fixed, per_byte) = fitted(&[1.0, 2.0, 8.0].map(|n| (n, 3.0 + 0.5 * n)));
        assert!((fixed - 3.0).abs() < 1e-9 && (per_byte - 0.5).abs() < 1e-9);
        for (_, received, sent) in PUBLISHED {
            let ratio = f64::from(received) / f64::from(sent);
            assert!((ratio - 399.0 / 199.0).abs() < 0.02, "{received} / {sent}");
        }
    }
}
