//! A run whose ranks are killed again and again, start again, and take part again.

use std::{
    collections::BTreeMap,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use ropewalk_launch::{JobEvent, OnFailure, RespawnPolicy, Segment};
use ropewalk_names::Rank;
use ropewalk_rig::{Network, within};

use super::{
    judge::Outcome,
    steps::{Draw, Layout},
    trial::{Event, Programs, follow_job, job_of},
};

/// The job of one run. Its ranks kill themselves: see `examples/reduce_returning.rs`.
pub(super) struct ReturnTrial<'a> {
    pub(super) programs: &'a Programs,
    /// Where the hosts are, if they are not this machine as it is.
    pub(super) network: Option<&'a Network>,
    pub(super) layout: Layout,
    pub(super) detect: Duration,
    pub(super) time_max: Duration,
    pub(super) kills: Kills,
}

/// Who is killed when.
pub(super) struct Kills {
    /// The words for the program: how many steps, and which ranks.
    words: Vec<String>,
    /// This host is lost, so long after all ranks have joined.
    host: Option<(u8, Duration)>,
}

impl ReturnTrial<'_> {
    /// Runs the job and judges.
    ///
    /// # Errors
    /// If this process cannot do its part.
    pub(super) fn run(&self) -> anyhow::Result<Outcome> {
        let program = Segment {
            arguments: self.kills.words.iter().map(Into::into).collect(),
            ranks: self.layout.ranks,
            ..Segment::new(self.programs.returning.clone())
        };
        let mut spec = job_of(self.programs, self.network, self.layout, program)?;
        spec.reactions = OnFailure::Respawn(RespawnPolicy {
            per_rank: RESPAWNS_MAX,
            ..RespawnPolicy::default()
        })
        .into();
        spec.time_limits.detect = self.detect;
        let (sender, events) = mpsc::channel();
        let is_over = AtomicBool::new(false);
        let outcome = thread::scope(|scope| {
            let is_over = &is_over;
            scope.spawn(move || {
                let job = || follow_job(spec, &sender, is_over);
                let ended = match self.network {
                    Some(network) => within(&network.namespace(0), job),
                    None => job(),
                };
                if let Err(error) = ended {
                    // The other side waits for it until the run is over.
                    let _ = sender.send(Event::Failed(error));
                }
            });
            let outcome = self.follow(&events);
            is_over.store(true, Ordering::Relaxed);
            outcome
        });
        if let Some(network) = self.network {
            network.heal()?;
        }
        outcome
    }

    fn follow(&self, events: &mpsc::Receiver<Event>) -> anyhow::Result<Outcome> {
        let begun = Instant::now();
        // In a random draw a rank may have done its work before it is due.
        let words = &self.kills.words;
        let is_kill = |word: &&String| word.contains('.');
        let least = words[1..].iter().filter(is_kill).count();
        let lost = self.kills.host.map(|(host, _)| self.layout.ranks_of(host));
        let lost = lost.unwrap_or_default();
        let mut kills = 0;
        let mut said = BTreeMap::<Rank, Vec<String>>::new();
        let mut host_due: Option<(Instant, u8)> = None;
        loop {
            if let Some((_, host)) = host_due.take_if(|(at, _)| *at <= Instant::now()) {
                let network = self.network.context("hosts are lost where they are namespaces")?;
                network.kill_host(host)?;
            }
            let left = self.time_max.saturating_sub(begun.elapsed());
            let until_loss = host_due.map(|(at, _)| at.saturating_duration_since(Instant::now()));
            match events.recv_timeout(until_loss.map_or(left, |until| until.min(left))) {
                Ok(Event::Job(JobEvent::Finished(verdict))) if verdict.exit_code() == 0 => {
                    return Ok(match kills >= least.max(1) {
                        true => judge(&said, self.layout.ranks, &lost, begun.elapsed()),
                        false => Outcome::Broken(format!("{kills} kills: {words:?}: {said:?}")),
                    });
                }
                Ok(Event::Job(JobEvent::Finished(verdict))) => {
                    let outcome = match format!("{said:?}") {
                        said if said.contains("counted twice") => Outcome::Wrong(said),
                        said => Outcome::Broken(format!("{verdict}: {words:?}: {said}")),
                    };
                    return Ok(outcome);
                }
                Ok(Event::Job(JobEvent::Output { rank, line, .. })) => {
                    let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                    if line == JOINED {
                        host_due = self
                            .kills
                            .host
                            .map(|(host, delay)| (Instant::now() + delay, host));
                        continue;
                    }
                    said.entry(rank).or_default().push(line);
                }
                Ok(Event::Job(JobEvent::Respawning { .. })) => kills += 1,
                Ok(Event::Failed(error)) => return Err(error),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) if host_due.is_some() => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Ok(Outcome::Hung(format!("{words:?}: {said:?}")));
                }
            }
        }
    }
}

impl Kills {
    /// In half of the runs the kills come at any moment, in the others about when the rank that was killed before takes
    /// part again.
    pub(super) fn draw(draw: &mut Draw, seed: u64) -> Self {
        let words = match draw.below(2) {
            0 => vec!["100".to_owned(), format!("random:{seed}:300:2")],
            _ => kills_in_turn(draw, &[]),
        };
        Self { words, host: None }
    }

    /// All ranks of other hosts are killed in turn, and meanwhile a host is lost.
    pub(super) fn draw_with_host(draw: &mut Draw) -> Self {
        let host = draw.any_host();
        let lost = draw.layout.ranks_of(host);
        let mut words = kills_in_turn(draw, &lost);
        words.extend(lost.iter().map(|rank| format!("lost:{rank}")));
        Self {
            words,
            host: Some((host, draw.within(HOST_LOST_WITHIN))),
        }
    }
}

/// All ranks but these are killed in turn, the first one again at the end.
fn kills_in_turn(draw: &mut Draw, without: &[Rank]) -> Vec<String> {
    let ranks = draw.layout.ranks;
    let mut words = vec![String::new()];
    let (first, mut step) = (draw.rank_but(without), 5);
    for place in 0..ranks {
        let victim = Rank((first.0 + place) % ranks);
        if !without.contains(&victim) {
            words.push(format!("{victim}.0:{step}"));
            step += 40 + draw.below(16);
        }
    }
    words.push(format!("{first}.1:{}", step - draw.below(30)));
    words[0] = (step + 20).to_string();
    words
}

/// The judgement over a job that ended well. All ranks tell the same sums, of steps that ended with all of them, but
/// for those that are `lost` with their host. A rank that was killed when it had all sums, or had told them, may come
/// back when the job is over.
fn judge(said: &BTreeMap<Rank, Vec<String>>, ranks: u32, lost: &[Rank], elapsed: Duration) -> Outcome {
    let all = format!("{} of {ranks}: ", ranks - lost.len() as u32);
    let mut sums: Vec<&String> = Vec::new();
    for rank in (0..ranks).map(Rank).filter(|rank| !lost.contains(rank)) {
        let lines = said.get(&rank).map_or(&[][..], |lines| lines);
        let (late, told): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.starts_with("late: "));
        match (&late[..], &told[..]) {
            (_, [line]) if line.starts_with(&all) => sums.push(line),
            ([_], []) => {}
            said => return Outcome::Lost(format!("rank {rank} says {said:?}")),
        }
    }
    sums.dedup();
    match sums[..] {
        [_] => Outcome::Exact {
            elapsed,
            has_lost: false,
        },
        _ => Outcome::Wrong(format!("{sums:?}")),
    }
}

const RESPAWNS_MAX: u32 = 20;
const HOST_LOST_WITHIN: Duration = Duration::from_millis(800);
/// The program says this when all ranks have joined.
const JOINED: &str = "joined";

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(lines: [&str; 3]) -> Outcome {
        let said = (0..).map(Rank).zip(lines.map(|line| vec![line.to_owned()]));
        judge(&said.collect(), 3, &[], Duration::ZERO)
    }

    /// All have to be back and to have the same sums; one may be late for the end.
    #[test]
    fn all_have_to_be_back() {
        let all = "3 of 3: 111*20";
        assert!(!judged([all, all, all]).is_failure());
        assert!(!judged([all, "late: the job is over", all]).is_failure());
        assert!(matches!(judged([all, "2 of 3: 110*20", all]), Outcome::Lost(_)));
        assert!(matches!(judged([all, "3 of 3: 110*20", all]), Outcome::Wrong(_)));
        assert!(matches!(judged(["late: "; 3]), Outcome::Wrong(_)));
    }
}
