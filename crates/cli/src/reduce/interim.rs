//! Stands in for the library's reduction of sources until that is there.

use std::{collections::BTreeMap, io, sync::Arc};

use bytemuck::{Pod, cast_slice_mut};
use ropewalk_reduce::{Job, Order, Rank, ReduceError, ReduceOptions, Reducer, Reduction};

/// A contribution whose bytes can be made again.
pub(super) trait Source: Send + Sync + 'static {
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
}

pub(super) struct Sources {
    pub(super) members: u32,
    pub(super) bytes: u64,
    pub(super) held: BTreeMap<u32, Arc<dyn Source>>,
}

pub(super) fn reduce_sources<T: Pod>(
    job: &Job,
    sources: Sources,
    combine: impl Fn(T, T) -> T + Copy,
    reducer: impl Reducer<Vec<T>>,
) -> anyhow::Result<Result<Reduction<Vec<T>>, ReduceError>> {
    let length = sources.bytes as usize / size_of::<T>();
    let (size, rank) = (job.size(), job.rank().0);
    let range = |rank: u32| u64::from(rank) * u64::from(sources.members) / u64::from(size);
    let mut sum: Option<Vec<T>> = None;
    for member in range(rank)..range(rank + 1) {
        let mut next = vec![T::zeroed(); length];
        sources.held[&(member as u32)].read(0, cast_slice_mut(&mut next))?;
        match &mut sum {
            None => sum = Some(next),
            Some(sum) => sum
                .iter_mut()
                .zip(next)
                .for_each(|(left, right)| *left = combine(*left, right)),
        }
    }
    let options = ReduceOptions {
        order: Order::Ordered,
        ..Default::default()
    };
    Ok(job
        .world()
        .reduce(sum.unwrap_or_default(), reducer, Rank(0), &options))
}
