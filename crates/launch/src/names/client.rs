//! What a launcher does about names that several jobs share.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use bstr::BString;
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
}

#[derive(Debug)]
struct Published {
    port: BString,
    /// The server has it, as far as is known.
    is_there: bool,
}

#[derive(Debug)]
enum Purpose<A> {
    /// The connection was lost: publish this again.
    Again(BString),
    Answer(A, NameRequest),
    /// It was published again although nobody wants it any more.
    Forget,
}

impl<A> NameClient<A> {
    /// The pause before names are published again, and after each time that this failed.
    pub(crate) const PAUSE: Duration = Duration::from_secs(1);

    pub(crate) fn new() -> Self {
        Self {
            published: BTreeMap::new(),
            calls: BTreeMap::new(),
            next_call: 0,
            again_at: None,
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
            NameRequest::Unpublish { service } => {
                let its = self.published.remove(service);
                its.is_some_and(|its| !its.is_there).then_some(true)
            }
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
                if let (NameRequest::Publish { service, port }, Ok(Ok(_))) = (&request, &result) {
                    let (port, is_there) = (port.clone(), true);
                    self.published
                        .insert(service.clone(), Published { port, is_there });
                }
                let answer = answer(&request, result);
                self.actions.push_back(Action::Answer(asker, answer));
            }
            Some(Purpose::Again(service)) => match (self.published.get_mut(&service), result) {
                (Some(published), Ok(Ok(_))) => published.is_there = true,
                // It was unpublished meanwhile, when it was not there yet.
                (None, Ok(Ok(_))) => {
                    self.ask(NameRequest::Unpublish { service }, Purpose::Forget);
                }
                // The server may not have noticed yet that the old connection is gone, or not be there yet.
                (Some(_), _) => self.again_at = Some(now + Self::PAUSE),
                (None, _) => {}
            },
            Some(Purpose::Forget) | None => {}
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

    fn ask(&mut self, request: NameRequest, purpose: Purpose<A>) {
        let call = CallId(self.next_call);
        self.next_call += 1;
        self.calls.insert(call, purpose);
        self.actions.push_back(Action::Ask(call, request));
    }
}

/// What whoever asked is told. That a name is there already, or is not there, is said in the words of a job's own names.
fn answer(request: &NameRequest, result: Result<NameReply, String>) -> Answer {
    let reason = match (request, result) {
        (NameRequest::Lookup { .. }, Ok(Ok(value))) => return Answer::Value { value },
        (NameRequest::Lookup { .. }, Ok(Err(NameRefusal::NotFound))) => {
            return Answer::Value { value: None };
        }
        (_, Ok(Ok(_))) => return Answer::Done { done: true },
        (_, Ok(Err(NameRefusal::Published | NameRefusal::NotFound))) => {
            return Answer::Done { done: false };
        }
        (_, Ok(Err(refusal))) => refusal.to_string(),
        (_, Err(reason)) => reason,
    };
    Answer::Failed {
        reason: reason.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn publish(service: &str, port: &str) -> Question {
        let (service, port) = (service.into(), port.into());
        Question::Publish { service, port }
    }

    fn asked(client: &mut NameClient<u32>) -> (CallId, NameRequest) {
        match client.poll_action() {
            Some(Action::Ask(call, request)) => (call, request),
            other => panic!("{other:?}"),
        }
    }

    fn answered(client: &mut NameClient<u32>) -> Answer {
        match client.poll_action() {
            Some(Action::Answer(1, answer)) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// A client of a job that has published this.
    fn with(service: &str, port: &str) -> NameClient<u32> {
        let mut client = NameClient::new();
        client.handle_question(1, publish(service, port));
        let (call, _) = asked(&mut client);
        client.handle_reply(SECOND, call, Ok(Ok(None)));
        assert_eq!(answered(&mut client), Answer::Done { done: true });
        client
    }

    /// Each question is answered, whatever came of the request, and a reply that nobody waits for by nobody.
    #[test]
    fn every_question_is_answered() {
        let mut client = NameClient::new();
        let service = || BString::from("s");
        let failed = |text: &str| Answer::Failed { reason: text.into() };
        let lookup = || Question::Lookup { service: service() };
        let unpublish = || Question::Unpublish { service: service() };
        let not_yours = NameRefusal::NotYours;
        for (question, result, expected) in [
            (
                lookup(),
                Ok(Ok(Some("p".into()))),
                Answer::Value {
                    value: Some("p".into()),
                },
            ),
            (
                lookup(),
                Ok(Err(NameRefusal::NotFound)),
                Answer::Value { value: None },
            ),
            (lookup(), Err("gone".to_owned()), failed("gone")),
            (
                publish("s", "p"),
                Ok(Err(NameRefusal::Published)),
                Answer::Done { done: false },
            ),
            (publish("s", "p"), Err("gone".to_owned()), failed("gone")),
            (
                unpublish(),
                Ok(Err(NameRefusal::NotFound)),
                Answer::Done { done: false },
            ),
            (
                unpublish(),
                Ok(Err(not_yours.clone())),
                failed(&not_yours.to_string()),
            ),
            (unpublish(), Ok(Ok(None)), Answer::Done { done: true }),
        ] {
            client.handle_question(1, question);
            let (call, _) = asked(&mut client);
            client.handle_reply(SECOND, call, result);
            assert_eq!(answered(&mut client), expected);
            client.handle_reply(SECOND, call, Ok(Ok(None)));
            assert_eq!(client.poll_action(), None);
        }
        client.handle_lost(SECOND);
        assert_eq!(client.deadline(), None, "nothing is published");
    }

    /// What the job has published it cannot publish again, and the server is not asked for that.
    #[test]
    fn a_name_is_published_once() {
        let mut client = with("s", "p");
        client.handle_question(1, publish("s", "p"));
        assert_eq!(answered(&mut client), Answer::Done { done: false });
    }

    /// What was published comes back after the connection was lost, as soon as the server takes it.
    #[test]
    fn names_come_back() {
        let mut client = with("s", "p");
        client.handle_lost(2 * SECOND);
        let mut now = 2 * SECOND;
        for result in [
            Err("nobody is there".to_owned()),
            Ok(Err(NameRefusal::Published)),
            Ok(Ok(None)),
        ] {
            client.handle_timeout(now);
            assert_eq!(client.poll_action(), None, "it pauses");
            now += NameClient::<u32>::PAUSE;
            assert_eq!(client.deadline(), Some(now));
            client.handle_timeout(now);
            let (call, request) = asked(&mut client);
            let (service, port) = ("s".into(), "p".into());
            assert_eq!(request, NameRequest::Publish { service, port });
            client.handle_reply(now, call, result);
            assert_eq!(client.poll_action(), None);
        }
        assert_eq!(client.deadline(), None);
    }

    /// What is unpublished while it is not there does not come back.
    #[test]
    fn what_was_unpublished_does_not_come_back() {
        let service = || BString::from("s");
        let mut client = with("s", "p");
        client.handle_lost(SECOND);
        client.handle_timeout(3 * SECOND);
        let (call, _) = asked(&mut client);
        client.handle_question(1, Question::Unpublish { service: service() });
        assert_eq!(answered(&mut client), Answer::Done { done: true });
        client.handle_reply(3 * SECOND, call, Ok(Ok(None)));
        let (call, request) = asked(&mut client);
        assert_eq!(request, NameRequest::Unpublish { service: service() });
        client.handle_reply(3 * SECOND, call, Err("gone".to_owned()));
        assert_eq!((client.poll_action(), client.deadline()), (None, None));
    }
}
