//! How many requests a process manager answers, beside an echo over a socketpair.

mod far;

use std::{
    env,
    io::{Read, Write},
    os::unix::net::UnixStream,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use ropewalk_pmi::Dialect;
use ropewalk_pmi_client::Client;
use serde::{Deserialize, Serialize};

use crate::{median, ropewalk};

/// How long and how often is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How long each measurement takes in one round, in milliseconds.
    #[arg(long, default_value_t = 100)]
    turn_ms: u64,
    /// How often all are measured in turns; the medians are shown.
    #[arg(long, default_value_t = 7)]
    rounds: u32,
    /// How far away the process manager is that several threads ask over the C API, in microseconds.
    #[arg(long, default_value_t = 200)]
    delay_us: u64,
    /// How many threads of one process ask over the C API, in turn.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8])]
    threads: Vec<u32>,
    /// Requests of these threads.
    #[arg(long, value_enum, default_value_t = Requests::Put)]
    requests: Requests,
    /// Only these threads, and one JSON object a row, with all rates.
    #[arg(long)]
    json: bool,
    /// Be the process between a process manager and one that asks from afar: that one's program, library, dialect.
    #[arg(long, hide = true, num_args = 3)]
    far: Vec<String>,
    /// Be the process that asks: what the process managers are given to run.
    #[arg(long, hide = true)]
    asks: bool,
}

/// Requests of threads over the C API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Requests {
    Put,
    /// In turns with withdrawals, as in the paper's figure 4.
    Publish,
}

impl Requests {
    fn word(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Publish => "publish",
        }
    }
}

/// One thing that is done as often as possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Case {
    Echo,
    Get,
    Put,
    PutByThreads,
    /// Services are published and withdrawn, as in the paper's figure 4.
    PublishByThreads,
}

/// So many of one thing, in a second.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    case: Case,
    in_flight: usize,
    per_second: f64,
}

const CASES: [(Case, usize); 10] = [
    (Case::Echo, 1),
    (Case::Put, 1),
    (Case::Get, 1),
    (Case::Echo, 32),
    (Case::Put, 32),
    (Case::Get, 32),
    (Case::PutByThreads, 1),
    (Case::PutByThreads, 8),
    (Case::PublishByThreads, 1),
    (Case::PublishByThreads, 8),
];

/// Runs the benchmark.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.asks {
        return ask(arguments);
    }
    if !arguments.far.is_empty() {
        return far::run_far(&arguments.far, arguments);
    }
    let own = env::current_exe().context("where this program is cannot be found")?;
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header([
        "process manager",
        "request",
        "in flight",
        "per second",
        "echo",
        "of echo",
    ]);
    let own = own.to_string_lossy();
    let ropewalk = ropewalk()?.to_string_lossy().into_owned();
    if arguments.json {
        for row in far::measure(&own, &ropewalk, arguments)? {
            println!("{}", serde_json::to_string(&row)?);
        }
        return Ok(());
    }
    for (name, command) in [
        ("ropewalk run", vec![ropewalk.as_str(), "run"]),
        ("mpiexec.hydra", vec!["mpiexec.hydra"]),
    ] {
        let (turn, rounds) = (arguments.turn_ms.to_string(), arguments.rounds.to_string());
        let words = ["pmi", "--asks", "--turn-ms", &turn, "--rounds", &rounds];
        let rows = match rows_under(&command, &own, &words) {
            Ok(rows) => rows,
            Err(error) => {
                eprintln!("ropewalk-rivals: nothing is measured under {name}: {error:#}");
                continue;
            }
        };
        for row in rows.iter().filter(|row| row.case != Case::Echo) {
            let by_threads = matches!(row.case, Case::PutByThreads | Case::PublishByThreads);
            let mut echoes = rows.iter().filter(|echo| echo.case == Case::Echo && !by_threads);
            let echo = echoes.find(|echo| echo.in_flight == row.in_flight);
            table.add_row([
                name.to_owned(),
                match row.case {
                    Case::Echo | Case::Get => "get",
                    Case::Put => "put",
                    Case::PutByThreads => "put, a thread for each",
                    Case::PublishByThreads => "publish or withdraw, a thread for each",
                }
                .to_owned(),
                row.in_flight.to_string(),
                format!("{:.0}", row.per_second),
                echo.map_or(String::new(), |echo| format!("{:.0}", echo.per_second)),
                echo.map_or(String::new(), |echo| {
                    format!("{:.2}", row.per_second / echo.per_second)
                }),
            ]);
        }
    }
    println!("{table}");
    println!();
    println!(
        "| library, {} us away | threads | requests per second | of one thread |",
        arguments.delay_us
    );
    println!("|---|---|---|---|");
    let rows = far::measure(&own, &ropewalk, arguments)?;
    for row in &rows {
        let per_second = median(row.per_second.clone());
        let one = rows.iter().find(|one| one.contestant == row.contestant);
        let one = one.map_or(f64::NAN, |one| median(one.per_second.clone()));
        println!(
            "| {} | {} | {per_second:.0} | {:.2} |",
            row.contestant,
            row.threads,
            per_second / one
        );
    }
    Ok(())
}

fn rows_under(manager: &[&str], own: &str, words: &[&str]) -> anyhow::Result<Vec<Row>> {
    let output = Command::new(manager[0])
        .args(&manager[1..])
        .args(["-n", "1", own])
        .args(words)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "it ended with {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let rows = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<Vec<Row>, _>>()?;
    Ok(rows)
}

/// The process that asks: one line for each case.
fn ask(arguments: &Arguments) -> anyhow::Result<()> {
    let Some(client) = Client::from_env_speaking(Dialect::Pmi2)? else {
        bail!("there is no process manager to be measured");
    };
    let turn = Duration::from_millis(arguments.turn_ms);
    let echo = Echo::start()?;
    client.put("get", VALUE)?;
    client.fence()?;
    let mut samples = vec![Vec::new(); CASES.len()];
    for _ in 0..arguments.rounds.max(1) {
        for ((case, in_flight), samples) in CASES.into_iter().zip(&mut samples) {
            samples.push(match case {
                Case::Echo => rate(turn, in_flight, || echo.turn(in_flight))?,
                Case::Get if in_flight == 1 => rate(turn, 1, || Ok(client.get_bytes(None, "get")?))?,
                Case::Get => {
                    let keys = vec!["get"; in_flight];
                    rate(turn, in_flight, || Ok(client.get_all(&keys)?))?
                }
                Case::Put if in_flight == 1 => rate(turn, 1, || Ok(client.put("put", VALUE)?))?,
                Case::Put => {
                    let pairs = vec![("put", VALUE); in_flight];
                    rate(turn, in_flight, || Ok(client.put_all(&pairs)?))?
                }
                Case::PutByThreads => by_threads(turn, in_flight, |thread| {
                    client.put(&format!("put-{thread}"), VALUE)?;
                    Ok(1)
                })?,
                Case::PublishByThreads => by_threads(turn, in_flight, |thread| {
                    let service = format!("service-{thread}");
                    client.publish(service.as_bytes(), VALUE.as_bytes())?;
                    client.unpublish(service.as_bytes())?;
                    Ok(2)
                })?,
            });
        }
    }
    for ((case, in_flight), samples) in CASES.into_iter().zip(samples) {
        let per_second = median(samples);
        let row = Row {
            case,
            in_flight,
            per_second,
        };
        println!("{}", serde_json::to_string(&row)?);
    }
    client.finalize()?;
    Ok(())
}

/// An address as processes put it.
const VALUE: &str = "tcp://127.0.0.1:47110";

/// How often `work`, which does `count` things, is done in a second.
fn rate<T>(turn: Duration, count: usize, mut work: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<f64> {
    let start = Instant::now();
    let mut done = 0;
    while start.elapsed() < turn {
        work()?;
        done += count;
    }
    Ok(done as f64 / start.elapsed().as_secs_f64())
}

/// The same by several threads. `work` gets the number of its thread, and tells how many things it has done.
fn by_threads(
    turn: Duration,
    threads: usize,
    work: impl Fn(usize) -> anyhow::Result<u64> + Sync,
) -> anyhow::Result<f64> {
    let (over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let start = Instant::now();
    thread::scope(|scope| -> anyhow::Result<()> {
        let (over, done, work) = (&over, &done, &work);
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || -> anyhow::Result<()> {
                    while !over.load(Ordering::Relaxed) {
                        done.fetch_add(work(thread)?, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        thread::sleep(turn);
        over.store(true, Ordering::Relaxed);
        for worker in workers {
            worker
                .join()
                .map_err(|_| anyhow::anyhow!("a thread that asks panicked"))??;
        }
        Ok(())
    })?;
    Ok(done.into_inner() as f64 / start.elapsed().as_secs_f64())
}

/// A thread that sends back what it gets: what one exchange over a socketpair costs at least.
struct Echo {
    socket: UnixStream,
}

impl Echo {
    /// About the size of a put.
    const SIZE: usize = 64;

    fn start() -> anyhow::Result<Self> {
        let (socket, mut other) = UnixStream::pair()?;
        thread::spawn(move || {
            let mut bytes = [0; 8192];
            while let Ok(length @ 1..) = other.read(&mut bytes) {
                if other.write_all(&bytes[..length]).is_err() {
                    return;
                }
            }
        });
        Ok(Self { socket })
    }

    fn turn(&self, count: usize) -> anyhow::Result<()> {
        let mut bytes = vec![0; count * Self::SIZE];
        (&self.socket).write_all(&bytes)?;
        (&self.socket).read_exact(&mut bytes)?;
        Ok(())
    }
}
