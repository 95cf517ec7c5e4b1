//! The judgement of a job by its exit code and its output.

use super::way::Way;

/// The end of a job.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    /// The exit code; `None` after a signal.
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// A cell of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All ranks met, in the library that was asked for.
    Right,
    /// The launcher did not start the job, and said why.
    Refused(String),
    /// The job fails under the library's own launcher too, with these words.
    FailsEverywhere(String),
    /// Anything else: a failure under ours only, or a job that succeeds and is not what was asked for.
    Wrong(String),
}

impl Outcome {
    /// Judges a job that was started in a way. `version` is part of what the library calls itself; `elsewhere` starts
    /// the same job under the library's own launcher, and is called if it fails under ours.
    pub(super) fn judge(
        way: Way,
        version: &str,
        ended: &Ended,
        elsewhere: impl FnOnce() -> anyhow::Result<Ended>,
    ) -> anyhow::Result<Self> {
        Ok(match ended.code {
            Some(0) => match meeting(way, version, &ended.stdout) {
                Ok(()) => Self::Right,
                Err(why) => Self::Wrong(why),
            },
            Some(EXIT_REFUSED) if last_line(&ended.stderr).is_some() => {
                Self::Refused(last_line(&ended.stderr).unwrap_or_default().to_owned())
            }
            code => {
                let there = elsewhere()?;
                let is_right = there.code == Some(0) && meeting(way, version, &there.stdout).is_ok();
                let said = match code {
                    Some(TIMED_OUT) => "does not end",
                    _ => first_line(&ended.stderr).unwrap_or("nothing was said"),
                };
                let said = said.to_owned();
                match is_right {
                    true => Self::Wrong(said),
                    false => Self::FailsEverywhere(said),
                }
            }
        })
    }
}

/// Checks that one rank told of all, and that the library is the one that was asked for.
fn meeting(way: Way, version: &str, stdout: &str) -> Result<(), String> {
    let lines: Vec<_> = stdout.lines().map(collapse_spaces).collect();
    let [line] = lines.as_slice() else {
        return Err(format!("{} jobs met instead of one", lines.len()));
    };
    let (kind, size) = way.expected();
    let Some(library) = line.strip_prefix(&format!("{kind} {size}: ")) else {
        return Err(format!("`{line}` instead of `{kind} {size}`"));
    };
    match library.contains(version) {
        true => Ok(()),
        false => Err(format!("the program ran with {library}")),
    }
}

fn collapse_spaces(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn first_line(text: &str) -> Option<&str> {
    text.lines().map(str::trim).find(|line| !line.is_empty())
}

fn last_line(text: &str) -> Option<&str> {
    text.lines().map(str::trim).rfind(|line| !line.is_empty())
}

/// The exit code of `ropewalk run` for a program that cannot be started.
const EXIT_REFUSED: i32 = 126;
/// The exit code of timeout(1).
pub(super) const TIMED_OUT: i32 = 124;

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(code: i32, stdout: &str, stderr: &str) -> Ended {
        Ended {
            code: Some(code),
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
        }
    }

    fn is_wrong(outcome: &Outcome) -> bool {
        matches!(outcome, Outcome::Wrong(_))
    }

    fn judge(ours: &Ended, theirs: Option<&Ended>) -> Outcome {
        let elsewhere = || Ok(theirs.expect("only a failure is repeated elsewhere").clone());
        Outcome::judge(Way::Program, "MPICH Version: 5.0", ours, elsewhere).unwrap()
    }

    /// One job of all ranks is right; jobs of one rank, other sizes and other libraries are wrong though they succeed.
    #[test]
    fn success_is_not_enough() {
        let right = "met 3: MPICH Version:   5.0.2\n";
        assert_eq!(judge(&ended(0, right, ""), None), Outcome::Right);
        let alone = right.replace('3', "1");
        for stdout in [
            String::new(),
            alone.repeat(3),
            alone,
            right.replace("5.0.2", "4.0.3"),
            right.replace("met", "spawned"),
        ] {
            assert!(is_wrong(&judge(&ended(0, &stdout, ""), None)), "{stdout}");
        }
    }

    /// A refusal needs a sentence. A failure is the library's own if it shows under its own launcher too.
    #[test]
    fn failures_are_told_apart() {
        let sentence = "ropewalk: no libpmix";
        let refused = Outcome::Refused(sentence.to_owned());
        assert_eq!(judge(&ended(126, "", "ropewalk: no libpmix\n"), None), refused);
        let failed = ended(15, "", "\nError in spawn call\nmore\n");
        let right = ended(0, "met 3: MPICH Version: 5.0.2\n", "");
        for ours in [&failed, &ended(126, "", ""), &ended(TIMED_OUT, "", "late")] {
            assert!(is_wrong(&judge(ours, Some(&right))), "{ours:?}");
        }
        let late = Outcome::FailsEverywhere("does not end".to_owned());
        assert_eq!(judge(&ended(TIMED_OUT, "", "late"), Some(&failed)), late);
        let alone = ended(0, "met 1: MPICH Version: 5.0.2\n", "");
        let everywhere = Outcome::FailsEverywhere("Error in spawn call".to_owned());
        for theirs in [&failed, &alone] {
            assert_eq!(judge(&failed, Some(theirs)), everywhere);
        }
    }
}
