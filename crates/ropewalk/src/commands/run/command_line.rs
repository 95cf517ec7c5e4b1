//! The words of an mpiexec command, as MPICH's Hydra has them, with one dash or two, and our own.

mod addresses;
mod help;
mod options;
mod words;

use std::{
    ffi::{OsStr, OsString},
    net::{Ipv4Addr, SocketAddr},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use ropewalk::launch::{
    Binding, DealOrder, Injection, JobSpec, OnFailure, Placement, RespawnPolicy, Segment, Singleton,
    StartMethod, StdinSource, UniverseSize,
    hosts::{HostSlots, parse_host_file, parse_hosts, slurm_hosts, total_slots},
    restart::RestartPolicy,
};

use self::addresses::{interface_address, metrics_address};
pub(super) use self::help::HELP;
pub(crate) use self::options::documented;
use self::words::{Words, option_name, seconds};
use super::{checkpoints::CheckpointOptions, openfoam, partners, pattern::Pattern};

/// What is asked for.
#[derive(Debug)]
pub(super) enum Command {
    Help,
    Version,
    Run(Box<Request>),
}

/// A job, and what is done with its output.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) spec: JobSpec,
    /// What stands before each line of output.
    pub(super) prefix: Option<Pattern>,
    /// Where output goes instead of to that of this command.
    pub(super) files: [Option<Pattern>; 2],
    pub(super) print_exit_codes: bool,
    pub(super) log_json: bool,
    pub(super) verbose: bool,
    /// Where Prometheus can read how the job is.
    pub(super) metrics: Option<SocketAddr>,
    /// Where a page about the job is written to.
    pub(super) report: Option<PathBuf>,
    /// What the supervisor of its checkpoints is told.
    pub(super) checkpoints: Option<CheckpointOptions>,
    /// Whether the program is one of OpenFOAM whose case is to be prepared.
    pub(super) is_openfoam: bool,
}

/// What the words are read beside.
pub(super) struct Surroundings<'a> {
    pub(super) agent: PathBuf,
    pub(super) variable: &'a dyn Fn(&str) -> Option<OsString>,
    pub(super) read: &'a dyn Fn(&Path) -> std::io::Result<Vec<u8>>,
}

/// Reads the words of a command.
pub(super) fn parse(words: Vec<OsString>, around: &Surroundings<'_>) -> anyhow::Result<Command> {
    let mut parser = Parser::new();
    parser.take_variables(around)?;
    match parser.take(words, around)? {
        Taken::Help => return Ok(Command::Help),
        Taken::Version => return Ok(Command::Version),
        Taken::All => {}
    }
    parser
        .finish(around)
        .map(|request| Command::Run(Box::new(request)))
}

enum Taken {
    All,
    Help,
    Version,
}

struct Parser {
    segments: Vec<Segment>,
    current: Segment,
    /// Somebody said how many processes there are to be of a program.
    has_ranks: bool,
    environment: Vec<(OsString, OsString)>,
    /// The variables of this command that the programs get; `None` if nobody has said it yet.
    inherited: Option<Inherited>,
    hosts: Vec<HostSlots>,
    placement: Placement,
    launcher: Option<String>,
    launcher_exec: Option<String>,
    interface: Option<String>,
    on_failure: OnFailure,
    stdin: Option<StdinSource>,
    singleton: Option<Singleton>,
    stall: Option<Duration>,
    mtbf: Option<Duration>,
    seed: u64,
    timeout: Option<Duration>,
    detect: Duration,
    start_timeout: Option<Duration>,
    arity: u32,
    universe: UniverseSize,
    prefix: Option<Pattern>,
    files: [Option<Pattern>; 2],
    print_exit_codes: bool,
    log_json: bool,
    verbose: bool,
    metrics: Option<SocketAddr>,
    report: Option<PathBuf>,
    checkpoint_directory: Option<PathBuf>,
    has_partners: bool,
    upload: Option<String>,
    is_openfoam: bool,
    checkpoint_mtbf: Option<f64>,
    host_mtbf: Option<Option<f64>>,
    files_read: u32,
}

impl Parser {
    /// Files of options may name others, which might name the first.
    const FILES_MAX: u32 = 16;

    fn new() -> Self {
        Self {
            segments: Vec::new(),
            current: segment(),
            has_ranks: false,
            environment: Vec::new(),
            inherited: None,
            hosts: Vec::new(),
            placement: Placement::default(),
            launcher: None,
            launcher_exec: None,
            interface: None,
            on_failure: OnFailure::Abort,
            stdin: None,
            singleton: None,
            stall: None,
            mtbf: None,
            seed: 0,
            timeout: None,
            detect: JobSpec::DETECT,
            start_timeout: None,
            arity: JobSpec::ARITY,
            universe: UniverseSize::Unknown,
            prefix: None,
            files: [None, None],
            print_exit_codes: false,
            log_json: false,
            verbose: false,
            metrics: None,
            report: None,
            checkpoint_directory: None,
            has_partners: false,
            upload: None,
            is_openfoam: false,
            checkpoint_mtbf: None,
            host_mtbf: None,
            files_read: 0,
        }
    }

    /// What Hydra's variables say where an option can say otherwise.
    fn take_variables(&mut self, around: &Surroundings<'_>) -> anyhow::Result<()> {
        for (variable, option) in [("HYDRA_BINDING", "bind-to"), ("HYDRA_MAPPING", "map-by")] {
            if let Some(value) = (around.variable)(variable) {
                let mut value = Words([value].into());
                self.option(option, &mut value, around)
                    .with_context(|| format!("the variable {variable}"))?;
            }
        }
        Ok(())
    }

    fn take(&mut self, words: Vec<OsString>, around: &Surroundings<'_>) -> anyhow::Result<Taken> {
        let mut words = Words(words.into());
        while let Some(word) = words.0.pop_front() {
            if word == ":" {
                self.end_segment()?;
                continue;
            }
            let Some(option) = option_name(&word).filter(|_| word != "--") else {
                // Options end where the program begins.
                self.current.program = if word == "--" { words.next("-")? } else { word };
                while let Some(word) = words.0.pop_front_if(|word| word != ":") {
                    self.current.arguments.push(word);
                }
                continue;
            };
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (option, None),
            };
            if let Some(value) = value {
                words.0.push_front(value.into());
            }
            if name == "help" || name == "h" {
                return Ok(Taken::Help);
            }
            // As mpiexec is asked who it is.
            if name == "version" || name == "V" {
                return Ok(Taken::Version);
            }
            self.option(&name, &mut words, around)?;
        }
        Ok(Taken::All)
    }

    fn option(&mut self, name: &str, words: &mut Words, around: &Surroundings<'_>) -> anyhow::Result<()> {
        match name {
            "n" | "np" | "ranks" => {
                self.current.ranks = words.number(name)?;
                self.has_ranks = true;
            }
            "env" => self.current.environment.push(words.variable(name)?),
            "genv" => self.environment.push(words.variable(name)?),
            "genvall" | "envall" => self.inherited = Some(Inherited::All),
            "genvnone" | "envnone" => self.inherited = Some(Inherited::none()),
            "genvlist" | "envlist" => self.inherited = Some(Inherited::list(&words.next(name)?)),
            "wdir" | "wd" => self.current.working_directory = Some(words.next(name)?.into()),
            "configfile" => self.read_config(&PathBuf::from(words.next(name)?), around)?,
            "hosts" | "host" | "H" => self.hosts.extend(parse_hosts(&words.text(name)?)?),
            "f" | "hostfile" | "machinefile" => {
                let path = PathBuf::from(words.next(name)?);
                self.hosts.extend(read_hosts(&path, around)?);
            }
            "ppn" | "perhost" | "npernode" => {
                self.placement.ranks_per_host = Some(words.number(name)?.max(1))
            }
            "map-by" => {
                self.placement.order = match words.text(name)?.as_str() {
                    "slot" | "core" | "hwthread" => DealOrder::BySlot,
                    "node" | "host" => DealOrder::ByNode,
                    other => bail!("option -map-by wants slot or node, not {other:?}"),
                }
            }
            "bind-to" => {
                self.placement.binding = match words.text(name)?.as_str() {
                    "none" => Binding::Nowhere,
                    "core" => Binding::Core,
                    "socket" => Binding::Socket,
                    "numa" => Binding::Numa,
                    other => bail!("option -bind-to wants none, core, socket or numa, not {other:?}"),
                }
            }
            "launcher" | "bootstrap" => self.launcher = Some(words.text(name)?),
            "launcher-exec" | "bootstrap-exec" => self.launcher_exec = Some(words.text(name)?),
            "pmi_args" | "pmi-args" => {
                let port = u16::try_from(words.number(name)?).context("-pmi_args wants a port")?;
                // An interface and a word for a key follow, which no client gives a meaning.
                let _ = (words.next(name)?, words.next(name)?);
                let pid = words.number(name)?;
                self.singleton = Some(Singleton { port, pid });
            }
            "iface" => self.interface = Some(words.text(name)?),
            "arity" => self.arity = words.number(name)?.max(1),
            "usize" => {
                let text = words.text(name)?;
                self.universe = match text.to_ascii_lowercase().as_str() {
                    "infinite" => UniverseSize::Unknown,
                    "system" => UniverseSize::Slots,
                    number => match number.parse() {
                        Ok(size) => UniverseSize::Ranks(size),
                        Err(_) => bail!("option -usize wants system, infinite or a number, not {text:?}"),
                    },
                }
            }
            "l" | "label" | "prepend-rank" => self.prefix = Some(Pattern::new("[%r] ")),
            "prepend-pattern" => self.prefix = Some(Pattern::new(words.text(name)?)),
            "outfile-pattern" | "outfile" => self.files[0] = Some(Pattern::new(words.text(name)?)),
            "errfile-pattern" | "errfile" => self.files[1] = Some(Pattern::new(words.text(name)?)),
            "s" | "stdin" => {
                self.stdin = Some(match words.text(name)?.as_str() {
                    "0" => StdinSource::Inherit,
                    "all" => StdinSource::InheritAll,
                    "none" => StdinSource::Null,
                    other => bail!("option -stdin wants 0, all or none, not {other:?}"),
                })
            }
            "print-all-exitcodes" => self.print_exit_codes = true,
            "log" => match words.text(name)?.as_str() {
                "json" => self.log_json = true,
                other => bail!("option --log wants json, not {other:?}"),
            },
            "metrics" => self.metrics = Some(metrics_address(&words.text(name)?)?),
            "adapter" => match words.text(name)?.as_str() {
                "openfoam" => self.is_openfoam = true,
                other => bail!("option --adapter knows openfoam, not {other:?}"),
            },
            "partner" => self.has_partners = true,
            "upload" => self.upload = Some(words.text(name)?),
            "checkpoint" => self.checkpoint_directory = Some(words.next(name)?.into()),
            "mtbf" => self.checkpoint_mtbf = words.mtbf(name)?,
            "host-mtbf" => self.host_mtbf = Some(words.mtbf(name)?),
            "report" => self.report = Some(words.next(name)?.into()),
            "verbose" | "v" => self.verbose = true,
            "on-failure" => {
                self.on_failure = match words.text(name)?.as_str() {
                    "abort" => OnFailure::Abort,
                    "continue" => OnFailure::Continue,
                    "respawn" => OnFailure::Respawn(RespawnPolicy::default()),
                    "restart" => OnFailure::Restart(RestartPolicy::default()),
                    other => match other.split_once('=').map(|(what, count)| (what, count.parse())) {
                        Some(("respawn", Ok(per_rank))) => OnFailure::Respawn(RespawnPolicy {
                            per_rank,
                            ..RespawnPolicy::default()
                        }),
                        Some(("restart", Ok(restarts))) => {
                            OnFailure::Restart(RestartPolicy::at_most(restarts))
                        }
                        _ => bail!(
                            "option --on-failure wants abort, continue, respawn[=N] or restart[=N], not {other:?}"
                        ),
                    },
                }
            }
            "disable-auto-cleanup" => self.on_failure = OnFailure::Continue,
            "enable-auto-cleanup" => self.on_failure = OnFailure::Abort,
            "disable-hostname-propagation" | "enable-hostname-propagation" => {}
            "stall" => self.stall = Some(words.seconds(name)?),
            "inject-mtbf" => self.mtbf = Some(words.seconds(name)?),
            "seed" => self.seed = words.number(name)?.into(),
            "timeout" => self.timeout = Some(words.seconds(name)?),
            "detect" => self.detect = words.seconds(name)?,
            "start-timeout" => self.start_timeout = Some(words.seconds(name)?),
            _ => bail!("there is no option -{name}; `ropewalk run --help` lists those that there are"),
        }
        Ok(())
    }

    /// A line of the file is what stands between two colons of a command.
    fn read_config(&mut self, path: &Path, around: &Surroundings<'_>) -> anyhow::Result<()> {
        self.files_read += 1;
        if self.files_read > Self::FILES_MAX {
            bail!("more than {} files of options", Self::FILES_MAX);
        }
        let text = (around.read)(path).with_context(|| format!("cannot read {}", path.display()))?;
        for line in text.split(|&byte| byte == b'\n') {
            let words: Vec<_> = line
                .split(u8::is_ascii_whitespace)
                .filter(|word| !word.is_empty())
                .map(|word| OsString::from_vec(word.to_vec()))
                .collect();
            if words
                .first()
                .is_some_and(|word| !word.as_bytes().starts_with(b"#"))
            {
                self.take(words, around)?;
                self.end_segment()?;
            }
        }
        Ok(())
    }

    fn end_segment(&mut self) -> anyhow::Result<()> {
        if self.current.program.is_empty() {
            bail!("no program before `:`");
        }
        self.segments
            .push(std::mem::replace(&mut self.current, segment()));
        Ok(())
    }

    fn finish(mut self, around: &Surroundings<'_>) -> anyhow::Result<Request> {
        if self.singleton.is_some() {
            self.stdin = Some(StdinSource::Null);
            self.current.program = "singleton".into();
        }
        if self.segments.is_empty() || !self.current.program.is_empty() {
            if self.current.program.is_empty() {
                bail!("no program given; `ropewalk run --help` tells how");
            }
            self.end_segment()?;
        }
        let variable = |name: &str| (around.variable)(name).and_then(|value| value.into_string().ok());
        let in_slurm = self.singleton.is_none() && self.find_hosts(around)?;
        if let ([only], false, false) = (&mut self.segments[..], self.has_ranks, self.hosts.is_empty()) {
            only.ranks = total_slots(&self.hosts);
        }
        let either = |one: &str, other: &str| variable(one).or_else(|| variable(other));
        let launcher = self.launcher.take();
        let launcher = launcher.or_else(|| either("HYDRA_LAUNCHER", "HYDRA_BOOTSTRAP"));
        let command = self.launcher_exec.take();
        let command = command.or_else(|| either("HYDRA_LAUNCHER_EXEC", "HYDRA_BOOTSTRAP_EXEC"));
        let further = variable("HYDRA_LAUNCHER_EXTRA_ARGS").unwrap_or_default();
        let method = method(launcher.as_deref(), command.as_deref(), &further, in_slurm)?;
        let interface = self.interface.take().or_else(|| variable("HYDRA_IFACE"));
        let interface = match (interface, launcher.as_deref()) {
            (Some(text), _) => Some(interface_address(&text)?),
            (None, Some("fork")) => Some(Ipv4Addr::LOCALHOST.into()),
            (None, _) => None,
        };
        if self.timeout.is_none()
            && let Some(text) = variable("MPIEXEC_TIMEOUT")
        {
            self.timeout = Some(seconds(&text).context("MPIEXEC_TIMEOUT wants seconds")?);
        }
        if self.detect.is_zero() {
            bail!("option --detect wants more than 0 seconds");
        }
        let inherited = match (self.inherited, (around.variable)("HYDRA_ENV")) {
            (Some(inherited), _) => inherited,
            (None, Some(text)) => Inherited::of_variable(&text)?,
            (None, None) => Inherited::All,
        };
        let mut segments = self.segments.into_iter();
        let first = segments.next().context("no program given")?;
        // The first program's own variables are its own only if there are others.
        let more: Vec<_> = segments.collect();
        let mut spec = JobSpec {
            arguments: first.arguments,
            ranks: first.ranks,
            environment: self.environment,
            own_environment: first.environment,
            inherited: match inherited {
                Inherited::All => None,
                Inherited::Only(names) => Some(names),
            },
            working_directory: first.working_directory,
            more,
            hosts: self.hosts,
            placement: self.placement,
            method,
            interface,
            arity: self.arity,
            universe: self.universe,
            detect: self.detect,
            start_timeout: self.start_timeout.filter(|timeout| !timeout.is_zero()),
            on_failure: self.on_failure,
            // What one attempt has read the next cannot read again.
            stdin: self.stdin.unwrap_or(match self.on_failure {
                OnFailure::Restart(_) => StdinSource::Null,
                _ => StdinSource::Inherit,
            }),
            timeout: self.timeout,
            forward_signals: true,
            singleton: self.singleton,
            stall: self.stall.filter(|stall| !stall.is_zero()),
            injection: self.mtbf.map(|mtbf| Injection {
                mtbf,
                seed: self.seed,
            }),
            fork_agent: true,
            ..JobSpec::new(around.agent.clone(), first.program)
        };
        if spec.hosts.is_empty() {
            spec.interface = None;
        }
        let mut directory = self.checkpoint_directory;
        if self.is_openfoam && directory.is_none() {
            directory = Some(openfoam::folder(&spec)?.join("checkpoints"));
        }
        if self.has_partners {
            partners::check(
                &spec,
                directory.is_some(),
                self.is_openfoam,
                self.upload.is_some(),
            )?;
        } else if self.host_mtbf.is_some() {
            bail!(
                "option --host-mtbf wants --partner: without copies the loss of a host is one failure of many"
            );
        }
        let checkpoints = match directory {
            Some(directory) => Some(CheckpointOptions {
                directory,
                mtbf: self.checkpoint_mtbf,
                host_mtbf: self.host_mtbf.flatten(),
                has_partners: self.has_partners,
                upload: self.upload,
            }),
            None if self.upload.is_some() => bail!("option --upload wants --checkpoint DIR"),
            None if self.checkpoint_mtbf.is_some() => bail!("option --mtbf wants --checkpoint DIR"),
            None => None,
        };
        Ok(Request {
            checkpoints,
            is_openfoam: self.is_openfoam,
            spec,
            prefix: self.prefix,
            files: self.files,
            print_exit_codes: self.print_exit_codes,
            log_json: self.log_json,
            verbose: self.verbose,
            metrics: self.metrics,
            report: self.report,
        })
    }

    /// The hosts of a file that the environment names, or those of a Slurm allocation. Returns whether it was that.
    fn find_hosts(&mut self, around: &Surroundings<'_>) -> anyhow::Result<bool> {
        if !self.hosts.is_empty() {
            return Ok(false);
        }
        if let Some(path) = (around.variable)("HYDRA_HOST_FILE") {
            self.hosts = read_hosts(&PathBuf::from(path), around)?;
            return Ok(false);
        }
        let text = |name: &str| (around.variable)(name).and_then(|value| value.into_string().ok());
        let Some(nodes) = text("SLURM_JOB_NODELIST").or_else(|| text("SLURM_NODELIST")) else {
            return Ok(false);
        };
        let tasks = text("SLURM_TASKS_PER_NODE");
        self.hosts =
            slurm_hosts(&nodes, tasks.as_deref()).context("cannot read what Slurm says about its nodes")?;
        Ok(true)
    }
}

/// Which variables of this command the programs get.
enum Inherited {
    All,
    Only(Vec<OsString>),
}

impl Inherited {
    fn none() -> Self {
        Self::Only(Vec::new())
    }

    /// Names with commas between them.
    fn list(names: &OsStr) -> Self {
        let names = names.as_bytes().split(|&byte| byte == b',');
        Self::Only(names.map(|name| OsStr::from_bytes(name).to_owned()).collect())
    }

    /// The variable `HYDRA_ENV`.
    fn of_variable(text: &OsStr) -> anyhow::Result<Self> {
        match text.as_bytes() {
            b"all" => Ok(Self::All),
            b"none" => Ok(Self::none()),
            bytes => match bytes.strip_prefix(b"list:") {
                Some(names) => Ok(Self::list(OsStr::from_bytes(names))),
                None => bail!("HYDRA_ENV wants all, none or list:NAME,NAME.., not {text:?}"),
            },
        }
    }
}

fn segment() -> Segment {
    Segment {
        program: OsString::new(),
        arguments: Vec::new(),
        ranks: 1,
        environment: Vec::new(),
        working_directory: None,
    }
}

fn read_hosts(path: &Path, around: &Surroundings<'_>) -> anyhow::Result<Vec<HostSlots>> {
    let bytes =
        (around.read)(path).with_context(|| format!("cannot read the host file {}", path.display()))?;
    let text = String::from_utf8(bytes).with_context(|| format!("{} is no text", path.display()))?;
    parse_host_file(&text).with_context(|| format!("cannot use the host file {}", path.display()))
}

/// `further` are options for the command that starts agents.
fn method(
    launcher: Option<&str>,
    command: Option<&str>,
    further: &str,
    in_slurm: bool,
) -> anyhow::Result<StartMethod> {
    let split = |text: &str| -> Vec<OsString> { text.split_ascii_whitespace().map(OsString::from).collect() };
    let further = split(further);
    if let Some(command) = command {
        let words = split(command);
        if words.is_empty() {
            bail!("option -launcher-exec wants a command");
        }
        return Ok(StartMethod::Command([words, further].concat()));
    }
    Ok(match launcher {
        None if in_slurm => StartMethod::Srun(further),
        None | Some("ssh") => StartMethod::Ssh(further),
        Some("slurm" | "srun") => StartMethod::Srun(further),
        Some("rsh") => StartMethod::Command([vec!["rsh".into()], further].concat()),
        // All on this machine, whatever the hosts are called.
        Some("fork") => StartMethod::Command(
            ["sh", "-c", "shift; exec \"$@\"", "sh"]
                .map(OsString::from)
                .into(),
        ),
        Some(other) => bail!("option -launcher wants ssh, rsh, slurm or fork, not {other:?}"),
    })
}

#[cfg(test)]
mod tests;
