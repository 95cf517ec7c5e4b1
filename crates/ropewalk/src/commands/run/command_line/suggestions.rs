//! Which option may have been meant by one that there is not.

use std::sync::LazyLock;

use clap::{
    Arg, Command,
    error::{ContextKind, ContextValue},
};

use super::HELP;

/// The option that is most like `name`, with its dashes; `None` if none is. What is like it clap decides.
pub(super) fn nearest(name: &str) -> Option<String> {
    // To clap dashes alone are like the names that have some.
    if !name.contains(char::is_alphanumeric) {
        return None;
    }
    let words = ["run", &format!("--{name}")];
    let error = OPTIONS.clone().try_get_matches_from(words).err()?;
    match error.get(ContextKind::SuggestedArg)? {
        ContextValue::String(known) => known.strip_prefix("--").map(with_dashes),
        _ => None,
    }
}

/// As the help has it: two dashes if it has two there, else one as in Hydra.
fn with_dashes(name: &str) -> String {
    let is_ours = HELP
        .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-')
        .any(|word| word.strip_prefix("--") == Some(name));
    match is_ours {
        true => format!("--{name}"),
        false => format!("-{name}"),
    }
}

/// What clap is to look among; built once, for fuzzers ask often.
static OPTIONS: LazyLock<Command> = LazyLock::new(|| {
    let options = NAMES.map(|name| Arg::new(name).long(name).num_args(0..));
    let mut command = Command::new("run").disable_help_flag(true).args(options);
    command.build();
    command
});

/// All names that options have.
const NAMES: [&str; 99] = [
    "adapter",
    "arity",
    "bind-to",
    "binding",
    "bootstrap",
    "bootstrap-exec",
    "checkpoint",
    "configfile",
    "debug",
    "demux",
    "detect",
    "disable-auto-cleanup",
    "disable-hostname-propagation",
    "disable-x",
    "enable-auto-cleanup",
    "enable-hostname-propagation",
    "enable-x",
    "encrypt",
    "env",
    "envall",
    "envlist",
    "envnone",
    "errfile",
    "errfile-pattern",
    "f",
    "g",
    "genv",
    "genvall",
    "genvlist",
    "genvnone",
    "gpus-per-proc",
    "H",
    "h",
    "help",
    "host",
    "host-mtbf",
    "hostfile",
    "hostlist",
    "hosts",
    "hybrid-hosts",
    "iface",
    "info",
    "inject-mtbf",
    "l",
    "label",
    "launcher",
    "launcher-exec",
    "localhost",
    "log",
    "machine",
    "machinefile",
    "machinelist",
    "machines",
    "map-by",
    "membind",
    "metrics",
    "mtbf",
    "n",
    "nameserver",
    "nameserver-key",
    "np",
    "npernode",
    "on-failure",
    "order-nodes",
    "outfile",
    "outfile-pattern",
    "output-from",
    "partner",
    "perhost",
    "pmi-args",
    "pmi-port",
    "pmi_args",
    "ppn",
    "prepend-pattern",
    "prepend-rank",
    "print-all-exitcodes",
    "print-rank-map",
    "profile",
    "rankmap",
    "ranks",
    "report",
    "rmk",
    "s",
    "seed",
    "skip-launch-node",
    "stall",
    "start-timeout",
    "stdin",
    "stopped",
    "timeout",
    "topolib",
    "upload",
    "usize",
    "V",
    "v",
    "verbose",
    "version",
    "wd",
    "wdir",
];

#[cfg(test)]
mod tests {
    use ropewalk::fabric::JobKey;

    use super::*;
    use crate::commands::run::command_line::{Surroundings, parse};

    fn error(words: &[&str]) -> Option<String> {
        let around = Surroundings {
            agent: "agent".into(),
            variable: &|_| None,
            read: &|_| Err(std::io::ErrorKind::NotFound.into()),
            read_key: &|_| Ok(JobKey::from_bytes([1; 32])),
        };
        let words = words.iter().map(Into::into).collect();
        parse(words, &around).err().map(|error| format!("{error:#}"))
    }

    /// What is nearly an option is taken for it, with the dashes that the help has; what is like none is not.
    #[test]
    fn what_was_meant_is_found() {
        for (typed, meant) in [
            ("ppm", "-ppn"),
            ("np4", "-np"),
            ("bindto", "-bind-to"),
            ("mapby", "-map-by"),
            ("host-file", "-hostfile"),
            ("on-failur", "--on-failure"),
            ("prepend-ranks", "-prepend-rank"),
            ("rank-map", "-rankmap"),
            ("outputfrom", "-output-from"),
            ("detekt", "--detect"),
            ("lable", "--label"),
        ] {
            assert_eq!(nearest(typed).as_deref(), Some(meant), "{typed}");
        }
        for typed in ["", "xyzzy", "-", "=", " ", "\u{20ac}"] {
            assert_eq!(nearest(typed), None, "{typed:?}");
        }
    }

    /// Every name that is suggested is one that is read, and no name that the help has is missing.
    #[test]
    fn names_are_those_that_are_read() {
        for name in NAMES {
            let error = error(&[&format!("-{name}"), "0", "0", "0", "0", "prog"]);
            let is_unknown = error
                .as_ref()
                .is_some_and(|error| error.contains("there is no option"));
            assert!(!is_unknown, "-{name}: {error:?}");
        }
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
        let options = &HELP[HELP.find("What runs:").unwrap()..HELP.find("\nSignals:").unwrap()];
        let words = options.split(|letter: char| !is_name(letter));
        let shown: Vec<_> = words
            .filter_map(|word| word.strip_prefix("--").or_else(|| word.strip_prefix('-')))
            .filter(|name| !name.is_empty())
            .collect();
        assert!(shown.len() > 50, "{shown:?}");
        for name in shown {
            assert!(NAMES.contains(&name), "-{name}");
        }
    }

    /// An option that there is not is an error that says which may have been meant, with one dash or two.
    #[test]
    fn errors_suggest_options() {
        for (word, text) in [
            ("-ppm", "there is no option -ppm; did you mean -ppn?"),
            (
                "--on-failures=abort",
                "there is no option -on-failures; did you mean --on-failure?",
            ),
            ("-xyzzy", "there is no option -xyzzy; `ropewalk run --help`"),
        ] {
            let found = error(&[word, "2", "prog"]).unwrap();
            assert!(found.starts_with(text), "{found}");
        }
    }
}
