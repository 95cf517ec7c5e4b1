//! `ropewalk info`: what can carry calls here, and what the operating system offers.

mod probes;

use std::process::ExitCode;

use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use serde::Serialize;

use self::probes::{Probe, probe_all};

/// Show which providers there are on this host, what was probed, and why one is not available
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Write one JSON object
    #[arg(long)]
    json: bool,
}

/// Everything there is to say.
#[derive(Debug, Serialize)]
struct Info {
    version: &'static str,
    probes: Vec<Probe>,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match show(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ropewalk info: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn show(arguments: &Arguments) -> anyhow::Result<()> {
    let info = Info {
        version: env!("CARGO_PKG_VERSION"),
        probes: probe_all(),
    };
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&info)?);
        return Ok(());
    }
    println!("ropewalk {}", info.version);
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["probed", "usable", "what was found"]);
    for probe in &info.probes {
        table.add_row([probe.name, yes_or_no(probe.usable), &probe.found]);
    }
    println!("{table}");
    Ok(())
}

fn yes_or_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}
