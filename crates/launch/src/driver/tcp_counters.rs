//! The bytes that TCP connections have moved, as the kernel counts them (sock_diag(7)): /proc/PID/io leaves
//! out send(2) and recv(2), by which MPI libraries move most.

use std::collections::BTreeSet;

use rustix::{
    io::{self, Errno},
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with},
};

/// How many bytes all of these sockets sent and received so far. Sockets that are not of TCP, or cannot be
/// found, count nothing.
pub(super) fn bytes_moved(inodes: &BTreeSet<u32>) -> u64 {
    if inodes.is_empty() {
        return 0;
    }
    [AddressFamily::INET, AddressFamily::INET6]
        .into_iter()
        // A kernel without this interface has nothing to say.
        .filter_map(|family| bytes_of_family(family, inodes).ok())
        .fold(0, u64::wrapping_add)
}

fn bytes_of_family(family: AddressFamily, inodes: &BTreeSet<u32>) -> io::Result<u64> {
    let kernel = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    send(&kernel, &question(family), SendFlags::empty())?;
    let mut buffer = vec![0; ANSWER_SIZE_MAX];
    let mut sum = 0_u64;
    loop {
        // The kernel answers while it is asked, so that there is nothing to wait for.
        let (_, length) = recv(&kernel, &mut buffer[..], RecvFlags::DONTWAIT)?;
        let (bytes, more) = read_answer(&buffer[..length.min(ANSWER_SIZE_MAX)], inodes)?;
        sum = sum.wrapping_add(bytes);
        if !more {
            return Ok(sum);
        }
    }
}

/// The kernel makes no larger parts of a long answer (netlink(7)).
const ANSWER_SIZE_MAX: usize = 32 << 10;

// Of linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h and linux/tcp.h.
const HEADER_SIZE: usize = 16;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const REQUEST_AND_DUMP: u16 = 0x301;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const IPPROTO_TCP: u8 = 6;
const INET_DIAG_INFO: u16 = 2;
const LISTEN: u32 = 10;
const TIME_WAIT: u32 = 6;
/// `inet_diag_msg`, and in it the inode.
const SOCKET_SIZE: usize = 72;
const INODE_AT: usize = 68;
/// In `tcp_info`: what was sent and acknowledged; what was received stands behind it.
const BYTES_ACKED_AT: usize = 120;

/// `nlmsghdr` and `inet_diag_req_v2`: all connections of a family, with their `tcp_info`.
fn question(family: AddressFamily) -> Vec<u8> {
    const SIZE: usize = HEADER_SIZE + 56;
    let mut bytes = Vec::with_capacity(SIZE);
    bytes.extend((SIZE as u32).to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(REQUEST_AND_DUMP.to_ne_bytes());
    bytes.extend([0; 8]);
    let extensions = 1 << (INET_DIAG_INFO - 1);
    bytes.extend([family.as_raw() as u8, IPPROTO_TCP, extensions, 0]);
    let states: u32 = !(1 << LISTEN | 1 << TIME_WAIT);
    bytes.extend(states.to_ne_bytes());
    bytes.resize(SIZE, 0);
    bytes
}

/// The bytes of those of the sockets that are in one part of an answer, and whether there are more parts.
fn read_answer(mut part: &[u8], inodes: &BTreeSet<u32>) -> io::Result<(u64, bool)> {
    let mut sum = 0_u64;
    while let Some((kind, body, rest)) = split_message(part) {
        match kind {
            NLMSG_DONE => return Ok((sum, false)),
            NLMSG_ERROR => return Err(Errno::IO),
            _ => {}
        }
        let is_wanted = u32_at(body, INODE_AT).is_some_and(|inode| inodes.contains(&inode));
        let attributes = body.get(SOCKET_SIZE..).filter(|_| is_wanted);
        sum = sum.wrapping_add(attributes.and_then(bytes_of).unwrap_or_default());
        part = rest;
    }
    // Nothing but whole messages came, or it is none of ours to understand.
    match part.is_empty() {
        true => Ok((sum, true)),
        false => Err(Errno::IO),
    }
}

/// The kind and the body of the first message, and what is behind it.
fn split_message(part: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32_at(part, 0)? as usize;
    let kind = u16_at(part, 4)?;
    let body = part.get(HEADER_SIZE..length)?;
    let rest = part.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, body, rest))
}

/// The bytes sent and received, of the attributes of a socket.
fn bytes_of(mut attributes: &[u8]) -> Option<u64> {
    loop {
        let length = usize::from(u16_at(attributes, 0)?);
        let value = attributes.get(4..length)?;
        if u16_at(attributes, 2)? == INET_DIAG_INFO {
            let counter = |at: usize| Some(u64::from_ne_bytes(value.get(at..at + 8)?.try_into().ok()?));
            return Some(counter(BYTES_ACKED_AT)?.wrapping_add(counter(BYTES_ACKED_AT + 8)?));
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        os::fd::AsFd,
        thread,
        time::{Duration, Instant},
    };

    use proptest::prelude::*;
    use rustix::fs::fstat;

    use super::*;

    /// Bytes that go over a connection count once at each end, by IPv4 and by IPv6. A look for data that is
    /// not there counts nothing, and neither do sockets of others.
    #[test]
    fn bytes_of_connections_are_counted() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                // Without IPv6 there are no such connections.
                continue;
            };
            let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut receiver, _) = listener.accept().unwrap();
            let inode = |socket: &TcpStream| fstat(socket.as_fd()).unwrap().st_ino as u32;
            let both = BTreeSet::from([inode(&sender), inode(&receiver)]);
            let receiving = BTreeSet::from([inode(&receiver)]);
            let (before, received) = (bytes_moved(&both), bytes_moved(&receiving));
            receiver.set_nonblocking(true).unwrap();
            for _ in 0..1000 {
                assert!(receiver.read(&mut [0; 64]).is_err());
            }
            assert_eq!(bytes_moved(&both), before);
            sender.write_all(&[7; 1000]).unwrap();
            let due = Instant::now() + Duration::from_secs(30);
            // The sender's part counts when it is acknowledged.
            while bytes_moved(&both) < before + 2000 {
                assert!(Instant::now() < due);
                thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(bytes_moved(&receiving), received + 1000);
        }
    }

    /// Of an answer only the sockets that are asked for count, and its end is seen.
    #[test]
    fn answers_are_read() {
        let message = |kind: u16, body: &[u8]| {
            let mut bytes = Vec::from(((HEADER_SIZE + body.len()) as u32).to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.resize(HEADER_SIZE, 0);
            bytes.extend(body);
            bytes
        };
        let socket = |inode: u32, moved: u64| {
            let mut body = vec![0; INODE_AT];
            body.extend(inode.to_ne_bytes());
            // One that is passed over, with a length that is no multiple of four.
            body.extend([5_u16.to_ne_bytes(), 8_u16.to_ne_bytes()].concat());
            body.extend([1, 0, 0, 0]);
            let mut info = vec![0; BYTES_ACKED_AT];
            info.extend(moved.to_ne_bytes());
            info.extend(1_u64.to_ne_bytes());
            body.extend(((4 + info.len()) as u16).to_ne_bytes());
            body.extend(INET_DIAG_INFO.to_ne_bytes());
            body.extend(info);
            message(SOCK_DIAG_BY_FAMILY, &body)
        };
        let wanted = BTreeSet::from([1, 3]);
        let part = [socket(1, 10), socket(2, 100), socket(3, 1000)].concat();
        assert_eq!(read_answer(&part, &wanted), Ok((1012, true)));
        let last = [part.clone(), message(NLMSG_DONE, &[0; 4])].concat();
        assert_eq!(read_answer(&last, &wanted), Ok((1012, false)));
        assert!(read_answer(&message(NLMSG_ERROR, &[0; 4]), &wanted).is_err());
        assert!(read_answer(&part[..part.len() - 1], &wanted).is_err());
    }

    proptest! {
        /// Whatever comes, nothing panics, and the reading ends.
        #[test]
        fn any_answer_is_read(part in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = read_answer(&part, &BTreeSet::from([0]));
            let _ = bytes_of(&part);
        }
    }
}
