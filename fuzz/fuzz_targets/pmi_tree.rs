//! The messages between the agents' PMI servers: any bytes in place of a message, and any message to a server
//! in the middle of a tree.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_pmi::{ChildId, ConnectionId, Down, GroupId, GroupOptions, Peer, Process, RankSet, Server, Up};

fuzz_target!(|bytes: &[u8]| {
    let mut server = Server::below_parent();
    let group = GroupId(0);
    server.add_group(GroupOptions {
        local: RankSet::range(0, 2),
        children: vec![(ChildId(1), RankSet::range(2, 4))],
        ..GroupOptions::one_host(group, "kvs_0", 6)
    });
    for rank in 0..2 {
        server.open(ConnectionId(rank.into()), Peer::Process(Process { group, rank }));
        let hello = b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=barrier_in\n";
        server.handle_bytes(ConnectionId(rank.into()), hello);
    }
    let mut rest = bytes;
    while let [length, tail @ ..] = rest {
        let (message, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        if let Ok(message) = Up::from_bytes(message) {
            assert_eq!(Up::from_bytes(&message.to_bytes()).as_ref(), Ok(&message));
            server.handle_up(ChildId(1), message);
        }
        if let Ok(message) = Down::from_bytes(message) {
            assert_eq!(Down::from_bytes(&message.to_bytes()).as_ref(), Ok(&message));
            server.handle_down(message);
        }
        while server.poll_action().is_some() {}
        rest = tail;
    }
});
