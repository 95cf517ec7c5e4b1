//! The remote procedures that carry messages and chunks. Each says to which epoch it belongs.

use std::time::Duration;

use ropewalk_fabric::RegionHandle;
use ropewalk_membership::AgreementMessage;
use ropewalk_names::{Epoch, Rank};
use ropewalk_reduce_core::{ChunkHeader, Grant, Member, Session};
use ropewalk_rpc::Procedure;
use serde::{Deserialize, Serialize};

use super::roster::{Card, Roster};
use crate::message::{Batch, Contribution, ForGroup, Forwarded, ToSeat, ToSite};

/// Brings messages to the scheduler.
pub(super) struct TellSeat;

impl Procedure for TellSeat {
    const NAME: &'static str = "ropewalk.reduce.tell-seat";
    type Input = (Epoch, Batch<ToSeat>);
    type Output = ();
}

/// Brings messages of the scheduler.
pub(super) struct TellSite;

impl Procedure for TellSite {
    const NAME: &'static str = "ropewalk.reduce.tell-site";
    type Input = (Epoch, Batch<ToSite>);
    type Output = ();
}

/// Brings grants from parent to child in a tree.
pub(super) struct TakeGrants;

impl Procedure for TakeGrants {
    const NAME: &'static str = "ropewalk.reduce.take-grants";
    type Input = (Epoch, Batch<Grant>);
    type Output = ();
}

/// Brings messages through a third rank; the answer says that their receiver has them.
pub(super) struct Forward;

impl Procedure for Forward {
    const NAME: &'static str = "ropewalk.reduce.forward";
    type Input = (Epoch, Box<Forwarded>);
    type Output = ();
}

/// Brings messages for the scheduler to a relay, which carries them with those of others; the answer says that the
/// scheduler has them.
pub(super) struct Collect;

impl Procedure for Collect {
    const NAME: &'static str = "ropewalk.reduce.collect";
    type Input = (Epoch, Box<Forwarded>);
    type Output = ();
}

/// Brings the messages of several ranks to the scheduler.
pub(super) struct TellTogether;

impl Procedure for TellTogether {
    const NAME: &'static str = "ropewalk.reduce.tell-together";
    type Input = (Epoch, Vec<Forwarded>);
    type Output = ();
}

/// Brings messages of the scheduler to a relay, for several ranks. The answer names those that have not got theirs.
pub(super) struct Spread;

impl Procedure for Spread {
    const NAME: &'static str = "ropewalk.reduce.spread";
    type Input = (Epoch, ForGroup);
    type Output = Vec<Rank>;
}

/// Brings a chunk from child to parent, as the data of the call unless the parent is to read it by itself. The answer
/// says when it arrived, by the parent's clock.
pub(super) struct TakeChunk;

impl Procedure for TakeChunk {
    const NAME: &'static str = "ropewalk.reduce.take-chunk-as-data";
    type Input = (Epoch, ChunkHeader, Option<ChunkPlace>);
    type Output = Duration;
}

/// Asks a rank of another host to keep a copy of a contribution; the answer says that it is stored.
pub(super) struct KeepCopy;

impl Procedure for KeepCopy {
    const NAME: &'static str = "ropewalk.reduce.keep-copy";
    type Input = (Epoch, Box<AskedCopy>);
    type Output = ();
}

/// Asks the scheduler's rank how many bytes at the beginning of a contribution nobody needs any more; nothing before
/// the first plan.
pub(super) struct SettledBytes;

impl Procedure for SettledBytes {
    const NAME: &'static str = "ropewalk.reduce.settled-bytes";
    type Input = (Epoch, Session, Member);
    type Output = Option<u64>;
}

/// Brings messages between the ranks of a job that no launcher of ours runs.
pub(super) struct TellMember;

impl Procedure for TellMember {
    const NAME: &'static str = "ropewalk.reduce.tell-member";
    type Input = Vec<ToMember>;
    type Output = ();
}

/// Asks for admission to the job; the answer comes when that is decided.
pub(super) struct Knock;

impl Procedure for Knock {
    const NAME: &'static str = "ropewalk.reduce.knock";
    type Input = Box<Card>;
    type Output = Admission;
}

/// The answer to a rank that has come back.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Admission {
    /// It belongs to the job again.
    Admitted(Box<Roster>),
    /// The others leave the job.
    JobOver,
    /// Who was asked has come back itself, and waits for the same.
    Waiting,
}

/// Says that a rank is ready for an epoch; the answer says that the other one has entered it.
pub(super) struct Ready;

impl Procedure for Ready {
    const NAME: &'static str = "ropewalk.reduce.ready";
    type Input = Epoch;
    type Output = ();
}

/// A message between the ranks of a job that no launcher of ours runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum ToMember {
    /// It is about who belongs to the job.
    Agreement(Box<AgreementMessage>),
    /// The sender wants to leave the job, and stays until all do.
    Leaves,
    /// All want to leave.
    MayLeave,
    /// The answer says that the receiver is reached.
    Probe,
}

/// A contribution that is to be copied.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct AskedCopy {
    /// The rank that made it.
    pub(super) owner: Rank,
    /// The contribution.
    pub(super) contribution: Contribution,
    /// Where it is read from [`begin`](Self::begin) on.
    pub(super) handle: RegionHandle,
    /// The first byte that is there: a keeper of a part has nothing before it.
    pub(super) begin: u64,
    /// The call waits for it.
    pub(super) is_awaited: bool,
    /// If its owner is lost with its host, the keeper sees to another copy.
    pub(super) is_heir: bool,
}

/// Where the receiver of a chunk reads it by itself: memory that both can reach.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ChunkPlace {
    pub(super) handle: RegionHandle,
    /// The bytes of the chunk.
    pub(super) length: u64,
}

/// The most messages in one notification.
pub(super) const MESSAGES_MAX: usize = 64;
