//! Tests that a case survives kills, damaged saves, a full disk and other failures.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use ropewalk_openfoam::{CaseOptions, LIBRARY_VARIABLE, QUARANTINE_MAX};

use crate::command::run;

use super::{
    cavity::Cavity,
    solver::{Mode, Solver, copy},
    tutorials, users,
};

/// Runs all tests with a library, each with each way of writing files. The command is in the folder `executables`, and
/// what it has fetched of OpenFOAM's sources in `cache`.
///
/// # Errors
/// At the first that fails.
pub fn test(library: &Path, executables: &Path, cache: &Path) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    users::test(executables, cache)?;
    tutorials::test(library)?;
    for mode in Mode::ALL {
        let bench = Bench::prepare(folder.path(), library, mode, CAVITY)?;
        let name = mode.name();
        let kills = bench.killed_again_and_again()?;
        println!("{name}: killed {kills} times, the result is that of the undisturbed run");
        let damaged = bench.damaged()?;
        println!("{name}: {damaged} kinds of damage were seen, an older checkpoint was taken");
        let failures = bench.supervised(executables)?;
        println!("{name}: `ropewalk run` started it again {failures} times, to the same result");
    }
    let bench = Bench::prepare(folder.path(), library, Mode::Serial, SILENT)?;
    bench.full_disk()?;
    println!("a full disk costs saves and not the run");
    bench.users_outputs()?;
    bench.not_loaded(executables)?;
    println!("a solver that does not load the function object is stopped");
    Ok(())
}

/// A case as it is before any run, and its undisturbed result.
pub(super) struct Bench {
    folder: PathBuf,
    fresh: Solver,
    library: PathBuf,
    last: String,
    pub(super) result: Vec<(PathBuf, Vec<u8>)>,
    /// How long the undisturbed run took.
    pub(super) usual: Duration,
}

impl Bench {
    pub(super) fn prepare(folder: &Path, library: &Path, mode: Mode, cavity: Cavity) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("case").tempdir_in(folder)?.keep();
        let fresh = cavity.make(folder.join("fresh"), mode)?;
        let undisturbed = Solver {
            case: folder.join("undisturbed"),
            ..fresh.clone()
        };
        copy(&fresh.case, &undisturbed.case)?;
        let usual = undisturbed.finish(None)?;
        let last = Cavity::last(&fresh)?;
        let result = match cavity.output > cavity.steps {
            true => Vec::new(),
            false => undisturbed.fields(&last)?,
        };
        Ok(Self {
            folder,
            fresh,
            library: library.to_owned(),
            last,
            result,
            usual,
        })
    }

    /// A fresh copy of the case.
    pub(super) fn fresh(&self, name: &str) -> anyhow::Result<Solver> {
        let solver = Solver {
            case: self.folder.join(name),
            ..self.fresh.clone()
        };
        let _ = fs::remove_dir_all(&solver.case);
        copy(&self.fresh.case, &solver.case)?;
        Ok(solver)
    }

    pub(super) fn options(&self) -> CaseOptions {
        CaseOptions {
            every: Some(EVERY),
            ..CaseOptions::new(&self.library)
        }
    }

    /// Returns true if a run came to the result of the undisturbed one.
    pub(super) fn is_right(&self, solver: &Solver) -> anyhow::Result<bool> {
        Ok(solver.fields(&self.last)? == self.result)
    }

    fn killed_again_and_again(&self) -> anyhow::Result<u32> {
        let mut random = Pcg64::seed_from_u64(SEED);
        let solver = self.fresh("killed")?;
        let case = solver.open(self.options())?;
        let original = fs::read(solver.case.join("system/controlDict"))?;
        let mut kills = 0;
        loop {
            let prepared = case.prepare()?;
            let running = solver.start(Some(&prepared))?;
            if kills == KILLS {
                solver.wait(running)?;
                break;
            }
            // Late enough to come forward, so that it ends, and at any moment of a step or save.
            let steps = 10 + random.next_u32() as usize % 20;
            let pause = Duration::from_micros(u64::from(random.next_u32() % 20_000));
            let moment = solver.await_steps(steps)? + pause;
            ensure!(
                running.kill_at(moment, &mut random)?,
                "the solver ends before it is killed"
            );
            kills += 1;
        }
        case.finish()?;
        ensure!(
            fs::read(solver.case.join("system/controlDict"))? == original,
            "system/controlDict is not as it was"
        );
        ensure!(
            self.is_right(&solver)?,
            "after {kills} kills the result differs: {}",
            solver.case.display()
        );
        Ok(kills)
    }

    /// Runs the case under `ropewalk run --adapter openfoam`, which kills ranks and starts it again.
    fn supervised(&self, executables: &Path) -> anyhow::Result<usize> {
        let solver = self.fresh("supervised")?;
        let original = fs::read(solver.case.join("system/controlDict"))?;
        let mut command = Command::new(executables.join("ropewalk"));
        command
            .args(["run", "--on-failure", "restart", "--adapter", "openfoam"])
            .args(["--mtbf-known", "0.5", "--inject-mtbf", "5", "--seed", "3"]);
        match self.fresh.mode {
            Mode::Serial => command.arg(self.fresh.application),
            Mode::Parallel => command.args(["-n", "2", self.fresh.application, "-parallel"]),
            Mode::Collated => command
                .args(["-n", "2", self.fresh.application, "-parallel"])
                .args(["-fileHandler", "collated"]),
        };
        command
            .current_dir(&solver.case)
            // Other work may share the cores, of which the adapter knows nothing.
            .env("OMPI_MCA_mpi_yield_when_idle", "1")
            .env(LIBRARY_VARIABLE, &self.library)
            .env_remove("WM_PROJECT_DIR");
        let output = command.output().context("cannot start ropewalk")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{command:?}: {}: {said}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stdout)
        );
        ensure!(self.is_right(&solver)?, "supervised, the result differs: {said}");
        ensure!(
            fs::read(solver.case.join("system/controlDict"))? == original,
            "system/controlDict is not as it was"
        );
        ensure!(
            said.contains("the case begins at time"),
            "it was not prepared: {said}"
        );
        Ok(said.matches("is started again").count())
    }

    fn damaged(&self) -> anyhow::Result<u32> {
        let whole = self.fresh("whole")?;
        let prepared = whole.open(self.options())?.prepare()?;
        whole.finish(Some(&prepared))?;
        ensure!(self.is_right(&whole)?, "saving changed the result");
        let manifests = |solver: &Solver| -> anyhow::Result<Vec<PathBuf>> {
            let mut found: Vec<PathBuf> = fs::read_dir(solver.case.join("checkpoints"))?
                .filter_map(|entry| Some(entry.ok()?.path()))
                .filter(|path| path.to_string_lossy().contains("generation-"))
                .collect();
            found.sort_unstable();
            Ok(found)
        };
        ensure!(manifests(&whole)?.len() == 2, "two generations are kept");
        let mut count = 0;
        for damage in DAMAGES {
            if *damage == Damage::OneRankBehind && self.fresh.mode == Mode::Serial {
                continue;
            }
            let solver = self.fresh("damaged")?;
            fs::remove_dir_all(&solver.case)?;
            copy(&whole.case, &solver.case)?;
            let place = self.fresh.mode.places().last().context("there are places")?;
            let newest = solver.case.join(place).join(&self.last);
            match damage {
                Damage::Empty => fs::write(newest.join("U"), b"")?,
                Damage::FlippedBit => {
                    let mut content = fs::read(newest.join("p"))?;
                    let middle = content.len() / 2;
                    content[middle] ^= 1;
                    fs::write(newest.join("p"), content)?;
                }
                Damage::Missing => fs::remove_file(newest.join("phi"))?,
                Damage::OneRankBehind => {
                    let folder = manifests(&solver)?.pop().context("there are generations")?;
                    fs::remove_file(folder.join("rank-00001.manifest"))?;
                }
            }
            let case = solver.open(self.options())?;
            let prepared = case.prepare()?;
            ensure!(
                prepared.from.is_some() && prepared.begin.name() != self.last,
                "{damage:?} was not seen"
            );
            ensure!(
                !prepared.quarantined.is_empty(),
                "{damage:?}: nothing was put aside"
            );
            solver.finish(Some(&prepared))?;
            ensure!(self.is_right(&solver)?, "{damage:?}: the result differs");
            count += 1;
        }
        Ok(count)
    }

    /// The run goes on when there is no room, for the first save or a later one.
    fn full_disk(&self) -> anyhow::Result<()> {
        let one = self.save_bytes()?;
        for (room, expect_save) in [(one / 2, false), (one * 5 / 2, true)] {
            let disk = Tmpfs::mount(&self.folder.join("disk"))?;
            let solver = Solver {
                case: disk.folder.join("case"),
                ..self.fresh.clone()
            };
            copy(&self.fresh.case, &solver.case)?;
            let case = solver.open(self.options())?;
            let prepared = case.prepare()?;
            let filler = disk.room()?.saturating_sub(room + BLOCK);
            fs::write(disk.folder.join("filler"), vec![0; usize::try_from(filler)?])?;
            let log = File::outside(&self.folder.join("log"))?;
            let status = log.run(&solver, &prepared)?;
            let said = fs::read_to_string(&log.path)?;
            ensure!(status, "the run stopped on a full disk: {said}");
            let lines = said.lines().filter(|line| line.contains("is not saved"));
            ensure!(lines.count() > 0, "nothing says that the disk is full: {said}");
            fs::remove_file(disk.folder.join("filler"))?;
            let again = case.prepare()?;
            ensure!(
                again.from.is_some() == expect_save,
                "with room for {room} bytes the run begins again at {}: {said}",
                again.begin.name()
            );
        }
        Ok(())
    }

    /// How much room one save takes.
    fn save_bytes(&self) -> anyhow::Result<u64> {
        let solver = self.fresh("measured")?;
        let prepared = solver.open(self.options())?.prepare()?;
        solver.finish(Some(&prepared))?;
        let latest = solver.open(self.options())?.prepare()?;
        let mut sum = 0;
        for (_, content) in solver.fields(latest.begin.name())? {
            sum += (content.len() as u64).next_multiple_of(BLOCK);
        }
        Ok(sum)
    }

    /// The outputs that the user's controlDict asks for are there at the end, whatever was saved and removed
    /// meanwhile.
    fn users_outputs(&self) -> anyhow::Result<()> {
        let bench = Self::prepare(&self.folder, &self.library, Mode::Serial, CAVITY)?;
        let solver = bench.fresh("outputs")?;
        let prepared = solver.open(bench.options())?.prepare()?;
        solver.finish(Some(&prepared))?;
        let undisturbed = Solver {
            case: bench.folder.join("undisturbed"),
            ..solver.clone()
        };
        let (asked, found) = (times(&undisturbed)?, times(&solver)?);
        let lost: Vec<_> = asked.iter().filter(|time| !found.contains(time)).collect();
        ensure!(
            lost.is_empty(),
            "outputs {lost:?} of the user's are not there any more"
        );
        ensure!(
            found.len() <= asked.len() + 2,
            "more is left than outputs and two checkpoints: {found:?}"
        );
        println!("the user's outputs stay, and no more than two checkpoints");
        bench.purged_outputs(&asked)
    }

    /// As many outputs that `purgeWrite` bounds stay as the user wants, however often the run begins again.
    /// The files that were put aside stay within bounds.
    fn purged_outputs(&self, asked: &[String]) -> anyhow::Result<()> {
        let solver = self.fresh("purged")?;
        let control = solver.case.join("system/controlDict");
        let text = fs::read_to_string(&control)?;
        fs::write(&control, format!("{text}\npurgeWrite {PURGE};\n"))?;
        let case = solver.open(self.options())?;
        let mut random = Pcg64::seed_from_u64(SEED);
        let quarantine = solver.case.join("checkpoints/quarantine");
        let mut dropped = 0;
        for _ in 0..=QUARANTINE_MAX {
            let prepared = case.prepare()?;
            dropped += prepared.dropped;
            let running = solver.start(Some(&prepared))?;
            // Now and then an output is made, and always something that nobody has committed.
            let moment = solver.await_steps(EVERY as usize + 2)?;
            ensure!(running.kill_at(moment, &mut random)?, "the solver ends too early");
            fs::create_dir_all(solver.case.join("99"))?;
        }
        let prepared = case.prepare()?;
        dropped += prepared.dropped;
        solver.finish(Some(&prepared))?;
        case.purge()?;
        case.finish()?;
        let found = times(&solver)?;
        let outputs: Vec<_> = asked.iter().skip(1).filter(|time| found.contains(time)).collect();
        let newest: Vec<_> = asked[asked.len() - PURGE..].iter().collect();
        ensure!(
            outputs == newest,
            "outputs {outputs:?} are there and not {newest:?}"
        );
        let aside = fs::read_dir(quarantine)?.count();
        ensure!(
            dropped > 0 && aside <= QUARANTINE_MAX,
            "{aside} things are in quarantine, {dropped} were removed"
        );
        println!(
            "purgeWrite and quarantine stay within bounds over {} starts",
            QUARANTINE_MAX + 2
        );
        Ok(())
    }

    /// A library that cannot be loaded ends the run in its first step.
    fn not_loaded(&self, executables: &Path) -> anyhow::Result<()> {
        let solver = self.fresh("not-loaded")?;
        let library = self.folder.join("libbroken.so");
        fs::write(&library, "no library")?;
        let mut command = Command::new(executables.join("ropewalk"));
        command
            .args(["run", "--on-failure", "restart", "--adapter", "openfoam"])
            .arg(self.fresh.application)
            .current_dir(&solver.case)
            .env(LIBRARY_VARIABLE, &library);
        let output = command.output().context("cannot start ropewalk")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            !output.status.success() && said.contains("has not loaded the function object"),
            "{}: {said}",
            output.status
        );
        ensure!(
            !solver.case.join(&self.last).exists(),
            "the run went on to its end without saves"
        );
        Ok(())
    }
}

/// The times in the folder of a case that one process runs.
fn times(solver: &Solver) -> anyhow::Result<Vec<String>> {
    let names = fs::read_dir(&solver.case)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<_> = names.filter(|name| name.starts_with("0")).collect();
    names.sort_unstable();
    Ok(names)
}

/// A kind of damage to the newest save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Empty,
    FlippedBit,
    Missing,
    OneRankBehind,
}

const DAMAGES: &[Damage] = &[
    Damage::Empty,
    Damage::FlippedBit,
    Damage::Missing,
    Damage::OneRankBehind,
];

/// A small disk. It is taken away with this.
struct Tmpfs {
    folder: PathBuf,
}

impl Tmpfs {
    fn mount(folder: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(folder)?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=32m", "tmpfs"]).arg(folder);
        run(mount).context("the test of a full disk needs to mount one, as root")?;
        Ok(Self {
            folder: folder.to_owned(),
        })
    }

    fn room(&self) -> anyhow::Result<u64> {
        let mut df = Command::new("df");
        df.args(["--output=avail", "--block-size=1"]).arg(&self.folder);
        let output = df.stderr(Stdio::inherit()).output().context("cannot start df")?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines()
            .last()
            .and_then(|line| line.trim().parse().ok())
            .context("df says how much room there is")
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.folder).status();
    }
}

/// A log that is not on the full disk.
struct File {
    path: PathBuf,
}

impl File {
    fn outside(path: &Path) -> anyhow::Result<Self> {
        fs::write(path, b"")?;
        Ok(Self {
            path: path.to_owned(),
        })
    }

    /// Runs a solver whose log this is; whether it succeeded.
    fn run(&self, solver: &Solver, prepared: &ropewalk_openfoam::Prepared) -> anyhow::Result<bool> {
        std::os::unix::fs::symlink(&self.path, solver.case.join("log"))?;
        let mut running = solver.start(Some(prepared))?;
        match running.wait(Instant::now() + Duration::from_secs(120))? {
            Some(status) => Ok(status.success()),
            None => bail!("the run hangs on a full disk"),
        }
    }
}

/// Small and quick, with outputs of its own.
pub(super) const CAVITY: Cavity = Cavity {
    cells: 40,
    steps: 100,
    output: 25,
    latest: false,
};

/// The same without outputs.
const SILENT: Cavity = Cavity {
    output: 1_000_000,
    ..CAVITY
};

/// How many outputs stay of those that are purged.
const PURGE: usize = 2;

/// No divisor of the steps between outputs, so that both kinds of saves occur.
const EVERY: u32 = 7;

const KILLS: u32 = 4;

const SEED: u64 = 20_191_219;

const BLOCK: u64 = 4096;
