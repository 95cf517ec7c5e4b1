//! A group of ranks that reduce together.

use std::{sync::Arc, time::Duration};

use ropewalk_fabric::HoldId;
use ropewalk_membership::ProcessGroup;
use ropewalk_names::Rank;
use ropewalk_reduce_core::{Member, Token};

use super::{
    contribution::ContributionMemory,
    job::{Shared, Wish},
    reduction::{Completion, ReduceError, Reduction},
    session::Begin,
};
use crate::{
    ids::{GroupId, ReductionId, ReductionNumber},
    message::Contribution,
    operation::{Operation, Reducer},
    signature::{OnLoss, Order, RootFailure, Signature, cut},
};

/// A group of ranks of a job; cheap to clone.
#[derive(Clone, Debug)]
pub struct Group {
    job: Arc<Shared>,
    members: ProcessGroup,
    id: GroupId,
}

/// The choices of a call. All members must make the same, apart from the time-out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReduceOptions {
    /// The order of combination.
    pub order: Order,
    /// The answer to the loss of contributions with all their copies.
    pub on_loss: OnLoss,
    /// The answer to the loss of the root.
    pub on_root_loss: RootFailure,
    /// The reduction fails on all members when the time of the first of them is over, counted from its call. Without
    /// one it waits for a late member as long as that lives.
    pub timeout: Option<Duration>,
    /// An identifier that is the same on all members and used once in a group. Without one, the members' calls
    /// belong together in the order in which each makes them, which takes calls from one thread.
    pub id: Option<u64>,
}

impl Group {
    pub(super) fn new(job: Arc<Shared>, members: ProcessGroup) -> Self {
        let id = GroupId::of(&members);
        Self { job, members, id }
    }

    /// The ranks of the group, in order.
    pub fn ranks(&self) -> &[Rank] {
        self.members.ranks()
    }

    /// A group of some ranks of this one. Nothing is sent; every member has to name the same ranks in the same
    /// order. Equal groups share one sequence of calls.
    ///
    /// # Errors
    /// If a rank stands twice or is not in this group, or there is none.
    pub fn subgroup(&self, ranks: &[Rank]) -> Result<Self, ReduceError> {
        if let Some(&rank) = ranks.iter().find(|&&rank| !self.members.contains(rank)) {
            return Err(ReduceError::NotMember { rank });
        }
        Ok(Self::new(Arc::clone(&self.job), ProcessGroup::new(ranks)?))
    }

    /// Contributes `data` to a reduction of this group, whose result `root` gets (MPI standard 4.0, section
    /// 5.9.1, but asynchronous and exact under failures).
    ///
    /// Under `ropewalk run` the contribution is safe when this returns: from then on this rank may be killed and the
    /// result is still that of all members. (Under another process manager nobody keeps what a dead rank had, and
    /// above the agent's limit, half of the host's memory, neither does it.) Several reductions may be under way at
    /// once.
    ///
    /// # Errors
    /// If the call itself is wrong or there is no memory; the other members then get
    /// [`ReductionError::Withdrawn`](crate::ReductionError::Withdrawn). What goes wrong later is told by the
    /// [`Reduction`].
    ///
    /// # Examples
    /// ```
    /// use ropewalk_names::Rank;
    /// use ropewalk_reduce::{Job, ReduceOptions, Sum};
    ///
    /// let job = Job::from_env()?;
    /// let mine = vec![f64::from(job.rank().0); 1000];
    /// let reduction = job.world().reduce(mine, Sum, Rank(0), &ReduceOptions::default())?;
    /// // .. other work ..
    /// let outcome = reduction.get()?;
    /// if let Some(sum) = outcome.value {
    ///     println!("{} from {} ranks", sum[0], outcome.receipt.contributions);
    /// }
    /// job.finalize()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reduce<V>(
        &self,
        data: V,
        reducer: impl Reducer<V>,
        root: Rank,
        options: &ReduceOptions,
    ) -> Result<Reduction<V>, ReduceError> {
        let rank = self.job.rank;
        let index = self
            .members
            .index_of(rank)
            .ok_or(ReduceError::NotMember { rank })?;
        let id = ReductionId {
            group: self.id,
            number: self.next_number(options),
        };
        let contributed = self.contribute(index as u32, id, data, reducer.into_operation(), root, options);
        if let Err(error) = &contributed {
            // The others have called, or will; they must not wait for what will not come. If they cannot be told, they
            // hear of it when this process ends, for which it must not wait for them.
            self.job.set_failed(true);
            self.job.wish(Wish::Withdraw {
                session: id.session(),
                member: Member(index as u32),
                members: self.members_if_not_all(),
                message: error.to_string(),
            });
        }
        contributed
    }

    fn contribute<V>(
        &self,
        index: u32,
        id: ReductionId,
        data: V,
        operation: Operation<V>,
        root: Rank,
        options: &ReduceOptions,
    ) -> Result<Reduction<V>, ReduceError> {
        if !self.members.contains(root) {
            return Err(ReduceError::RootNotMember { root });
        }
        let encoded = operation.codec.encode(&data);
        let length = encoded.len() as u64;
        let signature = Signature {
            operation: cut(operation.name, Signature::NAME_LENGTH_MAX),
            element: cut(operation.element, Signature::NAME_LENGTH_MAX),
            element_size: operation.element_size,
            length: operation.element_size.is_some().then_some(length),
            root,
            order: options.order,
            on_loss: options.on_loss,
            on_root_loss: options.on_root_loss,
        };
        let call = signature.call(&self.members);
        let call = call.ok_or(ReduceError::NextRootNotMember)?;
        let contribution = Contribution {
            session: id.session(),
            members: self.members_if_not_all(),
            signature,
            member: Member(index),
            token: draw_token()?,
            length,
        };
        let memory =
            ContributionMemory::new(&self.job.spare_memory, &encoded).map_err(ReduceError::Memory)?;
        let hold = self.protect(&memory, &contribution)?;
        self.job.tracer.mark("contributed");
        let (completion, slot) = Completion::new();
        let bytes = memory.into_bytes();
        let begin = Begin {
            id,
            members: self.members.clone(),
            call,
            contribution,
            original: bytes,
            hold,
            fold: operation.fold,
            timeout: options.timeout,
            completion,
        };
        self.job.wish(Wish::Begin(Box::new(begin)));
        Ok(Reduction::new(slot, operation.codec, self.job.rank))
    }

    fn members_if_not_all(&self) -> Option<ProcessGroup> {
        (!self.is_world()).then(|| self.members.clone())
    }

    fn is_world(&self) -> bool {
        self.members.len() == self.job.size as usize
            && self
                .members
                .ranks()
                .iter()
                .zip(0..)
                .all(|(rank, at)| rank.0 == at)
    }

    fn next_number(&self, options: &ReduceOptions) -> ReductionNumber {
        match options.id {
            Some(id) => ReductionNumber::Named(id),
            None => ReductionNumber::Call(self.job.next_call(self.id)),
        }
    }

    fn protect(
        &self,
        memory: &ContributionMemory,
        contribution: &Contribution,
    ) -> Result<Option<HoldId>, ReduceError> {
        let Some(link) = &self.job.link else {
            return Ok(None);
        };
        let id = self.job.next_hold();
        memory
            .protect(link, id, contribution)
            .map_err(ReduceError::Protection)?;
        Ok(Some(id))
    }
}

fn draw_token() -> Result<Token, ReduceError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| ReduceError::Memory(std::io::Error::other(error)))?;
    Ok(Token(u128::from_le_bytes(bytes)))
}
