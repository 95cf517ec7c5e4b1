//! The sources of Debian's OpenFOAM, of which no binary package has the headers.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    build_error::BuildError,
    function_object::{Installation, Making, failed, run},
};

/// Makes an OpenFOAM that can compile of the source package of the version that is installed. It stays in a folder of
/// the cache, where the next call finds it.
///
/// # Errors
/// If Debian's package is not installed, or the sources cannot be fetched.
pub(crate) fn sources(cache: &Path) -> Result<Installation, BuildError> {
    if !Path::new(DIRECTORY).exists() {
        return Err(BuildError::NoOpenFoam);
    }
    let version = version()?;
    let cached = |directory: PathBuf| Installation {
        directory,
        is_sourced: false,
    };
    let directory = cache.join(format!("openfoam-{version}"));
    if directory.exists() {
        return Ok(cached(directory));
    }
    let making = Making::new(cache)?;
    let mut fetch = Command::new("bash");
    fetch
        .args(["-c", FETCH])
        .env("SOURCE_VERSION", &version)
        .current_dir(&making.folder);
    run(fetch, "bash", "fetching Debian's sources of openfoam")?;
    let made = cached(making.folder.join("openfoam"));
    made.run(PREPARE, "preparing Debian's sources of openfoam", &made.directory)?;
    match fs::rename(&made.directory, &directory) {
        // Somebody else was faster.
        Err(_) if directory.exists() => {}
        renamed => renamed.map_err(failed("place", &directory))?,
    }
    Ok(cached(directory))
}

/// The version of the source package from which the installed one was built.
fn version() -> Result<String, BuildError> {
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat=${source:Version}", "libopenfoam"]);
    let version = run(
        query,
        "dpkg-query",
        "asking for the version of Debian's package libopenfoam",
    )?;
    Ok(version.trim().to_owned())
}

/// The directory of Debian's package, which has no sources.
pub(crate) const DIRECTORY: &str = "/usr/share/openfoam";

/// Fetches the sources with lists of packages of our own, which changes nothing of the system's, and unpacks those of
/// them that are compiled against.
const FETCH: &str = r#"
set -e
. /etc/os-release
if [ "$ID" != debian ]; then
    echo "the sources are known for Debian and not for $ID: set WM_PROJECT_DIR to an OpenFOAM with sources" >&2
    exit 1
fi
mkdir -p lists/partial archives/partial
key=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb-src [signed-by=$key] http://deb.debian.org/debian $VERSION_CODENAME main" > debian.list
apt() {
    apt-get --quiet=2 -o Dir::Etc::sourceparts=- -o Dir::Etc::sourcelist="$PWD/debian.list" \
        -o Dir::State::Lists="$PWD/lists" -o Dir::Cache="$PWD" "$@"
}
apt update
apt source --download-only "openfoam=$SOURCE_VERSION"
mkdir openfoam
tar --extract --file openfoam_*.orig.tar.* --directory openfoam --strip-components=1 --wildcards \
    '*/META-INFO/*' '*/bin/*' '*/etc/*' '*/src/OSspecific/POSIX/*' '*/src/OpenFOAM/*' '*/wmake/*'
"#;

/// Links all headers into the folders where compilers look for them, and builds what `wmake` calls.
const PREPARE: &str = r#"
set -e
wmakeLnInclude -s src/OpenFOAM
wmakeLnInclude -s src/OSspecific/POSIX
"$WM_DIR/src/Allmake"
"#;
