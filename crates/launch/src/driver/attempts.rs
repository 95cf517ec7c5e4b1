//! The launcher's thread: attempts to run a job, one after the other, until one goes well or no other can help.

use std::{
    env, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener},
    sync::Arc,
    time::{Duration, Instant},
};

use ropewalk_fabric::{AgentLink, Endpoint, JobKey};
use ropewalk_launch_core::{
    Ending, JobEvent, JobOutcome, JobSpec, OnFailure, StdinSource, UniverseSize, Verdict,
    plan::{self, Surroundings},
    protocol::{BOOTSTRAP_SIZE_MAX, Plan},
    restart::{ATTEMPT_VARIABLE, Attempt, BetweenAttempts, Next, Restarts},
    supervisor::Supervisor,
    tree::NodeId,
};
use ropewalk_names::{HostId, JobId};
use rustix::event::{EventfdFlags, eventfd};
use tokio::{
    sync::{mpsc, watch},
    time::sleep_until,
};

use super::{
    attempt::{AttemptRun, Surface},
    branch::{self, Position},
    deliveries::{self, Delivery},
    descendants,
    forked_agent::fork_agent,
    input,
    interrupts::{self, Signals, next_ending_signal},
    launch_error::{LaunchError, system, with_causes},
    own_host::own_host_name,
    requests::{Request, Taken},
    shared_names::SharedNames,
};

/// All attempts of a job.
pub(super) struct Attempts {
    spec: JobSpec,
    between: Box<dyn BetweenAttempts>,
    restarts: Option<Restarts>,
    /// The first attempt.
    began: Instant,
    /// How long this process had been stopped before that.
    stopped_before: Duration,
    deliveries: deliveries::Sender,
}

/// An attempt that can begin.
pub(super) struct Prepared {
    pub(super) plan: Arc<Plan>,
    pub(super) position: Position,
    /// The launcher's, if it is bound already.
    pub(super) endpoint: Option<Endpoint>,
    /// How long it may last.
    pub(super) limit: Option<Duration>,
}

/// How a pause between attempts ended.
enum Pause {
    Over,
    Interrupted(i32),
    /// Nobody wants the job any more.
    Dropped,
}

impl Prepared {
    /// Lets the agent of the first host begin, which is this one: it does not wait for the launcher's thread then.
    pub(super) fn fork_agent(&mut self) {
        // What fails here is tried again, and that says what is wrong.
        let Ok(endpoint) = branch::bind(&self.position) else {
            return;
        };
        let position = || {
            let bootstrap = self.position.bootstrap(NodeId::of(HostId(0)), endpoint.address());
            Position::new(bootstrap, self.plan.clone())
        };
        self.position.forked = fork_agent(position).ok().flatten();
        self.endpoint = Some(endpoint);
    }
}

impl Attempts {
    pub(super) fn new(
        spec: JobSpec,
        between: Box<dyn BetweenAttempts>,
        deliveries: deliveries::Sender,
    ) -> Self {
        let restarts = match spec.reactions.on_failure {
            OnFailure::Restart(policy) => Some(Restarts::new(policy)),
            _ => None,
        };
        Self {
            spec,
            between,
            restarts,
            began: Instant::now(),
            stopped_before: interrupts::stopped(),
            deliveries,
        }
    }

    /// Prepares an attempt.
    pub(super) fn prepare(&mut self, number: u32) -> Result<Prepared, LaunchError> {
        let mut spec = self.spec.clone();
        if self.restarts.is_some() {
            let variable = (ATTEMPT_VARIABLE.into(), number.to_string().into());
            spec.environment.variables.push(variable);
        }
        let last = self.restarts.as_ref().and_then(Restarts::last);
        let refused = |source| LaunchError::Refused { source };
        self.between.prepare(number, last, &mut spec).map_err(refused)?;
        let ranks = spec.size();
        let has_empty = spec.segments().any(|segment| segment.ranks == 0);
        if has_empty || !(1..=JobSpec::RANKS_MAX).contains(&ranks) {
            return Err(LaunchError::Ranks { ranks });
        }
        let plan = make_plan(&spec)?;
        let key = JobKey::generate().map_err(|source| system("random numbers", source))?;
        let encoded_plan = postcard::to_allocvec(&plan).map_err(|_| LaunchError::TooLarge)?;
        if encoded_plan.len() > BOOTSTRAP_SIZE_MAX - BOOTSTRAP_OVERHEAD {
            return Err(LaunchError::TooLarge);
        }
        let plan = Arc::new(plan);
        Ok(Prepared {
            position: Position {
                node: NodeId::ROOT,
                key,
                plan: plan.clone(),
                encoded_plan,
                parent: None,
                launcher: None,
                forks: self.spec.fork_agent,
                forked: None,
            },
            plan,
            endpoint: None,
            limit: spec
                .time_limits
                .timeout
                .map(|timeout| timeout.saturating_sub(self.used())),
        })
    }

    /// The time since the first attempt, without that for which the user had suspended this process.
    fn used(&self) -> Duration {
        let stopped = interrupts::stopped().saturating_sub(self.stopped_before);
        self.began.elapsed().saturating_sub(stopped)
    }

    /// Runs all attempts, as the launcher's thread. An error is delivered.
    pub(super) fn run(
        mut self,
        first: Prepared,
        requests: mpsc::Receiver<Request>,
        taken: watch::Receiver<Taken>,
    ) {
        let result = check_descriptors()
            .and_then(|()| tokio::runtime::Builder::new_current_thread().enable_all().build())
            .map_err(|source| system("what a launcher needs", source))
            .and_then(|runtime| runtime.block_on(self.run_all(first, requests, taken)));
        if let Err(error) = result {
            self.deliveries.send(vec![Delivery::Failed(error)]);
        }
    }

    async fn run_all(
        &mut self,
        first: Prepared,
        requests: mpsc::Receiver<Request>,
        taken: watch::Receiver<Taken>,
    ) -> Result<(), LaunchError> {
        let refused = |source| system("what a launcher needs", source);
        let signals = match self.spec.forward_signals {
            true => Some(Signals::listen().map_err(refused)?),
            false => None,
        };
        let mut surface = Surface {
            requests,
            taken,
            signals,
            interrupted: None,
            is_urgent: false,
        };
        let mut prepared = first;
        let mut number = 1;
        let (verdict, gave_up) = loop {
            let ranks = prepared.plan.size;
            let began = self.began.elapsed();
            let Some(mut verdict) = self.run_one(number, prepared, &mut surface).await? else {
                return match self.deliveries.is_overrun() {
                    true => Err(LaunchError::EventsNotTaken),
                    false => Ok(()),
                };
            };
            if let (Ending::TimedOut(limit), Some(whole)) =
                (&mut verdict.ending, self.spec.time_limits.timeout)
            {
                // The attempt had what those before it had left.
                *limit = whole;
            }
            let mut attempt = Attempt {
                number,
                began,
                lasted: self.began.elapsed() - began,
                verdict,
            };
            let (next, step) = self.next(&mut attempt);
            let pause = match (next, surface.interrupted) {
                // The signal came while the attempt was being ended for another reason.
                (Next::Again { .. }, Some(signal)) => {
                    let ending = Ending::Interrupted(signal);
                    let verdict = attempt.verdict;
                    break (Verdict { ending, ..verdict }, None);
                }
                (Next::Again { pause }, None) => pause,
                (Next::Over, _) => break (attempt.verdict, None),
                (Next::GiveUp(why), _) => break (attempt.verdict, Some(why)),
            };
            if let Some(restarts) = &mut self.restarts {
                restarts.remember(attempt.clone(), step);
            }
            let failed = Box::new(attempt.clone());
            self.tell(JobEvent::Restarting { failed, pause });
            match self.pause(pause, &mut surface).await {
                Pause::Over => {}
                Pause::Dropped => return Ok(()),
                Pause::Interrupted(signal) => {
                    let ending = Ending::Interrupted(signal);
                    let verdict = Verdict::new(ranks);
                    break (Verdict { ending, ..verdict }, None);
                }
            }
            if let Some(limit) = self
                .spec
                .time_limits
                .timeout
                .filter(|&limit| limit <= self.used())
            {
                let ending = Ending::TimedOut(limit);
                let verdict = Verdict::new(ranks);
                break (Verdict { ending, ..verdict }, None);
            }
            number += 1;
            prepared = match self.prepare(number) {
                Ok(prepared) => prepared,
                Err(LaunchError::Refused { source }) => {
                    // It was remembered as one that another follows.
                    let last = self.forget_last().unwrap_or(attempt.verdict);
                    break (last, Some(with_causes(&*source)));
                }
                Err(error) => return Err(error),
            };
            let plan = prepared.plan.clone();
            let attempt = number;
            self.deliveries.send(vec![Delivery::Began { attempt, plan }]);
        };
        self.conclude(verdict, gave_up, &mut surface).await;
        Ok(())
    }

    /// Delivers the outcome, and waits until the owner of the launcher is done with it.
    async fn conclude(&mut self, verdict: Verdict, gave_up: Option<String>, surface: &mut Surface) {
        let urgent = surface.is_urgent.then(|| verdict.exit_code());
        let attempts = self.restarts.take();
        let attempts = attempts.map_or_else(Vec::new, Restarts::into_past);
        self.tell(JobEvent::Finished(JobOutcome {
            verdict,
            attempts,
            gave_up,
        }));
        if surface.signals.is_some() {
            // Whoever takes the events may be stuck in writing what came before the last.
            tokio::select! {
                code = overdue(urgent, &mut surface.signals) => std::process::exit(code),
                () = closed(&mut surface.requests) => {}
            }
        }
    }

    async fn run_one(
        &mut self,
        number: u32,
        prepared: Prepared,
        surface: &mut Surface,
    ) -> Result<Option<Verdict>, LaunchError> {
        let Prepared {
            plan,
            position,
            endpoint,
            limit,
        } = prepared;
        let mut supervisor = Supervisor::new(&plan, self.spec.reactions.on_failure, limit);
        supervisor.set_on_stopped(self.spec.reactions.on_stopped);
        let allocation = self.spec.time_limits.allocation;
        supervisor.set_notices(
            self.spec.time_limits.grace,
            allocation.map(|left| left.saturating_sub(self.began.elapsed())),
        );
        if let Some(injection) = self.spec.injection {
            supervisor.inject(injection, number);
        }
        let (job, deliveries) = (plan.job, self.deliveries.clone());
        let mut attempt = AttemptRun::new(number, plan, supervisor, deliveries);
        attempt.names = SharedNames::new(self.spec.pmi.name_server.clone());
        let endpoint = endpoint.map_or_else(|| branch::bind(&position), Ok);
        let result = match endpoint {
            Ok(endpoint) => attempt.run(position, endpoint, surface).await,
            Err(error) => Err(error),
        };
        result.map_err(|source| {
            descendants::kill_job(job);
            system("what a launcher needs", source)
        })
    }

    /// The decision after an attempt, and the step that it reached, if that is known.
    fn next(&mut self, attempt: &mut Attempt) -> (Next, Option<u64>) {
        let Some(restarts) = &mut self.restarts else {
            return (Next::Over, None);
        };
        if attempt.verdict.ending == Ending::Completed {
            return (Next::Over, None);
        }
        let progress = self.between.progress(attempt);
        attempt.verdict.repeated = restarts.repeated(&attempt.verdict, progress.step);
        let next = restarts.handle_ended(attempt, progress.came_to_something);
        (next, progress.step)
    }

    fn forget_last(&mut self) -> Option<Verdict> {
        Some(self.restarts.as_mut()?.forget_last()?.verdict)
    }

    async fn pause(&self, pause: Duration, surface: &mut Surface) -> Pause {
        let left = self
            .spec
            .time_limits
            .timeout
            .map(|limit| limit.saturating_sub(self.used()));
        let until = Instant::now() + left.map_or(pause, |left| left.min(pause));
        loop {
            tokio::select! {
                () = sleep_until(until.into()) => return Pause::Over,
                signal = next_ending_signal(&mut surface.signals) => return Pause::Interrupted(signal),
                request = surface.requests.recv() => match request {
                    None => return Pause::Dropped,
                    Some(Request::Interrupt(signal)) => return Pause::Interrupted(signal),
                    // No rank is there to be signalled.
                    Some(Request::Signal(..)) => {}
                },
            }
        }
    }

    fn tell(&self, event: JobEvent) {
        self.deliveries
            .send(self.deliveries.admit(event).into_iter().collect());
    }
}

/// Waits until the user of the events has had the time to take the last of them, if the job's end is `urgent`
/// or becomes so by a signal. Returns the exit code.
async fn overdue(urgent: Option<i32>, signals: &mut Option<Signals>) -> i32 {
    let code = match urgent {
        Some(code) => code,
        None => 128 + next_ending_signal(signals).await,
    };
    sleep_until((Instant::now() + LAST_WORDS).into()).await;
    code
}

/// Opens as many descriptors as a runtime does, and closes them. The runtime panics if it gets none for its
/// pair of sockets for signals.
fn check_descriptors() -> io::Result<()> {
    let mut opened = Vec::new();
    for _ in 0..RUNTIME_DESCRIPTORS {
        opened.push(eventfd(0, EventfdFlags::CLOEXEC)?);
    }
    Ok(())
}

/// Waits until the launcher is dropped.
async fn closed(requests: &mut mpsc::Receiver<Request>) {
    while requests.recv().await.is_some() {}
}

/// The runtime itself opens six.
const RUNTIME_DESCRIPTORS: usize = 8;
/// How long it may take to tell the verdict.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// The size of a bootstrap without the plan, in bytes, at most.
const BOOTSTRAP_OVERHEAD: usize = 1 << 10;

/// Returns true if nobody listens at this port of any address of this host.
fn is_port_free(port: u16) -> bool {
    let can_listen = |address: IpAddr| match TcpListener::bind((address, port)) {
        Ok(_) => true,
        // A host without one of the protocols has no listener of it.
        Err(error) => error.kind() != io::ErrorKind::AddrInUse,
    };
    can_listen(Ipv4Addr::UNSPECIFIED.into()) && can_listen(Ipv6Addr::UNSPECIFIED.into())
}

/// The variables by which an outer job links this process to its agent.
const LINK_VARIABLES: [&str; 2] = [AgentLink::VARIABLE, ropewalk_agent_link::VARIABLE];

pub(super) fn make_plan(spec: &JobSpec) -> Result<Plan, LaunchError> {
    let mut job = [0; 16];
    getrandom::fill(&mut job).map_err(|error| system("random numbers", io::Error::other(error)))?;
    let around = Surroundings {
        job: JobId(job),
        host_name: own_host_name(),
        processors: match spec.pmi.universe {
            UniverseSize::Slots => std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
            // Nobody asks, and to find out means to read half a dozen files of the system.
            _ => 1,
        },
        is_port_free,
        environment: env::vars_os()
            .filter(|(name, _)| !LINK_VARIABLES.iter().any(|link| name == link))
            .collect(),
        working_directory: env::current_dir().ok().map(Into::into),
    };
    let mut plan = plan::plan(spec, around)?;
    if input::is_empty() {
        plan.stdin = StdinSource::Null;
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A port at which somebody listens at one address, of either protocol, is not free; it is afterwards.
    #[test]
    fn ports_of_listeners_are_not_free() {
        for address in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            let Ok(listener) = TcpListener::bind((address, 0)) else {
                assert!(address.is_ipv6(), "nobody can listen at {address}");
                continue;
            };
            let port = listener.local_addr().unwrap().port();
            assert!(!is_port_free(port), "{address}");
            drop(listener);
            assert!(is_port_free(port), "{address}");
        }
    }
}
