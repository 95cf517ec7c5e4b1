//! The process at the other end: serves calls, exposes memory, offers floors.

use std::{
    fs,
    future::poll_fn,
    io::{self, BufRead},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::Range,
    pin::Pin,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, ensure};
use futures_core::Stream;
use ropewalk_names::{Incarnation, JobId, Rank};
use ropewalk_rpc::{
    Address, Buffer, BulkHandle, CallContext, EndpointOptions, Engine, Fault, Identity, JobKey, RegionHandle,
    Responder, Role,
};
use rustix::{
    process::{Signal, getppid, set_parent_process_death_signal},
    time::{ClockId, clock_gettime},
};
use serde::{Deserialize, Serialize};

use super::{
    crowd,
    floors::{KeptMemory, shared_memory::ForeignBytes},
    gate::Gate,
    output::print,
    protocol::{
        Cut, Doubles, Expose, Hang, Held, Memory, Null, Offer, Raw, Resident, Touch, Typed, Usage, Write,
    },
    provider::Provider,
};

/// The order that a started process reads as its first line.
#[derive(Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) key: JobKey,
    pub(super) provider: Provider,
    /// The process that started it, without which it has nothing to do.
    pub(super) parent: u32,
    pub(super) part: Part,
}

/// The role of the process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Part {
    /// Holds many clients of one target, which do nothing but what they are told.
    Crowd { clients: Range<u32>, target: Address },
    /// Tries to read the memory of the one that started it.
    Reader { bytes: ForeignBytes },
    /// Serves.
    Target,
}

/// `ropewalk bench-target`: what the order on the standard input says, until the one that started it ends.
pub fn run() -> ExitCode {
    match obey() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ropewalk bench-target: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn obey() -> anyhow::Result<()> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let order: Order = serde_json::from_str(&line)
        .context("there is no order; this command is started by `ropewalk bench`")?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = getppid().map_or(0, |pid| pid.as_raw_pid().unsigned_abs());
    ensure!(parent == order.parent, "the one that started this is gone");
    match order.part {
        Part::Crowd { clients, target } => crowd::run(&order.key, &order.provider, clients, &target),
        Part::Reader { bytes } => {
            let mut into = Buffer::zeroed(1);
            match bytes.read(&mut into) {
                Ok(()) => print(into[0]),
                Err(error) => print(error),
            }
        }
        Part::Target => {
            let options = options(&order.key, &order.provider, 1);
            let mut engine = Engine::new(ropewalk_rpc::bind(options)?);
            print(engine.address())?;
            serve(&mut engine, IpAddr::V4(Ipv4Addr::LOCALHOST))
        }
    }
}

/// The options of an endpoint of the bench.
pub(super) fn options(key: &JobKey, provider: &Provider, rank: u32) -> EndpointOptions {
    let identity = Identity {
        role: Role::Rank,
        rank: Rank(rank),
        incarnation: Incarnation(0),
    };
    let mut options = EndpointOptions::new(JobId(*b"ropewalk bench 1"), key.clone(), identity);
    provider.choose(&mut options);
    options
}

/// Serves for good. `ip` is where this host is reached.
pub(super) fn serve(engine: &mut Engine, ip: IpAddr) -> anyhow::Result<()> {
    let mut kept = KeptMemory::default();
    let mut touched = Vec::new();
    let held: Arc<Mutex<Vec<Responder<()>>>> = Arc::default();
    let mut exposed: Option<RegionHandle> = None;

    engine.serve::<Null>(|_, ()| Ok(()));
    engine.serve::<Typed>(|_, _| Ok(()));
    engine.serve::<Doubles>(|_, _| Ok(()));
    engine.serve::<Raw>(|_, _| Ok(()));
    engine.serve::<Resident>(|_, ()| resident().map_err(|error| Fault::new(format!("{error:#}"))));
    let gate = Gate::new(WRITES_MAX);
    engine.serve_async::<Write, _>(move |context, (handle, cut)| write(context, gate.clone(), handle, cut));
    engine.serve::<Offer>(move |_, floor| {
        kept.offer(floor, ip)
            .map_err(|error| Fault::new(format!("no floor {floor:?}: {error:#}")))
    });
    engine.serve::<Touch>(move |_, bytes| {
        touched.push(vec![
            1_u8;
            usize::try_from(bytes)
                .map_err(|error| Fault::new(error.to_string()))?
        ]);
        Ok(())
    });
    engine.serve::<Usage>(|_, ()| {
        let used = clock_gettime(ClockId::ProcessCPUTime);
        Ok(used.tv_sec.unsigned_abs() * 1_000_000_000 + used.tv_nsec.unsigned_abs())
    });
    let holding = held.clone();
    engine.serve_later::<Hang>(move |_, _, (), responder| {
        let mut held = holding.lock().unwrap_or_else(PoisonError::into_inner);
        held.push(responder);
    });
    engine.serve::<Held>(move |_, ()| {
        let held = held.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(held.len() as u64)
    });
    engine.serve_later::<Expose>(move |engine, _, (memory, length), responder| {
        if let Some(before) = exposed.take() {
            engine.withdraw(&before);
        }
        let handle = usize::try_from(length).map(|length| {
            let mut buffer = match memory {
                Memory::Arena => Provider::allocate(engine, length),
                Memory::Heap => Buffer::zeroed(length),
            };
            buffer.fill(1);
            engine.expose(bytes::Bytes::from_owner(buffer))
        });
        exposed = handle.clone().ok();
        responder.answer(handle.map_err(|error| Fault::new(error.to_string())));
    });
    loop {
        engine.wait(Duration::from_secs(1));
    }
}

/// Pulls what a client writes, buffer by buffer, when it is its turn.
async fn write(context: CallContext, gate: Gate, handle: BulkHandle, cut: Cut) -> Result<u64, Fault> {
    let _inside = gate.enter().await;
    let begun = context.handle().with(move |engine| {
        let all = 0..handle.len();
        engine.pull_pipelined(&handle, all, cut.pipeline(), WRITE_TIMEOUT)
    });
    let mut chunks = begun.await.map_err(Fault::new)?.map_err(Fault::new)?;
    let mut seen = 0;
    while let Some(chunk) = poll_fn(|context| Pin::new(&mut chunks).poll_next(context)).await {
        let chunk = chunk.map_err(Fault::new)?;
        seen += match cut.is_checked {
            true => chunk.iter().map(|&byte| u64::from(byte)).sum(),
            false => chunk.len() as u64,
        };
    }
    Ok(seen)
}

/// The memory that this process has in use.
fn resident() -> anyhow::Result<u64> {
    let status = fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next());
    let kibibytes: u64 = kibibytes.context("/proc/self/status has no VmRSS")?.parse()?;
    Ok(kibibytes << 10)
}

/// The writes in progress at once: the target starts transfers, so it bounds the memory that they take.
const WRITES_MAX: usize = 8;
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Options for a target that others than its own parent reach.
pub(super) fn public_options(key: &JobKey, provider: &Provider, bind: SocketAddr) -> EndpointOptions {
    EndpointOptions {
        bind,
        ..options(key, provider, 1)
    }
}
