//! The variables that a process manager sets in the environment of its processes.

use std::{
    env,
    net::TcpStream,
    time::{Duration, Instant},
};

use bstr::BString;

use ropewalk_pmi::{Form, MessageBuffer, Request, Response};

use crate::{ClientError, connection::Socket, inherited};

/// A connection, and who the process is.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) socket: Socket,
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) job: Option<BString>,
    pub(super) spawned: bool,
}

/// `PMI_FD`, else `PMI_PORT` and `PMI_ID`, else nothing: the process is alone.
pub(super) fn find(timeout: Duration) -> Result<Option<Found>, ClientError> {
    let job = env::var_os("PMI_JOBID").map(|job| job.to_string_lossy().into_owned().into());
    let spawned = env::var_os("PMI_SPAWNED").is_some_and(|spawned| spawned != "0" && !spawned.is_empty());
    if env::var_os("PMI_FD").is_some() {
        let descriptor = number("PMI_FD", None)?;
        let rank = number("PMI_RANK", Some(0))?;
        let size = number("PMI_SIZE", Some(1))?;
        check(rank, size, "PMI_RANK")?;
        let socket =
            inherited::take(descriptor).map_err(|source| ClientError::Descriptor { descriptor, source })?;
        return Ok(Some(Found {
            socket: Socket::Unix(socket),
            rank,
            size,
            job,
            spawned,
        }));
    }
    let Some(port) = env::var_os("PMI_PORT") else {
        return Ok(None);
    };
    let port = port.to_string_lossy().into_owned();
    let id = number("PMI_ID", None)?;
    let (socket, rank, size) = connect(&port, id, timeout)?;
    check(rank, size, "PMI_ID")?;
    Ok(Some(Found {
        socket: Socket::Tcp(socket),
        rank,
        size,
        job,
        spawned,
    }))
}

/// "C connects (TCP_NODELAY), sends `cmd=initack pmiid=1\n`. S answers four lines": who we are.
fn connect(port: &str, id: u32, timeout: Duration) -> Result<(TcpStream, u32, u32), ClientError> {
    let failed = |source| ClientError::Port {
        port: port.to_owned(),
        source,
    };
    let stream = TcpStream::connect(port).map_err(failed)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(timeout))?;
    let socket = Socket::Tcp(stream);
    let hello = Request::InitAck { rank: id }.encode(Form::Line, None)?;
    socket.write_all(&hello)?;
    let deadline = Instant::now() + timeout;
    let mut buffer = MessageBuffer::default();
    let (mut is_known, mut rank, mut size, mut debug) = (false, None, None, None);
    while debug.is_none() {
        let mut bytes = [0; 1024];
        let length = socket.read(&mut bytes)?;
        if length == 0 {
            return Err(ClientError::Closed);
        }
        buffer.push(&bytes[..length]);
        while let Some(message) = buffer.next_message()? {
            match Response::decode(message)?.command {
                Response::InitAck {} => is_known = true,
                Response::Set {
                    size: new_size,
                    rank: new_rank,
                    debug: new_debug,
                } if is_known => {
                    size = new_size.or(size);
                    rank = new_rank.or(rank);
                    debug = new_debug.or(debug);
                }
                answer => {
                    return Err(ClientError::Unexpected {
                        command: "initack",
                        answer: answer.name(Form::Line).unwrap_or_default(),
                    });
                }
            }
        }
        if Instant::now() >= deadline {
            return Err(ClientError::Timeout {
                command: "initack",
                timeout,
            });
        }
    }
    let Socket::Tcp(stream) = socket else {
        unreachable!("it was made above");
    };
    Ok((stream, rank.unwrap_or(id), size.unwrap_or(1)))
}

fn check(rank: u32, size: u32, variable: &'static str) -> Result<(), ClientError> {
    if rank < size {
        return Ok(());
    }
    Err(ClientError::Environment {
        variable,
        text: rank.to_string(),
    })
}

fn number(variable: &'static str, default: Option<u32>) -> Result<u32, ClientError> {
    match (env::var_os(variable), default) {
        (None, Some(default)) => Ok(default),
        (text, _) => {
            let text = text.unwrap_or_default().to_string_lossy().into_owned();
            text.parse()
                .map_err(|_| ClientError::Environment { variable, text })
        }
    }
}
