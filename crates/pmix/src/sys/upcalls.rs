//! The calls of libpmix to its server, which come on its own thread: each becomes an [`Upcall`] in a queue, and its
//! answer goes back later.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Mutex, OnceLock, PoisonError},
};

use ropewalk_launch_core::pmix::{ModexAsker, Process};
use rustix::event::{EventfdFlags, eventfd};

use super::{
    replies::{InfoReply, LookupReply, ModexReply, OpReply, SpawnReply},
    types::{Status, status},
    values::Item,
};
use crate::queries::Query;

/// A call of libpmix.
pub(crate) enum Upcall {
    Connected(Process, OpReply),
    Finalized(Process, OpReply),
    Aborted {
        process: Process,
        exit_code: i32,
        message: String,
        reply: OpReply,
    },
    Fence {
        members: Vec<Process>,
        data: Vec<u8>,
        reply: ModexReply,
    },
    Modex(Process, ModexReply),
    Publish {
        from: Process,
        items: Vec<(String, Option<Item>)>,
        reply: OpReply,
    },
    Lookup {
        from: Process,
        keys: Vec<String>,
        options: Vec<(String, Option<Item>)>,
        reply: LookupReply,
    },
    Unpublish {
        from: Process,
        keys: Vec<String>,
        reply: OpReply,
    },
    Spawn {
        from: Process,
        apps: Vec<SpawnedApp>,
        reply: SpawnReply,
    },
    Connect {
        members: Vec<Process>,
        disconnects: bool,
        reply: OpReply,
    },
    Query {
        from: Process,
        queries: Vec<Query>,
        reply: InfoReply,
    },
    Log {
        from: Process,
        data: Vec<(String, Option<Item>)>,
        directives: Vec<(String, Option<Item>)>,
        reply: OpReply,
    },
    /// All members of a group that are here construct or destruct it.
    Group {
        constructs: bool,
        name: String,
        members: Vec<Process>,
        directives: Vec<(String, Option<Item>)>,
        reply: InfoReply,
    },
    /// The answer to a request for the data of a process here.
    ModexFound(ModexAsker, Option<Vec<u8>>),
}

/// A program that a process wants to have started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SpawnedApp {
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<String>,
    pub(crate) directory: Option<String>,
    pub(crate) processes: u32,
    pub(crate) options: Vec<(String, Option<Item>)>,
}

/// The calls that wait to be handled.
pub(crate) struct Queue {
    calls: Mutex<VecDeque<Upcall>>,
    wake: OwnedFd,
}

static QUEUE: OnceLock<Queue> = OnceLock::new();

impl Queue {
    /// The queue of this process, which has one server.
    pub(crate) fn start() -> io::Result<&'static Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let calls = Mutex::default();
        Ok(QUEUE.get_or_init(|| Self { calls, wake }))
    }

    /// All calls that came.
    pub(crate) fn take(&self) -> VecDeque<Upcall> {
        let mut counter = [0; 8];
        // Nothing to be read is no call.
        let _ = rustix::io::read(&self.wake, &mut counter);
        std::mem::take(&mut self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn push(&self, call: Upcall) {
        self.calls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(call);
        // A counter that is full wakes too.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl AsFd for Queue {
    /// Readable when a call has come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// Queues a call for the helper.
pub(super) fn push(call: Upcall) -> Status {
    match QUEUE.get() {
        Some(queue) => {
            queue.push(call);
            status::SUCCESS
        }
        None => status::NOT_SUPPORTED,
    }
}
