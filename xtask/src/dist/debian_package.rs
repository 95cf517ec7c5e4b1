//! The Debian package.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{Effort, VERSION};
use crate::shell::{output, program, run};

/// Packs a tree, which lies below `/usr` where the package is installed.
///
/// # Errors
/// If Debian's tools fail.
pub(super) fn build(folder: &Path, tree: &Path, libc: (u32, u32), effort: Effort) -> anyhow::Result<PathBuf> {
    let architecture = output(program("dpkg", &["--print-architecture"]))?;
    let architecture = architecture.trim();
    let root = folder.join("debian");
    fs::create_dir_all(root.join("DEBIAN"))?;
    let mut copy = program("cp", &["--archive"]);
    copy.arg(tree).arg(root.join("usr"));
    run(copy)?;
    let document = root.join("usr/share/doc/ropewalk/copyright");
    fs::write(document, COPYRIGHT)?;
    let mut sums = program("sh", &["-c", SUMS]);
    sums.current_dir(&root);
    fs::write(root.join("DEBIAN/md5sums"), output(sums)?)?;
    let mut size = program("du", &["--summarize", "--block-size=1024"]);
    size.arg(root.join("usr"));
    let size = output(size)?;
    let size = size.split_whitespace().next().unwrap_or_default();
    fs::write(root.join("DEBIAN/control"), control(architecture, libc, size))?;
    // The linker's cache knows the library of checkpoints from then on.
    fs::write(root.join("DEBIAN/triggers"), "activate-noawait ldconfig\n")?;

    let package = folder.join(format!("ropewalk_{VERSION}_{architecture}.deb"));
    let compression: &[&str] = match effort {
        Effort::Little => &["-Zgzip", "-z1"],
        Effort::Much => &["-Zxz"],
    };
    let mut build = program("dpkg-deb", &["--build", "--root-owner-group"]);
    build.args(compression).arg(&root).arg(&package);
    run(build)?;
    fs::remove_dir_all(root)?;
    Ok(package)
}

/// The checksums by which `dpkg --verify` finds changed files.
const SUMS: &str = "find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum";

fn control(architecture: &str, (major, minor): (u32, u32), size: &str) -> String {
    format!(
        "Package: ropewalk\n\
         Version: {VERSION}\n\
         Architecture: {architecture}\n\
         Maintainer: The ropewalk developers <ropewalk@localhost>\n\
         Installed-Size: {size}\n\
         Depends: libc6 (>= {major}.{minor}), libgcc-s1\n\
         Recommends: openssh-client\n\
         Suggests: libpmix2, man-db, bash-completion\n\
         Section: net\n\
         Priority: optional\n\
         Description: runtime that keeps a parallel job going\n \
         Starts the processes of a job as mpiexec does, restarts and respawns them\n \
         when they fail, and reduces their data exactly when some are killed.\n \
         .\n \
         The package contains the command, the PMI libraries, and the library of\n \
         checkpoints for C with its header.\n"
    )
}

const COPYRIGHT: &str = "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: ropewalk

Files: *
Copyright: 2026 The ropewalk developers
License: Apache-2.0 or Expat

License: Apache-2.0
 The text is in LICENSE-APACHE beside this file, and in /usr/share/common-licenses/Apache-2.0.

License: Expat
 The text is in LICENSE-MIT beside this file.
";
