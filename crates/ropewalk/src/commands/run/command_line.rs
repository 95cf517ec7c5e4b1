//! The words of an mpiexec command, as MPICH's Hydra has them, with one dash or two, and our own.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use ropewalk::launch::{
    Binding, DealOrder, JobSpec, OnFailure, Placement, Segment, StartMethod, StdinSource,
    hosts::{HostSlots, parse_host_file, parse_hosts, slurm_hosts},
};

use super::pattern::Pattern;

/// What is asked for.
#[derive(Debug)]
pub(super) enum Command {
    Help,
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
}

/// What the words are read beside.
pub(super) struct Surroundings<'a> {
    pub(super) agent: PathBuf,
    pub(super) variable: &'a dyn Fn(&str) -> Option<OsString>,
    pub(super) read: &'a dyn Fn(&Path) -> std::io::Result<Vec<u8>>,
}

/// The text for `--help`.
pub(super) const HELP: &str = "\
Run N processes (ranks) of a program: MPI programs (MPICH), and any other.

Usage: ropewalk run [OPTIONS] PROGRAM [ARGUMENTS] [: [OPTIONS] PROGRAM [ARGUMENTS]]..
Options have one dash or two, as with mpiexec of MPICH (Hydra).

What runs:
  -n, -np, --ranks N          how many processes of this program [default: 1]
  --env NAME=VALUE            set a variable for this program; also -env NAME VALUE
  -genv NAME VALUE            set a variable for all programs; also NAME=VALUE
  -genvall, -genvnone, -genvlist A,B  which variables of this command all programs get [default: all]
  --wdir DIR                  start this program there
  -configfile FILE            read programs and their options from a file, one line each
Where:
  -hosts H1[:N],H2..          on these hosts, N ranks each in turn
  -f, -hostfile FILE          hosts of a file: HOST, HOST:N or HOST slots=N max_slots=M
  -ppn N                      N ranks on each host in turn
  -map-by slot|node           fill hosts one by one, or deal ranks in turn
  -bind-to none|core|socket|numa
  -launcher ssh|rsh|slurm|fork, -launcher-exec CMD  how agents are started on other hosts
  -iface ADDRESS              this machine's address for the other hosts
  --arity N                   how many agents each agent starts [default: 16]
Output and input:
  -l, --label                 put the rank before each line
  -prepend-pattern P, -outfile-pattern P, -errfile-pattern P   %r rank, %h host
  --stdin 0|all|none          who reads standard input [default: 0]; also -s
  -print-all-exitcodes        say at the end how each rank ended
  --log json                  tell on standard error what happens, one object a line
  -verbose                    say who started and ended
When something fails:
  --on-failure abort|continue what happens to the others [default: abort]
  --detect SECONDS            how long a host may be silent before it counts as lost [default: 3]
  --timeout SECONDS           end the job after this time, with exit code 124

Variables: HYDRA_HOST_FILE, HYDRA_LAUNCHER, HYDRA_LAUNCHER_EXEC, HYDRA_IFACE, MPIEXEC_TIMEOUT, and Slurm's.
Exit code: the first failing rank's, 128 + n for signal n, 124 time-out, 125 trouble of the launcher's own,
126 and 127 for a program that cannot be executed or found.";

/// Reads the words of a command.
pub(super) fn parse(words: Vec<OsString>, around: &Surroundings<'_>) -> anyhow::Result<Command> {
    let mut parser = Parser::new();
    match parser.take(words, around)? {
        Taken::Help => return Ok(Command::Help),
        Taken::All => {}
    }
    parser
        .finish(around)
        .map(|request| Command::Run(Box::new(request)))
}

enum Taken {
    All,
    Help,
}

struct Parser {
    segments: Vec<Segment>,
    current: Segment,
    environment: Vec<(OsString, OsString)>,
    inherited: Option<Vec<OsString>>,
    hosts: Vec<HostSlots>,
    placement: Placement,
    launcher: Option<String>,
    launcher_exec: Option<String>,
    interface: Option<String>,
    on_failure: OnFailure,
    stdin: StdinSource,
    timeout: Option<Duration>,
    detect: Duration,
    arity: u32,
    prefix: Option<Pattern>,
    files: [Option<Pattern>; 2],
    print_exit_codes: bool,
    log_json: bool,
    verbose: bool,
    files_read: u32,
}

/// The words that are left.
struct Words(std::collections::VecDeque<OsString>);

impl Words {
    fn next(&mut self, option: &str) -> anyhow::Result<OsString> {
        self.0
            .pop_front()
            .with_context(|| format!("option -{option} wants a value"))
    }

    fn text(&mut self, option: &str) -> anyhow::Result<String> {
        let value = self.next(option)?;
        match value.into_string() {
            Ok(text) => Ok(text),
            Err(value) => bail!("option -{option} wants text, not {value:?}"),
        }
    }

    fn number(&mut self, option: &str) -> anyhow::Result<u32> {
        let text = self.text(option)?;
        text.parse()
            .map_err(|_| anyhow::anyhow!("option -{option} wants a number, not {text:?}"))
    }

    fn seconds(&mut self, option: &str) -> anyhow::Result<Duration> {
        let text = self.text(option)?;
        seconds(&text).with_context(|| format!("option -{option} wants seconds"))
    }

    /// `NAME=VALUE` in one word, or two words.
    fn variable(&mut self, option: &str) -> anyhow::Result<(OsString, OsString)> {
        let word = self.next(option)?;
        match split(&word) {
            Some((name, _)) if name.is_empty() => bail!("--{option} wants NAME=VALUE, not {word:?}"),
            Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
            None if word.is_empty() => bail!("--{option} wants NAME=VALUE, not {word:?}"),
            None => match self.0.pop_front() {
                Some(value) => Ok((word, value)),
                None => bail!("--{option} wants NAME=VALUE, not {word:?}"),
            },
        }
    }
}

impl Parser {
    /// Files of options may name others, which might name the first.
    const FILES_MAX: u32 = 16;

    fn new() -> Self {
        Self {
            segments: Vec::new(),
            current: segment(),
            environment: Vec::new(),
            inherited: None,
            hosts: Vec::new(),
            placement: Placement::default(),
            launcher: None,
            launcher_exec: None,
            interface: None,
            on_failure: OnFailure::Abort,
            stdin: StdinSource::Inherit,
            timeout: None,
            detect: JobSpec::DETECT,
            arity: JobSpec::ARITY,
            prefix: None,
            files: [None, None],
            print_exit_codes: false,
            log_json: false,
            verbose: false,
            files_read: 0,
        }
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
            self.option(&name, &mut words, around)?;
        }
        Ok(Taken::All)
    }

    fn option(&mut self, name: &str, words: &mut Words, around: &Surroundings<'_>) -> anyhow::Result<()> {
        match name {
            "n" | "np" | "ranks" => self.current.ranks = words.number(name)?,
            "env" => self.current.environment.push(words.variable(name)?),
            "genv" => self.environment.push(words.variable(name)?),
            "genvall" | "envall" => self.inherited = None,
            "genvnone" | "envnone" => self.inherited = Some(Vec::new()),
            "genvlist" | "envlist" => {
                let list = words.next(name)?;
                let names = list.as_bytes().split(|&byte| byte == b',');
                self.inherited = Some(names.map(|name| OsStr::from_bytes(name).to_owned()).collect());
            }
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
                    "slot" | "core" | "hwthread" | "socket" | "numa" => DealOrder::BySlot,
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
            "iface" => self.interface = Some(words.text(name)?),
            "arity" => self.arity = words.number(name)?.max(1),
            // What MPI_UNIVERSE_SIZE says is for programs that start others.
            "usize" => drop(words.text(name)?),
            "l" | "label" | "prepend-rank" => self.prefix = Some(Pattern::new("[%r] ")),
            "prepend-pattern" => self.prefix = Some(Pattern::new(words.text(name)?)),
            "outfile-pattern" | "outfile" => self.files[0] = Some(Pattern::new(words.text(name)?)),
            "errfile-pattern" | "errfile" => self.files[1] = Some(Pattern::new(words.text(name)?)),
            "s" | "stdin" => {
                self.stdin = match words.text(name)?.as_str() {
                    "0" => StdinSource::Inherit,
                    "all" => StdinSource::InheritAll,
                    "none" => StdinSource::Null,
                    other => bail!("option -stdin wants 0, all or none, not {other:?}"),
                }
            }
            "print-all-exitcodes" => self.print_exit_codes = true,
            "log" => match words.text(name)?.as_str() {
                "json" => self.log_json = true,
                other => bail!("option --log wants json, not {other:?}"),
            },
            "verbose" | "v" => self.verbose = true,
            "on-failure" => {
                self.on_failure = match words.text(name)?.as_str() {
                    "abort" => OnFailure::Abort,
                    "continue" => OnFailure::Continue,
                    other => bail!("option --on-failure wants abort or continue, not {other:?}"),
                }
            }
            "disable-auto-cleanup" => self.on_failure = OnFailure::Continue,
            "enable-auto-cleanup" => self.on_failure = OnFailure::Abort,
            "disable-hostname-propagation" | "enable-hostname-propagation" => {}
            "timeout" => self.timeout = Some(words.seconds(name)?),
            "detect" => self.detect = words.seconds(name)?,
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
        if self.segments.is_empty() || !self.current.program.is_empty() {
            if self.current.program.is_empty() {
                bail!("no program given; `ropewalk run --help` tells how");
            }
            self.end_segment()?;
        }
        let variable = |name: &str| (around.variable)(name).and_then(|value| value.into_string().ok());
        let in_slurm = self.find_hosts(around)?;
        let launcher = self.launcher.take().or_else(|| variable("HYDRA_LAUNCHER"));
        let command = self
            .launcher_exec
            .take()
            .or_else(|| variable("HYDRA_LAUNCHER_EXEC"));
        let method = method(launcher.as_deref(), command.as_deref(), in_slurm)?;
        let interface = self.interface.take().or_else(|| variable("HYDRA_IFACE"));
        let interface = match (interface, launcher.as_deref()) {
            (Some(text), _) => {
                let expected = || format!("option -iface wants an address of this machine, not {text:?}");
                Some(text.parse().with_context(expected)?)
            }
            (None, Some("fork")) => Some(std::net::Ipv4Addr::LOCALHOST.into()),
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
        let mut segments = self.segments.into_iter();
        let first = segments.next().context("no program given")?;
        // The first program's own variables are its own only if there are others.
        let more: Vec<_> = segments.collect();
        let mut spec = JobSpec {
            arguments: first.arguments,
            ranks: first.ranks,
            environment: self.environment,
            own_environment: first.environment,
            inherited: self.inherited,
            working_directory: first.working_directory,
            more,
            hosts: self.hosts,
            placement: self.placement,
            method,
            interface,
            arity: self.arity,
            detect: self.detect,
            on_failure: self.on_failure,
            stdin: self.stdin,
            timeout: self.timeout,
            forward_signals: true,
            ..JobSpec::new(around.agent.clone(), first.program)
        };
        if spec.hosts.is_empty() {
            spec.interface = None;
        }
        Ok(Request {
            spec,
            prefix: self.prefix,
            files: self.files,
            print_exit_codes: self.print_exit_codes,
            log_json: self.log_json,
            verbose: self.verbose,
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

fn segment() -> Segment {
    Segment {
        program: OsString::new(),
        arguments: Vec::new(),
        ranks: 1,
        environment: Vec::new(),
        working_directory: None,
    }
}

/// The name of an option without its dashes; `None` for a word that is none.
fn option_name(word: &OsStr) -> Option<String> {
    let text = word.to_str()?;
    let name = text.strip_prefix("--").or_else(|| text.strip_prefix('-'))?;
    (!name.is_empty() || text == "--").then(|| name.to_owned())
}

fn split(word: &OsStr) -> Option<(&OsStr, &OsStr)> {
    let bytes = word.as_bytes();
    let at = bytes.iter().position(|&byte| byte == b'=')?;
    Some((
        OsStr::from_bytes(&bytes[..at]),
        OsStr::from_bytes(&bytes[at + 1..]),
    ))
}

fn seconds(text: &str) -> anyhow::Result<Duration> {
    let number = text.strip_suffix('s').unwrap_or(text);
    let seconds: f64 = number.parse().with_context(|| format!("{text:?} is no number"))?;
    Ok(Duration::try_from_secs_f64(seconds)?)
}

fn read_hosts(path: &Path, around: &Surroundings<'_>) -> anyhow::Result<Vec<HostSlots>> {
    let bytes =
        (around.read)(path).with_context(|| format!("cannot read the host file {}", path.display()))?;
    let text = String::from_utf8(bytes).with_context(|| format!("{} is no text", path.display()))?;
    parse_host_file(&text).with_context(|| format!("cannot use the host file {}", path.display()))
}

fn method(launcher: Option<&str>, command: Option<&str>, in_slurm: bool) -> anyhow::Result<StartMethod> {
    if let Some(command) = command {
        let words: Vec<_> = command.split_ascii_whitespace().map(OsString::from).collect();
        if words.is_empty() {
            bail!("option -launcher-exec wants a command");
        }
        return Ok(StartMethod::Command(words));
    }
    Ok(match launcher {
        None if in_slurm => StartMethod::Srun,
        None | Some("ssh") => StartMethod::Ssh,
        Some("slurm" | "srun") => StartMethod::Srun,
        Some("rsh") => StartMethod::Command(vec!["rsh".into()]),
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
mod tests {
    use super::*;

    fn parsed(words: &str, variables: &[(&str, &str)], file: &str) -> anyhow::Result<Request> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        let read = |_: &Path| Ok(file.as_bytes().to_vec());
        let around = Surroundings {
            agent: "agent".into(),
            variable: &variable,
            read: &read,
        };
        match parse(words.split(' ').map(OsString::from).collect(), &around)? {
            Command::Run(request) => Ok(*request),
            Command::Help => bail!("help"),
        }
    }

    fn hosts(request: &Request) -> Vec<(&str, u32)> {
        let hosts = request.spec.hosts.iter();
        hosts.map(|host| (host.name(), host.slots)).collect()
    }

    /// One dash or two, values behind a space or `=`, and the program's own options left to it.
    #[test]
    fn options_are_read_as_hydra_has_them() {
        let request = parsed(
            "-n 4 --env A=b -genv C d -wdir=/tmp -l -ppn 2 prog -n 7 --env x",
            &[],
            "",
        )
        .unwrap();
        let spec = &request.spec;
        assert_eq!((spec.ranks, spec.program.to_str()), (4, Some("prog")));
        assert_eq!(spec.arguments, ["-n", "7", "--env", "x"]);
        assert_eq!(spec.own_environment, [("A".into(), "b".into())]);
        assert_eq!(spec.environment, [("C".into(), "d".into())]);
        assert_eq!(spec.placement.ranks_per_host, Some(2));
        assert_eq!(request.prefix.unwrap().fill(3, "h"), "[3] ");
    }

    /// Programs behind colons, and the same from a file.
    #[test]
    fn several_programs_are_one_job() {
        for words in ["-n 2 a x : -np 3 -env V 1 b", "-configfile file"] {
            let request = parsed(words, &[], "-n 2 a x\n# no program\n\n-np 3 -env V 1 b\n").unwrap();
            let spec = request.spec;
            assert_eq!(
                (spec.ranks, spec.program.to_str(), spec.more.len()),
                (2, Some("a"), 1)
            );
            assert_eq!(
                (spec.more[0].ranks, spec.more[0].program.to_str()),
                (3, Some("b"))
            );
            assert_eq!(spec.more[0].environment, [("V".into(), "1".into())]);
        }
        assert!(parsed("-n 2 a : -n 3", &[], "").is_ok());
        assert!(parsed("-n 2 : b", &[], "").is_err());
        assert!(parsed("-configfile file", &[], "-configfile file").is_err());
    }

    /// Hosts come from options, then from Hydra's variables, then from Slurm's.
    #[test]
    fn hosts_are_found() {
        let slurm = [
            ("SLURM_JOB_NODELIST", "n[1-2]"),
            ("SLURM_TASKS_PER_NODE", "4(x2)"),
        ];
        let request = parsed("prog", &slurm, "").unwrap();
        assert_eq!(hosts(&request), [("n1", 4), ("n2", 4)]);
        assert_eq!(request.spec.method, StartMethod::Srun);
        let hydra = [slurm[0], ("HYDRA_HOST_FILE", "file"), ("HYDRA_LAUNCHER", "ssh")];
        let request = parsed("prog", &hydra, "h1:2\nh2 slots=3\n").unwrap();
        assert_eq!(hosts(&request), [("h1", 2), ("h2", 3)]);
        assert_eq!(request.spec.method, StartMethod::Ssh);
        let request = parsed("-hosts a,b:2 -launcher-exec my|rsh prog", &hydra, "").unwrap();
        assert_eq!(hosts(&request), [("a", 1), ("b", 2)]);
        assert_eq!(request.spec.method, StartMethod::Command(vec!["my|rsh".into()]));
        assert!(parsed("-hosts -oProxyCommand=id prog", &[], "").is_err());
    }

    /// What is not understood is refused, never taken for a program.
    #[test]
    fn unknown_options_are_refused() {
        for words in [
            "-no-such prog",
            "-n x prog",
            "-n",
            "-n 2",
            "--detect 0 prog",
            "--log xml prog",
            "-env A",
        ] {
            assert!(parsed(words, &[], "").is_err(), "{words}");
        }
    }
}
