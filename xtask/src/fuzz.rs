//! Feeding every parser of foreign bytes with what it does not expect.

use std::fs;

use anyhow::{Context, bail};

use crate::{
    project,
    shell::{cargo, run, succeeds},
};

/// How long to fuzz what.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How long each target runs
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Which targets; by default all
    targets: Vec<String>,
}

/// Runs fuzz targets one after the other.
///
/// # Errors
/// If one finds something, which cargo-fuzz then keeps under `fuzz/artifacts`, or cannot be built.
pub(crate) fn fuzz(options: &Options) -> anyhow::Result<()> {
    if !succeeds(cargo(&["fuzz", "--version"])) {
        run(cargo(&["install", "--locked", "cargo-fuzz"]))?;
    }
    let targets = targets()?;
    if let Some(unknown) = options.targets.iter().find(|target| !targets.contains(target)) {
        bail!(
            "there is no fuzz target {unknown}; there are {}",
            targets.join(", ")
        );
    }
    let chosen = if options.targets.is_empty() {
        &targets
    } else {
        &options.targets
    };
    let mut failed = Vec::new();
    for target in chosen {
        let time = format!("-max_total_time={}", options.seconds);
        // What it finds goes into the first folder, which is not in the repository.
        let [found, seeds] = ["corpus", "seeds"].map(|folder| format!("fuzz/{folder}/{target}"));
        fs::create_dir_all(project::root().join(&found))?;
        let limits = [time.as_str(), "-max_len=8192", "-timeout=10"];
        let mut fuzz = cargo(&[&["fuzz", "run", target, &found, &seeds, "--"], &limits[..]].concat());
        // The sanitizers are behind a flag of the compiler that stable releases accept only so.
        fuzz.env("RUSTC_BOOTSTRAP", "1");
        if let Err(error) = run(fuzz) {
            eprintln!("{error:#}");
            failed.push(target.as_str());
        }
    }
    if !failed.is_empty() {
        bail!("found something: {}", failed.join(", "));
    }
    Ok(())
}

fn targets() -> anyhow::Result<Vec<String>> {
    let folder = project::root().join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut targets = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        targets.extend(name.strip_suffix(".rs").map(str::to_owned));
    }
    targets.sort();
    Ok(targets)
}
