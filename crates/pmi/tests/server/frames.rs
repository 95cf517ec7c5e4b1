//! PMI-2.

use ropewalk_pmi::{AbsentMembers, ConnectionId, GroupId, GroupOptions, Peer, Server};

use super::{
    GROUP, ask_frame, connection, drain, initialize, initialize_frames, process, say, say_frame, server,
    server_of,
};

/// Transcript 8.3: "libpmi2 (Slurm client)", with the values whole ("Ours must unescape on input and escape
/// on output"), the fence a barrier ("**Ours: real barrier**"), and both words for the port ("Ours: send BOTH
/// `port=p;value=p;found=TRUE;rc=0;`"). "All of pmi-version, pmi-subversion, rank, size, appnum, rc are
/// mandatory", and a "PMI-2 client ALWAYS starts with one PMI-1 line".
#[test]
fn golden_transcript_of_libpmi2() {
    let mut server = server(2, AbsentMembers::Fail);
    initialize_frames(&mut server, 2);
    let mut exchange =
        |rank, question: &str, answer: &str| assert_eq!(ask_frame(&mut server, rank, question), answer);
    exchange(0, "cmd=job-getid;", "cmd=job-getid-response;jobid=kvs;rc=0;");
    exchange(
        0,
        "cmd=kvs-put;key=k-0;value=val-0;;x=0;",
        "cmd=kvs-put-response;rc=0;",
    );
    exchange(
        1,
        "cmd=kvs-put;key=k-1;value=val-1;;x=1;",
        "cmd=kvs-put-response;rc=0;",
    );
    assert_eq!(say_frame(&mut server, 0, "cmd=kvs-fence;"), [""; 0]);
    assert_eq!(
        say_frame(&mut server, 1, "cmd=kvs-fence;"),
        ["0 cmd=kvs-fence-response;rc=0;", "1 cmd=kvs-fence-response;rc=0;"]
    );
    let mut exchange =
        |rank, question: &str, answer: &str| assert_eq!(ask_frame(&mut server, rank, question), answer);
    exchange(
        0,
        "cmd=kvs-get;jobid=kvs;srcid=-1;key=k-1;",
        "cmd=kvs-get-response;found=TRUE;value=val-1;;x=1;rc=0;",
    );
    exchange(
        0,
        "cmd=kvs-get;jobid=kvs;srcid=1;key=nokey;",
        "cmd=kvs-get-response;found=FALSE;rc=0;",
    );
    exchange(
        0,
        "cmd=info-getjobattr;key=PMI_process_mapping;",
        "cmd=info-getjobattr-response;found=TRUE;value=(vector,(0,1,2));rc=0;",
    );
    assert_eq!(
        say_frame(&mut server, 1, "cmd=info-getnodeattr;key=na;wait=TRUE;"),
        [""; 0]
    );
    assert_eq!(
        say_frame(&mut server, 0, "cmd=info-putnodeattr;key=na;value=nv;"),
        [
            "1 cmd=info-getnodeattr-response;found=TRUE;value=nv;rc=0;",
            "0 cmd=info-putnodeattr-response;rc=0;"
        ]
    );
    let mut exchange =
        |rank, question: &str, answer: &str| assert_eq!(ask_frame(&mut server, rank, question), answer);
    exchange(
        0,
        "cmd=name-publish;name=svc;port=port#1$x;infokeycount=0;",
        "cmd=name-publish-response;rc=0;",
    );
    exchange(
        1,
        "cmd=name-lookup;name=svc;infokeycount=0;",
        "cmd=name-lookup-response;port=port#1$x;value=port#1$x;found=TRUE;rc=0;",
    );
    let expected = ["0 cmd=finalize-response;rc=0;", "0 closed"];
    assert_eq!(say_frame(&mut server, 0, "cmd=finalize;"), expected);
    assert!(!server.is_unfinished(process(0)) && server.is_unfinished(process(1)));
}

/// "dup: .. `rc=1;errmsg=duplicate_service_s;`", "none `found=FALSE;rc=1;`", "none: ..
/// `rc=1;errmsg=service_s_not_found;`".
#[test]
fn names_that_are_not_there_or_twice() {
    let mut server = server(1, AbsentMembers::Fail);
    initialize_frames(&mut server, 1);
    let mut exchange = |question: &str, answer: &str| assert_eq!(ask_frame(&mut server, 0, question), answer);
    exchange(
        "cmd=name-lookup;name=s;infokeycount=0;",
        "cmd=name-lookup-response;found=FALSE;rc=1;errmsg=service_not_found;",
    );
    let publish = "cmd=name-publish;name=s;port=p;;q;infokeycount=1;infokey0=a;infoval0=b;";
    exchange(publish, "cmd=name-publish-response;rc=0;");
    exchange(
        publish,
        "cmd=name-publish-response;rc=1;errmsg=duplicate_service_s;",
    );
    exchange(
        "cmd=name-lookup;name=s;infokeycount=0;",
        "cmd=name-lookup-response;port=p;;q;value=p;;q;found=TRUE;rc=0;",
    );
    let unpublish = "cmd=name-unpublish;name=s;infokeycount=0;";
    exchange(unpublish, "cmd=name-unpublish-response;rc=0;");
    exchange(
        unpublish,
        "cmd=name-unpublish-response;rc=1;errmsg=service_s_not_found;",
    );
}

/// "decode left to right, `;;` -> `;`", "value may be empty", "Value <= 1024 bytes": values come back as they
/// went in.
#[test]
fn values_come_back_as_they_went_in() {
    let mut server = server(1, AbsentMembers::Fail);
    initialize_frames(&mut server, 1);
    for value in [
        "", ";", ";;", "a;b", ";a;", "a b", "a=b", "%", "=;= ;", "\\", "a\nb",
    ] {
        let escaped = value.replace(';', ";;");
        ask_frame(&mut server, 0, &format!("cmd=kvs-put;key=k;value={escaped};"));
        assert_eq!(
            ask_frame(&mut server, 0, "cmd=kvs-get;jobid=kvs;srcid=-1;key=k;"),
            format!("cmd=kvs-get-response;found=TRUE;value={escaped};rc=0;")
        );
    }
    let long = "x".repeat(1025);
    assert_eq!(
        ask_frame(&mut server, 0, &format!("cmd=kvs-put;key=k;value={long};")),
        "cmd=kvs-put-response;rc=-1;errmsg=value_is_too_long;"
    );
}

/// "S must decide per MESSAGE": the two dialects may alternate, and what was put in one is got in the other.
#[test]
fn dialects_meet_in_one_space() {
    let mut server = server(2, AbsentMembers::Fail);
    initialize_frames(&mut server, 2);
    initialize(&mut server, [1]);
    ask_frame(&mut server, 0, "cmd=kvs-put;key=k;value=a;;b c=d;");
    assert_eq!(say_frame(&mut server, 0, "cmd=kvs-fence;"), [""; 0]);
    assert_eq!(
        say(&mut server, 1, "cmd=barrier_in"),
        ["0 cmd=kvs-fence-response;rc=0;", "1 cmd=barrier_out"]
    );
    assert_eq!(
        say(&mut server, 1, "cmd=get kvsname=kvs key=k"),
        ["1 cmd=get_result rc=0 msg=success value=a;b c=d"]
    );
    assert_eq!(say(&mut server, 0, "cmd=get_appnum"), ["0 cmd=appnum appnum=0"]);
    // "S must keep every response line <= 1023 bytes", but for a value as long as announced: to refuse it would be an
    // error for every client, and not only for those that read no more.
    let longest = "x".repeat(1024);
    ask_frame(&mut server, 0, &format!("cmd=kvs-put;key=k;value={longest};"));
    assert_eq!(
        say(&mut server, 1, "cmd=get kvsname=kvs key=k"),
        [format!("1 cmd=get_result rc=0 msg=success value={longest}")]
    );
}

/// "S must echo it unchanged (same bytes) in the response, directly after cmd", "Waiting requests (getnodeattr wait,
/// fence, ..) must not block other requests of the same connection that have another thrid."
#[test]
fn threads_do_not_wait_for_each_other() {
    let mut server = server(2, AbsentMembers::Fail);
    initialize_frames(&mut server, 2);
    assert_eq!(
        say_frame(
            &mut server,
            0,
            "cmd=info-getnodeattr;thrid=0x1;;;key=na;wait=TRUE;"
        ),
        [""; 0]
    );
    assert_eq!(say_frame(&mut server, 0, "cmd=kvs-fence;thrid=0x2;"), [""; 0]);
    assert_eq!(
        ask_frame(&mut server, 0, "cmd=job-getid;thrid=0x3;"),
        "cmd=job-getid-response;thrid=0x3;jobid=kvs;rc=0;"
    );
    assert_eq!(
        ask_frame(&mut server, 0, "cmd=job-getid;"),
        "cmd=job-getid-response;jobid=kvs;rc=0;"
    );
    assert_eq!(
        say_frame(&mut server, 1, "cmd=info-putnodeattr;thrid=1;key=na;value=;"),
        [
            "0 cmd=info-getnodeattr-response;thrid=0x1;;;found=TRUE;value=;rc=0;",
            "1 cmd=info-putnodeattr-response;thrid=1;rc=0;"
        ]
    );
    assert_eq!(
        say_frame(&mut server, 1, "cmd=kvs-fence;"),
        [
            "0 cmd=kvs-fence-response;thrid=0x2;rc=0;",
            "1 cmd=kvs-fence-response;rc=0;"
        ]
    );
}

/// Two threads of a process in a fence take part in two fences, one after the other.
#[test]
fn a_second_fence_of_a_process_is_the_next_one() {
    let mut server = server(2, AbsentMembers::Fail);
    initialize_frames(&mut server, 2);
    for thread in [1, 2] {
        assert_eq!(
            say_frame(&mut server, 0, &format!("cmd=kvs-fence;thrid={thread};")),
            [""; 0]
        );
    }
    for thread in [1, 2] {
        assert_eq!(
            say_frame(&mut server, 1, "cmd=kvs-fence;"),
            [
                format!("0 cmd=kvs-fence-response;thrid={thread};rc=0;"),
                "1 cmd=kvs-fence-response;rc=0;".to_owned()
            ]
        );
    }
}

/// "without thrid it must answer in order (client reads the next frame as its own)", however many wait.
#[test]
fn requests_without_thread_are_answered_in_order() {
    let mut server = server(2, AbsentMembers::Fail);
    initialize_frames(&mut server, 2);
    for request in [
        "cmd=kvs-fence;",
        "cmd=job-getid;",
        "cmd=kvs-fence;",
        "cmd=kvs-put;key=k;value=v;",
    ] {
        assert_eq!(say_frame(&mut server, 0, request), [""; 0]);
    }
    assert_eq!(
        say_frame(&mut server, 1, "cmd=kvs-fence;"),
        [
            "0 cmd=kvs-fence-response;rc=0;",
            "1 cmd=kvs-fence-response;rc=0;",
            "0 cmd=job-getid-response;jobid=kvs;rc=0;",
        ]
    );
    assert_eq!(
        say_frame(&mut server, 1, "cmd=kvs-fence;"),
        [
            "0 cmd=kvs-fence-response;rc=0;",
            "1 cmd=kvs-fence-response;rc=0;",
            "0 cmd=kvs-put-response;rc=0;",
        ]
    );
}

/// Thousands of requests in one go are served in one go, without a deep stack, and too many that wait are refused.
#[test]
fn many_requests_at_a_time() {
    let mut one = server(1, AbsentMembers::Fail);
    initialize_frames(&mut one, 1);
    one.handle_bytes(connection(0), "14    cmd=kvs-fence;".repeat(50_000).as_bytes());
    assert_eq!(drain(&mut one).len(), 50_000);

    let mut two = server(2, AbsentMembers::Fail);
    initialize_frames(&mut two, 2);
    two.handle_bytes(
        connection(0),
        "14    cmd=kvs-fence;".repeat(Server::REQUESTS_MAX).as_bytes(),
    );
    assert_eq!(drain(&mut two), [""; 0]);
    two.handle_bytes(connection(0), b"14    cmd=kvs-fence;");
    assert_eq!(drain(&mut two), ["0 misbehaved", "0 closed"]);
}

/// "Ours: implement: afterwards `kvs-get` with that jobid reads the other job's KVS", and not before;
/// "kvscopy=TRUE makes clients fail".
#[test]
fn jobs_are_connected() {
    let mut server = server(1, AbsentMembers::Fail);
    let other = GroupId(1);
    server.add_group(GroupOptions {
        preput: vec![("k".into(), "of the other".into())],
        ..GroupOptions::one_host(other, "other", 1)
    });
    initialize_frames(&mut server, 1);
    let mut exchange = |question: &str, answer: &str| assert_eq!(ask_frame(&mut server, 0, question), answer);
    let get = "cmd=kvs-get;jobid=other;srcid=-1;key=k;";
    exchange(get, "cmd=kvs-get-response;found=FALSE;rc=0;");
    exchange(
        "cmd=job-connect;jobid=another;",
        "cmd=job-connect-response;kvscopy=FALSE;rc=-1;errmsg=no_job_another;",
    );
    exchange(
        "cmd=job-connect;jobid=other;",
        "cmd=job-connect-response;kvscopy=FALSE;rc=0;",
    );
    exchange(get, "cmd=kvs-get-response;found=TRUE;value=of the other;rc=0;");
    exchange(
        "cmd=job-disconnect;jobid=other;",
        "cmd=job-disconnect-response;rc=0;",
    );
    exchange(get, "cmd=kvs-get-response;found=FALSE;rc=0;");
    exchange(
        "cmd=job-disconnect;jobid=other;",
        "cmd=job-disconnect-response;rc=-1;errmsg=not_connected;",
    );
}

/// "Keys: `PMI_process_mapping`, `universeSize` .., `PMI_dead_processes` .., `hasNameServ`, `physTopology`... (absent
/// ok)".
#[test]
fn job_attributes() {
    let mut server = server_of(GroupOptions {
        universe_size: Some(7),
        absent: AbsentMembers::Exclude,
        ..GroupOptions::one_host(GROUP, "kvs", 3)
    });
    initialize_frames(&mut server, 3);
    server.handle_departure(process(2), true);
    for (key, value) in [
        ("universeSize", "7"),
        ("PMI_dead_processes", "2"),
        ("hasNameServ", "TRUE"),
        ("PMI_process_mapping", "(vector,(0,1,3))"),
    ] {
        assert_eq!(
            ask_frame(&mut server, 0, &format!("cmd=info-getjobattr;key={key};")),
            format!("cmd=info-getjobattr-response;found=TRUE;value={value};rc=0;")
        );
    }
    assert_eq!(
        ask_frame(&mut server, 0, "cmd=info-getjobattr;key=physTopology;"),
        "cmd=info-getjobattr-response;found=FALSE;rc=0;"
    );
    assert_eq!(
        ask_frame(&mut server, 0, "cmd=info-getnodeattr;key=none;wait=FALSE;"),
        "cmd=info-getnodeattr-response;found=FALSE;rc=0;"
    );
}

/// "a fence that can no longer complete is answered with an error instead of never".
#[test]
fn a_fence_that_cannot_complete_fails() {
    let mut server = server(2, AbsentMembers::Fail);
    initialize_frames(&mut server, 2);
    assert_eq!(say_frame(&mut server, 0, "cmd=kvs-fence;"), [""; 0]);
    server.handle_departure(process(1), true);
    assert_eq!(
        drain(&mut server),
        ["0 cmd=kvs-fence-response;rc=-1;errmsg=rank_1_is_gone;"]
    );
}

/// "`cmd=abort;isworld=TRUE|FALSE;msg=..;` (4.0.2, libpmi2) or `cmd=abort;exitcode=-1;message=..;` (HEAD)": both, and
/// neither is answered, not even while another request waits.
#[test]
fn aborts_in_both_wordings() {
    let mut server = server(2, AbsentMembers::Fail);
    initialize_frames(&mut server, 2);
    say_frame(&mut server, 1, "cmd=kvs-fence;");
    assert_eq!(
        say_frame(&mut server, 1, "cmd=abort;isworld=TRUE;msg=why;"),
        ["1 aborts with 1"]
    );
    assert_eq!(
        say_frame(&mut server, 1, "cmd=abort;exitcode=-1;message=why;"),
        ["1 aborts with -1"]
    );
}

/// "A second PMI2_Init on the same fd sends a PMI-1 `cmd=init` line in frame mode: accept it again."
#[test]
fn a_second_init_is_accepted() {
    let mut server = server(1, AbsentMembers::Fail);
    initialize_frames(&mut server, 1);
    initialize_frames(&mut server, 1);
}

/// "with PMI_JOBID: `cmd=fullinit;pmijobid=1.0;pmirank=0;threaded=FALSE;`; .. with PMI_ID: `srcid=` instead ..; HEAD
/// client: only `pmirank=`". A rank that is not the connection's is an error.
#[test]
fn fullinit_in_all_wordings() {
    let mut server = server(2, AbsentMembers::Fail);
    initialize_frames(&mut server, 2);
    for (request, rc) in [
        ("cmd=fullinit;pmijobid=1.0;pmirank=0;threaded=TRUE;", "rc=0;"),
        ("cmd=fullinit;srcid=0;threaded=FALSE;", "rc=0;"),
        ("cmd=fullinit;pmirank=0;", "rc=0;"),
        (
            "cmd=fullinit;pmirank=1;",
            "rc=-1;errmsg=this_is_the_connection_of_rank_0;",
        ),
    ] {
        let answer = ask_frame(&mut server, 0, request);
        assert!(answer.ends_with(rc), "{request} {answer}");
    }
    // In port mode the first frame says who it is.
    server.handle_departure(process(1), false);
    let stranger = ConnectionId(9);
    server.open(stranger, Peer::Port(GROUP));
    server.handle_bytes(
        stranger,
        b"cmd=init pmi_version=2 pmi_subversion=0\n36    cmd=fullinit;srcid=1;threaded=FALSE;",
    );
    let answers = drain(&mut server);
    assert!(
        answers.len() == 2 && answers[1].contains(";rank=1;size=2;"),
        "{answers:?}"
    );
}

/// "wait=TRUE and missing: no answer until some process of the same node puts it": once all others are gone or wait
/// too nobody will, and whoever waits is told so.
#[test]
fn a_node_attribute_that_nobody_can_put_is_an_error() {
    let mut server = server(4, AbsentMembers::Exclude);
    initialize(&mut server, [0, 1, 2, 3]);
    let silence = [""; 0];
    let wait = "cmd=info-getnodeattr;key=na;wait=TRUE;";
    assert_eq!(say_frame(&mut server, 0, wait), silence);
    assert_eq!(
        say_frame(&mut server, 1, "cmd=info-getnodeattr;thrid=7;key=nb;wait=TRUE;"),
        silence
    );
    server.handle_departure(process(2), true);
    assert_eq!(drain(&mut server), silence);
    server.handle_departure(process(3), false);
    // Another thread of rank 1 may still put it.
    assert_eq!(drain(&mut server), silence);
    let refusal = "rc=-1;errmsg=nobody_is_left_to_put_it;";
    let answers = say_frame(&mut server, 1, wait).concat();
    assert_eq!(answers.matches(refusal).count(), 3, "{answers}");
}

/// A request that is not understood is answered, so that nobody waits for ever: Slurm's ring, which is
/// "optional", and anything but "exactly `TRUE` / `FALSE`" where that is asked for. A frame without a command
/// ends the connection.
#[test]
fn unknown_commands_are_answered() {
    let mut server = server(1, AbsentMembers::Fail);
    initialize_frames(&mut server, 1);
    let answer = ask_frame(&mut server, 0, "cmd=ring;thrid=5;ring-count=1;");
    assert!(
        answer.starts_with("cmd=ring-response;thrid=5;rc=-1;errmsg="),
        "{answer}"
    );
    let answer = ask_frame(&mut server, 0, "cmd=info-getnodeattr;key=k;wait=maybe;");
    assert!(
        answer.starts_with("cmd=info-getnodeattr-response;rc=-1;errmsg=") && answer.contains("wait"),
        "{answer}"
    );
    assert_eq!(say_frame(&mut server, 0, "no=cmd;"), ["0 misbehaved", "0 closed"]);
}
