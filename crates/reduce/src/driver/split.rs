//! Groups made of others: by colors, or without some ranks.

use ropewalk_names::Rank;

use super::{
    group::{Group, ReduceOptions},
    reduction::ReduceError,
};

impl Group {
    /// Parts the group by colors: each rank gets the group of those that named the same one, ordered by their keys and,
    /// where these are equal, by their places in this group (MPI standard 4.0, section 7.4.2). A rank without a color
    /// gets none. All members call, and it waits for all of them.
    ///
    /// A rank that was lost after its call is in its new group all the same, as it would be in this one: what it
    /// contributed before counts, and calls that need more of it say who is lost. With
    /// [`OnLoss::Exclude`](crate::OnLoss::Exclude) ranks that were lost before their calls are left out.
    ///
    /// # Errors
    /// As [`allgather`](Self::allgather).
    ///
    /// # Examples
    /// ```
    /// use ropewalk_reduce::{Job, Rank, ReduceOptions};
    ///
    /// let job = Job::from_env()?;
    /// // Even and odd ranks, each in the same order as before.
    /// let color = job.rank().0 % 2;
    /// let half = job.world().split(Some(color), 0, &ReduceOptions::default())?;
    /// let half = half.ok_or("this rank named a color")?;
    /// assert!(half.ranks().iter().all(|rank| rank.0 % 2 == color));
    /// job.finalize()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn split(
        &self,
        color: Option<u32>,
        key: i64,
        options: &ReduceOptions,
    ) -> Result<Option<Self>, ReduceError> {
        let mine = vec![color.map_or(NO_COLOR, i64::from), key];
        let outcome = self.allgather(mine, options)?.get()?;
        let Some(color) = color else {
            return Ok(None);
        };
        let all = outcome.value.unwrap_or_default();
        let told = self.ranks().iter().zip(all.chunks(2));
        let excluded = &outcome.receipt.excluded;
        let alike = told.filter(|(rank, told)| told[0] == i64::from(color) && !excluded.contains(rank));
        let mut alike: Vec<_> = alike.map(|(rank, told)| (told[1], *rank)).collect();
        // Stable: equal keys keep the order of this group.
        alike.sort_by_key(|(key, _)| *key);
        let ranks: Vec<_> = alike.into_iter().map(|(_, rank)| rank).collect();
        self.subgroup(&ranks).map(Some)
    }

    /// The group without these ranks, as the survivors of a loss go on. Nothing is sent. All that go on have to name
    /// the same ranks. They can rely on [`Receipt::excluded`](crate::Receipt::excluded), and on the ranks of
    /// [`ReductionError::ContributionLost`](crate::ReductionError::ContributionLost): all ranks get the same. A rank
    /// that was lost after it contributed is named by a later call.
    ///
    /// Calls of a group without lost ranks are as fast as before the loss. Those of a group with lost ranks, which
    /// [`OnLoss::Exclude`](crate::OnLoss::Exclude) allows, go by the scheduler.
    ///
    /// # Errors
    /// If no rank is left.
    ///
    /// # Examples
    /// ```
    /// use ropewalk_reduce::{Job, OnLoss, ReduceOptions, Sum};
    ///
    /// let job = Job::from_env()?;
    /// let options = ReduceOptions { on_loss: OnLoss::Exclude, ..ReduceOptions::default() };
    /// let mut group = job.world();
    /// for step in 0..3 {
    ///     let outcome = group.allreduce(vec![f64::from(step)], Sum, &options)?.get()?;
    ///     // .. use it ..
    ///     group = group.without(&outcome.receipt.excluded)?;
    /// }
    /// job.finalize()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn without(&self, ranks: &[Rank]) -> Result<Self, ReduceError> {
        let left = self.ranks().iter().filter(|rank| !ranks.contains(rank));
        self.subgroup(&left.copied().collect::<Vec<_>>())
    }
}

/// No color: those are 32 bits without a sign.
const NO_COLOR: i64 = -1;
