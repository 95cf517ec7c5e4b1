//! The words behind `ropewalk`: finds the command that they name, and runs it.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::Path,
    process::ExitCode,
};

use clap::{
    CommandFactory, FromArgMatches, Parser, Subcommand,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::{
    agent, bench, checkpoints, completions, demo, info, man, nameserver, openfoam, partner, plan, reduce,
    rehearse, run, sim,
};

/// Runs parallel jobs, and keeps them going.
#[derive(Debug, Parser)]
#[command(name = "ropewalk", version, term_width = 80)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The process manager of one host; started by others, not by hand.
    #[command(hide = true)]
    Agent,
    /// Measure what this machine and ropewalk do.
    Bench(bench::Arguments),
    /// One rank of a measurement of collective calls; started by others, not by hand.
    #[command(hide = true)]
    BenchReduceWorker(bench::WorkerArguments),
    /// The process at the other end of a measurement; started by others, not by hand.
    #[command(hide = true)]
    BenchTarget,
    Checkpoints(checkpoints::Arguments),
    Completions(completions::Arguments),
    /// See a seismic image come out right although a worker is killed in the middle.
    Demo(demo::Arguments),
    Info(info::Arguments),
    Man(man::Arguments),
    Nameserver(nameserver::Arguments),
    Openfoam(openfoam::Arguments),
    #[command(hide = true)]
    Partner(partner::Arguments),
    Plan(plan::Arguments),
    Reduce(ropewalk_reduce_files::Arguments),
    /// One process of a reduction; started by others, not by hand.
    #[command(hide = true)]
    ReduceWorker,
    Rehearse(rehearse::Arguments),
    /// Run N processes of a program: MPI programs (MPICH, Open MPI), and any other.
    Run(run::Arguments),
    Sim(sim::Arguments),
}

/// Runs the command that the words of this process name, and says with which code the process is to exit.
pub fn main() -> ExitCode {
    let words = words(env::args_os());
    match command(words) {
        Ok(Command::Agent) => agent::run(),
        Ok(Command::Run(arguments)) => run::run(arguments),
        Ok(command) => perform(command, Vec::new()),
        Err(words) => {
            let (words, run_words) = match starts_ranks(&words) {
                true => run::divide(words, reduce::RUN_OPTIONS),
                false => (words, Vec::new()),
            };
            let first = words.get(1).cloned().unwrap_or_default();
            let command = with_examples(documented_options(Arguments::command(), false), "ropewalk");
            let found = command.try_get_matches_from(words);
            match found.and_then(|found| Arguments::from_arg_matches(&found)) {
                Ok(arguments) => perform(arguments.command, run_words),
                Err(error) => advised(error, &first).exit(),
            }
        }
    }
}

/// Tells somebody who begins with a program or an option of `run` about `run`, unless the word is nearly a command.
fn advised(mut error: clap::Error, first: &OsStr) -> clap::Error {
    let is_unknown = matches!(
        error.kind(),
        ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument
    );
    let has_advice = error.get(ContextKind::SuggestedSubcommand).is_some();
    let invalid = [ContextKind::InvalidSubcommand, ContextKind::InvalidArg];
    let is_first = invalid.into_iter().any(|kind| match error.get(kind) {
        Some(ContextValue::String(word)) => first.to_str().is_some_and(|first| first.starts_with(word)),
        _ => false,
    });
    if is_unknown && is_first && !has_advice {
        let advice = format!("`ropewalk run {} ..` starts a program", first.display());
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![advice.into()]),
        );
    }
    error
}

/// `reduce` and `bench reduce` start ranks by options of `run`.
fn starts_ranks(words: &[OsString]) -> bool {
    let word = |at: usize| words.get(at).and_then(|word| word.to_str());
    matches!(
        (word(1), word(2)),
        (Some("reduce"), _) | (Some("bench"), Some("reduce"))
    )
}

/// Runs a command; one that starts ranks with these options of `run`.
fn perform(command: Command, run_words: Vec<OsString>) -> ExitCode {
    match command {
        Command::Agent => agent::run(),
        Command::Bench(arguments) => bench::run(&arguments, run_words),
        Command::BenchReduceWorker(arguments) => bench::work(&arguments),
        Command::BenchTarget => ropewalk_bench::target::run(),
        Command::Checkpoints(arguments) => checkpoints::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments, documented()),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Man(arguments) => man::run(&arguments, documented()),
        Command::Nameserver(arguments) => nameserver::run(&arguments),
        Command::Openfoam(arguments) => openfoam::run(arguments),
        Command::Partner(arguments) => ropewalk_checkpoint::partner_main(arguments.orders),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Reduce(arguments) => reduce::run(arguments, run_words),
        Command::ReduceWorker => ropewalk_reduce_files::work(),
        Command::Rehearse(arguments) => rehearse::run(&arguments),
        Command::Run(arguments) => run::run(arguments),
        Command::Sim(arguments) => sim::run(&arguments),
    }
}

/// The commands that start jobs, without a look at what the others take: the description of all options is larger than
/// an agent, and takes time. `Err` has the words if they are another command.
fn command(mut words: Vec<OsString>) -> Result<Command, Vec<OsString>> {
    let is_plain = |word: &OsString| word != "--";
    match words.get(1).and_then(|word| word.to_str()) {
        Some("agent") if words.len() == 2 => Ok(Command::Agent),
        Some("run") if words.get(2).is_none_or(is_plain) => {
            Ok(Command::Run(run::Arguments::new(words.split_off(2))))
        }
        Some("help") if words.len() == 3 && words[2] == "run" => {
            Ok(Command::Run(run::Arguments::new(vec!["--help".into()])))
        }
        _ => Err(words),
    }
}

/// The whole command as completions and the manual show it: `run` reads its words itself.
fn documented() -> clap::Command {
    documented_options(Arguments::command(), true).mut_subcommand("run", run::documented)
}

/// Adds the examples of manual pages to the help of a command and of those below it.
fn with_examples(command: clap::Command, page: &str) -> clap::Command {
    let command = command.mut_subcommands(|below| {
        let page = format!("{page}-{}", below.get_name());
        with_examples(below, &page)
    });
    match man::examples(page) {
        Some(examples) => command.after_help(examples),
        None => command,
    }
}

/// Adds the options of `run` that `reduce` and `bench reduce` have, for their pages or for their help.
fn documented_options(command: clap::Command, is_page: bool) -> clap::Command {
    let some = |command| run::documented_some(command, reduce::RUN_OPTIONS, is_page);
    command
        .mut_subcommand("reduce", some)
        .mut_subcommand("bench", |bench| bench.mut_subcommand("reduce", some))
}

/// Under the names of other process managers' commands this one is `ropewalk run`. What is started by the launcher as
/// `agent` stays that, under any name.
fn words(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<_> = words.into_iter().collect();
    let name = words.first().and_then(|word| Path::new(word).file_name());
    let is_other = name.is_some_and(|name| name == "mpiexec" || name == "mpirun");
    let is_agent = words.len() == 2 && words[1] == "agent";
    if is_other && !is_agent {
        words.insert(1, "run".into());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `command` reads `agent` and `run` as the full parser does, word for word, and gives all other words
    /// back.
    #[test]
    fn jobs_are_started_by_the_same_words() {
        let lines = [
            "r agent",
            "r run",
            "r run -n 2 a --version",
            "r run --help",
            "r run -n 1 -- -b",
            "r run -h",
        ];
        for line in lines {
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            let long = Arguments::parse_from(words.clone()).command;
            let short = command(words).expect(line);
            assert_eq!(format!("{short:?}"), format!("{long:?}"));
        }
        for line in [
            "r",
            "r info",
            "r run -- -n 2 a",
            "r agent now",
            "r --version",
            "r runs",
        ] {
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            assert_eq!(command(words.clone()).map(drop), Err(words));
        }
    }

    /// Who forgets `run` is told of it; who misspells a command, or an option of one, is not.
    #[test]
    fn programs_need_run() {
        let said = |line: &str| {
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            let first = words[1].clone();
            let error = Arguments::try_parse_from(words).unwrap_err();
            advised(error, &first).to_string()
        };
        for (line, advice) in [
            ("ropewalk ./ring", "`ropewalk run ./ring ..` starts a program"),
            (
                "ropewalk hostname -f",
                "`ropewalk run hostname ..` starts a program",
            ),
            ("ropewalk -n 4 ./ring", "`ropewalk run -n ..` starts a program"),
            ("ropewalk -np 4 ./ring", "`ropewalk run -np ..` starts a program"),
        ] {
            assert!(said(line).contains(advice), "{line}: {}", said(line));
        }
        for line in ["ropewalk plam", "ropewalk info --no-such", "ropewalk --version"] {
            assert!(!said(line).contains("ropewalk run"), "{line}: {}", said(line));
        }
    }

    /// A link called mpiexec takes mpiexec's words, and is an agent when it is started as one.
    #[test]
    fn mpiexec_is_run() {
        let of = |line: &str| words(line.split(' ').map(OsString::from)).join(OsStr::new(" "));
        assert_eq!(of("/bin/mpiexec -n 2 a"), "/bin/mpiexec run -n 2 a");
        assert_eq!(of("mpirun info"), "mpirun run info");
        assert_eq!(of("/bin/mpiexec agent"), "/bin/mpiexec agent");
        assert_eq!(of("ropewalk info"), "ropewalk info");
    }
}
