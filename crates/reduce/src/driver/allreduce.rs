//! Reductions whose result all members get.

use bytemuck::Pod;

use super::{
    buffer_reduction::BufferReduction,
    group::{Group, ReduceOptions},
    kind::Kind,
    reduction::{ReduceError, Reduction},
};
use crate::{buffer::Buffer, operation::Reducer};

impl Group {
    /// As [`reduce`](Self::reduce), and all members get the result, each the same bits (MPI standard 4.0, section
    /// 6.9.6, but asynchronous and exact under failures).
    ///
    /// Chunks go on from rank to rank as soon as they are final, while later ones are still reduced. It ends when all
    /// members that live have the whole result. Whoever dies, before it has the result or while it hands it on, costs
    /// time only, as long as its contribution is protected. `on_root_loss` of the options is of no account: if the rank
    /// where chunks become final is lost, the lowest one that lives takes its place.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    ///
    /// # Examples
    /// ```
    /// use ropewalk_reduce::{Job, ReduceOptions, Sum};
    ///
    /// let job = Job::from_env()?;
    /// let mine = vec![f64::from(job.rank().0); 1000];
    /// let outcome = job.world().allreduce(mine, Sum, &ReduceOptions::default())?.get()?;
    /// let sum = outcome.value.ok_or("all members get the result")?;
    /// println!("{} from {} ranks", sum[0], outcome.receipt.contributions);
    /// job.finalize()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn allreduce<V>(
        &self,
        data: V,
        reducer: impl Reducer<V>,
        options: &ReduceOptions,
    ) -> Result<Reduction<V>, ReduceError> {
        self.collect(data, reducer, Kind::Allreduce, options)
    }

    /// As [`allreduce`](Self::allreduce), with a buffer that is lent as to [`reduce_buffer`](Self::reduce_buffer).
    pub fn allreduce_buffer<T: Pod>(
        &self,
        buffer: Buffer<T>,
        reducer: impl Reducer<Vec<T>>,
        options: &ReduceOptions,
    ) -> BufferReduction<T> {
        self.collect_buffer(buffer, reducer, Kind::Allreduce, options)
    }
}
