//! `ropewalk partner`: a host's part in the copies of a job's checkpoints. `ropewalk run` starts one on each host.

use std::{
    io::{self, Write},
    net::{IpAddr, SocketAddr, UdpSocket},
    path::PathBuf,
    process::{self, ExitCode},
    thread,
};

use anyhow::{Context, bail};
use ropewalk_checkpoint::{Held, PartnerError, Record, Service, ServiceOptions, Totals, history_of_host};
use ropewalk_fabric::{AgentLink, EndpointOptions};
use ropewalk_pmi_client::Client;
use serde::{Deserialize, Serialize};
use tokio::{runtime, signal::unix};

/// One host's part in the copies of checkpoints
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The directory of the job's checkpoints on each host.
    #[arg(long)]
    directory: PathBuf,
    /// The number of the start.
    #[arg(long)]
    start: u64,
    /// The address of a host towards which this one is to be reached.
    #[arg(long)]
    towards: IpAddr,
    /// The hosts, in order.
    #[arg(long, value_delimiter = ',')]
    names: Vec<String>,
    /// On which host so many ranks in a row run, as HOST:COUNT.
    #[arg(long, value_delimiter = ',')]
    ranks: Vec<String>,
    /// After how many starts in vain an older generation is taken.
    #[arg(long)]
    restarts_max: u32,
}

/// What such a process tells who has started it: one object a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Said {
    /// The ranks can be started.
    Ready(Ready),
    /// They cannot, because of one of the hosts if it is named.
    Failed { host: Option<String>, why: String },
    /// All ranks have saved this.
    Newest { generation: u64, step: u64, ranks: u32 },
    /// What its host knows of the job when it is over, as a journal.
    Journal { text: String },
    /// Something that a user should know.
    Note(String),
}

/// What ranks are started from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ready {
    /// Generation, step and number of ranks.
    pub(crate) restore: Option<(u64, u64, u32)>,
    pub(crate) next: u64,
    pub(crate) root: Option<PathBuf>,
    pub(crate) fetched: usize,
    /// What was put aside, and the host.
    pub(crate) quarantined: Vec<(usize, String)>,
    pub(crate) stuck: Vec<(usize, String)>,
    /// What happened before, as a line of a journal.
    before: Option<String>,
}

impl Ready {
    /// What happened before, if that is known.
    pub(crate) fn before(&self) -> Option<Totals> {
        let line = self.before.as_ref()?;
        match Record::parse(line.trim_end().as_bytes()) {
            Some(Record::Before(totals)) => Some(totals),
            _ => None,
        }
    }
}

/// The ranks of a job on its hosts, as an argument.
pub(crate) fn encode_ranks(host_of_rank: &[usize]) -> String {
    let runs = host_of_rank.chunk_by(|a, b| a == b);
    let runs: Vec<String> = runs.map(|run| format!("{}:{}", run[0], run.len())).collect();
    runs.join(",")
}

fn decode_ranks(runs: &[String], hosts: usize) -> anyhow::Result<Vec<usize>> {
    let mut host_of_rank = Vec::new();
    for run in runs {
        let read = run.split_once(':').and_then(|(host, count)| {
            let (host, count): (usize, u32) = (host.parse().ok()?, count.parse().ok()?);
            (host < hosts).then_some((host, count))
        });
        let (host, count) = read.with_context(|| format!("{run:?} is no HOST:COUNT"))?;
        host_of_rank.extend(std::iter::repeat_n(host, count as usize));
    }
    Ok(host_of_rank)
}

/// Runs the command until somebody ends it.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let Err(error) = serve(arguments);
    let host = match error.downcast_ref() {
        Some(PartnerError::Call { host, .. }) => Some(host.clone()),
        _ => None,
    };
    let why = format!("{error:#}");
    // Without a reader nobody wants it.
    let _ = say(&Said::Failed { host, why });
    ExitCode::FAILURE
}

fn serve(arguments: &Arguments) -> anyhow::Result<std::convert::Infallible> {
    let pmi = Client::from_env()?.context("this is started by `ropewalk run --partner`")?;
    let host = pmi.rank() as usize;
    if pmi.size() as usize != arguments.names.len() {
        bail!(
            "{} names are not those of {} hosts",
            arguments.names.len(),
            pmi.size()
        );
    }
    let options = ServiceOptions {
        directory: arguments.directory.clone(),
        host,
        names: arguments.names.clone(),
        host_of_rank: decode_ranks(&arguments.ranks, arguments.names.len())?,
        start: Some(arguments.start),
        restarts_max: arguments.restarts_max,
    };
    tell_at_the_end(arguments.directory.clone())?;
    let mut service = Service::start(endpoint(arguments.towards)?, options)?;
    pmi.put(&key(host), service.address().to_string())?;
    pmi.fence()?;
    let mut addresses = Vec::new();
    for (other, name) in arguments.names.iter().enumerate() {
        let address = pmi.get(&key(other))?.and_then(|text| text.parse().ok());
        addresses.push(address.with_context(|| format!("host {name} has no address"))?);
    }
    service.set_addresses(addresses);
    // Nobody is called before all can answer.
    pmi.fence()?;
    if host == 0 {
        let report = service.recover()?;
        say(&Said::Ready(Ready {
            restore: report
                .restore
                .map(|held| (held.generation, held.step, held.ranks)),
            next: report.next,
            root: report.root,
            fetched: report.fetched,
            quarantined: report.quarantined,
            stuck: report.stuck,
            before: report.before.map(|totals| Record::Before(totals).encode()),
        }))?;
    }
    let note = |text: String| drop(say(&Said::Note(text)));
    let newest = |held: Held| {
        let Held {
            generation,
            step,
            ranks,
        } = held;
        // One is enough.
        if host == 0 {
            drop(say(&Said::Newest {
                generation,
                step,
                ranks,
            }));
        }
    };
    Ok(service.guard(note, newest)?)
}

/// Once somebody ends this process, it tells what its host knows of the job, and goes.
fn tell_at_the_end(directory: PathBuf) -> anyhow::Result<()> {
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
    thread.spawn(wait).context("cannot start a thread")?;
    Ok(())
}

/// An endpoint with the key that the agent has given, on the interface towards the other hosts.
fn endpoint(towards: IpAddr) -> anyhow::Result<EndpointOptions> {
    let link =
        AgentLink::from_env()?.context("there is no agent: this is started by `ropewalk run --partner`")?;
    let welcome = link.join()?;
    let any: IpAddr = match towards {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    // The discard service's port; nothing is sent.
    socket
        .connect((towards, 9))
        .with_context(|| format!("there is no way to {towards}"))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told as an argument is understood; a host that there is not is refused.
    #[test]
    fn ranks_are_told() {
        let hosts = [0, 0, 1, 2, 0];
        let text = encode_ranks(&hosts);
        assert_eq!(text, "0:2,1:1,2:1,0:1");
        let words: Vec<String> = text.split(',').map(str::to_owned).collect();
        assert_eq!(decode_ranks(&words, 3).unwrap(), hosts);
        assert!(decode_ranks(&words, 2).is_err());
        assert!(decode_ranks(&["1".to_owned()], 2).is_err());
    }
}
