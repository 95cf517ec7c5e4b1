//! Packages that others can depend on: their descriptions, and the oldest compiler that builds them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use anyhow::Context;
use serde::Deserialize;

use crate::shell::{cargo, output};

/// The answer of `cargo metadata`, for the platforms that are supported.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
    workspace_members: Vec<String>,
}

#[derive(Clone, Default, Deserialize)]
struct Package {
    id: String,
    name: String,
    description: Option<String>,
    license: Option<String>,
    readme: Option<String>,
    repository: Option<String>,
    keywords: Vec<String>,
    categories: Vec<String>,
    rust_version: Option<String>,
    /// The registries to which the package may go; `None` is any.
    publish: Option<Vec<String>>,
}

impl Package {
    fn is_published(&self) -> bool {
        self.publish
            .as_ref()
            .is_none_or(|registries| !registries.is_empty())
    }
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    /// `dev` for dependencies of tests.
    kind: Option<String>,
}

/// Describes the workspace and its dependencies with all features.
///
/// # Errors
/// If cargo cannot describe them.
pub(crate) fn metadata() -> anyhow::Result<Metadata> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let words = "metadata --format-version 1 --locked --all-features --filter-platform";
    let mut words: Vec<_> = words.split(' ').collect();
    words.push(&platform);
    serde_json::from_str(&output(cargo(&words))?).context("cannot read what cargo metadata says")
}

/// Every package of ours whose description lacks something, that depends on an unpublished package, or whose
/// `rust-version` is lower than the one of a dependency.
pub(crate) fn broken(metadata: &Metadata) -> Vec<String> {
    let packages: BTreeMap<&str, &Package> = metadata
        .packages
        .iter()
        .map(|package| (package.id.as_str(), package))
        .collect();
    let nodes: BTreeMap<&str, &Node> = metadata
        .resolve
        .nodes
        .iter()
        .map(|node| (node.id.as_str(), node))
        .collect();
    let ours: BTreeSet<&str> = metadata.workspace_members.iter().map(String::as_str).collect();
    let mut broken = Vec::new();
    for package in ours.iter().filter_map(|id| packages.get(id)) {
        let below: Vec<&Package> = below(&package.id, &nodes)
            .iter()
            .filter_map(|id| packages.get(id).copied())
            .collect();
        broken.extend(compiler(package, &below));
        if package.is_published() {
            let is_ours = |below: &&&Package| ours.contains(below.id.as_str());
            broken.extend(description(package));
            broken.extend(
                below
                    .iter()
                    .filter(is_ours)
                    .filter(|below| !below.is_published())
                    .map(|below| {
                        format!(
                            "{}: depends on {}, which is not published",
                            package.name, below.name
                        )
                    }),
            );
        }
    }
    broken
}

/// The packages that a build of one needs, itself left out.
fn below<'a>(root: &'a str, nodes: &BTreeMap<&'a str, &'a Node>) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open = vec![root];
    while let Some(node) = open.pop().and_then(|id| nodes.get(id)) {
        for edge in &node.deps {
            let is_built = edge
                .dep_kinds
                .iter()
                .any(|kind| kind.kind.as_deref() != Some("dev"));
            if is_built && found.insert(edge.pkg.as_str()) {
                open.push(&edge.pkg);
            }
        }
    }
    found
}

/// A registry shows these, and its search finds a package by them.
fn description(package: &Package) -> Vec<String> {
    let missing = [
        ("description", package.description.is_none()),
        ("license", package.license.is_none()),
        ("readme", package.readme.is_none()),
        ("keywords", package.keywords.is_empty()),
        ("categories", package.categories.is_empty()),
    ];
    let missing = missing
        .iter()
        .filter(|(_, is_missing)| *is_missing)
        .map(|(field, _)| format!("{}: has no {field}", package.name));
    let repository = package
        .repository
        .iter()
        .map(|address| format!("{}: names a repository, {address}; there is none", package.name));
    missing.chain(repository).collect()
}

/// The dependency that needs the newest compiler, if that is newer than the one that a package claims to need.
fn compiler(package: &Package, below: &[&Package]) -> Option<String> {
    let Some(own) = package.rust_version.as_deref().and_then(Version::parse) else {
        return Some(format!("{}: states no rust-version", package.name));
    };
    let needs = |below: &&Package| {
        Some((
            Version::parse(below.rust_version.as_deref()?)?,
            below.name.clone(),
        ))
    };
    let (needed, name) = below.iter().filter_map(needs).max()?;
    (needed > own).then(|| {
        format!(
            "{}: rust-version {own} is lower than {needed}, which {name} needs",
            package.name
        )
    })
}

/// The version of a compiler: major, minor, patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version([u32; 3]);

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let mut version = [0; 3];
        let mut parts = text.split('.');
        for (number, part) in version.iter_mut().zip(parts.by_ref()) {
            *number = part.parse().ok()?;
        }
        parts.next().is_none().then_some(Self(version))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        match patch {
            0 => write!(formatter, "{major}.{minor}"),
            patch => write!(formatter, "{major}.{minor}.{patch}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, rust_version: Option<&str>) -> Package {
        let text = Some("x".to_owned());
        Package {
            id: name.to_owned(),
            name: name.to_owned(),
            description: text.clone(),
            license: text.clone(),
            readme: text,
            repository: None,
            keywords: vec!["x".to_owned()],
            categories: vec!["x".to_owned()],
            rust_version: rust_version.map(str::to_owned),
            publish: None,
        }
    }

    fn edge(to: &str, kind: Option<&str>) -> Edge {
        Edge {
            pkg: to.to_owned(),
            dep_kinds: vec![Kind {
                kind: kind.map(str::to_owned),
            }],
        }
    }

    /// `ours` is built with `middle` and that with `far`; its tests use `tests`.
    fn world(packages: [Package; 4]) -> Vec<String> {
        let node = |id: &str, deps| Node {
            id: id.to_owned(),
            deps,
        };
        let nodes = vec![
            node("ours", vec![edge("middle", None), edge("tests", Some("dev"))]),
            node("middle", vec![edge("far", None)]),
            node("far", Vec::new()),
            node("tests", Vec::new()),
        ];
        broken(&Metadata {
            packages: packages.to_vec(),
            resolve: Resolve { nodes },
            workspace_members: vec!["ours".to_owned(), "middle".to_owned()],
        })
    }

    /// A compiler that is too old for a dependency of a dependency is found; one that only tests need does not count.
    #[test]
    fn compilers_of_dependencies_count() {
        let packages = |far| {
            [
                package("ours", Some("1.88")),
                package("middle", Some("1.88")),
                package("far", Some(far)),
                package("tests", Some("1.99")),
            ]
        };
        assert_eq!(world(packages("1.88.0")), [""; 0]);
        let expected = ["middle", "ours"]
            .map(|name| format!("{name}: rust-version 1.88 is lower than 1.88.1, which far needs"));
        assert_eq!(world(packages("1.88.1")), expected);
    }

    /// A package without a keyword, one with a repository, one without a compiler and one that is not published
    /// although another needs it are found.
    #[test]
    fn poor_descriptions_are_found() {
        let (mut ours, mut middle) = (package("ours", Some("1.88")), package("middle", None));
        ours.keywords.clear();
        ours.repository = Some("https://example.org".to_owned());
        middle.publish = Some(Vec::new());
        middle.license = None;
        let expected = [
            "middle: states no rust-version",
            "ours: has no keywords",
            "ours: names a repository, https://example.org; there is none",
            "ours: depends on middle, which is not published",
        ];
        assert_eq!(
            world([ours, middle, package("far", None), package("tests", None)]),
            expected
        );
    }
}
