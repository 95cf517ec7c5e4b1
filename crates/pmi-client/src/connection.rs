//! The connection, which several threads use at once.
//!
//! There is no thread of its own: of those that wait, one reads for all, and when it has what it wants the next one
//! goes on reading.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    os::unix::net::UnixStream,
    sync::{Mutex, MutexGuard},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};

use ropewalk_pmi::{ClientCore, Dialect, Request, RequestId, Response};

use crate::{
    ClientError,
    spin::{Spin, Turn},
};

#[derive(Debug)]
pub(super) struct Connection {
    socket: Socket,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

#[derive(Debug)]
struct State {
    core: ClientCore,
    arrived: BTreeMap<RequestId, Response>,
    parked: BTreeMap<RequestId, Thread>,
    /// How many threads look for their answers.
    looking: u32,
    is_reading: bool,
    /// Somebody writes what is to go out, and what others add meanwhile.
    is_writing: bool,
    is_broken: bool,
    timeout: Duration,
    spin: Spin,
}

impl Connection {
    pub(super) fn new(socket: Socket, dialect: Dialect, timeout: Duration) -> Result<Self, ClientError> {
        socket.set_timeout(timeout)?;
        Ok(Self {
            socket,
            state: Mutex::new(State {
                core: ClientCore::new(dialect),
                arrived: BTreeMap::new(),
                parked: BTreeMap::new(),
                looking: 0,
                is_reading: false,
                is_writing: false,
                is_broken: false,
                timeout,
                spin: Spin::default(),
            }),
        })
    }

    pub(super) fn set_timeout(&self, timeout: Duration) {
        let timeout = timeout.max(Duration::from_millis(1));
        self.lock().timeout = timeout;
        // A socket that takes no time-out is broken, which the next request tells.
        let _ = self.socket.set_timeout(timeout);
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.lock().core.dialect()
    }

    pub(super) fn tells_threads(&self) -> bool {
        self.lock().core.tells_threads()
    }

    /// Asks and waits for the answer.
    pub(super) fn ask(&self, requests: &[Request]) -> Result<Response, ClientError> {
        self.converse(requests, |core| core.submit(requests))
    }

    /// As [`ask`](Self::ask), and finds out whether the server tells threads apart.
    pub(super) fn probe(&self, request: Request) -> Result<Response, ClientError> {
        let requests = std::slice::from_ref(&request);
        self.converse(requests, |core| core.probe(&request))
    }

    /// Says something that is not answered.
    pub(super) fn tell(&self, request: &Request) -> Result<(), ClientError> {
        let mut state = self.lock();
        state.core.tell(request)?;
        let mut state = self.flush(state, std::slice::from_ref(request))?;
        // The process may end next: whoever writes for this thread has to be done.
        while state.is_writing && !state.is_broken {
            drop(state);
            thread::yield_now();
            state = self.lock();
        }
        Ok(())
    }

    /// Asks several things at once and waits for all answers, which come in the order of the requests. At most
    /// [`WINDOW`](Self::WINDOW) requests are under way, and those go out together.
    pub(super) fn ask_all(&self, requests: &[Request]) -> Result<Vec<Response>, ClientError> {
        let mut responses = Vec::with_capacity(requests.len());
        for window in requests.chunks(Self::WINDOW) {
            let mut state = self.lock_whole()?;
            let mut ids = Vec::with_capacity(window.len());
            for request in window {
                ids.push(state.core.submit(std::slice::from_ref(request))?);
            }
            state = self.flush(state, window)?;
            for id in ids {
                let (response, next) = self.wait(state, id, window)?;
                responses.push(response);
                state = next;
            }
        }
        Ok(responses)
    }

    /// How many requests of one thread are under way: their answers must fit into the socket's buffer.
    pub(super) const WINDOW: usize = 64;

    fn converse(
        &self,
        requests: &[Request],
        submit: impl FnOnce(&mut ClientCore) -> Result<RequestId, ropewalk_pmi::EncodeError>,
    ) -> Result<Response, ClientError> {
        let mut state = self.lock_whole()?;
        let id = submit(&mut state.core)?;
        let state = self.flush(state, requests)?;
        let (response, state) = self.wait(state, id, requests)?;
        drop(state);
        Ok(response)
    }

    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        id: RequestId,
        requests: &[Request],
    ) -> Result<(Response, MutexGuard<'a, State>), ClientError> {
        state = self.look(state, id, requests)?;
        let mut deadline = None;
        loop {
            if let Some(response) = state.arrived.remove(&id) {
                state.pass_on_reading();
                return Ok((response, state));
            }
            if state.is_broken {
                return Err(ClientError::Closed);
            }
            let now = Instant::now();
            let deadline = *deadline.get_or_insert_with(|| now.checked_add(state.timeout));
            let remaining =
                deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(now));
            if remaining.is_zero() {
                return Err(self.too_late(&mut state, requests));
            }
            state = if state.is_reading {
                self.park(state, id, remaining)
            } else {
                self.read(state, requests, Socket::read)?
            };
        }
    }

    /// Looks for the answer for a while, if looking has paid lately. Threads that look let each other run
    /// instead of waking each other: one finds the answers for all of them, and their next requests go out
    /// together.
    fn look<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        id: RequestId,
        requests: &[Request],
    ) -> Result<MutexGuard<'a, State>, ClientError> {
        if state.arrived.contains_key(&id) {
            return Ok(state);
        }
        state.looking += 1;
        let mut turn = state.spin.begin_among(state.looking);
        while !state.is_broken && turn.goes_on() {
            if state.is_reading {
                drop(state);
                thread::yield_now();
                state = self.lock();
            } else {
                let read_soon = |socket: &Socket, bytes: &mut [u8]| socket.read_soon(bytes, &mut turn);
                state = self.read(state, requests, read_soon)?;
            }
            if state.arrived.contains_key(&id) {
                turn.handle_found();
            }
        }
        state.looking -= 1;
        state.spin.end(&turn);
        Ok(state)
    }

    fn lock_whole(&self) -> Result<MutexGuard<'_, State>, ClientError> {
        let state = self.lock();
        match state.is_broken {
            true => Err(ClientError::Closed),
            false => Ok(state),
        }
    }

    /// Waits until somebody else has read the answer, or somebody has to go on reading.
    fn park<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        id: RequestId,
        remaining: Duration,
    ) -> MutexGuard<'a, State> {
        state.parked.insert(id, thread::current());
        drop(state);
        thread::park_timeout(remaining);
        let mut state = self.lock();
        state.parked.remove(&id);
        state
    }

    /// Reads for all who wait.
    fn read<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        requests: &[Request],
        how: impl FnOnce(&Socket, &mut [u8]) -> io::Result<usize>,
    ) -> Result<MutexGuard<'a, State>, ClientError> {
        state.is_reading = true;
        drop(state);
        let mut bytes = [0; 8192];
        let result = how(&self.socket, &mut bytes);
        let mut state = self.lock();
        state.is_reading = false;
        match result {
            Ok(0) => return Err(self.broken(&mut state, ClientError::Closed)),
            Ok(length) => {
                if let Err(error) = state.core.handle_bytes(&bytes[..length]) {
                    return Err(self.broken(&mut state, error.into()));
                }
                while let Some((id, response)) = state.core.poll_response() {
                    state.arrived.insert(id, response);
                    if let Some(thread) = state.parked.remove(&id) {
                        thread.unpark();
                    }
                }
                state = self.flush(state, requests)?;
            }
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {}
                io::ErrorKind::ConnectionReset => {
                    return Err(self.broken(&mut state, ClientError::Closed));
                }
                _ => return Err(self.broken(&mut state, error.into())),
            },
        }
        Ok(state)
    }

    /// Writes the outgoing bytes. If another thread is writing already, that thread writes these too:
    /// requests that several threads make at about the same time go out together, and no thread waits for
    /// another's writing.
    fn flush<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        requests: &[Request],
    ) -> Result<MutexGuard<'a, State>, ClientError> {
        while !state.is_writing {
            let bytes = state.core.take_outgoing();
            if bytes.is_empty() {
                break;
            }
            state.is_writing = true;
            drop(state);
            let result = self.socket.write_all(&bytes);
            state = self.lock();
            state.is_writing = false;
            let Err(error) = result else {
                continue;
            };
            let error = match error.kind() {
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ClientError::Closed,
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    return Err(self.too_late(&mut state, requests));
                }
                _ => error.into(),
            };
            return Err(self.broken(&mut state, error));
        }
        Ok(state)
    }

    fn too_late(&self, state: &mut State, requests: &[Request]) -> ClientError {
        let form = state.core.dialect().form();
        let error = ClientError::Timeout {
            command: requests.first().map_or("", |request| crate::name(request, form)),
            timeout: state.timeout,
        };
        self.broken(state, error)
    }

    fn broken(&self, state: &mut State, error: ClientError) -> ClientError {
        state.is_broken = true;
        // A connection that is closed already is what we want.
        let _ = self.socket.shutdown();
        for (_, thread) in std::mem::take(&mut state.parked) {
            thread.unpark();
        }
        error
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl State {
    /// Who leaves with an answer wakes another that waits, to read on.
    fn pass_on_reading(&mut self) {
        if !self.is_reading
            && self.looking == 0
            && let Some(thread) = self.parked.values().next()
        {
            thread.unpark();
        }
    }
}

impl Socket {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => {
                socket.set_read_timeout(Some(timeout))?;
                socket.set_write_timeout(Some(timeout))
            }
            Self::Unix(socket) => {
                socket.set_read_timeout(Some(timeout))?;
                socket.set_write_timeout(Some(timeout))
            }
        }
    }

    /// Reads what comes while it looks, and lets others run meanwhile.
    fn read_soon(&self, bytes: &mut [u8], turn: &mut Turn) -> io::Result<usize> {
        loop {
            let result = match self {
                Self::Tcp(socket) => recv(socket, &mut *bytes, RecvFlags::DONTWAIT),
                Self::Unix(socket) => recv(socket, &mut *bytes, RecvFlags::DONTWAIT),
            };
            match result {
                Err(Errno::AGAIN) if turn.goes_on() => thread::yield_now(),
                Err(errno) => return Err(errno.into()),
                Ok((length, _)) => return Ok(length),
            }
        }
    }

    pub(super) fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => (&*socket).read(bytes),
            Self::Unix(socket) => (&*socket).read(bytes),
        }
    }

    pub(super) fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => (&*socket).write_all(bytes),
            Self::Unix(socket) => (&*socket).write_all(bytes),
        }
    }

    fn shutdown(&self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.shutdown(Shutdown::Both),
            Self::Unix(socket) => socket.shutdown(Shutdown::Both),
        }
    }
}
