//! Starting more processes.

use ropewalk_pmi::{AbsentMembers, Action, Server, Spawn, SpawnCommand, SpawnId, SpawnRefused, Spawned};

use super::{ask, connection, drain, initialize, initialize_frames, process, server};

fn wanted(preput: bool) -> Spawn {
    Spawn {
        preput: if preput {
            vec![("PARENT_ROOT_PORT_NAME".into(), "tag#0$description#vm$".into())]
        } else {
            vec![]
        },
        commands: vec![
            SpawnCommand {
                program: "./sp3".into(),
                processes: 1,
                arguments: vec!["arg one".into(), "x=y;z".into()],
                info: vec![("wdir".into(), "/scratch".into())],
            },
            SpawnCommand {
                program: "./sp3".into(),
                processes: 2,
                arguments: vec!["q".into()],
                info: vec![("foo".into(), "bar baz".into())],
            },
        ],
    }
}

fn poll_spawn(server: &mut Server) -> (SpawnId, Spawn) {
    match server.poll_action() {
        Some(Action::Spawn { id, from, spawn }) => {
            assert_eq!(from, process(0));
            (id, spawn)
        }
        other => panic!("{other:?}"),
    }
}

/// Transcript 8.5 as it was written, in pieces: "S collects until spawnssofar == totspawns, then answers ONE line".
#[test]
fn golden_transcript_of_spawn_multiple() {
    let mut server = server(1, AbsentMembers::Fail);
    initialize(&mut server, [0]);
    for piece in [
        "mcmd=spawn\nnprocs=1\nexecname=./sp3\ntotspawns=2\nspawnssofar=1\narg1=arg one\n",
        "arg2=x=y;z\n",
        "argcnt=2\npreput_num=1\npreput_key_0=PARENT_ROOT_PORT_NAME\n\
         preput_val_0=tag#0$description#vm$\ninfo_num=1\ninfo_key_0=wdir\ninfo_val_0=/scratch\nendcmd\n",
        "mcmd=spawn\nnprocs=2\nexecname=./sp3\ntotspawns=2\nspawnssofar=2\narg1=q\n",
    ] {
        server.handle_bytes(connection(0), piece.as_bytes());
        assert_eq!(server.poll_action(), None);
    }
    let last = "argcnt=1\npreput_num=1\npreput_key_0=PARENT_ROOT_PORT_NAME\n\
                preput_val_0=tag#0$description#vm$\ninfo_num=1\ninfo_key_0=foo\ninfo_val_0=bar baz\nendcmd\n";
    server.handle_bytes(connection(0), last.as_bytes());
    let (id, spawn) = poll_spawn(&mut server);
    assert_eq!(spawn, wanted(true));
    assert_eq!(spawn.processes(), 3);
    let spawned = Spawned {
        kvsname: "kvs_1".into(),
        errcodes: vec![],
    };
    server.handle_spawned(id, Ok(spawned));
    assert_eq!(drain(&mut server), ["0 cmd=spawn_result rc=0"]);
    assert_eq!(ask(&mut server, 0, "cmd=get_appnum"), "cmd=appnum appnum=0");
}

/// "optionally `errcodes=0,0,1` with exactly sum(nprocs) entries", "Failure: `rc=-1`".
#[test]
fn failures_are_told() {
    let mut server = server(1, AbsentMembers::Fail);
    initialize(&mut server, [0]);
    let block = "mcmd=spawn\nnprocs=3\nexecname=x\ntotspawns=1\nspawnssofar=1\n\
                 argcnt=0\npreput_num=0\ninfo_num=0\nendcmd\n";
    server.handle_bytes(connection(0), block.as_bytes());
    let (id, _) = poll_spawn(&mut server);
    let spawned = Spawned {
        kvsname: "kvs_1".into(),
        errcodes: vec![0, 0, 1],
    };
    server.handle_spawned(id, Ok(spawned));
    assert_eq!(drain(&mut server), ["0 cmd=spawn_result rc=0 errcodes=0,0,1"]);

    server.handle_bytes(connection(0), block.as_bytes());
    let (id, _) = poll_spawn(&mut server);
    let reason = "no such program".into();
    server.handle_spawned(id, Err(SpawnRefused { reason }));
    assert_eq!(
        drain(&mut server),
        ["0 cmd=spawn_result rc=-1 msg=no_such_program"]
    );
}

/// "argv0 is the first ARGUMENT ..; all numbering from 0; pairs repeat per subcmd so ORDER matters; infokeycount may
/// be absent"; "jobid is mandatory for the client".
#[test]
fn spawn_in_frames() {
    let mut server = server(1, AbsentMembers::Fail);
    initialize_frames(&mut server, 1);
    let body = "cmd=spawn;thrid=4;ncmds=2;preputcount=0;subcmd=./sp3;maxprocs=1;argc=2;argv0=arg one;argv1=x=y;;z;\
                infokeycount=1;infokey0=wdir;infoval0=/scratch;subcmd=./sp3;maxprocs=2;argc=1;argv0=q;\
                infokeycount=1;infokey0=foo;infoval0=bar baz;";
    server.handle_bytes(connection(0), format!("{:<6}{body}", body.len()).as_bytes());
    let (id, spawn) = poll_spawn(&mut server);
    assert_eq!(spawn, wanted(false));
    let spawned = Spawned {
        kvsname: "kvs_1".into(),
        errcodes: vec![],
    };
    server.handle_spawned(id, Ok(spawned));
    assert_eq!(
        drain(&mut server),
        ["0 cmd=spawn-response;thrid=4;rc=0;jobid=kvs_1;nerrs=0;"]
    );
    let body = "cmd=spawn;ncmds=1;preputcount=0;subcmd=a;maxprocs=1;argc=0;";
    server.handle_bytes(connection(0), format!("{:<6}{body}", body.len()).as_bytes());
    let (id, _) = poll_spawn(&mut server);
    let reason = "no".into();
    server.handle_spawned(id, Err(SpawnRefused { reason }));
    assert_eq!(drain(&mut server), ["0 cmd=spawn-response;rc=-1;errmsg=no;"]);
}

/// Blocks that do not follow each other, or that promise more than there may be, end the connection.
#[test]
fn blocks_have_an_order() {
    for (total, so_far) in [(2, 2), (0, 0), (0, 1), (1, 2), (2000, 1)] {
        let mut server = server(1, AbsentMembers::Fail);
        initialize(&mut server, [0]);
        let block = format!(
            "mcmd=spawn\nnprocs=1\nexecname=x\ntotspawns={total}\nspawnssofar={so_far}\nargcnt=0\nendcmd\n"
        );
        server.handle_bytes(connection(0), block.as_bytes());
        assert_eq!(
            drain(&mut server),
            ["0 misbehaved", "0 closed"],
            "{total} {so_far}"
        );
    }
}

/// "spawner-jobid present <=> spawned"; the new group has its own space with the preput pairs, and its own fences.
#[test]
fn a_spawned_group_is_its_own() {
    use ropewalk_pmi::{ConnectionId, GroupId, GroupOptions, Peer, Process};

    let mut server = server(1, AbsentMembers::Fail);
    initialize(&mut server, [0]);
    let group = GroupId(1);
    server.add_group(GroupOptions {
        spawner: Some("kvs".into()),
        preput: vec![("PARENT_ROOT_PORT_NAME".into(), "tag#0$".into())],
        segments: vec![1, 1],
        ..GroupOptions::one_host(group, "kvs_1", 2)
    });
    for rank in [0, 1] {
        server.open(
            ConnectionId(10 + u64::from(rank)),
            Peer::Process(Process { group, rank }),
        );
        let fullinit = format!("cmd=fullinit;pmirank={rank};threaded=FALSE;");
        let hello = format!(
            "cmd=init pmi_version=2 pmi_subversion=0\n{:<6}{fullinit}",
            fullinit.len()
        );
        server.handle_bytes(ConnectionId(10 + u64::from(rank)), hello.as_bytes());
        let answers = drain(&mut server);
        assert!(
            answers[1].contains(&format!("rank={rank};size=2;appnum={rank};spawner-jobid=kvs;")),
            "{answers:?}"
        );
    }
    let get = "cmd=kvs-get;key=PARENT_ROOT_PORT_NAME;";
    server.handle_bytes(ConnectionId(10), format!("{:<6}{get}", get.len()).as_bytes());
    assert_eq!(
        drain(&mut server),
        ["10 cmd=kvs-get-response;found=TRUE;value=tag#0$;rc=0;"]
    );
    // The fence of the first group does not wait for the second.
    assert_eq!(ask(&mut server, 0, "cmd=barrier_in"), "cmd=barrier_out");
}

/// "HEAD: argcnt first", "preput .. (every block repeats it in 4.0.2; HEAD only in the first)", "can be
/// larger than 1024 in total": it is understood as the other is.
#[test]
fn spawn_in_the_order_of_newer_clients() {
    let mut server = server(1, AbsentMembers::Fail);
    initialize(&mut server, [0]);
    let long = "x".repeat(5000);
    let blocks = format!(
        "mcmd=spawn\nnprocs=1\nexecname=./sp3\ntotspawns=2\nspawnssofar=1\nargcnt=2\narg1=arg one\narg2={long}\n\
         preput_num=1\npreput_key_0=PARENT_ROOT_PORT_NAME\npreput_val_0=tag#0$description#vm$\ninfo_num=1\n\
         info_key_0=wdir\ninfo_val_0=/scratch\nendcmd\n\
         mcmd=spawn\nnprocs=2\nexecname=./sp3\ntotspawns=2\nspawnssofar=2\nargcnt=1\narg1=q\ninfo_num=1\n\
         info_key_0=foo\ninfo_val_0=bar baz\nendcmd\n"
    );
    server.handle_bytes(connection(0), blocks.as_bytes());
    let mut expected = wanted(true);
    expected.commands[0].arguments[1] = long.into();
    let (_, spawn) = poll_spawn(&mut server);
    assert_eq!(spawn, expected);
}
