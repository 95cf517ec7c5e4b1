//! The process manager's side of PMI-1.

use std::collections::{BTreeSet, VecDeque};

use bstr::BString;
use thiserror::Error;

use crate::{
    DecodeError, KEY_SIZE_MAX, KVSNAME_SIZE_MAX, KeyValueSpace, LINE_SIZE_MAX, LineBuffer, LineTooLong,
    ProcessMapping, Request, Response, VALUE_SIZE_MAX,
};

/// Serves the processes of one group.
///
/// Feed it what comes from each process ([`handle_bytes`](Self::handle_bytes),
/// [`handle_closed`](Self::handle_closed)) and what became of it
/// ([`handle_departure`](Self::handle_departure)), and after each of them do what
/// [`poll_action`](Self::poll_action) says until it says nothing.
#[derive(Debug)]
pub struct Server {
    options: ServerOptions,
    connections: Vec<Connection>,
    space: KeyValueSpace,
    services: KeyValueSpace,
    waiting: BTreeSet<u32>,
    absent: BTreeSet<u32>,
    dead: BTreeSet<u32>,
    actions: VecDeque<Action>,
}

/// What a [`Server`] must know.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// How many processes the group has.
    pub size: u32,
    /// What its key-value space is called; no spaces.
    pub kvsname: String,
    /// Where its processes are.
    pub mapping: ProcessMapping,
    /// What a barrier does about processes that will never come.
    pub absent: AbsentMembers,
}

/// What a barrier does about processes that died, finalized or closed their connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbsentMembers {
    /// It completes without them.
    Exclude,
    /// Whoever waits in it gets an error.
    Fail,
}

/// What has to be done for a [`Server`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A process wants the whole job to end.
    Abort {
        /// Which.
        rank: u32,
        /// With what exit code.
        exit_code: i32,
        /// Why, if it says so.
        message: Option<BString>,
    },
    /// Close the connection of a process, after what was sent to it.
    Close {
        /// Which.
        rank: u32,
    },
    /// A process does not keep to the protocol; its connection is closed.
    Misbehaved {
        /// Which.
        rank: u32,
        /// What it did.
        error: ProtocolError,
    },
    /// Send this to a process.
    Send {
        /// Which.
        rank: u32,
        /// A whole line.
        bytes: Vec<u8>,
    },
}

/// How a process breaks the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A line that is no request.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// Something before `cmd=init`.
    #[error("the first PMI-1 command is init, not {command}")]
    NotInitialized {
        /// What came instead.
        command: &'static str,
    },
    /// A line without end.
    #[error(transparent)]
    TooLong(#[from] LineTooLong),
    /// A second request before the answer to the first.
    #[error("a PMI-1 client has one request at a time, but {command} came while it waits in a barrier")]
    WhileWaiting {
        /// What came.
        command: &'static str,
    },
}

#[derive(Debug, Default)]
struct Connection {
    lines: LineBuffer,
    phase: Phase,
    closed: bool,
    spawn: Option<SpawnBlock>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Silent,
    Initialized,
    Finalized,
}

/// A block of `mcmd=spawn` being read.
#[derive(Clone, Copy, Debug, Default)]
struct SpawnBlock {
    total: u32,
    so_far: u32,
}

impl Server {
    /// A server for a group of which no process has spoken yet.
    ///
    /// # Panics
    /// If the key-value space's name is longer than [`KVSNAME_SIZE_MAX`] or holds what ends a name.
    pub fn new(options: ServerOptions) -> Self {
        let kvsname = options.kvsname.as_bytes();
        let is_name = kvsname.len() <= KVSNAME_SIZE_MAX && kvsname.iter().all(u8::is_ascii_graphic);
        assert!(is_name, "{:?} cannot name a key-value space", options.kvsname);
        Self {
            connections: (0..options.size).map(|_| Connection::default()).collect(),
            options,
            space: KeyValueSpace::new(KEY_SIZE_MAX),
            services: KeyValueSpace::new(LINE_SIZE_MAX),
            waiting: BTreeSet::new(),
            absent: BTreeSet::new(),
            dead: BTreeSet::new(),
            actions: VecDeque::new(),
        }
    }

    /// Takes what process `rank` wrote, cut anywhere.
    pub fn handle_bytes(&mut self, rank: u32, bytes: &[u8]) {
        let Some(connection) = self.connections.get_mut(rank as usize) else {
            return;
        };
        if connection.closed {
            return;
        }
        let mut lines = std::mem::take(&mut connection.lines);
        lines.push(bytes);
        loop {
            let result = match lines.next_line() {
                Ok(None) => break,
                Ok(Some(line)) => self.handle_line(rank, line),
                Err(error) => Err(error.into()),
            };
            if let Err(error) = result {
                self.break_off(rank, error);
            }
            if self.connections[rank as usize].closed {
                return;
            }
        }
        self.connections[rank as usize].lines = lines;
    }

    /// Process `rank` closed its connection.
    pub fn handle_closed(&mut self, rank: u32) {
        if let Some(connection) = self.connections.get_mut(rank as usize) {
            connection.closed = true;
            self.leave(rank);
        }
    }

    /// Process `rank` is gone; `failed` if not as a process should go. Give the server its last bytes first.
    pub fn handle_departure(&mut self, rank: u32, failed: bool) {
        if rank >= self.options.size {
            return;
        }
        if failed {
            self.dead.insert(rank);
        }
        self.leave(rank);
    }

    /// What has to be done next.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Whether process `rank` began with PMI and did not end it: if it is gone, it did not go well.
    pub fn is_unfinished(&self, rank: u32) -> bool {
        self.phase(rank) == Phase::Initialized
    }

    fn handle_line(&mut self, rank: u32, line: &[u8]) -> Result<(), ProtocolError> {
        if self.handle_spawn_line(rank, line) {
            return Ok(());
        }
        let request = Request::decode(line)?;
        let command = request.name();
        if self.waiting.contains(&rank) {
            return Err(ProtocolError::WhileWaiting { command });
        }
        let starts = matches!(request, Request::Init { .. } | Request::Abort { .. });
        if self.phase(rank) == Phase::Silent && !starts {
            return Err(ProtocolError::NotInitialized { command });
        }
        if let Some(response) = self.answer(rank, request) {
            self.send(rank, &response);
        }
        Ok(())
    }

    fn answer(&mut self, rank: u32, request: Request) -> Option<Response> {
        Some(match request {
            Request::Abort { exit_code, message } => {
                self.actions.push_back(Action::Abort {
                    rank,
                    exit_code,
                    message,
                });
                return None;
            }
            Request::BarrierIn { group } => return self.enter_barrier(rank, group),
            Request::Finalize {} => {
                self.send(rank, &Response::FinalizeAck {});
                self.connections[rank as usize].phase = Phase::Finalized;
                self.close(rank);
                return None;
            }
            Request::Get { kvsname, key } => self.get(&kvsname, &key),
            Request::GetAppnum {} => Response::Appnum { appnum: 0 },
            Request::GetMaxes {} => Response::Maxes {
                kvsname_max: KVSNAME_SIZE_MAX as u32,
                key_max: KEY_SIZE_MAX as u32,
                value_max: VALUE_SIZE_MAX as u32,
            },
            Request::GetMyKvsname {} => Response::MyKvsname {
                kvsname: self.options.kvsname.clone().into(),
            },
            Request::GetUniverseSize {} => Response::UniverseSize { size: -1 },
            Request::Init { version, subversion } => self.initialize(rank, version, subversion),
            Request::LookupName { service } => match self.services.value(&service) {
                Some(port) => Response::LookupResult {
                    port: Some(port.clone()),
                    info: Some("ok".into()),
                    rc: Some(0),
                    message: Some("success".into()),
                },
                None => Response::LookupResult {
                    port: None,
                    info: None,
                    rc: Some(1),
                    message: Some("service_not_found".into()),
                },
            },
            Request::PublishName { service, port } => self.publish(service, port),
            Request::Put { kvsname, key, value } => self.put(&kvsname, key, value),
            Request::UnpublishName { service } => {
                let removed = self.services.remove(&service);
                Response::UnpublishResult {
                    info: Some("ok".into()),
                    rc: Some(i32::from(!removed)),
                    message: Some(if removed { "success" } else { "service_not_found" }.into()),
                }
            }
        })
    }

    /// PMI-2 is refused, so that its clients say so instead of sending frames that nobody reads.
    fn initialize(&mut self, rank: u32, version: u32, subversion: u32) -> Response {
        let spoken = version == 1 && subversion <= 2;
        if spoken {
            self.connections[rank as usize].phase = Phase::Initialized;
        }
        Response::ResponseToInit {
            version: 1,
            subversion: 1,
            rc: Some(if spoken { 0 } else { -1 }),
        }
    }

    fn get(&self, kvsname: &BString, key: &BString) -> Response {
        let value = match key.to_string().as_str() {
            "PMI_process_mapping" => {
                // "if it cannot fit, answer not found": the client then finds out by itself.
                let mapping = self.options.mapping.to_string();
                (mapping.len() <= KeyValueSpace::VALUE_SIZE_MAX).then(|| mapping.into())
            }
            "PMI_dead_processes" => Some(self.dead_processes()),
            _ if *kvsname == self.options.kvsname => self.space.value(key).cloned(),
            _ => None,
        };
        match value {
            Some(value) => Response::GetResult {
                rc: Some(0),
                message: Some("success".into()),
                value: Some(value),
            },
            None => {
                // The key goes into the answer, which has to fit into a line.
                let key = &key[..key.len().min(KEY_SIZE_MAX)];
                Response::GetResult {
                    rc: Some(-1),
                    message: Some(bstr::concat([b"key_", key, b"_not_found"]).into()),
                    value: Some("unknown".into()),
                }
            }
        }
    }

    /// As many as fit into a value: a client that asks wants to know whether there are any.
    fn dead_processes(&self) -> BString {
        let mut list = String::new();
        for rank in &self.dead {
            let separator = if list.is_empty() { "" } else { "," };
            let next = format!("{separator}{rank}");
            if list.len() + next.len() > KeyValueSpace::VALUE_SIZE_MAX {
                break;
            }
            list.push_str(&next);
        }
        list.into()
    }

    fn put(&mut self, kvsname: &BString, key: BString, value: BString) -> Response {
        let result = if *kvsname != self.options.kvsname {
            Err("unknown_kvsname".to_owned())
        } else if KEYS_SERVED.iter().any(|served| key == *served) {
            Err("key_belongs_to_the_process_manager".to_owned())
        } else {
            self.space.put(key, value).map_err(|error| error.to_string())
        };
        Response::PutResult {
            rc: Some(if result.is_ok() { 0 } else { -1 }),
            message: Some(result.map_or_else(BString::from, |()| "success".into())),
        }
    }

    fn publish(&mut self, service: BString, port: BString) -> Response {
        let result = match self.services.value(&service) {
            Some(_) => Err("key_already_present".to_owned()),
            None => self
                .services
                .put(service, port)
                .map_err(|error| error.to_string()),
        };
        Response::PublishResult {
            info: Some("ok".into()),
            rc: Some(i32::from(result.is_err())),
            message: Some(result.map_or_else(BString::from, |()| "success".into())),
        }
    }

    fn enter_barrier(&mut self, rank: u32, group: Option<BString>) -> Option<Response> {
        if group.is_some() {
            // We announce 1.1, which has no barriers of a part of the group; to take it for one of the
            // whole would let its members wait for strangers.
            return Some(Response::BarrierOut {
                rc: Some(-1),
                message: Some("barrier_groups_need_PMI_1.2".into()),
            });
        }
        self.waiting.insert(rank);
        self.settle_barrier();
        None
    }

    fn leave(&mut self, rank: u32) {
        self.waiting.remove(&rank);
        if self.absent.insert(rank) {
            self.settle_barrier();
        }
    }

    /// Ends the barrier if all are there, or if somebody never will be.
    fn settle_barrier(&mut self) {
        let response = match (self.options.absent, self.absent.first()) {
            (AbsentMembers::Fail, Some(absent)) => Response::BarrierOut {
                rc: Some(-1),
                message: Some(format!("rank_{absent}_is_gone").into()),
            },
            _ if self.waiting.len() + self.absent.len() == self.connections.len() => Response::BarrierOut {
                rc: None,
                message: None,
            },
            _ => return,
        };
        for rank in std::mem::take(&mut self.waiting) {
            self.send(rank, &response);
        }
    }

    /// Swallows `mcmd=spawn` blocks, and answers that nothing was started once the last of them is over:
    /// without an answer the client would wait for ever. Says whether the line belonged to a block.
    fn handle_spawn_line(&mut self, rank: u32, line: &[u8]) -> bool {
        let connection = &mut self.connections[rank as usize];
        if line == b"mcmd=spawn" {
            connection.spawn = Some(SpawnBlock::default());
            return true;
        }
        let Some(block) = &mut connection.spawn else {
            return false;
        };
        let number = |prefix: &str| -> Option<u32> {
            let text = line.strip_prefix(prefix.as_bytes())?;
            std::str::from_utf8(text).ok()?.parse().ok()
        };
        if let Some(total) = number("totspawns=") {
            block.total = total;
        } else if let Some(so_far) = number("spawnssofar=") {
            block.so_far = so_far;
        } else if line == b"endcmd" {
            let is_last = block.so_far >= block.total;
            connection.spawn = None;
            if is_last {
                self.send(
                    rank,
                    &Response::SpawnResult {
                        rc: Some(-1),
                        message: Some("spawn_is_not_served".into()),
                    },
                );
            }
        }
        true
    }

    fn break_off(&mut self, rank: u32, error: ProtocolError) {
        self.actions.push_back(Action::Misbehaved { rank, error });
        self.close(rank);
    }

    fn close(&mut self, rank: u32) {
        self.connections[rank as usize].closed = true;
        self.actions.push_back(Action::Close { rank });
        self.leave(rank);
    }

    fn phase(&self, rank: u32) -> Phase {
        self.connections
            .get(rank as usize)
            .map_or(Phase::Silent, |connection| connection.phase)
    }

    fn send(&mut self, rank: u32, response: &Response) {
        let bytes = response
            .encode()
            .expect("all that goes into an answer came in a line, which has no line end, or is bounded");
        self.actions.push_back(Action::Send { rank, bytes });
    }
}

/// The keys that the server answers without any put.
const KEYS_SERVED: [&str; 2] = ["PMI_process_mapping", "PMI_dead_processes"];
