//! The features that the operating system offers, found out by trying.

use std::{
    fs, io,
    net::{Ipv4Addr, TcpListener},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    path::Path,
    thread,
};

use anyhow::{Context, ensure};
use ropewalk_bench::probes::{foreign_memory, robust_mutexes};
use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create},
    net::sockopt::{set_tcp_congestion, tcp_congestion},
    process::{Resource, getrlimit},
};
use serde::Serialize;

/// One thing that was tried.
#[derive(Debug, Serialize)]
pub(super) struct Probe {
    pub(super) name: &'static str,
    pub(super) usable: bool,
    /// The result of the trial, or the reason why the feature is not usable.
    pub(super) found: String,
}

/// A trial of a feature. It returns its result, or the reason why the feature is not usable.
type Trial = fn() -> anyhow::Result<String>;

/// Tries everything.
pub(super) fn probe_all() -> Vec<Probe> {
    let probes: [(&str, Trial); 8] = [
        ("sealed shared memory", sealed_memory),
        ("abstract UNIX sockets", abstract_sockets),
        ("robust mutexes", robust_mutexes),
        ("process_vm_readv", foreign_memory),
        ("huge pages in shared memory", huge_pages),
        ("TCP congestion control", congestion_control),
        ("open files", open_files),
        ("processors", processors),
    ];
    probes.map(|(name, probe)| Probe::of(name, probe())).into()
}

impl Probe {
    fn of(name: &'static str, result: anyhow::Result<String>) -> Self {
        let usable = result.is_ok();
        let found = result.unwrap_or_else(|error| format!("{error:#}"));
        Self { name, usable, found }
    }
}

fn sealed_memory() -> anyhow::Result<String> {
    let memory = memfd_create("ropewalk-info", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let memory = memory.context("memfd_create")?;
    ftruncate(&memory, 4096)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE;
    fcntl_add_seals(&memory, seals).context("the kernel does not seal it against later writers")?;
    ensure!(
        rustix::io::write(&memory, b"x").is_err(),
        "sealed memory can be written"
    );
    Ok("memfd with seals against resizing and later writers".to_owned())
}

fn abstract_sockets() -> anyhow::Result<String> {
    let name = SocketAddr::from_abstract_name(format!("ropewalk-info/{}", std::process::id()))?;
    let _listener = UnixListener::bind_addr(&name).context("cannot listen at an abstract name")?;
    UnixStream::connect_addr(&name).context("cannot connect to an abstract name")?;
    Ok("processes in this network namespace find each other by name".to_owned())
}

fn huge_pages() -> anyhow::Result<String> {
    // A table of 80 columns has room for the folder in a line, and not for the whole path.
    let (folder, name) = ("/sys/kernel/mm/transparent_hugepage", "shmem_enabled");
    let choices = fs::read_to_string(Path::new(folder).join(name));
    let choices = choices.with_context(|| format!("cannot read {name} in {folder}"))?;
    let chosen = choices.split(['[', ']']).nth(1).unwrap_or_default();
    ensure!(
        !matches!(chosen, "" | "never" | "deny"),
        "{name} in {folder} says {:?}; with \"advise\" copies of large memory are faster",
        choices.trim()
    );
    Ok(format!("{name} in {folder} says {chosen}"))
}

fn congestion_control() -> anyhow::Result<String> {
    let socket =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on the loopback interface")?;
    let default = tcp_congestion(&socket)?;
    let cubic = match set_tcp_congestion(&socket, "cubic") {
        Ok(()) => "cubic can be chosen".to_owned(),
        Err(error) => format!("cubic cannot be chosen: {}", io::Error::from(error)),
    };
    Ok(format!("{default} by default; {cubic}"))
}

fn open_files() -> anyhow::Result<String> {
    let limits = getrlimit(Resource::Nofile);
    let text = |limit: Option<u64>| limit.map_or("no limit".to_owned(), |limit| limit.to_string());
    let (now, most) = (text(limits.current), text(limits.maximum));
    Ok(format!("{now} in one process, which may raise it to {most}"))
}

fn processors() -> anyhow::Result<String> {
    let count = thread::available_parallelism()?.get();
    Ok(match count {
        1 => "1: a caller that spins keeps the one that it waits for from working".to_owned(),
        count => count.to_string(),
    })
}
