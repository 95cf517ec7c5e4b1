//! The command line: serve, write, measure.

use std::{
    fs,
    io::{BufRead, BufReader, Write, stdout},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command as Process, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use comfy_table::Table;
use pipelined_write::{Stages, WriteServer, Written, endpoint_options, expose_file, expose_pattern, write};
use ropewalk_rpc::{Address, Endpoint, EndpointOptions, Engine, JobKey};

/// Remote writes to files, pulled by the target chunk by chunk.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The file with the key that both sides share; the server makes it if it is not there.
    #[arg(long, default_value = "pipelined-write.key", global = true)]
    key_file: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve until killed; prints the address.
    Serve {
        /// The folder to write to.
        #[arg(long)]
        into: PathBuf,
        /// The address and port to listen on; port 0 lets the system choose.
        #[arg(long, default_value = "127.0.0.1:0")]
        bind: SocketAddr,
    },
    /// Have a file written by the server, under the same name.
    Write {
        /// The server's address.
        #[arg(long)]
        server: Address,
        /// How many chunks are in progress; chosen if not given.
        #[arg(long)]
        depth: Option<usize>,
        /// How long a chunk is, in bytes; chosen if not given.
        #[arg(long)]
        chunk: Option<usize>,
        /// The file.
        file: PathBuf,
    },
    /// Start a server and measure many depths and chunks.
    Sweep {
        /// How much is written each time, in MiB.
        #[arg(long, default_value_t = 256)]
        size: u64,
        /// How often; the best counts.
        #[arg(long, default_value_t = 3)]
        rounds: u32,
        /// The folder in which the server writes.
        #[arg(long, default_value = "/dev/shm")]
        into: PathBuf,
    },
}

/// How long one write may take.
const TIMEOUT: Duration = Duration::from_secs(120);
const DEPTHS: [usize; 5] = [1, 2, 4, 8, 16];
const CHUNKS: [usize; 5] = [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    match arguments.command {
        Command::Serve { into, bind } => run_server(&arguments.key_file, into, bind),
        Command::Write {
            server,
            depth,
            chunk,
            file,
        } => {
            let mut engine = origin(&arguments.key_file)?;
            let data = expose_file(&mut engine, &file)?;
            let name = file.file_name().and_then(|name| name.to_str());
            let name = name.context("the file's name cannot be sent")?;
            let stages = Stages::Pipelined { depth, chunk };
            let written = write(&mut engine, &server, name, &data, stages, TIMEOUT)?;
            println!(
                "{} bytes, {:.0} MB/s",
                written.bytes,
                megabytes_per_second(&written)
            );
            Ok(())
        }
        Command::Sweep { size, rounds, into } => sweep(size << 20, rounds, &into),
    }
}

fn run_server(key_file: &Path, into: PathBuf, bind: SocketAddr) -> Result<()> {
    let key =
        JobKey::read_from_or_make(key_file).with_context(|| format!("cannot use {}", key_file.display()))?;
    fs::create_dir_all(&into).with_context(|| format!("cannot make {}", into.display()))?;
    let options = EndpointOptions {
        bind,
        ..endpoint_options(key)
    };
    let mut server = WriteServer::new(Engine::new(Endpoint::bind(options)?), into);
    let mut out = stdout().lock();
    writeln!(out, "{}", server.engine().address())?;
    out.flush()?;
    loop {
        server.progress(Duration::from_secs(60));
    }
}

fn origin(key_file: &Path) -> Result<Engine> {
    let key = JobKey::read_from(key_file).with_context(|| format!("cannot use {}", key_file.display()))?;
    Ok(Engine::new(Endpoint::bind(endpoint_options(key))?))
}

fn sweep(length: u64, rounds: u32, into: &Path) -> Result<()> {
    let folder = tempfile::tempdir_in(into)?;
    let key_file = folder.path().join("key");
    let (_server, address) = OwnServer::start(&key_file, folder.path())?;
    let mut engine = origin(&key_file)?;
    let data = expose_pattern(&mut engine, length)?;
    let mut measure = |stages| -> Result<(f64, Written)> {
        let mut best: Option<(f64, Written)> = None;
        for _ in 0..rounds.max(1) {
            let written = write(&mut engine, &address, "written", &data, stages, TIMEOUT)?;
            let rate = megabytes_per_second(&written);
            if best.as_ref().is_none_or(|(best, _)| rate > *best) {
                best = Some((rate, written));
            }
        }
        best.context("nothing was measured")
    };
    let mut table = Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    let chunks = CHUNKS.map(|chunk| format!("chunk {} KiB", chunk >> 10));
    table.set_header([&["MB/s".to_owned()], &chunks[..]].concat());
    for depth in DEPTHS {
        let mut row = vec![format!("depth {depth}")];
        for chunk in CHUNKS {
            let (rate, _) = measure(Stages::Pipelined {
                depth: Some(depth),
                chunk: Some(chunk),
            })?;
            row.push(format!("{rate:.0}"));
        }
        table.add_row(row);
    }
    let (at_once, _) = measure(Stages::AtOnce)?;
    let automatic = Stages::Pipelined {
        depth: None,
        chunk: None,
    };
    let (chosen_rate, chosen) = measure(automatic)?;
    println!("{table}\n");
    println!("all pulled, then written: {at_once:.0} MB/s");
    let (depth, chunk) = chosen.chosen.unwrap_or_default();
    println!(
        "chosen: {chosen_rate:.0} MB/s, at last with depth {depth}, chunk {} KiB",
        chunk >> 10
    );
    Ok(())
}

fn megabytes_per_second(written: &Written) -> f64 {
    written.bytes as f64 / written.seconds.max(1e-9) / 1e6
}

/// A server that ends with us.
struct OwnServer(Child);

impl OwnServer {
    fn start(key_file: &Path, into: &Path) -> Result<(Self, Address)> {
        let mut server = Process::new(std::env::current_exe()?)
            .arg("--key-file")
            .arg(key_file)
            .args(["serve", "--into"])
            .arg(into)
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the server")?;
        let out = server.stdout.take();
        let server = Self(server);
        let mut address = String::new();
        BufReader::new(out.context("the server has no output")?).read_line(&mut address)?;
        let address = address
            .trim()
            .parse()
            .context("the server did not say where it is")?;
        Ok((server, address))
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        // If it is gone already there is nothing to end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
