//! Copies of checkpoints on other hosts: before each attempt the hosts agree on what to start from, and while it runs
//! each copies what another saves.

use std::{
    collections::BTreeSet,
    fmt, io,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use ropewalk_checkpoint_core::{
    AttemptEnd, Held, History, LastWord, LastWords,
    partner::{PartnerOrders, Ready, Said},
};
use ropewalk_launch::{
    Ending, FailureKind, JobEvent, JobNetwork, JobOutcome, JobSpec, LaunchError, Launcher, Layout, OnFailure,
    OutputStream, Placement, Segment, TimeLimits, Verdict,
    hosts::{HostError, HostSlots},
};
use thiserror::Error;

#[cfg(doc)]
use {super::process::partner_main, ropewalk_launch::AgentStart};

use crate::{Decided, StoreOptions, Supervisor, SupervisorError, Variables};

/// The processes beside a job that copy its checkpoints, one on each of its hosts; they end when this is dropped.
///
/// Each host has a directory of its own under the name that the [`Supervisor`] has. The executable of the job's agents
/// ([`AgentStart::executable`]) is run as `<agent> partner <arguments>` too, and must call [`partner_main`] with the
/// arguments then. The command `ropewalk` does; a program may be its own agent and partner:
///
/// ```no_run
/// use std::{env, error::Error, path::Path, process::ExitCode, time::Instant};
///
/// use ropewalk_checkpoint::{Partners, SupervisionOptions, Supervisor, attempt_end, partner_main};
/// use ropewalk_launch::{
///     JobEvent, JobSpec, Launcher, OnFailure, Segment, agent_main,
///     hosts::HostSlots,
///     restart::{Attempt, BetweenAttempts, Progress, Refusal, RestartPolicy},
/// };
///
/// fn main() -> Result<ExitCode, Box<dyn Error>> {
///     let mut words = env::args_os().skip(1);
///     match words.next() {
///         Some(word) if word == "agent" => return Ok(agent_main()),
///         Some(word) if word == "partner" => return Ok(partner_main(words)),
///         _ => {}
///     }
///     let began = Instant::now();
///     let options = SupervisionOptions { mtbf: None, host_mtbf: None, has_partners: true };
///     let supervisor = Supervisor::new(Path::new("/scratch/saves"), options)?;
///     let partners = Partners::new(supervisor.clone(), |text| eprintln!("{text}"));
///     let journals = partners.journals();
///     let spec = JobSpec {
///         hosts: vec![HostSlots::new("node1", 4)?, HostSlots::new("node2", 4)?, HostSlots::new("node3", 4)?],
///         reactions: OnFailure::Restart(RestartPolicy::default()).into(),
///         ..JobSpec::new(env::current_exe()?, Segment { ranks: 8, ..Segment::new("./solver") })
///     };
///     let mut launcher = Launcher::start_with(spec, Saving { supervisor: supervisor.clone(), partners })?;
///     while let Some(event) = launcher.next_event(None)? {
///         if let JobEvent::Finished(outcome) = event {
///             let end = attempt_end(&outcome.verdict);
///             let account = supervisor.finish(began.elapsed(), end, journals.last_word())?;
///             println!("{account:?}");
///         }
///     }
///     Ok(ExitCode::SUCCESS)
/// }
///
/// /// Starts each attempt from the newest save that the hosts have together.
/// struct Saving {
///     supervisor: Supervisor,
///     partners: Partners,
/// }
///
/// impl BetweenAttempts for Saving {
///     fn prepare(&mut self, number: u32, last: Option<&Attempt>, spec: &mut JobSpec) -> Result<(), Refusal> {
///         if let Some(last) = last {
///             self.supervisor.failed(last.began, last.lasted, attempt_end(&last.verdict))?;
///         }
///         let (start, mut variables) = self.supervisor.prepare(number, spec.hosts.len());
///         let agreed = self.partners.prepare(start, spec)?;
///         variables.extend(agreed.variables);
///         variables.extend(self.supervisor.start(agreed.from, agreed.quarantined)?);
///         spec.environment.variables.extend(variables.into_iter().map(|(name, value)| (name.into(), value)));
///         Ok(())
///     }
///
///     fn progress(&mut self, _attempt: &Attempt) -> Progress {
///         let progress = self.supervisor.progress();
///         Progress { came_to_something: progress.came_to_something, step: progress.step }
///     }
/// }
/// ```
pub struct Partners {
    supervisor: Supervisor,
    say: Say,
    journals: HostJournals,
    running: Option<Running>,
}

/// Tells a user something.
type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// Processes of one attempt; they end when this is dropped.
#[derive(Debug)]
struct Running {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The journals that the hosts of a job have when it is over; a clone is the same.
#[derive(Clone, Debug, Default)]
pub struct HostJournals {
    asked: Arc<Mutex<Option<Asked>>>,
}

/// The hosts of the running attempt, to be asked once it is over.
#[derive(Debug)]
struct Asked {
    wanted: Arc<AtomicBool>,
    told: mpsc::Receiver<(usize, History)>,
    writer: usize,
}

/// The start of an attempt, as its hosts have agreed on it.
#[derive(Debug)]
pub struct Agreed {
    /// The save and the folder that ranks are told; the program starts from its beginning if `None`.
    pub from: Option<(Held, PathBuf)>,
    /// How many parts of saves were put aside.
    pub quarantined: u64,
    /// Variables that the program is to have.
    pub variables: Variables,
}

/// Why an attempt cannot be prepared with a host.
struct Trouble {
    host: String,
    why: String,
}

/// Why the hosts of a job cannot be made ready for its next attempt.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PartnersError {
    /// The job of the processes does not start, or its launcher fails.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A host has no name under which a process can be started.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Each host was left out, for the reasons that were said.
    #[error("no host is left")]
    NoHost,
    /// The processes ended before the hosts had agreed.
    #[error("the hosts' checkpoints cannot be made ready: {0}")]
    Ended(Box<Verdict>),
    /// A host that was left out is in the way all the same.
    #[error("host {host}, which is left out, is in the way")]
    InTheWay {
        /// The host.
        host: String,
    },
    /// The supervisor cannot take what the hosts have agreed on.
    #[error(transparent)]
    Supervisor(#[from] SupervisorError),
    /// The launcher of the processes has ended without a verdict.
    #[error("the launcher stopped")]
    Stopped,
    /// The system gives no thread.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// There are too many hosts.
    #[error("there are too many hosts: {hosts}")]
    TooManyHosts {
        /// How many.
        hosts: usize,
    },
}

impl Partners {
    /// The processes for a job with this supervisor, still without any. `say` is told what a user should know.
    pub fn new(supervisor: Supervisor, say: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self {
            supervisor,
            say: Arc::new(say),
            journals: HostJournals::default(),
            running: None,
        }
    }

    /// The hosts' journals, to be asked for when the job is over.
    pub fn journals(&self) -> HostJournals {
        self.journals.clone()
    }

    /// Starts the processes for the attempt `spec`, which has number `start` of the [`Supervisor`], in place of those
    /// of the attempt before. Has the hosts agree on what the attempt starts from, and each rank's part lie where it
    /// will run, and tells the supervisor ([`Supervisor::decide`]). Hosts that cannot be reached are taken out of the
    /// job.
    ///
    /// # Errors
    /// If no host is left, or the launcher or the supervisor fails.
    pub fn prepare(&mut self, start: u64, spec: &mut JobSpec) -> Result<Agreed, PartnersError> {
        self.running = None;
        let mut left_out: BTreeSet<String> = BTreeSet::new();
        loop {
            spec.hosts.retain(|host| !left_out.contains(host.name()));
            if spec.hosts.is_empty() {
                return Err(PartnersError::NoHost);
            }
            let layout = Layout::of(spec)?;
            if layout.hosts.len() == 1 {
                (self.say)("one host is left: checkpoints have no copy");
            }
            let beside = self.beside(start, spec, &layout)?;
            let mut launcher = Launcher::start(beside)?;
            match wait_until_ready(&mut launcher, &self.say)? {
                Ok(ready) => {
                    self.say_ready(&ready, &layout);
                    self.running = Some(self.follow(launcher, &layout)?);
                    return self.agreed(ready);
                }
                Err(Trouble { host, why }) => {
                    (self.say)(&format!("the job goes on without host {host}: {why}"));
                    if !left_out.insert(host.clone()) {
                        return Err(PartnersError::InTheWay { host });
                    }
                }
            }
        }
    }

    fn agreed(&self, ready: Ready) -> Result<Agreed, PartnersError> {
        let decided = Decided {
            generation: ready.restore.map(|held| held.generation),
            next: ready.next,
        };
        let variables = self.supervisor.decide(decided, ready.totals_before())?;
        let options = StoreOptions::new(self.supervisor.directory());
        let with_folder = |held: Held| {
            let usual = || options.generation_path(held.generation);
            (held, ready.root.unwrap_or_else(usual))
        };
        Ok(Agreed {
            from: ready.restore.map(with_folder),
            quarantined: ready.quarantined.len() as u64,
            variables,
        })
    }

    fn say_ready(&self, ready: &Ready, layout: &Layout) {
        let name = |host: usize| layout.hosts.get(host).map_or("", String::as_str);
        for (host, path) in &ready.quarantined {
            (self.say)(&format!("put aside on host {}: {path}", name(*host)));
        }
        for (host, why) in &ready.stuck {
            (self.say)(&format!("host {}: {why}", name(*host)));
        }
        if ready.fetched > 0 {
            let parts = if ready.fetched == 1 { "part" } else { "parts" };
            (self.say)(&format!("{} {parts} came from other hosts", ready.fetched));
        }
    }

    /// The job of the processes beside.
    fn beside(&self, start: u64, spec: &JobSpec, layout: &Layout) -> Result<JobSpec, PartnersError> {
        let hosts: Vec<HostSlots> = layout
            .hosts
            .iter()
            .map(|name| HostSlots::new(name.as_str(), 1))
            .collect::<Result<_, _>>()?;
        let directory = self.supervisor.directory();
        let orders = PartnerOrders {
            directory: directory.to_owned(),
            start,
            restarts_max: StoreOptions::new(directory).restarts_max,
            towards: layout.interface,
            names: layout.hosts.clone(),
            host_of_rank: layout.host_of_rank.clone(),
        };
        let too_many = |_| PartnersError::TooManyHosts { hosts: hosts.len() };
        let partners = Segment {
            arguments: ["partner".into()]
                .into_iter()
                .chain(orders.to_arguments())
                .collect(),
            ranks: u32::try_from(hosts.len()).map_err(too_many)?,
            ..Segment::new(spec.agents.executable.clone())
        };
        Ok(JobSpec {
            hosts,
            placement: Placement {
                ranks_per_host: Some(1),
                ..Placement::default()
            },
            network: JobNetwork {
                interface: spec.network.interface,
                encrypt: spec.network.encrypt,
                ..JobNetwork::default()
            },
            time_limits: TimeLimits {
                detect: spec.time_limits.detect,
                start_timeout: spec.time_limits.start_timeout,
                ..TimeLimits::default()
            },
            reactions: OnFailure::Continue.into(),
            ..JobSpec::new(spec.agents.clone(), partners)
        })
    }

    /// Takes what the processes say in a thread of its own.
    fn follow(&self, mut launcher: Launcher, layout: &Layout) -> Result<Running, PartnersError> {
        let over = Arc::new(AtomicBool::new(false));
        let wanted = Arc::new(AtomicBool::new(false));
        // Each host tells its journal once.
        let (sender, told) = mpsc::sync_channel(layout.hosts.len());
        *self.journals.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(Asked {
            wanted: Arc::clone(&wanted),
            told,
            writer: layout.host_of_rank.first().copied().unwrap_or(0),
        });
        let is_over = Arc::clone(&over);
        let (supervisor, say) = (self.supervisor.clone(), Arc::clone(&self.say));
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
                            if let Some(text) = take(host, &line, &supervisor, &say) {
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
            .map_err(PartnersError::Thread)?;
        Ok(Running {
            over,
            thread: Some(thread),
        })
    }
}

impl fmt::Debug for Partners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partners")
            .field("supervisor", &self.supervisor)
            .field("running", &self.running)
            .finish_non_exhaustive()
    }
}

/// How an attempt ended, by its verdict.
pub fn attempt_end(verdict: &Verdict) -> AttemptEnd {
    // A wrong name of a program says nothing about how often it fails.
    let never_ran = verdict
        .failures
        .first()
        .is_some_and(|failure| matches!(failure.kind, FailureKind::NotStarted { .. }));
    match verdict.ending {
        Ending::AgentLost { .. } => AttemptEnd::HostLost,
        Ending::Failed if verdict.repeated.is_some() => AttemptEnd::Repeated,
        Ending::Failed | Ending::Stalled { .. } if !never_ran => AttemptEnd::Failed,
        // Who is told to end, or has no time left, has not failed.
        _ => AttemptEnd::Planned,
    }
}

/// Waits until the hosts have agreed. The inner error is about one of them, without which the others may agree.
fn wait_until_ready(launcher: &mut Launcher, say: &Say) -> Result<Result<Ready, Trouble>, PartnersError> {
    let mut last_words = String::new();
    loop {
        let event = launcher.next_event(None)?.ok_or(PartnersError::Stopped)?;
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
            JobEvent::Finished(JobOutcome { verdict, .. }) => match verdict.ending {
                Ending::AgentLost { host, how, .. } => return Ok(Err(Trouble { host, why: how })),
                _ => return Err(PartnersError::Ended(Box::new(verdict))),
            },
            _ => {}
        }
    }
}

impl HostJournals {
    /// Ends the processes of the hosts, each of which tells its journal then. Nothing if none does so in time.
    pub fn last_word(&self) -> Option<LastWord> {
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

/// Notes what a process says; a journal is given back.
fn take(host: &str, line: &[u8], supervisor: &Supervisor, say: &Say) -> Option<String> {
    match serde_json::from_slice(line) {
        Ok(Said::Newest(held)) => supervisor.saved(held),
        Ok(Said::Note(text) | Said::Failed { why: text, .. }) => say(&format!("host {host}: {text}")),
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
