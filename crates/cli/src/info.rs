//! `ropewalk info`: what can carry calls here, and what the operating system offers.

mod probes;
mod providers;

use std::process::ExitCode;

use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use serde::Serialize;

use self::{
    probes::{Probe, probe_all},
    providers::{ProviderInfo, provider_infos},
};
use ropewalk_bench::output::print;

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
    providers: Vec<ProviderInfo>,
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
        providers: provider_infos()?,
        probes: probe_all(),
    };
    if arguments.json {
        return print(serde_json::to_string_pretty(&info)?);
    }
    let mut providers = table(["provider", "usable", "what for, or why not"]);
    for provider in &info.providers {
        let said = provider.unavailable.as_deref().unwrap_or(provider.reaches);
        providers.add_row([provider.name, yes_or_no(provider.usable), said]);
    }
    let mut probes = table(["probed", "usable", "what was found"]);
    for probe in &info.probes {
        probes.add_row([probe.name, yes_or_no(probe.usable), &probe.found]);
    }
    print(format_args!("ropewalk {}\n{providers}\n{probes}", info.version))
}

fn table(header: [&str; 3]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    if table.width().is_none_or(|width| width == 0) {
        table.set_width(COLUMNS);
    }
    table.set_header(header);
    table
}

/// The width where no terminal tells its own.
const COLUMNS: u16 = 80;

fn yes_or_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}
