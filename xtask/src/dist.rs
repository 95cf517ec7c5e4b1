//! The archives that are handed on: a tarball, and a Debian package of the same files.

mod debian_package;
mod trial;

use std::{
    collections::BTreeSet,
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::Context;

use crate::{
    project,
    shell::{cargo, output, program, run, succeeds},
};

/// Which files the archives contain.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Packs what the tests build, which takes less time to build and more to run
    #[arg(long)]
    debug: bool,
    /// Installs each archive in a folder of its own, uses it there and removes it again
    #[arg(long)]
    test: bool,
}

/// Makes the archives in `target/dist`, and prints where they are.
///
/// # Errors
/// If something cannot be built or packed, or a test of an archive fails.
pub(crate) fn dist(options: &Options) -> anyhow::Result<()> {
    let archives = make(options.debug)?;
    println!("{}", archives.tarball.display());
    if let Some(package) = &archives.debian {
        println!("{}", package.display());
    }
    if options.test {
        if !options.debug {
            trial::is_small(&archives)?;
        }
        trial::use_all(&archives)?;
    }
    Ok(())
}

/// Makes the archives of what the tests build, and uses them.
///
/// # Errors
/// If one cannot be made, or a test of it fails.
pub(crate) fn test() -> anyhow::Result<()> {
    trial::use_all(&make(true)?)
}

/// Files to hand on.
struct Archives {
    /// The folder that is packed.
    tree: PathBuf,
    tarball: PathBuf,
    /// Only where Debian's tools are.
    debian: Option<PathBuf>,
}

/// How much time goes into compression.
#[derive(Clone, Copy)]
enum Effort {
    /// For archives that a test unpacks at once.
    Little,
    /// For those that are handed on.
    Much,
}

/// Executables and libraries as cargo names them, and their places in the archives.
const BUILT: &[(&str, &str)] = &[
    ("ropewalk", "bin/ropewalk"),
    ("ropewalk-demo-worker", "bin/ropewalk-demo-worker"),
    ("librw_checkpoint.so", "lib/librw_checkpoint.so.0"),
    // Where the command looks for them, apart from Slurm's libraries of the same names.
    ("libpmi.so", "lib/ropewalk/libpmi.so.0"),
    ("libpmi2.so", "lib/ropewalk/libpmi2.so.0"),
];

/// Names by which linkers look for libraries, and the files that these are.
const LINKS: &[(&str, &str)] = &[
    ("lib/librw_checkpoint.so", "librw_checkpoint.so.0"),
    ("lib/ropewalk/libpmi.so", "libpmi.so.0"),
    ("lib/ropewalk/libpmi2.so", "libpmi2.so.0"),
];

/// Files of the repository, and their places in the archives.
const KEPT: &[(&str, &str)] = &[
    (
        "crates/checkpoint-c/include/rw_checkpoint.h",
        "include/rw_checkpoint.h",
    ),
    ("crates/pmi-c/include/pmi.h", "include/ropewalk/pmi.h"),
    ("crates/pmi2-c/include/pmi2.h", "include/ropewalk/pmi2.h"),
    ("docs/recipes/kubernetes/kubexec", "lib/ropewalk/kubexec"),
    (
        "docs/recipes/systemd/ropewalk-nameserver.service",
        "lib/systemd/user/ropewalk-nameserver.service",
    ),
    ("CHANGELOG.md", "share/doc/ropewalk/CHANGELOG.md"),
    ("LICENSE-APACHE", "share/doc/ropewalk/LICENSE-APACHE"),
    ("LICENSE-MIT", "share/doc/ropewalk/LICENSE-MIT"),
    ("README.md", "share/doc/ropewalk/README.md"),
];

/// Shells, and where they look for the completions of a command.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "share/bash-completion/completions/ropewalk"),
    ("fish", "share/fish/vendor_completions.d/ropewalk.fish"),
    ("zsh", "share/zsh/vendor-completions/_ropewalk"),
];

/// The recipes, a folder of the repository, and their place in the archives.
const RECIPES: (&str, &str) = ("docs/recipes", "share/doc/ropewalk/recipes");

const PAGES: &str = "share/man/man1";

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Builds and packs.
fn make(debug: bool) -> anyhow::Result<Archives> {
    let target = project::target()?;
    let (built, effort) = match debug {
        true => (project::build()?, Effort::Little),
        false => {
            let words = "build --release --locked -p ropewalk-cli -p ropewalk-checkpoint-c -p ropewalk-pmi-c \
                         -p ropewalk-pmi2-c";
            run(cargo(&words.split(' ').collect::<Vec<_>>()))?;
            (target.join("release"), Effort::Much)
        }
    };
    let folder = target.join("dist");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let unnamed = folder.join("unnamed");
    lay_out(&built, &unnamed)?;
    let needed = libc_version(&unnamed)?;
    let name = format!(
        "ropewalk-{VERSION}-{}-linux-glibc{}.{}",
        env::consts::ARCH,
        needed.0,
        needed.1
    );
    let tree = folder.join(&name);
    fs::rename(unnamed, &tree)?;
    let tarball = folder.join(format!("{name}.tar.gz"));
    pack(&folder, &name, &tarball, effort)?;
    let debian = match succeeds(program("dpkg-deb", &["--version"])) {
        true => Some(debian_package::build(&folder, &tree, needed, effort)?),
        false => None,
    };
    Ok(Archives {
        tree,
        tarball,
        debian,
    })
}

/// Fills a folder as it lies below a prefix such as `/usr`.
fn lay_out(built: &Path, tree: &Path) -> anyhow::Result<()> {
    let root = project::root();
    for (file, place) in BUILT {
        let place = with_folder(tree, place)?;
        let [from, to] = [&built.join(file), &place].map(|path| path.display().to_string());
        // A build for tests has debug information; of a release nothing is left to take away.
        run(program("strip", &["--strip-debug", "-o", &to, &from]))?;
    }
    for (link, file) in LINKS {
        symlink(file, with_folder(tree, link)?)?;
    }
    for (file, place) in KEPT {
        let from = root.join(file);
        fs::copy(&from, with_folder(tree, place)?)
            .with_context(|| format!("cannot copy {}", from.display()))?;
    }
    let (recipes, place) = RECIPES;
    let mut copy = program("cp", &["--recursive", recipes]);
    copy.arg(with_folder(tree, place)?);
    run(copy)?;
    let command = tree.join("bin/ropewalk").display().to_string();
    for (shell, place) in COMPLETIONS {
        let script = output(program(&command, &["completions", shell]))?;
        fs::write(with_folder(tree, place)?, script)?;
    }
    let pages = tree.join(PAGES);
    run(program(&command, &["man", &pages.display().to_string()]))?;
    // Without name and time the same page is the same file.
    let mut gzip = program("gzip", &["-9n"]);
    for entry in fs::read_dir(&pages)? {
        gzip.arg(entry?.path());
    }
    run(gzip)
}

/// The path of a file in a folder that exists.
fn with_folder(tree: &Path, place: &str) -> anyhow::Result<PathBuf> {
    let path = tree.join(place);
    let folder = path.parent().context("a file in an archive has no folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(path)
}

/// Packs a folder into a tarball that is the same whenever it is made.
fn pack(folder: &Path, name: &str, tarball: &Path, effort: Effort) -> anyhow::Result<()> {
    let compression = match effort {
        Effort::Little => "gzip -1n",
        Effort::Much => "gzip -9n",
    };
    let mut tar = program("tar", &["--create", "--sort=name", "--mtime=@0"]);
    tar.args(["--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX"])
        .args(["--use-compress-program", compression, "--file"])
        .arg(tarball)
        .arg("--directory")
        .arg(folder)
        .arg(name);
    run(tar)
}

/// The newest version of the C library that a symbol of our files needs.
fn libc_version(tree: &Path) -> anyhow::Result<(u32, u32)> {
    let mut versions = BTreeSet::new();
    for (_, place) in BUILT {
        let path = tree.join(place);
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        versions.extend(libc_versions(&bytes));
    }
    versions
        .last()
        .copied()
        .context("no file needs a C library, so none is an executable")
}

/// Every version in the table of symbols: `GLIBC_2.34`.
fn libc_versions(bytes: &[u8]) -> impl Iterator<Item = (u32, u32)> {
    const NAME: &[u8] = b"GLIBC_";
    let begins = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(NAME));
    begins.filter_map(|at| {
        let text = &bytes[at + NAME.len()..];
        let length = text
            .iter()
            .position(|byte| !byte.is_ascii_digit() && *byte != b'.')?;
        let mut parts = std::str::from_utf8(&text[..length]).ok()?.split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Versions are numbers, not text, and other words that begin alike are none.
    #[test]
    fn versions_of_the_c_library_are_found() {
        let bytes = b"\0GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.2.5\0GLIBC_PRIVATE\0GLIBC_";
        let found: BTreeSet<_> = libc_versions(bytes).collect();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [(2, 2), (2, 9), (2, 34)]);
    }
}
