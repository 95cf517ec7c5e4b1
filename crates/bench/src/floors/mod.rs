//! The best that the machine can do, measured with as little as possible between it and the clock.
//!
//! The target serves floors, each in a thread of its own that ends with its one user; [`Floor`] asks for one,
//! [`FloorAt`] is where it is.

pub(super) mod ring;
pub(crate) mod shared_memory;
pub(super) mod sockets;

use std::{net::IpAddr, thread};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use self::{
    ring::RingEnd,
    shared_memory::{ForeignBytes, Place, SharedMemory},
    sockets::{OneTcpConnection, OneUnixConnection, Service, Waiting},
};

/// A floor that the target is asked to offer.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Floor {
    /// A ring in shared memory, both sides spinning.
    Ring,
    /// A TCP connection.
    Tcp { service: Service, waiting: Waiting },
    /// A UNIX stream, both sides sleeping, that echoes.
    Unix,
    /// Filled memory on the heap, for `process_vm_readv`.
    Heap { length: u64 },
    /// Filled shared memory.
    Mapped { length: u64 },
    /// A robust mutex, locked as long as the target lives.
    Mutex,
}

/// Where the target offers it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum FloorAt {
    Foreign(ForeignBytes),
    Name(String),
    Port(u16),
    Shared(Place),
}

/// Memory that a target keeps for those who measure with it; a new one takes the place of the one before.
#[derive(Default)]
pub(super) struct KeptMemory {
    heap: Vec<u8>,
    mapped: Option<SharedMemory>,
    /// A locked mutex must stay where it is.
    mutex: Option<SharedMemory>,
    names: u32,
}

impl KeptMemory {
    /// Offers the floor to the one who asks. `ip` is where this host is reached.
    pub(super) fn offer(&mut self, floor: Floor, ip: IpAddr) -> anyhow::Result<FloorAt> {
        match floor {
            Floor::Ring => {
                let memory = SharedMemory::create(RingEnd::MEMORY)?;
                // By the time that the origin opens it this process may have closed it: the answering end keeps
                // it open until it is told to stop.
                let place = memory.place();
                let ring = RingEnd::answering(memory);
                thread::spawn(move || ring.answer());
                Ok(FloorAt::Shared(place))
            }
            Floor::Tcp { service, waiting } => {
                let (listening, port) = OneTcpConnection::listen(ip).context("cannot listen")?;
                // What goes wrong there is seen at the other end.
                thread::spawn(move || listening.serve(service, waiting));
                Ok(FloorAt::Port(port))
            }
            Floor::Unix => {
                self.names += 1;
                let name = format!("ropewalk-bench/{}/{}", std::process::id(), self.names);
                let listening = OneUnixConnection::listen(&name).context("cannot listen")?;
                thread::spawn(move || listening.serve());
                Ok(FloorAt::Name(name))
            }
            Floor::Heap { length } => {
                self.heap = vec![1; usize::try_from(length)?];
                Ok(FloorAt::Foreign(ForeignBytes::of(&self.heap)))
            }
            Floor::Mapped { length } => {
                let memory = SharedMemory::create(usize::try_from(length)?)?;
                for word in memory.words() {
                    word.store(1, std::sync::atomic::Ordering::Relaxed);
                }
                Ok(FloorAt::Shared(self.mapped.insert(memory).place()))
            }
            Floor::Mutex => {
                let memory = SharedMemory::create(4096)?;
                memory.lock_robust().context("cannot lock a robust mutex")?;
                Ok(FloorAt::Shared(self.mutex.insert(memory).place()))
            }
        }
    }
}
