//! The key-value service's command line.

use std::{
    fs::File,
    io::{Read, Write, stdin, stdout},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result};
use bytes::Bytes;
use clap::{Parser, Subcommand};
use kv::{Client, endpoint_options, serve};
use ropewalk_rpc::{Address, Endpoint, EndpointOptions, Engine, JobKey};

/// A key-value service: large values move by bulk.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The file with the key that server and clients share; the server makes it if it is not there.
    #[arg(long, default_value = "kv.key")]
    key_file: PathBuf,
    /// The server's address, for clients.
    #[arg(long)]
    server: Option<Address>,
    /// How long a client waits, in seconds.
    #[arg(long, default_value_t = 30)]
    timeout: u64,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve until killed; prints the address.
    Serve {
        /// The address and port to listen on; port 0 lets the system choose.
        #[arg(long, default_value = "127.0.0.1:0")]
        bind: SocketAddr,
        /// The most bytes to keep.
        #[arg(long, default_value_t = 1 << 30)]
        memory: u64,
    },
    /// Store a value: the one given, that of a file, or what comes on standard input.
    Put {
        /// The key.
        key: String,
        /// The value.
        #[arg(long, conflicts_with = "file")]
        value: Option<String>,
        /// A file with the value.
        #[arg(long)]
        file: Option<PathBuf>,
    },
    /// Write the value of a key to standard output; exits with 1 if there is none.
    Get {
        /// The key.
        key: String,
    },
    /// Forget a key; exits with 1 if there was none.
    Delete {
        /// The key.
        key: String,
    },
    /// List keys and the lengths of their values.
    List {
        /// Only those that begin with this.
        #[arg(default_value = "")]
        prefix: String,
    },
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    match &arguments.command {
        Command::Serve { bind, memory } => run_server(&arguments, *bind, *memory)?,
        Command::Put { key, value, file } => {
            let mut client = arguments.client()?;
            let value = match (value, file) {
                (Some(value), _) => Bytes::from(value.clone()),
                (None, Some(file)) => read_file(&mut client, file)?,
                (None, None) => {
                    let mut value = Vec::new();
                    stdin().lock().read_to_end(&mut value)?;
                    Bytes::from(value)
                }
            };
            client.put(key, value)?;
        }
        Command::Get { key } => match arguments.client()?.get(key)? {
            Some(value) => stdout().lock().write_all(&value)?,
            None => return Ok(ExitCode::FAILURE),
        },
        Command::Delete { key } => {
            if !arguments.client()?.delete(key)? {
                return Ok(ExitCode::FAILURE);
            }
        }
        Command::List { prefix } => {
            let mut out = stdout().lock();
            for listed in arguments.client()?.list(prefix)? {
                writeln!(out, "{:>12} {}", listed.length, listed.key)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn run_server(arguments: &Arguments, bind: SocketAddr, memory: u64) -> Result<()> {
    let key = JobKey::read_from_or_make(&arguments.key_file)
        .with_context(|| format!("cannot use {}", arguments.key_file.display()))?;
    let options = EndpointOptions {
        bind,
        ..endpoint_options(key)
    };
    let mut engine = Engine::new(Endpoint::bind(options)?);
    serve(&mut engine, memory);
    let mut out = stdout().lock();
    writeln!(out, "{}", engine.address())?;
    out.flush()?;
    loop {
        engine.wait(Duration::from_secs(60));
    }
}

/// Reads a file into memory that the server can take it from.
fn read_file(client: &mut Client, path: &PathBuf) -> Result<Bytes> {
    let mut read = || -> Result<Bytes> {
        let mut file = File::open(path)?;
        let mut value = client.allocate(usize::try_from(file.metadata()?.len())?);
        file.read_exact(&mut value)?;
        Ok(Bytes::from(value))
    };
    read().with_context(|| format!("cannot read {}", path.display()))
}

impl Arguments {
    fn client(&self) -> Result<Client> {
        let key = JobKey::read_from(&self.key_file)
            .with_context(|| format!("cannot use {}", self.key_file.display()))?;
        let server = self
            .server
            .clone()
            .context("--server is missing: the address that the server printed")?;
        Ok(Client::new(key, server, Duration::from_secs(self.timeout))?)
    }
}
