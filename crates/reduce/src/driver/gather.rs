//! Gathers: the contributions of all ranks, side by side.

use bytemuck::Pod;
use ropewalk_names::Rank;

use super::{
    buffer_reduction::BufferReduction,
    group::{Group, ReduceOptions},
    kind::Kind,
    reduction::{ReduceError, Reduction},
};
use crate::{buffer::Buffer, operation::carried};

impl Group {
    /// `root` gets the vectors of all members, one after the other in the order of the ranks (MPI standard 4.0, section
    /// 6.5, but asynchronous and exact under failures). All vectors have the same length.
    ///
    /// Each goes straight to the root as soon as its rank has called. A contribution that is protected is in the
    /// result, whether its rank lives or not. With [`OnLoss::Exclude`](crate::OnLoss::Exclude) a lost contribution is
    /// zeros in the result, and the receipt names its rank. The order of the options is of no account.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    ///
    /// # Examples
    /// ```
    /// use ropewalk_reduce::{Job, Rank, ReduceOptions};
    ///
    /// let job = Job::from_env()?;
    /// let mine = vec![job.rank().0; 2];
    /// if let Some(all) = job.world().gather(mine, Rank(0), &ReduceOptions::default())?.get()?.value {
    ///     assert!(all.chunks(2).zip(0..).all(|(theirs, rank)| theirs == [rank, rank]));
    /// }
    /// job.finalize()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn gather<T: Pod + Send + Sync>(
        &self,
        data: Vec<T>,
        root: Rank,
        options: &ReduceOptions,
    ) -> Result<Reduction<Vec<T>>, ReduceError> {
        self.collect(data, carried("gather"), Kind::Gather(root), options)
    }

    /// As [`gather`](Self::gather), with a buffer that is lent as to [`reduce_buffer`](Self::reduce_buffer).
    pub fn gather_buffer<T: Pod + Send + Sync>(
        &self,
        buffer: Buffer<T>,
        root: Rank,
        options: &ReduceOptions,
    ) -> BufferReduction<T> {
        self.collect_buffer(buffer, carried("gather"), Kind::Gather(root), options)
    }

    /// As [`gather`](Self::gather), and all members get the vectors of all (MPI standard 4.0, section 6.7).
    ///
    /// They come together at one rank, from where they go on from rank to rank as they come. If that rank is lost, the
    /// lowest one that lives takes its place. `on_root_loss` of the options is of no account.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    ///
    /// # Examples
    /// ```
    /// use ropewalk_reduce::{Job, ReduceOptions};
    ///
    /// let job = Job::from_env()?;
    /// let mine = vec![f64::from(job.rank().0)];
    /// let outcome = job.world().allgather(mine, &ReduceOptions::default())?.get()?;
    /// let all = outcome.value.ok_or("all members get the vectors")?;
    /// assert_eq!(all.len(), job.world().ranks().len());
    /// job.finalize()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn allgather<T: Pod + Send + Sync>(
        &self,
        data: Vec<T>,
        options: &ReduceOptions,
    ) -> Result<Reduction<Vec<T>>, ReduceError> {
        self.collect(data, carried("allgather"), Kind::Allgather, options)
    }

    /// As [`allgather`](Self::allgather), with a buffer that is lent as to [`reduce_buffer`](Self::reduce_buffer).
    pub fn allgather_buffer<T: Pod + Send + Sync>(
        &self,
        buffer: Buffer<T>,
        options: &ReduceOptions,
    ) -> BufferReduction<T> {
        self.collect_buffer(buffer, carried("allgather"), Kind::Allgather, options)
    }
}
