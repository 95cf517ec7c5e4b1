//! How the processes of a job find each other.

use std::{
    collections::BTreeMap,
    env::{self, VarError},
    sync::Arc,
    time::Duration,
};

use ropewalk_fabric::{
    Address, AgentLink, AgentLinkError, BindError, CallTable, EndpointOptions, Identity, JobKey, Role,
    TablePlace, Transports, TransportsError, Welcome,
};
use ropewalk_names::{Incarnation, JobId, Rank};
use ropewalk_pmi_client::{Client, ClientError};
use ropewalk_rpc::{Engine, EngineOptions};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{
    admission::{come_back, leave_late},
    arrivals::Arrivals,
    host_card::{HostCard, listening_address},
    other_launchers::{OtherLauncher, other_launcher},
    roster::{Card, Roster},
};

/// A process that knows its job and is reached by the others.
pub(super) struct Bootstrapped {
    pub(super) rank: Rank,
    pub(super) link: Option<Arc<AgentLink>>,
    pub(super) pmi: Option<Client>,
    pub(super) engine: Engine,
    pub(super) arrivals: Arrivals,
    pub(super) roster: Roster,
    /// The table of calls of this host's ranks, and the hosts of all.
    pub(super) calls: Option<(CallTable, Vec<HostMark>)>,
}

/// Ranks of one host have the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct HostMark(u64);

impl HostMark {
    pub(super) fn number(self) -> u64 {
        self.0
    }

    pub(super) fn with_number(number: u64) -> Self {
        Self(number)
    }

    /// The ranks of a rank's host, ascending.
    pub(super) fn ranks_beside(rank: Rank, marks: &[Self]) -> Vec<Rank> {
        let ranks = marks.iter().zip((0..).map(Rank));
        let beside = ranks.filter(|(mark, _)| Some(*mark) == marks.get(rank.index()));
        beside.map(|(_, rank)| rank).collect()
    }

    /// The mark of the host with this name.
    pub(super) fn of(name: &str) -> Self {
        let mut mark = [0; 8];
        blake3::Hasher::new()
            .update(name.as_bytes())
            .finalize_xof()
            .fill(&mut mark);
        Self(u64::from_le_bytes(mark))
    }
}

/// Learns from the environment who this process is, and tells the others where it is reached.
///
/// Under our own agent the key of this rank comes over the inherited link. Under a foreign process manager rank 0 draws
/// one for all and publishes it in the key-value space, whose readers are then trusted.
/// Without either the process is a job of one, unless another launcher has made it one of several.
pub(super) fn bootstrap() -> Result<Bootstrapped, BootstrapError> {
    let link = AgentLink::from_env()?.map(Arc::new);
    let pmi = Client::from_env()?;
    if pmi.is_none()
        && link.is_none()
        && let Some(OtherLauncher { name, rank, ranks }) = other_launcher(|name| env::var(name).ok())
    {
        let (launcher, rank) = (name, Rank(rank));
        return Err(BootstrapError::NoPmi {
            launcher,
            rank,
            ranks,
        });
    }
    let (rank, size) = pmi
        .as_ref()
        .map_or((Rank(0), 1), |pmi| (Rank(pmi.rank()), pmi.size()));
    let (mut options, host) = match &link {
        Some(link) => {
            let welcome = receive_welcome(link, rank, size)?;
            let silence_max = welcome.detect.clamp(SILENCE.0, SILENCE.1);
            link.send(&ropewalk_fabric::ToAgent::Attach, None)?;
            // Each host has one agent.
            let host = HostMark::of(&welcome.agent.to_string());
            let mut options = EndpointOptions::of_welcome(welcome);
            options.limits.heartbeat = Some(silence_max);
            options.limits.connect_timeout = silence_max;
            (options, host)
        }
        None => {
            super::notices::survive();
            meet_without_agent(&pmi, rank, size)?
        }
    };
    options.transports = transports_from_env()?;
    // A wrong bit of a chunk that is too long for a message would be a wrong result.
    options.bulk_checksum = true;
    let connect_timeout = options.limits.connect_timeout;
    let mut engine = Engine::with_options(
        ropewalk_rpc::bind(options)?,
        EngineOptions {
            eager_size_max: CHUNK_MESSAGE_MAX,
            ..EngineOptions::default()
        },
    );
    let arrivals = Arrivals::serve(&mut engine);
    let incarnation = engine.identity().incarnation;
    let (roster, calls) = match &pmi {
        Some(pmi) if incarnation.0 > 0 && size > 1 => {
            let card = Card {
                rank,
                incarnation,
                address: engine.address().clone(),
            };
            let came_back = come_back((&mut engine, &arrivals), &card, (pmi, size), connect_timeout)?;
            let Some(roster) = came_back else {
                // Nobody is to wait for an answer of this process.
                drop(engine);
                leave_late(pmi)?;
                return Err(BootstrapError::JobOver { rank });
            };
            if let Some(link) = &link {
                link.send(&ropewalk_fabric::ToAgent::Admitted, None)?;
            }
            let table = roster.open_table(rank);
            let calls = table.map(|table| (table, roster.hosts.clone()));
            (roster, calls)
        }
        _ => {
            let found = exchange_addresses(&pmi, (engine.address(), host), rank, size)?;
            let (addresses, mut hosts): (Vec<_>, Vec<HostMark>) = found.into_iter().unzip();
            let is_one_host = hosts.iter().all(|host| *host == hosts[0]);
            let table = share_table(&pmi, rank, &hosts)?;
            let calls = table.map(|table| (table, hosts.clone()));
            if link.is_none() && is_one_host {
                // No agent outlives a process: copies are of use on other ranks of the same host too.
                hosts = (0..u64::from(size)).map(HostMark).collect();
            }
            (Roster::first(addresses, hosts), calls)
        }
    };
    Ok(Bootstrapped {
        rank,
        link,
        pmi,
        engine,
        arrivals,
        roster,
        calls,
    })
}

/// Says if ranks on these hosts have tables of calls.
pub(super) fn has_tables(hosts: &[HostMark]) -> bool {
    let mut numbers = BTreeMap::<HostMark, usize>::new();
    for host in hosts {
        *numbers.entry(*host).or_default() += 1;
    }
    let most = numbers.values().copied().max().unwrap_or_default();
    most <= CallTable::ROWS_MAX && (most >= 2 || numbers.len() == 1)
}

/// The table of a rank's host, which the lowest rank there makes. One that cannot have it posts nothing, and the others
/// do not wait for that. There is none if no two ranks are on one host.
fn share_table(
    pmi: &Option<Client>,
    rank: Rank,
    hosts: &[HostMark],
) -> Result<Option<CallTable>, BootstrapError> {
    if !has_tables(hosts) {
        return Ok(None);
    }
    let here = HostMark::ranks_beside(rank, hosts);
    let own = here.iter().position(|beside| *beside == rank).unwrap_or_default();
    let made = match own {
        0 => CallTable::create(here.len(), own).ok(),
        _ => None,
    };
    let Some(pmi) = pmi else { return Ok(made) };
    if let Some(table) = &made {
        pmi.put(&key_of_table(rank), table.place().to_string())?;
    }
    pmi.fence()?;
    if own == 0 {
        return Ok(made);
    }
    let place = pmi.get(&key_of_table(here[0]))?;
    let place: Option<TablePlace> = place.and_then(|place| place.parse().ok());
    Ok(place.and_then(|place| CallTable::open(&place, here.len(), own).ok()))
}

fn key_of_table(lowest: Rank) -> String {
    format!("ropewalk-calls-{lowest}")
}

/// By which ways the ranks are to reach each other: those that the user names, or else all.
fn transports_from_env() -> Result<Transports, BootstrapError> {
    match env::var(TRANSPORTS_VARIABLE) {
        Ok(named) => Ok(named.parse()?),
        Err(VarError::NotPresent) => Ok(Transports::default()),
        Err(VarError::NotUnicode(named)) => Err(BootstrapError::Transports(TransportsError::Unknown {
            word: named.to_string_lossy().into_owned(),
        })),
    }
}

fn receive_welcome(link: &AgentLink, rank: Rank, size: u32) -> Result<Welcome, BootstrapError> {
    let welcome = link.join()?;
    let named = welcome.key.identity().rank;
    if named != rank || welcome.size != size {
        let found = (named, welcome.size);
        return Err(BootstrapError::Contradiction {
            pmi: (rank, size),
            agent: found,
        });
    }
    Ok(welcome)
}

/// The key that rank 0 draws, and the address on which this rank listens, on a network that all hosts share.
fn meet_without_agent(
    pmi: &Option<Client>,
    rank: Rank,
    size: u32,
) -> Result<(EndpointOptions, HostMark), BootstrapError> {
    let identity = Identity {
        role: Role::Rank,
        rank,
        incarnation: Incarnation(0),
    };
    let interface = env::var(INTERFACE_VARIABLE).ok();
    let own = HostCard::of_this_host(interface.as_deref()).map_err(BootstrapError::Interfaces)?;
    if let Some(name) = interface
        && !own.has_address()
    {
        return Err(BootstrapError::NoInterface { name });
    }
    let mut secret = [0; 48];
    let Some(pmi) = pmi else {
        draw(&mut secret)?;
        return Ok((options_from(&secret, identity), own.mark));
    };
    if rank == Rank(0) {
        draw(&mut secret)?;
        let text: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        pmi.put(KEY_OF_SECRET, &text)?;
    }
    pmi.put(&key_of_host(rank), own.to_string())?;
    pmi.fence()?;
    read_secret(pmi, &mut secret)?;
    let mut options = options_from(&secret, identity);
    let cards = (0..size).map(Rank).map(|other| {
        let card = pmi.get(&key_of_host(other))?;
        let card = card.and_then(|text| text.parse::<HostCard>().ok());
        card.ok_or(BootstrapError::NotJoined { rank: other })
    });
    let cards = cards.collect::<Result<Vec<_>, _>>()?;
    let address = listening_address(&own, &cards).map_err(BootstrapError::Interfaces)?;
    options.bind.set_ip(address);
    Ok((options, own.mark))
}

fn key_of_host(rank: Rank) -> String {
    format!("ropewalk-host-{rank}")
}

fn read_secret(pmi: &Client, secret: &mut [u8; 48]) -> Result<(), BootstrapError> {
    let text = pmi.get(KEY_OF_SECRET)?.unwrap_or_default();
    let pairs = text
        .as_bytes()
        .chunks_exact(2)
        .map(|pair| str::from_utf8(pair).ok());
    let bytes: Option<Vec<u8>> = pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect();
    match bytes {
        Some(bytes) if bytes.len() == secret.len() => {
            secret.copy_from_slice(&bytes);
            Ok(())
        }
        _ => Err(BootstrapError::Missing {
            key: KEY_OF_SECRET.to_owned(),
        }),
    }
}

fn draw(secret: &mut [u8]) -> Result<(), BootstrapError> {
    getrandom::fill(secret).map_err(|error| BootstrapError::Random(std::io::Error::other(error)))
}

fn options_from(secret: &[u8; 48], identity: Identity) -> EndpointOptions {
    let (mut job, mut key) = ([0; 16], [0; 32]);
    job.copy_from_slice(&secret[..16]);
    key.copy_from_slice(&secret[16..]);
    EndpointOptions::new(JobId(job), JobKey::from_bytes(key), identity)
}

/// Tells the others where this rank is reached and on which host it is, and learns that of all.
fn exchange_addresses(
    pmi: &Option<Client>,
    (address, host): (&Address, HostMark),
    rank: Rank,
    size: u32,
) -> Result<Vec<(Address, HostMark)>, BootstrapError> {
    let mut found = vec![(address.clone(), host); size as usize];
    let Some(pmi) = pmi else { return Ok(found) };
    pmi.put(&key_of_address(rank), format!("{address}#{:016x}", host.0))?;
    pmi.fence()?;
    for other in (0..size).map(Rank).filter(|other| *other != rank) {
        let key = key_of_address(other);
        let text = pmi.get(&key)?.unwrap_or_default();
        let parts = text.rsplit_once('#').and_then(|(address, host)| {
            let host = u64::from_str_radix(host, 16).ok()?;
            Some((address.parse().ok()?, HostMark(host)))
        });
        found[other.index()] = parts.ok_or(BootstrapError::NotJoined { rank: other })?;
    }
    Ok(found)
}

pub(super) fn key_of_address(rank: Rank) -> String {
    format!("ropewalk-address-{rank}")
}

/// The largest message: a chunk of 1 MiB, with elements of some hundred bytes, and what is sent with it.
const CHUNK_MESSAGE_MAX: usize = (1 << 20) + (64 << 10);
/// A process of a job of ours that is silent for the job's detection time is gone around from then on, within these
/// bounds: a busy machine makes any process silent for a moment.
const SILENCE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
const TRANSPORTS_VARIABLE: &str = "ROPEWALK_TRANSPORTS";
const INTERFACE_VARIABLE: &str = "ROPEWALK_INTERFACE";
const KEY_OF_SECRET: &str = "ropewalk-secret";

/// Why a process could not join its job.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BootstrapError {
    /// The link to the agent is broken.
    #[error(transparent)]
    AgentLink(#[from] AgentLinkError),
    /// The others leave the job, whose work is done, and this process has left it too: it can only end.
    #[error("rank {rank} has come back when the others had done their work; there is nothing left to do")]
    JobOver {
        /// This rank.
        rank: Rank,
    },
    /// This process replaces one that failed, and no other rank can be reached.
    #[error(
        "rank {rank} has come back and found no other rank of the job: all have ended, or were lost too, or none does \
         reductions"
    )]
    NobodyThere {
        /// This rank.
        rank: Rank,
    },
    /// The endpoint could not be made.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The process manager and the agent do not agree.
    #[error("PMI says rank {} of {}, the agent rank {} of {}", pmi.0, pmi.1, agent.0, agent.1)]
    Contradiction {
        /// Rank and size as PMI has them.
        pmi: (Rank, u32),
        /// Rank and size as the agent has them.
        agent: (Rank, u32),
    },
    /// The addresses of this host are not known, or none leads to the other hosts.
    #[error(
        "cannot tell at which address the other hosts reach this one; ROPEWALK_INTERFACE=NAME names the interface to \
         use"
    )]
    Interfaces(#[source] std::io::Error),
    /// `ROPEWALK_INTERFACE` names none.
    #[error("ROPEWALK_INTERFACE={name}: this host has no such interface, or it has no address")]
    NoInterface {
        /// Its value.
        name: String,
    },
    /// Another rank did not publish what it should.
    #[error("the key-value space has no usable {key:?}; do all ranks of the job use the same ropewalk?")]
    Missing {
        /// Under which key.
        key: String,
    },
    /// Another launcher has made this process one of several, and does not speak PMI.
    #[error(
        "{launcher} has started this process as rank {rank} of {ranks}, but without PMI, by which ranks find each \
         other; start the job by `ropewalk run -n {ranks}`, by MPICH's mpiexec or by `srun --mpi=pmi2`"
    )]
    NoPmi {
        /// The name of the launcher.
        launcher: &'static str,
        /// The rank that the launcher gave this process.
        rank: Rank,
        /// How many processes it started.
        ranks: u32,
    },
    /// Another rank has not said where it is reached.
    #[error(
        "rank {rank} has not joined the job: it was lost before it could, or does not use the same ropewalk; a job \
         survives the loss of ranks once all have joined"
    )]
    NotJoined {
        /// The rank.
        rank: Rank,
    },
    /// The process manager failed.
    #[error(transparent)]
    Pmi(#[from] ClientError),
    /// The operating system has no random numbers.
    #[error("no random numbers for the job's key")]
    Random(#[source] std::io::Error),
    /// `ROPEWALK_TRANSPORTS` names none.
    #[error("ROPEWALK_TRANSPORTS cannot be understood")]
    Transports(#[from] TransportsError),
    /// The progress thread could not be started.
    #[error("cannot start the progress thread")]
    Thread(#[source] std::io::Error),
}
