//! The process that measures: its engine, and the target that it calls.

use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::Range,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use ropewalk_rpc::{Address, Buffer, Call, CallError, Engine, JobKey, PeerId, Procedure, RegionHandle};

use super::{
    floors::{
        Floor, FloorAt,
        shared_memory::{ForeignBytes, SharedMemory},
    },
    process::Process,
    protocol::{Done, Hang, Held, Load, Null, Offer, Work},
    provider::Provider,
    target::options,
};

/// An engine and the target that it calls.
pub(super) struct Origin {
    engine: Engine,
    target: Address,
    /// Names the target to the engine without a look at its address.
    peer: PeerId,
    provider: String,
    key: JobKey,
    chosen: Provider,
    /// `None` if somebody else started it.
    process: Option<Process>,
}

impl Origin {
    /// An origin with a target of its own on this host.
    pub(super) fn start(key: &JobKey, provider: &Provider) -> anyhow::Result<Self> {
        let (process, target) = Process::target(key, provider)?;
        Self::new(key, provider, target, Some(process))
    }

    /// An origin that calls a target which serves already.
    pub(super) fn connect(key: &JobKey, provider: &Provider, target: &Address) -> anyhow::Result<Self> {
        Self::new(key, provider, target.clone(), None)
    }

    fn new(
        key: &JobKey,
        provider: &Provider,
        target: Address,
        process: Option<Process>,
    ) -> anyhow::Result<Self> {
        let mut engine = Engine::new(ropewalk_rpc::bind(options(key, provider, 0))?);
        let mut origin = Self {
            peer: engine.peer(&target)?,
            engine,
            target,
            provider: provider.to_string(),
            key: key.clone(),
            chosen: provider.clone(),
            process,
        };
        origin
            .ask::<Null>(&())
            .with_context(|| format!("no answer over {provider}"))?;
        origin.provider = provider.used(&origin.engine, origin.peer)?;
        Ok(origin)
    }

    /// Another origin, with a new target, or with the same one if somebody else started it.
    pub(super) fn another(&self) -> anyhow::Result<Self> {
        match &self.process {
            Some(_) => Self::start(&self.key, &self.chosen),
            None => Self::connect(&self.key, &self.chosen, &self.target),
        }
    }

    /// The provider that was asked for.
    pub(super) fn chosen(&self) -> &Provider {
        &self.chosen
    }

    /// Clients of the target in another process, and the address at which they are told what to do.
    pub(super) fn crowd(&self, clients: Range<u32>) -> anyhow::Result<(Process, Address)> {
        Process::crowd(&self.key, &self.chosen, clients, &self.target)
    }

    /// The name of the provider that carries the calls.
    pub(super) fn provider(&self) -> &str {
        &self.provider
    }

    /// Returns true if the target is on this host and shared memory carries the calls.
    pub(super) fn shares_memory(&self) -> bool {
        self.provider == "shm"
    }

    pub(super) fn target(&self) -> &Address {
        &self.target
    }

    /// # Errors
    /// If somebody else started the target.
    pub(super) fn process(&self) -> anyhow::Result<&Process> {
        self.process.as_ref().context("the target is not of this process")
    }

    pub(super) fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Calls and waits for the answer.
    pub(super) fn ask<P: Procedure>(&mut self, input: &P::Input) -> anyhow::Result<P::Output> {
        let call = self.engine.call::<P>(self.peer, input, CALL_TIMEOUT)?;
        Ok(self.engine.block_on(call)?)
    }

    /// Has all of them do the work at the same time.
    pub(super) fn have_done(
        &mut self,
        crowds: &[Address],
        work: Work,
        turn: Duration,
    ) -> anyhow::Result<Vec<Done>> {
        let nanoseconds = u64::try_from(turn.as_nanos())?;
        let mut calls = Vec::with_capacity(crowds.len());
        for crowd in crowds {
            calls.push(
                self.engine
                    .call::<Load>(crowd, &(work, nanoseconds), CALL_TIMEOUT)?,
            );
        }
        calls
            .into_iter()
            .map(|call| Ok(self.engine.block_on(call)?))
            .collect()
    }

    /// Makes null calls for so long, as many at once as shall be in flight. Returns how many a second.
    pub(super) fn null_calls(&mut self, in_flight: usize, turn: Duration) -> anyhow::Result<f64> {
        let mut calls: VecDeque<Call<()>> = VecDeque::with_capacity(in_flight);
        let (start, mut done, mut looks) = (Instant::now(), 0_u64, 0_u32);
        loop {
            while calls.len() < in_flight {
                calls.push_back(self.engine.call::<Null>(self.peer, &(), CALL_TIMEOUT)?);
            }
            self.engine.wait(CALL_TIMEOUT);
            while let Some(result) = calls.front_mut().and_then(Call::try_take) {
                result?;
                calls.pop_front();
                done += 1;
            }
            // Seldom enough that the clock costs nothing.
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(16) && start.elapsed() >= turn {
                let rate = done as f64 / start.elapsed().as_secs_f64();
                for call in calls {
                    self.engine.block_on(call)?;
                }
                return Ok(rate);
            }
        }
    }

    /// Pulls the start of the region.
    pub(super) fn pull(&mut self, region: &RegionHandle, into: Buffer) -> anyhow::Result<Buffer> {
        let transfer = self.engine.pull(region, 0, into, CALL_TIMEOUT)?;
        Ok(self.engine.block_on(transfer)?)
    }

    /// Memory to pull into.
    pub(super) fn allocate(&mut self, length: usize) -> Buffer {
        Provider::allocate(&mut self.engine, length)
    }

    /// Starts calls that are never answered. They are with the target when this returns.
    pub(super) fn hang(&mut self, calls: usize) -> anyhow::Result<Vec<Call<()>>> {
        let mut hanging = Vec::with_capacity(calls);
        for _ in 0..calls {
            hanging.push(self.engine.call::<Hang>(self.peer, &(), CALL_TIMEOUT)?);
        }
        let held = self.ask::<Held>(&())?;
        anyhow::ensure!(held == calls as u64, "{held} calls are held instead of {calls}");
        Ok(hanging)
    }

    /// Waits until all calls have ended because the target is dead. Returns how long it took, from `since`.
    pub(super) fn wait_for_death(
        &mut self,
        calls: Vec<Call<()>>,
        since: Instant,
    ) -> anyhow::Result<Duration> {
        for call in calls {
            match self.engine.block_on(call) {
                Err(CallError::PeerDied { .. }) => {}
                other => bail!("a call to a dead target ended with {other:?}"),
            }
        }
        Ok(since.elapsed())
    }

    /// Where the target offers a socket.
    pub(super) fn port(&mut self, floor: Floor) -> anyhow::Result<SocketAddr> {
        match self.ask::<Offer>(&floor)? {
            FloorAt::Port(port) => Ok(SocketAddr::new(self.ip(), port)),
            other => bail!("{floor:?} is offered at {other:?}"),
        }
    }

    /// The memory that the target shares.
    pub(super) fn shared(&mut self, floor: Floor) -> anyhow::Result<SharedMemory> {
        match self.ask::<Offer>(&floor)? {
            FloorAt::Shared(place) => SharedMemory::open(place),
            other => bail!("{floor:?} is offered at {other:?}"),
        }
    }

    /// The UNIX socket at which the target echoes.
    pub(super) fn name(&mut self, floor: Floor) -> anyhow::Result<String> {
        match self.ask::<Offer>(&floor)? {
            FloorAt::Name(name) => Ok(name),
            other => bail!("{floor:?} is offered at {other:?}"),
        }
    }

    /// The memory that the target keeps.
    pub(super) fn foreign(&mut self, floor: Floor) -> anyhow::Result<ForeignBytes> {
        match self.ask::<Offer>(&floor)? {
            FloorAt::Foreign(bytes) => Ok(bytes),
            other => bail!("{floor:?} is offered at {other:?}"),
        }
    }

    /// Where the target's host is reached.
    fn ip(&self) -> IpAddr {
        let socket = self.target.location().parse::<SocketAddr>();
        socket.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |socket| socket.ip())
    }
}

/// Longer than anything takes, the discovery of a peer's silence included.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
