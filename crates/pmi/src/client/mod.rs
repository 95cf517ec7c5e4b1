//! The program's side of PMI-1: blocking, on the standard library only, because it is loaded into programs
//! that have their own idea of threads and event loops.

mod inherited;

use std::{
    env,
    io::{self, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use bstr::BString;
use thiserror::Error;

use crate::{DecodeError, EncodeError, Form, KEY_SIZE_MAX, MessageBuffer, MessageError, Request, Response};

/// A process's connection to its process manager.
///
/// Every request waits for its answer, at most [`Client::TIMEOUT_DEFAULT`] or what
/// [`set_timeout`](Client::set_timeout) says. If it waits in vain the connection is closed: PMI-1 does not number
/// its answers, and a late one would be taken for that to the next request.
///
/// ```
/// # fn main() -> Result<(), ropewalk_pmi::client::ClientError> {
/// # let address = "tcp://127.0.0.1:4711";
/// if let Some(mut client) = ropewalk_pmi::Client::from_env()? {
///     client.put(&format!("address-{}", client.rank()), address)?;
///     client.fence()?;
///     let neighbour = (client.rank() + 1) % client.size();
///     let address = client.get(&format!("address-{neighbour}"))?;
///     client.finalize()?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Client {
    socket: UnixStream,
    lines: MessageBuffer,
    rank: u32,
    size: u32,
    kvsname: BString,
    timeout: Duration,
}

impl Client {
    /// How long a request waits for its answer if nobody says otherwise. A fence waits for the slowest process.
    pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(120);

    /// The connection that the process manager left in the environment (`PMI_FD`, `PMI_RANK`, `PMI_SIZE`),
    /// initialized; `None` if there is no process manager, so that the process is alone.
    ///
    /// Takes the descriptor over: call it once in a process, before anything else uses PMI. Processes that
    /// this one starts do not inherit it.
    ///
    /// # Errors
    /// If the environment is malformed or the process manager does not answer as PMI-1 has it.
    pub fn from_env() -> Result<Option<Self>, ClientError> {
        if env::var_os("PMI_FD").is_none() {
            return match env::var_os("PMI_PORT") {
                // To go on alone would make N jobs of one out of a job of N.
                Some(_) => Err(ClientError::PortMode),
                None => Ok(None),
            };
        }
        let descriptor = variable("PMI_FD", None)?;
        let rank = variable("PMI_RANK", Some(0))?;
        let size = variable("PMI_SIZE", Some(1))?;
        if rank >= size {
            return Err(ClientError::Environment {
                variable: "PMI_RANK",
                text: rank.to_string(),
            });
        }
        let socket =
            inherited::take(descriptor).map_err(|source| ClientError::Descriptor { descriptor, source })?;
        Self::new(socket, rank, size).map(Some)
    }

    /// Initializes a connection: the process is `rank` of `size`.
    ///
    /// # Errors
    /// As for [`from_env`](Self::from_env).
    pub fn new(socket: UnixStream, rank: u32, size: u32) -> Result<Self, ClientError> {
        let mut client = Self {
            socket,
            lines: MessageBuffer::default(),
            rank,
            size,
            kvsname: BString::default(),
            timeout: Self::TIMEOUT_DEFAULT,
        };
        let init = Request::Init {
            version: 1,
            subversion: 1,
        };
        match client.ask(&init)? {
            Response::Init { rc, .. } => check(&init, rc, None)?,
            answer => return Err(unexpected(&init, &answer)),
        }
        match client.ask(&Request::GetMyKvsname {})? {
            Response::MyKvsname { kvsname, .. } => client.kvsname = kvsname,
            answer => return Err(unexpected(&Request::GetMyKvsname {}, &answer)),
        }
        Ok(client)
    }

    /// How long a request waits for its answer from now on.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// The number of this process, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many processes there are.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Tells the others `value` under `key`; they see it for sure after the next [`fence`](Self::fence).
    ///
    /// # Errors
    /// [`ClientError::Text`] if key or value hold what some process managers do not carry: anything but
    /// visible ASCII without `;`, `=` and `\`.
    pub fn put(&mut self, key: &str, value: &str) -> Result<(), ClientError> {
        check_text(key, KEY_SIZE_MAX - 1)?;
        check_text(value, Self::VALUE_SIZE_MAX)?;
        let request = Request::Put {
            kvsname: Some(self.kvsname.clone()),
            key: key.into(),
            value: value.into(),
        };
        match self.ask(&request)? {
            Response::Put { rc, message } => check(&request, rc, message),
            answer => Err(unexpected(&request, &answer)),
        }
    }

    /// What was put under `key`, or `None` if nothing was.
    ///
    /// # Errors
    /// If the process manager does not answer, or the value is no UTF-8.
    pub fn get(&mut self, key: &str) -> Result<Option<String>, ClientError> {
        check_text(key, KEY_SIZE_MAX - 1)?;
        let request = Request::Get {
            kvsname: Some(self.kvsname.clone()),
            source: None,
            key: key.into(),
        };
        match self.ask(&request)? {
            Response::Get {
                rc: None | Some(0),
                value: Some(value),
                ..
            } => match String::from_utf8(value.into()) {
                Ok(value) => Ok(Some(value)),
                Err(_) => Err(ClientError::Text { text: key.to_owned() }),
            },
            Response::Get { .. } => Ok(None),
            answer => Err(unexpected(&request, &answer)),
        }
    }

    /// Waits until all processes of the job are here; what they put before can then be got.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if one of them is gone, so that the wait would have no end.
    pub fn fence(&mut self) -> Result<(), ClientError> {
        let request = Request::Fence { group: None };
        match self.ask(&request)? {
            Response::Fence { rc, message, .. } => check(&request, rc, message),
            answer => Err(unexpected(&request, &answer)),
        }
    }

    /// Ends the connection. A process that exits without it counts as failed.
    ///
    /// # Errors
    /// If the process manager does not answer.
    pub fn finalize(mut self) -> Result<(), ClientError> {
        match self.ask(&Request::Finalize {})? {
            Response::Finalize { .. } => Ok(()),
            answer => Err(unexpected(&Request::Finalize {}, &answer)),
        }
    }

    /// Asks the process manager to end the whole job with `exit_code`. Not answered: end the process next.
    ///
    /// # Errors
    /// If the connection is gone.
    pub fn abort(&mut self, exit_code: i32) -> Result<(), ClientError> {
        self.send(&Request::Abort {
            exit_code: Some(exit_code),
            is_world: None,
            message: None,
        })
    }

    /// The longest value: Hydra's limits leave this much of a line.
    pub const VALUE_SIZE_MAX: usize = 674;

    fn ask(&mut self, request: &Request) -> Result<Response, ClientError> {
        self.send(request)?;
        let deadline = Instant::now() + self.timeout;
        loop {
            if let Some(line) = self.lines.next_message()? {
                return Ok(Response::decode(line)?.command);
            }
            let mut bytes = [0; 1024];
            match self.read(&mut bytes, deadline, request)? {
                0 => return Err(ClientError::Closed),
                length => self.lines.push(&bytes[..length]),
            }
        }
    }

    /// In one `write`: Slurm's server takes each read for one whole line.
    fn send(&mut self, request: &Request) -> Result<(), ClientError> {
        let line = request.encode(Form::Line, None)?;
        self.socket
            .set_write_timeout(Some(self.timeout.max(Duration::from_millis(1))))?;
        self.socket.write_all(&line).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ClientError::Closed,
            io::ErrorKind::WouldBlock => self.too_late(request),
            _ => ClientError::Io(error),
        })
    }

    fn read(&self, bytes: &mut [u8], deadline: Instant, request: &Request) -> Result<usize, ClientError> {
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Err(self.too_late(request));
            }
            self.socket.set_read_timeout(Some(remaining))?;
            match (&self.socket).read(bytes) {
                Ok(length) => return Ok(length),
                Err(error) => match error.kind() {
                    io::ErrorKind::ConnectionReset => return Ok(0),
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => {}
                    _ => return Err(error.into()),
                },
            }
        }
    }

    fn too_late(&self, request: &Request) -> ClientError {
        // A connection that is closed already is what we want.
        let _ = self.socket.shutdown(Shutdown::Both);
        ClientError::Timeout {
            command: request.name(Form::Line).unwrap_or_default(),
            timeout: self.timeout,
        }
    }
}

/// What can go wrong between a process and its process manager.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The process manager closed the connection.
    #[error("the process manager closed the PMI connection")]
    Closed,
    /// The process manager's answer is no PMI-1.
    #[error("the process manager's answer is not understood")]
    Decode(#[from] DecodeError),
    /// `PMI_FD` does not name an open socket.
    #[error("PMI_FD={descriptor} names no open socket; was it closed by a wrapper around the program?")]
    Descriptor {
        /// The descriptor's number.
        descriptor: u32,
        /// What the system says.
        source: io::Error,
    },
    /// The request does not fit PMI-1.
    #[error("the request cannot be sent")]
    Encode(#[from] EncodeError),
    /// A variable does not hold what it must.
    #[error("{variable}={text:?} is not what a process manager sets")]
    Environment {
        /// Its name.
        variable: &'static str,
        /// What it holds.
        text: String,
    },
    /// The operating system refused.
    #[error("the PMI connection failed")]
    Io(#[from] io::Error),
    /// The process manager's answer has no end.
    #[error("the process manager's answer is not understood")]
    Line(#[from] MessageError),
    /// The process manager wants to be reached over TCP.
    #[error(
        "the process manager offers PMI_PORT but no PMI_FD; start the job without its option for port mode"
    )]
    PortMode,
    /// The process manager says no.
    #[error("the process manager refused {command}: {message} (rc={rc})")]
    Refused {
        /// What was asked.
        command: &'static str,
        /// The process manager's code.
        rc: i32,
        /// Its words.
        message: BString,
    },
    /// A key or value that not every process manager carries.
    #[error("{text:?} is too long for PMI-1 or not plain visible ASCII; encode it, for example in hex")]
    Text {
        /// The text.
        text: String,
    },
    /// No answer in time.
    #[error("the process manager did not answer {command} within {timeout:?}")]
    Timeout {
        /// What was asked.
        command: &'static str,
        /// How long the wait was.
        timeout: Duration,
    },
    /// An answer to something else.
    #[error("the process manager answered {answer} to {command}")]
    Unexpected {
        /// What was asked.
        command: &'static str,
        /// What was answered.
        answer: &'static str,
    },
}

fn variable(variable: &'static str, default: Option<u32>) -> Result<u32, ClientError> {
    match (env::var_os(variable), default) {
        (None, Some(default)) => Ok(default),
        (text, _) => {
            let text = text.unwrap_or_default().to_string_lossy().into_owned();
            text.parse()
                .map_err(|_| ClientError::Environment { variable, text })
        }
    }
}

/// Managers lose `;`, cut at spaces and newlines, and MPICH from 4.1 on takes `\` for an escape.
fn check_text(text: &str, size_max: usize) -> Result<(), ClientError> {
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b';' | b'=' | b'\\');
    if !text.is_empty() && text.len() <= size_max && text.bytes().all(plain) {
        return Ok(());
    }
    Err(ClientError::Text {
        text: text.to_owned(),
    })
}

fn check(request: &Request, rc: Option<i32>, message: Option<BString>) -> Result<(), ClientError> {
    match rc {
        None | Some(0) => Ok(()),
        Some(rc) => Err(ClientError::Refused {
            command: request.name(Form::Line).unwrap_or_default(),
            rc,
            message: message.unwrap_or_default(),
        }),
    }
}

fn unexpected(request: &Request, answer: &Response) -> ClientError {
    ClientError::Unexpected {
        command: request.name(Form::Line).unwrap_or_default(),
        answer: answer.name(Form::Line).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::{Action, ConnectionId, GroupId, GroupOptions, Peer, Process, Server};

    fn serve(mut server: Server, sockets: Vec<UnixStream>) {
        let (sender, receiver) = std::sync::mpsc::channel();
        for (rank, socket) in (0..).zip(&sockets) {
            let (sender, mut socket) = (sender.clone(), socket.try_clone().unwrap());
            thread::spawn(move || {
                let mut bytes = [0; 7];
                while let Ok(length @ 1..) = socket.read(&mut bytes) {
                    let _ = sender.send((rank, bytes[..length].to_vec()));
                }
            });
        }
        drop(sender);
        for (rank, bytes) in receiver {
            server.handle_bytes(ConnectionId(rank), &bytes);
            while let Some(action) = server.poll_action() {
                match action {
                    Action::Send { connection, bytes } => {
                        (&sockets[connection.0 as usize]).write_all(&bytes).unwrap();
                    }
                    Action::Close { connection } => {
                        sockets[connection.0 as usize].shutdown(Shutdown::Both).unwrap();
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// Four clients exchange what they put, and one of them asks for what nobody put.
    #[test]
    fn clients_meet_over_our_server() {
        let (clients, servers): (Vec<_>, Vec<_>) = (0..4).map(|_| UnixStream::pair().unwrap()).unzip();
        let mut server = Server::root();
        let group = GroupId(0);
        server.add_group(GroupOptions::one_host(group, "kvs", 4));
        for rank in 0..4 {
            let process = Process { group, rank };
            server.open(ConnectionId(rank.into()), Peer::Process(process));
        }
        let server = thread::spawn(move || serve(server, servers));
        let clients: Vec<_> = (0..)
            .zip(clients)
            .map(|(rank, socket)| {
                thread::spawn(move || {
                    let mut client = Client::new(socket, rank, 4).unwrap();
                    client.put(&format!("key-{rank}"), &format!("v{rank}")).unwrap();
                    client.fence().unwrap();
                    let next = (rank + 1) % 4;
                    assert_eq!(
                        client.get(&format!("key-{next}")).unwrap(),
                        Some(format!("v{next}"))
                    );
                    assert_eq!(client.get("nothing").unwrap(), None);
                    client.finalize().unwrap();
                })
            })
            .collect();
        for client in clients {
            client.join().unwrap();
        }
        server.join().unwrap();
    }

    /// A process manager that says nothing is an error by the deadline; one that goes away is one at once.
    #[test]
    fn silence_and_absence_are_errors() {
        let (client, server) = UnixStream::pair().unwrap();
        let answers = b"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\ncmd=my_kvsname kvsname=k\n";
        (&server).write_all(answers).unwrap();
        let mut client = Client::new(client, 0, 2).unwrap();
        client.set_timeout(Duration::from_millis(20));
        assert!(matches!(
            client.fence(),
            Err(ClientError::Timeout {
                command: "barrier_in",
                ..
            })
        ));
        drop(server);
        assert!(matches!(client.get("key"), Err(ClientError::Closed)));
    }

    /// An answer that comes too late is not taken for the one to the next request.
    #[test]
    fn late_answers_are_nobodys() {
        let (client, server) = UnixStream::pair().unwrap();
        let answers = b"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\ncmd=my_kvsname kvsname=k\n";
        (&server).write_all(answers).unwrap();
        let mut client = Client::new(client, 0, 1).unwrap();
        client.set_timeout(Duration::from_millis(20));
        assert!(matches!(client.get("first"), Err(ClientError::Timeout { .. })));
        // Whether it still arrives does not matter.
        let _ = (&server).write_all(b"cmd=get_result rc=0 value=of-the-first\n");
        assert!(matches!(client.get("second"), Err(ClientError::Closed)));
    }

    /// "Never put `;`, space, `\n` or `=`-leading data in values": refused before it is sent.
    #[test]
    fn text_that_managers_lose_is_refused() {
        for text in ["a;b", "a b", "a\nb", "=a", "", "ä", "a\\b"] {
            assert!(
                matches!(check_text(text, 674), Err(ClientError::Text { .. })),
                "{text:?}"
            );
        }
        assert!(check_text("tcp://127.0.0.1:4711", 674).is_ok());
        assert!(check_text("abc", 2).is_err());
    }
}
