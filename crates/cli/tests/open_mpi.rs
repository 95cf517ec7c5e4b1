//! Unmodified programs of Debian's Open MPI under `ropewalk run`, which speak PMI through our `libpmi.so`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

use rig::{PATIENCE, ROPEWALK, compile_mpi, libraries, text, write_script};

fn ropewalk(words: &[&str], program: &Path) -> assert_cmd::Command {
    let mut command = assert_cmd::Command::new(ROPEWALK);
    command.env("ROPEWALK_LIBRARY_DIR", libraries());
    command
        .args(["run", "--pmi", "pmi2"])
        .args(words)
        .arg(program)
        .timeout(PATIENCE);
    command
}

fn ring_is_whole(output: &Output, ranks: usize) {
    assert!(output.status.success(), "{ranks} ranks: {output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let sum = ranks * (ranks + 1) / 2;
    for rank in 0..ranks {
        let line = format!("rank {rank} of {ranks}: sum {sum}");
        assert!(text.lines().any(|found| found == line), "no {line:?} in {text}");
    }
}

/// Shared memory and folders that Open MPI makes for a job, which other jobs may have too.
fn leftovers(pids: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir("/dev/shm")
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let is_of_job = |path: &PathBuf| path.to_string_lossy().contains(pids);
    entries.filter(is_of_job).collect()
}

/// With 1 to 16 ranks, each finds all others, and gets large messages from its neighbour through shared memory.
#[test]
fn ranks_find_each_other() {
    let folder = TempDir::new().unwrap();
    let program = compile_mpi("mpicc.openmpi", "ring.c", folder.path());
    for ranks in [1, 2, 3, 8, 16] {
        let output = ropewalk(&["-n", &ranks.to_string()], &program).output().unwrap();
        ring_is_whole(&output, ranks);
    }
}

/// Programs of either MPI run behind a script that does not say which; so does one without any.
#[test]
fn the_flavour_need_not_be_known() {
    let folder = TempDir::new().unwrap();
    for compiler in ["mpicc.openmpi", "mpicc.mpich"] {
        let program = compile_mpi(compiler, "ring.c", folder.path());
        let script = folder.path().join("script");
        write_script(&script, &format!("#!/bin/sh\nexec {}\n", program.display()));
        ring_is_whole(&ropewalk(&["-n", "3"], &script).output().unwrap(), 3);
        ring_is_whole(&ropewalk(&["-n", "3"], &program).output().unwrap(), 3);
    }
    let statically = folder.path().join("static");
    let source = folder.path().join("static.c");
    fs::write(&source, "int main(void) { return 0; }").unwrap();
    let compiled = Command::new("cc")
        .arg("-static")
        .arg("-o")
        .args([&statically, &source])
        .status();
    assert!(compiled.unwrap().success());
    assert!(
        ropewalk(&["-n", "3"], &statically)
            .output()
            .unwrap()
            .status
            .success()
    );
    let text = folder.path().join("text");
    write_script(&text, "exit 3");
    assert_eq!(
        ropewalk(&["-n", "3"], &text).output().unwrap().status.code(),
        Some(3)
    );
}

/// `MPI_Abort` and a killed rank end the job with a verdict, and what Open MPI had in shared memory and in files goes.
#[test]
fn failures_are_named_and_leave_nothing() {
    let folder = TempDir::new().unwrap();
    let temporary = folder.path().join("temporary");
    fs::create_dir(&temporary).unwrap();
    for (source, code, culprit) in [
        ("abort.c", 42, "aborted the job with exit code 42"),
        ("killed.c", 137, "was killed by signal 9"),
    ] {
        let program = compile_mpi("mpicc.openmpi", source, folder.path());
        // The job's number stands in the names of its files.
        let marker = folder.path().join("job");
        let script = folder.path().join("script");
        let script_text = format!(
            "#!/bin/sh\necho $FLUX_JOB_ID >{}\nexec {}\n",
            marker.display(),
            program.display()
        );
        write_script(&script, &script_text);
        let output = ropewalk(&["-n", "3"], &script)
            .env("TMPDIR", &temporary)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let verdict = text(&output.stderr);
        assert!(
            verdict.contains("rank 1 on host") && verdict.contains(culprit),
            "{verdict}"
        );
        let job: u32 = fs::read_to_string(&marker).unwrap().trim().parse().unwrap();
        assert_eq!(leftovers(&format!(".{job:x}.")), [] as [PathBuf; 0]);
        assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
    }
}

/// The library is found beside the executable and in the folders of libraries beside that; without it, or with
/// Slurm's in its place, a program is refused with a sentence, and one rank alone is not.
#[test]
fn the_library_is_looked_for() {
    let folder = TempDir::new().unwrap();
    let program = compile_mpi("mpicc.openmpi", "ring.c", folder.path());
    let at = |path: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    };
    let executable = at("bin/ropewalk");
    fs::copy(ROPEWALK, &executable).unwrap();
    let run_by = |first: &[&str], ranks: &str| {
        let mut command = assert_cmd::Command::new(&executable);
        command.env_remove("ROPEWALK_LIBRARY_DIR");
        command
            .args(["run", "--pmi", "pmi2", "-n", ranks])
            .args(first)
            .arg(&program)
            .timeout(PATIENCE)
            .output()
            .unwrap()
    };
    let run = |ranks: &str| run_by(&[], ranks);
    let by_script = |ranks: &str| run_by(&["sh", "-c", "\"$0\""], ranks);
    for place in [
        "bin/libpmi.so.0",
        "bin/libpmi.so",
        "lib/ropewalk/libpmi.so.0",
        "lib/libpmi.so.0",
    ] {
        let place = at(place);
        symlink(rig::library("pmi"), &place).unwrap();
        ring_is_whole(&run("2"), 2);
        fs::remove_file(&place).unwrap();
    }
    let other = folder.path().join("lib/libpmi.so.0");
    let compiled = Command::new("cc")
        .args(["-shared", "-x", "c", "/dev/null", "-o"])
        .arg(at("lib/libslurm_pmi.so"))
        .args(["-Wl,-soname,libslurm_pmi.so"])
        .status();
    assert!(compiled.unwrap().success());
    let compiled = Command::new("cc")
        .args([
            "-shared",
            "-x",
            "c",
            "/dev/null",
            "-x",
            "none",
            "-Wl,--no-as-needed",
        ])
        .arg(folder.path().join("lib/libslurm_pmi.so"))
        .arg("-o")
        .arg(&other)
        .status();
    assert!(compiled.unwrap().success());
    for has_other in [true, false] {
        if !has_other {
            fs::remove_file(&other).unwrap();
        }
        let refused = run("2");
        assert_eq!(refused.status.code(), Some(126), "{refused:?}");
        assert_eq!(refused.stdout, b"");
        assert!(
            text(&refused.stderr).contains("belongs beside the executable"),
            "{refused:?}"
        );
        ring_is_whole(&run("1"), 1);
        // Behind a script nobody sees it coming, but ranks that each are a job of their own would be worse than an
        // error.
        let failed = by_script("2");
        assert!(!failed.status.success(), "{failed:?}");
        assert_eq!(failed.stdout, b"", "{failed:?}");
        ring_is_whole(&by_script("1"), 1);
    }
}

/// A program of an Open MPI that speaks nothing but PMIx is refused; here of a library that only looks like it.
#[test]
fn what_cannot_be_served_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    let library = |name: &str, needs: &[PathBuf]| {
        let compiled = Command::new("cc")
            .args([
                "-shared",
                "-x",
                "c",
                "/dev/null",
                "-x",
                "none",
                "-Wl,--no-as-needed",
            ])
            .args(needs)
            .arg(format!("-Wl,-soname,{name},-rpath,$ORIGIN"))
            .arg("-o")
            .arg(path(name))
            .status();
        assert!(compiled.unwrap().success());
        path(name)
    };
    let portable = library("libopen-pal.so.80", &[]);
    let mpi = library("libmpi.so.40", &[portable]);
    let between = library("libsolver.so", &[mpi]);
    let program = path("program");
    let source = path("program.c");
    fs::write(&source, "int main(void) { return 0; }").unwrap();
    let compiled = Command::new("cc")
        .arg(&source)
        .arg("-Wl,--no-as-needed,-rpath,$ORIGIN")
        .arg(between)
        .arg("-o")
        .arg(&program)
        .status();
    assert!(compiled.unwrap().success());
    let refused = ropewalk(&["-n", "2"], &program).output().unwrap();
    assert_eq!(refused.status.code(), Some(126), "{refused:?}");
    assert!(
        text(&refused.stderr).contains("Open MPI 5 or later"),
        "{refused:?}"
    );
    assert!(
        ropewalk(&["-n", "1"], &program)
            .output()
            .unwrap()
            .status
            .success()
    );
}

/// Programs of different MPIs are no job: they would wait for each other or tell each other nonsense.
#[test]
fn programs_of_one_job_have_one_mpi() {
    let folder = TempDir::new().unwrap();
    let other = TempDir::new().unwrap();
    let open = compile_mpi("mpicc.openmpi", "ring.c", folder.path());
    let mpich = compile_mpi("mpicc.mpich", "ring.c", other.path());
    let refused = ropewalk(&["-n", "1"], &open)
        .args([":", "-n", "1"])
        .arg(&mpich)
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(126), "{refused:?}");
    assert_eq!(refused.stdout, b"");
    let text = text(&refused.stderr);
    assert!(text.contains("the same MPI"), "{refused:?}");
}

/// A flow in a cavity, computed by OpenFOAM's icoFoam in four parts, ends as one that was computed in one piece.
#[test]
fn a_cavity_is_computed_in_parts() {
    let folder = TempDir::new().unwrap();
    let case = folder.path();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mpi/cavity");
    let copied = Command::new("cp")
        .arg("-r")
        .arg(from.join("."))
        .arg(case)
        .status();
    assert!(copied.unwrap().success());
    let foam = |words: &[&str]| {
        let mut command = assert_cmd::Command::new(words[0]);
        command.args(&words[1..]).current_dir(case).timeout(PATIENCE);
        command.env("WM_PROJECT_DIR", "/usr/share/openfoam");
        command.env("ROPEWALK_LIBRARY_DIR", libraries());
        let output = command
            .output()
            .expect("OpenFOAM is missing: install the Debian package openfoam");
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    foam(&["blockMesh"]);
    let alone = foam(&["icoFoam"]);
    foam(&["decomposePar"]);
    let parallel = foam(&[ROPEWALK, "run", "-n", "4", "icoFoam", "-parallel"]);
    assert!(parallel.contains("nProcs : 4"), "{parallel}");
    let expected = courant_numbers(&alone);
    let found = courant_numbers(&parallel);
    assert_eq!(expected.len(), 10, "{alone}");
    assert_eq!(found.len(), 10, "{parallel}");
    for (expected, found) in expected.iter().zip(&found) {
        assert!(
            (expected - found).abs() <= 1e-6 * expected.abs(),
            "{expected} and {found}"
        );
    }
}

/// How far the flow goes in each step, at most, which depends on all of the solution.
fn courant_numbers(log: &str) -> Vec<f64> {
    let lines = log.lines().filter(|line| line.starts_with("Courant Number mean"));
    lines
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect()
}
