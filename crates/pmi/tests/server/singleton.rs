//! A process that nobody started, and that starts its process manager itself.

use ropewalk_pmi::{ConnectionId, GroupId, GroupOptions, Peer, Process, Server};

use super::drain;

/// "S sends `cmd=singinit authtype=none\n`; C sends `cmd=singinit pmi_version=1 ..`; S sends `cmd=singinit_info
/// versionok=yes stdio=no kvsname=<name>\n`; .. From there it is a normal PMI-1 connection of a group of size 1."
#[test]
fn singleton_init() {
    let mut server = Server::root();
    let group = GroupId(0);
    server.add_group(GroupOptions::one_host(group, "kvs_7", 1));
    server.open(ConnectionId(3), Peer::Singleton(group));
    assert_eq!(drain(&mut server), ["3 cmd=singinit authtype=none"]);
    let say = |server: &mut Server, line: &str| {
        server.handle_bytes(ConnectionId(3), format!("{line}\n").as_bytes());
        drain(server)
    };
    assert_eq!(
        say(
            &mut server,
            "cmd=singinit pmi_version=1 pmi_subversion=1 stdio=yes authtype=none"
        ),
        ["3 cmd=singinit_info versionok=yes stdio=no kvsname=kvs_7"]
    );
    assert_eq!(
        say(&mut server, "cmd=init pmi_version=1 pmi_subversion=1"),
        ["3 cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"]
    );
    assert_eq!(
        say(&mut server, "cmd=put kvsname=kvs_7 key=k value=v"),
        ["3 cmd=put_result rc=0 msg=success"]
    );
    assert_eq!(say(&mut server, "cmd=barrier_in"), ["3 cmd=barrier_out"]);
    assert!(server.is_unfinished(Process { group, rank: 0 }));
    assert_eq!(
        say(&mut server, "cmd=finalize"),
        ["3 cmd=finalize_ack", "3 closed"]
    );
}

/// Who does not answer the greeting is not served.
#[test]
fn the_greeting_comes_first() {
    let mut server = Server::root();
    server.add_group(GroupOptions::one_host(GroupId(0), "kvs_7", 1));
    server.open(ConnectionId(3), Peer::Singleton(GroupId(0)));
    drain(&mut server);
    server.handle_bytes(ConnectionId(3), b"cmd=init pmi_version=1 pmi_subversion=1\n");
    assert_eq!(drain(&mut server), ["3 misbehaved", "3 closed"]);
}
