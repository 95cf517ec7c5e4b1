//! Names that several jobs share.

use ropewalk_pmi::{
    AbsentMembers, Action, Answer, ChildId, Down, NameQuestionId, Question, RankSet, Server, Up,
};

use super::{ask, ask_frame, connection, drain, initialize, initialize_frames, server};

fn sharing(size: u32) -> Server {
    let mut server = server(size, AbsentMembers::Fail);
    server.share_names();
    server
}

fn poll_question(server: &mut Server) -> (NameQuestionId, Question) {
    match server.poll_action() {
        Some(Action::AskNames { id, question }) => (id, question),
        other => panic!("{other:?}"),
    }
}

/// Says something and gives what is asked elsewhere.
fn asked(server: &mut Server, rank: u32, text: &str) -> (NameQuestionId, Question) {
    server.handle_bytes(connection(rank), text.as_bytes());
    let asked = poll_question(server);
    assert_eq!(server.poll_action(), None, "nothing is answered yet");
    asked
}

fn frame(body: &str) -> String {
    format!("{:<6}{body}", body.len())
}

/// Requests of a PMI-1 program about names are asked elsewhere, and the program is told the answers in the
/// words of its own job's names; meanwhile others are served.
#[test]
fn names_are_asked_elsewhere_in_lines() {
    let mut server = sharing(2);
    initialize(&mut server, [0, 1]);
    let (id, question) = asked(&mut server, 0, "cmd=publish_name service=s port=p\n");
    let (service, port) = ("s".into(), "p".into());
    assert_eq!(question, Question::Publish { service, port });
    assert_eq!(ask(&mut server, 1, "cmd=get_appnum"), "cmd=appnum appnum=0");
    server.handle_name_answer(id, Answer::Done { done: true });
    let published = "0 cmd=publish_result info=ok rc=0 msg=success";
    assert_eq!(drain(&mut server), [published]);

    for (text, answer, told) in [
        (
            "cmd=publish_name service=s port=q\n",
            Answer::Done { done: false },
            "1 cmd=publish_result info=ok rc=1 msg=key_already_present",
        ),
        (
            "cmd=lookup_name service=s\n",
            Answer::Value {
                value: Some("p".into()),
            },
            "1 cmd=lookup_result port=p info=ok rc=0 msg=success",
        ),
        (
            "cmd=lookup_name service=t\n",
            Answer::Value { value: None },
            "1 cmd=lookup_result rc=1 msg=service_not_found",
        ),
        (
            "cmd=unpublish_name service=t\n",
            Answer::Done { done: false },
            "1 cmd=unpublish_result info=ok rc=1 msg=service_not_found",
        ),
        (
            "cmd=lookup_name service=s\n",
            Answer::Failed {
                reason: "nobody is there".into(),
            },
            "1 cmd=lookup_result rc=1 msg=nobody_is_there",
        ),
        (
            "cmd=publish_name service=s port=p\n",
            Answer::Failed {
                reason: "nobody is there".into(),
            },
            "1 cmd=publish_result info=ok rc=1 msg=nobody_is_there",
        ),
        (
            "cmd=unpublish_name service=s\n",
            Answer::Failed {
                reason: "nobody is there".into(),
            },
            "1 cmd=unpublish_result info=ok rc=1 msg=nobody_is_there",
        ),
    ] {
        let (id, _) = asked(&mut server, 1, text);
        server.handle_name_answer(id, answer);
        assert_eq!(drain(&mut server), [told], "{text}");
    }
}

/// Threads of a program of PMI-2 each have their own answer, in the order in which the answers come. A
/// request without a thread that comes meanwhile waits for its turn and is asked then.
#[test]
fn names_are_asked_elsewhere_in_frames() {
    let mut server = sharing(1);
    initialize_frames(&mut server, 1);
    let (first, _) = asked(&mut server, 0, &frame("cmd=name-lookup;thrid=1;name=a;"));
    let (second, _) = asked(&mut server, 0, &frame("cmd=name-lookup;name=b;"));
    server.handle_bytes(connection(0), frame("cmd=name-publish;name=c;port=p;").as_bytes());
    assert_eq!(server.poll_action(), None);
    server.handle_name_answer(
        second,
        Answer::Value {
            value: Some("pb".into()),
        },
    );
    let told = drain(&mut server);
    assert_eq!(
        told[0],
        "0 cmd=name-lookup-response;port=pb;value=pb;found=TRUE;rc=0;"
    );
    assert!(
        told[1].starts_with("names ") && told[1].contains("Publish"),
        "{told:?}"
    );
    let reason = "no".into();
    server.handle_name_answer(first, Answer::Failed { reason });
    assert_eq!(
        drain(&mut server),
        ["0 cmd=name-lookup-response;thrid=1;found=FALSE;rc=1;errmsg=no;"]
    );
}

/// Who asked and is gone gets nothing, and what is answered twice is answered once.
#[test]
fn who_is_gone_is_not_answered() {
    let mut server = sharing(1);
    initialize(&mut server, [0]);
    let (id, _) = asked(&mut server, 0, "cmd=lookup_name service=s\n");
    server.handle_closed(connection(0));
    drain(&mut server);
    for _ in 0..2 {
        server.handle_name_answer(
            id,
            Answer::Value {
                value: Some("p".into()),
            },
        );
        assert_eq!(server.poll_action(), None);
    }
}

/// The root asks for those below it too, and the answer goes back the way on which the question came.
#[test]
fn the_root_asks_for_those_below() {
    let mut server = Server::root();
    server.share_names();
    server.add_group(ropewalk_pmi::GroupOptions {
        local: RankSet::default(),
        children: vec![(ChildId(3), RankSet::range(0, 1))],
        ..ropewalk_pmi::GroupOptions::one_host(super::GROUP, "kvs", 1)
    });
    let question = Question::Lookup { service: "s".into() };
    server.handle_up(
        ChildId(3),
        Up::Ask {
            id: 7,
            question: question.clone(),
        },
    );
    let (id, asked) = poll_question(&mut server);
    assert_eq!(asked, question);
    let answer = Answer::Failed { reason: "no".into() };
    server.handle_name_answer(id, answer.clone());
    let message = Down::Answer { id: 7, answer };
    let child = ChildId(3);
    assert_eq!(server.poll_action(), Some(Action::ToChild { child, message }));
}

/// Where nothing is shared names stay in the job.
#[test]
fn names_of_one_job_stay_there() {
    let mut server = server(1, AbsentMembers::Fail);
    initialize_frames(&mut server, 1);
    assert_eq!(
        ask_frame(&mut server, 0, "cmd=name-publish;name=c;port=p;"),
        "cmd=name-publish-response;rc=0;"
    );
    assert_eq!(
        ask_frame(&mut server, 0, "cmd=name-lookup;name=c;"),
        "cmd=name-lookup-response;port=p;value=p;found=TRUE;rc=0;"
    );
}
