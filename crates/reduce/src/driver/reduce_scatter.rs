//! Reductions whose result is dealt to all ranks.

use std::{borrow::Cow, io};

use super::{
    contribution::ContributionMemory,
    group::{Group, ReduceOptions},
    kind::Kind,
    reduction::{Completion, ReduceError, Reduction},
    table_calls::Offered,
};
use crate::{
    operation::{Codec, DecodeError, Elements, Operation, Reducer, ResultMemory},
    signature::RootFailure,
};

impl Group {
    /// As [`reduce`](Self::reduce), and each member gets a part of the result: the first rank of the group the first
    /// of as many equal blocks as there are members, and so on (MPI standard 4.0, section 6.10.1, but asynchronous and
    /// exact under failures).
    ///
    /// Each long block is a reduction of its own, whose root is the rank that gets it, so that all links carry the
    /// same. It ends by itself: the receipt, and an error, are those of this rank's block. It makes as many calls of
    /// the group as there are members, and so costs as many messages as an exchange of each with each. Blocks of up to
    /// 2 KiB for each member are short: all members get the whole result by one call, and keep their blocks of it.
    ///
    /// The block of a rank that is lost goes to nobody; `on_root_loss` of the options is of no account.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce), and [`ReduceError::Blocks`] if the vector cannot be cut into equal blocks.
    ///
    /// # Examples
    /// ```
    /// use ropewalk_reduce::{Job, ReduceOptions, Sum};
    ///
    /// let job = Job::from_env()?;
    /// let world = job.world();
    /// let gradient = vec![1.0_f32; 100 * world.ranks().len()];
    /// let mine = world.reduce_scatter(gradient, Sum, &ReduceOptions::default())?.get()?;
    /// assert_eq!(mine.value, Some(vec![world.ranks().len() as f32; 100]));
    /// job.finalize()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reduce_scatter<T: 'static>(
        &self,
        data: Vec<T>,
        reducer: impl Reducer<Vec<T>>,
        options: &ReduceOptions,
    ) -> Result<Reduction<Vec<T>>, ReduceError> {
        let operation = reducer.into_operation();
        let encoded = operation.codec.encode(&data);
        let ranks = self.ranks().len();
        let element_bytes = operation.element_size.map_or(1, |size| size.get() as usize);
        let block_bytes = encoded.len() / ranks;
        let is_cut = operation.element_size.is_some() && encoded.len().is_multiple_of(element_bytes * ranks);
        if is_cut && block_bytes <= ranks * SHORT_BLOCK_FOR_EACH {
            drop(encoded);
            let whole = operation.codec;
            let place = self.place()?.0 as usize;
            let operation = Operation {
                codec: Box::new(OwnBlock { whole, place, ranks }),
                ..operation
            };
            return self.collect(data, operation, Kind::Allreduce, options);
        }
        let mut own = None;
        // If one goes wrong, all are called all the same: the others wait for them.
        let mut failed: Option<ReduceError> = None;
        for (place, &root) in self.ranks().iter().enumerate() {
            let options = ReduceOptions {
                on_root_loss: RootFailure::MoveToLowest,
                id: options.id.map(|id| id_of_block(id, place)),
                ..options.clone()
            };
            let called = self.call(&options, |id| {
                if let Some(error) = &failed {
                    return Err(ReduceError::Memory(io::Error::other(error.to_string())));
                }
                if !is_cut {
                    let elements = data.len();
                    return Err(ReduceError::Blocks { elements, ranks });
                }
                let block = &encoded[place * block_bytes..(place + 1) * block_bytes];
                let signature =
                    self.signature(&operation, block.len() as u64, Kind::Reduce(root), &options)?;
                let (completion, slot) = Completion::new(None);
                let offered = Offered {
                    id,
                    signature: &signature,
                    fold: &operation.fold,
                    is_total: operation.is_total,
                    is_block: true,
                    is_lent: false,
                    data: Some(block),
                    options: &options,
                };
                let completion = match self.offer(&offered, completion)? {
                    Ok(waiting) => return Ok((slot, Some(waiting))),
                    Err(completion) => completion,
                };
                let memory =
                    ContributionMemory::new(self.spare_memory(), block).map_err(ReduceError::Memory)?;
                self.contribute(
                    id,
                    signature,
                    memory,
                    operation.fold.clone(),
                    &options,
                    completion,
                )?;
                Ok((slot, None))
            });
            match called {
                Ok(called) if root == self.rank() => own = Some(called),
                Ok(_) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        drop(encoded);
        match (failed, own) {
            (None, Some((slot, waiting))) => {
                Ok(Reduction::new(slot, operation.codec, self.shared()).by(waiting))
            }
            (None, None) => Err(ReduceError::NotMember { rank: self.rank() }),
            (Some(error), _) => Err(error),
        }
    }
}

/// To announce a block of its own costs each rank, and the scheduler of each rank, about as much as so many more bytes
/// on the way to a rank.
const SHORT_BLOCK_FOR_EACH: usize = 2 << 10;

/// The block of a vector that is this rank's.
struct OwnBlock<T> {
    whole: Box<dyn Codec<Vec<T>>>,
    place: usize,
    ranks: usize,
}

impl<T> OwnBlock<T> {
    fn cut(&self, mut whole: Vec<T>) -> Vec<T> {
        let length = whole.len() / self.ranks;
        whole.truncate((self.place + 1) * length);
        whole.drain(..self.place * length);
        whole
    }
}

impl<T> Codec<Vec<T>> for OwnBlock<T> {
    fn encode<'a>(&self, value: &'a Vec<T>) -> Cow<'a, [u8]> {
        self.whole.encode(value)
    }

    fn decode(&self, bytes: &[u8]) -> Result<Vec<T>, DecodeError> {
        self.whole.decode(bytes).map(|whole| self.cut(whole))
    }

    fn take(&self, result: ResultMemory) -> Result<Vec<T>, DecodeError> {
        self.whole.take(result).map(|whole| self.cut(whole))
    }

    fn memory(&self, value: Vec<T>) -> Option<Box<dyn Elements>> {
        self.whole.memory(value)
    }
}

/// The blocks of a named reduction have names too.
fn id_of_block(id: u64, place: usize) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&id.to_le_bytes());
    hasher.update(&(place as u64).to_le_bytes());
    let mut digest = [0; 8];
    hasher.finalize_xof().fill(&mut digest);
    u64::from_le_bytes(digest)
}
