//! The words of an mpiexec command, as MPICH's Hydra has them, with one dash or two, and our own.

mod addresses;
mod binding;
mod config_file;
mod failures;
mod help;
mod hydra;
mod inherited;
mod launchers;
mod options;
mod resources;
mod suggestions;
mod words;

use std::{
    ffi::OsString,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use ropewalk::{
    checkpoint::Mtbf,
    fabric::JobKey,
    launch::{
        Inherited, Injection, JobSpec, OnFailure, OnStopped, Placement, Segment, Singleton, Stall,
        StdinSource, UniverseSize,
        hosts::{HostSlots, parse_hosts, total_slots},
    },
};

use self::addresses::{interface_address, metrics_address};
use self::binding::BindTo;
use self::failures::{limit_restarts, on_failure, on_stopped};
pub(super) use self::help::HELP;
use self::hydra::Hydra;
use self::launchers::method;
pub(crate) use self::options::documented;
use self::resources::{ResourceManager, read_hosts};
use self::words::{Words, option_name, time_limit};
use super::{checkpoints::CheckpointOptions, openfoam, partners, pattern::Pattern, shown_ranks::ShownRanks};

/// What is asked for.
#[derive(Debug)]
pub(super) enum Command {
    Help,
    Info,
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
    /// Whose output there is.
    pub(super) shown_ranks: ShownRanks,
    pub(super) print_exit_codes: bool,
    pub(super) log_json: bool,
    pub(super) verbose: bool,
    /// Whether it is told at first which ranks run where.
    pub(super) prints_rank_map: bool,
    /// What was passed over, for those who want to know much.
    pub(super) notices: Vec<String>,
    /// Where Prometheus can read how the job is.
    pub(super) metrics: Option<SocketAddr>,
    /// Where a page about the job is written to.
    pub(super) report: Option<PathBuf>,
    /// What the supervisor of its checkpoints is told.
    pub(super) checkpoints: Option<CheckpointOptions>,
    /// Whether the program is one of OpenFOAM whose case is to be prepared.
    pub(super) is_openfoam: bool,
}

/// What `-info` says: as Hydra, what there is to choose among.
pub(super) fn info() -> String {
    format!(
        "ropewalk build details:\n    Version:                                 {}\n    Process Manager:                         \
         pmi\n    Launchers available:                     {}\n    Resource management kernels available:   {}",
        env!("CARGO_PKG_VERSION"),
        launchers::NAMES,
        resources::NAMES
    )
}

/// What the words are read beside.
pub(super) struct Surroundings<'a> {
    pub(super) agent: PathBuf,
    pub(super) variable: &'a dyn Fn(&str) -> Option<OsString>,
    pub(super) read: &'a dyn Fn(&Path) -> std::io::Result<Vec<u8>>,
    /// Reads a key, which nobody but its owner may.
    pub(super) read_key: &'a dyn Fn(&Path) -> std::io::Result<JobKey>,
}

/// Reads the words of a command.
pub(super) fn parse(words: Vec<OsString>, around: &Surroundings<'_>) -> anyhow::Result<Command> {
    let mut parser = Parser::new();
    let variable = |name: &str| (around.variable)(name).and_then(|value| value.into_string().ok());
    parser.bind_to.take_variables(variable, &mut parser.placement)?;
    parser.read_unasked(&words, around)?;
    match parser.take(words, around)? {
        Taken::Help => return Ok(Command::Help),
        Taken::Info => return Ok(Command::Info),
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
    Info,
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
    bind_to: BindTo,
    launcher: Option<String>,
    launcher_exec: Option<String>,
    interface: Option<String>,
    encrypts: bool,
    on_failure: OnFailure,
    restart_limit: Option<u32>,
    on_stopped: OnStopped,
    stdin: Option<StdinSource>,
    singleton: Option<Singleton>,
    stall: Stall,
    stall_counts_cpu: bool,
    mtbf: Option<Duration>,
    seed: u64,
    timeout: Option<Duration>,
    detect: Duration,
    start_timeout: Option<Duration>,
    grace: Duration,
    arity: u32,
    universe: UniverseSize,
    prefix: Option<Pattern>,
    files: [Option<Pattern>; 2],
    shown_ranks: ShownRanks,
    print_exit_codes: bool,
    log_json: bool,
    verbose: bool,
    metrics: Option<SocketAddr>,
    report: Option<PathBuf>,
    checkpoint_directory: Option<PathBuf>,
    has_partners: bool,
    upload: Option<String>,
    is_openfoam: bool,
    checkpoint_mtbf: Option<Mtbf>,
    host_mtbf: Option<Option<Mtbf>>,
    files_read: u32,
    hydra: Hydra,
}

impl Parser {
    fn new() -> Self {
        Self {
            segments: Vec::new(),
            current: segment(),
            has_ranks: false,
            environment: Vec::new(),
            inherited: None,
            hosts: Vec::new(),
            placement: Placement::default(),
            bind_to: BindTo::default(),
            launcher: None,
            launcher_exec: None,
            interface: None,
            encrypts: false,
            on_failure: OnFailure::Abort,
            restart_limit: None,
            on_stopped: OnStopped::Notice,
            stdin: None,
            singleton: None,
            stall: Stall::default(),
            stall_counts_cpu: false,
            mtbf: None,
            seed: 0,
            timeout: None,
            detect: JobSpec::DETECT,
            start_timeout: None,
            grace: JobSpec::GRACE,
            arity: JobSpec::ARITY,
            universe: UniverseSize::Unknown,
            prefix: None,
            files: [None, None],
            shown_ranks: ShownRanks::default(),
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
            hydra: Hydra::default(),
        }
    }

    fn take(&mut self, words: Vec<OsString>, around: &Surroundings<'_>) -> anyhow::Result<Taken> {
        let mut words = Words(words.into());
        // How many programs there were where options of one more began.
        let mut begun = None;
        let mut ended = None;
        while let Some(word) = words.0.pop_front() {
            if word == ":" {
                self.end_segment()?;
                ended = Some(self.segments.len());
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
            if name == "info" {
                return Ok(Taken::Info);
            }
            begun = ended;
            self.option(&name, &mut words, around)?;
        }
        if begun == Some(self.segments.len()) && self.current.program.is_empty() {
            bail!("no program behind the last `:`");
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
            "envall" => self.current.inherited = Some(Inherited::All),
            "envnone" => self.current.inherited = Some(inherited::none()),
            "envlist" => self.current.inherited = Some(inherited::list(&words.next(name)?)),
            "genvall" => self.inherited = Some(Inherited::All),
            "genvnone" => self.inherited = Some(inherited::none()),
            "genvlist" => self.inherited = Some(inherited::list(&words.next(name)?)),
            "wdir" | "wd" => self.current.working_directory = Some(words.next(name)?.into()),
            "configfile" => self.read_config(&PathBuf::from(words.next(name)?), around)?,
            "hosts" | "host" | "H" | "hostlist" | "machine" | "machines" | "machinelist" => {
                self.hosts.extend(parse_hosts(&words.text(name)?)?)
            }
            "f" | "hostfile" | "machinefile" => {
                let path = PathBuf::from(words.next(name)?);
                self.hosts.extend(read_hosts(&path, around)?);
            }
            "ppn" | "perhost" | "npernode" => {
                self.placement.ranks_per_host = Some(words.number(name)?.max(1))
            }
            "map-by" => self.bind_to.map_by(&words.text(name)?, &mut self.placement)?,
            "bind-to" | "binding" => self.bind_to.bind_to(&words.text(name)?)?,
            "rankmap" => {
                let map = words.text(name)?.parse().context("option -rankmap")?;
                self.placement.rank_map = Some(map);
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
            "encrypt" => self.encrypts = true,
            "usize" => self.universe = words.universe(name)?,
            "l" | "label" | "prepend-rank" => self.prefix = Some(Pattern::new("[%r] ")),
            "prepend-pattern" => self.prefix = Some(Pattern::new(words.text(name)?)),
            "outfile-pattern" | "outfile" => self.files[0] = Some(Pattern::new(words.text(name)?)),
            "errfile-pattern" | "errfile" => self.files[1] = Some(Pattern::new(words.text(name)?)),
            "output-from" => self.shown_ranks = ShownRanks::of(&words.text(name)?)?,
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
            "mtbf" => self.checkpoint_mtbf = words.guess(name)?,
            "mtbf-known" => self.checkpoint_mtbf = words.known(name)?,
            "host-mtbf" => self.host_mtbf = Some(words.guess(name)?),
            "host-mtbf-known" => self.host_mtbf = Some(words.known(name)?),
            "report" => self.report = Some(words.next(name)?.into()),
            "verbose" | "v" | "debug" => self.verbose = true,
            "restart-limit" => self.restart_limit = Some(words.number(name)?),
            "on-failure" => self.on_failure = on_failure(&words.text(name)?)?,
            "stopped" => self.on_stopped = on_stopped(&words.text(name)?)?,
            "disable-auto-cleanup" => self.on_failure = OnFailure::Continue,
            "enable-auto-cleanup" => self.on_failure = OnFailure::Abort,
            "stall" => self.stall = words.stall(name)?,
            "stall-counts-cpu" => self.stall_counts_cpu = true,
            "inject-mtbf" => self.mtbf = Some(words.seconds(name)?),
            "seed" => self.seed = words.number(name)?.into(),
            "timeout" => self.timeout = Some(words.seconds(name)?),
            "detect" => self.detect = words.seconds(name)?,
            "grace" => self.grace = words.seconds(name)?,
            "start-timeout" => self.start_timeout = Some(words.seconds(name)?),
            _ if self.hydra.option(name, words)? => {}
            _ => {
                let meant = suggestions::nearest(name).map(|known| format!("did you mean {known}? "));
                let meant = meant.unwrap_or_default();
                bail!("there is no option -{name}; {meant}`ropewalk run --help` lists those that there are")
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
        self.verbose |= self.hydra.take_variables(around)?;
        let manager = match self.singleton {
            Some(_) => None,
            None => self.find_hosts(around)?,
        };
        self.hydra.arrange(&mut self.hosts)?;
        if let ([only], false, false) = (&mut self.segments[..], self.has_ranks, self.hosts.is_empty()) {
            only.ranks = total_slots(&self.hosts);
        }
        if let ([only], false, Some(map)) = (&mut self.segments[..], self.has_ranks, &self.placement.rank_map)
        {
            // It is about so many; more than a job may have are refused with the others.
            only.ranks = u32::try_from(map.ranks()).unwrap_or(u32::MAX);
        }
        let either = |one: &str, other: &str| variable(one).or_else(|| variable(other));
        let launcher = self.launcher.take();
        let launcher = launcher.or_else(|| either("HYDRA_LAUNCHER", "HYDRA_BOOTSTRAP"));
        let command = self.launcher_exec.take();
        let command = command.or_else(|| either("HYDRA_LAUNCHER_EXEC", "HYDRA_BOOTSTRAP_EXEC"));
        let further = variable("HYDRA_LAUNCHER_EXTRA_ARGS").unwrap_or_default();
        let method = method(
            &launchers::Wanted {
                launcher: launcher.as_deref(),
                command: command.as_deref(),
                further: &further,
                forwards_x: self.hydra.forwards_x,
                manager,
            },
            around,
        )?;
        let interface = self.interface.take().or_else(|| variable("HYDRA_IFACE"));
        let rank_network = self.hydra.rank_network(interface.as_deref());
        let interface = match (interface, launcher.as_deref()) {
            (Some(text), _) => Some(interface_address(&text)?),
            (None, Some("fork")) => Some(Ipv4Addr::LOCALHOST.into()),
            // Where nobody else is, nobody need know.
            (None, _) if self.hosts.is_empty() => None,
            (None, _) => self.hydra.own_address()?,
        };
        if self.timeout.is_none()
            && let Some(text) = variable("MPIEXEC_TIMEOUT")
        {
            self.timeout = time_limit(&text)?;
        }
        if self.detect.is_zero() {
            bail!("option --detect wants more than 0 seconds");
        }
        let inherited = match (self.inherited, (around.variable)("HYDRA_ENV")) {
            (Some(inherited), _) => inherited,
            (None, Some(text)) => inherited::of_variable(&text)?,
            (None, None) => Inherited::All,
        };
        if let Some(limit) = self.restart_limit {
            limit_restarts(&mut self.on_failure, limit)?;
        }
        self.placement.binding = self.bind_to.finish(&mut self.hydra.notices)?;
        if self.has_partners && self.placement.rank_map.is_some() {
            bail!("option -rankmap does not go with --partner: ranks of a host that is lost go to others");
        }
        let mut segments = self.segments.into_iter();
        let first = segments.next().context("no program given")?;
        // The first program's own variables are its own only if there are others.
        let more: Vec<_> = segments.collect();
        let mut spec = JobSpec {
            arguments: first.arguments,
            ranks: first.ranks,
            environment: self.environment,
            own_environment: first.environment,
            inherited,
            own_inherited: first.inherited,
            working_directory: first.working_directory,
            more,
            hosts: self.hosts,
            placement: self.placement,
            method,
            interface,
            rank_network,
            gpus_per_rank: self.hydra.gpus_per_rank,
            name_server: self.hydra.name_server(around)?,
            encrypt: self.encrypts,
            arity: self.arity,
            universe: self.universe,
            detect: self.detect,
            start_timeout: self.start_timeout.filter(|timeout| !timeout.is_zero()),
            grace: self.grace,
            on_failure: self.on_failure,
            on_stopped: self.on_stopped,
            // What one attempt has read the next cannot read again.
            stdin: self.stdin.unwrap_or(match self.on_failure {
                OnFailure::Restart(_) => StdinSource::Null,
                _ => StdinSource::Inherit,
            }),
            timeout: self.timeout,
            forward_signals: true,
            singleton: self.singleton,
            stall: self.stall,
            stall_counts_cpu: self.stall_counts_cpu,
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
            shown_ranks: self.shown_ranks,
            print_exit_codes: self.print_exit_codes,
            log_json: self.log_json,
            verbose: self.verbose,
            prints_rank_map: self.hydra.prints_rank_map,
            notices: self.hydra.notices,
            metrics: self.metrics,
            report: self.report,
        })
    }

    /// The hosts of a file that the environment names, or those that a batch system gives. Returns which it was.
    fn find_hosts(&mut self, around: &Surroundings<'_>) -> anyhow::Result<Option<ResourceManager>> {
        if !self.hosts.is_empty() {
            return Ok(None);
        }
        if let Some(path) = (around.variable)("HYDRA_HOST_FILE") {
            self.hosts = read_hosts(&PathBuf::from(path), around)?;
            return Ok(None);
        }
        let found = resources::find(self.hydra.manager, around)?;
        Ok(found.map(|(manager, hosts)| {
            self.hosts = hosts;
            manager
        }))
    }
}

fn segment() -> Segment {
    Segment {
        program: OsString::new(),
        arguments: Vec::new(),
        ranks: 1,
        environment: Vec::new(),
        inherited: None,
        working_directory: None,
    }
}

#[cfg(test)]
mod hydra_tests;
#[cfg(test)]
mod tests;
