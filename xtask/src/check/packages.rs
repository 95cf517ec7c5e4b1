//! Our packages and what they depend on, as cargo sees them.

use anyhow::Context;
use serde::Deserialize;

use crate::shell::{cargo, output};

/// One of our packages.
#[derive(Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) dependencies: Vec<Dependency>,
}

/// A package that another one depends on.
#[derive(Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `dev` for those of tests only.
    pub(crate) kind: Option<String>,
    /// Only dependencies in the same workspace have one.
    pub(crate) path: Option<String>,
}

/// The packages of the workspace.
///
/// # Errors
/// If cargo cannot describe them.
pub(crate) fn packages() -> anyhow::Result<Vec<Package>> {
    let text = output(cargo(&[
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
        "--locked",
    ]))?;
    let workspace: Workspace = serde_json::from_str(&text).context("cannot read what cargo metadata says")?;
    Ok(workspace.packages)
}

#[derive(Deserialize)]
struct Workspace {
    packages: Vec<Package>,
}
