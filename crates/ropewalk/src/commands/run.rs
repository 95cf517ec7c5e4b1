//! `ropewalk run`: the mpiexec of ropewalk.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::{self, Write},
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, bail};
use clap::ValueEnum;
use ropewalk::{
    group::Rank,
    launch::{JobEvent, JobSpec, Launcher, OnFailure, OutputStream, StdinSource, Verdict},
};

/// What `ropewalk run` is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many processes (ranks).
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1)]
    ranks: u32,
    /// Put the rank before each line of output.
    #[arg(short, long)]
    label: bool,
    /// What happens to the others when a rank fails.
    #[arg(long, value_enum, value_name = "WHAT", default_value = "abort")]
    on_failure: Reaction,
    /// End the job after this time, with exit code 124.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    timeout: Option<Duration>,
    /// Set a variable for the ranks; may be given several times.
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<OsString>,
    /// Start the ranks in this directory.
    #[arg(long, value_name = "DIR")]
    wdir: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Reaction {
    /// They are ended.
    Abort,
    /// They go on.
    Continue,
}

/// Runs a job; the exit code is the verdict's.
pub(crate) fn run(arguments: Arguments) -> ExitCode {
    match arguments.job().and_then(watch) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say(&format!("{error:#}"));
            ExitCode::from(125)
        }
    }
}

impl Arguments {
    fn job(self) -> anyhow::Result<(JobSpec, bool)> {
        let agent = env::current_exe().context("cannot find my own executable")?;
        let mut program = self.program.into_iter();
        let spec = JobSpec {
            ranks: self.ranks,
            environment: self
                .env
                .iter()
                .map(|text| parse_variable(text))
                .collect::<Result<_, _>>()?,
            working_directory: self.wdir,
            on_failure: match self.on_failure {
                Reaction::Abort => OnFailure::Abort,
                Reaction::Continue => OnFailure::Continue,
            },
            stdin: StdinSource::Inherit,
            timeout: self.timeout,
            forward_signals: true,
            ..JobSpec::new(agent, program.next().context("no program given")?)
        };
        let arguments = program.collect();
        Ok((JobSpec { arguments, ..spec }, self.label))
    }
}

fn watch((spec, label): (JobSpec, bool)) -> anyhow::Result<u8> {
    let mut launcher = Launcher::start(spec)?;
    let mut console = Console::new(label);
    let mut failure = None;
    loop {
        let event = match launcher.next_event(Some(Duration::ZERO))? {
            Some(event) => Some(event),
            None => {
                // Nothing more to be had for now: what was collected must not wait.
                if let Err(error) = console.flush() {
                    failure.get_or_insert(give_up(&launcher, error)?);
                }
                launcher.next_event(None)?
            }
        };
        match event {
            Some(JobEvent::Finished(verdict)) => return finish(&mut console, &verdict, failure),
            Some(JobEvent::Notice { rank, text }) => console.notice(rank, &text),
            Some(JobEvent::Output { rank, stream, line }) if failure.is_none() => {
                if let Err(error) = console.line(rank, stream, &line) {
                    failure = Some(give_up(&launcher, error)?);
                }
            }
            Some(_) => {}
            None => bail!("the launcher stopped without a verdict"),
        }
    }
}

/// Output can go nowhere: ends the job as a shell would end it in a pipeline.
fn give_up(launcher: &Launcher, error: io::Error) -> anyhow::Result<io::Error> {
    launcher.interrupt(SIGPIPE)?;
    Ok(error)
}

fn finish(console: &mut Console, verdict: &Verdict, failure: Option<io::Error>) -> anyhow::Result<u8> {
    match failure.map_or_else(|| console.flush(), Err) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(128 + SIGPIPE as u8),
        Err(error) => return Err(error).context("cannot write the output of the ranks"),
    }
    for line in verdict.to_string().lines() {
        say(line);
    }
    Ok(u8::try_from(verdict.exit_code()).unwrap_or(u8::MAX))
}

const SIGPIPE: i32 = 13;

/// Tells the user, if that is possible: the exit code must come out even if standard error cannot be written.
fn say(text: &str) {
    let _ = writeln!(io::stderr(), "ropewalk: {text}");
}

/// Writes the lines of all ranks, each in one piece.
struct Console {
    label: bool,
    buffer: Vec<u8>,
    stream: OutputStream,
    /// The rank whose last line has no end yet, of standard error and of standard output.
    unfinished: [Option<Rank>; 2],
}

impl Console {
    /// How many bytes are collected before they are written.
    const BUFFERED_MAX: usize = 64 << 10;

    fn new(label: bool) -> Self {
        Self {
            label,
            buffer: Vec::new(),
            stream: OutputStream::Stdout,
            unfinished: [None; 2],
        }
    }

    fn line(&mut self, rank: Rank, stream: OutputStream, line: &[u8]) -> io::Result<()> {
        if stream != self.stream || self.buffer.len() >= Self::BUFFERED_MAX {
            self.flush()?;
            self.stream = stream;
        }
        let unfinished = &mut self.unfinished[usize::from(stream == OutputStream::Stdout)];
        let continues = *unfinished == Some(rank);
        if unfinished.is_some() && !continues {
            self.buffer.push(b'\n');
        }
        if self.label && !continues {
            self.buffer.extend_from_slice(format!("[{rank}] ").as_bytes());
        }
        self.buffer.extend_from_slice(line);
        *unfinished = (!line.ends_with(b"\n")).then_some(rank);
        Ok(())
    }

    fn notice(&mut self, rank: Rank, text: &str) {
        say(&format!("rank {rank}: {text}"));
    }

    fn flush(&mut self) -> io::Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        match self.stream {
            OutputStream::Stderr => io::stderr().write_all(&buffer),
            OutputStream::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(&buffer)?;
                stdout.flush()
            }
        }
    }
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

fn parse_variable(text: &OsStr) -> anyhow::Result<(OsString, OsString)> {
    let bytes = text.as_bytes();
    match bytes.iter().position(|&byte| byte == b'=') {
        Some(split @ 1..) => {
            let part = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
            Ok((part(&bytes[..split]), part(&bytes[split + 1..])))
        }
        _ => bail!("--env wants NAME=VALUE, not {text:?}"),
    }
}
