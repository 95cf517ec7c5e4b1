//! Asking for the hosts of all ranks: in PMI-2 by one attribute of the job, in PMI-1 by a request for each rank.

use std::{env, process::Stdio, time::Instant};

use anyhow::{Context, bail, ensure};
use ropewalk_pmi::Dialect;
use ropewalk_pmi_client::Client;
use serde::{Deserialize, Serialize};

use crate::{manager::Manager, median, slurm::host_name};

/// How many ranks ask, and how often.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many ranks, in turn.
    #[arg(long, value_delimiter = ',', default_values_t = [16, 64, 256])]
    ranks: Vec<u32>,
    /// How often each is measured, in turns; the median is shown.
    #[arg(long, default_value_t = 3)]
    repetitions: usize,
    /// Write one JSON object a row, with all times.
    #[arg(long)]
    json: bool,
    /// Be a rank that asks.
    #[arg(long, hide = true)]
    asks: Option<Way>,
}

/// How a rank learns the hosts of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Way {
    /// It asks for an attribute of the job, over PMI-2.
    Attribute,
    /// It puts its own host, meets the others, and gets the host of each rank, over PMI-1.
    Gets,
}

/// The times of one contestant.
#[derive(Serialize)]
struct Row {
    ranks: u32,
    manager: &'static str,
    way: Way,
    /// From the start of the command to its end.
    seconds: Vec<f64>,
    /// Requests that all ranks made to learn the hosts, by their own count.
    requests: u64,
}

/// The last line of a rank.
#[derive(Serialize, Deserialize)]
struct Asked {
    requests: u64,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if let Some(way) = arguments.asks {
        return ask(way);
    }
    if !arguments.json {
        println!("| ranks | process manager | asking | ms | requests |");
        println!("|---|---|---|---|---|");
    }
    for &ranks in &arguments.ranks {
        let mut rows: Vec<_> = [Manager::Ropewalk, Manager::Hydra]
            .into_iter()
            .flat_map(|manager| [Way::Attribute, Way::Gets].map(|way| (manager, way)))
            .map(|(manager, way)| (manager, Row::new(ranks, manager, way)))
            .collect();
        for _ in 0..arguments.repetitions.max(1) {
            for (manager, row) in &mut rows {
                row.measure(*manager)?;
            }
        }
        for (_, row) in rows {
            match arguments.json {
                true => println!("{}", serde_json::to_string(&row)?),
                false => println!(
                    "| {ranks} | {} | {} | {:.1} | {} |",
                    row.manager,
                    row.way.name(),
                    median(row.seconds) * 1e3,
                    row.requests
                ),
            }
        }
    }
    Ok(())
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Attribute => "attribute",
            Self::Gets => "gets",
        }
    }
}

impl Row {
    fn new(ranks: u32, manager: Manager, way: Way) -> Self {
        Self {
            ranks,
            manager: manager.name(),
            way,
            seconds: Vec::new(),
            requests: 0,
        }
    }

    fn measure(&mut self, manager: Manager) -> anyhow::Result<()> {
        let own = env::current_exe().context("where this program is cannot be found")?;
        let mut command = manager.command()?;
        command
            .args(["-n", &self.ranks.to_string()])
            .arg(own)
            .args(["mapping", "--asks", self.way.name()])
            .stderr(Stdio::inherit())
            .stdout(Stdio::piped());
        let begin = Instant::now();
        let output = command
            .spawn()
            .and_then(|child| child.wait_with_output())
            .with_context(|| format!("cannot run {command:?}; Hydra comes with the Debian package mpich"))?;
        self.seconds.push(begin.elapsed().as_secs_f64());
        ensure!(
            output.status.success(),
            "{command:?} ended with {}",
            output.status
        );
        let text = String::from_utf8_lossy(&output.stdout);
        let asked: Vec<Asked> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        ensure!(
            asked.len() == self.ranks as usize,
            "{} of {} ranks asked",
            asked.len(),
            self.ranks
        );
        self.requests = asked.iter().map(|asked| asked.requests).sum();
        Ok(())
    }
}

/// A rank: learns the hosts of all and says how many requests that took. Requests to begin and to end are not among
/// them: each rank makes them in either way.
fn ask(way: Way) -> anyhow::Result<()> {
    let dialect = match way {
        Way::Attribute => Dialect::Pmi2,
        Way::Gets => Dialect::Pmi1,
    };
    let Some(client) = Client::from_env_speaking(dialect)? else {
        bail!("there is no process manager to be asked");
    };
    let mut requests = 0;
    match way {
        Way::Attribute => {
            client
                .job_attribute("PMI_process_mapping")?
                .context("there is no process mapping")?;
            requests += 1;
        }
        Way::Gets => {
            client.put(&format!("host-{}", client.rank()), host_name()?)?;
            client.fence()?;
            requests += 2;
            for rank in 0..client.size() {
                client
                    .get(&format!("host-{rank}"))?
                    .with_context(|| format!("rank {rank} has no host"))?;
                requests += 1;
            }
        }
    }
    client.finalize()?;
    println!("{}", serde_json::to_string(&Asked { requests })?);
    Ok(())
}
