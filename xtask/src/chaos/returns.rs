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
    /// The words for the program: how many steps, and who is killed when.
    pub(super) words: Vec<String>,
}

impl ReturnTrial<'_> {
    /// Runs the job and judges.
    ///
    /// # Errors
    /// If this process cannot do its part.
    pub(super) fn run(&self) -> anyhow::Result<Outcome> {
        let program = Segment {
            arguments: self.words.iter().map(Into::into).collect(),
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
        thread::scope(|scope| {
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
        })
    }

    fn follow(&self, events: &mpsc::Receiver<Event>) -> anyhow::Result<Outcome> {
        let begun = Instant::now();
        // In a random draw a rank may have done its work before it is due.
        let least = self.words[1..]
            .iter()
            .filter(|word| !word.starts_with("random:"))
            .count();
        let mut kills = 0;
        let mut said = BTreeMap::<Rank, Vec<String>>::new();
        loop {
            let left = self.time_max.saturating_sub(begun.elapsed());
            match events.recv_timeout(left) {
                Ok(Event::Job(JobEvent::Finished(verdict))) if verdict.is_success() => {
                    return Ok(match kills >= least.max(1) {
                        true => judge(&said, self.layout.ranks, begun.elapsed()),
                        false => Outcome::Broken(format!("{kills} kills: {:?}: {said:?}", self.words)),
                    });
                }
                Ok(Event::Job(JobEvent::Finished(verdict))) => {
                    let outcome = match format!("{said:?}") {
                        said if said.contains("counted twice") => Outcome::Wrong(said),
                        said => Outcome::Broken(format!("{verdict}: {:?}: {said}", self.words)),
                    };
                    return Ok(outcome);
                }
                Ok(Event::Job(JobEvent::Output { rank, line, .. })) => {
                    let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                    said.entry(rank).or_default().push(line);
                }
                Ok(Event::Job(JobEvent::Respawning { .. })) => kills += 1,
                Ok(Event::Failed(error)) => return Err(error),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Ok(Outcome::Hung(format!("{:?}: {said:?}", self.words)));
                }
            }
        }
    }
}

/// Who is killed when, as words for the program. In half of the runs the kills come at any moment, in the others about
/// when the rank that was killed before takes part again.
pub(super) fn draw_kills(draw: &mut Draw, seed: u64) -> Vec<String> {
    if draw.below(2) == 0 {
        return vec!["100".to_owned(), format!("random:{seed}:300:2")];
    }
    let ranks = draw.layout.ranks;
    let mut words = vec![String::new()];
    let (first, mut step) = (draw.any_rank(), 5);
    for place in 0..ranks {
        let victim = (first.0 + place) % ranks;
        words.push(format!("{victim}.0:{step}"));
        step += 40 + draw.below(16);
    }
    words.push(format!("{first}.1:{}", step - draw.below(30)));
    words[0] = (step + 20).to_string();
    words
}

/// The judgement over a job that ended well. All ranks tell the same sums, of steps that ended with all of them. A rank
/// that was killed when it had all sums, or had told them, may come back when the job is over.
fn judge(said: &BTreeMap<Rank, Vec<String>>, ranks: u32, elapsed: Duration) -> Outcome {
    let all = format!("{ranks} of {ranks}: ");
    let mut sums: Vec<&String> = Vec::new();
    for rank in (0..ranks).map(Rank) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(lines: [&str; 3]) -> Outcome {
        let said = (0..).map(Rank).zip(lines.map(|line| vec![line.to_owned()]));
        judge(&said.collect(), 3, Duration::ZERO)
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
