//! The program's side of PMI: blocking, without a runtime or threads of its own, because it is
//! loaded into programs that have their own idea of threads and event loops.
//!
//! It works under any process manager that speaks PMI: `ropewalk run`, Hydra's `mpiexec`, `srun --mpi=pmi2`.
//!
//! ```
//! use ropewalk_pmi_client::Client;
//!
//! if let Some(pmi) = Client::from_env()? {
//!     pmi.put(&format!("address-{}", pmi.rank()), "10.0.0.1:7000")?;
//!     pmi.fence()?;
//!     println!("rank 0 listens at {:?}", pmi.get("address-0")?);
//!     pmi.finalize()?;
//! }
//! # Ok::<(), ropewalk_pmi_client::ClientError>(())
//! ```

mod connection;
mod environment;
mod error;
mod inherited;
mod jobs;
mod spin;
mod text;

use std::{env, os::unix::net::UnixStream, time::Duration};

use bstr::{BString, ByteSlice};

use connection::{Connection, Socket};
use ropewalk_pmi::{Dialect, Form, KEY_SIZE_MAX, Pairs, Request, Response, VALUE_SIZE_MAX};

pub use error::ClientError;
pub use spin::{Spin, Turn};

/// A process's connection to its process manager.
///
/// All of a process's threads may use it at once. In PMI-2 their requests are under way together if the process
/// manager can tell them apart (ours and Hydra can); else one goes after the other.
///
/// Every request waits for its answer, at most [`Client::TIMEOUT_DEFAULT`] or what
/// [`set_timeout`](Client::set_timeout) says. If it waits in vain the connection is closed: PMI-1 does not number
/// its answers, and a late one would be taken for that to the next request.
///
/// ```
/// # fn main() -> Result<(), ropewalk_pmi_client::ClientError> {
/// # let address = "tcp://127.0.0.1:4711";
/// if let Some(client) = ropewalk_pmi_client::Client::from_env()? {
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
    connection: Connection,
    rank: u32,
    size: u32,
    appnum: i32,
    kvsname: BString,
    spawned: bool,
    value_max: usize,
    /// The process manager keeps values with spaces and `;`.
    keeps_whole: bool,
}

impl Client {
    /// How long a request waits for its answer if nobody says otherwise. A fence waits for the slowest process.
    pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(120);
    /// The longest value in PMI-1 as it travels: Hydra's limits leave this much of a line.
    pub const VALUE_SIZE_MAX: usize = ropewalk_pmi::LINE_VALUE_SIZE_MAX;

    /// The connection that the process manager left in the environment (`PMI_FD`, or `PMI_PORT` and `PMI_ID`),
    /// initialized; `None` if there is no process manager, so that the process is alone. Speaks PMI-2 under Slurm
    /// (`PMI_JOBID`), where that is the better served dialect, and PMI-1 elsewhere.
    ///
    /// Takes the descriptor over: call it once in a process, before anything else uses PMI. Processes that
    /// this one starts do not inherit it.
    ///
    /// # Errors
    /// If the environment is malformed or the process manager does not answer as PMI has it.
    pub fn from_env() -> Result<Option<Self>, ClientError> {
        Self::from_env_speaking(match env::var_os("PMI_JOBID") {
            Some(_) => Dialect::Pmi2,
            None => Dialect::Pmi1,
        })
    }

    /// As [`from_env`](Self::from_env), in this dialect.
    ///
    /// # Errors
    /// As for [`from_env`](Self::from_env).
    pub fn from_env_speaking(dialect: Dialect) -> Result<Option<Self>, ClientError> {
        let Some(found) = environment::find(Self::TIMEOUT_DEFAULT)? else {
            return Ok(None);
        };
        let mut client = Self::connected(found.socket, found.rank, found.size, dialect, found.job)?;
        client.spawned |= found.spawned;
        Ok(Some(client))
    }

    /// Initializes a connection in PMI-1: the process is `rank` of `size`.
    ///
    /// # Errors
    /// As for [`from_env`](Self::from_env).
    pub fn new(socket: UnixStream, rank: u32, size: u32) -> Result<Self, ClientError> {
        Self::speaking(socket, rank, size, Dialect::Pmi1)
    }

    /// As [`new`](Self::new), in this dialect.
    ///
    /// # Errors
    /// As for [`from_env`](Self::from_env).
    pub fn speaking(socket: UnixStream, rank: u32, size: u32, dialect: Dialect) -> Result<Self, ClientError> {
        Self::connected(Socket::Unix(socket), rank, size, dialect, None)
    }

    fn connected(
        socket: Socket,
        rank: u32,
        size: u32,
        dialect: Dialect,
        job: Option<BString>,
    ) -> Result<Self, ClientError> {
        let mut client = Self {
            connection: Connection::new(socket, dialect, Self::TIMEOUT_DEFAULT)?,
            rank,
            size,
            appnum: 0,
            kvsname: BString::default(),
            spawned: false,
            value_max: Self::VALUE_SIZE_MAX,
            keeps_whole: false,
        };
        let (version, subversion) = match dialect {
            Dialect::Pmi1 => (1, 1),
            Dialect::Pmi2 => (2, 0),
        };
        let init = Request::Init {
            version,
            subversion,
            values: Some("whole".into()),
        };
        match client.ask(init)? {
            Response::Init { rc, values, .. } => {
                client.check("init", rc, None)?;
                client.keeps_whole = values.is_some_and(|values| values == "whole");
            }
            answer => return Err(client.unexpected("init", &answer)),
        }
        if dialect == Dialect::Pmi2 {
            client.full_init(job)?;
        }
        match client.connection.probe(Request::GetMyKvsname {})? {
            Response::MyKvsname { kvsname, .. } => client.kvsname = kvsname,
            answer => return Err(client.unexpected("get_my_kvsname", &answer)),
        }
        Ok(client)
    }

    fn full_init(&mut self, job: Option<BString>) -> Result<(), ClientError> {
        let request = Request::FullInit {
            job,
            rank: self.rank,
            threaded: Some(true),
        };
        match self.ask(request)? {
            Response::FullInit {
                rank,
                size,
                appnum,
                spawner,
                rc,
                message,
                ..
            } => {
                self.check("fullinit", rc, message)?;
                self.rank = rank.unwrap_or(self.rank);
                self.size = size.unwrap_or(self.size);
                self.appnum = appnum.unwrap_or(0);
                self.spawned = spawner.is_some();
                self.value_max = VALUE_SIZE_MAX;
                Ok(())
            }
            answer => Err(self.unexpected("fullinit", &answer)),
        }
    }

    /// How long a request waits for its answer from now on.
    pub fn set_timeout(&self, timeout: Duration) {
        self.connection.set_timeout(timeout);
    }

    /// The number of this process, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many processes there are.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The name of the processes' key-value space.
    pub fn kvsname(&self) -> &[u8] {
        &self.kvsname
    }

    /// Returns true if another job spawned this one.
    pub fn is_spawned(&self) -> bool {
        self.spawned
    }

    /// Returns true if requests of several threads can be in progress at the same time.
    pub fn is_pipelining(&self) -> bool {
        self.connection.tells_threads()
    }

    /// The longest value that can be put, in bytes. Under process managers other than ours, each byte that is not
    /// plain visible ASCII takes the room of three.
    pub fn value_size_max(&self) -> usize {
        self.value_max
    }

    /// The index of the program of which this process is, among those of the job.
    ///
    /// # Errors
    /// If the process manager does not answer.
    pub fn appnum(&self) -> Result<i32, ClientError> {
        if self.connection.dialect() == Dialect::Pmi2 {
            return Ok(self.appnum);
        }
        match self.ask(Request::GetAppnum {})? {
            Response::Appnum { appnum } => Ok(appnum),
            answer => Err(self.unexpected("get_appnum", &answer)),
        }
    }

    /// How many processes there could be, if the process manager knows.
    ///
    /// # Errors
    /// If the process manager does not answer.
    pub fn universe_size(&self) -> Result<Option<u32>, ClientError> {
        if self.connection.dialect() == Dialect::Pmi2 {
            let size = self.job_attribute("universeSize")?;
            return Ok(size.and_then(|size| size.to_str().ok()?.parse().ok()));
        }
        match self.ask(Request::GetUniverseSize {})? {
            Response::UniverseSize { size } => Ok(u32::try_from(size).ok()),
            answer => Err(self.unexpected("get_universe_size", &answer)),
        }
    }

    /// Tells the others `value` under `key`; they see it for sure after the next [`fence`](Self::fence).
    ///
    /// # Errors
    /// [`ClientError::Text`] if the key is not plain visible ASCII, or one of them is too long.
    pub fn put(&self, key: &str, value: impl AsRef<[u8]>) -> Result<(), ClientError> {
        check_key(key.as_bytes())?;
        let request = Request::Put {
            kvsname: Some(self.kvsname.clone()),
            key: key.into(),
            value: self.value_to_wire(value.as_ref())?,
        };
        match self.ask(request)? {
            Response::Put { rc, message } => self.check("put", rc, message),
            answer => Err(self.unexpected("put", &answer)),
        }
    }

    /// The value that was put under `key`, or `None` if nothing was.
    ///
    /// # Errors
    /// If the process manager does not answer, or the value is no UTF-8.
    pub fn get(&self, key: &str) -> Result<Option<String>, ClientError> {
        match self.get_bytes(None, key)?.map(String::from_utf8) {
            None => Ok(None),
            Some(Ok(value)) => Ok(Some(value)),
            Some(Err(_)) => Err(ClientError::Text { text: key.to_owned() }),
        }
    }

    /// The value that was put under `key` in the key-value space `job`, or in that of this job.
    ///
    /// # Errors
    /// If the process manager does not answer.
    pub fn get_bytes(&self, job: Option<&[u8]>, key: &str) -> Result<Option<Vec<u8>>, ClientError> {
        let request = self.get_request(job, key)?;
        self.got(self.ask(request)?)
    }

    /// As [`put`](Self::put) for many pairs, which are under way together where the process manager can tell requests
    /// apart.
    ///
    /// # Errors
    /// As for [`put`](Self::put); some of the pairs may have been put.
    pub fn put_all<K: AsRef<str>, V: AsRef<[u8]>>(&self, pairs: &[(K, V)]) -> Result<(), ClientError> {
        let request = |(key, value): &(K, V)| {
            check_key(key.as_ref().as_bytes())?;
            Ok(Request::Put {
                kvsname: Some(self.kvsname.clone()),
                key: key.as_ref().into(),
                value: self.value_to_wire(value.as_ref())?,
            })
        };
        let requests = pairs
            .iter()
            .map(request)
            .collect::<Result<Vec<_>, ClientError>>()?;
        for response in self.connection.ask_all(&requests)? {
            match response {
                Response::Put { rc, message } => self.check("put", rc, message)?,
                answer => return Err(self.unexpected("put", &answer)),
            }
        }
        Ok(())
    }

    /// The value that was put under each of `keys`, asked for as in [`put_all`](Self::put_all).
    ///
    /// # Errors
    /// As for [`get_bytes`](Self::get_bytes).
    pub fn get_all<K: AsRef<str>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>, ClientError> {
        let request = |key: &K| self.get_request(None, key.as_ref());
        let requests = keys
            .iter()
            .map(request)
            .collect::<Result<Vec<_>, ClientError>>()?;
        let responses = self.connection.ask_all(&requests)?;
        responses.into_iter().map(|response| self.got(response)).collect()
    }

    /// Waits until all processes of the job are here; what they put before can then be got.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if one of them is gone, so that the wait would have no end.
    pub fn fence(&self) -> Result<(), ClientError> {
        match self.ask(Request::Fence { group: None })? {
            Response::Fence { rc, message, .. } => self.check("fence", rc, message)?,
            answer => return Err(self.unexpected("fence", &answer)),
        }
        if self.connection.dialect() == Dialect::Pmi2 {
            // "After kvs-fence under Hydra do not assume the others have fenced .. For a true barrier on
            // Hydra-PMI-2: fence, then get of a key that does not exist (waits until all fenced)".
            self.get_bytes(None, "-ropewalk-fence-")?;
        }
        Ok(())
    }

    /// Makes `port` known under the name `service`.
    ///
    /// # Errors
    /// If the name is taken.
    pub fn publish(&self, service: &[u8], port: &[u8]) -> Result<(), ClientError> {
        let request = Request::PublishName {
            service: text::to_wire(service, false).into_owned().into(),
            port: text::to_wire(port, false).into_owned().into(),
            info: Pairs::default(),
        };
        match self.ask(request)? {
            // Slurm's server says it in PMI-1 by `info` alone.
            Response::PublishName { info, rc, message } => {
                let rc = rc.or_else(|| info.is_some_and(|info| info != "ok").then_some(-1));
                self.check("publish", rc, message)
            }
            answer => Err(self.unexpected("publish", &answer)),
        }
    }

    /// The port under the name `service`, if there is one.
    ///
    /// # Errors
    /// If the process manager does not answer.
    pub fn lookup(&self, service: &[u8]) -> Result<Option<Vec<u8>>, ClientError> {
        let request = Request::LookupName {
            service: text::to_wire(service, false).into_owned().into(),
            info: Pairs::default(),
        };
        match self.ask(request)? {
            // "accept `port` or `value`".
            Response::LookupName { port, value, rc, .. } if rc.unwrap_or(0) == 0 => {
                let port = port.or(value);
                Ok(port.map(|port| text::from_wire(&port).into_owned()))
            }
            Response::LookupName { .. } => Ok(None),
            answer => Err(self.unexpected("lookup", &answer)),
        }
    }

    /// Forgets the name `service`.
    ///
    /// # Errors
    /// If there is no such name.
    pub fn unpublish(&self, service: &[u8]) -> Result<(), ClientError> {
        let request = Request::UnpublishName {
            service: text::to_wire(service, false).into_owned().into(),
            info: Pairs::default(),
        };
        match self.ask(request)? {
            Response::UnpublishName { info, rc, message } => {
                let rc = rc.or_else(|| info.is_some_and(|info| info != "ok").then_some(-1));
                self.check("unpublish", rc, message)
            }
            answer => Err(self.unexpected("unpublish", &answer)),
        }
    }

    /// The attribute of the job under `key`, such as `PMI_process_mapping`, from the process manager.
    ///
    /// # Errors
    /// If the process manager does not answer.
    pub fn job_attribute(&self, key: &str) -> Result<Option<Vec<u8>>, ClientError> {
        check_key(key.as_bytes())?;
        if self.connection.dialect() == Dialect::Pmi1 {
            return self.get_bytes(None, key);
        }
        match self.ask(Request::GetJobAttribute { key: key.into() })? {
            Response::JobAttribute {
                found: Some(true),
                value: Some(value),
                ..
            } => Ok(Some(value.into())),
            Response::JobAttribute { .. } => Ok(None),
            answer => Err(self.unexpected("info-getjobattr", &answer)),
        }
    }

    /// Tells the other processes of the node `value` under `key`. PMI-2 only.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn put_node_attribute(&self, key: &str, value: &[u8]) -> Result<(), ClientError> {
        check_key(key.as_bytes())?;
        let value = self.value_to_wire(value)?;
        match self.ask(Request::PutNodeAttribute {
            key: key.into(),
            value,
        })? {
            Response::PutNodeAttribute { rc, message } => self.check("info-putnodeattr", rc, message),
            answer => Err(self.unexpected("info-putnodeattr", &answer)),
        }
    }

    /// The value that a process of the node put under `key`. With `wait` the call waits until there is one.
    /// PMI-2 only.
    ///
    /// # Errors
    /// If the process manager does not answer.
    pub fn node_attribute(&self, key: &str, wait: bool) -> Result<Option<Vec<u8>>, ClientError> {
        check_key(key.as_bytes())?;
        match self.ask(Request::GetNodeAttribute {
            key: key.into(),
            wait,
        })? {
            Response::NodeAttribute {
                found: Some(true),
                value: Some(value),
                ..
            } => Ok(Some(text::from_wire(&value).into_owned())),
            Response::NodeAttribute { .. } => Ok(None),
            answer => Err(self.unexpected("info-getnodeattr", &answer)),
        }
    }

    /// Ends the connection. A process that exits without it counts as failed.
    ///
    /// # Errors
    /// If the process manager does not answer.
    pub fn finalize(&self) -> Result<(), ClientError> {
        match self.ask(Request::Finalize {})? {
            Response::Finalize { rc } => self.check("finalize", rc, None),
            answer => Err(self.unexpected("finalize", &answer)),
        }
    }

    /// Asks the process manager to end the whole job with `exit_code`. Not answered: end the process next.
    ///
    /// # Errors
    /// If the connection is gone.
    pub fn abort(&self, exit_code: i32, message: Option<&[u8]>) -> Result<(), ClientError> {
        self.connection.tell(&Request::Abort {
            exit_code: Some(exit_code),
            is_world: Some(true),
            message: message.map(|message| text::to_wire(message, false).into_owned().into()),
        })
    }

    fn ask(&self, request: Request) -> Result<Response, ClientError> {
        self.connection.ask(std::slice::from_ref(&request))
    }

    fn get_request(&self, job: Option<&[u8]>, key: &str) -> Result<Request, ClientError> {
        check_key(key.as_bytes())?;
        Ok(Request::Get {
            kvsname: Some(job.map_or_else(|| self.kvsname.clone(), BString::from)),
            source: Some(-1),
            key: key.into(),
        })
    }

    fn got(&self, response: Response) -> Result<Option<Vec<u8>>, ClientError> {
        match response {
            Response::Get {
                found: None | Some(true),
                rc: None | Some(0),
                value: Some(value),
                ..
            } => {
                // In a line what follows may be another attribute.
                let is_cut = !self.keeps_whole && self.connection.dialect() == Dialect::Pmi1;
                let end = is_cut.then(|| value.find_byte(b' ')).flatten();
                let value = &value[..end.unwrap_or(value.len())];
                Ok(Some(text::from_wire(value).into_owned()))
            }
            Response::Get { .. } => Ok(None),
            answer => Err(self.unexpected("get", &answer)),
        }
    }

    fn value_to_wire(&self, value: &[u8]) -> Result<BString, ClientError> {
        let wire = text::to_wire(value, self.keeps_whole);
        if wire.len() <= self.value_max {
            return Ok(wire.into_owned().into());
        }
        Err(ClientError::Text {
            text: String::from_utf8_lossy(value).into_owned(),
        })
    }

    fn check(
        &self,
        command: &'static str,
        rc: Option<i32>,
        message: Option<BString>,
    ) -> Result<(), ClientError> {
        match rc {
            None | Some(0) => Ok(()),
            Some(rc) => Err(ClientError::Refused {
                command,
                rc,
                message: message.unwrap_or_default(),
            }),
        }
    }

    fn unexpected(&self, command: &'static str, answer: &Response) -> ClientError {
        let names = [Form::Line, Form::Frame].map(|form| answer.name(form));
        ClientError::Unexpected {
            command,
            answer: names.into_iter().flatten().next().unwrap_or_default(),
        }
    }
}

/// The name of a request in `form`, or in the one form that it has.
fn name(request: &Request, form: Form) -> &'static str {
    let names = [form, Form::Line, Form::Block].map(|form| request.name(form));
    names.into_iter().flatten().next().unwrap_or_default()
}

/// Returns true if every process manager carries this key: keys stand on the wire as they are.
pub fn is_key(key: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b';' | b'=' | b'\\');
    !key.is_empty() && key.len() < KEY_SIZE_MAX && key.iter().all(is_plain)
}

fn check_key(key: &[u8]) -> Result<(), ClientError> {
    if is_key(key) {
        return Ok(());
    }
    Err(ClientError::Text {
        text: String::from_utf8_lossy(key).into_owned(),
    })
}

#[cfg(test)]
mod tests;
