//! The agent's end of advisor links.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
        listen, recv, send, socket_with, sockopt::socket_peercred,
    },
    process::geteuid,
};

use crate::message::{MESSAGE_SIZE, ToAgent, ToProgram};

/// Where advisors and stores of a host connect.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    name: String,
}

/// One advisor or store that has connected.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
}

impl Listener {
    /// How many connections may wait to be accepted.
    const BACKLOG: i32 = 4096;

    /// Listens under a name, which must not have a colon.
    ///
    /// # Errors
    /// If somebody listens under this name, or the system refuses a socket.
    pub fn bind(name: impl Into<String>) -> io::Result<Self> {
        let name = name.into();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind(&socket, &address(&name)?)?;
        listen(&socket, Self::BACKLOG)?;
        Ok(Self { socket, name })
    }

    /// The value of [`VARIABLE`](crate::VARIABLE) in the environment of a rank.
    pub fn value_for(&self, rank: u32) -> String {
        format!("{}:{rank}", self.name)
    }

    /// The next connection, if one waits. Those of other users are closed.
    pub fn accept(&self) -> Option<Connection> {
        loop {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = match accept_with(&self.socket, flags) {
                Ok(socket) => socket,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(_) => return None,
            };
            if socket_peercred(&socket).is_ok_and(|peer| peer.uid == geteuid()) {
                return Some(Connection { socket });
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Connection {
    /// The next message; nothing if none has come.
    ///
    /// # Errors
    /// If what came is no message, or the program has closed its end.
    pub fn receive(&self) -> io::Result<Option<ToAgent>> {
        // One byte more, by which a packet that is too long is seen.
        let mut bytes = [0; MESSAGE_SIZE + 1];
        loop {
            return match recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) => Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((length, _)) => ToAgent::parse(&bytes[..length])
                    .map(Some)
                    .map_err(io::Error::other),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Ok(None),
                Err(errno) => Err(errno.into()),
            };
        }
    }

    /// Sends a message. Of a program that has hundreds of messages unread, no more are kept.
    ///
    /// # Errors
    /// If the program has closed its end, or reads nothing.
    pub fn send(&self, message: ToProgram) -> io::Result<()> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        send(&self.socket, &message.encode(), flags)?;
        Ok(())
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The abstract address of a name.
pub(crate) fn address(name: &str) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(
        format!("ropewalk-advisor-{name}").as_bytes(),
    )?)
}
