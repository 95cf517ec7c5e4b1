//! The PMI-1 server, to which two clients say anything: bytes with the top bit set end the turn of one and choose the
//! other. It may end a connection, but neither panic nor go on for ever.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_pmi::{AbsentMembers, ProcessMapping, Server, ServerOptions};

fuzz_target!(|bytes: &[u8]| {
    let mut server = Server::new(ServerOptions {
        size: 2,
        kvsname: "kvs_0".to_owned(),
        mapping: ProcessMapping::one_node(2),
        absent: AbsentMembers::Exclude,
    });
    let mut rank = 0;
    for turn in bytes.chunk_by(|&before, _| before < 0x80) {
        server.handle_bytes(rank, turn);
        while server.poll_action().is_some() {}
        rank = u32::from(turn[turn.len() - 1] % 2);
    }
    server.handle_closed(0);
    server.handle_departure(0, true);
    server.handle_closed(1);
    server.handle_departure(1, false);
    while server.poll_action().is_some() {}
});
