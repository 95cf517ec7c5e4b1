//! A server is replaced under load: see the README beside this.

mod job;
mod ledger;
mod load;
mod procedures;
mod server;

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, Subcommand};
use ropewalk_rpc::{Address, thread::Driver};

use crate::{
    job::Key,
    load::{Client, Done},
    procedures::Balance,
};

/// Replaces a server under load, and checks that no deposit was lost or counted twice.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Task>,
    /// How often the server is replaced.
    #[arg(long, default_value_t = 3)]
    restarts: u32,
    /// How many clients deposit at the same time.
    #[arg(long, default_value_t = 4)]
    clients: u64,
    /// How long each server serves, in milliseconds.
    #[arg(long, default_value_t = 500)]
    period_ms: u64,
}

#[derive(Subcommand)]
enum Task {
    /// Serves; what the demonstration starts. The key comes on standard input.
    Serve {
        /// The server to take the place of.
        #[arg(long)]
        take_over: Option<Address>,
    },
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    match arguments.command {
        None => demonstrate(&arguments),
        Some(Task::Serve { take_over }) => {
            let key = Key::read(std::io::stdin())?;
            let ready = |address: &Address| {
                println!("{address}");
                // If nobody listens to it, it serves all the same.
                let _ = std::io::stdout().flush();
            };
            match take_over {
                None => server::serve(key, 0, ready),
                Some(old) => server::take_over(key, &old, ready),
            }
        }
    }
}

fn demonstrate(arguments: &Arguments) -> Result<()> {
    let key = Key::generate()?;
    let (mut running, server) = start_server(key, None)?;
    let (driver, handle) = Driver::spawn(job::engine(key, 1, 0)?)?;
    let clients: Vec<_> = (0..arguments.clients)
        .map(|client| Client::start(handle.clone(), server.clone(), client))
        .collect();
    for _ in 0..arguments.restarts {
        sleep(Duration::from_millis(arguments.period_ms));
        let (successor, address) = start_server(key, Some(&server))?;
        ensure!(
            address == server,
            "the new server is at {address}, not at {server}"
        );
        let mut old = std::mem::replace(&mut running, successor);
        let status = old.0.wait()?;
        ensure!(status.success(), "the old server ended with {status}");
    }
    sleep(Duration::from_millis(arguments.period_ms));
    let mut all = Done::default();
    for client in clients {
        let done = client.stop()?;
        all.deposits += done.deposits;
        all.amount += done.amount;
        all.longest = all.longest.max(done.longest);
    }
    let balance = handle.call_blocking::<Balance>(&server, (), Duration::from_secs(5))?;
    drop(driver);
    if balance != all.amount {
        bail!("{} were deposited, and {balance} are in the ledger", all.amount);
    }
    println!(
        "{} deposits by {} clients, {} restarts: none lost, none twice; the longest call took {} ms",
        all.deposits,
        arguments.clients,
        arguments.restarts,
        all.longest.as_millis()
    );
    Ok(())
}

/// A server that ends when this does.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_server(key: Key, old: Option<&Address>) -> Result<(Running, Address)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped());
    if let Some(old) = old {
        command.arg("--take-over").arg(old.to_string());
    }
    let mut running = Running(command.spawn().context("cannot start a server")?);
    key.write(running.0.stdin.take().expect("it was asked for"))?;
    let mut address = String::new();
    BufReader::new(running.0.stdout.take().expect("it was asked for")).read_line(&mut address)?;
    let address = address.trim().parse();
    Ok((running, address.context("the server did not start")?))
}
