//! `ropewalk bench rpc`: which cases are measured over which providers, and what is shown of it.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, bail, ensure};
use ropewalk_rpc::{Address, Engine, JobKey};

use super::{
    cases::{Case, points::Points},
    crowd::allow_descriptors,
    origin::Origin,
    output::print,
    provider::Provider,
    row::{markdown, table},
    rows::Rows,
    target::{public_options, serve},
    timing::Pace,
};

/// Measure remote calls and bulk transfers between two processes, beside what the machine can do
///
/// Each value is the median of several rounds, in turns with its floor: the same with nothing but a ring in shared
/// memory, bare sockets, process_vm_readv or a copy. On one host the second process is started by the command. For
/// two hosts, run it with --serve on one and with --connect on the other, with the same --key-file.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Write one JSON array instead of a table, each row on a line of its own and as soon as it is measured
    #[arg(long)]
    json: bool,
    /// Write a table for a document
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// End within 40 seconds, with fewer rounds
    #[arg(long)]
    quick: bool,
    /// Provider that carries the calls; may be repeated [default: shm and tcp]
    #[arg(
        long,
        value_name = "auto|ofi[:NAME]|shm|tcp|tcp-encrypted",
        value_delimiter = ','
    )]
    provider: Vec<Provider>,
    /// Case to measure; may be repeated [default: the first six]
    #[arg(long, value_enum, value_name = "CASE", value_delimiter = ',')]
    case: Vec<Case>,
    /// Measure against a process that serves already
    #[arg(long, value_name = "ADDRESS", requires = "key_file", conflicts_with = "serve")]
    connect: Option<Address>,
    /// Serve those who measure from elsewhere, until interrupted
    #[arg(long, requires = "key_file")]
    serve: bool,
    /// Where to serve
    #[arg(
        long,
        value_name = "IP:PORT",
        default_value = "127.0.0.1:0",
        requires = "serve"
    )]
    bind: SocketAddr,
    /// The secret of both sides, 64 hexadecimal digits; drawn by the one that serves if there is no such file
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    #[command(flatten)]
    points: Points,
}

/// Measures, or serves.
///
/// # Errors
/// If something cannot be measured, or nobody takes the results.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    allow_descriptors();
    if arguments.serve {
        return serve_others(arguments);
    }
    let mut results = Results {
        rows: match arguments.json {
            true => Rows::as_json()?,
            false => Rows::kept(),
        },
        failures: Vec::new(),
    };
    match &arguments.connect {
        Some(target) => measure_elsewhere(arguments, target, &mut results)?,
        None => measure_here(arguments, &mut results)?,
    }
    let rows = results.rows.finish()?;
    if arguments.markdown {
        print(markdown(&rows))?;
    } else if !arguments.json {
        print(table(&rows))?;
    }
    let failures = results.failures;
    ensure!(failures.is_empty(), "not measured: {}", failures.join("; "));
    Ok(())
}

/// The rows of all measurements, and the failed measurements with the reasons.
struct Results {
    rows: Rows,
    failures: Vec<String>,
}

impl Results {
    /// Returns whether the case was measured.
    ///
    /// # Errors
    /// If nobody takes the rows.
    fn note(
        &mut self,
        case: Case,
        provider: &Provider,
        measured: anyhow::Result<()>,
    ) -> anyhow::Result<bool> {
        self.rows.check()?;
        if let Err(error) = &measured {
            let failure = format!("{} over {provider}: {error:#}", case.name());
            self.failures.push(failure);
        }
        Ok(measured.is_ok())
    }
}

fn measure_here(arguments: &Arguments, results: &mut Results) -> anyhow::Result<()> {
    let key = JobKey::generate()?;
    let providers = arguments.providers(&[Provider::Shm, Provider::Tcp]);
    let mut schedule = arguments.schedule(&providers);
    let points = arguments.points();
    for provider in providers {
        let mut origin = Origin::start(&key, &provider)?;
        for case in arguments.cases() {
            let pace = schedule.next(case, &provider);
            let measured = if case.needs_own_target() {
                case.measure_own(&key, &provider, &pace, &mut results.rows)
            } else {
                case.measure(&mut origin, &pace, &points, &mut results.rows)
            };
            if !results.note(case, &provider, measured)? && !case.needs_own_target() {
                // The next cases need one that answers.
                origin = Origin::start(&key, &provider)?;
            }
        }
    }
    Ok(())
}

fn measure_elsewhere(arguments: &Arguments, target: &Address, results: &mut Results) -> anyhow::Result<()> {
    let path = arguments.key_file()?;
    let key = JobKey::read_from(path).with_context(|| format!("cannot read {}", path.display()))?;
    let providers = arguments.providers(&[Provider::Tcp]);
    let mut schedule = arguments.schedule(&providers);
    let points = arguments.points();
    for provider in providers {
        let mut origin = Origin::connect(&key, &provider, target)?;
        for case in arguments.cases() {
            let pace = schedule.next(case, &provider);
            if case.needs_own_target() {
                ensure!(
                    arguments.case.is_empty(),
                    "{} needs a target that may be stopped and killed: run it without --connect",
                    case.name()
                );
                continue;
            }
            let measured = case.measure(&mut origin, &pace, &points, &mut results.rows);
            results.note(case, &provider, measured)?;
        }
    }
    Ok(())
}

fn serve_others(arguments: &Arguments) -> anyhow::Result<()> {
    let provider = match arguments.provider[..] {
        [] => &Provider::Auto,
        [ref provider] => provider,
        _ => bail!("--serve serves over one --provider, or over what those who connect choose"),
    };
    let path = arguments.key_file()?;
    let key =
        JobKey::read_from_or_make(path).with_context(|| format!("cannot read or make {}", path.display()))?;
    let options = public_options(&key, provider, arguments.bind);
    let mut engine = Engine::new(ropewalk_rpc::bind(options)?);
    print(engine.address())?;
    serve(&mut engine, arguments.bind.ip())
}

impl Arguments {
    fn cases(&self) -> Vec<Case> {
        if self.case.is_empty() {
            Case::DEFAULT.to_vec()
        } else {
            self.case.clone()
        }
    }

    fn providers(&self, default: &[Provider]) -> Vec<Provider> {
        if self.provider.is_empty() {
            default.to_vec()
        } else {
            self.provider.clone()
        }
    }

    fn points(&self) -> Points {
        match self.quick {
            true => self.points.quick(),
            false => self.points.clone(),
        }
    }

    fn schedule(&self, providers: &[Provider]) -> Schedule {
        let cases = self.cases();
        let points = self.points();
        let measurements = providers
            .iter()
            .flat_map(|provider| cases.iter().map(|case| case.measurements(provider, &points)));
        Schedule {
            is_quick: self.quick,
            start: Instant::now(),
            left: measurements.sum(),
            points,
        }
    }

    fn key_file(&self) -> anyhow::Result<&Path> {
        self.key_file.as_deref().context("--key-file is missing")
    }
}

/// How much time each case gets.
struct Schedule {
    is_quick: bool,
    start: Instant,
    /// How many measurements are left to do.
    left: u32,
    points: Points,
}

impl Schedule {
    /// The pace of the next case.
    fn next(&mut self, case: Case, provider: &Provider) -> Pace {
        let left = self.left;
        self.left = left.saturating_sub(case.measurements(provider, &self.points));
        match self.is_quick {
            true => Pace::quick(self.start.elapsed(), left),
            false => Pace::THOROUGH,
        }
    }
}
