//! The table of options for readers: help, manual page and completions.

use clap::{Arg, ArgAction, Command, ValueHint};

use super::options::{GROUPS, Row, rows};

/// The text for `--help`.
pub(in super::super) fn help() -> String {
    let mut text = wrapped(TITLE, 0);
    text += "\nUsage: ropewalk run [OPTIONS] PROGRAM [ARGUMENTS]\n";
    text += "                    [: [OPTIONS] PROGRAM [ARGUMENTS]]..\n";
    text += &wrapped(DASHES, 0);
    text += "\nExamples:\n";
    for (command, purpose) in EXAMPLES {
        text += &entry_at(command, purpose, EXAMPLE_COLUMN);
    }
    for group in GROUPS {
        text += &format!("\n{}:\n", group.heading);
        for row in group.rows.iter().filter(|row| row.is_option()) {
            text += &entry(row.usage, row.help);
        }
    }
    text += "\nVariables (options count more):\n";
    for row in variables() {
        text += &entry(row.usage, row.help);
    }
    for paragraph in NOTES {
        text += "\n";
        text += &wrapped(paragraph, 0);
    }
    text.trim_end().to_owned()
}

/// Adds the options to what clap knows of the command without them. Only completions and the manual page come of it.
pub(crate) fn documented(command: Command) -> Command {
    let command = command.about(TITLE).long_about(format!("{TITLE} {DASHES}"));
    GROUPS.iter().fold(command, |command, group| {
        let options = group.rows.iter().filter(|row| row.is_option());
        command.args(options.map(|row| row.argument(true).help_heading(group.heading)))
    })
}

/// The notes behind the options, for the manual page, which has sections of its own for files and exit codes.
pub(crate) fn reader_notes() -> impl Iterator<Item = &'static str> {
    let has_section = |note: &&str| note.starts_with("Files:") || note.starts_with("Exit code:");
    NOTES.into_iter().filter(move |note| !has_section(note))
}

/// The variables that stand for options, and the words on each: all of them, or some by their first names.
pub(crate) fn reader_variables(
    known: Option<&'static [&'static str]>,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let meant = variables().filter(move |row| known.is_none_or(|known| row.is_one_of(known)));
    meant.map(|row| (row.usage, row.help))
}

/// Adds some of the options, by their first names, to those of another command: for its page, or for its help.
pub(crate) fn documented_some(command: Command, known: &[&str], is_page: bool) -> Command {
    let rows = rows().filter(|row| row.is_option() && row.is_one_of(known));
    command.args(rows.map(|row| row.argument(is_page).help_heading("As for `ropewalk run`")))
}

fn variables() -> impl Iterator<Item = &'static Row> {
    rows().filter(|row| !row.is_option())
}

impl Row {
    fn bare_names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.names().map(|name| name.trim_start_matches('-'))
    }

    /// The option as clap shows it: its first name with two dashes, its letter, and the others as aliases.
    fn argument(&self, is_page: bool) -> Arg {
        let mut names = self.bare_names();
        let name = names.next().expect("each row has a name");
        let mut argument = match name.as_bytes() {
            &[letter] => Arg::new(name).short(char::from(letter)),
            _ => Arg::new(name).long(name),
        };
        let mut others = Vec::new();
        for other in names {
            argument = match other.as_bytes() {
                &[letter] => argument.short(char::from(letter)),
                _ => argument.visible_alias(other),
            };
            others.push(format!("-{other}"));
        }
        // Manual pages show no aliases, and help does.
        let help = match others.is_empty() || !is_page {
            true => self.help.trim().to_owned(),
            false => format!("{} (also {})", self.help.trim(), others.join(", ")),
        };
        let Some(value) = self.value() else {
            return argument.help(help).action(ArgAction::SetTrue);
        };
        let hint = match value.split('.').next() {
            Some("CMD") => ValueHint::CommandString,
            Some("DIR") => ValueHint::DirPath,
            Some("FILE") => ValueHint::FilePath,
            _ => ValueHint::Other,
        };
        match self.choices() {
            choices if choices.is_empty() => argument.help(help).value_name(value).value_hint(hint),
            choices => argument.help(help).value_parser(choices),
        }
    }
}

/// An option and its help beside it, or below if it is long.
fn entry(spellings: &str, help: &str) -> String {
    entry_at(spellings, help, HELP_COLUMN)
}

fn entry_at(spellings: &str, help: &str, column: usize) -> String {
    let help = wrapped(help, column);
    match spellings.len() + 4 <= column {
        true => format!("  {spellings:<0$}{1}", column - 2, help.trim_start()),
        false => format!("{}{help}", wrapped(spellings, 2)),
    }
}

/// Lines of whole words, indented. Choices that are too many for a line are parted behind one of them.
fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = String::new();
    let mut width = 0;
    for word in text.split_whitespace() {
        let is_long = indent + word.len() > WIDTH;
        let pieces = word.split_inclusive(|letter| is_long && letter == '|');
        for (at, piece) in pieces.enumerate() {
            let space = usize::from(at == 0);
            if width == 0 || width + space + piece.len() > WIDTH {
                if width > 0 {
                    lines.push('\n');
                }
                lines.extend(std::iter::repeat_n(' ', indent));
                width = indent;
            } else {
                lines.extend(std::iter::repeat_n(' ', space));
                width += space;
            }
            lines += piece;
            width += piece.len();
        }
    }
    lines.push('\n');
    lines
}

const HELP_COLUMN: usize = 26;
const EXAMPLE_COLUMN: usize = 46;
const WIDTH: usize = 80;

const TITLE: &str = "Run N processes (ranks) of a program: MPI programs (MPICH and what descends from it, Open MPI 4 \
    and 5), and any other.";
const DASHES: &str = "Options have one dash or two, as with mpiexec of MPICH (Hydra); programs behind : belong to \
    the same job.";

const EXAMPLES: [(&str, &str); 4] = [
    ("ropewalk run -n 4 ./ring", "four ranks on this host"),
    (
        "ropewalk run -hosts a:8,b:8 ./solver",
        "eight on each of two hosts",
    ),
    (
        "ropewalk run -f hosts -ppn 2 -l ./solver",
        "hosts of a file, labels",
    ),
    (
        "ropewalk run -n 1 ./master : -n 4 ./worker",
        "two programs, one job",
    ),
];

const NOTES: [&str; 6] = [
    "More variables: batch systems name their hosts in variables of their own; ROPEWALK_LIBRARY_DIR is the folder of \
     libpmi.so.0 for Open MPI.",
    "Files: options are read from the first of HYDRA_CONFIG_FILE, ~/.mpiexec.hydra.conf and /etc/mpiexec.hydra.conf \
     that exists, unless -configfile names a file; options of the command count more.",
    "A TIME is a number of seconds, or has units: 500ms, 10m, 1h30m.",
    "Signals: INT, TERM, HUP and QUIT end the job, a second one at once; USR1 and USR2 go to all ranks; TSTP (^Z) \
     suspends the job and its --timeout until CONT (fg).",
    "A job with an advisor of checkpoints saves before it ends: after TERM and at the end of --timeout if that fits \
     into --grace; after USR1 however long it takes; and before the end of a Slurm allocation, if there is \
     --checkpoint.",
    "Exit code: that of the first rank that failed, 128 + n for signal n; 124 for a time limit; 75 if the job was \
     ended by a signal or a time limit, but saved a checkpoint for that: start it again; 125 for trouble of the \
     launcher; 126 and 127 for a program that cannot be executed or found.",
];
