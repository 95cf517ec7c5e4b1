//! How a job ended, and who is to blame.

use std::{fmt, time::Duration};

use ropewalk_names::Rank;
use ropewalk_pmi::Stage;
use serde::{Deserialize, Serialize};

/// How a job ended, or an attempt of a job that was started again.
///
/// Displayed, it is nothing for a job that went well, and otherwise one line for each failure, without a line
/// end after the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// How many ranks the job had.
    pub ranks: u32,
    /// Why it was over.
    pub ending: Ending,
    /// The ranks that failed before the job was being ended, in order of time.
    pub failures: Vec<Failure>,
    /// The ranks that did not fail heard of those that did, and all went well: the program did without them. It
    /// takes a program that is attached to its agents to hear it.
    pub recovered: bool,
    /// The failures after which a rank got another process, in order of time.
    pub respawned: Vec<Failure>,
    /// How many ranks were killed on purpose.
    pub injected: u32,
    /// The job was told to end, or its time was over, and a checkpoint was committed for that: there is work
    /// left, and a new job can go on from there.
    pub saved: bool,
    /// The failure of earlier attempts that it repeats, if the job was started again.
    pub repeated: Option<Repeated>,
}

/// The same failure as in attempts before: a fault of the program or its input, as it seems, and not of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// At which step.
    pub step: u64,
    /// How many attempts ended so, this one included.
    pub times: u32,
}

/// Why a job was over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// The agent of a host was lost.
    AgentLost {
        /// The host.
        host: String,
        /// The fate of the agent.
        how: String,
        /// Other hosts whose agents were lost after it, in order of time.
        more: Vec<String>,
        /// The ranks of other hosts went on.
        continued: bool,
    },
    /// The time that the batch system gives the job was nearly over.
    AllocationOver,
    /// All ranks came to their own end.
    Completed,
    /// The first failure ended it.
    Failed,
    /// This signal to the launcher ended it.
    Interrupted(i32),
    /// No rank made progress any more ([`Reactions::stall`](crate::Reactions::stall)).
    Stalled {
        /// For how long.
        after: Duration,
        /// Who was left, and where they waited.
        who: String,
    },
    /// It took longer than it was given.
    TimedOut(Duration),
}

/// A rank that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Who, by its rank in the job.
    pub rank: Rank,
    /// Who it is to the programs, if one of them spawned it.
    pub spawned: Option<SpawnedAs>,
    /// The name of its host.
    pub host: String,
    /// Its process, if it was ever started.
    pub pid: Option<u32>,
    /// The kind of failure.
    pub kind: FailureKind,
    /// How far it was with PMI, if that is known: programs that have nothing to do with PMI have no stages.
    pub stage: Option<Stage>,
    /// When, since the start of the job.
    pub after: Duration,
}

/// A process that was spawned, as programs know it. In the job, spawned processes have the ranks behind all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpawnedAs {
    /// Its process group, from 1.
    pub group: u32,
    /// Its rank there.
    pub rank: u32,
}

/// The way in which a rank failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// It asked by PMI for the end of the job.
    Aborted {
        /// The exit code that the job is to have.
        exit_code: i32,
        /// Why, if it said so.
        message: String,
    },
    /// It exited with a code that is not 0.
    Exited(i32),
    /// It was never started.
    NotStarted {
        /// 127 if the program is not there, 126 if it cannot be executed, 125 if the system is to blame.
        exit_code: i32,
        /// The program, and why.
        reason: String,
    },
    /// The kernel killed it (SIGKILL), since there was no memory left.
    OutOfMemory(MemoryShortage),
    /// A signal killed it.
    Signalled(i32),
    /// It stayed stopped, and was killed for that ([`OnStopped::Fail`](crate::OnStopped::Fail)).
    Stopped {
        /// By this signal.
        signal: i32,
        /// For so long.
        after: Duration,
    },
    /// It exited with 0, but had begun with PMI and did not finalize it: others may wait for it.
    Unfinished,
}

/// Where memory ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum MemoryShortage {
    /// In a control group that may have no more (cgroups(7)).
    ControlGroup {
        /// Than this.
        limit_bytes: u64,
    },
    /// On its host, or in a control group that is not the agent's: the kernel ended a process there for it.
    Host,
}

impl Verdict {
    /// The verdict about a job of so many ranks that went well.
    pub fn new(ranks: u32) -> Self {
        Self {
            ranks,
            ending: Ending::Completed,
            failures: Vec::new(),
            recovered: false,
            respawned: Vec::new(),
            injected: 0,
            saved: false,
            repeated: None,
        }
    }

    /// The exit code of the job: 0 if nothing failed, or if the program did without what failed or was lost; otherwise
    /// the first failing rank's, 128 + n for signal n, 124 when it took too long or stalled, 75
    /// (`EX_TEMPFAIL`) if a checkpoint was committed before it was ended by a signal or a time limit, 125 for
    /// trouble of the launcher's own, 126 and 127 for a program that cannot be executed or found.
    pub fn exit_code(&self) -> i32 {
        match &self.ending {
            Ending::AgentLost { continued: true, .. } if self.recovered => 0,
            Ending::AgentLost { .. } => 125,
            Ending::Interrupted(_) | Ending::TimedOut(_) | Ending::AllocationOver if self.saved => SAVED,
            Ending::Interrupted(signal) => 128 + signal,
            Ending::Stalled { .. } | Ending::TimedOut(_) | Ending::AllocationOver => 124,
            Ending::Completed if self.recovered => 0,
            Ending::Completed | Ending::Failed => self
                .failures
                .first()
                .map_or(0, |failure| failure.kind.exit_code()),
        }
    }

    /// How the story of a job that was ended goes on, if it saved before.
    fn after_save(&self) -> &'static str {
        match self.saved {
            true => "; it has saved a checkpoint, from which a new start goes on",
            false => "",
        }
    }

    /// Returns true if every rank did its work.
    pub fn is_success(&self) -> bool {
        self.ending == Ending::Completed && self.failures.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for failure in self.respawned.iter().take(FAILURES_SHOWN_MAX) {
            write!(f, "{separator}{failure}; it was started again")?;
            separator = "\n";
        }
        if let Some(more @ 1..) = self.respawned.len().checked_sub(FAILURES_SHOWN_MAX) {
            write!(f, "\n{more} more ranks were started again")?;
        }
        for (index, failure) in self.failures.iter().take(FAILURES_SHOWN_MAX).enumerate() {
            write!(f, "{separator}{failure}")?;
            separator = "\n";
            let not_started = matches!(failure.kind, FailureKind::NotStarted { .. });
            match self.ending {
                Ending::Failed if self.ranks == 1 || index > 0 || not_started => {}
                Ending::Failed => f.write_str("; the job was ended")?,
                Ending::Completed if index == 0 && self.recovered => {
                    f.write_str("; the others did without it")?;
                }
                Ending::Completed if index == 0 && self.failures.len() < self.ranks as usize => {
                    f.write_str("; the others went on")?;
                }
                _ => {}
            }
        }
        if let Some(more @ 1..) = self.failures.len().checked_sub(FAILURES_SHOWN_MAX) {
            write!(f, "\n{more} more ranks failed")?;
        }
        match &self.ending {
            Ending::AgentLost {
                host,
                how,
                more,
                continued,
            } => {
                write!(f, "{separator}the agent on host {host} {how}")?;
                let shown = &more[..more.len().min(HOSTS_SHOWN_MAX)];
                match more.len() - shown.len() {
                    _ if more.is_empty() => {}
                    0 => write!(f, ", and later those on {} were lost", shown.join(", "))?,
                    rest => write!(
                        f,
                        ", and later those on {} and {rest} more were lost",
                        shown.join(", ")
                    )?,
                }
                f.write_str(match continued {
                    true if self.recovered && more.is_empty() => "; the others did without it",
                    true if self.recovered => "; the others did without them",
                    true => "; the others went on",
                    false => "; the job was ended",
                })?;
                separator = "\n";
            }
            Ending::Interrupted(signal) => {
                let name = signal_name(*signal);
                let saved = self.after_save();
                write!(f, "{separator}the job was ended by signal {signal}{name}{saved}")?;
            }
            Ending::Stalled { after, who } => {
                let after = after.as_secs_f64();
                write!(
                    f,
                    "{separator}no rank did anything for {after} s (no output, no request by PMI, no bytes moved): \
                     {who}; the job was ended"
                )?;
            }
            Ending::TimedOut(limit) => write!(
                f,
                "{separator}the job took longer than {} s and was ended{}",
                limit.as_secs_f64(),
                self.after_save()
            )?,
            Ending::AllocationOver => write!(
                f,
                "{separator}the time of the allocation was nearly over and the job was ended{}",
                self.after_save()
            )?,
            Ending::Completed | Ending::Failed => {}
        }
        if self.injected > 0 {
            let ranks = if self.injected == 1 {
                "rank was"
            } else {
                "ranks were"
            };
            write!(f, "{separator}{} {ranks} killed on purpose", self.injected)?;
            separator = "\n";
        }
        if let Some(Repeated { step, times }) = self.repeated {
            write!(
                f,
                "{separator}the same rank failed in the same way at step {step} in {times} attempts: this looks \
                 deterministic, a fault of the program or its input rather than of the machine"
            )?;
        }
        Ok(())
    }
}

impl FailureKind {
    /// The exit code of a job of which this is the first failure.
    pub fn exit_code(&self) -> i32 {
        match self {
            // A job that was aborted did not go well, whatever the rank's code or what exit(3) keeps of it.
            Self::Aborted { exit_code, .. } => match exit_code & 0xff {
                0 => 1,
                code => code,
            },
            Self::Exited(code) => *code,
            Self::NotStarted { exit_code, .. } => *exit_code,
            Self::OutOfMemory(_) | Self::Stopped { .. } => 128 + SIGKILL,
            Self::Signalled(signal) => 128 + signal,
            Self::Unfinished => 1,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, host, .. } = self;
        write!(f, "rank {rank} ")?;
        if let Some(SpawnedAs { group, rank }) = self.spawned {
            write!(f, "(rank {rank} of spawned group {group}) ")?;
        }
        write!(f, "on host {host} ")?;
        match &self.kind {
            FailureKind::Aborted { exit_code, message } => {
                write!(f, "aborted the job with exit code {exit_code}")?;
                if !message.is_empty() {
                    write!(f, " ({})", message.escape_debug())?;
                }
            }
            FailureKind::Exited(code) => write!(f, "exited with code {code}")?,
            FailureKind::NotStarted { reason, .. } => return write!(f, "could not be started: {reason}"),
            FailureKind::OutOfMemory(shortage) => {
                let name = signal_name(SIGKILL);
                write!(f, "was killed by signal {SIGKILL}{name} {shortage},")?;
            }
            FailureKind::Signalled(signal) => {
                write!(f, "was killed by signal {signal}{}", signal_name(*signal))?;
            }
            FailureKind::Stopped { signal, after } => {
                let (name, after) = (signal_name(*signal), after.as_secs_f64());
                write!(
                    f,
                    "stayed stopped by signal {signal}{name} for {after} s and was killed,"
                )?;
            }
            FailureKind::Unfinished => {
                f.write_str("exited with code 0 without finalizing PMI, which counts as failure,")?;
            }
        }
        write!(f, " {:.3} s after start", self.after.as_secs_f64())?;
        if let Some(stage) = &self.stage
            // It says so already.
            && (&self.kind, stage) != (&FailureKind::Unfinished, &Stage::Initialized)
        {
            write!(f, ", {stage}")?;
        }
        match self.pid {
            Some(pid) => write!(f, ", pid {pid}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for MemoryShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ControlGroup { limit_bytes } => {
                let limit = *limit_bytes as f64 / f64::from(1 << 20);
                write!(f, "for lack of memory: its control group may have {limit:.0} MiB")
            }
            Self::Host => {
                f.write_str("for lack of memory, for which the kernel ended a process of this host")
            }
        }
    }
}

const SIGKILL: i32 = 9;
/// `EX_TEMPFAIL` (sysexits.h): try again.
const SAVED: i32 = 75;
const FAILURES_SHOWN_MAX: usize = 16;
const HOSTS_SHOWN_MAX: usize = 16;

/// The signal's name in parentheses, after a space, if it has one (signal(7), x86 and ARM).
fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        19 => "SIGSTOP",
        20 => "SIGTSTP",
        21 => "SIGTTIN",
        22 => "SIGTTOU",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return String::new(),
    };
    format!(" ({name})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn killed(rank: u32) -> Failure {
        Failure {
            rank: Rank(rank),
            spawned: None,
            host: "vm".to_owned(),
            pid: Some(4242),
            kind: FailureKind::Signalled(9),
            stage: None,
            after: Duration::from_millis(1204),
        }
    }

    /// A verdict says who, where, why, when, and what was done about it.
    #[test]
    fn a_verdict_names_the_culprit() {
        let mut verdict = Verdict {
            ending: Ending::Failed,
            failures: vec![killed(3)],
            ..Verdict::new(8)
        };
        let culprit = "rank 3 on host vm was killed by signal 9 (SIGKILL) 1.204 s after start, pid 4242";
        assert_eq!(verdict.to_string(), format!("{culprit}; the job was ended"));
        assert_eq!(verdict.exit_code(), 137);
        verdict.ending = Ending::Completed;
        assert_eq!(verdict.to_string(), format!("{culprit}; the others went on"));
        assert_eq!(verdict.exit_code(), 137);
        assert!(!verdict.is_success());
        verdict.recovered = true;
        assert_eq!(
            verdict.to_string(),
            format!("{culprit}; the others did without it")
        );
        assert_eq!((verdict.exit_code(), verdict.is_success()), (0, false));
        verdict.failures = (0..20).map(killed).collect();
        assert!(verdict.to_string().ends_with("\n4 more ranks failed"));
    }

    /// All hosts are named that were lost, as far as they fit into a line.
    #[test]
    fn a_verdict_names_lost_hosts() {
        let lost = |hosts: u32| Verdict {
            ending: Ending::AgentLost {
                host: "b".to_owned(),
                how: "was killed by signal 9".to_owned(),
                more: (1..hosts).map(|host| format!("n{host}")).collect(),
                continued: true,
            },
            recovered: true,
            ..Verdict::new(8)
        };
        let first = "the agent on host b was killed by signal 9";
        assert_eq!(lost(1).to_string(), format!("{first}; the others did without it"));
        let all = format!("{first}, and later those on n1, n2 were lost; the others did without them");
        assert_eq!(lost(3).to_string(), all);
        assert!(lost(20).to_string().contains("n16 and 3 more were lost"));
    }

    /// A job that was ended, and has saved for that, can be started again: its exit code says so, but only then.
    #[test]
    fn a_job_that_has_saved_is_told_from_others() {
        for ending in [
            Ending::Interrupted(15),
            Ending::TimedOut(Duration::from_secs(3)),
            Ending::AllocationOver,
        ] {
            let mut verdict = Verdict {
                ending,
                saved: true,
                ..Verdict::new(1)
            };
            assert_eq!(verdict.exit_code(), 75);
            assert!(verdict.to_string().contains("it has saved"), "{verdict}");
            verdict.saved = false;
            assert!([143, 124].contains(&verdict.exit_code()));
            assert!(!verdict.to_string().contains("saved"), "{verdict}");
        }
        let done = Verdict {
            saved: true,
            ..Verdict::new(1)
        };
        assert_eq!(done.exit_code(), 0);
    }

    /// A rank that was killed for having been stopped is told from others that were killed.
    #[test]
    fn a_stopped_rank_is_named() {
        let mut failure = killed(3);
        let (signal, after) = (19, Duration::from_secs(3));
        failure.kind = FailureKind::Stopped { signal, after };
        let told = "rank 3 on host vm stayed stopped by signal 19 (SIGSTOP) for 3 s and was killed, 1.204 s after \
            start, pid 4242";
        assert_eq!(
            (failure.to_string().as_str(), failure.kind.exit_code()),
            (told, 137)
        );
    }

    /// Where a rank was is told, if that is known.
    #[test]
    fn a_verdict_names_the_stage() {
        let mut failure = killed(3);
        failure.stage = Some(Stage::Silent);
        let told = "rank 3 on host vm was killed by signal 9 (SIGKILL) 1.204 s after start, before PMI_Init, pid 4242";
        assert_eq!(failure.to_string(), told);
        (failure.kind, failure.stage) = (FailureKind::Unfinished, Some(Stage::Initialized));
        let told = "rank 3 on host vm exited with code 0 without finalizing PMI, which counts as failure, 1.204 s \
            after start, pid 4242";
        assert_eq!(failure.to_string(), told);
    }

    /// A rank that the kernel killed for lack of memory is told from others that were killed.
    #[test]
    fn a_lack_of_memory_is_named() {
        let mut failure = killed(3);
        let limit_bytes = 64 << 20;
        failure.kind = FailureKind::OutOfMemory(MemoryShortage::ControlGroup { limit_bytes });
        assert_eq!(
            failure.to_string(),
            "rank 3 on host vm was killed by signal 9 (SIGKILL) for lack of memory: its control group may have 64 MiB, \
             1.204 s after start, pid 4242"
        );
        assert_eq!(failure.kind.exit_code(), 137);
    }

    /// An abort is never taken for success: the system keeps only the low byte of an exit code.
    #[test]
    fn an_abort_has_an_exit_code() {
        for (exit_code, expected) in [(9, 9), (0, 1), (256, 1), (-1, 255)] {
            let message = String::new();
            let kind = FailureKind::Aborted { exit_code, message };
            assert_eq!(kind.exit_code(), expected);
        }
    }

    /// A job that went well has nothing to say.
    #[test]
    fn success_is_silent() {
        let verdict = Verdict::new(2);
        assert_eq!((verdict.to_string().as_str(), verdict.exit_code()), ("", 0));
        assert!(verdict.is_success());
    }
}
