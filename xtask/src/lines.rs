//! Counts lines of Rust, by package: product and tests.

use std::collections::BTreeMap;

use crate::project;

/// Prints the lines of each package.
///
/// # Errors
/// If a file cannot be read.
pub(crate) fn lines() -> anyhow::Result<()> {
    let mut packages: BTreeMap<String, Count> = BTreeMap::new();
    let mut all = Count::default();
    for (path, text) in project::rust_files()? {
        let count = Count::of(&path, &text);
        packages.entry(package(&path)).or_default().add(count);
        all.add(count);
    }
    println!("{:>8} {:>8}  package", "product", "tests");
    for (name, count) in packages.iter().chain([(&"all".to_owned(), &all)]) {
        println!("{:>8} {:>8}  {name}", count.product, count.tests);
    }
    Ok(())
}

/// The folder of a package: `crates/NAME`, or a folder of the root.
fn package(path: &str) -> String {
    let mut parts = path.split('/');
    let top = parts.next().unwrap_or_default();
    match top {
        "crates" | "examples" | "benches" => format!("{top}/{}", parts.next().unwrap_or_default()),
        _ => top.to_owned(),
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    product: usize,
    tests: usize,
}

impl Count {
    /// Files of tests count as tests, and so does a module of tests at the end of a file.
    fn of(path: &str, text: &str) -> Self {
        let all = text.lines().count();
        let is_test = |part: &str| {
            let part = part.trim_end_matches(".rs");
            part == "tests" || part.ends_with("_tests") || part == "interleavings"
        };
        let product = if path.split('/').any(is_test) {
            0
        } else if text.contains("\n#[cfg(test)]\nmod tests {") {
            text.lines().take_while(|line| *line != "#[cfg(test)]").count()
        } else {
            all
        };
        Self {
            product,
            tests: all - product,
        }
    }

    fn add(&mut self, other: Self) {
        self.product += other.product;
        self.tests += other.tests;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_told_from_product() {
        let both = "fn a() {}\n\n#[cfg(test)]\nmod tests {\n}\n";
        assert_eq!(
            Count::of("crates/a/src/b.rs", both),
            Count { product: 2, tests: 3 }
        );
        let elsewhere = "#[cfg(test)]\nmod tests;\nfn a() {}\n";
        assert_eq!(
            Count::of("crates/a/src/b.rs", elsewhere),
            Count { product: 3, tests: 0 }
        );
        assert_eq!(
            Count::of("crates/a/tests/b.rs", "a\n"),
            Count { product: 0, tests: 1 }
        );
        assert_eq!(package("crates/a/src/b.rs"), "crates/a");
    }
}
