//! Jobs that save: each attempt starts from the newest whole checkpoint, and a summary tells what saving cost.

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::bail;
use ropewalk_checkpoint::{
    Found, Held, HostJournals, Mtbf, Partners, StoreError, SupervisionOptions, Supervisor, SupervisorError,
    attempt_end, quarantined,
};
use ropewalk_launch::{
    JobSpec, Verdict,
    restart::{Attempt, BetweenAttempts, Progress, Refusal},
};

use super::{saving::Saving, say, summary::Summary, upload};

/// The user's wishes about checkpoints.
#[derive(Clone, Debug)]
pub(super) struct CheckpointOptions {
    pub(super) directory: PathBuf,
    /// Learned from a default guess if `None`.
    pub(super) mtbf: Option<Mtbf>,
    /// The same between losses of a host, for which copies are made.
    pub(super) host_mtbf: Option<Mtbf>,
    /// The directory is each host's own, and hosts copy what others save.
    pub(super) has_partners: bool,
    /// The address of an object store.
    pub(super) upload: Option<String>,
}

/// The supervisor of a job, with the hosts' partners and the object store beside it.
#[derive(Debug)]
pub(super) struct Checkpoints {
    supervisor: Supervisor,
    journals: HostJournals,
    partners: Option<Partners>,
    upload: Option<String>,
}

/// Sums up a job whose [`Checkpoints`] are with the launcher.
#[derive(Clone, Debug)]
pub(super) struct Bookkeeper {
    supervisor: Supervisor,
    journals: HostJournals,
}

impl Checkpoints {
    /// Begins to look after a job.
    pub(super) fn new(options: &CheckpointOptions) -> anyhow::Result<Self> {
        let supervisor = Supervisor::new(
            &options.directory,
            SupervisionOptions {
                mtbf: options.mtbf,
                host_mtbf: options.host_mtbf,
                has_partners: options.has_partners,
            },
        )?;
        let partners = options
            .has_partners
            .then(|| Partners::new(supervisor.clone(), say));
        let journals = partners.as_ref().map(Partners::journals).unwrap_or_default();
        Ok(Self {
            supervisor,
            journals,
            partners,
            upload: options.upload.clone(),
        })
    }

    /// Sums the job up, also when this is not at hand any more.
    pub(super) fn bookkeeper(&self) -> Bookkeeper {
        Bookkeeper {
            supervisor: self.supervisor.clone(),
            journals: self.journals.clone(),
        }
    }

    /// The save to start from, fetched from the object store if nothing is left here.
    fn restored(&self, number: u32, start: u64, ranks: u32) -> anyhow::Result<Found> {
        let until = Instant::now() + LEFT_BEHIND;
        let found = loop {
            match self.supervisor.restore(start, ranks) {
                // A host that was lost may have left a process of the attempt before, or its lock, for a while.
                Err(SupervisorError::Store(StoreError::SavedByAnother { .. }))
                    if number > 1 && Instant::now() < until =>
                {
                    thread::sleep(Duration::from_millis(100));
                }
                found => break told(found)?,
            }
        };
        let Some(url) = self.upload.as_ref().filter(|_| found.from.is_none()) else {
            return Ok(found);
        };
        upload::fetch(url, self.supervisor.directory(), start)?;
        told(self.supervisor.restore(start, ranks))
    }

    fn prepared(&mut self, number: u32, last: Option<&Attempt>, spec: &mut JobSpec) -> anyhow::Result<()> {
        if let Some(last) = last {
            let end = attempt_end(&last.verdict);
            if let Err(error) = self.supervisor.failed(last.began, last.lasted, end) {
                say(&format!("{:#}", anyhow::Error::from(error)));
            }
        }
        let mut set = Vec::new();
        let (start, variables) = self.supervisor.prepare(number, spec.hosts.len());
        set.extend(variables);
        let (from, quarantined) = match &mut self.partners {
            Some(partners) => {
                let agreed = partners.prepare(start, spec)?;
                set.extend(agreed.variables);
                (agreed.from, agreed.quarantined)
            }
            None => {
                let found = self.restored(number, start, spec.size())?;
                (found.from, found.quarantined.len() as u64)
            }
        };
        if let Some((Held { generation, step, .. }, _)) = from {
            say(&format!(
                "attempt {number} starts from generation {generation}, step {step}"
            ));
        }
        let quarantined = if from.is_some() { quarantined } else { 0 };
        set.extend(self.supervisor.start(from, quarantined)?);
        let set = set.into_iter().map(|(name, value)| (name.into(), value));
        spec.environment.variables.extend(set);
        Ok(())
    }
}

impl BetweenAttempts for Checkpoints {
    fn prepare(&mut self, number: u32, last: Option<&Attempt>, spec: &mut JobSpec) -> Result<(), Refusal> {
        Ok(self.prepared(number, last, spec)?)
    }

    fn progress(&mut self, _attempt: &Attempt) -> Progress {
        let progress = self.supervisor.progress();
        Progress {
            came_to_something: progress.came_to_something,
            step: progress.step,
        }
    }
}

impl Bookkeeper {
    /// Notes the end of the last attempt, and sums up the whole job.
    pub(super) fn finish(
        &self,
        options: &CheckpointOptions,
        total: Duration,
        verdict: &Verdict,
    ) -> anyhow::Result<Summary> {
        let told = self.journals.last_word();
        let account = self.supervisor.finish(total, attempt_end(verdict), told)?;
        let saving = account
            .totals
            .map(|totals| Saving::of(&totals, account.failing, total));
        let found = quarantined(&options.directory);
        Ok(Summary {
            total: total.as_secs_f64(),
            saving,
            in_quarantine: (!found.is_empty()).then(|| (found, options.directory.join("quarantine"))),
            account,
        })
    }
}

/// Tells the user what was put aside, or what to do about an error.
fn told(found: Result<Found, SupervisorError>) -> anyhow::Result<Found> {
    let found = match found {
        Err(error @ SupervisorError::OtherRanks { saved, .. }) => {
            bail!(
                "{error}: start it with -n {saved}, or give another folder to --checkpoint; only named arrays that \
                 are partitioned go on with another number"
            )
        }
        found => found?,
    };
    for path in &found.quarantined {
        say(&format!("put aside in {}", path.display()));
    }
    found.stuck.iter().for_each(|stuck| say(stuck));
    Ok(found)
}

/// So long a process of an attempt that is over may keep its lock.
const LEFT_BEHIND: Duration = Duration::from_secs(10);
