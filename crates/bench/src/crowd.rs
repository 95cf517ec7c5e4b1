//! Many clients in one process, which connect and then do nothing.

use std::time::{Duration, Instant};

use anyhow::Context;
use ropewalk_rpc::{Address, Engine, JobKey};
use rustix::{
    event::{
        Timespec,
        epoll::{self, CreateFlags, EventData, EventFlags},
    },
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

use super::{output::print, protocol::Null, provider::Provider, target::options};

/// Connects them all, says so, and keeps them going for good.
pub(super) fn run(key: &JobKey, provider: &Provider, clients: u32, target: &Address) -> anyhow::Result<()> {
    allow_descriptors();
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let mut engines = Vec::with_capacity(clients as usize);
    for rank in 0..clients {
        let mut engine = Engine::new(ropewalk_rpc::bind(options(key, provider, 1000 + rank))?);
        let call = engine.call::<Null>(target, &(), CONNECT_TIMEOUT)?;
        engine
            .block_on(call)
            .with_context(|| format!("client {rank} cannot reach {target}"))?;
        epoll::add(
            &epoll,
            &engine,
            EventData::new_u64(u64::from(rank)),
            EventFlags::IN,
        )?;
        engines.push(engine);
    }
    let now = Instant::now();
    let mut deadlines = vec![Some(now); engines.len()];
    print("ready")?;
    let mut ready = Vec::with_capacity(64);
    loop {
        let now = Instant::now();
        for (engine, deadline) in engines.iter_mut().zip(&mut deadlines) {
            if deadline.is_some_and(|deadline| deadline <= now) {
                *deadline = settle(engine);
            }
        }
        let soonest = deadlines.iter().flatten().min();
        let left = soonest.map(|soonest| soonest.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut ready), left.as_ref())?;
        for event in ready.drain(..) {
            let index = event.data.u64() as usize;
            deadlines[index] = settle(&mut engines[index]);
        }
    }
}

/// Has the engine do all that there is to do; when there is more.
fn settle(engine: &mut Engine) -> Option<Instant> {
    loop {
        while engine.progress() > 0 {}
        let deadline = engine.next_deadline();
        if deadline.is_none_or(|deadline| deadline > Instant::now()) {
            return deadline;
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

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
