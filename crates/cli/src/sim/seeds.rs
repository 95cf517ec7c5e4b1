//! Jobs whose faults are drawn from seeds.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use ropewalk_bench::output::print;
use ropewalk_sim::seed_lines;

#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Seeds {
    /// Run the jobs of so many seeds with random faults instead, and see that no promise is broken
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) seed: u64,
    /// A file of seeds that failed: they are run first, and new ones are added
    #[arg(long, value_name = "FILE", requires = "seeds")]
    failing: Option<PathBuf>,
}

/// The end of a job.
#[derive(Debug)]
pub(super) enum End {
    /// All went well in spite of the faults.
    Well,
    /// The faults ended it, and the verdict says so.
    Failed,
    /// A promise is broken: which one.
    Broken(String),
}

impl Seeds {
    /// Runs the seeds that failed before and the ones that were asked for. Seeds that break a promise are added to
    /// the file. Returns `None` if no seeds were asked for.
    pub(super) fn search(&self, command: &str, run: impl Fn(u64) -> End) -> anyhow::Result<Option<ExitCode>> {
        let Some(count) = self.seeds else {
            return Ok(None);
        };
        let known = self.failing.as_ref().map_or(Ok(Vec::new()), |path| read(path))?;
        let mut broken = Vec::new();
        let (mut well, mut failed) = (0_u64, 0_u64);
        let range = self.seed..self.seed.saturating_add(count);
        for seed in known.iter().copied().chain(range) {
            match run(seed) {
                End::Well => well += 1,
                End::Failed => failed += 1,
                End::Broken(violation) => {
                    print(format_args!("seed {seed}: {violation}"))?;
                    print(format_args!(
                        "  again: ropewalk sim {command} --seeds 1 --seed {seed}"
                    ))?;
                    broken.push(seed);
                }
            }
        }
        if let Some(path) = &self.failing {
            let new = broken.iter().filter(|seed| !known.contains(seed));
            add(path, &new.map(|seed| format!("{seed}\n")).collect::<String>())?;
        }
        print(format_args!(
            "{} seeds of random faults: {well} end well, {failed} with a verdict, {} break a promise",
            well + failed + broken.len() as u64,
            broken.len()
        ))?;
        Ok(Some(match broken.is_empty() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }))
    }
}

/// The seeds in a file; no file is no seeds.
fn read(path: &Path) -> anyhow::Result<Vec<u64>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let seeds = seed_lines(&text).map(|seed| {
        let number = seed.parse();
        number.with_context(|| format!("{} wants a seed on each line, not {seed:?}", path.display()))
    });
    seeds.collect()
}

/// Adds lines to a file, which keeps its comments.
fn add(path: &Path, lines: &str) -> anyhow::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let file = File::options().create(true).append(true).open(path);
    let added = file.and_then(|mut file| file.write_all(lines.as_bytes()));
    added.with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seeds that failed are run again and stay in the file, and new ones come to it.
    #[test]
    fn seeds_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seeds");
        assert_eq!(read(&path).unwrap(), [0; 0]);
        fs::write(&path, "3 # a hang\n\n17\n").unwrap();
        let seeds = Seeds {
            seeds: Some(5),
            seed: 20,
            failing: Some(path.clone()),
        };
        let well = seeds.search("reduce", |_| End::Well).unwrap();
        assert_eq!(
            (well, read(&path).unwrap()),
            (Some(ExitCode::SUCCESS), vec![3, 17])
        );
        let run = |seed| match seed % 7 {
            3 => End::Broken("a hang".to_owned()),
            _ => End::Failed,
        };
        let broken = seeds.search("reduce", run).unwrap();
        assert_eq!(
            (broken, read(&path).unwrap()),
            (Some(ExitCode::FAILURE), vec![3, 17, 24])
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "3 # a hang\n\n17\n24\n");
        fs::write(&path, "three\n").unwrap();
        assert!(seeds.search("reduce", |_| End::Well).is_err());
    }
}
