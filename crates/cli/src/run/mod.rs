//! `ropewalk run`: the mpiexec of ropewalk.

mod allocation;
mod checkpoints;
mod command_line;
mod console;
mod fate;
mod file_table;
mod json_log;
mod metrics;
mod metrics_server;
mod narrator;
mod observer;
mod openfoam;
mod pattern;
mod progress;
mod rank_files;
mod rank_map;
mod record;
mod reductions;
mod report;
mod saving;
mod shown_ranks;
mod summary;
mod upload;

use std::{
    ffi::OsString,
    io::{self, Write},
    mem,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
#[cfg(feature = "fuzzing")]
use ropewalk_launch::BindingError;
use ropewalk_launch::{JobEvent, JobOutcome, JobSpec, Launcher, Verdict};
use ropewalk_openfoam::{Case, Loading};

use checkpoints::{Bookkeeper, CheckpointOptions, Checkpoints};
use command_line::{Command, Output, Request, Surroundings, help, info, parse};
pub(crate) use command_line::{
    divide, documented, documented_some, reader_notes, reader_variables, some_options,
};
use console::{Console, SIGPIPE};
use json_log::JsonLog;
#[cfg(feature = "fuzzing")]
pub(crate) use metrics_server::fuzz_request as fuzz_metrics_request;
use narrator::Narrator;
use observer::Observer;
use openfoam::CaseKeeper;
use progress::Progress;
use rank_files::RankFiles;
pub(crate) use saving::Saving;
use saving::SavingWatch;

use crate::watcher::Watcher;

/// The arguments of `ropewalk run`.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// Options, the program and its arguments, as for mpiexec.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORDS")]
    words: Vec<OsString>,
}

/// Runs a job; the exit code is the verdict's.
pub(crate) fn run(arguments: Arguments) -> ExitCode {
    match arguments.request().and_then(|command| match command {
        Command::Help => {
            // Without a reader nobody wants it.
            let _ = writeln!(io::stdout(), "{}", help());
            Ok(0)
        }
        Command::Info => {
            let _ = writeln!(io::stdout(), "{}", info());
            Ok(0)
        }
        Command::Version => {
            let _ = writeln!(io::stdout(), "ropewalk {}", env!("CARGO_PKG_VERSION"));
            Ok(0)
        }
        Command::Run(request) => watch(*request),
    }) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say(&format!("{error:#}"));
            ExitCode::from(125)
        }
    }
}

impl Arguments {
    /// These words, which stand behind `ropewalk run`.
    pub(crate) fn new(words: Vec<OsString>) -> Self {
        Self { words }
    }

    fn request(self) -> anyhow::Result<Command> {
        parse(self.words, &Surroundings::of_this_process()?)
    }
}

/// Reads a command whose words are the lines of `bytes` up to an empty one. The rest stands in every file
/// that they name, and, without its first byte, whose bits say which there are, in variables.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_command_line(bytes: &[u8]) {
    use std::os::unix::ffi::OsStringExt;

    let end = bytes.windows(2).position(|pair| pair == b"\n\n");
    let (words, file) = end.map_or((bytes, &b""[..]), |end| (&bytes[..end], &bytes[end + 2..]));
    let words = words.split(|&byte| byte == b'\n');
    let words = words.map(|word| OsString::from_vec(word.to_vec())).collect();
    let variables = [
        "HYDRA_HOST_FILE",
        "HYDRA_ENV",
        "HYDRA_LAUNCHER",
        "HYDRA_IFACE",
        "MPIEXEC_TIMEOUT",
        "SLURM_JOB_NODELIST",
        "SLURM_TASKS_PER_NODE",
        "HYDRA_CONFIG_FILE",
    ];
    let variable = |name: &str| {
        let (set, value) = file.split_first()?;
        let index = variables.iter().position(|known| *known == name)?;
        (set >> index & 1 == 1).then(|| OsString::from_vec(value.to_vec()))
    };
    let around = Surroundings {
        agent: "agent".into(),
        variable: &variable,
        // What this machine has of its own is left out.
        read: &|path| match path.starts_with("/etc") {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Ok(file.to_vec()),
        },
        count_parts: &|part| Err(BindingError::NoPart { part }),
        // Behind it names would be looked up in the network.
        read_key: &|_| Err(io::ErrorKind::NotFound.into()),
    };
    if let Ok(Command::Run(request)) = parse(words, &around) {
        let spec = &request.spec;
        assert!(spec.segments().all(|segment| !segment.program.is_empty()));
        assert!(!spec.time_limits.detect.is_zero());
    }
}

/// Asks ranks for the [counters](ropewalk_fabric::ReductionCounters) of their reductions, if it is `1`.
const COUNTERS_VARIABLE: &str = "ROPEWALK_COUNTERS";

fn watch(request: Request) -> anyhow::Result<u8> {
    let Request {
        mut spec,
        output,
        checkpoints,
        is_openfoam,
    } = request;
    let Output {
        prefix,
        files,
        folder,
        shown_ranks,
        prints_rank_map,
        print_exit_codes,
        log_json,
        verbose,
        notices,
        metrics,
        report,
    } = output;
    let began = Instant::now();
    for notice in notices.iter().filter(|_| verbose) {
        say(notice);
    }
    let ranks = spec.size();
    if checkpoints.is_some() {
        spec.time_limits.allocation = allocation::time_left();
    }
    if metrics.is_some() || report.is_some() {
        let variable = (COUNTERS_VARIABLE.into(), "1".into());
        spec.environment.variables.push(variable);
    }
    let progress = Progress::new(&spec, log_json || verbose);
    let observer = Observer::start(metrics, report, &spec)?;
    let supervisor = checkpoints.as_ref().map(Checkpoints::new).transpose()?;
    let bookkeeper = supervisor.as_ref().map(Checkpoints::bookkeeper);
    let mut saving = checkpoints
        .as_ref()
        .map(|options| SavingWatch::new(&options.directory, began));
    let upload = checkpoints
        .as_ref()
        .and_then(|options| Some((options.upload.as_ref()?, &options.directory)));
    let mut upload = upload
        .map(|(url, directory)| upload::start(url, directory))
        .transpose()?;
    let mut case = None;
    let mut launcher = match (supervisor, &checkpoints) {
        (Some(supervisor), Some(told)) => {
            let (launcher, found) = start_supervised(spec, supervisor, told, is_openfoam)?;
            case = found;
            launcher
        }
        _ => Launcher::start(spec)?,
    };
    if prints_rank_map {
        rank_map::print(&launcher, ranks);
    }
    let mut watchers = Watchers {
        progress,
        log: log_json.then(|| JsonLog::new(launcher.job())),
        observer,
        loading: case.is_some().then(Loading::default),
        narrator: Narrator::new(verbose, print_exit_codes),
        console: Console::new(
            prefix,
            files,
            folder.map(|folder| RankFiles::new(folder, ranks)),
            shown_ranks,
        ),
    };
    let outcome = follow(&mut launcher, &mut watchers, saving.as_mut())?;
    let code = finish(watchers.console, &outcome);
    if let Some(upload) = upload.take() {
        upload.finish();
    }
    let section = match bookkeeper.zip(checkpoints.as_ref()) {
        Some((bookkeeper, options)) => {
            let summed = sum_up(
                &bookkeeper,
                options,
                began.elapsed(),
                &outcome.verdict,
                watchers.log,
            );
            ok_or_say(summed).unwrap_or_default()
        }
        None => String::new(),
    };
    if let Some(case) = case {
        leave_case(case, &outcome);
    }
    // The exit code tells of the job, and comes out all the same.
    ok_or_say(watchers.observer.finish(&section));
    if checkpoints.is_none() {
        // Its thread has nothing left to do, and ends with this process: to wait for it would only take time.
        mem::forget(launcher);
    }
    code
}

/// Shows what happens in the job until its end.
fn follow(
    launcher: &mut Launcher,
    watchers: &mut Watchers,
    mut saving: Option<&mut SavingWatch>,
) -> anyhow::Result<JobOutcome> {
    loop {
        let event = match launcher.next_event(Some(Duration::ZERO))? {
            Some(event) => Some(event),
            None => {
                // Nothing more to be had for now: what was collected must not wait.
                watchers.console.flush_for(launcher)?;
                if let Some(saving) = &mut saving
                    && let Some((now, changed)) = saving.look()
                {
                    let turned = changed.then(|| saving.elapsed());
                    watchers.handle_saving(now, turned);
                }
                let looks = saving.as_ref().map(|saving| saving.patience());
                let patience = [watchers.progress.patience(), looks].into_iter().flatten().min();
                match launcher.next_event(patience)? {
                    None if patience.is_some() => {
                        let is_at_line_start = watchers.console.is_at_line_start();
                        watchers.progress.show(is_at_line_start);
                        continue;
                    }
                    event => event,
                }
            }
        };
        let Some(event) = event else {
            bail!("the launcher stopped without a verdict");
        };
        watchers.handle(&event, launcher)?;
        if let JobEvent::Finished(outcome) = event {
            return Ok(outcome);
        }
    }
}

/// All that follow the job.
struct Watchers {
    progress: Progress,
    log: Option<JsonLog>,
    observer: Observer,
    /// Waits for the function object of an OpenFOAM case.
    loading: Option<Loading>,
    narrator: Narrator,
    console: Console,
}

impl Watchers {
    /// In the order in which they are told of an event.
    fn all(&mut self) -> [&mut dyn Watcher; 6] {
        [
            &mut self.progress,
            &mut self.log,
            &mut self.observer,
            &mut self.loading,
            &mut self.narrator,
            &mut self.console,
        ]
    }
}

impl Watcher for Watchers {
    fn handle(&mut self, event: &JobEvent, launcher: &Launcher) -> anyhow::Result<()> {
        let mut all = self.all().into_iter();
        all.try_for_each(|watcher| watcher.handle(event, launcher))
    }

    fn handle_saving(&mut self, saving: Saving, turned: Option<Duration>) {
        for watcher in self.all() {
            watcher.handle_saving(saving, turned);
        }
    }
}

/// Starts a job that is started again from checkpoints; says of which case of OpenFOAM, if it is one.
fn start_supervised(
    spec: JobSpec,
    supervisor: Checkpoints,
    told: &CheckpointOptions,
    is_openfoam: bool,
) -> anyhow::Result<(Launcher, Option<Case>)> {
    if !is_openfoam {
        return Ok((Launcher::start_with(spec, supervisor)?, None));
    }
    let keeper = CaseKeeper::new(supervisor, told, &spec)?;
    let case = keeper.case()?;
    Ok((Launcher::start_with(spec, keeper)?, Some(case)))
}

/// Tidies up after a job that ran a case of OpenFOAM.
fn leave_case(case: Case, outcome: &JobOutcome) {
    let purged = match outcome.exit_code() {
        0 => case.purge().map(drop),
        _ => Ok(()),
    };
    for error in [purged.err(), case.finish().err()].into_iter().flatten() {
        say(&format!("{error}"));
    }
}

/// Says what saving cost, and draws it for a page.
fn sum_up(
    bookkeeper: &Bookkeeper,
    options: &CheckpointOptions,
    total: Duration,
    verdict: &Verdict,
    log: Option<JsonLog>,
) -> anyhow::Result<String> {
    let summary = bookkeeper.finish(options, total, verdict)?;
    if let Some(log) = log {
        log.write(summary.to_json());
    }
    progress::erase();
    let _ = writeln!(io::stderr(), "{}", summary.table());
    Ok(summary.section())
}

fn finish(console: Console, outcome: &JobOutcome) -> anyhow::Result<u8> {
    progress::erase();
    match console.finish() {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(128 + SIGPIPE as u8),
        Err(error) => return Err(error).context("cannot write the output of the ranks"),
    }
    // What became of attempts before the last was told when it happened.
    let last = JobOutcome {
        attempts: Vec::new(),
        ..outcome.clone()
    };
    for line in last.to_string().lines() {
        say(line);
    }
    if let Some(before) = outcome.attempts.last().filter(|_| outcome.is_success()) {
        say(&format!("the job was done in attempt {}", before.number + 1));
    }
    Ok(u8::try_from(outcome.exit_code()).unwrap_or(u8::MAX))
}

/// The value, if there is one; else the user is told why.
fn ok_or_say<T>(result: anyhow::Result<T>) -> Option<T> {
    result.map_err(|error| say(&format!("{error:#}"))).ok()
}

/// Tells the user, if that is possible: the exit code must come out even if standard error cannot be written.
fn say(text: &str) {
    progress::erase();
    let _ = writeln!(io::stderr(), "ropewalk: {text}");
}
