//! MPICH's suite, run by its own script.

use std::{
    env, fs,
    fs::File,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::Context;

use super::{
    part::{Part, Suite},
    result::{Test, Verdict},
    sources,
};
use crate::{
    project,
    shell::{program, run},
    wheels,
};

/// The suite, ready to be run.
pub(super) struct Mpich {
    folder: PathBuf,
    wheel: PathBuf,
    /// The folders of libraries by which programs for Debian's library load the wheel's.
    libraries: String,
    /// The library that lets ranks wait instead of spin.
    idle: PathBuf,
}

impl Mpich {
    /// Unpacks and configures the suite for C, and installs the wheel.
    ///
    /// # Errors
    /// If Debian's sources or the wheel cannot be had.
    pub(super) fn provide(folder: &Path) -> anyhow::Result<Self> {
        let suite = sources::unpack("libmpich-dev", folder)?.join("test/mpi");
        if !suite.join("runtests").exists() {
            let mut configure = program("nice", &["./configure", "--quiet"]);
            configure
                .args(["CC=mpicc.mpich", "MPICC=mpicc.mpich", "--with-mpi=/usr"])
                .args(["--disable-fortran", "--disable-cxx"])
                .current_dir(&suite);
            run(configure)?;
        }
        let idle = folder.join("idle.so");
        let mut compile = program("gcc", &["-O2", "-shared", "-fPIC", "-o"]);
        compile
            .arg(&idle)
            .arg(project::root().join("xtask/src/mpi_suites/idle.c"));
        run(compile)?;
        let wheel = wheels::environment(wheels::MPICH_4)?;
        let alias = folder.join("wheel");
        fs::create_dir_all(&alias)?;
        let _ = fs::remove_file(alias.join(DEBIAN_LIBRARY));
        symlink(wheel.join("lib/libmpi.so.12"), alias.join(DEBIAN_LIBRARY))?;
        let libraries = [alias, wheel.join("lib"), wheel.join("lib/mpich")];
        let libraries = env::join_paths(libraries)?.to_string_lossy().into_owned();
        Ok(Self {
            folder: suite,
            wheel,
            libraries,
            idle,
        })
    }

    /// The library's own launcher.
    pub(super) fn launcher(&self, suite: Suite) -> String {
        match suite {
            Suite::MpichWheel => self.wheel.join("bin/mpiexec.hydra").display().to_string(),
            _ => "mpiexec.hydra".to_owned(),
        }
    }

    /// Runs the tests of a folder.
    ///
    /// # Errors
    /// If the suite's script cannot be started, or leaves no results.
    pub(super) fn test(&self, part: &Part, launcher: &str, seconds: u32) -> anyhow::Result<Vec<Test>> {
        let results = self.folder.join("results.xml");
        let log = File::create(self.folder.join("log"))?;
        let mut command = Command::new("nice");
        command
            .args(["./runtests", "-tests=testlist"])
            .arg(format!("-testdirs={}", part.folder))
            // Launchers end a job in time by themselves; timeout(1) ends those that do not.
            .arg(format!("-mpiexec=timeout --kill-after 10 {SECONDS_MAX} {launcher}"))
            .arg(format!("-xmlfile={}", results.display()))
            .current_dir(&self.folder)
            .env("MPITEST_TIMEOUT", seconds.to_string())
            // Programs stay for the next launcher.
            .env("MPITEST_CLEANUP", "0")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        match part.suite {
            Suite::MpichWheel => command.env("LD_LIBRARY_PATH", &self.libraries),
            _ => command.env("LD_PRELOAD", &self.idle),
        };
        run(command)?;
        let text = String::from_utf8_lossy(&fs::read(&results)?).into_owned();
        tests(&text, seconds).with_context(|| format!("cannot read {}", results.display()))
    }
}

/// The tests in the results of the script.
fn tests(xml: &str, seconds: u32) -> Option<Vec<Test>> {
    let xml = xml.replace('\r', "");
    let mut tests: Vec<Test> = Vec::new();
    for test in xml.split("<MPITEST>").skip(1) {
        let field = |name: &str| {
            let (_, rest) = test.split_once(&format!("<{name}>"))?;
            Some(rest.split_once(&format!("</{name}>"))?.0.trim())
        };
        let folder = field("WORKDIR")?.trim_start_matches("./");
        let words = [field("NP")?, field("ARGS")?].join(" ");
        let name = format!("{folder}/{} {}", field("NAME")?, words.trim());
        // It takes the time of none that must fail, and of none that was not compiled.
        let time: f64 = field("TIME")?.parse().unwrap_or(0.0);
        let verdict = match field("STATUS")? {
            "pass" => Verdict::Passed,
            _ if time >= f64::from(seconds) => Verdict::TimedOut,
            _ => Verdict::Failed,
        };
        tests.push(Test {
            name,
            verdict,
            said: field("TESTDIFF").unwrap_or_default().to_owned(),
        });
    }
    (!tests.is_empty()).then_some(tests)
}

/// No test of the suite asks for more than 600 s.
const SECONDS_MAX: u32 = 660;
/// The library that Debian's compiler links programs with.
const DEBIAN_LIBRARY: &str = "libmpich.so.12";

#[cfg(test)]
mod tests {
    use super::*;

    /// Each test of the script's results has its name, ranks and arguments; one that failed at the limit timed out.
    #[test]
    fn results_are_read() {
        let test = |name: &str, result: &str| {
            format!(
                "<MPITEST>\r\n<NAME>{name}</NAME>\r\n<ARGS>-count=1</ARGS>\r\n<NP>4</NP>\r\n\
                 <WORKDIR>./coll</WORKDIR>\r\n{result}</MPITEST>\r\n"
            )
        };
        let xml = [
            test("a", "<STATUS>pass</STATUS>\r\n<TIME>0.1</TIME>\r\n"),
            test(
                "b",
                "<TIME>60.2</TIME>\r\n<STATUS>fail</STATUS>\r\n<TESTDIFF>\r\nno</TESTDIFF>\r\n",
            ),
            test(
                "c",
                "<TIME></TIME>\r\n<STATUS>fail</STATUS>\r\n<TESTDIFF>\r\n</TESTDIFF>\r\n",
            ),
        ];
        let found = tests(&xml.concat(), 60).unwrap();
        assert_eq!(found[0].name, "coll/a 4 -count=1");
        let verdicts: Vec<_> = found.iter().map(|test| test.verdict).collect();
        assert_eq!(verdicts, [Verdict::Passed, Verdict::TimedOut, Verdict::Failed]);
        assert_eq!(found[1].said, "no");
        assert!(tests("<MPITESTRESULTS>", 60).is_none());
    }
}
