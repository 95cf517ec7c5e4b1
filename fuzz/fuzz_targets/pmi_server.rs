//! A PMI server, to which two clients say anything in any dialect: bytes with the top bit set end the turn of one and
//! choose the other. It may end a connection, but neither panic nor go on for ever.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_pmi::{
    AbsentMembers, Action, ConnectionId, GroupId, GroupOptions, Peer, Process, Server, SpawnRefused,
};

fuzz_target!(|bytes: &[u8]| {
    let mut server = Server::root();
    let group = GroupId(0);
    server.add_group(GroupOptions {
        absent: AbsentMembers::Exclude,
        ..GroupOptions::one_host(group, "kvs_0", 2)
    });
    for rank in 0..2 {
        server.open(ConnectionId(rank.into()), Peer::Process(Process { group, rank }));
    }
    server.open(ConnectionId(2), Peer::Port(group));
    let mut connection = 0;
    for turn in bytes.chunk_by(|&before, _| before < 0x80) {
        server.handle_bytes(ConnectionId(connection), turn);
        act(&mut server);
        connection = u64::from(turn[turn.len() - 1] % 3);
    }
    for rank in 0..2 {
        server.handle_closed(ConnectionId(rank.into()));
        server.handle_departure(Process { group, rank }, rank == 0);
        act(&mut server);
    }
});

fn act(server: &mut Server) {
    while let Some(action) = server.poll_action() {
        if let Action::Spawn { id, .. } = action {
            let reason = "no".into();
            server.handle_spawned(id, Err(SpawnRefused { reason }));
        }
    }
}
