use std::{process::ExitCode, time::Duration};

use anyhow::anyhow;
use comfy_table::Table;
use ropewalk_bench::output::print;
use ropewalk_launch::JobSpec;
use ropewalk_sim::launch::{self, Costs, Setting, Violation};
use serde::Serialize;

use super::seeds::{End, Seeds};
use crate::table::table_of;
use crate::times::{seconds, shown};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// How many hosts
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    hosts: u32,
    /// How many ranks on all of them together
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = ranks())]
    ranks: u32,
    /// How many agents each node of the tree starts; with as many as there are hosts the tree is a star
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    arity: Vec<u32>,
    /// A node's own time to start the command that starts an agent elsewhere
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = seconds)]
    start_agent: f64,
    /// The time until an agent that was started has connected
    #[arg(long, value_name = "TIME", default_value = "150ms", value_parser = seconds)]
    login: f64,
    /// An agent's own time to start a rank
    #[arg(long, value_name = "TIME", default_value = "400us", value_parser = seconds)]
    start_rank: f64,
    /// Write one JSON object a row
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    seeds: Seeds,
}

fn ranks() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=JobSpec::RANKS_MAX.into())
}

#[derive(Debug, Serialize)]
struct Row {
    arity: u32,
    hosts: u32,
    ranks: u32,
    last_agent_s: f64,
    last_rank_s: f64,
    known_s: f64,
    messages_to_launcher: u64,
    events: u64,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let judge = |seed| match launch::run(&Setting::random(seed)) {
        Ok(outcome) => match outcome.verdict {
            Some(verdict) if verdict.is_success() => End::Well,
            _ => End::Failed,
        },
        Err(violation) => End::Broken(format!("{violation:?}")),
    };
    if let Some(code) = arguments.seeds.search("launch", judge)? {
        return Ok(code);
    }
    let arities = match arguments.arity.as_slice() {
        [] => vec![2, 4, 8, 16, 32, 64, 128, arguments.hosts],
        arities => arities.to_vec(),
    };
    let mut rows = Vec::new();
    for arity in arities {
        let row = arguments.row(arity)?;
        if arguments.json {
            print(serde_json::to_string(&row)?)?;
        }
        rows.push(row);
    }
    if !arguments.json {
        print(table(&rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Arguments {
    fn row(&self, arity: u32) -> anyhow::Result<Row> {
        let costs = Costs {
            start_agent: Duration::try_from_secs_f64(self.start_agent)?,
            login: Duration::try_from_secs_f64(self.login)?,
            start_rank: Duration::try_from_secs_f64(self.start_rank)?,
            ..Costs::default()
        };
        let setting = Setting::start(self.hosts, self.ranks, arity, costs);
        let outcome = launch::run(&setting).map_err(|violation| match violation {
            Violation::Hang { .. } => anyhow!("the start takes longer than an hour"),
            violation => anyhow!("a promise is broken, please report it: {violation:?}"),
        })?;
        Ok(Row {
            arity,
            hosts: self.hosts,
            ranks: self.ranks,
            last_agent_s: outcome.start.agents.as_seconds(),
            last_rank_s: outcome.start.ranks.as_seconds(),
            known_s: outcome.start.known.as_seconds(),
            messages_to_launcher: outcome.messages_to_launcher,
            events: outcome.events,
        })
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = table_of(&[
        "arity",
        "last agent",
        "last rank",
        "known to the launcher",
        "messages to the launcher",
    ]);
    for row in rows {
        table.add_row([
            match row.arity >= row.hosts {
                true => "star".to_owned(),
                false => row.arity.to_string(),
            },
            shown(row.last_agent_s),
            shown(row.last_rank_s),
            shown(row.known_s),
            row.messages_to_launcher.to_string(),
        ]);
    }
    table
}
