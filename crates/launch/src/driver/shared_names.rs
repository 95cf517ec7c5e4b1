//! The launcher's connection to a name server, once a program asks for a name: lends its [`NameClient`] an endpoint.

use std::{
    collections::{BTreeMap, VecDeque},
    future::pending,
    io,
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use ropewalk_fabric::{
    Address, Completion, Endpoint, EndpointOptions, Event, HandshakeError, JobKey, OperationError,
    OperationId, PeerDeath, SubmitError, Transports, address_towards,
};
use ropewalk_launch_core::{
    names::{
        Action, CallId, MESSAGE_SIZE_MAX, NAMES, NameClient, NameReply, NameRequest, NameServerAccess,
        NoReply, decode, encode, identity_of_job,
    },
    supervisor::NameAsker,
};
use ropewalk_pmi as pmi;
use tokio::io::Interest;

use super::{
    NameServer,
    launch_error::with_causes,
    watched::{Watched, is_readable, watch},
};

/// The names that a job shares with others, if it does. Call [`progress`](Self::progress) once
/// [`readable`](Self::readable) is ready and when [`next_deadline`](Self::next_deadline) has come, and take
/// the answers and the messages for the user.
pub(super) struct SharedNames {
    access: Option<NameServerAccess>,
    client: NameClient<NameAsker>,
    connection: Option<Connection>,
    answers: VecDeque<(NameAsker, pmi::Answer)>,
    told: VecDeque<String>,
    begun: Instant,
}

/// An endpoint that knows the name server only.
struct Connection {
    endpoint: Endpoint,
    descriptor: Watched<OwnedFd>,
    server: Address,
    calls: BTreeMap<OperationId, CallId>,
}

impl SharedNames {
    /// How long the server may take to answer, its connection included.
    const TIMEOUT: Duration = Duration::from_secs(5);

    pub(super) fn new(access: Option<NameServerAccess>) -> Self {
        Self {
            access,
            client: NameClient::new(),
            connection: None,
            answers: VecDeque::new(),
            told: VecDeque::new(),
            begun: Instant::now(),
        }
    }

    /// Has a question answered. Never waits.
    pub(super) fn ask(&mut self, asker: NameAsker, question: pmi::Question) {
        self.client.handle_question(asker, question);
        self.settle();
    }

    pub(super) fn poll_answer(&mut self) -> Option<(NameAsker, pmi::Answer)> {
        self.answers.pop_front()
    }

    /// The next message for the user about names that were lost.
    pub(super) fn poll_told(&mut self) -> Option<String> {
        self.told.pop_front()
    }

    pub(super) fn next_deadline(&mut self) -> Option<Instant> {
        let again = self.client.deadline().map(|after| self.begun + after);
        let endpoint = self.connection.as_mut();
        let endpoint = endpoint.and_then(|connection| connection.endpoint.next_deadline());
        again.into_iter().chain(endpoint).min()
    }

    /// Waits until something has come. Never ready without a connection.
    pub(super) async fn readable(&self) {
        let Some(connection) = &self.connection else {
            return pending().await;
        };
        match connection.descriptor.readable().await {
            // As with other descriptors, a turn need not use up what is ready.
            Ok(mut ready) if !is_readable(connection.descriptor.get_ref()) => ready.clear_ready(),
            Ok(_) => {}
            // The runtime is ending.
            Err(_) => pending().await,
        }
    }

    /// Takes what came and does what is due. Never waits.
    pub(super) fn progress(&mut self) {
        self.client.handle_timeout(self.begun.elapsed());
        self.settle();
    }

    fn settle(&mut self) {
        loop {
            if self.connection.is_some() {
                self.drive();
            }
            let mut has_asked = false;
            while let Some(action) = self.client.poll_action() {
                match action {
                    Action::Ask(call, request) => {
                        has_asked = true;
                        if let Err(why) = self.send(call, &request) {
                            self.client.handle_reply(self.begun.elapsed(), call, Err(why));
                        }
                    }
                    Action::Answer(asker, answer) => self.answers.push_back((asker, answer)),
                    Action::Tell(told) => self.told.push_back(told),
                }
            }
            if !has_asked {
                return;
            }
        }
    }

    fn send(&mut self, call: CallId, request: &NameRequest) -> Result<(), NoReply> {
        let access = self.access.as_ref().ok_or(NoReply::NoServer)?;
        let server = access.address;
        let connection = match &mut self.connection {
            Some(connection) => connection,
            None => {
                let opened = Connection::open(access).map_err(|error| NoReply::Unreachable {
                    server,
                    cause: with_causes(&error),
                })?;
                self.connection.insert(opened)
            }
        };
        let asked = connection.ask(call, request);
        asked.map_err(|error| NoReply::NotSent {
            server,
            cause: with_causes(&error),
        })
    }

    fn drive(&mut self) {
        let (Some(connection), Some(access)) = (&mut self.connection, &self.access) else {
            return;
        };
        connection.endpoint.progress();
        while let Some(event) = connection.endpoint.poll_event() {
            let now = self.begun.elapsed();
            match event {
                Event::Completed { operation, result } => {
                    if let Some(call) = connection.calls.remove(&operation) {
                        let result = reply(result, access.address);
                        self.client.handle_reply(now, call, result);
                    }
                }
                Event::PeerDied { .. } => self.client.handle_lost(now),
                // The server says nothing unasked.
                Event::Unexpected { .. } => {}
            }
        }
    }
}

impl Connection {
    /// On the interface towards the server, so that no two launchers of different hosts have one address.
    fn open(access: &NameServerAccess) -> io::Result<Self> {
        let mut lot = [0; 4];
        getrandom::fill(&mut lot).map_err(io::Error::other)?;
        let identity = identity_of_job(u32::from_ne_bytes(lot));
        let mut options = EndpointOptions::new(NAMES, JobKey::from_bytes(*access.key.as_bytes()), identity);
        options.bind = SocketAddr::new(address_towards(access.address)?, 0);
        options.transports = only_tcp();
        options.encrypt = true;
        options.limits.connect_timeout = SharedNames::TIMEOUT;
        options.limits.heartbeat = Some(NameServer::SILENCE_MAX);
        options.limits.message_size_max = MESSAGE_SIZE_MAX;
        let endpoint = Endpoint::bind(options).map_err(io::Error::other)?;
        Ok(Self {
            descriptor: watch(endpoint.as_fd().try_clone_to_owned()?, Interest::READABLE)?,
            server: format!("tcp://{}", access.address)
                .parse()
                .map_err(io::Error::other)?,
            endpoint,
            calls: BTreeMap::new(),
        })
    }

    fn ask(&mut self, call: CallId, request: &NameRequest) -> Result<(), SubmitError> {
        let peer = self.endpoint.peer(&self.server)?;
        // What was published there has to be published again if it is gone.
        self.endpoint.watch(peer)?;
        let operation = self.endpoint.receive_reply(peer, SharedNames::TIMEOUT)?;
        let sent = self
            .endpoint
            .send_unexpected(peer, operation.tag(), encode(request));
        if sent.is_err() {
            self.endpoint.cancel(operation);
            return sent;
        }
        self.calls.insert(operation, call);
        Ok(())
    }
}

/// The reply, or the reason for which there is none with a hint at what to do.
fn reply(result: Result<Completion, OperationError>, server: SocketAddr) -> Result<NameReply, NoReply> {
    let error = match result {
        Ok(Completion::Received(body)) => return decode(&body).ok_or(NoReply::Unclear { server }),
        Ok(Completion::Got(_) | Completion::Put) => return Err(NoReply::Unclear { server }),
        Err(error) => error,
    };
    let hint = match &error {
        OperationError::PeerDied {
            source: PeerDeath::Handshake(HandshakeError::Proof | HandshakeError::Refused),
            ..
        } => "has it the same key?",
        OperationError::PeerDied {
            source: PeerDeath::Handshake(HandshakeError::Foreign | HandshakeError::Job { .. }),
            ..
        } => "is that one?",
        _ => "is it running?",
    };
    Err(NoReply::Silent {
        server,
        hint,
        cause: with_causes(&error),
    })
}

/// Little is said to a name server, mostly from other hosts.
pub(super) fn only_tcp() -> Transports {
    Transports {
        tcp: true,
        shm: false,
        ..Transports::default()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::TcpListener,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
        thread,
    };

    use pmi::{Answer, NameQuestionId, Question};
    use tokio::time::{sleep_until, timeout};

    use super::*;
    use ropewalk_launch_core::names::NameServerKey;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// A server in a thread, until it is dropped.
    struct Running {
        stop: Arc<AtomicBool>,
        thread: Option<thread::JoinHandle<()>>,
        access: NameServerAccess,
    }

    impl Running {
        fn at(address: &str) -> Self {
            let key = [3; 32];
            let mut server = NameServer::bind(address.parse().unwrap(), JobKey::from_bytes(key)).unwrap();
            let address = server.address();
            let stop = Arc::new(AtomicBool::new(false));
            let stopped = stop.clone();
            let serve = move || {
                while !stopped.load(Ordering::Relaxed) {
                    server.serve(Duration::from_millis(10));
                }
            };
            Self {
                stop,
                thread: Some(thread::spawn(serve)),
                access: NameServerAccess {
                    address,
                    key: NameServerKey::from_bytes(key),
                },
            }
        }

        fn job(&self) -> SharedNames {
            SharedNames::new(Some(self.access.clone()))
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            self.stop.store(true, Ordering::Relaxed);
            self.thread.take().unwrap().join().unwrap();
        }
    }

    async fn turn(names: &mut SharedNames) {
        let deadline = names.next_deadline().unwrap_or_else(|| Instant::now() + PATIENCE);
        tokio::select! {
            () = names.readable() => {}
            () = sleep_until(deadline.into()) => {}
        }
        names.progress();
    }

    async fn ask(names: &mut SharedNames, question: Question) -> Answer {
        let asker = NameAsker::Own(NameQuestionId(7));
        names.ask(asker, question);
        let answered = async {
            loop {
                if let Some((whom, answer)) = names.poll_answer() {
                    assert_eq!(whom, asker);
                    return answer;
                }
                turn(names).await;
            }
        };
        timeout(PATIENCE, answered).await.unwrap()
    }

    fn publish() -> Question {
        let (service, port) = ("service".into(), "port".into());
        Question::Publish { service, port }
    }

    fn lookup() -> Question {
        let service = "service".into();
        Question::Lookup { service }
    }

    fn found(is_there: bool) -> Answer {
        let value = is_there.then(|| "port".into());
        Answer::Value { value }
    }

    /// Asks until the answer is this one.
    async fn until(names: &mut SharedNames, answer: Answer) {
        let begun = Instant::now();
        while ask(names, lookup()).await != answer {
            assert!(begun.elapsed() < PATIENCE, "it was never {answer:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn failure(answer: Answer) -> String {
        match answer {
            Answer::Failed { reason } => reason.to_string(),
            other => panic!("{other:?}"),
        }
    }

    /// A name that one job publishes is found by another, until the first job is over.
    #[tokio::test]
    async fn names_are_shared_while_their_job_lives() {
        let server = Running::at("127.0.0.1:0");
        let [mut first, mut second] = [server.job(), server.job()];
        assert_eq!(ask(&mut second, lookup()).await, found(false));
        let done = |done| Answer::Done { done };
        assert_eq!(ask(&mut first, publish()).await, done(true));
        assert_eq!(ask(&mut second, lookup()).await, found(true));
        assert_eq!(ask(&mut second, publish()).await, done(false));
        drop(first);
        until(&mut second, found(false)).await;
        assert_eq!(ask(&mut second, publish()).await, done(true));
    }

    /// A server that is started in the place of another soon has the names of the jobs that go on.
    #[tokio::test]
    async fn names_come_back_with_their_server() {
        let server = Running::at("127.0.0.1:0");
        let address = server.access.address.to_string();
        let mut publisher = server.job();
        assert_eq!(ask(&mut publisher, publish()).await, Answer::Done { done: true });
        drop(server);
        let why = failure(ask(&mut publisher, lookup()).await);
        assert!(why.contains(&address) && why.contains("is it running"), "{why}");
        let server = Running::at(&address);
        let mut other = server.job();
        let driven = async {
            loop {
                turn(&mut publisher).await;
            }
        };
        tokio::select! {
            () = until(&mut other, found(true)) => {}
            () = driven => {}
        }
    }

    /// Who has another key is told so, and hears nothing else; whoever does not answer at all is given up.
    #[tokio::test]
    async fn the_wrong_server_is_an_error_in_time() {
        let server = Running::at("127.0.0.1:0");
        let mut stranger = server.access.clone();
        stranger.key = NameServerKey::from_bytes([4; 32]);
        let why = failure(ask(&mut SharedNames::new(Some(stranger)), lookup()).await);
        assert!(why.contains("the same key"), "{why}");
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap();
        let key = server.access.key.clone();
        let mut names = SharedNames::new(Some(NameServerAccess { address, key }));
        let begun = Instant::now();
        let why = failure(ask(&mut names, lookup()).await);
        assert!(why.contains("is it running"), "{why}");
        assert!(
            begun.elapsed() < SharedNames::TIMEOUT * 2,
            "{:?}",
            begun.elapsed()
        );
        let why = failure(ask(&mut SharedNames::new(None), lookup()).await);
        assert!(why.contains("no name server"), "{why}");
    }
}
