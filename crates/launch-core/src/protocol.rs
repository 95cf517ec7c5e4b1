//! The messages between the nodes of a job's tree: [`Up`] towards the launcher, [`Down`] away from it, in batches,
//! as postcard in the messages of a fabric.

mod octets;
mod plan;

use ropewalk_membership::{Cause, Departure};
use ropewalk_names::{Held, HostId, Incarnation, Rank, RegionHandle, TraceEvent};
use ropewalk_pmi as pmi;
use serde::{Deserialize, Serialize};

use crate::{
    event::OutputStream, group_plan::GroupPlan, pmix::ModexAsker, tree::NodeId, verdict::MemoryShortage,
};
pub use plan::{Plan, PlannedEnvironment, PlannedPmi, PlannedReactions, Start};

/// The largest bootstrap, in bytes: environment and hosts of the largest job fit.
pub const BOOTSTRAP_SIZE_MAX: usize = 16 << 20;
/// How many bytes of input may be under way to the ranks.
pub const STDIN_WINDOW: usize = 1 << 20;
/// How many bytes of output may be under way over one link of the tree, or wait in one agent for their own ranks.
pub const OUTPUT_WINDOW: usize = 4 << 20;
/// The tags of the messages between nodes.
pub const TAG_UP: u64 = 1;
/// See [`TAG_UP`].
pub const TAG_DOWN: u64 = 2;

/// Something about one host, on its way to the launcher.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Up {
    /// The host.
    pub host: HostId,
    /// In jobs in which agents are adopted, if it must neither be lost nor doubled.
    pub(crate) stamp: Option<Stamp>,
    /// The news.
    pub report: Report,
}

/// Where a report stands among those of its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    /// Who reports: not always the host that the report is about.
    pub from: NodeId,
    /// From 1 on; output and ends are counted by themselves, for all else overtakes them.
    pub number: u64,
    /// The number of the last of the launcher's messages that this agent had heard.
    pub heard: u64,
    /// For an end: so many of the agent's reports without output come before it.
    pub after: u64,
}

/// From the launcher to agents.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Down {
    /// So many reports, and so many with output or ends, have reached the launcher from a node, with the last that it
    /// says or not.
    Acknowledged {
        /// The node.
        node: NodeId,
        /// How many reports without output.
        control: u64,
        /// How many reports with output or ends.
        output: u64,
        /// The last report is among them.
        is_last: bool,
    },
    /// The launcher is the node above the receiver from now on. What the receiver has not heard follows.
    Adopted,
    /// All of the receiver's subtree was heard to be over: it may go.
    Bye,
    /// This many bytes of output were taken from the receiver.
    Credit(u32),
    /// A process group that was to be started is not wanted any more: end what runs of it.
    Cancel(u32),
    /// Nothing is left of a spawned process group, anywhere.
    Forget(u32),
    /// There is another process group, of which each agent starts its part.
    Group(Box<GroupPlan>),
    /// Something about the ranks of another host.
    News(News),
    /// The next message is the launcher's, and this is its number among all that it says.
    Number(u64),
    /// From the PMI server of the node above to that of the receiver; from the launcher's to those of all
    /// agents in jobs in which agents are adopted.
    Pmi(pmi::Down),
    /// This is for all nodes.
    Order(Order),
    /// Reports that the launcher is not known to have may be lost: the receiver and all below it send them
    /// again.
    Resend,
    /// This is for one node.
    To(NodeId, Order),
}

/// An order to an agent about its own ranks. A type of its own, so that nothing from a peer is nested without end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Tell the advisors of the host, or the one behind this link, when the job ends.
    Announce {
        /// The link, by its number on the host; all of them if `None`.
        link: Option<u32>,
        /// The end of the job.
        end: AnnouncedEnd,
    },
    /// A rank of another host wants what one of this host has put by PMIx.
    ModexWanted {
        /// Who wants it.
        asker: ModexAsker,
        /// Whose data.
        rank: Rank,
    },
    /// The answer to [`Report::ModexWanted`].
    ModexFound {
        /// The number of the request on its host.
        token: u64,
        /// The data that the rank has put; `None` if it cannot be had.
        data: Option<Vec<u8>>,
    },
    /// From the launcher's PMI server, if agents have no other above them.
    Pmi(pmi::Down),
    /// The answer to [`Report::ProcessesWanted`].
    Processes {
        /// The number of the request on its host.
        token: u64,
        /// The ranks of all hosts that run, with the numbers of their processes there.
        running: Vec<(Rank, u32)>,
    },
    /// No rank needs the memory any more that the agent serves for those that are gone.
    ReleaseMemory,
    /// Start another process of a rank that failed.
    Respawn {
        /// The rank.
        rank: Rank,
        /// The life of that rank.
        incarnation: Incarnation,
    },
    /// Send a signal to the process groups of all ranks, which go on unless it ends them.
    Forward {
        /// The signal's number.
        signal: i32,
    },
    /// Send a signal to the process group of one rank, or end all of them with it.
    Signal {
        /// To whom; to all if `None`.
        rank: Option<Rank>,
        /// The signal's number.
        signal: i32,
    },
    /// The launcher goes on.
    Resume,
    /// The answer to [`Report::AskNames`].
    NamesAnswered {
        /// The number of the request on its host.
        id: u64,
        /// The answer.
        answer: pmi::Answer,
    },
    /// The answer to [`Report::Spawn`].
    Spawned {
        /// The number of the request on its host.
        id: u64,
        /// The new processes, or why there are none.
        result: Result<pmi::Spawned, pmi::SpawnRefused>,
    },
    /// The ranks that have input read this next.
    Stdin(#[serde(with = "octets")] Vec<u8>),
    /// They have read all.
    StdinEnd,
    /// The launcher is about to be stopped by its user: do not wait for a sign of life of it until it goes on.
    Suspend {
        /// Stop all ranks too, and start none.
        stops_ranks: bool,
    },
    /// Tell from now on whether ranks make progress.
    WatchProgress,
}

/// When a job ends, as its advisors are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AnnouncedEnd {
    /// It is being ended: save now. There are so many milliseconds; `None` if it is not ended before it has saved.
    Notice {
        /// The time that is left, in milliseconds.
        left_ms: Option<u64>,
    },
    /// Its time is over in so many milliseconds.
    Known {
        /// The time that is left, in milliseconds.
        left_ms: u64,
    },
}

/// The messages of an advisor or a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkNews {
    /// There is an advisor.
    Advisor,
    /// There is a store; the stores of all ranks in the same directory have the same hash.
    Store {
        /// The hash of its directory.
        directory: u16,
    },
    /// It is closed.
    Gone,
    /// The program does steps.
    Steps(u64),
    /// The store has committed this generation.
    Committed {
        /// The number of the generation.
        generation: u64,
    },
    /// The save is committed that the advisor was asked for by an announcement.
    Saved,
}

/// News for the attached ranks of other hosts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum News {
    /// A rank is gone.
    Departed {
        /// The rank.
        rank: Rank,
        /// The life of that rank.
        incarnation: Incarnation,
        /// The cause of its end.
        cause: Cause,
    },
    /// Memory of a rank that is gone is served by the agent of its host.
    Inherited {
        /// The rank.
        rank: Rank,
        /// The life of that rank.
        incarnation: Incarnation,
        /// The rank's name for the memory.
        held: Held,
        /// The right to read it.
        handle: RegionHandle,
    },
    /// A rank that was gone has another process.
    Returned {
        /// The rank.
        rank: Rank,
        /// The life of that rank.
        incarnation: Incarnation,
    },
}

/// News of a host for the launcher, from the agent there but for [`Report::Lost`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Report {
    /// Ranks of the host made progress since the last such report, if anybody wants to know.
    Active,
    /// A rank asked by PMI for the end of the job.
    Aborted {
        /// The rank.
        rank: Rank,
        /// The exit code that the job is to have.
        exit_code: i32,
        /// The rank's reason; empty if it gave none.
        message: String,
    },
    /// A rank of a host that is alone asks something about names, which are kept elsewhere.
    AskNames {
        /// The number of the request on its host.
        id: u64,
        /// The question.
        question: pmi::Question,
    },
    /// The first of the host's ranks that wants to hear of departures.
    Attached,
    /// A rank runs on these processors, if somebody wants to know.
    Bound {
        /// The rank.
        rank: Rank,
        /// It is bound to them; else the system chooses among them.
        is_bound: bool,
        /// The processors, by the kernel's numbers; none if they are not known.
        processors: Vec<u32>,
    },
    /// All ranks of the host are gone, and it takes no others, though hosts below it may.
    Closed,
    /// A stopped rank goes on.
    Continued {
        /// The rank.
        rank: Rank,
    },
    /// A rank is gone.
    Departed {
        /// The rank, and the cause of its end.
        departure: Departure,
        /// It began with PMI and did not finalize it.
        unfinished: bool,
        /// It wanted to hear of departures.
        attached: bool,
        /// The kernel ended it for this.
        shortage: Option<MemoryShortage>,
        /// How far it got with PMI, if that is known and it failed.
        stage: Option<pmi::Stage>,
        /// The time in nanoseconds of the host's `CLOCK_MONOTONIC`.
        at_ns: u64,
    },
    /// Somebody sent the agent a signal that is for the job, as Slurm does to the steps of srun.
    Signalled {
        /// The signal's number.
        signal: i32,
    },
    /// An advisor or a store of a rank says something over its link, which has this number on its host.
    Link {
        /// The rank.
        rank: Rank,
        /// The number of the link on its host.
        link: u32,
        /// The message of the advisor or the store.
        news: LinkNews,
    },
    /// Ranks of a host that is alone wait in a fence.
    FenceBegan {
        /// The number of the process group.
        group: u32,
        /// The name of the fence.
        fence: String,
    },
    /// That fence is over.
    FenceEnded {
        /// The number of the process group.
        group: u32,
        /// The name of the fence.
        fence: String,
        /// How many ranks were in it.
        members: u32,
        /// A rank that is gone, so that the fence failed.
        failed: Option<Rank>,
    },
    /// All ranks of the host and all hosts below it in the tree are gone, and all they wrote was sent. The last report.
    Finished,
    /// Nothing is left of a spawned process group on this host.
    GroupOver(u32),
    /// The launcher's messages have been heard, as the stamp says; there was nothing else to report for a
    /// while.
    Heard,
    /// Memory of a rank that is gone is served by its agent.
    Inherited {
        /// The rank.
        rank: Rank,
        /// The life of that rank.
        incarnation: Incarnation,
        /// The rank's name for the memory.
        held: Held,
        /// The right to read it.
        handle: RegionHandle,
    },
    /// The agent has not come up for the detection time, says the node above; it may still.
    Late,
    /// A rank wants what one of another host has put by PMIx.
    ModexWanted {
        /// The number of the request on its host.
        token: u64,
        /// Whose data.
        rank: Rank,
    },
    /// To [`Order::ModexWanted`].
    ModexFound {
        /// Who wants it.
        asker: ModexAsker,
        /// The data that the rank has put; `None` if it cannot be had.
        data: Option<Vec<u8>>,
    },
    /// Tells if one of the host's ranks would wait for ever for a rank that is lost: it began with PMI, has
    /// not finalized it, and does not hear of departures. Said when it changes, in jobs that are watched
    /// after losses.
    MayHang(bool),
    /// The node above lost the agent, and with it all hosts below it. The last report.
    Lost {
        /// The fate of the agent, as a clause.
        how: String,
    },
    /// Something odd about a rank.
    Notice {
        /// The rank.
        rank: Rank,
        /// The notice.
        text: String,
    },
    /// A rank asks by PMIx which processes run on all hosts.
    ProcessesWanted {
        /// The number of the request on its host.
        token: u64,
    },
    /// A rank could not be started; those after it were not tried.
    NotStarted {
        /// The rank.
        rank: Rank,
        /// The reason.
        error: StartError,
    },
    /// Whole lines that a rank wrote.
    Output {
        /// The rank.
        rank: Rank,
        /// The stream that it wrote to.
        stream: OutputStream,
        /// The lines, with their ends.
        #[serde(with = "octets")]
        lines: Vec<u8>,
    },
    /// A rank put something else under a key of PMI; the last value counts.
    Overwritten {
        /// The rank.
        rank: Rank,
        /// The key.
        key: String,
    },
    /// The first report.
    Ready {
        /// The name of the host, by its own account.
        host_name: String,
    },
    /// From the PMI server of the agent to that of the node above.
    Pmi(pmi::Up),
    /// A rank of a host that is alone wants more processes.
    Spawn {
        /// The number of the request on its host.
        id: u64,
        /// The process that asks.
        from: pmi::Process,
        /// The processes that it wants.
        spawn: pmi::Spawn,
    },
    /// The node above is lost, and the launcher asked to be it. The number is that of the last of its messages that was
    /// heard.
    Orphaned {
        /// The number of the last message that was heard.
        heard: u64,
    },
    /// A rank runs.
    Started {
        /// The rank.
        rank: Rank,
        /// Its process on its host.
        pid: u32,
    },
    /// The ranks of the host that have input took this many bytes of it, the slowest of them.
    StdinTaken(u32),
    /// A signal stopped a rank.
    Stopped {
        /// The rank.
        rank: Rank,
        /// The signal's number.
        signal: i32,
    },
    /// A rank says what it does.
    Trace {
        /// The rank.
        rank: Rank,
        /// The event.
        event: TraceEvent,
    },
}

impl Report {
    /// How many bytes of output it carries.
    pub fn output_size(&self) -> usize {
        match self {
            Self::Output { lines, .. } => lines.len(),
            _ => 0,
        }
    }
}

/// Why a rank could not be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartError {
    /// The kind of error, by the user's remedies.
    pub kind: StartErrorKind,
    /// The program, and the reason.
    pub reason: String,
}

/// The kinds of errors that a user mends in different ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartErrorKind {
    /// The program is not there.
    NotFound,
    /// The program cannot be executed.
    NotExecutable,
    /// Nothing more is started on the host, for all that it had is gone.
    HostLeft,
    /// The host lacks something, such as descriptors or memory.
    System,
}
