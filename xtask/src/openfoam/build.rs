//! Builds the function object `ropewalkCheckpoint`.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};

use crate::{
    debian, project,
    shell::{cargo, output, program, run},
};

/// How Rust's parts are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    Release,
    /// Built in less time, to try something.
    Dev,
}

impl Build {
    /// Where cargo puts what it builds.
    pub(super) fn folder(self) -> anyhow::Result<PathBuf> {
        let folder = match self {
            Self::Release => "release",
            Self::Dev => "debug",
        };
        Ok(project::target()?.join(folder))
    }

    /// Builds the command and the libraries. Open MPI's programs need that of PMI too.
    fn build(self) -> anyhow::Result<PathBuf> {
        if self == Self::Dev {
            return project::build();
        }
        let words = "build --release --locked -p ropewalk-cli -p ropewalk-checkpoint-c -p ropewalk-pmi-c";
        run(cargo(&words.split(' ').collect::<Vec<_>>()))?;
        self.folder()
    }
}

/// Builds the library, with OpenFOAM's headers from Debian's source package, and says where it is.
///
/// # Errors
/// If something is missing, or does not compile.
pub(crate) fn build(how: Build) -> anyhow::Result<PathBuf> {
    debian::provide_openfoam()?;
    let headers = headers()?;
    let folder = how.build()?;
    // The name by which the function object looks for it, beside itself.
    let soname = folder.join("librw_checkpoint.so.0");
    fs::copy(folder.join("librw_checkpoint.so"), &soname)?;
    let library = folder.join(ropewalk_openfoam::LIBRARY);
    let mut compiler = program("g++", FLAGS);
    compiler
        .arg("-isystem")
        .arg(headers)
        .arg("-Icrates/checkpoint-c/include")
        .arg("crates/openfoam/function-object/ropewalkCheckpoint.C")
        .arg("-o")
        .arg(&library)
        .arg(soname);
    run(compiler)?;
    Ok(library)
}

/// OpenFOAM's headers in one folder. No binary package of Debian has them.
fn headers() -> anyhow::Result<PathBuf> {
    let version = output(program(
        "dpkg-query",
        &["--show", "--showformat=${source:Version}", "libopenfoam"],
    ))?;
    let folder = project::target()?.join("openfoam").join(version.trim());
    let include = folder.join("include");
    // Links that lead nowhere are those of a target folder that was copied or moved, made when they still were
    // absolute.
    if include.join(A_HEADER).exists() {
        return Ok(include);
    }
    let source = folder.join("source");
    if !source.join(A_SOURCE).exists() {
        extract(&folder, version.trim(), &source)?;
    }
    // All in one folder, as OpenFOAM's own build has them; it is complete when it has its name.
    let making = folder.join("include.tmp");
    for old in [&making, &include] {
        if old.symlink_metadata().is_ok() {
            fs::remove_dir_all(old).with_context(|| format!("cannot remove {}", old.display()))?;
        }
    }
    fs::create_dir(&making)?;
    // Relative links, so that the target folder may be moved.
    link_sources(&source, Path::new("../source"), &making)?;
    fs::rename(making, &include)?;
    if !include.join(A_HEADER).exists() {
        bail!(
            "Debian's source package of openfoam {} has no {A_HEADER}",
            version.trim()
        );
    }
    Ok(include)
}

/// Fetches the source package and takes out of it what is compiled against.
fn extract(folder: &Path, version: &str, source: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(source)?;
    download(folder, version)?;
    let archive = fs::read_dir(folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.to_string_lossy().contains(".orig.tar."))
        .context("Debian's source package of openfoam has no file .orig.tar")?;
    let mut tar = program("tar", &["--extract", "--wildcards", "--strip-components=2"]);
    tar.arg("--file").arg(archive).arg("--directory").arg(source);
    tar.args(["*/src/OpenFOAM/*", "*/src/OSspecific/POSIX/*"]);
    run(tar)
}

/// Fetches the source package without a change to the system's own sources.
fn download(folder: &Path, version: &str) -> anyhow::Result<()> {
    let list = folder.join("debian.list");
    let release = output(program(
        "sh",
        &["-c", ". /etc/os-release && echo $VERSION_CODENAME"],
    ))?;
    let key = "/usr/share/keyrings/debian-archive-keyring.gpg";
    fs::write(
        &list,
        format!(
            "deb-src [signed-by={key}] http://deb.debian.org/debian {} main\n",
            release.trim()
        ),
    )?;
    let lists = folder.join("lists");
    fs::create_dir_all(lists.join("partial"))?;
    let apt = |arguments: &[&str]| {
        let mut command = program("apt-get", &["--quiet=2", "-o", "Dir::Etc::sourceparts=-"]);
        command
            .arg("-o")
            .arg(format!("Dir::Etc::sourcelist={}", list.display()))
            .arg("-o")
            .arg(format!("Dir::State::Lists={}", lists.display()))
            .args(arguments)
            .current_dir(folder);
        command
    };
    run(apt(&["update"]))?;
    run(apt(&[
        "source",
        "--download-only",
        &format!("openfoam={version}"),
    ]))
}

/// Links all sources below a folder, which a link calls `known_as`.
fn link_sources(from: &Path, known_as: &Path, to: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let name = path.file_name().context("a file has a name")?;
        if path.is_dir() {
            link_sources(&path, &known_as.join(name), to)?;
        } else if path.extension().is_some_and(|end| end == "H" || end == "C") {
            match symlink(known_as.join(name), to.join(name)) {
                // The first of several of one name.
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    bail!("cannot link {}: {error}", path.display());
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// One of the headers, and where it is among the sources: if it is found all are.
const A_HEADER: &str = "functionObject.H";
const A_SOURCE: &str = "OpenFOAM/db/functionObjects/functionObject/functionObject.H";

/// As Debian's OpenFOAM was compiled: double precision, labels of 32 bits.
const FLAGS: &[&str] = &[
    "-std=c++11",
    "-O2",
    "-fPIC",
    "-shared",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-DWM_DP",
    "-DWM_LABEL_SIZE=32",
    "-DNoRepository",
    "-Wl,-rpath,$ORIGIN",
];
