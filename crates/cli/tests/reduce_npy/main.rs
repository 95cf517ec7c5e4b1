//! `ropewalk reduce`: its results beside NumPy's, its inputs and outputs, its processes' ends.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod hosts;
mod inputs;
mod losses;

use std::{
    fs,
    os::unix::{
        fs::{FileTypeExt, PermissionsExt, symlink},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use tempfile::TempDir;

/// For every type and operation, and any relation of files to processes, the result is NumPy's: to the last bit for
/// what is not rounded, NaN and the signs of zeros included, to rounding otherwise. Integers overflow.
#[test]
fn results_are_those_of_numpy() {
    let folder = arrays(&format!(
        "
{NUMPY_TYPES}
for case, t in enumerate(TYPES):
    for op in 'sum prod mean min max any all'.split():
        for i in range(case % 4 + 2):
            np.save(f'{{t}}-{{op}}-{{i}}.npy', stored(values(t, op, i), t))
"
    ));
    let mut cases = 0;
    let types = "V2 b1 c8 c16 f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8";
    for (case, element) in types.split(' ').enumerate() {
        for (at, op) in ["sum", "prod", "mean", "min", "max", "any", "all"]
            .iter()
            .enumerate()
        {
            let files = case % 4 + 2;
            let processes = [1, 2, 3, 8][at % 4].to_string();
            let inputs = (0..files).map(|i| format!("{element}-{op}-{i}.npy"));
            let output = format!("{element}-{op}.out.npy");
            let fixed = ["--op", op, "-n", &processes, "-o", &output].map(str::to_owned);
            let arguments: Vec<String> = fixed.into_iter().chain(inputs).collect();
            succeed(&folder, &arguments);
            cases += 1;
        }
    }
    assert_eq!(cases, 105);
    python(
        folder.path(),
        &format!(
            "
{NUMPY_TYPES}
import glob
reduced = 0
for path in glob.glob('*.out.npy'):
    t, op = path.split('.')[0].split('-')
    paths = sorted(glob.glob(f'{{t}}-{{op}}-?.npy'))
    parts = np.stack([understood(np.load(p), t) for p in paths])
    expected = dict(
        sum=lambda: np.sum(parts, axis=0, dtype=parts.dtype if t != 'b1' else None),
        prod=lambda: np.prod(parts, axis=0, dtype=parts.dtype if t != 'b1' else None),
        mean=lambda: np.mean(parts, axis=0),
        min=lambda: np.minimum.reduce(parts, axis=0),
        max=lambda: np.maximum.reduce(parts, axis=0),
        any=lambda: np.any(parts, axis=0),
        all=lambda: np.all(parts, axis=0),
    )[op]()
    result = np.load(path)
    is_bfloat = t == 'V2' and op not in ('any', 'all')
    assert (result.dtype.str == '|V2') if is_bfloat else (result.dtype == expected.dtype), path
    result = understood(result, t) if is_bfloat else result
    assert result.shape == expected.shape, path
    if expected.dtype.kind in 'fc' and op in ('sum', 'prod', 'mean'):
        rtol = {{'V2': 0.03, 'f2': 0.004, 'f4': 1e-6, 'c8': 1e-5}}.get(t, 1e-13)
        np.testing.assert_allclose(result, expected, rtol=rtol, err_msg=path)
    else:
        np.testing.assert_array_equal(result, expected, err_msg=path)
        if expected.dtype.kind == 'f':
            np.testing.assert_array_equal(np.signbit(result), np.signbit(expected), err_msg=path)
        if expected.dtype.kind == 'c':
            for part in 'real', 'imag':
                signs = [np.signbit(getattr(array, part)) for array in (result, expected)]
                np.testing.assert_array_equal(*signs, err_msg=path)
    reduced += 1
assert reduced == 105, reduced
"
        ),
    );
}

/// The types, and arrays of each. NumPy knows bf16 only with the package `ml_dtypes`, which saves it as `<V2`: here it
/// is the upper half of an f4.
const NUMPY_TYPES: &str = "
TYPES = 'V2 b1 c8 c16 f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8'.split()

def values(t, op, i):
    is_compared = op in ('min', 'max', 'any', 'all')
    if t == 'b1':
        return rng.random((3, 7)) < (0.3 if op == 'any' else 0.7)
    if t[0] in 'iu':
        return rng.integers(-100, 100, (3, 7)) * (rng.random((3, 7)) < 0.8)
    if is_compared:
        special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan]
        real, imaginary = rng.choice(special, (2, 3, 7), p=[0.3, 0.3, 0.1, 0.1, 0.08, 0.08, 0.04])
    else:
        real, imaginary = rng.uniform(0.5, 1.5, (2, 3, 7))
        if t == 'f8':
            real[0, i] = np.nan
    if t[0] != 'c':
        return real
    together = np.empty((3, 7), 'c16')
    together.real, together.imag = real, imaginary
    return together

def stored(array, t):
    if t == 'V2':
        return (array.astype('f4').view('u4') >> 16).astype('u2').view('V2')
    return array.astype('i8').astype(t) if t[0] in 'iu' else array.astype(t)

def understood(array, t):
    return (array.view('u2').astype('u4') << 16).view('f4') if t == 'V2' else array
";

/// Big-endian files, arrays in Fortran's order, scalars and empty arrays are reduced as NumPy would.
#[test]
fn unusual_arrays_are_read_as_numpy_reads_them() {
    let folder = arrays(
        "
for i in range(3):
    values = rng.integers(0, 1000, (4, 5))
    np.save(f'big-{i}.npy', values.astype('>i4' if i else '<i4'))
    np.save(f'fortran-{i}.npy', np.asfortranarray(values))
    np.save(f'scalar-{i}.npy', np.float64(i + 0.5))
    np.save(f'empty-{i}.npy', np.zeros((0, 3), 'u2'))
    np.save(f'complex-{i}.npy', (values + 1j * values[::-1]).astype('>c8' if i else '<c8'))
    np.save(f'half-{i}.npy', (values % 16).astype('>f2'))
",
    );
    for kind in ["big", "fortran", "scalar", "empty", "complex", "half"] {
        let names = [0, 1, 2].map(|i| format!("{kind}-{i}.npy"));
        let output = format!("{kind}.out.npy");
        let fixed = ["--op", "sum", "-n", "2", "-o", &output].map(str::to_owned);
        succeed(&folder, &[&fixed[..], &names].concat());
    }
    python(
        folder.path(),
        "
for kind in 'big fortran scalar empty complex half'.split():
    parts = [np.load(f'{kind}-{i}.npy') for i in range(3)]
    result = np.load(f'{kind}.out.npy')
    np.testing.assert_array_equal(result, sum(parts[1:], parts[0]), err_msg=kind)
    assert result.shape == parts[0].shape and result.dtype == parts[0].dtype.newbyteorder('='), kind
assert np.load('fortran.out.npy').flags.f_contiguous
",
    );
}

/// Floats of very different size, whose sum depends on the order, give the same bits in every run, on any number of
/// processes.
#[test]
fn float_sums_are_the_same_in_every_run() {
    let folder = arrays(
        "
for i in range(7):
    np.save(f'{i}.npy', (rng.normal(size=50_000) * 10.0 ** rng.integers(-6, 6, 50_000)).astype('f4'))
",
    );
    let inputs = (0..7).map(|i| format!("{i}.npy"));
    let run = |processes: &str, output: &str| {
        let fixed = ["--op", "sum", "-n", processes, "-o", output].map(str::to_owned);
        succeed(
            &folder,
            &fixed.into_iter().chain(inputs.clone()).collect::<Vec<_>>(),
        );
        fs::read(folder.path().join(output)).unwrap()
    };
    let first = run("5", "first.npy");
    for processes in ["5", "1", "2", "7"] {
        assert!(
            run(processes, "again.npy") == first,
            "{processes} processes differ"
        );
    }
}

/// Files that cannot be reduced together, or a place where nothing can be written, give one line that names the
/// culprit, exit code 2, and no output.
#[test]
fn faulty_files_are_named() {
    let folder = arrays(
        "
for i in range(4):
    np.save(f'good-{i}.npy', np.zeros((3, 4), 'f4'))
np.save('shape.npy', np.zeros((4, 3), 'f4'))
np.save('type.npy', np.zeros((3, 4), 'f8'))
np.save('order.npy', np.asfortranarray(np.zeros((3, 4), 'f4')))
np.save('long-double.npy', np.zeros((3, 4), np.longdouble))
np.save('structure.npy', np.zeros(3, [('a', 'f4')]))
open('text.npy', 'w').write('no array')
open('nothing.npy', 'w')
good = open('good-0.npy', 'rb').read()
open('cut.npy', 'wb').write(good[:-1])
open('cut-header.npy', 'wb').write(good[:50])
open('long.npy', 'wb').write(good + b'x')
open('version.npy', 'wb').write(good[:6] + b'\\x09' + good[7:])
import os
os.mkdir('folder.npy')
os.mkfifo('pipe.npy')
",
    );
    let faulty = |inputs: &[&str], output: &str, culprit: &str, reason: &str| {
        let before = listing(folder.path());
        let fixed = ["--op", "sum", "-n", "2", "-o", output].map(str::to_owned);
        let inputs = inputs.iter().map(|&input| input.to_owned());
        let ran = reduce(&folder, &fixed.into_iter().chain(inputs).collect::<Vec<_>>());
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(2), "{culprit}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        let expected = format!("ropewalk reduce: {culprit}: ");
        assert!(said.starts_with(&expected) && said.contains(reason), "{said}");
        assert_eq!(listing(folder.path()), before);
    };
    for (culprit, reason) in [
        (
            "shape.npy",
            "its shape is (4, 3), that of most of the others (3, 4)",
        ),
        (
            "type.npy",
            "its element type is f64, that of most of the others f32",
        ),
        ("order.npy", "its order of elements is Fortran's"),
        ("order.npy", "save what numpy.ascontiguousarray makes of it"),
        ("long-double.npy", "its elements are <f16"),
        ("structure.npy", "its elements are structures"),
        ("text.npy", "no .npy file"),
        ("nothing.npy", "truncated"),
        ("cut.npy", "truncated: it has 47 of the 48 bytes"),
        ("cut-header.npy", "truncated"),
        ("long.npy", "1 bytes follow"),
        ("version.npy", "version 9.0"),
        ("folder.npy", "not a regular file"),
        ("pipe.npy", "not a regular file"),
        ("missing.npy", "No such file or directory"),
    ] {
        faulty(&["good-0.npy", culprit, "good-1.npy"], "out.npy", culprit, reason);
    }
    // The odd one is the one in the minority, wherever it stands; of two files, the second.
    faulty(
        &["type.npy", "good-0.npy", "good-1.npy"],
        "out.npy",
        "type.npy",
        "f64",
    );
    faulty(
        &["good-0.npy", "type.npy"],
        "out.npy",
        "type.npy",
        "f64, that of good-0.npy f32",
    );
    faulty(
        &["good-0.npy"],
        "missing/out.npy",
        "missing/out.npy",
        "cannot write to its folder",
    );
    faulty(&["good-0.npy"], "folder.npy", "folder.npy", "it is a folder");
}

/// An output that exists is replaced, one that stands among the inputs too, and its permissions are those that any
/// new file gets.
#[test]
fn outputs_are_replaced_in_one_step() {
    let folder = arrays("np.save('a.npy', np.array([1, 2], 'i4'))");
    let arguments = ["--op", "sum", "-n", "2", "-o", "a.npy", "a.npy", "a.npy"].map(str::to_owned);
    succeed(&folder, &arguments);
    succeed(&folder, &arguments);
    python(folder.path(), "assert np.load('a.npy').tolist() == [4, 8]");
    assert_eq!(listing(folder.path()), [PathBuf::from("a.npy")]);
    let ordinary = folder.path().join("ordinary");
    fs::write(&ordinary, "").unwrap();
    let permissions = |path: &Path| fs::metadata(path).unwrap().permissions();
    assert_eq!(permissions(&folder.path().join("a.npy")), permissions(&ordinary));
}

/// The kind of file at the output's place decides how it is written: links stay and their targets are replaced, devices
/// and pipes are written into, and `-` is the standard output. A replaced file keeps its permissions.
#[test]
fn outputs_go_where_their_path_leads() {
    let folder =
        arrays("np.save('a.npy', np.array([1, 2], 'i4'))\nnp.save('expected.npy', np.array([2, 4], 'i4'))");
    let at = |name: &str| folder.path().join(name);
    let expected = fs::read(at("expected.npy")).unwrap();
    let reduce_into = |output: &str| {
        let arguments = ["--op", "sum", "-n", "2", "-o", output, "a.npy", "a.npy"].map(str::to_owned);
        let ran = reduce(&folder, &arguments);
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.success() && said.is_empty(), "{output}: {said}");
        ran.stdout
    };
    fs::write(at("target.npy"), "before").unwrap();
    fs::set_permissions(at("target.npy"), fs::Permissions::from_mode(0o600)).unwrap();
    symlink("target.npy", at("link.npy")).unwrap();
    symlink("missing.npy", at("dangling.npy")).unwrap();
    for (link, target) in [("link.npy", "target.npy"), ("dangling.npy", "missing.npy")] {
        assert_eq!(reduce_into(link), b"");
        assert_eq!(fs::read_link(at(link)).unwrap(), Path::new(target));
        assert_eq!(fs::read(at(target)).unwrap(), expected);
    }
    let permissions = fs::metadata(at("target.npy")).unwrap().permissions();
    assert_eq!(permissions.mode() & 0o7777, 0o600);

    assert_eq!(reduce_into("-"), expected);
    assert_eq!(reduce_into("/dev/stdout"), expected);
    // A link, so that a mistake does not cost this machine its device.
    symlink("/dev/null", at("null.npy")).unwrap();
    assert_eq!(reduce_into("null.npy"), b"");
    let null = fs::metadata("/dev/null").unwrap();
    assert!(null.file_type().is_char_device());

    let made = Command::new("mkfifo").arg(at("pipe")).status().unwrap();
    assert!(made.success());
    let pipe = at("pipe");
    let reader = std::thread::spawn(move || fs::read(pipe).unwrap());
    assert_eq!(reduce_into("pipe"), b"");
    assert_eq!(reader.join().unwrap(), expected);
    assert!(fs::metadata(at("pipe")).unwrap().file_type().is_fifo());
}

/// A socket and a pipe that nobody reads are refused in time, and are still there.
#[test]
fn outputs_that_take_nothing_are_refused() {
    let folder = arrays("np.save('a.npy', np.array([1, 2], 'i4'))");
    let _listener = UnixListener::bind(folder.path().join("socket")).unwrap();
    let made = Command::new("mkfifo").arg(folder.path().join("pipe")).status();
    assert!(made.unwrap().success());
    let before = listing(folder.path());
    for (output, reason) in [
        ("socket", "socket: it is a socket"),
        (
            "pipe",
            "pipe: it is a pipe, and nobody opened it for reading within 10 s",
        ),
    ] {
        let ran = reduce(
            &folder,
            &["--op", "sum", "-o", output, "a.npy"].map(str::to_owned),
        );
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(said, format!("ropewalk reduce: {reason}\n"));
        assert_eq!(ran.status.code(), Some(2));
    }
    assert_eq!(listing(folder.path()), before);
}

/// A launcher that is killed at any moment leaves the old output, or the whole new one, and no other file.
#[test]
fn killed_launchers_leave_no_files() {
    let folder = arrays("for i in range(2):\n    np.save(f'{i}.npy', np.ones(200_000))");
    let [before, output] = ["before", "out.npy"].map(|name| folder.path().join(name));
    fs::write(&before, "before").unwrap();
    let whole = {
        let arguments = ["--op", "sum", "-o", "out.npy", "0.npy", "1.npy"].map(str::to_owned);
        succeed(&folder, &arguments);
        fs::read(&output).unwrap()
    };
    for after in (0..20).map(|step| Duration::from_millis(step * 8)) {
        fs::copy(&before, &output).unwrap();
        let mut launcher = Command::new(env!("CARGO_BIN_EXE_ropewalk"))
            .args([
                "reduce", "--op", "sum", "-n", "2", "-o", "out.npy", "0.npy", "1.npy",
            ])
            .current_dir(folder.path())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(after);
        launcher.kill().unwrap();
        launcher.wait().unwrap();
        assert_eq!(
            listing(folder.path()),
            ["0.npy", "1.npy", "before", "out.npy"].map(PathBuf::from),
            "after {after:?}"
        );
        let found = fs::read(&output).unwrap();
        assert!(found == b"before" || found == whole, "after {after:?}");
    }
}

/// A folder with the arrays that a Python script makes in it.
fn arrays(script: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("there is room for temporary files");
    python(folder.path(), script);
    folder
}

fn python(folder: &Path, script: &str) {
    let script = format!("import numpy as np\nrng = np.random.default_rng(20)\n{script}");
    let ran = Command::new("/usr/bin/python3")
        .args(["-W", "ignore", "-c", &script])
        .current_dir(folder)
        .output()
        .expect("Debian's python3 runs");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(
        !said.contains("No module named 'numpy'"),
        "NumPy is missing: apt-get install python3-numpy"
    );
    assert!(ran.status.success(), "{said}");
}

fn reduce(folder: &TempDir, arguments: &[String]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ropewalk"))
        .arg("reduce")
        .args(arguments)
        .current_dir(folder.path())
        .output()
        .expect("the command was built for this test")
}

fn succeed(folder: &TempDir, arguments: &[String]) {
    let ran = reduce(folder, arguments);
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(
        ran.status.success() && said.is_empty(),
        "{arguments:?}: {}: {said}",
        ran.status
    );
}

fn listing(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder is ours");
    let mut names: Vec<PathBuf> = entries
        .map(|entry| entry.expect("the folder is ours").file_name().into())
        .collect();
    names.sort();
    names
}
