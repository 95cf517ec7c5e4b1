//! Which crate may use which other.

use std::collections::{BTreeMap, BTreeSet};

use super::packages::Package;

/// The packages of ours that each package may use. Its tests may also use all packages below those. This is
/// the one place where the directions of dependencies stand; `ARCHITECTURE.md` and `docs/decisions` say why.
const LAYERS: &[(&str, &[&str])] = &[
    ("ropewalk-agent-link", &[]),
    ("ropewalk-c-abi", &[]),
    ("ropewalk-names", &[]),
    ("ropewalk-output-file", &[]),
    ("ropewalk-plot", &[]),
    ("ropewalk-membership", &["ropewalk-names"]),
    ("ropewalk-pmi", &[]),
    ("ropewalk-pmi-client", &["ropewalk-pmi"]),
    (
        "ropewalk-pmi-abi",
        &["ropewalk-c-abi", "ropewalk-pmi", "ropewalk-pmi-client"],
    ),
    ("ropewalk-pmi-c", &["ropewalk-pmi", "ropewalk-pmi-abi"]),
    ("ropewalk-pmi2-c", &["ropewalk-pmi", "ropewalk-pmi-abi"]),
    ("ropewalk-fabric", &["ropewalk-membership", "ropewalk-names"]),
    ("ropewalk-fabric-ofi", &["ropewalk-fabric", "ropewalk-names"]),
    ("ropewalk-rpc", &["ropewalk-fabric", "ropewalk-fabric-ofi"]),
    ("ropewalk-checkpoint-core", &[]),
    (
        "ropewalk-launch-core",
        &["ropewalk-membership", "ropewalk-names", "ropewalk-pmi"],
    ),
    ("ropewalk-pmix", &["ropewalk-launch-core", "ropewalk-pmi"]),
    (
        "ropewalk-launch",
        &[
            "ropewalk-agent-link",
            "ropewalk-fabric",
            "ropewalk-launch-core",
            "ropewalk-membership",
            "ropewalk-names",
            "ropewalk-pmi",
            "ropewalk-pmi-client",
            "ropewalk-pmix",
            "ropewalk-rpc",
        ],
    ),
    // What starts and connects partners, for copies on other hosts, is a feature.
    (
        "ropewalk-checkpoint",
        &[
            "ropewalk-agent-link",
            "ropewalk-checkpoint-core",
            "ropewalk-fabric",
            "ropewalk-launch",
            "ropewalk-pmi-client",
            "ropewalk-rpc",
        ],
    ),
    (
        "ropewalk-checkpoint-c",
        &["ropewalk-c-abi", "ropewalk-checkpoint"],
    ),
    ("ropewalk-openfoam", &["ropewalk-checkpoint"]),
    ("ropewalk-reduce-core", &[]),
    (
        "ropewalk-reduce",
        &[
            "ropewalk-fabric",
            "ropewalk-membership",
            "ropewalk-names",
            "ropewalk-pmi",
            "ropewalk-pmi-client",
            "ropewalk-reduce-core",
            "ropewalk-rpc",
        ],
    ),
    (
        "ropewalk-reduce-files",
        &[
            "ropewalk-launch",
            "ropewalk-names",
            "ropewalk-output-file",
            "ropewalk-reduce",
        ],
    ),
    (
        "ropewalk-sim",
        &[
            "ropewalk-checkpoint-core",
            "ropewalk-launch-core",
            "ropewalk-membership",
            "ropewalk-names",
            "ropewalk-pmi",
            "ropewalk-reduce-core",
        ],
    ),
    ("ropewalk-bench", &["ropewalk-names", "ropewalk-rpc"]),
    ("kv", &["ropewalk-names", "ropewalk-rpc"]),
    ("pipelined-write", &["ropewalk-names", "ropewalk-rpc"]),
    ("hot-restart", &["ropewalk-names", "ropewalk-rpc"]),
    ("ropewalk-psdm", &["ropewalk-reduce"]),
    ("reduce-vs-mpi", &["ropewalk-reduce"]),
    (
        "ropewalk-openfoam-trials",
        &["ropewalk-checkpoint", "ropewalk-openfoam", "ropewalk-plot"],
    ),
    ("ropewalk-rig", &["ropewalk-launch"]),
    ("ropewalk-rivals", &["ropewalk-pmi", "ropewalk-pmi-client"]),
    // For Python.
    ("ropewalk-python", &["ropewalk-reduce"]),
    // The facade library, with nothing of the command.
    (
        "ropewalk",
        &[
            "ropewalk-checkpoint",
            "ropewalk-fabric",
            "ropewalk-membership",
            "ropewalk-launch",
            "ropewalk-names",
            "ropewalk-openfoam",
            "ropewalk-pmi",
            "ropewalk-pmi-client",
            "ropewalk-reduce",
            "ropewalk-rpc",
        ],
    ),
    // The command. The facade, the C libraries and the rig are for its tests.
    (
        "ropewalk-cli",
        &[
            "ropewalk",
            "ropewalk-bench",
            "ropewalk-checkpoint",
            "ropewalk-checkpoint-c",
            "ropewalk-fabric",
            "ropewalk-membership",
            "ropewalk-names",
            "ropewalk-launch",
            "ropewalk-openfoam",
            "ropewalk-output-file",
            "ropewalk-plot",
            "ropewalk-pmi-c",
            "ropewalk-pmi2-c",
            "ropewalk-psdm",
            "ropewalk-reduce",
            "ropewalk-reduce-core",
            "ropewalk-reduce-files",
            "ropewalk-rig",
            "ropewalk-rpc",
            "ropewalk-sim",
        ],
    ),
    (
        "ropewalk-fuzz-replay",
        &[
            "ropewalk-agent-link",
            "ropewalk-checkpoint",
            "ropewalk-cli",
            "ropewalk-fabric",
            "ropewalk-fabric-ofi",
            "ropewalk-launch-core",
            "ropewalk-openfoam",
            "ropewalk-pmi",
            "ropewalk-psdm",
            "ropewalk-reduce-files",
            "ropewalk-rpc",
        ],
    ),
    (
        "xtask",
        &[
            "ropewalk-launch",
            "ropewalk-names",
            "ropewalk-openfoam",
            "ropewalk-openfoam-trials",
            "ropewalk-plot",
            "ropewalk-reduce-core",
            "ropewalk-rig",
            "ropewalk-sim",
        ],
    ),
];

/// The packages that decide and do nothing else: they stand on each other only.
const CORES: &[&str] = &[
    "ropewalk-checkpoint-core",
    "ropewalk-launch-core",
    "ropewalk-membership",
    "ropewalk-names",
    "ropewalk-pmi",
    "ropewalk-reduce-core",
    "ropewalk-sim",
];

/// The foreign packages that a core may use. None of them can open a socket or a file, tell the time or draw
/// randomness.
const FOREIGN_OF_CORES: &[&str] = &[
    "blake3",
    "bstr",
    "bytes",
    "crc32c",
    "litemap",
    "postcard",
    "rand_core",
    "rand_pcg",
    "serde",
    "thiserror",
    "zeroize",
];

/// Every dependency that the tables do not allow, one line each.
pub(crate) fn broken(packages: &[Package]) -> Vec<String> {
    let mut broken = judge(packages, LAYERS);
    broken.extend(impure_cores(packages));
    broken
}

/// Every dependency of a core, other than of its tests, on a package that could do more than decide.
fn impure_cores(packages: &[Package]) -> Vec<String> {
    let mut broken = Vec::new();
    let cores = packages
        .iter()
        .filter(|package| CORES.contains(&package.name.as_str()));
    for core in cores {
        for dependency in &core.dependencies {
            let name = dependency.name.as_str();
            let is_for_tests = dependency.kind.as_deref() == Some("dev");
            let allowed = if dependency.path.is_some() {
                CORES
            } else {
                FOREIGN_OF_CORES
            };
            if !is_for_tests && !allowed.contains(&name) {
                broken.push(format!(
                    "{}: must not depend on {name}: a core does no I/O, keeps no time and draws no randomness (see \
                     FOREIGN_OF_CORES in xtask/src/check/layers.rs)",
                    core.name
                ));
            }
        }
    }
    broken
}

fn judge(packages: &[Package], layers: &[(&str, &[&str])]) -> Vec<String> {
    let layers: BTreeMap<_, _> = layers.iter().copied().collect();
    let mut broken = Vec::new();
    for package in packages {
        let Some(allowed) = layers.get(package.name.as_str()) else {
            broken.push(format!(
                "{}: stands in no layer; give it a line in xtask/src/check/layers.rs and a paragraph in \
                 ARCHITECTURE.md",
                package.name
            ));
            continue;
        };
        let mut below = BTreeSet::new();
        let mut further = allowed.to_vec();
        while let Some(used) = further.pop() {
            for &name in layers.get(used).copied().unwrap_or_default() {
                if below.insert(name) {
                    further.push(name);
                }
            }
        }
        for dependency in package
            .dependencies
            .iter()
            .filter(|dependency| dependency.path.is_some())
        {
            let name = dependency.name.as_str();
            let is_for_tests = dependency.kind.as_deref() == Some("dev");
            // A package's tests see what is behind its features when it depends on itself for them.
            let is_itself = name == package.name;
            if allowed.contains(&name) || (is_for_tests && (below.contains(name) || is_itself)) {
                continue;
            }
            broken.push(format!(
                "{}: must not depend on {} (dependencies point down: see ARCHITECTURE.md)",
                package.name, dependency.name
            ));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::packages::Dependency;

    fn package(name: &str, ours: &[&str], foreign: &[&str]) -> Package {
        let dependency = |name: &&str, path: Option<&str>| Dependency {
            name: (*name).to_owned(),
            kind: None,
            path: path.map(str::to_owned),
        };
        Package {
            name: name.to_owned(),
            dependencies: (ours.iter().map(|name| dependency(name, Some("/somewhere"))))
                .chain(foreign.iter().map(|name| dependency(name, None)))
                .collect(),
        }
    }

    /// A dependency that points up, or a package without a layer, is found; others are not.
    #[test]
    fn finds_dependencies_that_point_up() {
        let packages = [
            package("ropewalk-fabric", &["ropewalk-membership"], &["bytes"]),
            package("ropewalk-membership", &["ropewalk-reduce"], &["serde"]),
            package("stranger", &[], &[]),
        ];
        let broken = judge(&packages, LAYERS);
        assert_eq!(broken.len(), 2, "{broken:?}");
        assert!(broken[0].starts_with("ropewalk-membership: must not depend on ropewalk-reduce"));
        assert!(broken[1].starts_with("stranger: stands in no layer"));
    }

    /// Tests may use what stands further below and their own package, but nothing above.
    #[test]
    fn tests_reach_further_down() {
        let ours = ["ropewalk-membership", "ropewalk-launch", "ropewalk-rpc"];
        let mut rpc = package("ropewalk-rpc", &ours, &[]);
        assert_eq!(judge(std::slice::from_ref(&rpc), LAYERS).len(), 3);
        rpc.dependencies
            .iter_mut()
            .for_each(|dependency| dependency.kind = Some("dev".to_owned()));
        let broken = judge(&[rpc], LAYERS);
        assert_eq!(broken.len(), 1, "{broken:?}");
        assert!(broken[0].contains("ropewalk-launch"));

        let mut checkpoint = package("ropewalk-checkpoint", &["ropewalk-membership"], &[]);
        assert_eq!(judge(std::slice::from_ref(&checkpoint), LAYERS).len(), 1);
        checkpoint.dependencies[0].kind = Some("dev".to_owned());
        assert_eq!(judge(&[checkpoint], LAYERS), [""; 0]);
    }

    /// A core on a driver, or on a foreign package that can do I/O, is found; what its tests use is not.
    #[test]
    fn finds_cores_that_could_do_io() {
        let mut core = package(
            "ropewalk-launch-core",
            &["ropewalk-names", "ropewalk-fabric"],
            &["serde", "tokio"],
        );
        let broken = impure_cores(std::slice::from_ref(&core));
        assert_eq!(broken.len(), 2, "{broken:?}");
        assert!(broken[0].starts_with("ropewalk-launch-core: must not depend on ropewalk-fabric"));
        assert!(broken[1].starts_with("ropewalk-launch-core: must not depend on tokio"));
        core.dependencies
            .iter_mut()
            .for_each(|dependency| dependency.kind = Some("dev".to_owned()));
        assert_eq!(impure_cores(&[core]), [""; 0]);
    }

    /// The table itself has no cycle: each package stands below all that may use it.
    #[test]
    fn the_table_points_down() {
        for (at, (name, allowed)) in LAYERS.iter().enumerate() {
            for used in *allowed {
                let below = LAYERS[..at].iter().any(|(name, _)| name == used);
                assert!(
                    below,
                    "{name} may use {used}, which does not stand before it in the table"
                );
            }
        }
    }
}
