//! A launcher's requests to a name server, and its answers to its programs and its user.

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::names::NameTable;

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
    let failed = |text: &str| {
        let reason = format!("the name \"s\" was not {text}").into();
        Answer::Failed { reason }
    };
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
        (
            lookup(),
            Err(NoReply::NoServer),
            failed("looked up: this job has no name server"),
        ),
        (
            publish("s", "p"),
            Ok(Err(NameRefusal::Published)),
            Answer::Done { done: false },
        ),
        (
            publish("s", "p"),
            Ok(Err(NameRefusal::TooMany)),
            failed(&format!("published: {}", NameRefusal::TooMany)),
        ),
        (
            unpublish(),
            Ok(Err(NameRefusal::NotFound)),
            Answer::Done { done: false },
        ),
        (
            unpublish(),
            Ok(Err(not_yours.clone())),
            failed(&format!("unpublished: {not_yours}")),
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

/// The job cannot publish a name again that it has published, and the server is not asked for that.
#[test]
fn a_name_is_published_once() {
    let mut client = with("s", "p");
    client.handle_question(1, publish("s", "p"));
    assert_eq!(answered(&mut client), Answer::Done { done: false });
}

/// A published name comes back after the connection was lost, as soon as the server takes it.
#[test]
fn names_come_back() {
    let mut client = with("s", "p");
    client.handle_lost(2 * SECOND);
    let mut now = 2 * SECOND;
    for result in [
        Err(NoReply::NoServer),
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

/// The user is told once of a name that does not come back, at the second time, and of a server that does not
/// answer by one of all names.
#[test]
fn the_user_is_told_what_does_not_come_back() {
    let mut client = with("s", "p");
    client.handle_question(1, publish("t", "p"));
    let (call, _) = asked(&mut client);
    client.handle_reply(SECOND, call, Ok(Ok(None)));
    answered(&mut client);
    client.handle_lost(SECOND);
    let well = || Ok(Ok(None));
    let taken = || Ok(Err(NameRefusal::Published));
    let silence = || Err(NoReply::NoServer);
    let mut now = SECOND;
    for (of_s, of_t, expected) in [
        (silence(), silence(), None),
        (silence(), silence(), Some(["\"s\"", "no name server"])),
        (silence(), taken(), None),
        (well(), taken(), Some(["\"t\"", "published already"])),
        (well(), taken(), None),
        (well(), well(), None),
    ] {
        now += NameClient::<u32>::PAUSE;
        client.handle_timeout(now);
        let mut told = Vec::new();
        while let Some(action) = client.poll_action() {
            match action {
                Action::Ask(call, NameRequest::Publish { service, .. }) => {
                    let result = if service == "s" { &of_s } else { &of_t };
                    client.handle_reply(now, call, result.clone());
                }
                Action::Tell(text) => told.push(text),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(told.len(), usize::from(expected.is_some()), "{told:?}");
        for word in expected.into_iter().flatten() {
            assert!(told[0].contains(word), "{told:?}");
        }
    }
    assert_eq!(client.deadline(), None);
}

/// A name that is unpublished while it is not there does not come back, and one that is published then stays.
#[test]
fn what_was_unpublished_does_not_come_back() {
    let service = || BString::from("s");
    let mut client = with("s", "p");
    client.handle_lost(SECOND);
    client.handle_timeout(3 * SECOND);
    let (again, _) = asked(&mut client);
    client.handle_question(1, Question::Unpublish { service: service() });
    client.handle_question(1, publish("s", "q"));
    assert_eq!(client.poll_action(), None, "one after the other");
    client.handle_reply(3 * SECOND, again, Ok(Ok(None)));
    let (call, request) = asked(&mut client);
    assert_eq!(request, NameRequest::Unpublish { service: service() });
    client.handle_reply(3 * SECOND, call, Ok(Ok(None)));
    assert_eq!(answered(&mut client), Answer::Done { done: true });
    let (call, _) = asked(&mut client);
    client.handle_reply(3 * SECOND, call, Ok(Ok(None)));
    assert_eq!(answered(&mut client), Answer::Done { done: true });
    assert_eq!((client.poll_action(), client.deadline()), (None, None));
    assert_eq!(believed(&client), [("s".into(), "q".into())]);
}

/// A publication of which nobody knows whether it was heard is taken back before another.
#[test]
fn what_may_have_failed_is_taken_back() {
    let service = || BString::from("s");
    let mut client = NameClient::new();
    client.handle_question(1, publish("s", "p"));
    let (call, _) = asked(&mut client);
    client.handle_reply(SECOND, call, Err(NoReply::NoServer));
    assert!(matches!(answered(&mut client), Answer::Failed { .. }));
    let (call, request) = asked(&mut client);
    assert_eq!(request, NameRequest::Unpublish { service: service() });
    // Whoever asks meanwhile waits for that, and no longer than the server is waited for.
    client.handle_question(1, publish("s", "q"));
    client.handle_reply(2 * SECOND, call, Err(NoReply::NoServer));
    assert!(matches!(answered(&mut client), Answer::Failed { .. }));
    assert_eq!(client.poll_action(), None);
    assert_eq!(client.deadline(), Some(3 * SECOND));
    client.handle_timeout(3 * SECOND);
    let (call, request) = asked(&mut client);
    assert_eq!(request, NameRequest::Unpublish { service: service() });
    client.handle_reply(4 * SECOND, call, Ok(Err(NameRefusal::NotFound)));
    assert!(client.names.is_empty(), "{client:?}");
}

/// The names, with their ports, that the client takes for published and there.
fn believed(client: &NameClient<u32>) -> Vec<(BString, BString)> {
    let there = client
        .names
        .iter()
        .filter(|(_, name)| name.at_server == AtServer::Published);
    there
        .filter_map(|(service, name)| Some((service.clone(), name.port.clone()?)))
        .collect()
}

const SERVICES: [&str; 2] = ["s", "t"];
const OTHER: u32 = u32::MAX;

/// A client and a server with a connection between them that keeps the order, until it is lost.
struct Model {
    client: NameClient<u32>,
    table: NameTable<u32>,
    now: Duration,
    /// The number of the connection, by which the server knows the job.
    connection: u32,
    /// Connections that are lost, which the server has not noticed.
    unnoticed: VecDeque<u32>,
    requests: VecDeque<(CallId, NameRequest)>,
    replies: VecDeque<(CallId, NameReply)>,
    /// Calls that are neither answered nor given up, in order.
    calls: VecDeque<CallId>,
    /// Questions that are not answered.
    questions: i32,
}

impl Model {
    fn new() -> Self {
        Self {
            client: NameClient::new(),
            table: NameTable::new(),
            now: Duration::ZERO,
            connection: 0,
            unnoticed: VecDeque::new(),
            requests: VecDeque::new(),
            replies: VecDeque::new(),
            calls: VecDeque::new(),
            questions: 0,
        }
    }

    fn settle(&mut self) {
        while let Some(action) = self.client.poll_action() {
            match action {
                Action::Ask(call, request) => {
                    self.calls.push_back(call);
                    self.requests.push_back((call, request));
                }
                Action::Answer(..) => self.questions -= 1,
                Action::Tell(_) => {}
            }
        }
    }

    fn serve(&mut self) {
        if let Some((call, request)) = self.requests.pop_front() {
            let reply = self.table.handle_request(self.connection, request);
            self.replies.push_back((call, reply));
        }
    }

    fn deliver(&mut self) {
        let Some((call, reply)) = self.replies.pop_front() else {
            return;
        };
        // Nobody waits any more for what comes late.
        if self.calls.front() == Some(&call) {
            self.calls.pop_front();
            self.client.handle_reply(self.now, call, Ok(reply));
        }
    }

    fn give_up(&mut self) {
        if let Some(call) = self.calls.pop_front() {
            self.client.handle_reply(self.now, call, Err(NoReply::NoServer));
        }
    }

    fn lose(&mut self) {
        self.requests.clear();
        self.replies.clear();
        while !self.calls.is_empty() {
            self.give_up();
        }
        self.unnoticed.push_back(self.connection);
        self.connection += 1;
        self.client.handle_lost(self.now);
    }

    fn notice(&mut self) {
        if let Some(connection) = self.unnoticed.pop_front() {
            self.table.handle_gone(connection);
        }
    }

    fn step(&mut self, kind: u32, service: &str, port: &str) {
        self.questions += i32::from(kind < 5);
        match kind {
            0..3 => self.client.handle_question(1, publish(service, port)),
            3..5 => {
                let service = service.into();
                self.client.handle_question(1, Question::Unpublish { service });
            }
            5..8 => self.serve(),
            8..11 => self.deliver(),
            11 => self.give_up(),
            12 => self.lose(),
            13 => self.notice(),
            14 => {
                let (service, port) = (service.into(), port.into());
                let _ = self
                    .table
                    .handle_request(OTHER, NameRequest::Publish { service, port });
            }
            15 => self.table.handle_gone(OTHER),
            _ => {
                self.now += NameClient::<u32>::PAUSE;
                self.client.handle_timeout(self.now);
            }
        }
        self.settle();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Whatever was late or lost: once all is quiet, what the client takes for published is what the server
    /// has of it, and nothing that was published waits to come back.
    #[test]
    fn client_and_server_agree_in_the_end(
        steps in vec((0u32..18, 0usize..2, any::<bool>()), 0..60),
    ) {
        let mut model = Model::new();
        for (kind, service, port) in steps {
            model.step(kind, SERVICES[service], if port { "p" } else { "q" });
        }
        model.table.handle_gone(OTHER);
        while !model.unnoticed.is_empty() {
            model.notice();
        }
        let mut turns = 0;
        while !model.requests.is_empty() || !model.replies.is_empty() || model.client.deadline().is_some() {
            turns += 1;
            prop_assert!(turns < 1000, "it never ends");
            model.step(5, "", "");
            model.step(8, "", "");
            if model.requests.is_empty() && model.replies.is_empty() {
                model.step(17, "", "");
            }
        }
        prop_assert!(model.calls.is_empty());
        let kept: Vec<_> = SERVICES
            .into_iter()
            .filter_map(|service| {
                let service = BString::from(service);
                let lookup = NameRequest::Lookup { service: service.clone() };
                let port = model.table.handle_request(OTHER, lookup).ok()?;
                Some((service, port?))
            })
            .collect();
        prop_assert_eq!(believed(&model.client), kept);
        prop_assert_eq!(model.questions, 0);
        let names = model.client.names.values();
        prop_assert!(names.into_iter().all(|name| name.at_server == AtServer::Published), "{:?}", model.client);
    }
}
