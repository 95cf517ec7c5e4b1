//! The process that copies a job's checkpoints on one host.

use std::{
    convert::Infallible,
    ffi::OsString,
    io::{self, Write},
    net::{IpAddr, SocketAddr, UdpSocket},
    path::PathBuf,
    process::{self, ExitCode},
    thread,
};

use ropewalk_checkpoint_core::partner::{PartnerOrders, PartnerOrdersError, Said};
use ropewalk_fabric::{AgentLink, AgentLinkError, EndpointOptions};
use ropewalk_pmi_client::{Client, ClientError};
use thiserror::Error;
use tokio::{runtime, signal::unix};

use super::{
    copier::with_causes,
    journals::history_of_host,
    partner_error::PartnerError,
    service::{Service, ServiceOptions},
};

/// Copies what another host's ranks save, with these arguments, until somebody ends the process.
pub fn partner_main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let Err(error) = serve(arguments);
    let host = match &error {
        ProcessError::Partner(PartnerError::Call { host, .. }) => Some(host.clone()),
        _ => None,
    };
    let why = with_causes(&error);
    // Without a reader nobody wants it.
    let _ = say(&Said::Failed { host, why });
    ExitCode::FAILURE
}

fn serve(arguments: impl IntoIterator<Item = OsString>) -> Result<Infallible, ProcessError> {
    let pmi = Client::from_env()?.ok_or(ProcessError::Alone)?;
    let orders = PartnerOrders::from_arguments(arguments)?;
    let host = pmi.rank() as usize;
    let names = orders.names;
    if pmi.size() as usize != names.len() {
        return Err(ProcessError::Names {
            names: names.len(),
            hosts: pmi.size(),
        });
    }
    let options = ServiceOptions {
        directory: orders.directory.clone(),
        host,
        names: names.clone(),
        host_of_rank: orders.host_of_rank,
        start: Some(orders.start),
        restarts_max: orders.restarts_max,
    };
    tell_at_the_end(orders.directory)?;
    let mut service = Service::start(endpoint(orders.towards)?, options)?;
    pmi.put(&key(host), service.address().to_string())?;
    pmi.fence()?;
    let mut addresses = Vec::new();
    for (other, host) in names.into_iter().enumerate() {
        let address = pmi.get(&key(other))?.and_then(|text| text.parse().ok());
        addresses.push(address.ok_or(ProcessError::Address { host })?);
    }
    service.set_addresses(addresses);
    // Nobody is called before all can answer.
    pmi.fence()?;
    if host == 0 {
        say(&Said::Ready(service.recover()?))?;
    }
    let note = |text: String| drop(say(&Said::Note(text)));
    let newest = |held| {
        // One is enough.
        if host == 0 {
            drop(say(&Said::Newest(held)));
        }
    };
    Ok(service.guard(note, newest)?)
}

/// Once somebody ends this process, it tells what its host knows of the job, and goes.
fn tell_at_the_end(directory: PathBuf) -> io::Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
    let mut ended = {
        let _inside = runtime.enter();
        unix::signal(unix::SignalKind::terminate())?
    };
    let wait = move || {
        runtime.block_on(ended.recv());
        // What cannot be read, or told to nobody, is not known.
        if let Ok(Some(history)) = history_of_host(&directory) {
            let text = history.encode();
            drop(say(&Said::Journal { text }));
        }
        process::exit(0);
    };
    let thread = thread::Builder::new().name("ropewalk-end".to_owned());
    thread.spawn(wait)?;
    Ok(())
}

/// An endpoint with the key that the agent has given, on the interface towards the other hosts.
fn endpoint(towards: IpAddr) -> Result<EndpointOptions, ProcessError> {
    let link = AgentLink::from_env()?.ok_or(ProcessError::Alone)?;
    let welcome = link.join()?;
    let any: IpAddr = match towards {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    // The discard service's port; nothing is sent.
    let connected = socket.connect((towards, 9));
    connected.map_err(|source| ProcessError::Way { towards, source })?;
    Ok(EndpointOptions {
        bind: SocketAddr::new(socket.local_addr()?.ip(), 0),
        ..EndpointOptions::of_welcome(welcome)
    })
}

fn key(host: usize) -> String {
    format!("ropewalk-partner-{host}")
}

fn say(said: &Said) -> io::Result<()> {
    let mut line = serde_json::to_string(said)?;
    line.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.flush()
}

/// Why the process cannot copy anything.
#[derive(Debug, Error)]
enum ProcessError {
    #[error("host {host} has no address")]
    Address { host: String },
    #[error(transparent)]
    Agent(#[from] AgentLinkError),
    #[error("no job was started with this process: it is started beside a job that saves, not by hand")]
    Alone,
    #[error("{names} names are not those of {hosts} hosts")]
    Names { names: usize, hosts: u32 },
    #[error(transparent)]
    Orders(#[from] PartnerOrdersError),
    #[error(transparent)]
    Partner(#[from] PartnerError),
    #[error(transparent)]
    ProcessManager(#[from] ClientError),
    #[error("the system refuses what a partner needs")]
    System(#[from] io::Error),
    #[error("there is no way to {towards}")]
    Way { towards: IpAddr, source: io::Error },
}
