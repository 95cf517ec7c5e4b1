//! Services over bare sockets: an echo, and as many bytes as were asked for.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr as UnixSocketAddr, UnixListener, UnixStream},
    },
    time::{Duration, Instant},
};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

/// How a socket is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Waiting {
    /// In the kernel, asleep.
    Blocking,
    /// By asking again and again.
    Spinning,
}

/// The service of the answering side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Service {
    /// Sends back what came.
    Echo,
    /// Sends as many bytes as each request of 8 bytes says.
    Bulk,
}

/// A TCP listener that serves one connection.
#[derive(Debug)]
pub(crate) struct OneTcpConnection(TcpListener);

/// A UNIX listener, of an abstract name, that serves one connection.
#[derive(Debug)]
pub(crate) struct OneUnixConnection(UnixListener);

/// The asking side of a connection.
pub(crate) struct Asking<S> {
    socket: Socket<S>,
    requests: Vec<u8>,
    answers: Vec<u8>,
}

/// A socket, waited for in one way.
struct Socket<S> {
    stream: S,
    /// Shown to a spinner that waits too long.
    patience: Duration,
}

impl OneTcpConnection {
    /// Listens at a port of the system's choice, which is returned with it.
    pub(crate) fn listen(ip: IpAddr) -> io::Result<(Self, u16)> {
        let listener = TcpListener::bind(SocketAddr::new(ip, 0))?;
        let port = listener.local_addr()?.port();
        Ok((Self(listener), port))
    }

    /// Serves until the other side closes.
    pub(crate) fn serve(self, service: Service, waiting: Waiting) -> io::Result<()> {
        wait_for_dial(&self.0)?;
        let (stream, _) = self.0.accept()?;
        prepare(&stream)?;
        stream.set_nonblocking(waiting == Waiting::Spinning)?;
        Socket::new(stream).serve(service)
    }
}

impl OneUnixConnection {
    pub(crate) fn listen(name: &str) -> io::Result<Self> {
        let address = UnixSocketAddr::from_abstract_name(name)?;
        Ok(Self(UnixListener::bind_addr(&address)?))
    }

    /// Serves an echo, asleep while there is nothing, until the other side closes.
    pub(crate) fn serve(self) -> io::Result<()> {
        wait_for_dial(&self.0)?;
        let (stream, _) = self.0.accept()?;
        Socket::new(stream).serve(Service::Echo)
    }
}

impl Asking<TcpStream> {
    pub(crate) fn tcp(to: SocketAddr, waiting: Waiting) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(to).with_context(|| format!("cannot connect to {to}"))?;
        prepare(&stream)?;
        stream.set_nonblocking(waiting == Waiting::Spinning)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self::new(stream))
    }
}

impl Asking<UnixStream> {
    pub(crate) fn unix(name: &str) -> anyhow::Result<Self> {
        let address = UnixSocketAddr::from_abstract_name(name)?;
        let stream = UnixStream::connect_addr(&address).context("cannot connect to a UNIX socket")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self::new(stream))
    }
}

impl<S: Read + Write> Asking<S> {
    fn new(stream: S) -> Self {
        Self {
            socket: Socket::new(stream),
            requests: vec![1; REQUEST * ECHOED_MAX],
            answers: vec![0; REQUEST * ECHOED_MAX],
        }
    }

    /// Has `requests` small messages echoed, which are all written at once.
    pub(crate) fn echo(&mut self, requests: usize) -> io::Result<()> {
        let length = REQUEST * requests;
        self.socket.write_all(&self.requests[..length])?;
        self.socket.read_exact(&mut self.answers[..length])
    }

    /// Asks for bytes and receives them.
    pub(crate) fn pull(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.socket.write_all(&(into.len() as u64).to_le_bytes())?;
        self.socket.read_exact(into)
    }

    /// Asks for `length` bytes and receives them in pieces, one after the other, at the same place.
    pub(crate) fn pull_in_pieces(&mut self, length: usize, piece: &mut [u8]) -> io::Result<()> {
        self.socket.write_all(&(length as u64).to_le_bytes())?;
        let mut left = length;
        while left > 0 {
            let next = left.min(piece.len());
            self.socket.read_exact(&mut piece[..next])?;
            left -= next;
        }
        Ok(())
    }

    /// Waits until the other end is closed.
    pub(crate) fn wait_for_end(&mut self) -> io::Result<()> {
        match self.socket.read(&mut [0]) {
            Ok(0) => Ok(()),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(()),
            Ok(_) => Err(io::Error::other("the other side spoke instead of ending")),
            Err(error) => Err(error),
        }
    }
}

impl<S: Read + Write> Socket<S> {
    fn new(stream: S) -> Self {
        Self {
            stream,
            patience: PATIENCE,
        }
    }

    fn serve(mut self, service: Service) -> io::Result<()> {
        let mut buffer = vec![0; REQUEST * ECHOED_MAX];
        let mut supply = Vec::new();
        loop {
            let came = match service {
                Service::Echo => self.read(&mut buffer)?,
                Service::Bulk => self.read(&mut buffer[..8])?,
            };
            if came == 0 {
                return Ok(());
            }
            match service {
                Service::Echo => self.write_all(&buffer[..came])?,
                Service::Bulk => {
                    self.read_exact(&mut buffer[came..8])?;
                    let asked = buffer[..8]
                        .iter()
                        .rev()
                        .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
                    let asked = usize::try_from(asked).unwrap_or(usize::MAX).min(BULK_MAX);
                    if supply.len() < asked {
                        supply.resize(asked, 1);
                    }
                    self.write_all(&supply[..asked])?;
                }
            }
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let stream = &mut self.stream;
        again(self.patience, || stream.read(into))
    }

    fn read_exact(&mut self, into: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < into.len() {
            match self.read(&mut into[done..])? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                came => done += came,
            }
        }
        Ok(())
    }

    fn write_all(&mut self, from: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < from.len() {
            let stream = &mut self.stream;
            done += again(self.patience, || stream.write(&from[done..]))?;
        }
        Ok(())
    }
}

/// Repeats what would block, and is interrupted, at most for `patience`.
fn again(patience: Duration, mut once: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    let mut start = None;
    let mut tries = 0_u32;
    loop {
        match once() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                tries = tries.wrapping_add(1);
                // A look at the clock each time would make the spinning slower than it has to be.
                if tries.is_multiple_of(1024) && start.get_or_insert_with(Instant::now).elapsed() > patience {
                    return Err(ErrorKind::TimedOut.into());
                }
            }
            result => return result,
        }
    }
}

/// Waits until somebody dials; nobody waits for ever, also not here.
fn wait_for_dial(listener: &impl std::os::fd::AsFd) -> io::Result<()> {
    let mut ready = [PollFd::new(listener, PollFlags::IN)];
    let patience = Timespec {
        tv_sec: PATIENCE.as_secs() as i64,
        tv_nsec: 0,
    };
    match poll(&mut ready, Some(&patience))? {
        0 => Err(ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

/// Whatever the system's own choice is (BBR paces bulk data on a loopback interface), the floor shall be the
/// fastest.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // Not every system has it; then the floor is what the system's own choice makes it.
    let _ = rustix::net::sockopt::set_tcp_congestion(stream, "cubic");
    Ok(())
}

/// About what a null call's frame takes.
const REQUEST: usize = 40;
const ECHOED_MAX: usize = 256;
const BULK_MAX: usize = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, thread};

    use super::*;

    const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// Echo and bulk give all bytes that were asked for, whichever way they are waited for, and end with the
    /// connection.
    #[test]
    fn sockets_serve_what_is_asked() {
        for waiting in [Waiting::Blocking, Waiting::Spinning] {
            let (listening, port) = OneTcpConnection::listen(LOCALHOST).unwrap();
            let served = thread::spawn(move || listening.serve(Service::Bulk, waiting));
            let mut asking = Asking::tcp((LOCALHOST, port).into(), waiting).unwrap();
            for length in [0, 1, 1 << 20] {
                let mut bytes = vec![0; length];
                asking.pull(&mut bytes).unwrap();
                assert!(bytes.iter().all(|byte| *byte == 1));
                let mut piece = vec![0; 1 << 12];
                asking.pull_in_pieces(length, &mut piece).unwrap();
            }
            drop(asking);
            served.join().unwrap().unwrap();
        }
        let listening = OneUnixConnection::listen("ropewalk-bench-test").unwrap();
        let served = thread::spawn(move || listening.serve());
        let mut asking = Asking::unix("ropewalk-bench-test").unwrap();
        for requests in [1, 64, ECHOED_MAX] {
            asking.echo(requests).unwrap();
        }
        drop(asking);
        served.join().unwrap().unwrap();
    }

    /// Who waits for the end of the other side sees it.
    #[test]
    fn ends_are_seen() {
        let listener = TcpListener::bind((LOCALHOST, 0)).unwrap();
        let mut asking = Asking::tcp(listener.local_addr().unwrap(), Waiting::Blocking).unwrap();
        drop(listener.accept().unwrap());
        asking.wait_for_end().unwrap();
    }
}
