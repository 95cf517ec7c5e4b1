//! The words on standard error about what happens in a job.

use std::time::Duration;

use ropewalk_launch::{Ending, JobEvent, Launcher, processor_list};
use ropewalk_names::Rank;

use super::{saving::Saving, say};
use crate::watcher::Watcher;

/// Tells the user of events.
#[derive(Debug)]
pub(super) struct Narrator {
    is_verbose: bool,
    /// The ranks' ends so far, if they are to be told.
    ends: Option<Vec<(u32, String)>>,
}

impl Narrator {
    /// Tells of starts and ends too if `is_verbose`, and at the end of all ranks' exit codes if those are wanted.
    pub(super) fn new(is_verbose: bool, tells_exit_codes: bool) -> Self {
        Self {
            is_verbose,
            ends: tells_exit_codes.then(Vec::new),
        }
    }
}

impl Watcher for Narrator {
    fn handle(&mut self, event: &JobEvent, launcher: &Launcher) -> anyhow::Result<()> {
        match event {
            JobEvent::Finished(_) => {
                if let Some(mut ends) = self.ends.take() {
                    ends.sort_unstable();
                    let text: Vec<_> = ends.iter().map(|(rank, end)| format!("{rank}: {end}")).collect();
                    say(&format!("how the ranks ended: {}", text.join("; ")));
                }
            }
            JobEvent::Departed { departure, .. } => {
                if let Some(ends) = &mut self.ends {
                    ends.push((departure.rank.0, departure.cause.to_string()));
                }
            }
            JobEvent::Restarting { failed, .. } => {
                for line in failed.verdict.to_string().lines() {
                    say(&format!("attempt {}: {line}", failed.number));
                }
                if let Some(ends) = &mut self.ends {
                    ends.clear();
                }
            }
            _ => {}
        }
        let host_of = |rank| launcher.host_of(rank).unwrap_or_default();
        if let Some(text) = told(event).or_else(|| details(event, host_of).filter(|_| self.is_verbose)) {
            say(&text);
        }
        Ok(())
    }

    fn handle_saving(&mut self, saving: Saving, turned: Option<Duration>) {
        if turned.is_none() {
            return;
        }
        match saving.unprotected_since {
            Some(since) => say(&format!(
                "saves fail: nothing is saved since {:.1} s after the start, and a failure would cost all since then",
                since.as_secs_f64()
            )),
            None => say("saves are made again"),
        }
    }
}

/// The words about an event that everybody is told of.
fn told(event: &JobEvent) -> Option<String> {
    let seconds = Duration::as_secs_f64;
    Some(match event {
        JobEvent::Bound {
            rank,
            host,
            is_bound,
            processors,
        } => bound(*rank, host, *is_bound, processors),
        JobEvent::NameServerFailed { reason } => reason.clone(),
        JobEvent::Notice { rank, text } => format!("rank {rank}: {text}"),
        JobEvent::Stalled {
            after,
            who,
            ends_after,
        } => format!(
            "no rank did anything for {} s: {who}; the job ends in {} s if nothing moves (--stall)",
            seconds(after),
            seconds(ends_after)
        ),
        JobEvent::Lost {
            what,
            stall: Some(stall),
        } => format!("{what}; the others go on; {}", ends_unless_moved(*stall)),
        JobEvent::HostLate { host, after } => format!(
            "the agent on host {host} has not come up for {} s; it is waited for",
            seconds(after)
        ),
        JobEvent::EndAnnounced { ending, left } => end_announced(ending, *left),
        JobEvent::Injected { rank, host } => format!("rank {rank} on host {host} is killed on purpose"),
        JobEvent::Respawning {
            failure,
            pause,
            stall,
        } => {
            let ends = stall.map_or_else(String::new, |stall| format!("; {}", ends_unless_moved(stall)));
            format!("{failure}; it is started again in {} s{ends}", seconds(pause))
        }
        JobEvent::Restarting { pause, .. } => format!("the job is started again in {} s", seconds(pause)),
        JobEvent::Stopped {
            rank,
            host,
            pid,
            signal,
        } => format!(
            "rank {rank} on host {host} is stopped by signal {signal}, pid {pid}; others may wait for it"
        ),
        JobEvent::Continued { rank, host } => format!("rank {rank} on host {host} goes on"),
        _ => return None,
    })
}

/// The words about an event that only the curious are told of.
fn details<'a>(event: &JobEvent, host_of: impl Fn(Rank) -> &'a str) -> Option<String> {
    Some(match event {
        JobEvent::Departed { departure, host, .. } => {
            format!("rank {} on host {host} {}", departure.rank, departure.cause)
        }
        JobEvent::Spawned {
            group,
            first,
            size,
            by,
        } => format!("rank {by} spawned group {group}: {size} processes, from rank {first} of the job on"),
        JobEvent::Overwritten { rank, key } => {
            format!("rank {rank} put another value under the key {key} of PMI; the last one counts")
        }
        JobEvent::Started { rank, pid } => {
            format!("rank {rank} on host {} runs, pid {pid}", host_of(*rank))
        }
        _ => return None,
    })
}

/// The words about a rank's processors.
fn bound(rank: Rank, host: &str, is_bound: bool, processors: &[u32]) -> String {
    let list = processor_list(processors);
    match (is_bound, processors) {
        (true, _) => format!("rank {rank} on host {host} is bound to processors {list}"),
        (false, []) => format!("rank {rank} on host {host} is not bound"),
        (false, _) => format!("rank {rank} on host {host} is not bound: it may run on processors {list}"),
    }
}

/// Why a job is asked to save.
fn end_announced(ending: &Ending, left: Option<Duration>) -> String {
    let why = match ending {
        Ending::Interrupted(signal) => format!("signal {signal} came"),
        Ending::TimedOut(_) => "its time is over".to_owned(),
        _ => "its allocation is nearly over".to_owned(),
    };
    let left = left.map_or_else(String::new, |left| {
        format!(", if it can in {} s", left.as_secs_f64())
    });
    format!("the job will be ended, for {why}: it saves a checkpoint before{left}")
}

/// The end of a job in which nobody who is left can go on.
fn ends_unless_moved(stall: Duration) -> String {
    format!(
        "the job ends in {} s if nothing moves (--stall)",
        stall.as_secs_f64()
    )
}
