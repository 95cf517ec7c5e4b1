//! Jobs whose faults are drawn from seeds.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use ropewalk_bench::output::print;
use ropewalk_reduce_core::End;
use ropewalk_sim::reduction::{Setting, run};

/// Runs the seeds that failed before, as a file says, and `count` seeds from `first` on. Seeds that break a promise are
/// added to the file.
pub(super) fn search(first: u64, count: u64, failing: Option<&PathBuf>) -> anyhow::Result<ExitCode> {
    let known = failing.map_or(Ok(Vec::new()), |path| read(path))?;
    let mut broken = Vec::new();
    let (mut results, mut errors) = (0_u64, 0_u64);
    for seed in known.iter().copied().chain(first..first.saturating_add(count)) {
        match run(&Setting::random(seed)) {
            Ok(outcome) if matches!(outcome.end, Some(End::Done { .. })) => results += 1,
            Ok(_) => errors += 1,
            Err(violation) => {
                print(format_args!("seed {seed}: {violation:?}"))?;
                print(format_args!(
                    "  again: ropewalk sim reduce --seeds 1 --seed {seed}"
                ))?;
                broken.push(seed);
            }
        }
    }
    if let Some(path) = failing.filter(|_| !broken.is_empty()) {
        let mut all = known;
        all.extend(&broken);
        all.sort_unstable();
        all.dedup();
        let text: String = all.iter().map(|seed| format!("{seed}\n")).collect();
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    print(format_args!(
        "{} jobs with random faults: {results} have a result, {errors} a verdict, {} break a promise",
        results + errors + broken.len() as u64,
        broken.len()
    ))?;
    Ok(if broken.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// A seed a line; no file is no seeds.
fn read(path: &Path) -> anyhow::Result<Vec<u64>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let seeds = text.lines().map(|line| {
        let seed = line.trim().parse();
        seed.with_context(|| format!("{} wants a seed on each line, not {line:?}", path.display()))
    });
    seeds.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seeds that failed are run again, and stay in the file.
    #[test]
    fn seeds_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seeds");
        assert_eq!(read(&path).unwrap(), [0; 0]);
        fs::write(&path, "3\n17\n").unwrap();
        assert_eq!(read(&path).unwrap(), [3, 17]);
        assert_eq!(search(0, 5, Some(&path)).unwrap(), ExitCode::SUCCESS);
        assert_eq!(read(&path).unwrap(), [3, 17]);
        fs::write(&path, "three\n").unwrap();
        assert!(search(0, 1, Some(&path)).is_err());
    }
}
