//! The checks that every change must pass; they change no file.

mod layers;
mod packages;
mod paths;
mod published;
mod reasons;
mod rules;
mod words;

use std::fs;

use anyhow::bail;

use self::packages::packages;
use crate::{
    project,
    shell::{cargo, run, succeeds},
};

/// Runs every check, so that one run shows all there is to mend, and fails if one of them did.
///
/// # Errors
/// Names the checks that failed; what they found stands on standard error.
pub(crate) fn check() -> anyhow::Result<()> {
    let checks: [Check; 10] = [
        ("format", || run(cargo(&["fmt", "--all", "--check"]))),
        ("rules of the house", || {
            report(&rules::broken(&project::rust_files()?)?)
        }),
        ("plain words", || {
            report(&words::broken(&sources_and_documents()?))
        }),
        ("layers", || report(&layers::broken(&packages()?))),
        ("reasons for dependencies", || {
            let page = fs::read_to_string(project::root().join("docs/dependencies.md"))?;
            report(&reasons::broken(&packages()?, &page))
        }),
        ("descriptions and compilers of packages", || {
            report(&published::broken(&published::metadata()?))
        }),
        ("packages for a registry", || {
            // Without a build, which clippy does; an index of the registry is here since the lock file was made. This
            // program depends on packages that no registry has.
            let words = "package --workspace --exclude xtask --no-verify --allow-dirty --offline --quiet";
            run(cargo(&words.split(' ').collect::<Vec<_>>()))
        }),
        ("clippy", || {
            let words = "clippy --workspace --all-targets --all-features --locked -- -D warnings";
            run(cargo(&words.split(' ').collect::<Vec<_>>()))
        }),
        ("documentation", || {
            let mut doc = cargo(&["doc", "--workspace", "--no-deps", "--locked"]);
            doc.env("RUSTDOCFLAGS", "-D warnings");
            run(doc)
        }),
        ("licences, bans and sources", deny),
    ];
    let mut failed = Vec::new();
    for (name, check) in checks {
        eprintln!("==> check: {name}");
        if let Err(error) = check() {
            eprintln!("{error:#}");
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join("; "));
    }
    eprintln!("all checks passed");
    Ok(())
}

/// Formats the code, and applies what clippy suggests.
///
/// # Errors
/// If cargo fails.
pub(crate) fn fix() -> anyhow::Result<()> {
    run(cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--fix",
        "--allow-dirty",
        "--allow-staged",
    ]))?;
    run(cargo(&["fmt", "--all"]))
}

fn sources_and_documents() -> anyhow::Result<Vec<(String, String)>> {
    let mut files = project::rust_files()?;
    files.extend(project::documents()?);
    Ok(files)
}

type Check = (&'static str, fn() -> anyhow::Result<()>);

fn report(broken: &[String]) -> anyhow::Result<()> {
    if !broken.is_empty() {
        bail!("{}\n{} in all", broken.join("\n"), broken.len());
    }
    Ok(())
}

fn deny() -> anyhow::Result<()> {
    if !succeeds(cargo(&["deny", "--version"])) {
        run(cargo(&["install", "--locked", "cargo-deny"]))?;
    }
    run(cargo(&[
        "deny",
        "--all-features",
        "check",
        "licenses",
        "bans",
        "sources",
    ]))
}
