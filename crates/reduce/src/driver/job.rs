//! A process's membership in its job.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    os::fd::AsFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use bytemuck::Pod;
use bytes::Bytes;
use ropewalk_fabric::{AgentLink, CallTable, HoldId, SpanKind, TraceEvent, Waker};
use ropewalk_membership::ProcessGroup;
use ropewalk_names::{Incarnation, Rank};
use ropewalk_pmi_client::{Client, ClientError};
use ropewalk_reduce_core::{Member, Session};
use thiserror::Error;

use super::{
    bootstrap::{BootstrapError, bootstrap},
    contribution::SpareMemory,
    group::Group,
    inbox::Inbox,
    progress::ProgressThread,
    reduction::ReduceError,
    roster::{Card, Roster},
    session::Begin,
    table_calls::{TableCalls, Tables},
    trace::{Tracer, now_ns},
    turns::{Turns, sleep},
};
use crate::{buffer::Buffer, ids::GroupId, outcome::ReductionError};

/// This process's membership in its job.
///
/// A thread of its own moves the data and combines it, so that reductions go on while the program computes, and
/// other ranks are served whatever the program does.
///
/// End it with [`finalize`](Self::finalize), as MPI has it. A job that is dropped without, for instance on the way
/// out with an error, waits for nobody: this rank then counts as lost once its process is gone.
#[derive(Debug)]
pub struct Job {
    shared: Arc<Shared>,
    pmi: Option<Client>,
    thread: Option<JoinHandle<()>>,
    /// This process was admitted with these ranks, and its program does not know it yet.
    own_admission: Option<Vec<Rank>>,
    incarnation: Incarnation,
    /// The ranks that agree on who is admitted: those of the epoch that were not lost when they did so last.
    living: Option<Group>,
}

/// The state that the program's threads and the progress thread share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) rank: Rank,
    pub(super) size: u32,
    /// Hosts of the job.
    pub(super) hosts: usize,
    /// Who belongs to the job.
    pub(super) roster: Roster,
    /// The ranks that have come back and are not admitted yet.
    pub(super) visitors: Mutex<BTreeMap<Rank, Card>>,
    pub(super) link: Option<Arc<AgentLink>>,
    pub(super) tracer: Tracer,
    waker: Waker,
    /// Who drives the machines.
    pub(super) turns: Arc<Turns<ProgressThread>>,
    /// The wishes that the progress thread has not seen yet.
    inbox: Inbox<Wish>,
    calls: Mutex<BTreeMap<GroupId, u64>>,
    holds: Arc<AtomicU64>,
    pub(super) spare_memory: SpareMemory,
    standing: Standing,
    /// The tables of the ranks of this host.
    pub(super) tables: Option<Tables>,
}

/// How this rank stands to the others.
#[derive(Debug, Default)]
struct Standing {
    /// The last reduction that ended here brought an error, or none can be done any more.
    has_failed: AtomicBool,
    /// All ranks have wanted to leave: nobody waits for anything of another.
    all_have_left: AtomicBool,
}

/// A wish of the program.
#[derive(Debug)]
pub(super) enum Wish {
    /// Contribute.
    Begin(Box<Begin>),
    /// Tell the others that this rank's contribution to a reduction will not come.
    Withdraw {
        session: Session,
        member: Member,
        members: Option<ProcessGroup>,
        message: String,
    },
    /// End the reductions that were cancelled.
    Cancel,
    /// Tell the agent that it need not hold this memory any more.
    Release(HoldId, Bytes),
    /// Leave the job when all others want to leave too, and then say so.
    Leave(mpsc::Sender<()>),
    /// Admit nobody any more: the job is left.
    CloseDoor,
    /// Enter the next epoch when all members are ready for it, and then say so.
    Enter {
        next: Arc<Shared>,
        done: mpsc::Sender<Result<(), ReductionError>>,
    },
}

impl Job {
    /// Joins the job that this process was started for: by `ropewalk run`, or by any process manager that
    /// speaks PMI-1 or PMI-2; without one the process is a job of its own. Call it once in a process.
    ///
    /// Under a process manager that is not ours a majority of the ranks agrees on who is lost. It must be told not to
    /// end the others then, as by `mpiexec.hydra -disable-auto-cleanup` or `srun --kill-on-bad-exit=0`. Hydra's notice
    /// of a lost rank, SIGUSR1, is ignored if the program has no handler for it. On several hosts the ranks meet in the
    /// first network that all share; the variable `ROPEWALK_INTERFACE` names another interface.
    ///
    /// The variable `ROPEWALK_TRANSPORTS`, which has to be the same for all ranks, says by which ways they reach each
    /// other: `tcp`, `shm`, both with a comma between them, which is the default, `unix` for ranks of one host that
    /// share nothing, or `ofi:PROVIDER` with a provider of libfabric, by which however the memory of ranks that are
    /// gone cannot be reached.
    ///
    /// # Errors
    /// If the environment is malformed, a rank or the process manager does not do its part, or another launcher has
    /// started several processes without PMI (`mpirun` of Open MPI, `srun` without `--mpi=pmi2`, `torchrun`).
    pub fn from_env() -> Result<Self, BootstrapError> {
        let joined = bootstrap()?;
        let engine = joined.engine;
        let incarnation = engine.identity().incarnation;
        let epoch = joined.roster.epoch;
        let tables = joined
            .calls
            .map(|(table, hosts)| Tables::new(TableCalls::new(table, epoch, joined.rank, &hosts), epoch));
        let turns = Arc::new(Turns::new().map_err(BootstrapError::Thread)?);
        let shared = Arc::new(Shared {
            rank: joined.rank,
            size: joined.roster.hosts.len() as u32,
            hosts: joined.roster.hosts.iter().collect::<BTreeSet<_>>().len(),
            roster: joined.roster,
            visitors: Mutex::default(),
            tracer: Tracer::new(joined.link.clone()),
            spare_memory: SpareMemory::new(joined.link.clone()),
            link: joined.link,
            waker: engine.waker(),
            turns: Arc::clone(&turns),
            inbox: Inbox::new(WISHES_MAX),
            calls: Mutex::default(),
            holds: Arc::default(),
            standing: Standing::default(),
            tables,
        });
        let descriptor = engine.as_fd().try_clone_to_owned();
        let descriptor = descriptor.map_err(BootstrapError::Thread)?;
        let link = shared.link.clone();
        let progress = ProgressThread::new(Arc::clone(&shared), engine, joined.arrivals);
        let thread = thread::Builder::new()
            .name("ropewalk-progress".into())
            .spawn(move || {
                let engine = descriptor.as_fd();
                turns.run(progress, |idle, sleeper| {
                    sleep(idle, &[engine, sleeper], link.as_deref());
                });
            });
        let thread = thread.map_err(BootstrapError::Thread)?;
        let admitted = shared.roster.admitted.clone();
        Ok(Self {
            shared,
            pmi: joined.pmi,
            thread: Some(thread),
            own_admission: Some(admitted).filter(|admitted| !admitted.is_empty()),
            incarnation,
            living: None,
        })
    }

    /// The number of this process, from 0.
    pub fn rank(&self) -> Rank {
        self.shared.rank
    }

    /// How many processes the job was started with.
    pub fn size(&self) -> u32 {
        self.shared.size
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The ranks with which this one was admitted, once.
    pub(super) fn take_own_admission(&mut self) -> Option<Vec<Rank>> {
        self.own_admission.take()
    }

    pub(super) fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The job is in another epoch.
    pub(super) fn go_on_with(&mut self, next: Arc<Shared>) {
        self.shared = next;
        self.living = None;
    }

    /// The ranks of the epoch without those that are known to all as lost.
    pub(super) fn living(&mut self) -> Result<&mut Group, ReduceError> {
        let living = match self.living.take() {
            Some(living) => living,
            None => self.world().without(&self.lost())?,
        };
        Ok(self.living.insert(living))
    }

    /// The group of all ranks.
    pub fn world(&self) -> Group {
        Group::new(Arc::clone(&self.shared), ProcessGroup::world(self.shared.size))
    }

    /// Memory for `length` zero elements, of which reductions need no copy: [`Group::reduce_buffer`] takes it and gives
    /// it back.
    ///
    /// # Errors
    /// [`ReduceError::Memory`] if the system is out of descriptors or address space, or the process may not have as
    /// much.
    ///
    /// # Panics
    /// If `T` has no size, or is aligned more strictly than a page.
    pub fn buffer<T: Pod>(&self, length: usize) -> Result<Buffer<T>, ReduceError> {
        Buffer::zeroed(length).map_err(ReduceError::Memory)
    }

    /// Tells whoever watches the job how far a part of the work is.
    pub fn progress(&self, label: &str, done: u64, total: u64) {
        self.shared.tracer.progress(label, done, total);
    }

    /// Tells whoever watches the job what this rank did from `start_ns` to `end_ns` of [`now_ns`](Self::now_ns).
    pub fn span(&self, kind: SpanKind, label: impl Into<String>, start_ns: u64, end_ns: u64) {
        self.shared.tracer.send(TraceEvent::Span {
            kind,
            label: label.into(),
            start_ns,
            end_ns,
        });
    }

    /// Tells whoever watches the job that something happens now.
    pub fn mark(&self, label: &str) {
        self.shared.tracer.mark(label);
    }

    /// The time that spans are measured in: nanoseconds of the host's `CLOCK_MONOTONIC`.
    pub fn now_ns(&self) -> u64 {
        now_ns()
    }

    /// Leaves the job, after all other ranks that live want to leave too. Reductions that are not done by then
    /// fail. If the last reduction of this rank brought an error the others have ten seconds: some may wait for what
    /// never comes, and go on when this rank is gone.
    ///
    /// # Errors
    /// If the process manager does not answer, or says that a rank is gone that was waited for, or the others did not
    /// come in time. Under a process manager that is not ours the ranks wait for each other by themselves, and not for
    /// lost ones.
    pub fn finalize(mut self) -> Result<(), LeaveError> {
        let Some(pmi) = self.pmi.take() else {
            return Ok(());
        };
        // The others may need this rank, and above all the scheduler, until they are done.
        let patience = match self.shared.has_failed() {
            true => LEAVE_PATIENCE_AFTER_ERROR,
            false => LEAVE_PATIENCE,
        };
        let left = match self.shared.link {
            Some(_) => {
                self.shared.wish(Wish::CloseDoor);
                pmi.set_timeout(patience);
                self.leave_by_fence(&pmi).map_err(LeaveError::from)
            }
            // A process manager that is not ours may wait for ever for a rank that is gone.
            None => {
                pmi.set_timeout(LEAVE_PATIENCE_AFTER_ERROR);
                self.leave_with_the_others(patience)
            }
        };
        self.stop();
        left.and(pmi.finalize().map_err(LeaveError::from))
    }

    fn leave_by_fence(&self, pmi: &Client) -> Result<(), ClientError> {
        // One that is lost later would otherwise come back to nobody, and take the others for lost.
        if !self.shared.has_failed() {
            pmi.put(KEY_OF_END, "1")?;
        }
        fence_of_all(pmi)?;
        self.shared.standing.all_have_left.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Waits until all ranks that live want to leave.
    fn leave_with_the_others(&self, patience: Duration) -> Result<(), LeaveError> {
        // One message at most.
        let (done, all_leave) = mpsc::channel();
        self.shared.wish(Wish::Leave(done));
        match all_leave.recv_timeout(patience) {
            // Without a sender there are no others, or the progress thread has ended.
            Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => Ok(()),
            Err(mpsc::RecvTimeoutError::Timeout) => Err(LeaveError::Others { waited: patience }),
        }
    }

    fn stop(&mut self) {
        self.shared.close();
        if let Some(thread) = self.thread.take() {
            // If it panicked, every waiting reduction was told so.
            let _ = thread.join();
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// The state of the same process in another epoch, with the table of its host.
    pub(super) fn in_epoch(&self, roster: Roster, table: Option<CallTable>) -> Self {
        let epoch = roster.epoch;
        let tables =
            table.map(|table| Tables::new(TableCalls::new(table, epoch, self.rank, &roster.hosts), epoch));
        Self {
            rank: self.rank,
            size: self.size,
            hosts: self.hosts,
            roster,
            // Those who knock are heard again in the new epoch.
            visitors: Mutex::default(),
            tracer: self.tracer.clone(),
            link: self.link.clone(),
            waker: self.waker.clone(),
            turns: Arc::clone(&self.turns),
            inbox: Inbox::new(WISHES_MAX),
            calls: Mutex::default(),
            holds: Arc::clone(&self.holds),
            spare_memory: self.spare_memory.clone(),
            standing: Standing {
                has_failed: AtomicBool::new(self.has_failed()),
                ..Standing::default()
            },
            tables,
        }
    }

    /// Leaves a wish for the progress thread, as soon as there is room; one that comes too late ends at once.
    pub(super) fn wish(&self, wish: Wish) {
        self.inbox.put(wish);
        self.wake();
    }

    /// Has a reduction begin. Of a short one this thread does what there is to do, if nobody drives the machines: that
    /// takes less time than to wake who does.
    pub(super) fn begin(&self, begin: Begin) {
        let is_short = begin.length <= DRIVEN_BYTES_MAX;
        if is_short {
            begin.completion.let_caller_drive();
        }
        self.inbox.put(Wish::Begin(Box::new(begin)));
        if !(is_short && self.turns.take_turn()) {
            self.wake();
        }
    }

    /// Takes what the program left; `None` once it wants no more.
    pub(super) fn take_wishes(&self) -> Option<VecDeque<Wish>> {
        self.inbox.take()
    }

    /// Has the progress thread look at the world.
    pub(super) fn wake(&self) {
        self.waker.wake();
        self.turns.call_thread();
    }

    /// Has whoever drives look at the world, if that sleeps.
    pub(super) fn wake_machines(&self) {
        self.waker.wake();
    }

    /// Nobody takes wishes for now.
    pub(super) fn rest(&self) {
        self.inbox.rest();
    }

    /// Takes no more wishes.
    pub(super) fn close(&self) {
        self.inbox.close();
        if let Some(tables) = &self.tables {
            tables.abandon();
        }
        self.wake();
    }

    /// An error if nothing is reduced any more: the job is left, or another epoch has begun. The agent would keep a
    /// contribution for nobody.
    pub(super) fn check_goes_on(&self) -> Result<(), ReduceError> {
        match self.inbox.is_closed() {
            true => Err(ReduceError::JobEnded),
            false => Ok(()),
        }
    }

    /// Takes note of how the last reduction ended.
    pub(super) fn set_failed(&self, has_failed: bool) {
        self.standing.has_failed.store(has_failed, Ordering::Relaxed);
    }

    fn has_failed(&self) -> bool {
        self.standing.has_failed.load(Ordering::Relaxed)
    }

    /// Says if nobody waits for anything that this rank has not sent yet.
    pub(super) fn all_have_left(&self) -> bool {
        self.standing.all_have_left.load(Ordering::Relaxed)
    }

    pub(super) fn next_call(&self, group: GroupId) -> u64 {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let next = calls.entry(group).or_default();
        let call = *next;
        *next += 1;
        call
    }

    pub(super) fn next_hold(&self) -> HoldId {
        HoldId(self.holds.fetch_add(1, Ordering::Relaxed))
    }
}

/// Waits until all ranks are here that live, or have come back and hear that the job is over.
pub(super) fn fence_of_all(pmi: &Client) -> Result<(), ClientError> {
    let mut refused_since = None;
    loop {
        let begun = Instant::now();
        let fenced = pmi.fence();
        let now = Instant::now();
        let is_refused = matches!(fenced, Err(ClientError::Refused { .. }));
        if now - begun > FENCE_AGAIN {
            // All were there that live, and another one was lost.
            refused_since = None;
        }
        if !is_refused || now - *refused_since.get_or_insert(now) > RETURN_PATIENCE {
            return fenced;
        }
        // A rank is gone that is being started again.
        thread::sleep(FENCE_AGAIN);
    }
}

/// The reason for which a job was not left together with all others.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LeaveError {
    /// The other ranks do not want to leave yet.
    #[error("other ranks of the job did not leave it within {waited:?}")]
    Others {
        /// The time that they had.
        waited: Duration,
    },
    /// The process manager failed, or says that a rank is gone.
    #[error(transparent)]
    ProcessManager(#[from] ClientError),
}

/// So many wishes may wait for the progress thread, which takes all of them in each of its rounds; a call beyond waits
/// for the next round. No program gets that far between two rounds unless one takes long, as by a slow operation.
const WISHES_MAX: usize = 1024;
/// The largest contributions whose callers drive the machines, in bytes.
const DRIVEN_BYTES_MAX: u64 = 64 << 10;
/// Under this key it is said that all ranks that live have done their work.
pub(super) const KEY_OF_END: &str = "ropewalk-over";
/// A rank is started again after ten seconds at most, unless the job ends, and joins within as long.
const RETURN_PATIENCE: Duration = Duration::from_secs(30);
/// So long after a fence that failed it is tried again.
const FENCE_AGAIN: Duration = Duration::from_millis(50);
/// How long to wait for the other ranks to want to leave. The agent sees those that die; this is for a process
/// manager that does not.
pub(super) const LEAVE_PATIENCE: Duration = Duration::from_secs(24 * 3600);
/// The same after an error, when others may wait for ever for what this rank does not know.
const LEAVE_PATIENCE_AFTER_ERROR: Duration = Duration::from_secs(10);
