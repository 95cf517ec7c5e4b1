//! Files of seeds that failed once, which are run again and again.

/// The seeds in the text of such a file, one a line. Empty lines say nothing, and neither does the rest of a line from
/// a `#` on.
///
/// ```
/// let seeds = ropewalk_sim::seed_lines("# a lost grant\n17\n\n3 # a hang\n");
/// assert!(seeds.eq(["17", "3"]));
/// ```
pub fn seed_lines(text: &str) -> impl Iterator<Item = &str> {
    let lines = text
        .lines()
        .map(|line| line.split_once('#').map_or(line, |(seed, _)| seed).trim());
    lines.filter(|line| !line.is_empty())
}
