//! `ropewalk run`: the mpiexec of ropewalk.

mod allocation;
mod checkpoints;
mod command_line;
mod console;
mod metrics;
mod metrics_server;
mod observer;
mod openfoam;
mod partners;
mod pattern;
mod progress;
mod rank_map;
mod record;
mod report;
mod saving;
mod shown_ranks;
mod summary;
mod upload;

use std::{
    env,
    ffi::OsString,
    fs, io,
    io::Write,
    mem,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use ropewalk_fabric::JobKey;
use ropewalk_launch::{Ending, JobEvent, JobSpec, Launcher, Verdict};
use ropewalk_openfoam::{Case, Loading};
use serde_json::json;

use checkpoints::{Bookkeeper, CheckpointOptions, Checkpoints};
use command_line::{Command, Output, Request, Surroundings, help, info, parse};
pub(crate) use command_line::{divide, documented, documented_some, some_options};
use console::Console;
#[cfg(feature = "fuzzing")]
pub(crate) use metrics_server::fuzz_request as fuzz_metrics_request;
use observer::Observer;
use openfoam::CaseKeeper;
use progress::Progress;
use saving::SavingWatch;

/// What `ropewalk run` is told.
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
        let around = Surroundings {
            agent: env::current_exe().context("cannot find my own executable")?,
            variable: &|name| env::var_os(name),
            read: &|path| fs::read(path),
            read_key: &JobKey::read_from,
        };
        parse(self.words, &around)
    }
}

/// Reads a command whose words are the lines of `bytes` up to an empty one. The rest stands in every file that they name,
/// and, without its first byte, whose bits say which there are, in variables.
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
        // Behind it names would be looked up in the network.
        read_key: &|_| Err(io::ErrorKind::NotFound.into()),
    };
    if let Ok(Command::Run(request)) = parse(words, &around) {
        let spec = &request.spec;
        assert!(!spec.program.is_empty() && spec.more.iter().all(|more| !more.program.is_empty()));
        assert!(!spec.detect.is_zero());
    }
}

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
    let ranks = spec
        .more
        .iter()
        .fold(spec.ranks, |sum, more| sum.saturating_add(more.ranks));
    if checkpoints.is_some() {
        spec.allocation = allocation::time_left();
    }
    let mut progress = Progress::new(&spec, log_json || verbose);
    let mut observer = Observer::start(metrics, report, &spec)?;
    let supervisor = checkpoints.as_ref().map(Checkpoints::new).transpose()?;
    let bookkeeper = supervisor.as_ref().map(Checkpoints::bookkeeper);
    let told = checkpoints.as_ref();
    let mut saving = told.map(|told| SavingWatch::new(&told.directory, began));
    let upload = told.and_then(|told| Some((told.upload.as_ref()?, &told.directory)));
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
    let mut console = Console::new(prefix, files, shown_ranks);
    let mut failure = None;
    let mut loading = case.is_some().then(Loading::default);
    let mut ends = Vec::new();
    loop {
        let event = match launcher.next_event(Some(Duration::ZERO))? {
            Some(event) => Some(event),
            None => {
                // Nothing more to be had for now: what was collected must not wait.
                if let Err(error) = console.flush() {
                    failure.get_or_insert(give_up(&launcher, error)?);
                }
                if let Some(saving) = &mut saving {
                    watch_saving(saving, &mut progress, &observer, log_json);
                }
                let looks = saving.as_ref().map(SavingWatch::patience);
                let patience = [progress.patience(), looks].into_iter().flatten().min();
                match launcher.next_event(patience)? {
                    None if patience.is_some() => {
                        progress.show(console.is_at_line_start());
                        continue;
                    }
                    event => event,
                }
            }
        };
        let Some(event) = event else {
            bail!("the launcher stopped without a verdict");
        };
        progress.handle(&event);
        if log_json {
            log(&event);
        }
        observer.handle(&event, &launcher);
        if let (Some(loading), JobEvent::Output { rank, line, .. }) = (&mut loading, &event)
            && rank.0 == 0
            && loading.is_missing_at(line)
        {
            say(NOT_LOADED);
            launcher.interrupt(SIGTERM)?;
        }
        match event {
            JobEvent::Finished(verdict) => {
                if print_exit_codes {
                    ends.sort_unstable();
                    let text: Vec<_> = ends.iter().map(|(rank, end)| format!("{rank}: {end}")).collect();
                    say(&format!("how the ranks ended: {}", text.join("; ")));
                }
                let code = finish(&mut console, &verdict, failure);
                if let Some(upload) = upload.take() {
                    upload.finish();
                }
                let mut section = String::new();
                if let Some((bookkeeper, options)) = bookkeeper.zip(checkpoints.as_ref()) {
                    match sum_up(&bookkeeper, options, began.elapsed(), &verdict, log_json) {
                        Ok(drawn) => section = drawn,
                        Err(error) => say(&format!("{error:#}")),
                    }
                }
                if let Some(case) = case {
                    let purged = match verdict.exit_code() {
                        0 => case.purge().map(drop),
                        _ => Ok(()),
                    };
                    for error in [purged.err(), case.finish().err()].into_iter().flatten() {
                        say(&format!("{error}"));
                    }
                }
                // The exit code tells of the job, and comes out all the same.
                if let Err(error) = observer.finish(&section) {
                    say(&format!("{error:#}"));
                }
                if checkpoints.is_none() {
                    // Its thread has nothing left to do, and ends with this process: to wait for it would only take time.
                    mem::forget(launcher);
                }
                return code;
            }
            JobEvent::NameServerFailed { reason } => say(&reason),
            JobEvent::Notice { rank, text } => say(&format!("rank {rank}: {text}")),
            JobEvent::Output { rank, stream, line } if failure.is_none() => {
                let host = launcher.host_of(rank).unwrap_or_default();
                if let Err(error) = console.line(rank, host, stream, &line) {
                    failure = Some(give_up(&launcher, error)?);
                }
            }
            JobEvent::Stalled {
                after,
                who,
                ends_after,
            } => {
                let (after, ends_after) = (after.as_secs_f64(), ends_after.as_secs_f64());
                say(&format!(
                    "no rank did anything for {after} s: {who}; the job ends in {ends_after} s if nothing moves (--stall)"
                ));
            }
            JobEvent::Lost { what, stall } => {
                if let Some(ends) = stall.map(ends_unless_moved) {
                    say(&format!("{what}; the others go on; {ends}"));
                }
            }
            JobEvent::HostLate { host, after } => {
                let after = after.as_secs_f64();
                say(&format!(
                    "the agent on host {host} has not come up for {after} s; it is waited for"
                ));
            }
            JobEvent::EndAnnounced { ending, left } => say(&end_announced(&ending, left)),
            JobEvent::Injected { rank, host } => {
                say(&format!("rank {rank} on host {host} is killed on purpose"))
            }
            JobEvent::Respawning {
                failure,
                pause,
                stall,
            } => {
                let pause = pause.as_secs_f64();
                let ends = stall.map(|stall| format!("; {}", ends_unless_moved(stall)));
                let ends = ends.unwrap_or_default();
                say(&format!("{failure}; it is started again in {pause} s{ends}"));
            }
            JobEvent::Restarting { failed, pause } => {
                for line in failed.verdict.to_string().lines() {
                    say(&format!("attempt {}: {line}", failed.number));
                }
                let pause = pause.as_secs_f64();
                say(&format!("the job is started again in {pause} s"));
                ends.clear();
            }
            JobEvent::Stopped {
                rank,
                host,
                pid,
                signal,
            } => say(&format!(
                "rank {rank} on host {host} is stopped by signal {signal}, pid {pid}; others may wait for it"
            )),
            JobEvent::Continued { rank, host } => say(&format!("rank {rank} on host {host} goes on")),
            JobEvent::Departed { departure, host, .. } => {
                if print_exit_codes {
                    ends.push((departure.rank.0, departure.cause.to_string()));
                }
                if verbose {
                    say(&format!(
                        "rank {} on host {host} {}",
                        departure.rank, departure.cause
                    ));
                }
            }
            JobEvent::Spawned {
                group,
                first,
                size,
                by,
            } if verbose => say(&format!(
                "rank {by} spawned group {group}: {size} processes, from rank {first} of the job on"
            )),
            JobEvent::Overwritten { rank, key } if verbose => say(&format!(
                "rank {rank} put another value under the key {key} of PMI; the last one counts"
            )),
            JobEvent::Started { rank, pid } if verbose => {
                let host = launcher.host_of(rank).unwrap_or_default();
                say(&format!("rank {rank} on host {host} runs, pid {pid}"));
            }
            _ => {}
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

/// Tells of saves that fail, and when they do no more.
fn watch_saving(watch: &mut SavingWatch, progress: &mut Progress, observer: &Observer, log_json: bool) {
    let Some((saving, changed)) = watch.look() else {
        return;
    };
    progress.note_saving(saving);
    observer.note_saving(saving);
    if !changed {
        return;
    }
    let now = watch.elapsed();
    let (event, text) = match saving.unprotected_since {
        Some(since) => (
            "saves_fail",
            format!(
                "saves fail: nothing is saved since {:.1} s after the start, and a failure would cost all since then",
                since.as_secs_f64()
            ),
        ),
        None => ("saves_work", "saves are made again".to_owned()),
    };
    if log_json {
        progress::erase();
        let _ = writeln!(io::stderr(), "{}", saving.to_json(event, now));
    }
    say(&text);
}

/// Says what saving cost, and draws it for a page.
fn sum_up(
    bookkeeper: &Bookkeeper,
    options: &CheckpointOptions,
    total: Duration,
    verdict: &Verdict,
    log_json: bool,
) -> anyhow::Result<String> {
    let summary = bookkeeper.finish(options, total, verdict)?;
    progress::erase();
    if log_json {
        let _ = writeln!(io::stderr(), "{}", summary.to_json());
    }
    let _ = writeln!(io::stderr(), "{}", summary.table());
    Ok(summary.section())
}

/// One object for each event but output, on standard error.
fn log(event: &JobEvent) {
    let object = match event {
        JobEvent::Continued { rank, host } => json!({"event": "continued", "rank": rank.0, "host": host}),
        JobEvent::Departed { departure, host, .. } => json!({
            "event": "departed", "rank": departure.rank.0, "host": host, "cause": departure.cause.to_string(),
        }),
        JobEvent::EndAnnounced { left, .. } => {
            json!({"event": "end_announced", "left_s": left.map(|left| left.as_secs_f64())})
        }
        JobEvent::FenceBegan { group, fence } => {
            json!({"event": "fence_began", "group": group, "fence": fence})
        }
        JobEvent::FenceEnded {
            group,
            fence,
            members,
            failed,
        } => json!({
            "event": "fence_ended", "group": group, "fence": fence, "members": members,
            "failed": failed.map(|rank| rank.0),
        }),
        JobEvent::Finished(verdict) => json!({
            "event": "finished", "exit_code": verdict.exit_code(), "verdict": verdict.to_string(),
        }),
        JobEvent::NameServerFailed { reason } => json!({"event": "name_server_failed", "reason": reason}),
        JobEvent::Notice { rank, text } => json!({"event": "notice", "rank": rank.0, "text": text}),
        JobEvent::Overwritten { rank, key } => json!({"event": "overwritten", "rank": rank.0, "key": key}),
        JobEvent::Stalled {
            after,
            who,
            ends_after,
        } => json!({
            "event": "stalled", "after_s": after.as_secs_f64(), "who": who, "ends_after_s": ends_after.as_secs_f64(),
        }),
        JobEvent::Lost { what, stall } => json!({
            "event": "lost", "what": what, "stall_s": stall.map(|stall| stall.as_secs_f64()),
        }),
        JobEvent::HostLate { host, after } => {
            json!({"event": "host_late", "host": host, "after_s": after.as_secs_f64()})
        }
        JobEvent::HostReady { host, ready, hosts } => {
            json!({"event": "host_ready", "host": host, "ready": ready, "hosts": hosts})
        }
        JobEvent::Injected { rank, host } => json!({"event": "injected", "rank": rank.0, "host": host}),
        JobEvent::Respawning {
            failure,
            pause,
            stall,
        } => json!({
            "event": "respawning", "rank": failure.rank.0, "host": failure.host, "cause": failure.to_string(),
            "pause_s": pause.as_secs_f64(), "stall_s": stall.map(|stall| stall.as_secs_f64()),
        }),
        JobEvent::Restarting { failed, pause } => json!({
            "event": "restarting", "attempt": failed.number, "exit_code": failed.verdict.exit_code(),
            "verdict": failed.verdict.to_string(), "after_s": failed.lasted.as_secs_f64(),
            "pause_s": pause.as_secs_f64(),
        }),
        JobEvent::Spawned {
            group,
            first,
            size,
            by,
        } => json!({"event": "spawned", "group": group, "first_rank": first.0, "size": size, "by": by.0}),
        JobEvent::Started { rank, pid } => json!({"event": "started", "rank": rank.0, "pid": pid}),
        JobEvent::Stopped {
            rank,
            host,
            pid,
            signal,
        } => json!({"event": "stopped", "rank": rank.0, "host": host, "pid": pid, "signal": signal}),
        _ => return,
    };
    progress::erase();
    let _ = writeln!(io::stderr(), "{object}");
}

/// Why a job is asked to save.
fn end_announced(ending: &Ending, left: Option<Duration>) -> String {
    let why = match ending {
        Ending::Interrupted(signal) => format!("signal {signal} came"),
        Ending::TimedOut(_) => "its time is over".to_owned(),
        _ => "its allocation is nearly over".to_owned(),
    };
    let left = left.map_or_else(String::new, |left| {
        format!(", if it can in {} s", left.as_secs_f64())
    });
    format!("the job will be ended, for {why}: it saves a checkpoint before{left}")
}

/// Output can go nowhere: ends the job as a shell would end it in a pipeline.
fn give_up(launcher: &Launcher, error: io::Error) -> anyhow::Result<io::Error> {
    launcher.interrupt(SIGPIPE)?;
    Ok(error)
}

fn finish(console: &mut Console, verdict: &Verdict, failure: Option<io::Error>) -> anyhow::Result<u8> {
    progress::erase();
    match failure.map_or_else(|| console.flush(), Err) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(128 + SIGPIPE as u8),
        Err(error) => return Err(error).context("cannot write the output of the ranks"),
    }
    // What became of attempts before the last was told when it happened.
    let last = Verdict {
        attempts: Vec::new(),
        ..verdict.clone()
    };
    for line in last.to_string().lines() {
        say(line);
    }
    if let Some(before) = verdict.attempts.last().filter(|_| verdict.is_success()) {
        say(&format!("the job was done in attempt {}", before.number + 1));
    }
    Ok(u8::try_from(verdict.exit_code()).unwrap_or(u8::MAX))
}

/// Says how a job ends in which nobody who is left can go on.
fn ends_unless_moved(stall: Duration) -> String {
    format!(
        "the job ends in {} s if nothing moves (--stall)",
        stall.as_secs_f64()
    )
}

const SIGPIPE: i32 = 13;
const SIGTERM: i32 = 15;

/// A run that is not saved is not what was asked for.
const NOT_LOADED: &str = "OpenFOAM has not loaded the function object that saves, and would go on without: the job is ended. \
     Its output says why, above; the library has to be built for this OpenFOAM (`cargo xtask openfoam build`)";

/// Tells the user, if that is possible: the exit code must come out even if standard error cannot be written.
fn say(text: &str) {
    progress::erase();
    let _ = writeln!(io::stderr(), "ropewalk: {text}");
}
