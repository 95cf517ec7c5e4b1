//! A group of ranks that reduce together.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytemuck::Pod;
use ropewalk_membership::ProcessGroup;
use ropewalk_names::Rank;
use ropewalk_reduce_core::{Call, Member, Token};

use super::{
    buffer_reduction::BufferReduction,
    contribution::{ContributionMemory, SpareMemory},
    copies::WishedCopies,
    hold::Hold,
    job::{Shared, Wish},
    kind::Kind,
    lent_memory::LentMemory,
    reduction::{Completion, ReduceError, Reduction, Slot},
    session::{Begin, Originals},
    sites::Sites,
    table_calls::Offered,
};
use crate::{
    buffer::Buffer,
    ids::{GroupId, ReductionId, ReductionNumber},
    message::{Contribution, Introduction},
    operation::{Fold, Operation, Reducer},
    signature::{OnLoss, Order, RootFailure, Signature, cut},
    source::Sources,
};

/// A group of ranks of a job; cheap to clone.
#[derive(Clone, Debug)]
pub struct Group {
    job: Arc<Shared>,
    members: ProcessGroup,
    id: GroupId,
}

/// The losses that a contribution survives once a call has been made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protection {
    /// None: it is lost with this process.
    None,
    /// The loss of this process: the agent of the host has it too, when the call returns. Under a process manager that
    /// is not ours nobody has it.
    #[default]
    Process,
    /// The loss of this host too: so many ranks of other hosts copy in the background what the root has not merged.
    /// [`Reduction::wait_until_protected`] tells when they have. If one of them is lost another one is asked. Under a
    /// process manager that is not ours each rank counts as a host if all are on one.
    Hosts {
        /// The number of other hosts, at least one.
        copies: u32,
        /// The contribution counts only when the copies are stored: then the loss of a host never loses one that
        /// counts. It costs the time of a copy.
        acknowledged: bool,
    },
}

/// The choices of a call. All members must make the same, apart from the time-out and the protection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReduceOptions {
    /// The order of combination.
    pub order: Order,
    /// The answer to the loss of contributions with all their copies.
    pub on_loss: OnLoss,
    /// The answer to the loss of the root.
    pub on_root_loss: RootFailure,
    /// The losses that this rank's contribution survives.
    pub protection: Protection,
    /// The reduction fails on all members when the time of the first of them is over, counted from its call. Without
    /// one it waits for a late member as long as that lives.
    pub timeout: Option<Duration>,
    /// An identifier that is the same on all members and used once in a group. Without one, the members' calls
    /// belong together in the order in which each makes them, which takes calls from one thread.
    pub id: Option<u64>,
}

impl Group {
    pub(super) fn new(job: Arc<Shared>, members: ProcessGroup) -> Self {
        let id = GroupId::of(&members, job.roster.epoch);
        Self { job, members, id }
    }

    /// The rank of this process.
    pub(super) fn rank(&self) -> Rank {
        self.job.rank
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.job
    }

    pub(super) fn members(&self) -> &ProcessGroup {
        &self.members
    }

    pub(super) fn spare_memory(&self) -> &SpareMemory {
        &self.job.spare_memory
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
    /// 6.9.1, but asynchronous and exact under failures).
    ///
    /// Under `ropewalk run` the contribution is safe when this returns: from then on this rank may be killed and the
    /// result is still that of all members. (Under another process manager nobody keeps what a dead rank had, and
    /// above the agent's limit, half of the host's memory, neither does it.) If hundreds of calls come faster than the
    /// agent takes them, the call returns all the same, and the contribution waits until the agent has it:
    /// [`Reduction::is_protected`] says so. Several reductions may be under way at once.
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
        self.collect(data, reducer, Kind::Reduce(root), options)
    }

    /// Makes a call of any kind.
    pub(super) fn collect<V>(
        &self,
        data: V,
        reducer: impl Reducer<V>,
        kind: Kind,
        options: &ReduceOptions,
    ) -> Result<Reduction<V>, ReduceError> {
        let operation = reducer.into_operation();
        self.place()?;
        self.call(options, |id| {
            let encoded = operation.codec.encode(&data);
            let signature = self.signature(&operation, encoded.len() as u64, kind, options)?;
            let (completion, slot) = Completion::new(None);
            let contributes = kind.contributes(self.job.rank);
            let offered = Offered {
                id,
                signature: &signature,
                fold: &operation.fold,
                is_total: operation.is_total,
                is_block: false,
                is_lent: false,
                data: contributes.then_some(&encoded[..]),
                options,
            };
            let mut completion = match self.offer(&offered, completion)? {
                Ok(waiting) => {
                    drop(encoded);
                    waiting.lend(operation.codec.memory(data));
                    return Ok(Reduction::new(slot, operation.codec, &self.job).by(Some(waiting)));
                }
                Err(completion) => completion,
            };
            let memory = contributes.then(|| ContributionMemory::new(&self.job.spare_memory, &encoded));
            drop(encoded);
            if kind.is_for_all() || kind.root(&self.members) == self.job.rank {
                completion.lend(operation.codec.memory(data));
            }
            match memory {
                None => {
                    completion.settle(None);
                    let length = signature.length.unwrap_or_default();
                    let begin =
                        self.begin(id, signature, length, operation.fold, options.timeout, completion)?;
                    self.job.begin(begin);
                }
                Some(memory) => {
                    let memory = memory.map_err(ReduceError::Memory)?;
                    self.contribute(id, signature, memory, operation.fold, options, completion)?;
                }
            }
            Ok(Reduction::new(slot, operation.codec, &self.job))
        })
    }

    /// As [`reduce`](Self::reduce), without a copy of the data: the reduction takes the buffer, and gives it back with
    /// its content when it has ended, whether it worked or not. A loop over steps allocates once.
    ///
    /// Like the send buffer of `MPI_Ireduce`, the buffer must not be written meanwhile. Here nobody can: this rank has
    /// no access to it, and a stray write by an old pointer kills the process by SIGSEGV, so that the others still get
    /// the result of what was contributed.
    ///
    /// In a job on one host, up to 64 MiB are copied all the same, into memory that all ranks have: that takes less
    /// time.
    ///
    /// Errors of the call itself are returned by [`BufferReduction::get`] too, so that the buffer is not lost.
    ///
    /// # Examples
    /// ```
    /// use ropewalk_names::Rank;
    /// use ropewalk_reduce::{Job, ReduceOptions, Sum};
    ///
    /// let job = Job::from_env()?;
    /// let world = job.world();
    /// let mut gradient = job.buffer::<f64>(1000)?;
    /// for step in 0..3 {
    ///     gradient.fill(f64::from(step));
    ///     let reduction = world.reduce_buffer(gradient, Sum, Rank(0), &ReduceOptions::default());
    ///     // .. other work ..
    ///     let outcome;
    ///     (outcome, gradient) = reduction.get();
    ///     if let Some(sum) = outcome?.value {
    ///         println!("step {step}: {}", sum[0]);
    ///     }
    /// }
    /// job.finalize()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reduce_buffer<T: Pod>(
        &self,
        buffer: Buffer<T>,
        reducer: impl Reducer<Vec<T>>,
        root: Rank,
        options: &ReduceOptions,
    ) -> BufferReduction<T> {
        self.collect_buffer(buffer, reducer, Kind::Reduce(root), options)
    }

    /// Makes a call of any kind with a buffer.
    pub(super) fn collect_buffer<T: Pod>(
        &self,
        buffer: Buffer<T>,
        reducer: impl Reducer<Vec<T>>,
        kind: Kind,
        options: &ReduceOptions,
    ) -> BufferReduction<T> {
        let operation = reducer.into_operation();
        let (elements, bytes) = (buffer.len(), size_of_val(&*buffer));
        // To lend memory costs several system calls, and the agent has to be told at once when it comes back.
        let lent = match bytes as u64 <= Call::ENCLOSED_BYTES_MAX {
            true => Err(buffer),
            false => match buffer.lend() {
                Ok(memory) => Ok(memory),
                Err((buffer, error)) => {
                    let called = self.call(options, |_| Err(ReduceError::Memory(error)));
                    let slot = called.unwrap_or_else(Slot::failed);
                    let reduction = Reduction::new(slot, operation.codec, &self.job);
                    return BufferReduction::unlent(reduction, buffer);
                }
            },
        };
        let called = self.call(options, |id| {
            let signature = self.signature(&operation, bytes as u64, kind, options)?;
            if operation.element_size.is_none() {
                let operation = operation.name.clone();
                return Err(ReduceError::NotElementwise { operation });
            }
            let (memory, loan) = match &lent {
                Ok(memory) => {
                    let (lent, loan) = LentMemory::new(Arc::clone(memory), bytes);
                    (Ok(lent), Some(loan))
                }
                Err(buffer) => (Err(bytemuck::cast_slice(buffer)), None),
            };
            let (completion, slot) = Completion::new(loan);
            let offered = Offered {
                id,
                signature: &signature,
                fold: &operation.fold,
                is_total: operation.is_total,
                is_block: false,
                is_lent: memory.is_ok(),
                data: Some(memory.as_ref().map_or_else(|data| *data, AsRef::as_ref)),
                options,
            };
            let completion = match self.offer(&offered, completion)? {
                Ok(waiting) => return Ok((slot, Some(waiting))),
                Err(completion) => completion,
            };
            let memory = match memory {
                Ok(lent) => ContributionMemory::Lent(lent),
                Err(data) => {
                    ContributionMemory::new(&self.job.spare_memory, data).map_err(ReduceError::Memory)?
                }
            };
            let fold = operation.fold.clone();
            self.contribute(id, signature, memory, fold, options, completion)?;
            Ok((slot, None))
        });
        let (slot, waiting) = called.unwrap_or_else(|error| (Slot::failed(error), None));
        let reduction = Reduction::new(slot, operation.codec, &self.job).by(waiting);
        match lent {
            Ok(memory) => BufferReduction::lent(reduction, memory, elements),
            Err(buffer) => BufferReduction::unlent(reduction, buffer),
        }
    }

    /// Protects a contribution, and leaves it to the progress thread.
    pub(super) fn contribute(
        &self,
        id: ReductionId,
        signature: Signature,
        mut memory: ContributionMemory,
        fold: Fold,
        options: &ReduceOptions,
        completion: Completion,
    ) -> Result<(), ReduceError> {
        self.job.check_goes_on()?;
        let length = memory.length() as u64;
        let first = signature.begin_of(self.place()?);
        let contribution = Contribution {
            session: id.session(),
            members: self.members_if_not_all(),
            signature: signature.clone(),
            member: self.place()?,
            token: draw_token()?,
            length,
        };
        let wished = self.wished_copies(options.protection)?;
        let mut begin = self.begin(id, signature, length, fold, options.timeout, completion)?;
        let hold = match options.protection {
            Protection::None => None,
            _ => self.protect(&mut memory, &contribution)?,
        };
        let (token, bytes) = (contribution.token, memory.into_bytes());
        match wished {
            None if matches!(hold, Some(Hold::Waits(_))) => {}
            None => begin.completion.settle(hold.as_ref().map(|_| Duration::ZERO)),
            Some((count, is_acknowledged)) => {
                begin.copies = Some(WishedCopies {
                    contribution,
                    bytes: bytes.clone(),
                    count,
                    is_acknowledged,
                });
            }
        }
        begin.originals = Originals::Own {
            token,
            bytes,
            begin: first,
            hold,
        };
        self.job.begin(begin);
        self.job.tracer.mark_contribution();
        Ok(())
    }

    /// Reduces contributions that several ranks can read, in the order of their numbers: the result has the bits of a
    /// serial loop over all of them, however many ranks there are, and whatever died on the way. `root` gets it.
    ///
    /// Every rank of the group calls, with the sources that it can read; [`Sources::from_fn`] makes them of vectors
    /// that each rank can compute. Each contribution is read by one of the ranks that hold it, and by another one if
    /// that dies: a rank that is lost costs time only, also before it has called. With [`RootFailure::MoveToLowest`]
    /// the root may be lost too. `order` and `on_loss` of the options are of no account: the loss of all ranks that
    /// can read a contribution is an error. Memory for one result is needed, and up to as much for what is on its way.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce), and [`ReduceError::Sources`] if the sources make no sense.
    ///
    /// # Examples
    /// ```
    /// use std::{collections::BTreeMap, io, sync::Arc};
    /// use ropewalk_names::Rank;
    /// use ropewalk_reduce::{Job, ReduceOptions, Source, Sources, Sum};
    ///
    /// /// Bytes that are all alike.
    /// struct Constant(u8);
    ///
    /// impl Source for Constant {
    ///     fn read(&self, _offset: u64, into: &mut [u8]) -> io::Result<()> {
    ///         into.fill(self.0);
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let job = Job::from_env()?;
    /// let held = (0..3_u32).map(|member| (member, Arc::new(Constant(member as u8)) as Arc<dyn Source>));
    /// let sources = Sources { members: 3, bytes: 1_000, held: held.collect() };
    /// let reduction = job.world().reduce_sources::<u8>(sources, Sum, Rank(0), &ReduceOptions::default())?;
    /// if let Some(sum) = reduction.get()?.value {
    ///     assert_eq!(sum, vec![3; 1_000]);
    /// }
    /// job.finalize()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reduce_sources<T>(
        &self,
        sources: Sources,
        reducer: impl Reducer<Vec<T>>,
        root: Rank,
        options: &ReduceOptions,
    ) -> Result<Reduction<Vec<T>>, ReduceError> {
        let options = ReduceOptions {
            order: Order::Ordered,
            on_loss: OnLoss::Fail,
            ..options.clone()
        };
        let operation = reducer.into_operation();
        self.call(&options, |id| {
            let size = operation.element_size.map_or(0, |size| u64::from(size.get()));
            if !sources.is_valid() || !sources.bytes.is_multiple_of(size) {
                let Sources { members, bytes, .. } = sources;
                return Err(ReduceError::Sources { members, bytes });
            }
            let kind = Kind::ReduceSources(sources.members, root);
            let signature = self.signature(&operation, sources.bytes, kind, &options)?;
            let held = sources.held.into_iter();
            let held = held.map(|(member, source)| (Member(member), source));
            let (completion, slot) = Completion::new(None);
            let (length, timeout) = (sources.bytes, options.timeout);
            let begin = Begin {
                originals: Originals::Shared(held.collect()),
                ..self.begin(id, signature, length, operation.fold, timeout, completion)?
            };
            self.job.begin(begin);
            Ok(Reduction::new(slot, operation.codec, &self.job))
        })
    }

    /// Makes a call of the group. If it goes wrong here, the others are told: they have called, or will, and must not
    /// wait for what will not come.
    pub(super) fn call<R>(
        &self,
        options: &ReduceOptions,
        make: impl FnOnce(ReductionId) -> Result<R, ReduceError>,
    ) -> Result<R, ReduceError> {
        let place = self.place()?;
        let id = ReductionId {
            group: self.id,
            number: self.next_number(options),
        };
        let made = make(id);
        self.note_call(id, made.is_ok());
        made.inspect_err(|error| {
            // If the others cannot be told, they hear of it when this process ends, which must not wait for them.
            self.job.set_failed(true);
            self.job.wish(Wish::Withdraw {
                session: id.session(),
                member: place,
                members: self.members_if_not_all(),
                message: error.to_string(),
            });
        })
    }

    /// This rank's place in the group.
    pub(super) fn place(&self) -> Result<Member, ReduceError> {
        let rank = self.job.rank;
        let index = self.members.index_of(rank);
        let index = index.ok_or(ReduceError::NotMember { rank })?;
        Ok(Member(index as u32))
    }

    pub(super) fn signature<V>(
        &self,
        operation: &Operation<V>,
        length: u64,
        kind: Kind,
        options: &ReduceOptions,
    ) -> Result<Signature, ReduceError> {
        let root = kind.root(&self.members);
        let contributions = kind
            .contributions(&self.members)
            .filter(|_| self.members.contains(root));
        let contributions = contributions.ok_or(ReduceError::RootNotMember { root })?;
        let on_root_loss = match kind.is_for_all() {
            true => RootFailure::MoveToLowest,
            false => options.on_root_loss,
        };
        Ok(Signature {
            operation: cut(operation.name.clone(), Signature::NAME_LENGTH_MAX),
            element: cut(operation.element.clone(), Signature::NAME_LENGTH_MAX),
            element_size: operation.element_size,
            length: operation.element_size.is_some().then_some(length),
            contributions,
            root,
            is_spread: kind.is_for_all(),
            order: options.order,
            on_loss: options.on_loss,
            on_root_loss,
        })
    }

    /// A call for the progress thread with contributions of so many bytes, still without originals.
    pub(super) fn begin(
        &self,
        id: ReductionId,
        signature: Signature,
        length: u64,
        fold: Fold,
        timeout: Option<Duration>,
        completion: Completion,
    ) -> Result<Begin, ReduceError> {
        let call = signature.call(&self.members);
        let blocks = signature.contributions.blocks(self.members.len());
        Ok(Begin {
            id,
            members: self.members.clone(),
            call: call.ok_or(ReduceError::NextRootNotMember)?,
            place: self.place()?,
            introduction: Introduction {
                session: id.session(),
                members: self.members_if_not_all(),
                signature: Some(signature),
            },
            originals: Originals::Shared(BTreeMap::new()),
            length: length * u64::from(blocks),
            fold,
            timeout,
            copies: None,
            completion,
        })
    }

    /// The number of copies on other hosts, and if they are waited for.
    pub(super) fn wished_copies(&self, protection: Protection) -> Result<Option<(u32, bool)>, ReduceError> {
        let Protection::Hosts { copies, acknowledged } = protection else {
            return Ok(None);
        };
        let hosts = self.job.hosts;
        match (1..hosts as u64).contains(&u64::from(copies)) && self.job.size <= Sites::COPIES_SIZE_MAX {
            true => Ok(Some((copies, acknowledged))),
            false => Err(ReduceError::NoHostForCopies { copies, hosts }),
        }
    }

    pub(super) fn members_if_not_all(&self) -> Option<ProcessGroup> {
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

    /// Offers a contribution to the agent, if there is one.
    pub(super) fn protect(
        &self,
        memory: &mut ContributionMemory,
        contribution: &Contribution,
    ) -> Result<Option<Hold>, ReduceError> {
        let Some(link) = &self.job.link else {
            return Ok(None);
        };
        Hold::offer(link, || self.job.next_hold(), contribution, memory).map(Some)
    }
}

fn draw_token() -> Result<Token, ReduceError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| ReduceError::Memory(std::io::Error::other(error)))?;
    Ok(Token(u128::from_le_bytes(bytes)))
}
