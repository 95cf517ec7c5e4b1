//! The server's answers stay within the limits of clients.

use ropewalk_pmi::{
    AbsentMembers, Action, GroupOptions, LINE_SIZE_MAX, MappingBlock, PAIR_LINE_SIZE_MAX, ProcessMapping,
    Server, SpawnId, SpawnRefused, Spawned,
};

use super::{
    GROUP, ask, ask_frame, connection, drain, initialize, initialize_frames, process, say, server, server_of,
};

/// "kvsname+keylen+vallen+30 must fit 1024, so with Hydra's maxes the client uses vallen 1024-256-64-30 =
/// 674": with names and keys as long as announced such a value makes the longest line that may be put, and is
/// got whole.
#[test]
fn the_longest_value_of_a_line_fits() {
    let kvsname = "n".repeat(256);
    let mut server = server_of(GroupOptions::one_host(GROUP, &kvsname, 1));
    initialize(&mut server, [0]);
    let (key, value) = ("k".repeat(64), "v".repeat(674));
    let put = format!("cmd=put kvsname={kvsname} key={key} value={value}");
    assert_eq!(put.len() + 1, LINE_SIZE_MAX);
    assert_eq!(ask(&mut server, 0, &put), "cmd=put_result rc=0 msg=success");
    assert_eq!(
        ask(&mut server, 0, &format!("cmd=get kvsname={kvsname} key={key}")),
        format!("cmd=get_result rc=0 msg=success value={value}")
    );
}

/// A client that takes `get_maxes` at its word puts longer lines than MPICH's, and gets its values back. A value that
/// is longer than announced ends the connection.
#[test]
fn values_as_long_as_announced_are_put_and_got() {
    let kvsname = "n".repeat(256);
    let mut server = server_of(GroupOptions::one_host(GROUP, &kvsname, 1));
    initialize(&mut server, [0]);
    let (key, value) = ("k".repeat(64), "v".repeat(1024));
    let put = format!("cmd=put kvsname={kvsname} key={key} value={value}");
    assert_eq!(put.len() + 1, PAIR_LINE_SIZE_MAX);
    assert_eq!(ask(&mut server, 0, &put), "cmd=put_result rc=0 msg=success");
    assert_eq!(
        ask(&mut server, 0, &format!("cmd=get kvsname={kvsname} key={key}")),
        format!("cmd=get_result rc=0 msg=success value={value}")
    );
    let answers = say(&mut server, 0, &format!("{put}v"));
    assert_eq!(answers, ["0 misbehaved", "0 closed"]);
}

/// "Must fit the value limit (674/1024); .. if it cannot fit, answer "not found" (PMI-1 only)": a mapping is
/// given whole or not at all, in the form in which it fits.
#[test]
fn a_mapping_that_does_not_fit_is_not_given() {
    let mapping = |blocks: u32| {
        let block = |node| MappingBlock {
            node: 100 + node,
            nodes: 1,
            ranks_per_node: 1 + node % 2,
        };
        ProcessMapping::new((0..blocks).map(block).collect())
    };
    let longest = |limit: usize| {
        let fitting = (1..).take_while(|&blocks| mapping(blocks).to_string().len() <= limit);
        fitting.last().unwrap()
    };
    for (blocks, fits_line, fits_frame) in [
        (longest(674), true, true),
        (longest(674) + 1, false, true),
        (longest(1024), false, true),
        (longest(1024) + 1, false, false),
    ] {
        let mapping = mapping(blocks);
        let text = mapping.to_string();
        let mut server = server_of(GroupOptions {
            mapping,
            ..GroupOptions::one_host(GROUP, "kvs", 1)
        });
        initialize_frames(&mut server, 1);
        let answer = ask(&mut server, 0, "cmd=get kvsname=kvs key=PMI_process_mapping");
        let whole = format!("cmd=get_result rc=0 msg=success value={text}");
        let missing = "cmd=get_result rc=-1 msg=key_PMI_process_mapping_not_found value=unknown";
        assert_eq!(answer, if fits_line { whole.as_str() } else { missing });
        let answer = ask_frame(&mut server, 0, "cmd=info-getjobattr;key=PMI_process_mapping;");
        let whole = format!("cmd=info-getjobattr-response;found=TRUE;value={text};rc=0;");
        let missing = "cmd=info-getjobattr-response;found=FALSE;rc=0;";
        assert_eq!(answer, if fits_frame { whole.as_str() } else { missing });
    }
}

/// "`PMI_dead_processes` (comma list of ranks that died, ..)": however many died, the value holds numbers of
/// dead ranks, as many as a client of PMI-1 reads.
#[test]
fn a_list_of_many_dead_is_cut_between_ranks() {
    let mut server = server(1000, AbsentMembers::Exclude);
    initialize(&mut server, [0]);
    for rank in 300..900 {
        server.handle_departure(process(rank), true);
    }
    let answer = ask(&mut server, 0, "cmd=get kvsname=kvs key=PMI_dead_processes");
    let value = answer
        .strip_prefix("cmd=get_result rc=0 msg=success value=")
        .unwrap();
    assert!((670..=674).contains(&value.len()), "{}", value.len());
    let ranks: Vec<u32> = value.split(',').map(|rank| rank.parse().unwrap()).collect();
    let expected: Vec<u32> = (300..).take(ranks.len()).collect();
    assert_eq!(ranks, expected);
}

/// "a token without `=` in a RESPONSE makes the 4.0.2 client fail to parse", "MPICH >= 4.1 clients/servers
/// treat `\` as an escape ..; so never send a bare `\` in a value": not even where the server repeats what it
/// was asked for.
#[test]
fn the_words_of_the_server_can_be_read() {
    let mut server = server(1, AbsentMembers::Fail);
    initialize(&mut server, [0]);
    let mut is_readable = |question: &str| {
        let answer = ask(&mut server, 0, question);
        assert!(
            answer.contains(" rc=-1 ") || answer.contains(" rc=1 "),
            "{answer}"
        );
        let tokens = answer.split(' ');
        assert!(tokens.into_iter().all(|token| token.contains('=')), "{answer}");
        assert!(!answer.contains('\\'), "{answer}");
    };
    for odd in ["a b", "a\\", "a\\b", "a\tb", "\u{1b}[1m", "ä"] {
        is_readable(&format!("cmd=get kvsname=kvs key={odd}"));
        is_readable(&format!("cmd=get kvsname={odd} key=k"));
        is_readable(&format!("cmd=put kvsname={odd} key=k value=v"));
        is_readable(&format!("cmd=lookup_name service={odd}"));
        is_readable(&format!("cmd=unpublish_name service={odd}"));
        is_readable(&format!("cmd=barrier_in group={odd}"));
    }
    let reason = "cannot start \"a\\b\":\nno such file".into();
    let id = ask_for_processes(&mut server, 1);
    server.handle_spawned(id, Err(SpawnRefused { reason }));
    let refused = "0 cmd=spawn_result rc=-1 msg=cannot_start_\"a_b\":_no_such_file";
    assert_eq!(drain(&mut server), [refused]);
}

/// "Value <= 1024 bytes: **clients reject a received value longer than 1024**": also where the server says
/// something about a name that is as long.
#[test]
fn no_value_of_a_frame_is_too_long() {
    let mut server = server(1, AbsentMembers::Fail);
    initialize_frames(&mut server, 1);
    let long = |size: usize| "x".repeat(size);
    let (name, longer) = (long(1023), long(60_000));
    let publish = format!("cmd=name-publish;name={name};port=p;");
    assert_eq!(
        ask_frame(&mut server, 0, &publish),
        "cmd=name-publish-response;rc=0;"
    );
    for question in [
        publish,
        format!("cmd=name-publish;name=n;port={longer};"),
        format!("cmd=name-publish;name={longer};port=p;"),
        format!("cmd=name-lookup;name={longer};"),
        format!("cmd=name-unpublish;name={longer};"),
        format!("cmd=name-unpublish;name={};", long(1022)),
        format!("cmd=job-connect;jobid={longer};"),
        format!("cmd=job-disconnect;jobid={longer};"),
        format!("cmd=kvs-put;key=k;value={};", long(1025)),
        format!("cmd=kvs-put;key={};value=v;", long(65)),
        format!("cmd=kvs-fence;group={longer};"),
        format!("cmd=info-putnodeattr;key=k;value={};", long(1025)),
        format!("cmd=info-getnodeattr;key=k;wait={longer};"),
        format!("cmd={};", long(64)),
    ] {
        let answer = ask_frame(&mut server, 0, &question);
        let values = answer.split(';').filter_map(|pair| pair.split_once('='));
        let longest = values.map(|(_, value)| value.len()).max().unwrap();
        assert!(
            longest <= 1024,
            "{longest} in the answer to {}",
            &question[..40.min(question.len())]
        );
        assert!(
            answer.contains(";rc=-1;") || answer.contains(";rc=1;"),
            "{answer}"
        );
    }
}

/// "(optionally `errcodes=0,0,1` with exactly sum(nprocs) entries; the client asserts on the count)", "S must
/// keep every response line <= 1023 bytes": of more processes than fit into a line the codes are left out if
/// all were started, for a client then takes it that they were.
#[test]
fn many_processes_are_spawned_without_error_codes() {
    let mut server = server(1, AbsentMembers::Fail);
    initialize(&mut server, [0]);
    for processes in [400, 600] {
        let id = ask_for_processes(&mut server, processes);
        let spawned = Spawned {
            kvsname: "kvs_1".into(),
            errcodes: vec![0; processes],
        };
        server.handle_spawned(id, Ok(spawned));
        let [answer] = &drain(&mut server)[..] else {
            panic!("one answer")
        };
        match answer.strip_prefix("0 cmd=spawn_result rc=0 errcodes=") {
            Some(codes) => assert_eq!(codes.split(',').count(), processes),
            None => assert_eq!(answer, "0 cmd=spawn_result rc=0"),
        }
    }
    let id = ask_for_processes(&mut server, 600);
    let spawned = Spawned {
        kvsname: "kvs_1".into(),
        errcodes: vec![1; 600],
    };
    server.handle_spawned(id, Ok(spawned));
    assert_eq!(drain(&mut server), ["0 cmd=spawn_result rc=-1"]);
}

fn ask_for_processes(server: &mut Server, processes: usize) -> SpawnId {
    let block = format!(
        "mcmd=spawn\nnprocs={processes}\nexecname=x\ntotspawns=1\nspawnssofar=1\nargcnt=0\npreput_num=0\n\
         info_num=0\nendcmd\n"
    );
    server.handle_bytes(connection(0), block.as_bytes());
    match server.poll_action() {
        Some(Action::Spawn { id, .. }) => id,
        other => panic!("{other:?}"),
    }
}
