//! Copies of checkpoints on other hosts: before each attempt the hosts agree on what to start from, and while it runs
//! each copies what another saves.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use ropewalk_checkpoint::{Held, History, LastWord, LastWords, StoreOptions, Supervisor};
use ropewalk_launch::{
    Ending, JobEvent, JobSpec, Launcher, Layout, OnFailure, OutputStream, Placement, hosts::HostSlots,
};

use super::say;
use crate::partner::{Ready, Said, encode_ranks};

/// The processes beside a job that copy its checkpoints.
#[derive(Debug)]
pub(super) struct Partners {
    /// Of the same name on each host, and each host's own.
    directory: PathBuf,
    rumours: Rumours,
    running: Option<Running>,
}

/// Processes of one attempt; they end when this is dropped.
#[derive(Debug)]
struct Running {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The news that hosts tell of a job while it runs, and their journals when it is over; a clone is the same.
#[derive(Clone, Debug)]
pub(super) struct Rumours {
    supervisor: Supervisor,
    asked: Arc<Mutex<Option<Asked>>>,
}

/// The hosts of the running attempt, to be asked once it is over.
#[derive(Debug)]
struct Asked {
    wanted: Arc<AtomicBool>,
    told: mpsc::Receiver<(usize, History)>,
    writer: usize,
}

/// Why an attempt cannot be prepared with a host.
struct Trouble {
    host: String,
    why: String,
}

impl Partners {
    pub(super) fn new(directory: PathBuf, rumours: Rumours) -> Self {
        Self {
            directory,
            rumours,
            running: None,
        }
    }

    /// Has the hosts agree on what the attempt starts from, and each rank's part lie where it will run. Hosts that cannot be
    /// reached are taken out of the job.
    pub(super) fn prepare(&mut self, start: u64, spec: &mut JobSpec) -> anyhow::Result<Ready> {
        self.running = None;
        let mut left_out: BTreeSet<String> = BTreeSet::new();
        loop {
            spec.hosts.retain(|host| !left_out.contains(host.name()));
            if spec.hosts.is_empty() {
                bail!("no host is left");
            }
            let layout = Layout::of(spec)?;
            if layout.hosts.len() == 1 {
                say("one host is left: checkpoints have no copy");
            }
            let beside = self.beside(start, spec, &layout)?;
            let mut launcher = Launcher::start(beside)?;
            match wait_until_ready(&mut launcher)? {
                Ok(ready) => {
                    for (host, path) in &ready.quarantined {
                        say(&format!("put aside on host {}: {path}", name(&layout, *host)));
                    }
                    for (host, why) in &ready.stuck {
                        say(&format!("host {}: {why}", name(&layout, *host)));
                    }
                    if ready.fetched > 0 {
                        let parts = if ready.fetched == 1 { "part" } else { "parts" };
                        say(&format!("{} {parts} came from other hosts", ready.fetched));
                    }
                    let writer = layout.host_of_rank.first().copied().unwrap_or(0);
                    self.running = Some(Running::follow(
                        launcher,
                        self.rumours.clone(),
                        writer,
                        layout.hosts.len(),
                    )?);
                    return Ok(ready);
                }
                Err(Trouble { host, why }) => {
                    say(&format!("the job goes on without host {host}: {why}"));
                    if !left_out.insert(host) {
                        bail!("a host that is left out is in the way");
                    }
                }
            }
        }
    }

    /// The job of the processes beside.
    fn beside(&self, start: u64, spec: &JobSpec, layout: &Layout) -> anyhow::Result<JobSpec> {
        let hosts: Vec<HostSlots> = layout
            .hosts
            .iter()
            .map(|name| HostSlots::new(name.as_str(), 1))
            .collect::<Result<_, _>>()?;
        let mut arguments = vec!["partner".into(), "--directory".into()];
        arguments.push(self.directory.clone().into_os_string());
        let told = [
            ("--start", start.to_string()),
            ("--towards", layout.interface.to_string()),
            ("--names", layout.hosts.join(",")),
            ("--ranks", encode_ranks(&layout.host_of_rank)),
            (
                "--restarts-max",
                StoreOptions::new(&self.directory).restarts_max.to_string(),
            ),
        ];
        arguments.extend(
            told.into_iter()
                .flat_map(|(name, value)| [name.into(), value.into()]),
        );
        Ok(JobSpec {
            arguments,
            ranks: u32::try_from(hosts.len()).context("there are too many hosts")?,
            hosts,
            placement: Placement {
                ranks_per_host: Some(1),
                ..Placement::default()
            },
            method: spec.method.clone(),
            interface: spec.interface,
            encrypt: spec.encrypt,
            arity: spec.arity,
            detect: spec.detect,
            start_timeout: spec.start_timeout,
            on_failure: OnFailure::Continue,
            ..JobSpec::new(&spec.agent, spec.agent.clone())
        })
    }
}

/// Whether there can be copies on other hosts.
pub(super) fn check(
    spec: &JobSpec,
    has_directory: bool,
    is_openfoam: bool,
    is_uploaded: bool,
) -> anyhow::Result<()> {
    if is_openfoam {
        bail!(
            "--partner cannot be used with --adapter openfoam: this host prepares the case before each start, for which \
             all hosts have to see its folder, and then they see the checkpoints in it too"
        );
    }
    if is_uploaded {
        bail!(
            "--partner cannot be used with --upload: what is uploaded is read here, where only some ranks' parts lie; \
             let DIR be a folder that all hosts see, and leave out --partner"
        );
    }
    if !has_directory {
        bail!("option --partner wants --checkpoint DIR");
    }
    let others = spec.hosts.iter().skip(1);
    let is_one = others
        .into_iter()
        .all(|host| Some(host.name()) == spec.hosts.first().map(HostSlots::name));
    if is_one {
        bail!("option --partner wants two hosts at least, of which each copies what the other saves");
    }
    Ok(())
}

/// Waits until the hosts have agreed. The inner error is about one of them, without which the others may agree.
fn wait_until_ready(launcher: &mut Launcher) -> anyhow::Result<Result<Ready, Trouble>> {
    let mut last_words = String::new();
    loop {
        let event = launcher.next_event(None)?.context("the launcher stopped")?;
        match event {
            JobEvent::Output { rank, stream, line } => {
                let own = launcher.host_of(rank).unwrap_or_default().to_owned();
                let said = match stream {
                    OutputStream::Stdout => serde_json::from_slice(&line).ok(),
                    _ => None,
                };
                match said {
                    Some(Said::Ready(ready)) => return Ok(Ok(ready)),
                    Some(Said::Failed { host, why }) => {
                        let host = host.unwrap_or(own);
                        return Ok(Err(Trouble { host, why }));
                    }
                    Some(Said::Note(text)) => say(&format!("host {own}: {text}")),
                    Some(Said::Newest { .. } | Said::Journal { .. }) => {}
                    None => last_words = String::from_utf8_lossy(&line).trim_end().to_owned(),
                }
            }
            JobEvent::Departed { departure, host, .. } => {
                let why = match last_words.is_empty() {
                    true => departure.cause.to_string(),
                    false => last_words,
                };
                return Ok(Err(Trouble { host, why }));
            }
            JobEvent::Finished(verdict) => match verdict.ending {
                Ending::AgentLost { host, how, .. } => return Ok(Err(Trouble { host, why: how })),
                _ => bail!("the hosts' checkpoints cannot be made ready: {verdict}"),
            },
            _ => {}
        }
    }
}

fn name(layout: &Layout, host: usize) -> &str {
    layout.hosts.get(host).map_or("", String::as_str)
}

impl Running {
    /// Takes what the processes say, one on each of `hosts` hosts, in a thread of its own. The journal of a job is
    /// written on the host `writer`.
    fn follow(mut launcher: Launcher, rumours: Rumours, writer: usize, hosts: usize) -> anyhow::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let wanted = Arc::new(AtomicBool::new(false));
        // Each host tells its journal once.
        let (sender, told) = mpsc::sync_channel(hosts);
        *rumours.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(Asked {
            wanted: Arc::clone(&wanted),
            told,
            writer,
        });
        let is_over = Arc::clone(&over);
        let thread = thread::Builder::new()
            .name("ropewalk-partners".to_owned())
            .spawn(move || {
                let mut is_asked = false;
                while !is_over.load(Ordering::Relaxed) {
                    if !is_asked && wanted.load(Ordering::Relaxed) {
                        is_asked = true;
                        if let Err(error) = launcher.interrupt(SIGTERM) {
                            return say(&format!("the hosts cannot be asked what they know: {error}"));
                        }
                    }
                    let event = match launcher.next_event(Some(LOOK)) {
                        Ok(event) => event,
                        Err(error) => return say(&format!("checkpoints have no copy any more: {error}")),
                    };
                    match event {
                        Some(JobEvent::Output { rank, line, .. }) => {
                            let host = launcher.host_of(rank).unwrap_or_default();
                            if let Some(text) = take(host, &line, &rumours) {
                                // Nobody may wait any more.
                                let _ = sender.try_send((rank.0 as usize, History::read(text.as_bytes())));
                            }
                        }
                        // Who was asked for last words is done.
                        Some(JobEvent::Departed { departure, host, .. }) if !is_asked => say(&format!(
                            "host {host} neither copies checkpoints nor has its own copied: {}",
                            departure.cause
                        )),
                        Some(JobEvent::Finished(_)) => return,
                        _ => {}
                    }
                }
            })
            .context("cannot start a thread")?;
        Ok(Self {
            over,
            thread: Some(thread),
        })
    }
}

impl Rumours {
    /// Those of a job with this supervisor.
    pub(super) fn new(supervisor: Supervisor) -> Self {
        Self {
            supervisor,
            asked: Arc::default(),
        }
    }

    /// Ends the processes of the hosts, each of which tells its journal then. Nothing if none does so in time.
    pub(super) fn last_word(&self) -> Option<LastWord> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        asked.wanted.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + LAST_WORDS_TIMEOUT;
        let left = || deadline.saturating_duration_since(Instant::now());
        let mut words = LastWords::of_writer(asked.writer);
        while let Ok((host, history)) = asked.told.recv_timeout(left()) {
            if let Some(own) = words.handle_told(host, history) {
                return Some(own);
            }
        }
        words.into_best()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // If it panicked it has nothing more to say.
            let _ = thread.join();
        }
    }
}

/// What a process says; a journal is given back.
fn take(host: &str, line: &[u8], rumours: &Rumours) -> Option<String> {
    match serde_json::from_slice(line) {
        Ok(Said::Newest {
            generation,
            step,
            ranks,
        }) => rumours.supervisor.saved(Held {
            generation,
            step,
            ranks,
        }),
        Ok(Said::Note(text)) => say(&format!("host {host}: {text}")),
        Ok(Said::Failed { why, .. }) => say(&format!("host {host}: {why}")),
        Ok(Said::Journal { text }) => return Some(text),
        Ok(Said::Ready(_)) => {}
        Err(_) => say(&format!(
            "host {host}: {}",
            String::from_utf8_lossy(line).trim_end()
        )),
    }
    None
}

/// How long it is waited for what hosts know when the job is over: they have little to read.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(5);

const SIGTERM: i32 = 15;

/// How soon it is seen that the attempt is over.
const LOOK: Duration = Duration::from_millis(50);
