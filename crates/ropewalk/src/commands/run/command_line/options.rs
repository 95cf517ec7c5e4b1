//! The options of `ropewalk run` as completions and the manual show them: one form of each, and which others there are. All forms
//! are read by [`parse`](super::parse).

use clap::{Arg, ArgAction, Command, ValueHint};

use super::HELP;

/// Adds the options to what is known of the command without them.
pub(crate) fn documented(command: Command) -> Command {
    let (title, _) = HELP.split_once('\n').unwrap_or_default();
    let behind = HELP.find("\nVariables:").unwrap_or(HELP.len());
    let command = command
        .about(title)
        .long_about(format!(
            "{title} Options have one dash or two, as with mpiexec of MPICH (Hydra); programs behind : are of the same job."
        ))
        .after_help(HELP[behind..].trim_start());
    let groups = [
        ("What runs", WHAT),
        ("Where", WHERE),
        ("Output and input", OUTPUT),
        ("When something fails", FAILURE),
    ];
    groups.into_iter().fold(command, |command, (heading, options)| {
        options.iter().fold(command, |command, option| {
            command.arg(option.argument().help_heading(heading))
        })
    })
}

/// All names that options have.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let further = all().flat_map(|option| option.also).copied();
    all().map(|option| option.name).chain(further).chain(OTHERS)
}

fn all() -> impl Iterator<Item = &'static Documented> {
    [WHAT, WHERE, OUTPUT, FAILURE].into_iter().flatten()
}

struct Documented {
    name: &'static str,
    /// Names besides, most of them Hydra's. If the first has one letter it is shown too.
    also: &'static [&'static str],
    value: Value,
    help: &'static str,
}

enum Value {
    None,
    /// Anything that is called so.
    Any(&'static str),
    File(&'static str),
    Folder(&'static str),
    Command(&'static str),
    OneOf(&'static [&'static str]),
}

impl Documented {
    fn argument(&self) -> Arg {
        let argument = Arg::new(self.name).long(self.name).help(self.help);
        let argument = match self.also.first().map(|name| name.as_bytes()) {
            Some(&[letter]) => argument.short(char::from(letter)),
            _ => argument,
        };
        let hinted = |argument: Arg, name, hint| argument.value_name(name).value_hint(hint);
        match self.value {
            Value::None => argument.action(ArgAction::SetTrue),
            Value::Any(name) => hinted(argument, name, ValueHint::Other),
            Value::File(name) => hinted(argument, name, ValueHint::FilePath),
            Value::Folder(name) => hinted(argument, name, ValueHint::DirPath),
            Value::Command(name) => hinted(argument, name, ValueHint::CommandString),
            Value::OneOf(names) => argument.value_parser(names.to_vec()).hide_possible_values(false),
        }
    }

    const fn also(mut self, names: &'static [&'static str]) -> Self {
        self.also = names;
        self
    }
}

const fn option(name: &'static str, value: Value, help: &'static str) -> Documented {
    Documented {
        name,
        also: &[],
        value,
        help,
    }
}

const WHAT: &[Documented] = &[
    option(
        "np",
        Value::Any("N"),
        "How many processes of this program; by default a slot each of given hosts, else 1",
    )
    .also(&["n", "ranks"]),
    option("env", Value::Any("NAME=VALUE"), "Set a variable for this program"),
    option(
        "genv",
        Value::Any("NAME=VALUE"),
        "Set a variable for all programs",
    ),
    option(
        "genvall",
        Value::None,
        "All programs get all variables of this command, as they do by default",
    ),
    option(
        "genvnone",
        Value::None,
        "No program gets a variable of this command",
    ),
    option(
        "genvlist",
        Value::Any("A,B"),
        "All programs get these variables of this command",
    ),
    option(
        "envall",
        Value::None,
        "This program gets all variables of this command, whatever the others get",
    ),
    option(
        "envnone",
        Value::None,
        "This program gets no variable of this command",
    ),
    option(
        "envlist",
        Value::Any("A,B"),
        "This program gets these variables of this command",
    ),
    option("wdir", Value::Folder("DIR"), "Start this program there").also(&["wd"]),
    option(
        "configfile",
        Value::File("FILE"),
        "Read programs and their options from a file, one line each",
    ),
];

const WHERE: &[Documented] = &[
    option(
        "hosts",
        Value::Any("H1[:N],H2"),
        "On these hosts, N ranks each in turn",
    )
    .also(&["H", "host", "hostlist", "machine", "machinelist", "machines"]),
    option(
        "hostfile",
        Value::File("FILE"),
        "Hosts of a file: HOST, HOST:N or HOST slots=N max_slots=M",
    )
    .also(&["f", "machinefile"]),
    option("ppn", Value::Any("N"), "N ranks on each host in turn").also(&["npernode", "perhost"]),
    option(
        "map-by",
        Value::OneOf(&[
            "slot", "node", "hwthread", "core", "l1cache", "l2cache", "l3cache", "numa", "socket", "machine",
        ]),
        "Fill hosts one by one (slot), or deal ranks in turn (node); with other values, and -bind-to: deal ranks in turn to \
         such parts of a host, or to N side by side (core:N)",
    ),
    option(
        "bind-to",
        Value::OneOf(&[
            "none", "hwthread", "core", "l1cache", "l2cache", "l3cache", "numa", "socket", "machine", "rr",
            "user:",
        ]),
        "On which processors each rank runs: a part of its host, or N side by side (core:N), one processor in turn (rr), or \
         what a list has for each rank of a host (user:0+2,4-7,1x2 is processors 0 and 2, 4 to 7, and 1 for two ranks)",
    )
    .also(&["binding"]),
    option(
        "rankmap",
        Value::Any("0,0,1,2"),
        "The host of each rank, by its number among them; (FIRST,HOSTS,N) for hosts in a row with N ranks each",
    ),
    option(
        "order-nodes",
        Value::OneOf(&["ascending", "descending"]),
        "Use hosts in the order of their slots",
    ),
    option("skip-launch-node", Value::None, "Run no rank on this host"),
    option(
        "rmk",
        Value::OneOf(&["user", "slurm", "pbs", "sge", "lsf", "ll", "cobalt"]),
        "The batch system that gives the hosts, or none of them; by default the one that there is",
    ),
    option(
        "launcher",
        Value::OneOf(&["ssh", "rsh", "slurm", "lsf", "sge", "fork"]),
        "How agents are started on other hosts",
    )
    .also(&["bootstrap"]),
    option(
        "launcher-exec",
        Value::Command("CMD"),
        "The command that starts agents on other hosts: CMD HOST COMMAND",
    )
    .also(&["bootstrap-exec"]),
    option(
        "iface",
        Value::Any("ADDRESS|NAME"),
        "This machine's address or interface for the other hosts",
    ),
    option(
        "localhost",
        Value::Any("NAME"),
        "The name or address of this machine for the other hosts",
    ),
    option(
        "disable-hostname-propagation",
        Value::None,
        "Do not tell MPICH the names of the hosts: it finds them itself",
    ),
    option(
        "enable-x",
        Value::None,
        "With ssh: windows of the programs come here",
    ),
    option(
        "disable-x",
        Value::None,
        "With ssh: windows of the programs do not come here",
    ),
    option(
        "gpus-per-proc",
        Value::Any("N|auto"),
        "So many graphics processors for each rank, in CUDA_VISIBLE_DEVICES; by default nothing is said",
    )
    .also(&["g"]),
    option(
        "encrypt",
        Value::None,
        "Encrypt what goes from host to host: for networks to which others have access",
    ),
    option(
        "usize",
        Value::Any("N|system|infinite"),
        "Room for processes, as MPI_UNIVERSE_SIZE; by default infinite, which is not told",
    ),
    option(
        "nameserver",
        Value::Any("HOST[:PORT]"),
        "Keep names that programs publish at a `ropewalk nameserver`, for other jobs too; by default a job has its own",
    ),
    option(
        "nameserver-key",
        Value::File("FILE"),
        "The key of the name server; by default ~/.ropewalk-nameserver.key",
    ),
    option(
        "arity",
        Value::Any("N"),
        "How many agents each agent starts; by default 16",
    ),
];

const OUTPUT: &[Documented] = &[
    option("label", Value::None, "Put the rank before each line").also(&["l", "prepend-rank"]),
    option(
        "prepend-pattern",
        Value::Any("P"),
        "Put this before each line: %r is the rank, %h the host",
    ),
    option("outfile-pattern", Value::File("P"), "Write output to such files").also(&["outfile"]),
    option(
        "errfile-pattern",
        Value::File("P"),
        "Write standard error to such files",
    )
    .also(&["errfile"]),
    option(
        "output-from",
        Value::Any("RANKS|all|none"),
        "Only what these ranks write comes out, as in 0,4-7; by default of all",
    ),
    option(
        "stdin",
        Value::OneOf(&["0", "all", "none"]),
        "Who reads standard input; by default rank 0, with restart none",
    )
    .also(&["s"]),
    option(
        "print-rank-map",
        Value::None,
        "Say at first which ranks run on which host",
    ),
    option(
        "print-all-exitcodes",
        Value::None,
        "Say at the end how each rank ended",
    ),
    option(
        "log",
        Value::OneOf(&["json"]),
        "Tell on standard error what happens, one object a line",
    ),
    option(
        "metrics",
        Value::Any("[ADDRESS:]PORT"),
        "Let Prometheus read how the job is, from this host unless told otherwise",
    ),
    option(
        "report",
        Value::File("FILE.html"),
        "Write a page about the job: processes, fences, failures, output, cost of saving",
    ),
    option(
        "verbose",
        Value::None,
        "Say who started and ended, and who put another value under a key of PMI",
    )
    .also(&["v", "debug"]),
];

const FAILURE: &[Documented] = &[
    option(
        "on-failure",
        Value::OneOf(&["abort", "continue", "respawn", "restart"]),
        "What happens when a rank fails: the job ends (the default), the others go on, the rank is started again \
         (respawn=N: at most N times), or the whole job is (restart=N)",
    ),
    option(
        "restart-limit",
        Value::Any("N"),
        "With restart: give up after so many attempts in a row that reached no step that was not reached before (5)",
    ),
    option(
        "stopped",
        Value::OneOf(&["notice", "fail"]),
        "What happens when a rank stays stopped by a signal: it is named (the default), or killed, which is a failure",
    ),
    option(
        "checkpoint",
        Value::Folder("DIR"),
        "Start each attempt from the newest whole checkpoint there, and say at the end what saving cost",
    ),
    option(
        "partner",
        Value::None,
        "The checkpoints' folder is each host's own: each also copies what another host saves",
    ),
    option(
        "host-mtbf",
        Value::Any("auto|TIME"),
        "A guess of the mean time between losses of a host, by which it is decided how often another copies what a program \
         saves that asks when to; what happens corrects it. By default 5 years divided by the number of hosts",
    ),
    option(
        "host-mtbf-known",
        Value::Any("TIME"),
        "The same if it is known: what happens does not correct it",
    ),
    option(
        "upload",
        Value::Any("URL"),
        "Upload each newest checkpoint there in the background, and fetch it where nothing is left",
    ),
    option(
        "adapter",
        Value::OneOf(&["openfoam"]),
        "Prepare the case of the program before each attempt",
    ),
    option(
        "mtbf",
        Value::Any("auto|TIME"),
        "A guess of the mean time between failures; what happens corrects it. By default 5 years divided by the number of \
         hosts",
    ),
    option(
        "mtbf-known",
        Value::Any("TIME"),
        "The same if it is known: what happens does not correct it",
    ),
    option(
        "detect",
        Value::Any("TIME"),
        "How long a host may be silent before it counts as lost; by default 3",
    ),
    option(
        "start-timeout",
        Value::Any("TIME"),
        "How long a host may take to bring its agent up; by default ten times as long as it may be silent",
    ),
    option(
        "grace",
        Value::Any("TIME"),
        "How long ranks have from the request to end, and their advisor for a last save, until they are killed; by default 10",
    ),
    option(
        "stall",
        Value::Any("TIME|off"),
        "End the job with exit code 124 if no rank makes progress for so long: no output, no request by PMI, no bytes read, \
         written or sent over TCP, no step told to the advisor of its checkpoints. Processor time is none, since ranks of MPI \
         that wait spin. Messages through shared memory, or by a network card itself, cannot be seen: the time must be longer \
         than the longest part of the program with nothing else. By default 60 s from a loss on in jobs that go on after it \
         (--on-failure continue or respawn), as long as a rank of MPI lives; else off",
    ),
    option(
        "stall-counts-cpu",
        Value::None,
        "Processor time is progress too: for programs that compute in silence. Ranks of MPI that wait for each other for \
         ever are not found then",
    ),
    option(
        "inject-mtbf",
        Value::Any("TIME"),
        "Kill a random rank now and then, on average after so long",
    ),
    option(
        "seed",
        Value::Any("N"),
        "What those times and ranks are drawn from",
    ),
    option(
        "timeout",
        Value::Any("TIME"),
        "End the job after this time, with exit code 124, or 75 if it has saved a checkpoint for that",
    ),
];

/// Names that neither completions nor the manual have: of options that tune only Hydra, that say what is the default, or that ask
/// something of this command.
const OTHERS: [&str; 16] = [
    "V",
    "demux",
    "disable-auto-cleanup",
    "enable-auto-cleanup",
    "enable-hostname-propagation",
    "h",
    "help",
    "hybrid-hosts",
    "info",
    "membind",
    "pmi-args",
    "pmi-port",
    "pmi_args",
    "profile",
    "topolib",
    "version",
];

#[cfg(test)]
mod tests {
    use std::{ffi::OsString, path::Path};

    use ropewalk::fabric::JobKey;

    use super::*;
    use crate::commands::run::command_line::{Surroundings, parse};

    /// Every option that the manual has is read as one, and takes a value if it is said to.
    #[test]
    fn what_is_documented_is_read() {
        // A host, and a program.
        let read = |path: &Path| match path.starts_with("/etc") {
            true => Err(std::io::ErrorKind::NotFound.into()),
            false => Ok(b"a\n".to_vec()),
        };
        let around = Surroundings {
            agent: "agent".into(),
            variable: &|_| None,
            read: &read,
            read_key: &|_| Ok(JobKey::from_bytes([1; 32])),
        };
        for option in all() {
            let value = match option.value {
                Value::None => None,
                Value::OneOf(names) => Some(names[0]),
                Value::Any("NAME=VALUE") => Some("A=b"),
                Value::Any("URL") => Some("file:///saves"),
                Value::Any(_) if option.name == "iface" => Some("127.0.0.1"),
                Value::Any(_) if option.name == "rankmap" => Some("0"),
                _ if option.name.ends_with("file") => Some("a:1"),
                _ => Some("1"),
            };
            let words = [Some(format!("--{}", option.name)), value.map(str::to_owned)];
            let mut words: Vec<OsString> = words.into_iter().flatten().map(Into::into).collect();
            words.push("true".into());
            if ["mtbf", "mtbf-known", "partner", "upload"].contains(&option.name) {
                words.splice(0..0, ["--checkpoint=d".into(), "--hosts=a,b".into()]);
            }
            if option.name.starts_with("host-mtbf") {
                words.splice(
                    0..0,
                    ["--checkpoint=d", "--hosts=a,b", "--partner"].map(OsString::from),
                );
            }
            // There is one host at least besides, and a batch system that gives some only where it runs.
            match option.name {
                "skip-launch-node" => words.insert(0, "--hosts=a".into()),
                "rmk" => words[1] = "user".into(),
                "restart-limit" => words.insert(0, "--on-failure=restart".into()),
                "nameserver" => {
                    words[1] = "localhost".into();
                    words.splice(0..0, ["--nameserver-key".into(), "key".into()]);
                }
                "nameserver-key" => {
                    words[1] = "key".into();
                    words.insert(0, "--nameserver=localhost".into());
                }
                _ => {}
            }
            // Its case is looked for on the disk.
            if option.name == "adapter" {
                continue;
            }
            let result = parse(words, &around);
            assert!(result.is_ok(), "--{}: {:#}", option.name, result.unwrap_err());
        }
    }

    /// What the help has with two dashes the manual has too.
    #[test]
    fn what_the_help_has_is_documented() {
        let words = HELP.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
        let names: Vec<_> = words.filter_map(|word| word.strip_prefix("--")).collect();
        assert!(names.contains(&"on-failure"));
        for name in names {
            let is_known = all().any(|option| option.name == name) || ["ranks", "help"].contains(&name);
            assert!(is_known, "--{name}");
        }
    }

    /// The help has every option that the manual has, and no name that is none.
    #[test]
    fn what_is_documented_the_help_has() {
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
        let options = &HELP[HELP.find("What runs:").unwrap()..HELP.find("\nSignals:").unwrap()];
        let words = options.split(|letter: char| !is_name(letter));
        let shown: Vec<_> = words
            .filter_map(|word| word.strip_prefix("--").or_else(|| word.strip_prefix('-')))
            .filter(|name| !name.is_empty())
            .collect();
        for option in all() {
            assert!(shown.contains(&option.name), "-{}", option.name);
        }
        for name in shown {
            assert!(names().any(|known| known == name), "-{name}");
        }
    }

    /// Every name is one that is read, and stands here once.
    #[test]
    fn names_are_those_that_are_read() {
        let around = Surroundings {
            agent: "agent".into(),
            variable: &|_| None,
            read: &|_| Err(std::io::ErrorKind::NotFound.into()),
            read_key: &|_| Ok(JobKey::from_bytes([1; 32])),
        };
        for name in names() {
            let words = [&format!("-{name}"), "0", "0", "0", "0", "prog"];
            let error = parse(words.map(OsString::from).into(), &around).err();
            let error = error.map(|error| format!("{error:#}")).unwrap_or_default();
            assert!(!error.contains("there is no option"), "-{name}: {error}");
            assert_eq!(names().filter(|known| *known == name).count(), 1, "-{name}");
        }
    }
}
