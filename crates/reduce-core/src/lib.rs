//! Collective operations on vectors that stream through trees of processes and finish, exactly, when processes die.
//!
//! One idea carries speed and fault tolerance: *originals stay, everything else is on the way*. The vector is cut into
//! chunks, which stream through trees of [`Site`]s to the root. What a site contributes stays where it is until the
//! collective has ended. A loss, a late rank and a slow link are the same event: the chunks that the root does not hold
//! yet get a new plan.
//!
//! - The [`Planner`] lays out trees: who sends which chunks to whom. It knows rates and who is ready, and nothing else.
//! - A [`Worker`] is one site: it grants its children in the tree places for chunks, folds what they send with its
//!   own, and sends the outcome to its parent. At the root it folds it into the result.
//! - A [`Scheduler`] decides: it hears announcements, losses and failed links, and answers with plans.
//!
//! [`paper`] is the algorithm of the paper that the project began with, to compare with.
//!
//! Nothing here opens a socket, reads a clock or draws a random number. A driver passes events in, and carries out the
//! [`WorkerAction`]s and [`SchedulerAction`]s that come out; `ropewalk-sim` does so in virtual time.
//!
//! The order of folding is [`Order::Any`] (as chunks come) or [`Order::Ordered`] (a fixed bracketing over the
//! members: the same bits whatever was slow or died, and right for operations that do not commute).
//!
//! # Examples
//! The chunks of 8 MiB of doubles on 16 sites:
//! ```
//! use std::collections::{BTreeMap, BTreeSet};
//!
//! use ropewalk_reduce_core::{Contributions, Costs, Order, Planner, ShareId, Site};
//!
//! let planner = Planner {
//!     root: Site(0),
//!     order: Order::Any,
//!     contributions: Contributions::Each,
//!     broken: &BTreeSet::new(),
//!     hosts: &BTreeMap::new(),
//!     ring: None,
//!     costs: Costs { latency: 100e-6, per_chunk: 5e-6, rate: 50e6 },
//! };
//! let cut = planner.chunking(8 << 20, 8, 16).cut(ShareId(0));
//! // Each class has a tree of its own, and together they are the whole vector.
//! let mut bytes = 0;
//! for class in 0..cut.classes() {
//!     for index in 0..cut.chunks_of(class) {
//!         let range = cut.range(class, index);
//!         bytes += range.end - range.start;
//!     }
//! }
//! assert_eq!(bytes, 8 << 20);
//! ```

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![forbid(unsafe_code)]

mod bracketing;
mod by_host;
pub mod canary;
mod child_shares;
mod chunks;
mod ids;
mod message;
pub mod paper;
mod planner;
mod rates;
mod recent;
mod relays;
mod scheduler;
mod shape;
mod sharing;
mod stream;
mod tree;
mod worker;

pub use self::{
    bracketing::block_of,
    chunks::{Chunking, Cut},
    ids::{Member, PlanId, Session, ShareId, Site, StreamId, Term, Token},
    message::{ChunkHeader, FromScheduler, Grant, Input, MergedShare, Row, RowNode, Standing, ToScheduler},
    planner::{Costs, Order, Planner, Source},
    rates::{RateBounds, SendCounters, SendRates},
    recent::Recent,
    relays::{Gathering, Relays},
    scheduler::{
        Call, Contributions, End, Failure, GiveUp, OnLoss, OnRootLoss, Roster, Scheduler, SchedulerAction,
    },
    worker::{Chunk, Place, Worker, WorkerAction},
};
