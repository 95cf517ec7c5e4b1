//! The judgement over one run.

use std::{collections::BTreeMap, fmt, time::Duration};

use ropewalk_launch::{Ending, FailureKind, Verdict};
use ropewalk_names::Rank;

use super::cells::Expected;

/// Everything that was seen of a run.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The lines of each rank.
    pub(super) said: BTreeMap<Rank, Vec<String>>,
    /// When the calls of the ranks returned, and when they were answered, in nanoseconds.
    pub(super) returned: BTreeMap<Rank, u64>,
    pub(super) answered: BTreeMap<Rank, u64>,
    /// The ranks that may be lost, and when that was done to them.
    pub(super) victims: BTreeMap<Rank, u64>,
    /// The kills for which the run was over too early.
    pub(super) undone: u64,
    /// When the first step was done.
    pub(super) disturbed: Option<u64>,
    /// The launcher's verdict.
    pub(super) verdict: Option<Verdict>,
    /// A verdict has to blame the memory.
    pub(super) is_out_of_memory: bool,
    /// All ranks are to have the result.
    pub(super) is_for_all: bool,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The rank or the ranks that are to have the exact result have it, and all others know.
    Exact {
        /// The time of the reduction at that rank.
        elapsed: Duration,
        /// A rank was lost before the end.
        has_lost: bool,
    },
    /// All ranks have an error that names one that is lost, as the promise allows.
    Named,
    /// The root was lost when it had the result.
    AfterTheEnd,
    /// All ranks have an error that the promise does not allow.
    Lost(String),
    /// A result that is not exact.
    Wrong(String),
    /// No end in time.
    Hung(String),
    /// Anything else that must not be.
    Broken(String),
}

/// The kills of a run, by the moment they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kills {
    /// Between the return of the victim's call and the first answer to a rank.
    pub(super) counted: u64,
    /// Before the return.
    pub(super) early: u64,
    /// After the first answer.
    pub(super) late: u64,
}

impl Outcome {
    pub(super) fn is_failure(&self) -> bool {
        !matches!(self, Self::Exact { .. } | Self::Named | Self::AfterTheEnd)
    }
}

impl Seen {
    /// The kills by their moments.
    pub(super) fn kills(&self) -> Kills {
        let end = self.answered.values().min().copied().unwrap_or(u64::MAX);
        let mut kills = Kills {
            late: self.undone,
            ..Kills::default()
        };
        for (rank, &at) in &self.victims {
            let has_returned = self.returned.get(rank).is_some_and(|&returned| returned <= at);
            match (has_returned, at < end) {
                (false, _) => kills.early += 1,
                (true, true) => kills.counted += 1,
                (true, false) => kills.late += 1,
            }
        }
        kills
    }

    /// The time from the first step to the first answer.
    pub(super) fn recovery(&self) -> Option<Duration> {
        let end = self.answered.values().min()?;
        let taken = end.checked_sub(self.disturbed?)?;
        Some(Duration::from_nanos(taken))
    }

    /// The judgement, if a verdict came.
    pub(super) fn judge(&self, ranks: u32, expected: Expected) -> Outcome {
        let lines = || {
            self.said
                .iter()
                .flat_map(|(rank, lines)| lines.iter().map(move |line| (rank, line)))
        };
        if let Some((rank, line)) = lines().find(|(_, line)| line.starts_with("wrong")) {
            return Outcome::Wrong(format!("rank {rank}: {line}"));
        }
        let exact: Vec<_> = lines().filter(|(_, line)| line.starts_with("exact: ")).collect();
        if exact.len() > 1 && !self.is_for_all {
            return Outcome::Broken(format!("{} ranks have the result: {self}", exact.len()));
        }
        let survivors: Vec<Rank> = (0..ranks)
            .map(Rank)
            .filter(|rank| !self.victims.contains_key(rank))
            .collect();
        let last = |rank: &Rank| {
            self.said
                .get(rank)
                .and_then(|lines| lines.last())
                .map_or("", String::as_str)
        };
        let has_error = |rank: &&Rank| last(rank).starts_with("error: ");
        let errors = survivors.iter().filter(has_error).count();
        if errors == survivors.len() {
            return self.judge_error(&survivors, expected, exact.len());
        }
        if let Some(odd) = survivors.iter().find(|rank| {
            let is_told = !self.is_for_all && last(rank).starts_with("told: ");
            !last(rank).starts_with("exact: ") && !is_told
        }) {
            return Outcome::Broken(format!("rank {odd} has no result, others have: {self}"));
        }
        if let Some(blame) = self.unexcused(&survivors) {
            return Outcome::Broken(blame);
        }
        match exact[..] {
            [(_, line), ..] => match parse(line) {
                Some((elapsed, has_lost)) => Outcome::Exact { elapsed, has_lost },
                None => Outcome::Broken(format!("cannot read {line:?}")),
            },
            _ if self
                .victims
                .keys()
                .any(|rank| last(&survivors[0]).contains(&format!("root {rank},"))) =>
            {
                Outcome::AfterTheEnd
            }
            _ => Outcome::Broken(format!("nobody has the result: {self}")),
        }
    }

    fn judge_error(&self, survivors: &[Rank], expected: Expected, results: usize) -> Outcome {
        if results > 0 {
            return Outcome::Broken(format!("a victim has the result, all others an error: {self}"));
        }
        let names = |rank: &Rank| {
            let line = self.said.get(rank).and_then(|lines| lines.last())?;
            let numbers = line
                .split(|c: char| !c.is_ascii_digit())
                .filter_map(|word| word.parse().ok());
            numbers.map(Rank).find(|rank| self.victims.contains_key(rank))
        };
        let is_allowed = expected == Expected::ExactOrNamed || self.kills().early > 0;
        match is_allowed && survivors.iter().all(|rank| names(rank).is_some()) {
            true => Outcome::Named,
            false => Outcome::Lost(self.to_string()),
        }
    }

    /// A word of the launcher's verdict that no victim explains.
    fn unexcused(&self, survivors: &[Rank]) -> Option<String> {
        let verdict = self.verdict.as_ref()?;
        let is_over = matches!(
            verdict.ending,
            Ending::Completed | Ending::AgentLost { continued: true, .. }
        );
        let has_blamed_survivor = verdict
            .failures
            .iter()
            .any(|failure| survivors.contains(&failure.rank));
        let blames_memory = |kind: &FailureKind| matches!(kind, FailureKind::OutOfMemory(_));
        let is_blamed = !self.is_out_of_memory
            || verdict
                .failures
                .iter()
                .any(|failure| blames_memory(&failure.kind));
        (!is_over || has_blamed_survivor || !is_blamed)
            .then(|| format!("the launcher: {:?}; {self}", verdict.failures))
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "victims {:?}",
            self.victims.keys().map(|rank| rank.0).collect::<Vec<_>>()
        )?;
        for (rank, lines) in &self.said {
            write!(f, "; {rank}: {}", lines.join(" / "))?;
        }
        match &self.verdict {
            Some(verdict) => write!(f, "; {}", verdict.to_string().replace('\n', "; ")),
            None => Ok(()),
        }
    }
}

/// Reads the end of `exact: 8 contributions, 2 plans, root 0, lost [3], 12.345 ms`.
fn parse(line: &str) -> Option<(Duration, bool)> {
    let milliseconds = line
        .rsplit(", ")
        .next()?
        .strip_suffix(" ms")?
        .parse::<f64>()
        .ok()?;
    let elapsed = Duration::try_from_secs_f64(milliseconds / 1e3).ok()?;
    Some((elapsed, !line.contains("lost []")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXACT: &str = "exact: 3 contributions, 2 plans, root 0, lost [2], 12.500 ms";
    const TOLD: &str = "told: 3 contributions, 2 plans, root 0, lost [2], 12.500 ms";

    fn seen(lines: &[&str], victims: &[(u32, u64)]) -> Seen {
        let said = (0..)
            .map(Rank)
            .zip(lines.iter().map(|line| vec![(*line).to_owned()]));
        Seen {
            said: said.filter(|(_, lines)| !lines[0].is_empty()).collect(),
            returned: (0..lines.len() as u32).map(|rank| (Rank(rank), 100)).collect(),
            answered: BTreeMap::from([(Rank(0), 200)]),
            victims: victims.iter().map(|(rank, at)| (Rank(*rank), *at)).collect(),
            ..Seen::default()
        }
    }

    fn judge(lines: &[&str], victims: &[(u32, u64)]) -> Outcome {
        seen(lines, victims).judge(lines.len() as u32, Expected::Exact)
    }

    /// A result at one rank is right if all survivors know. Two results, none, or a survivor without a word are not.
    #[test]
    fn one_rank_has_the_result_and_all_know() {
        let elapsed = Duration::from_micros(12_500);
        assert_eq!(
            judge(&[EXACT, TOLD, ""], &[(2, 150)]),
            Outcome::Exact {
                elapsed,
                has_lost: true
            }
        );
        assert!(matches!(
            judge(&[EXACT, EXACT, ""], &[(2, 150)]),
            Outcome::Broken(_)
        ));
        assert!(matches!(
            judge(&[TOLD, TOLD, ""], &[(2, 150)]),
            Outcome::Broken(_)
        ));
        assert!(matches!(judge(&[EXACT, "", ""], &[(2, 150)]), Outcome::Broken(_)));
        assert!(matches!(
            judge(&[EXACT, "error: no", ""], &[(2, 150)]),
            Outcome::Broken(_)
        ));
        assert!(matches!(
            judge(&[EXACT, "wrong (x): ", ""], &[(2, 150)]),
            Outcome::Wrong(_)
        ));
        assert_eq!(judge(&["", TOLD, TOLD], &[(0, 250)]), Outcome::AfterTheEnd);
    }

    /// If all are to have the result, a survivor that only knows of it is not well.
    #[test]
    fn all_have_the_result() {
        let for_all = |lines: &[&str]| {
            let mut seen = seen(lines, &[(2, 150)]);
            seen.is_for_all = true;
            seen.judge(lines.len() as u32, Expected::Exact)
        };
        assert!(matches!(for_all(&[EXACT, EXACT, ""]), Outcome::Exact { .. }));
        assert!(matches!(for_all(&[EXACT, TOLD, ""]), Outcome::Broken(_)));
    }

    /// An error on all ranks is right only if it names a victim whose call had not returned, or the promise allows it.
    #[test]
    fn an_error_is_allowed_for_a_victim_that_is_named() {
        let lines = ["error: contributions were lost with rank 2"; 2];
        let lines = [lines[0], lines[1], ""];
        assert!(matches!(judge(&lines, &[(2, 150)]), Outcome::Lost(_)));
        assert_eq!(judge(&lines, &[(2, 50)]), Outcome::Named);
        let allowed = |victim| seen(&lines, &[(victim, 150)]).judge(3, Expected::ExactOrNamed);
        assert_eq!(allowed(2), Outcome::Named);
        let unnamed = seen(&["error: no", "error: no", ""], &[(2, 150)]);
        assert!(matches!(
            unnamed.judge(3, Expected::ExactOrNamed),
            Outcome::Lost(_)
        ));
    }

    /// Only a kill between the return of the victim's call and the first answer counts.
    #[test]
    fn kills_count_between_return_and_end() {
        let kills = |at| seen(&["", "", ""], &[(2, at)]).kills();
        assert_eq!(
            kills(50),
            Kills {
                early: 1,
                ..Kills::default()
            }
        );
        assert_eq!(
            kills(150),
            Kills {
                counted: 1,
                ..Kills::default()
            }
        );
        assert_eq!(
            kills(200),
            Kills {
                late: 1,
                ..Kills::default()
            }
        );
    }
}
