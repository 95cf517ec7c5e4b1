//! The handshake of version 4 as its description has it, written once more, by those who play tricks with it.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

/// The most that either side may send before it is proven.
const SIZE_MAX: usize = 256;
const PROOF_SIZE: usize = 32;
/// Magic, version, job, role, rank, incarnation, instance, encryption, nonce; then the length of the address, and that.
pub(crate) const FIXED_SIZE: usize = 8 + 2 + 16 + 1 + 4 + 4 + 8 + 1 + 32;

/// Who somebody claims to be: role (agent 0, launcher 1, rank 2), rank, incarnation.
pub(crate) fn identity(role: u8, rank: u32, incarnation: u32) -> [u8; 9] {
    let bytes = [&[role][..], &rank.to_le_bytes(), &incarnation.to_le_bytes()].concat();
    bytes.try_into().unwrap()
}

/// A whole greeting, to which nothing is missing but a proof.
pub(crate) fn greeting(job: [u8; 16], identity: [u8; 9], nonce: u8) -> Vec<u8> {
    let address = b"tcp://127.0.0.1:1";
    [
        &b"ropewalk"[..],
        &4_u16.to_le_bytes(),
        &job,
        &identity,
        &7_u64.to_le_bytes(),
        &[0],
        &[nonce; 32],
        &[address.len() as u8],
        address,
    ]
    .concat()
}

/// The answer to these bytes: greeting and proof.
pub(crate) fn answer(stream: &mut TcpStream, bytes: &[u8]) -> Option<(Vec<u8>, [u8; PROOF_SIZE])> {
    stream.write_all(bytes).ok()?;
    let mut greeting = vec![0; FIXED_SIZE + 1];
    stream.read_exact(&mut greeting).ok()?;
    let address = usize::from(greeting[FIXED_SIZE]);
    greeting.resize(FIXED_SIZE + 1 + address, 0);
    stream.read_exact(&mut greeting[FIXED_SIZE + 1..]).ok()?;
    let mut proof = [0; PROOF_SIZE];
    stream.read_exact(&mut proof).ok()?;
    assert!(greeting.len() + proof.len() <= SIZE_MAX);
    Some((greeting, proof))
}

/// The other side drops the connection without another word. One that is open says nothing either.
pub(crate) fn is_dropped(mut stream: TcpStream, patience: Duration) -> bool {
    stream.set_read_timeout(Some(patience)).unwrap();
    match stream.read(&mut [0; 64]) {
        Ok(0) => true,
        Ok(count) => panic!("{count} bytes for one who has proven nothing"),
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}
