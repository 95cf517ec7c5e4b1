//! Collective calls of all kinds, operations and types.

use std::sync::Arc;

use ropewalk_reduce::{
    Accumulator, Barrier, Buffer, ExactSum, Group, Operation, Outcome, Rank, ReduceError, ReduceOptions,
    Reduction, object,
};

use crate::{
    element::ElementType,
    function::Function,
    job::Shared,
    memory::{Memory, ObjectBuffer},
    operator::{Element, Float},
    pending::{Ended, Underway},
};

/// A call of a group.
pub(crate) struct Call<'a> {
    pub(crate) group: &'a Group,
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) kind: Kind,
    pub(crate) root: Rank,
    pub(crate) options: &'a ReduceOptions,
}

/// A collective on vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Allgather,
    Allreduce,
    Broadcast,
    Gather,
    Reduce,
    ReduceScatter,
}

impl Kind {
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "allgather" => Self::Allgather,
            "allreduce" => Self::Allreduce,
            "broadcast" => Self::Broadcast,
            "gather" => Self::Gather,
            "reduce" => Self::Reduce,
            "reduce_scatter" => Self::ReduceScatter,
            _ => return None,
        })
    }

    /// Says if contributions are folded by an operation.
    pub(crate) fn folds(self) -> bool {
        matches!(self, Self::Allreduce | Self::Reduce | Self::ReduceScatter)
    }

    /// Says if contributions can be lent, and need no copy.
    pub(crate) fn lends(self) -> bool {
        !matches!(self, Self::Broadcast | Self::ReduceScatter)
    }

    /// The shape of a result.
    fn shape(self, shape: &[usize], ranks: usize) -> Vec<usize> {
        match (self, shape) {
            (Self::Allgather | Self::Gather, shape) => [&[ranks], shape].concat(),
            (Self::ReduceScatter, [first, rest @ ..]) if first.is_multiple_of(ranks) => {
                [&[first / ranks], rest].concat()
            }
            (Self::ReduceScatter, shape) => vec![shape.iter().product::<usize>() / ranks],
            (Self::Allreduce | Self::Broadcast | Self::Reduce, shape) => shape.to_vec(),
        }
    }
}

/// Longer contributions, in bytes, are copied once, into memory that is lent and used again. Lending costs system
/// calls, which short ones are not worth.
const LENT_BYTES_MIN: usize = 64 << 10;

impl Call<'_> {
    /// Begins it with the elements of a buffer. The operation is `None` if nothing is folded.
    pub(crate) fn begin<T: Element>(
        &self,
        buffer: &ObjectBuffer,
        operation: Option<Operation<Vec<T>>>,
    ) -> Result<Underway, ReduceError> {
        let element = buffer.element();
        let length = buffer.bytes() / size_of::<T>();
        let is_contributor = self.kind != Kind::Broadcast || self.root == self.shared.rank;
        if self.kind.lends() && buffer.bytes() >= LENT_BYTES_MIN {
            let mut lent = match self.shared.spare.take::<T>(length) {
                Some(lent) => lent,
                None => self.shared.buffer::<T>(length)?,
            };
            buffer.copy_to(&mut lent);
            let shared = Arc::clone(self.shared);
            let give_back = move |buffer| shared.spare.put(buffer);
            return Ok(self.begin_lent(lent, operation, element, buffer.shape(), give_back));
        }
        let mut vector: Vec<T> = bytemuck::allocation::zeroed_vec(length);
        if is_contributor {
            buffer.copy_to(&mut vector);
        }
        let (group, root, options) = (self.group, self.root, self.options);
        let reduction = match (self.kind, operation) {
            (Kind::Allreduce, Some(operation)) => group.allreduce(vector, operation, options),
            (Kind::Reduce, Some(operation)) => group.reduce(vector, operation, root, options),
            (Kind::ReduceScatter, Some(operation)) => group.reduce_scatter(vector, operation, options),
            (Kind::Broadcast, _) => group.broadcast(vector, root, options),
            (Kind::Gather, _) => group.gather(vector, root, options),
            _ => group.allgather(vector, options),
        };
        Ok(end(reduction?, element, self.shape(buffer.shape())))
    }

    /// Begins it with memory that is lent, and given back when the call has ended. The operation is `None` if nothing
    /// is folded.
    pub(crate) fn begin_lent<T: Element>(
        &self,
        lent: Buffer<T>,
        operation: Option<Operation<Vec<T>>>,
        element: ElementType,
        shape: &[usize],
        give_back: impl FnOnce(Buffer<T>) + Send + 'static,
    ) -> Underway {
        let (group, root, options) = (self.group, self.root, self.options);
        let reduction = match (self.kind, operation) {
            (Kind::Allreduce, Some(operation)) => group.allreduce_buffer(lent, operation, options),
            (Kind::Reduce, Some(operation)) => group.reduce_buffer(lent, operation, root, options),
            (Kind::Gather, _) => group.gather_buffer(lent, root, options),
            _ => group.allgather_buffer(lent, options),
        };
        let shape = self.shape(shape);
        Underway::new(reduction.waiter(), async move {
            let (outcome, buffer) = reduction.await;
            give_back(buffer);
            outcome.map(|outcome| ended(outcome, element, &shape))
        })
    }

    /// The shape of the result of contributions of a shape.
    fn shape(&self, shape: &[usize]) -> Vec<usize> {
        self.kind.shape(shape, self.group.ranks().len())
    }

    /// Begins an exact sum, which is rounded once, where it is wanted.
    pub(crate) fn begin_exact<T: Float>(&self, buffer: &ObjectBuffer) -> Result<Underway, ReduceError> {
        let element = buffer.element();
        let shape = self.shape(buffer.shape());
        let mut terms: Vec<T> = bytemuck::allocation::zeroed_vec(buffer.bytes() / size_of::<T>());
        buffer.copy_to(&mut terms);
        let terms = terms.into_iter().map(Into::into).collect();
        let (group, options) = (self.group, self.options);
        let reduction = match self.kind {
            Kind::Allreduce => group.allreduce(terms, ExactSum, options),
            Kind::ReduceScatter => group.reduce_scatter(terms, ExactSum, options),
            _ => group.reduce(terms, ExactSum, self.root, options),
        }?;
        Ok(Underway::new(reduction.waiter(), async move {
            let outcome = reduction.await?;
            let nearest = |sums: Vec<Accumulator>| -> Vec<T> { sums.iter().map(T::nearest).collect() };
            let outcome = Outcome {
                value: outcome.value.map(nearest),
                receipt: outcome.receipt,
                exposure: outcome.exposure,
            };
            Ok(ended(outcome, element, &shape))
        }))
    }

    /// Begins a reduction of whole vectors by a function.
    pub(crate) fn begin_with_function(
        &self,
        buffer: &ObjectBuffer,
        function: pyo3::Py<pyo3::PyAny>,
    ) -> Result<Underway, ReduceError> {
        let (element, shape) = (buffer.element(), buffer.shape().to_vec());
        let mut vector = vec![0_u8; buffer.bytes()];
        buffer.copy_to(&mut vector);
        let operation = object(Function {
            function,
            element,
            shape: shape.clone(),
        });
        let reduction = match self.kind {
            Kind::Allreduce => self.group.allreduce(vector, operation, self.options),
            _ => self.group.reduce(vector, operation, self.root, self.options),
        };
        Ok(end(reduction?, element, shape))
    }
}

/// A broadcast of bytes of which only the root knows the length.
pub(crate) fn end_of_bytes(reduction: Reduction<Vec<u8>>) -> Underway {
    Underway::new(reduction.waiter(), async move {
        let outcome = reduction.await?;
        let length = outcome.value.as_ref().map_or(0, Vec::len);
        Ok(ended(outcome, ElementType::U8, &[length]))
    })
}

/// A barrier, which has no value.
pub(crate) fn end_of_barrier(barrier: Barrier) -> Underway {
    Underway::new(barrier.waiter(), async move {
        Ok(Ended {
            memory: None,
            receipt: barrier.await?,
            exposure: None,
        })
    })
}

fn end<T: bytemuck::Pod + Send + Sync>(
    reduction: Reduction<Vec<T>>,
    element: ElementType,
    shape: Vec<usize>,
) -> Underway {
    Underway::new(reduction.waiter(), async move {
        reduction.await.map(|outcome| ended(outcome, element, &shape))
    })
}

fn ended<T: bytemuck::Pod + Send + Sync>(
    outcome: Outcome<Vec<T>>,
    element: ElementType,
    shape: &[usize],
) -> Ended {
    Ended {
        memory: outcome.value.map(|value| Memory::new(value, element, shape)),
        receipt: outcome.receipt,
        exposure: outcome.exposure,
    }
}
