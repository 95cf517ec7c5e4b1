//! What a launcher does about names that several jobs share.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use bstr::{BStr, BString};
use ropewalk_pmi::{Answer, Question};

use super::{NameRefusal, NameReply, NameRequest};

/// A launcher's side of a name server. `A` is who asks. `now` is the time since the start of the job.
///
/// Call `handle_*`, and do what [`poll_action`](Self::poll_action) says after each; call
/// [`handle_timeout`](Self::handle_timeout) when [`deadline`](Self::deadline) has come.
///
/// It remembers what the job has published, to publish it again if the connection was lost: that may be a matter of the
/// network, or of a launcher that was suspended, and the job goes on all the same.
#[derive(Debug)]
pub(crate) struct NameClient<A> {
    published: BTreeMap<BString, Published>,
    calls: BTreeMap<CallId, Purpose<A>>,
    next_call: u64,
    /// When what is not known to be there is published again.
    again_at: Option<Duration>,
    /// The user was told that the server does not answer when names are published again.
    is_silence_told: bool,
    actions: VecDeque<Action<A>>,
}

/// A request that waits for its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallId(pub(crate) u64);

/// What has to be done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action<A> {
    /// Send this to the name server, and say with [`NameClient::handle_reply`] what came of it, in any case.
    Ask(CallId, NameRequest),
    /// Answer who asked.
    Answer(A, Answer),
    /// Tell the user that a name which was published is not, as this sentence says.
    Tell(String),
}

#[derive(Debug)]
struct Published {
    port: BString,
    /// The server has it, as far as is known.
    is_there: bool,
    /// How often in a row the server did not answer when it was published again, or refused.
    silences: u32,
    refusals: u32,
}

#[derive(Debug)]
enum Purpose<A> {
    /// The connection was lost: publish this again.
    Again(BString),
    Answer(A, NameRequest),
    /// Nobody wants this, and it may be there all the same.
    Forget(BString),
}

impl<A> NameClient<A> {
    /// The pause before names are published again, and after each time that this failed.
    pub(crate) const PAUSE: Duration = Duration::from_secs(1);
    /// The user is told after so many failures in a row: the server has to notice first that the old connection is gone, and
    /// one that is started anew has to come up.
    const FAILURES_TOLD: u32 = 2;

    pub(crate) fn new() -> Self {
        Self {
            published: BTreeMap::new(),
            calls: BTreeMap::new(),
            next_call: 0,
            again_at: None,
            is_silence_told: false,
            actions: VecDeque::new(),
        }
    }

    pub(crate) fn poll_action(&mut self) -> Option<Action<A>> {
        self.actions.pop_front()
    }

    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.again_at
    }

    /// A program of the job asks something about names; what is about something else gets no answer of use.
    pub(crate) fn handle_question(&mut self, asker: A, question: Question) {
        let request = match question {
            Question::Lookup { service } => NameRequest::Lookup { service },
            Question::Publish { service, port } => NameRequest::Publish { service, port },
            Question::Unpublish { service } => NameRequest::Unpublish { service },
            Question::Connect { .. } | Question::Get { .. } | Question::Spawn { .. } => {
                return self.actions.push_back(Action::Answer(asker, Answer::Lost));
            }
        };
        let known = match &request {
            NameRequest::Lookup { .. } => None,
            // The server takes it for a repetition if the port is the same.
            NameRequest::Publish { service, .. } => self.published.contains_key(service).then_some(false),
            NameRequest::Unpublish { service } => self.stop_publishing(service).then_some(true),
        };
        if let Some(done) = known {
            let answer = Answer::Done { done };
            return self.actions.push_back(Action::Answer(asker, answer));
        }
        self.ask(request.clone(), Purpose::Answer(asker, request));
    }

    /// What came of a request: the reply, or a sentence that says why there is none.
    pub(crate) fn handle_reply(&mut self, now: Duration, call: CallId, result: Result<NameReply, String>) {
        match self.calls.remove(&call) {
            Some(Purpose::Answer(asker, request)) => {
                self.heed(now, &request, &result);
                let answer = answer(&request, result);
                self.actions.push_back(Action::Answer(asker, answer));
            }
            Some(Purpose::Again(service)) => self.handle_again(now, &service, result),
            Some(Purpose::Forget(service)) => self.doubt(now, &service),
            None => {}
        }
    }

    /// The connection to the server is gone, and with it what the job had published there.
    pub(crate) fn handle_lost(&mut self, now: Duration) {
        for published in self.published.values_mut() {
            published.is_there = false;
        }
        if !self.published.is_empty() {
            self.again_at = Some(now + Self::PAUSE);
        }
    }

    /// Publishes again what was lost, if it is time.
    pub(crate) fn handle_timeout(&mut self, now: Duration) {
        if self.again_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        let lost = self.published.iter().filter(|(_, published)| !published.is_there);
        let lost: Vec<_> = lost
            .map(|(service, published)| (service.clone(), published.port.clone()))
            .collect();
        for (service, port) in lost {
            let purpose = Purpose::Again(service.clone());
            self.ask(NameRequest::Publish { service, port }, purpose);
        }
    }

    /// Remembers what came of a program's request.
    fn heed(&mut self, now: Duration, request: &NameRequest, result: &Result<NameReply, String>) {
        match (request, result) {
            (NameRequest::Publish { service, port }, Ok(Ok(_))) => {
                let published = Published {
                    port: port.clone(),
                    is_there: true,
                    silences: 0,
                    refusals: 0,
                };
                self.published.insert(service.clone(), published);
            }
            // The program is told that it failed, and may publish another port, which would be refused.
            (NameRequest::Publish { service, .. }, Err(_)) => self.forget(service),
            // It was published and unpublished at once, by two processes of the job.
            (NameRequest::Unpublish { service }, Ok(Ok(_))) => {
                self.stop_publishing(service);
            }
            (NameRequest::Unpublish { service }, Err(_)) => self.doubt(now, service),
            _ => {}
        }
    }

    /// What came of publishing again what was lost.
    fn handle_again(&mut self, now: Duration, service: &BString, result: Result<NameReply, String>) {
        self.is_silence_told &= result.is_err();
        // It may have been unpublished meanwhile.
        let Some(published) = self.published.get_mut(service) else {
            return;
        };
        let why = match result {
            Ok(Ok(_)) => {
                published.is_there = true;
                (published.silences, published.refusals) = (0, 0);
                return;
            }
            Ok(Err(refusal)) => {
                published.silences = 0;
                published.refusals = published.refusals.saturating_add(1);
                (published.refusals == Self::FAILURES_TOLD).then(|| refusal.to_string())
            }
            Err(why) => {
                published.refusals = 0;
                published.silences = published.silences.saturating_add(1);
                // Of all names that a silent server does not have one tells enough.
                let is_due = published.silences == Self::FAILURES_TOLD && !self.is_silence_told;
                self.is_silence_told |= is_due;
                is_due.then_some(why)
            }
        };
        self.again_at = Some(now + Self::PAUSE);
        if let Some(why) = why {
            self.actions.push_back(Action::Tell(format!(
                "the name {:?} was lost with the connection and is not published again yet: {why}",
                beginning(service)
            )));
        }
    }

    /// Publishes a name no more. Returns whether that is all: one that may be there, or not, is forgotten at once, on the
    /// connection on which it may have been published again, so that what follows finds it gone.
    fn stop_publishing(&mut self, service: &BString) -> bool {
        let its = self.published.remove(service);
        let is_again = |purpose: &Purpose<A>| matches!(purpose, Purpose::Again(known) if known == service);
        let is_lost = its.is_some_and(|its| !its.is_there || self.calls.values().any(is_again));
        if is_lost {
            self.forget(service);
        }
        is_lost
    }

    /// What was published before this name was to be forgotten may be gone: the replies tell the order, or there was none.
    fn doubt(&mut self, now: Duration, service: &BString) {
        if let Some(published) = self.published.get_mut(service) {
            published.is_there = false;
            self.again_at = Some(now + Self::PAUSE);
        }
    }

    fn forget(&mut self, service: &BString) {
        let request = NameRequest::Unpublish {
            service: service.clone(),
        };
        self.ask(request, Purpose::Forget(service.clone()));
    }

    fn ask(&mut self, request: NameRequest, purpose: Purpose<A>) {
        let call = CallId(self.next_call);
        self.next_call += 1;
        self.calls.insert(call, purpose);
        self.actions.push_back(Action::Ask(call, request));
    }
}

/// What whoever asked is told. That a name is there already, or is not there, is said in the words of a job's own names.
fn answer(request: &NameRequest, result: Result<NameReply, String>) -> Answer {
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
        (_, Err(why)) => why,
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
