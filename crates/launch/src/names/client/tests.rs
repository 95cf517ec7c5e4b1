//! What a launcher asks a name server, and tells its programs and its user.

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
        (lookup(), Err("gone".to_owned()), failed("looked up: gone")),
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

/// The user is told once of a name that does not come back, at the second time, and of a server that does not answer by one
/// of all names.
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
    let silence = || Err("silence".to_owned());
    let mut now = SECOND;
    for (of_s, of_t, expected) in [
        (silence(), silence(), None),
        (silence(), silence(), Some(["\"s\"", "silence"])),
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

/// What is unpublished while it is not there does not come back, and what is published then stays.
#[test]
fn what_was_unpublished_does_not_come_back() {
    let service = || BString::from("s");
    let mut client = with("s", "p");
    client.handle_lost(SECOND);
    client.handle_timeout(3 * SECOND);
    let (again, _) = asked(&mut client);
    client.handle_question(1, Question::Unpublish { service: service() });
    // Whether the other request came through or not.
    let (forget, request) = asked(&mut client);
    assert_eq!(request, NameRequest::Unpublish { service: service() });
    assert_eq!(answered(&mut client), Answer::Done { done: true });
    client.handle_question(1, publish("s", "q"));
    let (publication, _) = asked(&mut client);
    for call in [again, forget, publication] {
        client.handle_reply(3 * SECOND, call, Ok(Ok(None)));
    }
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
    client.handle_reply(SECOND, call, Err("late".to_owned()));
    let (_, request) = asked(&mut client);
    assert_eq!(request, NameRequest::Unpublish { service: service() });
    assert!(matches!(answered(&mut client), Answer::Failed { .. }));
}

/// What the client takes for published and there.
fn believed(client: &NameClient<u32>) -> Vec<(BString, BString)> {
    let there = client
        .published
        .iter()
        .filter(|(_, published)| published.is_there);
    there
        .map(|(service, published)| (service.clone(), published.port.clone()))
        .collect()
}
