//! Each foreign crate that we use has a line in `docs/dependencies.md` that says what it spares us.

use std::collections::BTreeSet;

use super::packages::Package;

/// Every crate that is used and has no line in `page`, and every line there for one that is not.
pub(crate) fn broken(packages: &[Package], page: &str) -> Vec<String> {
    let used: BTreeSet<&str> = packages
        .iter()
        .flat_map(|package| &package.dependencies)
        .filter(|dependency| dependency.path.is_none())
        .map(|dependency| dependency.name.as_str())
        .collect();
    let named: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" |").next())
        .filter(|cell| *cell != "crate")
        .flat_map(|cell| cell.split(", "))
        .collect();
    let unexplained = used
        .difference(&named)
        .map(|name| format!("docs/dependencies.md: {name} has no line"));
    let gone = named
        .difference(&used)
        .map(|name| format!("docs/dependencies.md: {name} is not used"));
    unexplained.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::packages::Dependency;

    /// A crate without a line is found, and so is a line without its crate; our own crates need none.
    #[test]
    fn lines_and_crates_belong_together() {
        let dependency = |name: &str, path: Option<&str>| Dependency {
            name: name.to_owned(),
            kind: None,
            path: path.map(str::to_owned),
        };
        let package = Package {
            name: "sample".to_owned(),
            dependencies: vec![
                dependency("bytes", None),
                dependency("hmac", None),
                dependency("ours", Some("/")),
            ],
        };
        let page = "| crate | what for |\n|---|---|\n| hmac, sha2 | proofs |\n";
        let expected = [
            "docs/dependencies.md: bytes has no line",
            "docs/dependencies.md: sha2 is not used",
        ];
        assert_eq!(broken(&[package], page), expected);
    }
}
