//! The ports at which ranks connect to PMI, if they do not inherit a descriptor for it.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream},
    os::fd::OwnedFd,
};

use rustix::process::geteuid;

/// A port of the loopback interface for one rank: the listener, which never waits, and the address.
pub(super) fn listen() -> io::Result<(OwnedFd, SocketAddr)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener.into(), address))
}

/// Takes the next connection at a port that is this user's or the superuser's: others may connect, but are nobody of
/// this job. `None` if there is none, or the system has nothing left for it.
pub(super) fn accept(listener: &OwnedFd) -> Option<OwnedFd> {
    let listener = TcpListener::from(listener.try_clone().ok()?);
    // Others that connect again and again must not keep the agent: it comes back.
    for _ in 0..STRANGERS_MAX {
        let (stream, _) = listener.accept().ok()?;
        if is_trusted(&stream) {
            // Requests are short, and each waits for its answer.
            let _ = stream.set_nodelay(true);
            return Some(stream.into());
        }
    }
    None
}

fn is_trusted(stream: &TcpStream) -> bool {
    let (Ok(SocketAddr::V4(peer)), Ok(SocketAddr::V4(own))) = (stream.peer_addr(), stream.local_addr())
    else {
        return false;
    };
    let connections = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let user = owner(&connections, peer, own);
    user.is_some_and(|user| user == 0 || user == geteuid().as_raw())
}

/// The user of a connection's end `local` whose other end is `remote`, by the kernel's table of connections
/// (`proc_net_tcp.txt` of the kernel's documentation): after a number, both addresses in hexadecimal as memory has
/// them, and five columns later the user.
fn owner(table: &str, local: SocketAddrV4, remote: SocketAddrV4) -> Option<u32> {
    let shown = |address: SocketAddrV4| {
        let number = u32::from_ne_bytes(address.ip().octets());
        format!("{number:08X}:{:04X}", address.port())
    };
    let (local, remote) = (shown(local), shown(remote));
    table.lines().find_map(|line| {
        let mut columns = line.split_whitespace().skip(1);
        let is_it = columns.next()? == local && columns.next()? == remote;
        is_it.then(|| columns.nth(USER_COLUMN)?.parse().ok()).flatten()
    })
}

/// How many connections of others are dropped before the agent does something else.
const STRANGERS_MAX: usize = 16;
/// Between the addresses and the user are the state, the queues, the timer and the retransmissions.
const USER_COLUMN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// The user of a connection is read from its own end, and not from the other one or another connection.
    #[test]
    fn the_user_of_a_connection_is_read() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            \x20  0: 0100007F:0CEA 00000000:0000 0A 00000000:00000000 00:00000000 00000000    88        0 1 1 0 100\n\
            \x20  1: 0100007F:0CEA 0100007F:A14C 01 00000000:00000000 00:00000000 00000000    88        0 2 1 0 20\n\
            \x20  2: 0100007F:A14C 0100007F:0CEA 01 00000000:00000000 02:00000AAA 00000000  1000        0 3 2 0 20\n";
        let address = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        assert_eq!(owner(table, address(0xa14c), address(0x0cea)), Some(1000));
        assert_eq!(owner(table, address(0x0cea), address(0xa14c)), Some(88));
        assert_eq!(owner(table, address(0xa14d), address(0x0cea)), None);
        assert_eq!(owner("", address(1), address(2)), None);
    }

    /// A connection of this process is taken, and a port without one says so at once.
    #[test]
    fn connections_of_this_user_are_taken() {
        let (listener, address) = listen().unwrap();
        assert!(accept(&listener).is_none());
        let _client = TcpStream::connect(address).unwrap();
        assert!(accept(&listener).is_some());
        assert!(accept(&listener).is_none());
    }
}
