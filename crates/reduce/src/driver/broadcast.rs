//! Broadcasts: the contribution of one rank is the result of all.

use bytemuck::Pod;
use ropewalk_names::Rank;

use super::{
    group::{Group, ReduceOptions},
    kind::Kind,
    reduction::{ReduceError, Reduction},
};
use crate::operation::{carried, carried_whole};

impl Group {
    /// All members get the vector of `root` (MPI standard 4.0, section 6.4, but asynchronous and exact under failures).
    /// All call with vectors of the same length; those of the others are of no account.
    ///
    /// It goes from rank to rank chunk by chunk, and ends when all members that live have it. Once the root's vector is
    /// protected, the root may be lost as any other rank may. The order, and `on_root_loss`, of the options are of no
    /// account.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    ///
    /// # Examples
    /// ```
    /// use ropewalk_reduce::{Job, Rank, ReduceOptions};
    ///
    /// let job = Job::from_env()?;
    /// let mut model = vec![0.0_f32; 1000];
    /// if job.rank() == Rank(0) {
    ///     model.fill(1.5);
    /// }
    /// let outcome = job.world().broadcast(model, Rank(0), &ReduceOptions::default())?.get()?;
    /// let model = outcome.value.ok_or("all members get the vector")?;
    /// assert_eq!(model, vec![1.5; 1000]);
    /// job.finalize()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn broadcast<T: Pod + Send + Sync>(
        &self,
        data: Vec<T>,
        root: Rank,
        options: &ReduceOptions,
    ) -> Result<Reduction<Vec<T>>, ReduceError> {
        self.collect(data, carried("broadcast"), Kind::Broadcast(root), options)
    }

    /// As [`broadcast`](Self::broadcast) of bytes of which only the root knows the length, as of a configuration or a
    /// serialized object; what the others call with is of no account. It goes from rank to rank as a whole.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    ///
    /// # Examples
    /// ```
    /// use ropewalk_reduce::{Job, Rank, ReduceOptions};
    ///
    /// let job = Job::from_env()?;
    /// let mine = match job.rank() {
    ///     Rank(0) => "steps = 10".into(),
    ///     _ => Vec::new(),
    /// };
    /// let outcome = job.world().broadcast_bytes(mine, Rank(0), &ReduceOptions::default())?.get()?;
    /// assert_eq!(outcome.value, Some("steps = 10".into()));
    /// job.finalize()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn broadcast_bytes(
        &self,
        data: Vec<u8>,
        root: Rank,
        options: &ReduceOptions,
    ) -> Result<Reduction<Vec<u8>>, ReduceError> {
        self.collect(data, carried_whole("broadcast"), Kind::Broadcast(root), options)
    }
}
