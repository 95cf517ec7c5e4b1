//! `ropewalk reduce` of files, of whose processes some are killed in the middle, again and again.

use std::{
    fs,
    io::Write,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use serde_json::json;
use tempfile::TempDir;

use crate::{
    project,
    shell::{cargo, output, program, run},
};

/// How the soak test is done.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many reductions
    #[arg(long, default_value_t = 500)]
    runs: u64,
    /// How many files there are
    #[arg(long, default_value_t = 12)]
    files: u32,
    /// How many mebibytes each has
    #[arg(long, default_value_t = 8)]
    mebibytes: u32,
    /// Who is killed
    #[arg(long, value_enum, default_value = "workers")]
    victims: Victims,
    /// Where `ropewalk` is, if it is not to be built
    #[arg(long)]
    built: Option<PathBuf>,
    /// Decides how many processes and hosts there are, who is killed and when; by default the time. Run i has SEED + i
    #[arg(long)]
    seed: Option<u64>,
}

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Victims {
    /// The agent of the only host
    Agent,
    /// The command itself
    Command,
    /// One or two workers
    Workers,
}

impl Options {
    /// As short as it may be to say anything.
    pub(crate) fn short() -> Self {
        Self {
            runs: 25,
            files: 12,
            mebibytes: 8,
            victims: Victims::Workers,
            built: None,
            seed: None,
        }
    }

    /// The command that does so many runs from a seed on.
    fn command(&self, runs: u64, seed: u64) -> String {
        format!(
            "cargo xtask soak-files --runs {runs} --seed {seed} --files {} --mebibytes {} --victims {}",
            self.files,
            self.mebibytes,
            self.victims.name()
        )
    }
}

impl Victims {
    fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Command => "command",
            Self::Workers => "workers",
        }
    }
}

/// Runs reductions on two to six processes on one to three hosts, and kills some at any moment from the start of the
/// command to its expected end. If they are workers, every result must be there and right to the last bit; otherwise
/// there must be none, or the right one if they had written it. Nothing may be left.
///
/// # Errors
/// If one run goes wrong; says how to repeat it.
pub(crate) fn soak_files(options: &Options) -> anyhow::Result<()> {
    let soak = Soak::prepare(options)?;
    let seed = match options.seed {
        Some(seed) => seed,
        None => std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)?
            .as_secs(),
    };
    eprintln!("==> soak-files: {} runs from seed {seed}", options.runs);
    let (mut exact, mut without, mut hits, mut times) = (0, 0, 0, Vec::new());
    let mut failed = Vec::new();
    for seed in (0..options.runs).map(|run| seed.wrapping_add(run)) {
        match soak.disturbed(seed, options.victims) {
            Ok(end) => {
                hits += u64::from(end.hit);
                if end.hit {
                    times.push(end.elapsed);
                }
                match end.has_result {
                    true => exact += 1,
                    false => without += 1,
                }
            }
            Err(error) => {
                eprintln!("seed {seed}: {error:#}");
                eprintln!("  again: {}", options.command(1, seed));
                failed.push((seed, error.to_string()));
            }
        }
    }
    let count = |what: &str| failed.iter().filter(|(_, error)| error.starts_with(what)).count();
    println!(
        "{exact} exact, {without} without result as they should be, {} lost, {} wrong, {} hung, {} left something; \
         in {hits} somebody was killed in time",
        count(LOST),
        count(WRONG),
        count(HUNG),
        count(LEFT),
    );
    times.sort_unstable();
    if options.runs >= RECORDED_MIN {
        let commit = output(program("git", &["rev-parse", "--short", "HEAD"]))?;
        let line = json!({
            "commit": commit.trim(), "command": options.command(options.runs, seed), "seed": seed,
            "cell": format!("files-{}", options.victims.name()), "runs": options.runs, "hit": hits, "exact": exact,
            "without": without, "lost": count(LOST), "wrong": count(WRONG), "hung": count(HUNG), "broken": count(LEFT),
        });
        let path = project::root().join("docs/soak.jsonl");
        let mut file = fs::OpenOptions::new().create(true).append(true).open(path)?;
        writeln!(file, "{line}")?;
    }
    if let Some(median) = times.get(times.len() / 2) {
        println!(
            "median time {:.0} ms undisturbed, {:.0} ms with a loss",
            soak.usual.as_secs_f64() * 1e3,
            median.as_secs_f64() * 1e3
        );
    }
    if !failed.is_empty() {
        let seeds: Vec<_> = failed.iter().map(|(seed, _)| seed).collect();
        bail!("{} runs failed, with seeds {seeds:?}", failed.len());
    }
    Ok(())
}

/// A run that ended well.
struct End {
    has_result: bool,
    /// Somebody was killed before the end.
    hit: bool,
    elapsed: Duration,
}

struct Soak {
    folder: TempDir,
    /// A copy of this soak's own, so that what runs of it is its own too.
    ropewalk: PathBuf,
    inputs: Vec<PathBuf>,
    expected: Vec<u8>,
    usual: Duration,
}

impl Soak {
    fn prepare(options: &Options) -> anyhow::Result<Self> {
        let built = match &options.built {
            Some(built) => built.clone(),
            None => {
                let words = "build --release --locked -p ropewalk-cli --bin ropewalk";
                run(cargo(&words.split(' ').collect::<Vec<_>>()))?;
                project::target()?.join("release")
            }
        };
        let folder = tempfile::tempdir()?;
        let ropewalk = folder.path().join("ropewalk");
        fs::copy(built.join("ropewalk"), &ropewalk).context("cannot copy ropewalk")?;
        let inputs: Vec<_> = (0..options.files)
            .map(|at| folder.path().join(format!("{at}.npy")))
            .collect();
        let mut random = Pcg64::seed_from_u64(24);
        for path in &inputs {
            write_array(path, options.mebibytes as usize * ((1 << 20) / 4), &mut random)?;
        }
        let mut soak = Self {
            folder,
            ropewalk,
            inputs,
            expected: Vec::new(),
            usual: Duration::ZERO,
        };
        let mut times = Vec::new();
        for _ in 0..CALIBRATIONS {
            let begun = Instant::now();
            let status = soak.start("-n 3")?.wait()?;
            if !status.success() {
                bail!("a run without any kill failed: {status}");
            }
            times.push(begun.elapsed());
        }
        times.sort_unstable();
        soak.usual = times[times.len() / 2];
        soak.expected = fs::read(soak.output())?;
        Ok(soak)
    }

    fn output(&self) -> PathBuf {
        self.folder.path().join("out.npy")
    }

    fn start(&self, words: &str) -> anyhow::Result<Child> {
        let mut command = Command::new(&self.ropewalk);
        command.args(["reduce", "--op", "sum", "-o"]).arg(self.output());
        command.args(words.split(' ')).args(&self.inputs);
        command.stderr(fs::File::create(self.folder.path().join("stderr"))?);
        Ok(command.stdin(Stdio::null()).spawn()?)
    }

    fn disturbed(&self, seed: u64, victims: Victims) -> anyhow::Result<End> {
        let mut random = Pcg64::seed_from_u64(seed);
        let hosts = match victims {
            Victims::Agent => 1,
            _ => 1 + random.next_u32() % 3,
        };
        let names: Vec<_> = (1..=hosts).map(|host| format!("h{host}:2")).collect();
        let words = format!(
            "-n {} -launcher fork -hosts {}",
            2 + random.next_u32() % 5,
            names.join(",")
        );
        let words = if hosts == 1 {
            words.split(" -launcher").next().unwrap_or_default()
        } else {
            &words
        };
        let count = match victims {
            Victims::Workers => 1 + random.next_u32() % 2,
            _ => 1,
        };
        let mut moments: Vec<_> = (0..count)
            .map(|_| {
                self.usual
                    .mul_f64(f64::from(random.next_u32()) / f64::from(u32::MAX))
            })
            .collect();
        moments.sort_unstable();
        let _ = fs::remove_file(self.output());
        let begun = Instant::now();
        let mut job = self.start(words)?;
        let mut hit = false;
        for moment in moments {
            thread::sleep(moment.saturating_sub(begun.elapsed()));
            hit |= self.kill(victims, &job, random.next_u32());
        }
        let status = wait(&mut job)?;
        let elapsed = begun.elapsed();
        let said = fs::read_to_string(self.folder.path().join("stderr"))?;
        self.check_that_nothing_is_left()?;
        let has_result = match fs::read(self.output()) {
            Ok(found) if found == self.expected => true,
            Ok(_) => bail!("{WRONG} ({words}): {said}"),
            Err(_) => false,
        };
        let must_have = victims == Victims::Workers || !hit;
        if must_have && !(has_result && status.success()) || status.success() != has_result {
            bail!("{LOST} ({words}, {status}): {said}");
        }
        Ok(End {
            has_result,
            hit,
            elapsed,
        })
    }

    /// Kills one of those, and says if there was one.
    fn kill(&self, victims: Victims, job: &Child, random: u32) -> bool {
        let mut found = self.processes();
        found.retain(|pid| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let is_worker = words.split(|&byte| byte == 0).nth(1) == Some(b"reduce-worker");
            match victims {
                Victims::Workers => is_worker,
                Victims::Agent => !is_worker && *pid != job.id(),
                Victims::Command => *pid == job.id(),
            }
        });
        let Some(victim) = found.get(random as usize % found.len().max(1)) else {
            return false;
        };
        let killed = Command::new("kill")
            .args(["-KILL", &victim.to_string()])
            .stderr(Stdio::null())
            .status();
        killed.is_ok_and(|status| status.success())
    }

    /// Neither processes nor files.
    fn check_that_nothing_is_left(&self) -> anyhow::Result<()> {
        let end = Instant::now() + END_MAX;
        while let Some(left) = self.processes().first() {
            if Instant::now() > end {
                bail!("{LEFT}: process {left}");
            }
            thread::sleep(Duration::from_millis(5));
        }
        for entry in fs::read_dir(self.folder.path())? {
            let path = entry?.path();
            let is_ours =
                [&self.ropewalk, &self.output(), &self.folder.path().join("stderr")].contains(&&path);
            if !is_ours && !self.inputs.contains(&path) {
                bail!("{LEFT}: {}", path.display());
            }
        }
        Ok(())
    }

    fn processes(&self) -> Vec<u32> {
        let Ok(entries) = fs::read_dir("/proc") else {
            return Vec::new();
        };
        let all = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        all.filter(|pid| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == self.ropewalk))
            .collect()
    }
}

/// Waits for the end of a command; one that does not come is killed.
fn wait(job: &mut Child) -> anyhow::Result<ExitStatus> {
    let end = Instant::now() + TIME_MAX;
    loop {
        if let Some(status) = job.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > end {
            job.kill()?;
            job.wait()?;
            bail!("{HUNG}: not done after {} s", TIME_MAX.as_secs());
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Writes an array of so many random `f32` between 0 and 1.
pub(crate) fn write_array(path: &PathBuf, elements: usize, random: &mut Pcg64) -> anyhow::Result<()> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({elements},), }}");
    let mut file = std::io::BufWriter::new(fs::File::create(path)?);
    file.write_all(b"\x93NUMPY\x01\x00v\x00")?;
    file.write_all(format!("{header:<117}\n").as_bytes())?;
    for _ in 0..elements {
        let element = random.next_u32() as f32 / u32::MAX as f32;
        file.write_all(&element.to_le_bytes())?;
    }
    Ok(file.flush()?)
}

const LOST: &str = "lost";
const WRONG: &str = "wrong";
const HUNG: &str = "hung";
const LEFT: &str = "something is left";
const CALIBRATIONS: usize = 5;
/// So many runs are worth a line in `docs/soak.jsonl`.
const RECORDED_MIN: u64 = 100;
/// How long one run may take before it counts as a hang; a hundred times what it takes.
const TIME_MAX: Duration = Duration::from_secs(30);
/// How long processes may stay after the end of their job.
const END_MAX: Duration = Duration::from_secs(2);
