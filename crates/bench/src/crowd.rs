//! Many clients in one process, which connect and then do what they are told.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context;
use bytes::Bytes;
use ropewalk_rpc::{Address, Buffer, BulkHandle, Call, Engine, Fault, JobKey, PeerId, Responder};
use rustix::{
    event::{
        Timespec,
        epoll::{self, CreateFlags, Event, EventData, EventFlags},
    },
    fd::OwnedFd,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

use super::{
    output::print,
    protocol::{Cut, Done, Load, Null, Work, Write},
    provider::Provider,
    target::options,
};

/// Connects them all, prints the address at which they are told what to do, and keeps them going for good.
pub(super) fn run(
    key: &JobKey,
    provider: &Provider,
    clients: Range<u32>,
    target: &Address,
) -> anyhow::Result<()> {
    allow_descriptors();
    let mut told = Engine::new(ropewalk_rpc::bind(options(key, provider, TOLD + clients.start))?);
    let order: Arc<Mutex<Option<Order>>> = Arc::default();
    let ordered = order.clone();
    told.serve_later::<Load>(move |_, _, (work, nanoseconds), responder| {
        let turn = Duration::from_nanos(nanoseconds);
        let mut ordered = ordered.lock().unwrap_or_else(PoisonError::into_inner);
        *ordered = Some((work, turn, responder));
    });
    let mut crowd = Crowd::connect(key, provider, clients, target)?;
    print(told.address())?;
    crowd.add(told)?;
    loop {
        crowd.wait(None)?;
        crowd.driven.clear();
        let ordered = order.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((work, turn, responder)) = ordered {
            let done = crowd.work(work, turn);
            responder.answer(done.map_err(|error| Fault::new(format!("{error:#}"))));
        }
    }
}

/// The work of the clients, its time, and the one who is told that it is done.
type Order = (Work, Duration, Responder<Done>);

/// Engines that are driven together.
struct Crowd {
    epoll: OwnedFd,
    engines: Vec<Engine>,
    deadlines: Vec<Option<Instant>>,
    /// The engines that have done something since somebody looked.
    driven: Vec<usize>,
    ready: Vec<Event>,
    clients: Vec<Client>,
}

/// A client, whose engine has its place.
struct Client {
    target: PeerId,
    /// Exposed when it first writes.
    memory: Option<BulkHandle>,
    call: Option<Pending>,
}

/// A call in progress.
enum Pending {
    Null(Call<()>),
    Write(Call<u64>),
}

impl Crowd {
    fn connect(
        key: &JobKey,
        provider: &Provider,
        clients: Range<u32>,
        target: &Address,
    ) -> anyhow::Result<Self> {
        let mut crowd = Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            engines: Vec::new(),
            deadlines: Vec::new(),
            driven: Vec::new(),
            ready: Vec::with_capacity(READY_MAX),
            clients: Vec::new(),
        };
        for rank in clients {
            let mut engine = Engine::new(ropewalk_rpc::bind(options(key, provider, FIRST + rank))?);
            let peer = engine.peer(target)?;
            let call = engine.call::<Null>(peer, &(), CALL_TIMEOUT)?;
            engine
                .block_on(call)
                .with_context(|| format!("client {rank} cannot reach {target}"))?;
            crowd.add(engine)?;
            crowd.clients.push(Client {
                target: peer,
                memory: None,
                call: None,
            });
        }
        Ok(crowd)
    }

    fn add(&mut self, engine: Engine) -> anyhow::Result<()> {
        let data = EventData::new_u64(self.engines.len() as u64);
        epoll::add(&self.epoll, &engine, data, EventFlags::IN)?;
        self.engines.push(engine);
        self.deadlines.push(Some(Instant::now()));
        Ok(())
    }

    /// Drives the engines that have something to do, until one had or `timeout` is over.
    fn wait(&mut self, timeout: Option<Duration>) -> anyhow::Result<()> {
        let now = Instant::now();
        for index in 0..self.engines.len() {
            if self.deadlines[index].is_some_and(|deadline| deadline <= now) {
                self.settle(index);
            }
        }
        let soonest = self.deadlines.iter().flatten().min();
        let left = soonest.map(|soonest| soonest.saturating_duration_since(Instant::now()));
        let left = match (left, timeout) {
            (Some(left), Some(timeout)) => Some(left.min(timeout)),
            (left, timeout) => left.or(timeout),
        };
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let mut ready = std::mem::take(&mut self.ready);
        epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut ready),
            left.as_ref(),
        )?;
        for event in ready.drain(..) {
            self.settle(event.data.u64() as usize);
        }
        self.ready = ready;
        Ok(())
    }

    /// Has the engine do all that there is to do.
    fn settle(&mut self, index: usize) {
        let engine = &mut self.engines[index];
        let mut happened = 0;
        self.deadlines[index] = loop {
            let more = engine.progress();
            happened += more;
            if more > 0 {
                continue;
            }
            let deadline = engine.next_deadline();
            if deadline.is_none_or(|deadline| deadline > Instant::now()) {
                break deadline;
            }
        };
        if happened > 0 {
            self.driven.push(index);
        }
    }

    /// Each client makes one call after the other, for so long. Calls that end later do not count.
    fn work(&mut self, work: Work, turn: Duration) -> anyhow::Result<Done> {
        let mut calls = vec![0; self.clients.len()];
        if work == Work::Write {
            self.expose();
        }
        let start = Instant::now();
        for index in 0..self.clients.len() {
            self.begin(index, work)?;
        }
        let mut idle_since = start;
        while start.elapsed() < turn {
            if !self.driven.is_empty() {
                idle_since = Instant::now();
            } else if idle_since.elapsed() > Engine::SPIN_MAX {
                self.wait(Some(turn))?;
            } else if self.clients.len() <= LOOKED_AT_MAX {
                // As an engine that waits alone: it looks for a short time before it sleeps.
                (0..self.clients.len()).for_each(|index| self.settle(index));
            } else {
                self.wait(Some(Duration::ZERO))?;
            }
            for index in std::mem::take(&mut self.driven) {
                if self.take(index)? {
                    calls[index] += 1;
                    self.begin(index, work)?;
                }
            }
        }
        let nanoseconds = u64::try_from(start.elapsed().as_nanos())?;
        while self.clients.iter().any(|client| client.call.is_some()) {
            if self.driven.is_empty() {
                self.wait(Some(CALL_TIMEOUT))?;
            }
            for index in std::mem::take(&mut self.driven) {
                self.take(index)?;
            }
        }
        Ok(Done { calls, nanoseconds })
    }

    fn begin(&mut self, index: usize, work: Work) -> anyhow::Result<()> {
        let (client, engine) = (&mut self.clients[index], &mut self.engines[index]);
        client.call = Some(match (work, &client.memory) {
            (Work::Write, Some(memory)) => {
                let input = (memory.clone(), CUT);
                Pending::Write(engine.call::<Write>(client.target, &input, CALL_TIMEOUT)?)
            }
            _ => Pending::Null(engine.call::<Null>(client.target, &(), CALL_TIMEOUT)?),
        });
        self.settle(index);
        Ok(())
    }

    /// Takes the result of the client's call. Returns whether there was one.
    fn take(&mut self, index: usize) -> anyhow::Result<bool> {
        // The last engine is no client's.
        let Some(client) = self.clients.get_mut(index) else {
            return Ok(false);
        };
        match &mut client.call {
            None => return Ok(false),
            Some(Pending::Null(call)) => match call.try_take() {
                Some(result) => result?,
                None => return Ok(false),
            },
            Some(Pending::Write(call)) => match call.try_take() {
                Some(result) => {
                    anyhow::ensure!(result? == WRITTEN_AT_ONCE as u64, "part of a write is missing")
                }
                None => return Ok(false),
            },
        }
        client.call = None;
        Ok(true)
    }

    /// Exposes memory of each client that has none yet: its own where the target can map it.
    fn expose(&mut self) {
        let shared = Bytes::from_owner(Buffer::zeroed(WRITTEN_AT_ONCE));
        for (client, engine) in self.clients.iter_mut().zip(&mut self.engines) {
            if client.memory.is_some() {
                continue;
            }
            let memory = match engine.provider_of(client.target) {
                Some("shm") => {
                    let mut memory = Provider::allocate(engine, WRITTEN_AT_ONCE);
                    memory.fill(1);
                    Bytes::from_owner(memory)
                }
                _ => shared.clone(),
            };
            client.memory = Some(engine.expose(memory).into());
        }
    }
}

/// Raises the number of descriptors that this process may have to what it is allowed.
pub(super) fn allow_descriptors() {
    let limits = getrlimit(Resource::Nofile);
    // A refusal shows when they are needed.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limits.maximum,
            maximum: limits.maximum,
        },
    );
}

/// The bytes that a client writes at once.
pub(super) const WRITTEN_AT_ONCE: usize = 256 << 10;
/// The bytes of each buffer into which the target pulls them.
pub(super) const BUFFER: u32 = 64 << 10;
const CUT: Cut = Cut {
    depth: 4,
    buffer: BUFFER,
    is_checked: false,
};
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
const READY_MAX: usize = 64;
/// So many engines are looked at one after the other sooner than the system says which have something to do.
const LOOKED_AT_MAX: usize = 16;
/// The rank of the first client, and of the first engine that is told what clients do.
const FIRST: u32 = 1_000_000;
const TOLD: u32 = 2_000_000;
