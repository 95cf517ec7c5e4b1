//! A launcher's part in names that several jobs share.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use bstr::{BStr, BString};
use ropewalk_pmi::{Answer, Question};

use super::{NameRefusal, NameReply, NameRequest, NoReply};

/// A launcher's side of a name server. `A` is who asks. `now` is the time since the start of the job.
///
/// Call `handle_*`, and do what [`poll_action`](Self::poll_action) says after each; call
/// [`handle_timeout`](Self::handle_timeout) when [`deadline`](Self::deadline) has come.
///
/// It remembers what the job has published, to publish it again if the connection was lost: that may be a matter of the
/// network, or of a launcher that was suspended, and the job goes on all the same. What is to change about
/// one name is asked one after the other, so that there is no doubt in which order it was done.
#[derive(Debug)]
pub struct NameClient<A> {
    names: BTreeMap<BString, Name<A>>,
    calls: BTreeMap<CallId, Purpose<A>>,
    next_call: u64,
    /// When what is not known to be at the server as it should be is brought there again.
    again_at: Option<Duration>,
    /// The user was told that the server does not answer when names are published again.
    is_silence_told: bool,
    actions: VecDeque<Action<A>>,
}

/// A request that waits for its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// An action that has to be done for a [`NameClient`].
#[derive(Debug, PartialEq, Eq)]
pub enum Action<A> {
    /// Send this to the name server, and say with [`NameClient::handle_reply`] what came of it, in any case.
    Ask(CallId, NameRequest),
    /// Answer who asked.
    Answer(A, Answer),
    /// Tell the user that a name which was published is not, as this sentence says.
    Tell(String),
}

/// A name that the job has published, or about which something is to be done.
#[derive(Debug)]
struct Name<A> {
    /// The port that the job has published under it.
    port: Option<BString>,
    at_server: AtServer,
    /// A request about it waits for its reply.
    is_asking: bool,
    /// Requests that wait for that.
    waiting: VecDeque<(A, NameRequest)>,
    /// How often in a row the server did not answer when it was published again, or refused.
    silences: u32,
    refusals: u32,
}

/// The state at the server of a name of this job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtServer {
    Nothing,
    /// The port that the job has published.
    Published,
    /// A reply is missing.
    Unknown,
}

#[derive(Debug)]
enum Purpose<A> {
    Answer(A, NameRequest),
    /// The connection was lost: publish this again.
    Again(BString),
    /// Nobody wants this, and it may be there all the same.
    Forget(BString),
}

impl<A> Default for NameClient<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A> NameClient<A> {
    /// The pause before names are published again, and after each time that this failed.
    pub const PAUSE: Duration = Duration::from_secs(1);
    /// The user is told after so many failures in a row: the server has to notice first that the old
    /// connection is gone, and one that is started anew has to come up.
    const FAILURES_TOLD: u32 = 2;

    /// A client that has asked nothing.
    pub fn new() -> Self {
        Self {
            names: BTreeMap::new(),
            calls: BTreeMap::new(),
            next_call: 0,
            again_at: None,
            is_silence_told: false,
            actions: VecDeque::new(),
        }
    }

    /// The next thing that has to be done for this machine.
    pub fn poll_action(&mut self) -> Option<Action<A>> {
        self.actions.pop_front()
    }

    /// The time at which to call [`handle_timeout`](Self::handle_timeout).
    pub fn deadline(&self) -> Option<Duration> {
        self.again_at
    }

    /// A program of the job asks something about names; what is about something else gets no answer of use.
    pub fn handle_question(&mut self, asker: A, question: Question) {
        let request = match question {
            Question::Lookup { service } => {
                let request = NameRequest::Lookup { service };
                return self.ask(request.clone(), Purpose::Answer(asker, request));
            }
            Question::Publish { service, port } => NameRequest::Publish { service, port },
            Question::Unpublish { service } => NameRequest::Unpublish { service },
            Question::Connect { .. } | Question::Get { .. } | Question::Spawn { .. } => {
                return self.actions.push_back(Action::Answer(asker, Answer::Lost));
            }
        };
        let service = service_of(&request).clone();
        let name = self.names.entry(service.clone()).or_default();
        name.waiting.push_back((asker, request));
        self.proceed(&service);
    }

    /// Takes the reply to a request, or the reason for which there is none.
    pub fn handle_reply(&mut self, now: Duration, call: CallId, result: Result<NameReply, NoReply>) {
        match self.calls.remove(&call) {
            Some(Purpose::Answer(asker, request @ NameRequest::Lookup { .. })) => {
                let answer = answer(&request, result);
                self.actions.push_back(Action::Answer(asker, answer));
            }
            Some(Purpose::Answer(asker, request)) => self.handle_change(now, asker, request, result),
            Some(Purpose::Again(service)) => self.handle_again(now, &service, result),
            Some(Purpose::Forget(service)) => self.handle_forgotten(now, &service, result),
            None => {}
        }
    }

    /// The connection to the server is gone, and with it what the job had published there. What waits for a
    /// reply is told of that by itself.
    pub fn handle_lost(&mut self, now: Duration) {
        for name in self.names.values_mut().filter(|name| !name.is_asking) {
            name.at_server = AtServer::Nothing;
        }
        self.names.retain(|_, name| !name.is_of_no_use());
        if self.names.values().any(|name| name.port.is_some()) {
            self.again_at = Some(now + Self::PAUSE);
        }
    }

    /// Publishes again what was lost, and forgets what may be there, if it is time.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.again_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        let is_due = |name: &Name<A>| match name.port {
            Some(_) => name.at_server != AtServer::Published,
            None => name.at_server == AtServer::Unknown,
        };
        let names = self.names.iter_mut();
        let due: Vec<_> = names
            .filter(|(_, name)| !name.is_asking && is_due(name))
            .map(|(service, name)| {
                name.is_asking = true;
                (service.clone(), name.port.clone())
            })
            .collect();
        for (service, port) in due {
            match port {
                Some(port) => {
                    let purpose = Purpose::Again(service.clone());
                    self.ask(NameRequest::Publish { service, port }, purpose);
                }
                None => self.forget(service),
            }
        }
    }

    /// Does what waits, until a request about this name is under way.
    fn proceed(&mut self, service: &BString) {
        while let Some(name) = self.names.get_mut(service).filter(|name| !name.is_asking) {
            let is_there = name.at_server == AtServer::Published;
            let known = match name.waiting.front() {
                None if name.is_of_no_use() => {
                    self.names.remove(service);
                    return;
                }
                None if name.port.is_some() || is_there => return,
                // A publication that failed may be there, and another would be refused.
                None | Some((_, NameRequest::Publish { .. }))
                    if name.port.is_none() && name.at_server == AtServer::Unknown =>
                {
                    name.is_asking = true;
                    return self.forget(service.clone());
                }
                Some((_, NameRequest::Publish { .. })) => name.port.is_some().then_some(false),
                // If it may be there it is forgotten next.
                Some((_, NameRequest::Unpublish { .. })) if !is_there => name.port.take().map(|_| true),
                _ => None,
            };
            let Some((asker, request)) = name.waiting.pop_front() else {
                return;
            };
            match known {
                Some(done) => {
                    let answer = Answer::Done { done };
                    self.actions.push_back(Action::Answer(asker, answer));
                }
                None => {
                    name.is_asking = true;
                    self.ask(request.clone(), Purpose::Answer(asker, request));
                }
            }
        }
    }

    /// Handles the result of a program's request to publish or unpublish a name.
    fn handle_change(
        &mut self,
        now: Duration,
        asker: A,
        request: NameRequest,
        result: Result<NameReply, NoReply>,
    ) {
        let service = service_of(&request).clone();
        let name = self.names.entry(service.clone()).or_default();
        name.is_asking = false;
        let was_published = name.port.is_some();
        match (&request, &result) {
            (NameRequest::Publish { port, .. }, Ok(Ok(_))) => {
                name.port = Some(port.clone());
                name.at_server = AtServer::Published;
                (name.silences, name.refusals) = (0, 0);
            }
            // The program is told that it failed: what it has published is published again.
            (_, Err(_)) => {
                name.at_server = AtServer::Unknown;
                if was_published {
                    self.again_at = Some(now + Self::PAUSE);
                }
            }
            (NameRequest::Publish { .. }, Ok(Err(_))) => name.at_server = AtServer::Nothing,
            _ => (name.port, name.at_server) = (None, AtServer::Nothing),
        }
        let answer = match (&request, &result) {
            // Whoever has it now, it was published, and is not any more.
            (NameRequest::Unpublish { .. }, Ok(Err(_))) if was_published => Answer::Done { done: true },
            _ => answer(&request, result.clone()),
        };
        self.actions.push_back(Action::Answer(asker, answer));
        if let Err(why) = result {
            self.fail_waiting(&service, &why);
        }
        self.proceed(&service);
    }

    /// Handles the result of publishing a lost name again.
    fn handle_again(&mut self, now: Duration, service: &BString, result: Result<NameReply, NoReply>) {
        self.is_silence_told &= result.is_err();
        let Some(name) = self.names.get_mut(service) else {
            return;
        };
        name.is_asking = false;
        let why = match result {
            Ok(Ok(_)) => {
                name.at_server = AtServer::Published;
                (name.silences, name.refusals) = (0, 0);
                return self.proceed(service);
            }
            Ok(Err(refusal)) => {
                name.at_server = AtServer::Nothing;
                name.silences = 0;
                name.refusals = name.refusals.saturating_add(1);
                (name.refusals == Self::FAILURES_TOLD).then(|| refusal.to_string())
            }
            Err(why) => {
                name.at_server = AtServer::Unknown;
                name.refusals = 0;
                name.silences = name.silences.saturating_add(1);
                // Of all names that a silent server does not have one tells enough.
                let is_due = name.silences == Self::FAILURES_TOLD && !self.is_silence_told;
                self.is_silence_told |= is_due;
                is_due.then(|| why.to_string())
            }
        };
        self.again_at = Some(now + Self::PAUSE);
        if let Some(why) = why {
            self.actions.push_back(Action::Tell(format!(
                "the name {:?} was lost with the connection and is not published again yet: {why}",
                beginning(service)
            )));
        }
        self.proceed(service);
    }

    /// Handles the result of asking the server to forget a name that it may have.
    fn handle_forgotten(&mut self, now: Duration, service: &BString, result: Result<NameReply, NoReply>) {
        let Some(name) = self.names.get_mut(service) else {
            return;
        };
        name.is_asking = false;
        match result {
            // Gone, not there, or another's.
            Ok(_) => {
                name.at_server = AtServer::Nothing;
                self.proceed(service);
            }
            Err(why) => {
                self.again_at = Some(now + Self::PAUSE);
                self.fail_waiting(service, &why);
            }
        }
    }

    /// The server has not answered: who waits for the same one does not wait longer.
    fn fail_waiting(&mut self, service: &BString, why: &NoReply) {
        let Some(name) = self.names.get_mut(service) else {
            return;
        };
        for (asker, request) in name.waiting.drain(..) {
            let answer = answer(&request, Err(why.clone()));
            self.actions.push_back(Action::Answer(asker, answer));
        }
    }

    fn forget(&mut self, service: BString) {
        let purpose = Purpose::Forget(service.clone());
        self.ask(NameRequest::Unpublish { service }, purpose);
    }

    fn ask(&mut self, request: NameRequest, purpose: Purpose<A>) {
        let call = CallId(self.next_call);
        self.next_call += 1;
        self.calls.insert(call, purpose);
        self.actions.push_back(Action::Ask(call, request));
    }
}

impl<A> Name<A> {
    /// Neither the job nor the server has it, and nobody asks.
    fn is_of_no_use(&self) -> bool {
        let is_at_rest = !self.is_asking && self.waiting.is_empty();
        is_at_rest && self.port.is_none() && self.at_server == AtServer::Nothing
    }
}

impl<A> Default for Name<A> {
    fn default() -> Self {
        Self {
            port: None,
            at_server: AtServer::Nothing,
            is_asking: false,
            waiting: VecDeque::new(),
            silences: 0,
            refusals: 0,
        }
    }
}

fn service_of(request: &NameRequest) -> &BString {
    match request {
        NameRequest::Lookup { service }
        | NameRequest::Publish { service, .. }
        | NameRequest::Unpublish { service } => service,
    }
}

/// The answer to the program that asked. A name that is there already, or is not there, is answered as if it
/// were one of a job's own names.
fn answer(request: &NameRequest, result: Result<NameReply, NoReply>) -> Answer {
    let why = match (request, result) {
        (NameRequest::Lookup { .. }, Ok(Ok(value))) => return Answer::Value { value },
        (NameRequest::Lookup { .. }, Ok(Err(NameRefusal::NotFound))) => {
            return Answer::Value { value: None };
        }
        (_, Ok(Ok(_))) => return Answer::Done { done: true },
        (_, Ok(Err(NameRefusal::Published | NameRefusal::NotFound))) => {
            return Answer::Done { done: false };
        }
        (_, Ok(Err(refusal))) => refusal.to_string(),
        (_, Err(why)) => why.to_string(),
    };
    let (service, done) = match request {
        NameRequest::Lookup { service } => (service, "looked up"),
        NameRequest::Publish { service, .. } => (service, "published"),
        NameRequest::Unpublish { service } => (service, "unpublished"),
    };
    Answer::Failed {
        reason: format!("the name {:?} was not {done}: {why}", beginning(service)).into(),
    }
}

/// As much of a name as is told.
fn beginning(service: &BString) -> &BStr {
    BStr::new(&service[..service.len().min(TOLD_SIZE_MAX)])
}

/// Of a sentence about a name enough is left for the rest of it, in a line of PMI's.
const TOLD_SIZE_MAX: usize = 100;

#[cfg(test)]
mod tests;
