//! Which option may have been meant by one that there is not.

use std::sync::LazyLock;

use clap::{
    Arg, Command,
    error::{ContextKind, ContextValue},
};

use super::{HELP, options::names};

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
    let options = names().map(|name| Arg::new(name).long(name).num_args(0..));
    let mut command = Command::new("run").disable_help_flag(true).args(options);
    command.build();
    command
});

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
