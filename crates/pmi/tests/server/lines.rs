//! PMI-1.

use proptest::prelude::*;
use ropewalk_pmi::{AbsentMembers, Action, GroupOptions, Peer, ProtocolError};

use super::{GROUP, ask, connection, drain, initialize, process, say, server, server_of};

/// Transcript 8.1: "MPICH 4.0.2 hello, -n 2, Hydra", with the order of keys: "keep Hydra's order anyway".
#[test]
fn golden_transcript_of_mpich() {
    let mut server = server(2, AbsentMembers::Fail);
    let both = [0, 1];
    initialize(&mut server, both);
    for rank in both {
        let mut exchange =
            |question: &str, answer: &str| assert_eq!(ask(&mut server, rank, question), answer);
        exchange(
            "cmd=get_maxes",
            "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024",
        );
        exchange("cmd=get_appnum", "cmd=appnum appnum=0");
        exchange("cmd=get_my_kvsname", "cmd=my_kvsname kvsname=kvs");
        exchange(
            "cmd=get kvsname=kvs key=PMI_process_mapping",
            "cmd=get_result rc=0 msg=success value=(vector,(0,1,2))",
        );
    }
    let barrier = |server: &mut ropewalk_pmi::Server| {
        assert_eq!(say(server, 1, "cmd=barrier_in"), [""; 0]);
        assert_eq!(
            say(server, 0, "cmd=barrier_in"),
            ["0 cmd=barrier_out", "1 cmd=barrier_out"]
        );
    };
    barrier(&mut server);
    let put = |server: &mut ropewalk_pmi::Server, rank, key: &str, value: &str| {
        assert_eq!(
            ask(
                server,
                rank,
                &format!("cmd=put kvsname=kvs key={key} value={value}")
            ),
            "cmd=put_result rc=0 msg=success"
        );
    };
    let get = |server: &mut ropewalk_pmi::Server, rank, key: &str, value: &str| {
        assert_eq!(
            ask(server, rank, &format!("cmd=get kvsname=kvs key={key}")),
            format!("cmd=get_result rc=0 msg=success value={value}")
        );
    };
    put(&mut server, 0, "-bcast-1-0", "2F6465762F73686D2F");
    barrier(&mut server);
    get(&mut server, 1, "-bcast-1-0", "2F6465762F73686D2F");
    put(&mut server, 0, "-allgather-shm-1-0", "20D31A91C7");
    barrier(&mut server);
    for rank in both {
        get(&mut server, rank, "-allgather-shm-1-0", "20D31A91C7");
    }
    barrier(&mut server);
    for rank in both {
        assert!(server.is_unfinished(process(rank)));
        let expected = [format!("{rank} cmd=finalize_ack"), format!("{rank} closed")];
        assert_eq!(say(&mut server, rank, "cmd=finalize"), expected);
        assert!(!server.is_unfinished(process(rank)));
    }
}

/// "init: accept (1,0),(1,1),(1,2) and (2,0). For 1.x answer `pmi_version=1 pmi_subversion=1`; else `rc=-1` with
/// our version."
#[test]
fn other_versions_are_refused() {
    let mut server = server(1, AbsentMembers::Fail);
    assert_eq!(
        ask(&mut server, 0, "cmd=init pmi_version=2 pmi_subversion=0"),
        "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0"
    );
    for (version, subversion, rc) in [(1, 0, 0), (1, 1, 0), (1, 2, 0), (2, 1, -1), (3, 1, -1)] {
        let request = format!("cmd=init pmi_version={version} pmi_subversion={subversion}");
        assert_eq!(
            ask(&mut server, 0, &request),
            format!("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc={rc}")
        );
    }
}

/// "universe size: `-1` = unknown/infinite .. default answer was -1."
#[test]
fn the_universe_has_no_known_size() {
    let mut server = server(1, AbsentMembers::Fail);
    initialize(&mut server, [0]);
    assert_eq!(
        ask(&mut server, 0, "cmd=get_universe_size"),
        "cmd=universe_size size=-1"
    );
}

/// "duplicate put: .. Ours: last write wins"; "same, no such key"; values keep spaces, `=` and emptiness.
#[test]
fn keys_and_values() {
    let mut server = server(1, AbsentMembers::Fail);
    initialize(&mut server, [0]);
    for value in [
        "first",
        "segments=3",
        "with  two spaces",
        "a b=c",
        " =",
        "a;b%c",
        "padded  ",
        "",
    ] {
        ask(
            &mut server,
            0,
            &format!("cmd=put kvsname=kvs key=k value={value}"),
        );
        assert_eq!(
            ask(&mut server, 0, "cmd=get kvsname=kvs key=k"),
            format!("cmd=get_result rc=0 msg=success value={value}")
        );
    }
    assert_eq!(
        ask(&mut server, 0, "cmd=get kvsname=kvs key=nothing"),
        "cmd=get_result rc=-1 msg=key_nothing_not_found value=unknown"
    );
    // The longest key that fits a line must not make an answer that does not.
    let answer = ask(
        &mut server,
        0,
        &format!("cmd=get kvsname=kvs key={}", "k".repeat(990)),
    );
    assert!(answer.starts_with("cmd=get_result rc=-1 "), "{answer}");
}

/// "S must buffer per connection and never block waiting for the rest of a message (.. one stalled client stalls the
/// node)": one that says a part of a message and then nothing keeps nobody waiting, and is answered when it goes on.
#[test]
fn an_unfinished_message_keeps_nobody_waiting() {
    let (line, block, frame) = (
        &b"cmd=get_maxes\n"[..],
        &b"mcmd=spawn\nnprocs=1\nexecname=x\ntotspawns=2\nspawnssofar=1\nargcnt=0\nendcmd\ncmd=get_maxes\n"[..],
        &b"14    cmd=job-getid;"[..],
    );
    for message in [line, block, frame] {
        for cut in 1..message.len() {
            let mut server = server(2, AbsentMembers::Fail);
            initialize(&mut server, [0, 1]);
            server.handle_bytes(connection(0), &message[..cut]);
            let early = drain(&mut server);
            assert_eq!(ask(&mut server, 1, "cmd=get_appnum"), "cmd=appnum appnum=0");
            server.handle_bytes(connection(0), &message[cut..]);
            assert_eq!(early.len() + drain(&mut server).len(), 1, "cut at {cut}");
        }
    }
}

/// "duplicate put: .. Ours: last write wins, and report it in debug": another value under a key is told, with
/// who put it.
#[test]
fn a_second_put_is_told() {
    let mut server = server(2, AbsentMembers::Fail);
    initialize(&mut server, [0, 1]);
    let mut told = Vec::new();
    for (rank, value) in [(0, "a"), (0, "a"), (1, "b"), (1, "b"), (0, "a")] {
        let put = format!("cmd=put kvsname=kvs key=k value={value}\n");
        server.handle_bytes(connection(rank), put.as_bytes());
        while let Some(action) = server.poll_action() {
            if let Action::Overwritten { process, key } = action {
                told.push((process.rank, key.to_string()));
            }
        }
    }
    assert_eq!(told, [(1, "k".to_owned()), (0, "k".to_owned())]);
}

/// "kvsname mismatch: .. Ours: unknown kvsname -> rc=-1, except keys served by S itself."
#[test]
fn an_unknown_space_has_only_the_keys_of_the_server() {
    let mut server = server(1, AbsentMembers::Fail);
    initialize(&mut server, [0]);
    assert_eq!(
        ask(&mut server, 0, "cmd=put kvsname=other key=k value=v"),
        "cmd=put_result rc=-1 msg=unknown_kvsname"
    );
    ask(&mut server, 0, "cmd=put kvsname=kvs key=k value=v");
    assert!(ask(&mut server, 0, "cmd=get kvsname=other key=k").contains("rc=-1"));
    assert!(ask(&mut server, 0, "cmd=get kvsname=other key=PMI_process_mapping").contains("rc=0"));
    assert!(
        ask(
            &mut server,
            0,
            "cmd=put kvsname=kvs key=PMI_dead_processes value=0"
        )
        .contains("rc=-1")
    );
}

/// "`PMI_dead_processes` (comma list of ranks that died, e.g. `1,3`, empty value if none)".
#[test]
fn the_dead_are_listed() {
    let mut server = server(4, AbsentMembers::Exclude);
    initialize(&mut server, [0]);
    let dead = "cmd=get kvsname=kvs key=PMI_dead_processes";
    assert_eq!(
        ask(&mut server, 0, dead),
        "cmd=get_result rc=0 msg=success value="
    );
    server.handle_departure(process(3), true);
    server.handle_departure(process(2), false);
    server.handle_departure(process(1), true);
    assert_eq!(
        ask(&mut server, 0, dead),
        "cmd=get_result rc=0 msg=success value=1,3"
    );
}

/// A watcher is told when the first rank waits, and when all go on. A fence inside a node is not reported.
#[test]
fn fences_are_told_to_who_watches() {
    let mut server = server(2, AbsentMembers::Fail);
    let mut enter = |rank: u32, line: &[u8]| {
        server.handle_bytes(connection(rank), line);
        let mut told = Vec::new();
        while let Some(action) = server.poll_action() {
            match action {
                Action::FenceBegan { fence, .. } => told.push(format!("{fence} began")),
                Action::FenceEnded { fence, members, .. } => {
                    told.push(format!("{fence} ended for {members}"))
                }
                _ => {}
            }
        }
        told
    };
    for rank in 0..2 {
        enter(rank, b"cmd=init pmi_version=1 pmi_subversion=2\n");
    }
    for _ in 0..2 {
        assert_eq!(enter(0, b"cmd=barrier_in\n"), ["WORLD began"]);
        assert_eq!(enter(1, b"cmd=barrier_in\n"), ["WORLD ended for 2"]);
    }
    assert_eq!(enter(1, b"cmd=barrier_in group=1:own\n"), ["1:own ended for 1"]);
    for rank in 0..2 {
        assert_eq!(enter(rank, b"cmd=barrier_in group=NODE\n"), Vec::<String>::new());
    }
}

/// "A member that died or finalized: .. Ours: answer with `rc=` != 0": those who wait, and those who come later.
#[test]
fn a_barrier_that_cannot_complete_fails() {
    let mut server = server(3, AbsentMembers::Fail);
    initialize(&mut server, [0, 1]);
    assert_eq!(say(&mut server, 0, "cmd=barrier_in"), [""; 0]);
    server.handle_departure(process(2), true);
    let failed = "cmd=barrier_out rc=-1 msg=rank_2_is_gone";
    assert_eq!(drain(&mut server), [format!("0 {failed}")]);
    assert_eq!(ask(&mut server, 1, "cmd=barrier_in"), failed);
}

/// ".. or exclude the dead rank according to policy": dead, finalized or closed, whoever is gone is not waited
/// for, even if it was in the barrier itself.
#[test]
fn a_barrier_may_exclude_who_is_gone() {
    let mut server = server(5, AbsentMembers::Exclude);
    initialize(&mut server, [0, 1, 2, 3, 4]);
    say(&mut server, 4, "cmd=finalize");
    for rank in [0, 1] {
        assert_eq!(say(&mut server, rank, "cmd=barrier_in"), [""; 0]);
    }
    server.handle_departure(process(1), true);
    server.handle_closed(connection(2));
    assert_eq!(drain(&mut server), [""; 0]);
    server.handle_departure(process(3), true);
    assert_eq!(drain(&mut server), ["0 cmd=barrier_out"]);
    assert_eq!(ask(&mut server, 0, "cmd=barrier_in"), "cmd=barrier_out");
}

/// "`barrier_in` may carry `group=` (`WORLD:<tag>`, `NODE:<tag>`, or `r0,r1,...:<tag>`) and the answer carries
/// `tag=<tag>`": each name is a barrier of its own.
#[test]
fn barriers_of_a_part() {
    let mut server = server(4, AbsentMembers::Exclude);
    initialize(&mut server, 0..4);
    assert_eq!(say(&mut server, 0, "cmd=barrier_in group=0,2:a"), [""; 0]);
    assert_eq!(say(&mut server, 1, "cmd=barrier_in group=1,3:a"), [""; 0]);
    assert_eq!(
        say(&mut server, 2, "cmd=barrier_in group=0,2:a"),
        ["0 cmd=barrier_out tag=a", "2 cmd=barrier_out tag=a"]
    );
    assert_eq!(say(&mut server, 0, "cmd=barrier_in group=NODE:n"), [""; 0]);
    assert_eq!(say(&mut server, 2, "cmd=barrier_in group=NODE:n"), [""; 0]);
    // A member of two barriers that is gone is missed in neither.
    server.handle_departure(process(1), true);
    assert_eq!(
        say(&mut server, 3, "cmd=barrier_in group=NODE:n"),
        [
            "0 cmd=barrier_out tag=n",
            "2 cmd=barrier_out tag=n",
            "3 cmd=barrier_out tag=n"
        ]
    );
    for named in ["HERE:x", "0,x:y", "1,2:without_me", "0,9:no_such_rank"] {
        let answer = ask(&mut server, 0, &format!("cmd=barrier_in group={named}"));
        assert!(answer.starts_with("cmd=barrier_out rc=-1 msg="), "{answer}");
    }
}

/// A process that was gone is waited for again when it has a new connection, and has to begin anew.
#[test]
fn a_rank_may_come_back() {
    let mut server = server(2, AbsentMembers::Fail);
    initialize(&mut server, [0, 1]);
    server.handle_departure(process(1), true);
    let failed = "cmd=barrier_out rc=-1 msg=rank_1_is_gone";
    assert_eq!(ask(&mut server, 0, "cmd=barrier_in"), failed);
    let again = ropewalk_pmi::ConnectionId(7);
    server.open(again, Peer::Process(process(1)));
    assert_eq!(say(&mut server, 0, "cmd=barrier_in"), [""; 0]);
    // The old connection is nobody's.
    server.handle_bytes(connection(1), b"cmd=barrier_in\n");
    server.handle_closed(connection(1));
    assert_eq!(drain(&mut server), [""; 0]);
    server.handle_bytes(
        again,
        b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=barrier_in\n",
    );
    assert_eq!(
        drain(&mut server),
        [
            "7 cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
            "0 cmd=barrier_out",
            "7 cmd=barrier_out"
        ]
    );
    let dead = "cmd=get kvsname=kvs key=PMI_dead_processes";
    assert_eq!(
        ask(&mut server, 0, dead),
        "cmd=get_result rc=0 msg=success value="
    );
}

/// "appnum (index of the MPMD segment)", "`-usize N` gives N", "`PMI_hwloc_xmlfile` (absent is fine)".
#[test]
fn segments_and_universe_are_told() {
    let mut server = server_of(GroupOptions {
        segments: vec![1, 2],
        universe_size: Some(12),
        attributes: vec![("PMI_hwloc_xmlfile".into(), "/tmp/x".into())],
        ..GroupOptions::one_host(GROUP, "kvs", 3)
    });
    initialize(&mut server, 0..3);
    for (rank, appnum) in [(0, 0), (1, 1), (2, 1)] {
        let answer = ask(&mut server, rank, "cmd=get_appnum");
        assert_eq!(answer, format!("cmd=appnum appnum={appnum}"));
    }
    let answer = ask(&mut server, 0, "cmd=get_universe_size");
    assert_eq!(answer, "cmd=universe_size size=12");
    let answer = ask(&mut server, 0, "cmd=get kvsname=kvs key=PMI_hwloc_xmlfile");
    assert_eq!(answer, "cmd=get_result rc=0 msg=success value=/tmp/x");
}

/// Transcript 8.8: "`initack` .. S answers four lines, sent as one write .. (this order is mandatory)".
#[test]
fn port_mode() {
    let mut server = server(2, AbsentMembers::Fail);
    let stranger = ropewalk_pmi::ConnectionId(9);
    server.open(stranger, Peer::Port(GROUP));
    // Rank 1 is connected already, and there is no rank 2.
    for rank in [1, 2] {
        server.handle_bytes(stranger, format!("cmd=initack pmiid={rank}\n").as_bytes());
        assert_eq!(drain(&mut server), ["9 misbehaved", "9 closed"]);
        server.open(stranger, Peer::Port(GROUP));
    }
    server.handle_bytes(stranger, b"cmd=get_maxes\n");
    assert_eq!(drain(&mut server), ["9 misbehaved", "9 closed"]);
    server.handle_departure(process(1), false);
    server.open(stranger, Peer::Port(GROUP));
    server.handle_bytes(stranger, b"cmd=initack pmiid=1\n");
    let sent = b"cmd=initack\ncmd=set size=2\ncmd=set rank=1\ncmd=set debug=0\n".to_vec();
    let (connection, bytes) = (stranger, sent);
    assert_eq!(server.poll_action(), Some(Action::Send { connection, bytes }));
    server.handle_bytes(stranger, b"cmd=init pmi_version=1 pmi_subversion=1\n");
    assert_eq!(
        drain(&mut server),
        ["9 cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"]
    );
    assert!(server.is_unfinished(process(1)));
}

/// A process that connected to a port of its own says that it is who it is, and gets the same lines. Nobody else has
/// that port.
#[test]
fn port_of_one_process() {
    let mut server = server(2, AbsentMembers::Fail);
    let sent = "cmd=initack\ncmd=set size=2\ncmd=set rank=1\ncmd=set debug=0\n";
    let answers = say(&mut server, 1, "cmd=initack pmiid=1");
    let expected: Vec<_> = sent.lines().map(|line| format!("1 {line}")).collect();
    assert_eq!(answers, expected);
    assert_eq!(
        ask(&mut server, 1, "cmd=init pmi_version=1 pmi_subversion=1"),
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
    );
    let answers = say(&mut server, 0, "cmd=initack pmiid=1");
    assert_eq!(answers, ["0 misbehaved", "0 closed"]);
}

/// Transcript 8.6, but "append a token without `=` to the previous value with one space (superset, makes this
/// case work)": names that differ in their second word are kept apart.
#[test]
fn names_are_published_looked_up_and_unpublished() {
    let mut server = server(1, AbsentMembers::Fail);
    initialize(&mut server, [0]);
    let port = "tag#0$description#vm$port#49067$ifname#127.0.0.1$";
    let publish = format!("cmd=publish_name service=my svc port={port}");
    let mut exchange = |question: &str, answer: &str| assert_eq!(ask(&mut server, 0, question), answer);
    exchange(&publish, "cmd=publish_result info=ok rc=0 msg=success");
    exchange(
        &publish,
        "cmd=publish_result info=ok rc=1 msg=key_already_present",
    );
    let found = format!("cmd=lookup_result port={port} info=ok rc=0 msg=success");
    exchange("cmd=lookup_name service=my svc", &found);
    let missing = "cmd=lookup_result rc=1 msg=service_not_found";
    exchange("cmd=lookup_name service=my", missing);
    exchange(
        "cmd=unpublish_name service=my svc",
        "cmd=unpublish_result info=ok rc=0 msg=success",
    );
    let gone = "cmd=unpublish_result info=ok rc=1 msg=service_not_found";
    exchange("cmd=unpublish_name service=my svc", gone);
}

/// Transcript 8.7: "no answer"; "`cmd=abort` may carry `message=`", which is told with its spaces.
#[test]
fn an_abort_is_told_and_not_answered() {
    let mut server = server(2, AbsentMembers::Fail);
    assert_eq!(say(&mut server, 1, "cmd=abort exitcode=7"), ["1 aborts with 7"]);
    server.handle_bytes(connection(0), b"cmd=abort exitcode=8 message=no more room\n");
    let aborted = Action::Abort {
        process: process(0),
        exit_code: 8,
        message: Some("no more room".into()),
    };
    assert_eq!(server.poll_action(), Some(aborted));
}

/// A breach of the protocol closes the connection, and the others do not notice.
#[test]
fn who_breaks_the_protocol_is_closed() {
    let breaches: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\n",
        b"cmd=get_maxes\n",
        b"cmd=dance\n",
        b"\xff\x00\n",
        &[b'x'; 2000],
    ];
    for breach in breaches {
        let mut server = server(2, AbsentMembers::Exclude);
        initialize(&mut server, [1]);
        server.handle_bytes(connection(0), breach);
        assert_eq!(drain(&mut server), ["0 misbehaved", "0 closed"]);
        assert_eq!(
            say(&mut server, 0, "cmd=init pmi_version=1 pmi_subversion=1"),
            [""; 0]
        );
        assert_eq!(ask(&mut server, 1, "cmd=barrier_in"), "cmd=barrier_out");
    }
}

/// "One request outstanding per connection": a second one in a barrier is a breach.
#[test]
fn one_request_at_a_time() {
    let mut server = server(2, AbsentMembers::Exclude);
    initialize(&mut server, [0]);
    server.handle_bytes(connection(0), b"cmd=barrier_in\ncmd=get_maxes\n");
    let error = ProtocolError::WhileWaiting { command: "get_maxes" };
    let misbehaved = Action::Misbehaved {
        connection: connection(0),
        process: Some(process(0)),
        error,
    };
    let began = server.poll_action();
    assert!(matches!(began, Some(Action::FenceBegan { .. })), "{began:?}");
    assert_eq!(server.poll_action(), Some(misbehaved));
}

/// "EOF without finalize after any PMI command = abnormal end of that rank (.. a process that never spoke PMI
/// may come and go freely)."
#[test]
fn only_who_began_has_to_finish() {
    let mut server = server(2, AbsentMembers::Exclude);
    initialize(&mut server, [0]);
    server.handle_closed(connection(0));
    server.handle_closed(connection(1));
    assert!(server.is_unfinished(process(0)) && !server.is_unfinished(process(1)));
}

proptest! {
    /// Whatever a process sends, and however it is cut, the server neither panics nor answers differently, and
    /// another process meets with it or without it.
    #[test]
    fn any_bytes_any_cut(
        lines in proptest::collection::vec(
            prop_oneof![
                Just("cmd=init pmi_version=1 pmi_subversion=1\n".to_owned()),
                Just("cmd=barrier_in\n".to_owned()),
                Just("cmd=finalize\n".to_owned()),
                Just("mcmd=spawn\n".to_owned()),
                Just("endcmd\n".to_owned()),
                "cmd=(get|put) kvsname=kvs key=[a-c] value=[ -~]{0,20}\n",
                "cmd=(publish|lookup|unpublish)_name service=[a-c ]{1,3} port=x\n",
                "[ -~\n]{0,40}",
            ],
            0..12,
        ),
        cuts in proptest::collection::vec(1..30_usize, 1..20),
    ) {
        let stream = lines.concat().into_bytes();
        let mut whole = server(2, AbsentMembers::Exclude);
        whole.handle_bytes(connection(0), &stream);
        let expected = drain(&mut whole);

        let mut pieces = server(2, AbsentMembers::Exclude);
        let mut rest = &stream[..];
        let mut found = Vec::new();
        for &cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, tail) = rest.split_at(cut.min(rest.len()));
            pieces.handle_bytes(connection(0), piece);
            found.extend(drain(&mut pieces));
            rest = tail;
        }
        prop_assert_eq!(found, expected);

        initialize(&mut pieces, [1]);
        say(&mut pieces, 1, "cmd=barrier_in");
        pieces.handle_departure(process(0), true);
        drain(&mut pieces);
        prop_assert_eq!(ask(&mut pieces, 1, "cmd=barrier_in"), "cmd=barrier_out");
    }
}
