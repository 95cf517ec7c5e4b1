//! Where a run saves, and as which rank.

use std::{
    env,
    path::{Path, PathBuf},
    time::Duration,
};

use ropewalk_checkpoint_core::{AdvisorOptions, Mtbf};

use super::error::RunError;
use crate::{
    environment::{default_mtbf_of_job, directory_of_job, mtbf_of_job},
    run_advisor::{JOURNAL, RunAdvisor},
    store::StoreOptions,
};

/// The options of a [`SavedRun`](super::SavedRun).
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The directory, the rank, and how many saves are kept.
    pub store: StoreOptions,
    /// The options of the advisor, which rank 0 has.
    pub advisor: AdvisorOptions,
    /// The name of this start of the job: the same text for all ranks, and another one at each start. By default the
    /// number that `ropewalk run --checkpoint` gives. A single rank needs none.
    pub start: Option<String>,
    /// The time that ranks wait for each other when they restore.
    pub patience: Duration,
}

impl RunOptions {
    /// The options of this process: the directory of `ropewalk run --checkpoint DIR` if that has started it, otherwise
    /// the given one; the rank that its launcher gives (`PMI_RANK` and `PMI_SIZE`, or `RANK` and `WORLD_SIZE`).
    ///
    /// # Errors
    /// If there is no directory.
    pub fn of_job(directory: Option<&Path>) -> Result<Self, RunError> {
        let directory = directory_of_job()
            .or_else(|| directory.map(Path::to_owned))
            .ok_or(RunError::NoDirectory)?;
        let [rank, ranks] = rank_of_job().unwrap_or([0, 1]);
        Ok(Self {
            store: StoreOptions {
                rank,
                ranks,
                ..StoreOptions::new(directory)
            },
            advisor: AdvisorOptions {
                mtbf: mtbf_of_job().unwrap_or_else(default_mtbf_of_job),
                ..AdvisorOptions::default()
            },
            start: None,
            patience: PATIENCE,
        })
    }

    /// A guess of the mean time between failures in seconds, from which learning starts if no launcher says more.
    #[must_use]
    pub fn with_mtbf(mut self, seconds: f64) -> Self {
        self.advisor.mtbf = mtbf_of_job().unwrap_or(Mtbf::Learned(seconds));
        self
    }

    pub(super) fn checked(self) -> Result<Self, RunError> {
        let StoreOptions { rank, ranks, .. } = self.store;
        if rank >= ranks {
            return Err(RunError::Rank { rank, ranks });
        }
        if ranks > 1 {
            self.start()?;
        }
        Ok(self)
    }

    /// The name of this start.
    pub(super) fn start(&self) -> Result<String, RunError> {
        let StoreOptions {
            rank, ranks, start, ..
        } = self.store;
        let name = self
            .start
            .clone()
            .or_else(|| start.map(|start| start.to_string()));
        name.filter(|name| !name.is_empty() && !name.contains('/'))
            .ok_or(RunError::NoStart { rank, ranks })
    }

    pub(super) fn journal(&self) -> PathBuf {
        self.store.directory.join(JOURNAL)
    }

    pub(super) fn advisor(&self) -> Result<RunAdvisor, RunError> {
        let is_of_job = directory_of_job().is_some_and(|directory| directory == self.store.directory);
        let started = match is_of_job {
            true => RunAdvisor::start_in_job(&self.advisor),
            false => RunAdvisor::start(&self.advisor, Some(self.journal())),
        };
        started.map_err(|source| RunError::Journal {
            path: self.journal(),
            source,
        })
    }
}

/// The rank and the number of ranks.
fn rank_of_job() -> Option<[u32; 2]> {
    [["PMI_RANK", "PMI_SIZE"], ["RANK", "WORLD_SIZE"]]
        .into_iter()
        .find_map(|names| {
            let [rank, ranks] = names.map(|name| env::var(name).ok()?.parse().ok());
            Some([rank?, ranks?])
        })
}

const PATIENCE: Duration = Duration::from_secs(60);
