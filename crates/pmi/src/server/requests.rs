//! The requests of a process, and the responses to them.

use bstr::BString;

use super::{
    Action, ConnectionId, FenceId, FenceScope, Process, ProtocolError, Question, Server,
    fences::Above,
    group::Phase,
    node_attributes::node_response,
    questions::{Asker, Wanted, get_response},
    waiter::{FenceWaiter, Waiter},
    words::words,
};
use crate::{
    DecodeError, Decoded, Form, KEY_SIZE_MAX, KVSNAME_SIZE_MAX, Message, MessageBuffer, Request, Response,
    Spawn, VALUE_SIZE_MAX, wire::MessageWriter,
};

/// The outcome of a request.
enum Outcome {
    Answered(Response),
    /// Nothing is to be said, or was said already.
    Silent,
    /// The answer comes later.
    Parked,
}

use Outcome::{Answered, Parked, Silent};

impl Server {
    pub(super) fn read(&mut self, id: ConnectionId, bytes: &[u8]) {
        let Some(connection) = self.connections.hear(id) else {
            return;
        };
        let mut buffer = std::mem::take(&mut connection.buffer);
        buffer.push(bytes);
        if let Err(error) = self.read_messages(id, &mut buffer) {
            self.break_off(id, error);
        }
        if let Some(connection) = self.connections.get_mut(id) {
            connection.buffer = buffer;
        }
    }

    /// Serves requests that were held back behind others.
    pub(super) fn resume(&mut self) {
        while let Some(id) = self.connections.next_resumable() {
            while let Some(connection) = self.connections.get_mut(id)
                && connection.is_resumable()
                && let Some(request) = connection.held.pop_front()
            {
                if let Err(error) = self.serve(id, Form::Frame, request) {
                    self.break_off(id, error);
                }
            }
        }
    }

    fn read_messages(&mut self, id: ConnectionId, buffer: &mut MessageBuffer) -> Result<(), ProtocolError> {
        while self.connections.get(id).is_some() {
            let Some(message) = buffer.next_message()? else {
                return Ok(());
            };
            self.handle_message(id, message)?;
        }
        Ok(())
    }

    fn handle_message(&mut self, id: ConnectionId, message: Message<'_>) -> Result<(), ProtocolError> {
        let form = message.form;
        let request = match Request::decode(message) {
            Ok(request) => request,
            Err(error) if form == Form::Frame => return self.refuse(id, message, error),
            Err(error) => return Err(error.into()),
        };
        let Some(connection) = self.connections.get_mut(id) else {
            return Ok(());
        };
        let is_abort = matches!(request.command, Request::Abort { .. });
        if connection.is_busy() && request.thread.is_none() && !is_abort {
            if form != Form::Frame {
                let command = request.command.name(form).unwrap_or_default();
                return Err(ProtocolError::WhileWaiting { command });
            }
            if connection.is_full() {
                return Err(ProtocolError::TooMany);
            }
            connection.held.push_back(request);
            return Ok(());
        }
        self.serve(id, form, request)
    }

    /// A frame that is not understood is answered, since its sender waits; if it cannot be, the connection ends.
    fn refuse(
        &mut self,
        id: ConnectionId,
        message: Message<'_>,
        error: DecodeError,
    ) -> Result<(), ProtocolError> {
        let attributes = crate::wire::Attributes::parse(message, None);
        let command = attributes.command().filter(|name| name.len() <= KEY_SIZE_MAX);
        let Some(command) = command.and_then(|name| std::str::from_utf8(name).ok()) else {
            return Err(error.into());
        };
        let is_busy = self
            .connections
            .get(id)
            .is_some_and(|connection| connection.is_busy());
        let thread = attributes.value("thrid");
        if is_busy && thread.is_none() {
            return Err(error.into());
        }
        let mut bytes = Vec::new();
        let thread = thread.as_deref().map(bstr::BStr::new);
        let mut refusal = MessageWriter::new(&mut bytes, Form::Frame, &format!("{command}-response"), thread);
        refusal.pair("rc", b"-1");
        refusal.pair("errmsg", error.to_string().replace(';', ",").as_bytes());
        if refusal.finish().is_err() {
            return Err(error.into());
        }
        self.outbox.push(Action::Send {
            connection: id,
            bytes,
        });
        Ok(())
    }

    fn serve(
        &mut self,
        id: ConnectionId,
        form: Form,
        request: Decoded<Request>,
    ) -> Result<(), ProtocolError> {
        let Decoded { thread, command } = request;
        let name = command.name(form).unwrap_or_default();
        let Some(connection) = self.connections.get_mut(id) else {
            return Ok(());
        };
        if connection.is_full() {
            return Err(ProtocolError::TooMany);
        }
        let waiter = Waiter {
            connection: id,
            form,
            thread,
            tag: None,
        };
        let thread = waiter.thread.clone();
        let greets = matches!(
            command,
            Request::Abort { .. } | Request::Init { .. } | Request::InitAck { .. } | Request::Singinit { .. }
        );
        if connection.is_greeted && !matches!(command, Request::Singinit { .. }) {
            return Err(ProtocolError::Unexpected { command: name });
        }
        let Some(process) = connection.process else {
            let response = self.introduce(id, form, command)?;
            self.outbox.send(id, form, thread.as_ref(), &response);
            return Ok(());
        };
        if self.phase(process) == Phase::Silent && !greets {
            return Err(ProtocolError::NotInitialized { command: name });
        }
        match self.handle_request(process, &waiter, command)? {
            Answered(response) => self.outbox.send(id, form, thread.as_ref(), &response),
            Parked | Silent => {}
        }
        Ok(())
    }

    /// "C connects, sends `cmd=initack pmiid=1\n`. S answers four lines": who made the connection itself says first
    /// who it is, by that or by its first frame.
    fn introduce(
        &mut self,
        id: ConnectionId,
        form: Form,
        request: Request,
    ) -> Result<Response, ProtocolError> {
        let command = request.name(form).unwrap_or_default();
        if let Request::Init {
            version,
            subversion,
            values,
        } = request
        {
            return Ok(version_response(version, subversion, values).0);
        }
        let (Request::InitAck { rank } | Request::FullInit { rank, .. }) = request else {
            return Err(ProtocolError::NotInitialized { command });
        };
        let Some(connection) = self.connections.get(id) else {
            return Err(ProtocolError::Unexpected { command });
        };
        let process = Process {
            group: connection.group,
            rank,
        };
        let is_ours = self.group_of(process).is_some_and(|group| group.is_local(rank));
        if !is_ours || self.connections.of(process).is_some() {
            return Err(ProtocolError::Rank { rank });
        }
        self.connections.introduce(id, process);
        self.welcome(process);
        if matches!(request, Request::FullInit { .. }) {
            self.set_phase(process, Phase::Initialized);
            return Ok(self.full_init(process, rank));
        }
        Ok(self.acknowledge(id, form, process))
    }

    /// The four lines to a process that has said who it is; all but the last are sent.
    fn acknowledge(&mut self, id: ConnectionId, form: Form, process: Process) -> Response {
        let size = self.group_of(process).map(|group| group.options.size);
        let set = |size, rank, debug| Response::Set { size, rank, debug };
        for response in [
            Response::InitAck {},
            set(size, None, None),
            set(None, Some(process.rank), None),
        ] {
            self.outbox.send(id, form, None, &response);
        }
        set(None, None, Some(0))
    }

    fn handle_request(
        &mut self,
        process: Process,
        waiter: &Waiter,
        request: Request,
    ) -> Result<Outcome, ProtocolError> {
        let form = waiter.form;
        let response = match request {
            Request::Abort {
                exit_code, message, ..
            } => {
                self.outbox.push(Action::Abort {
                    process,
                    exit_code: exit_code.unwrap_or(1),
                    message,
                });
                return Ok(Silent);
            }
            Request::Fence { group } => return Ok(self.enter_fence(process, waiter, group)),
            Request::Finalize {} => return Ok(self.finalize(process, waiter)),
            Request::FullInit { rank, .. } => self.full_init(process, rank),
            Request::Get { kvsname, key, .. } => return Ok(self.get(process, waiter, kvsname, key)),
            Request::GetAppnum {} => Response::Appnum {
                appnum: self
                    .group_of(process)
                    .map_or(0, |group| group.appnum(process.rank)),
            },
            Request::GetJobAttribute { key } => self.job_attribute(process, &key),
            Request::GetMaxes {} => Response::Maxes {
                kvsname_max: KVSNAME_SIZE_MAX as u32,
                key_max: KEY_SIZE_MAX as u32,
                value_max: VALUE_SIZE_MAX as u32,
            },
            Request::GetMyKvsname {} => self.my_kvsname(process, form),
            Request::GetNodeAttribute { key, wait } => {
                return Ok(self.node_attribute(process, waiter, key, wait));
            }
            Request::GetUniverseSize {} => self.universe_size(process),
            Request::Init {
                version,
                subversion,
                values,
            } => {
                let (response, is_spoken) = version_response(version, subversion, values);
                if is_spoken {
                    self.set_phase(process, Phase::Initialized);
                }
                response
            }
            // Its connection came to the port that only this process was told.
            Request::InitAck { rank } if rank == process.rank => {
                self.acknowledge(waiter.connection, form, process)
            }
            Request::InitAck { rank } => return Err(ProtocolError::Rank { rank }),
            Request::JobConnect { job } => {
                let question = Question::Connect { kvsname: job.clone() };
                return Ok(self.ask_root(waiter, question, Wanted::Connect { job }));
            }
            Request::JobDisconnect { job } => self.disconnect(waiter.connection, &job),
            Request::LookupName { service, .. } => {
                return Ok(self.ask_root(waiter, Question::Lookup { service }, Wanted::Lookup));
            }
            Request::PublishName { service, port, .. } => {
                let wanted = Wanted::Publish {
                    service: service.clone(),
                };
                return Ok(self.ask_root(waiter, Question::Publish { service, port }, wanted));
            }
            Request::Put { kvsname, key, value } => self.put(process, form, kvsname, key, value),
            Request::PutNodeAttribute { key, value } => self.put_node_attribute(process, key, value),
            Request::Singinit { version, .. } => self.greet(waiter.connection, version)?,
            Request::Spawn { preput, commands, .. } => {
                let spawn = Spawn {
                    preput: preput.0,
                    commands: commands.0,
                };
                return Ok(self.spawn(process, waiter, spawn));
            }
            block @ Request::SpawnBlock { .. } => {
                let connection = self.connections.get_mut(waiter.connection);
                let whole = connection
                    .map(|connection| connection.spawn.push(block))
                    .transpose()?;
                return Ok(match whole.flatten() {
                    Some(spawn) => self.spawn(process, waiter, spawn),
                    None => Silent,
                });
            }
            Request::UnpublishName { service, .. } => {
                let wanted = Wanted::Unpublish {
                    service: service.clone(),
                };
                return Ok(self.ask_root(waiter, Question::Unpublish { service }, wanted));
            }
        };
        Ok(Answered(response))
    }

    pub(super) fn set_phase(&mut self, process: Process, phase: Phase) {
        if let Some(group) = self.groups.get_mut(&process.group) {
            group.phases.insert(process.rank, phase);
        }
    }

    fn finalize(&mut self, process: Process, waiter: &Waiter) -> Outcome {
        let rc = (waiter.form == Form::Frame).then_some(0);
        let response = Response::Finalize { rc };
        self.outbox
            .send(waiter.connection, waiter.form, waiter.thread.as_ref(), &response);
        self.set_phase(process, Phase::Finalized);
        self.close(waiter.connection);
        Silent
    }

    fn my_kvsname(&self, process: Process, form: Form) -> Response {
        let group = self.group_of(process);
        Response::MyKvsname {
            kvsname: group.map_or_else(BString::default, |group| group.options.kvsname.clone().into()),
            rc: (form == Form::Frame).then_some(0),
        }
    }

    fn universe_size(&self, process: Process) -> Response {
        let size = self
            .group_of(process)
            .and_then(|group| group.options.universe_size);
        let size = size.and_then(|size| i32::try_from(size).ok());
        Response::UniverseSize {
            size: size.unwrap_or(-1),
        }
    }

    fn disconnect(&mut self, id: ConnectionId, job: &BString) -> Response {
        let connection = self.connections.get_mut(id);
        let removed = connection.is_some_and(|connection| connection.connected.remove(job));
        Response::JobDisconnect {
            rc: Some(if removed { 0 } else { -1 }),
            message: (!removed).then(|| "not_connected".into()),
        }
    }

    fn full_init(&self, process: Process, rank: u32) -> Response {
        let group = self.group_of(process);
        let spawner = group.and_then(|group| group.options.spawner.clone());
        let is_right = rank == process.rank;
        Response::FullInit {
            version: Some(2),
            subversion: Some(0),
            rank: Some(process.rank),
            size: Some(group.map_or(0, |group| group.options.size)),
            appnum: Some(group.map_or(0, |group| group.appnum(process.rank))),
            spawner: spawner.map(BString::from),
            debugged: Some(false),
            verbose: Some(false),
            rc: Some(if is_right { 0 } else { -1 }),
            message: (!is_right).then(|| format!("this_is_the_connection_of_rank_{}", process.rank).into()),
        }
    }

    fn greet(&mut self, id: ConnectionId, version: u32) -> Result<Response, ProtocolError> {
        let connection = self
            .connections
            .get_mut(id)
            .filter(|connection| connection.is_greeted);
        let Some(connection) = connection else {
            return Err(ProtocolError::Unexpected { command: "singinit" });
        };
        connection.is_greeted = false;
        let group = connection.group;
        self.connections.answer_greeting(id, Process { group, rank: 0 });
        Ok(Response::SinginitInfo {
            version_fits: if version == 1 { "yes" } else { "no" }.into(),
            stdio: Some("no".into()),
            kvsname: self
                .groups
                .get(&group)
                .map(|group| group.options.kvsname.clone().into()),
        })
    }

    fn get(&mut self, process: Process, waiter: &Waiter, kvsname: Option<BString>, key: BString) -> Outcome {
        let form = waiter.form;
        let Some(group) = self.group_of(process) else {
            return Answered(get_response(form, None, "no_group".into()));
        };
        let own = group.options.kvsname.as_bytes();
        let is_own = kvsname.as_ref().is_none_or(|kvsname| kvsname == own);
        if !is_own && let Some(kvsname) = kvsname {
            let connection = self.connections.get(waiter.connection);
            if connection.is_some_and(|connection| connection.connected.contains(&kvsname)) {
                return self.ask_root(waiter, Question::Get { kvsname, key }, Wanted::Get);
            }
        }
        // Of frames "jobid: both ignore it", so that clients may say anything there.
        let reads_own = is_own || form == Form::Frame;
        let value = match group.attribute(&key, form) {
            Some(value) => Some(value),
            None if reads_own && !group.is_served(&key) => group.space.value(&key).cloned(),
            None => None,
        };
        // The key goes into the answer, which has to fit into a line.
        let shown = &key[..key.len().min(KEY_SIZE_MAX)];
        let otherwise = bstr::concat([b"key_", &words(shown)[..], b"_not_found"]).into();
        Answered(get_response(form, value, otherwise))
    }

    fn put(
        &mut self,
        process: Process,
        form: Form,
        kvsname: Option<BString>,
        key: BString,
        value: BString,
    ) -> Response {
        let is_alone = self.above == Above::Nobody && self.outbox.children.is_empty();
        let Some(group) = self.groups.get_mut(&process.group) else {
            return refuse_put("no_group");
        };
        if kvsname.is_some_and(|kvsname| kvsname != group.options.kvsname) {
            return refuse_put("unknown_kvsname");
        }
        if group.is_served(&key) {
            return refuse_put("key_belongs_to_the_process_manager");
        }
        match group.put(key.clone(), value, is_alone) {
            Ok(replaces) => {
                if replaces {
                    self.outbox.push(Action::Overwritten { process, key });
                }
                Response::Put {
                    rc: Some(0),
                    message: (form != Form::Frame).then(|| "success".into()),
                }
            }
            Err(error) => refuse_put(&error.to_string()),
        }
    }

    fn job_attribute(&self, process: Process, key: &BString) -> Response {
        let value = self.group_of(process).and_then(|group| match key.as_slice() {
            b"hasNameServ" => Some("TRUE".into()),
            b"universeSize" => group.options.universe_size.map(|size| size.to_string().into()),
            key => group.attribute(key, Form::Frame),
        });
        Response::JobAttribute {
            found: Some(value.is_some()),
            value,
            rc: Some(0),
        }
    }

    fn enter_fence(&mut self, process: Process, waiter: &Waiter, named: Option<BString>) -> Outcome {
        let refused = |message: &str| {
            Answered(Response::Fence {
                tag: None,
                rc: Some(-1),
                message: Some(message.into()),
            })
        };
        let fence = match &named {
            None => FenceId::WORLD,
            Some(named) => match FenceId::parse(named) {
                Some(fence) => fence,
                None => return refused("the_group_of_a_fence_is_WORLD_NODE_or_a_list_of_ranks"),
            },
        };
        let Some(group) = self.groups.get(&process.group) else {
            return refused("no_group");
        };
        if let FenceScope::Ranks(ranks) = &fence.scope {
            let all = crate::RankSet::range(0, group.options.size);
            if !ranks.contains(process.rank) || !ranks.is_subset(&all) {
                return refused("the_group_of_a_fence_holds_its_caller_and_ranks_of_its_job");
            }
        }
        self.connections.park(waiter);
        let mut waiter = waiter.clone();
        waiter.tag = named.map(|_| fence.tag.clone());
        if let Some(group) = self.groups.get_mut(&process.group) {
            group
                .fences
                .enter(&fence, process.rank, FenceWaiter::Request(waiter));
        }
        self.settle(process.group, &fence);
        Parked
    }

    fn spawn(&mut self, process: Process, waiter: &Waiter, spawn: Spawn) -> Outcome {
        let question = Question::Spawn { from: process, spawn };
        self.ask_root(waiter, question, Wanted::Spawn)
    }

    fn ask_root(&mut self, waiter: &Waiter, question: Question, wanted: Wanted) -> Outcome {
        self.connections.park(waiter);
        let waiter = waiter.clone();
        self.ask(question, Asker::Local { waiter, wanted });
        Parked
    }

    fn node_attribute(&mut self, process: Process, waiter: &Waiter, key: BString, wait: bool) -> Outcome {
        let group = self.group_of(process);
        let value = group.and_then(|group| group.node_attributes.value(&key).cloned());
        if value.is_none() && wait {
            self.connections.park(waiter);
            if let Some(group) = self.groups.get_mut(&process.group) {
                group.node_attributes.wait(key, waiter.clone());
            }
            self.fail_stuck_node_waiters(process.group);
            return Parked;
        }
        Answered(node_response(value))
    }

    fn put_node_attribute(&mut self, process: Process, key: BString, value: BString) -> Response {
        let refused = |message: BString| Response::PutNodeAttribute {
            rc: Some(-1),
            message: Some(message),
        };
        let Some(group) = self.groups.get_mut(&process.group) else {
            return refused("no_group".into());
        };
        let waiters = match group.node_attributes.put(key, value.clone()) {
            Ok(waiters) => waiters,
            Err(error) => return refused(error.to_string().into()),
        };
        for waiter in waiters {
            self.respond(waiter, &node_response(Some(value.clone())));
        }
        Response::PutNodeAttribute {
            rc: Some(0),
            message: None,
        }
    }
}

/// "init: accept (1,0),(1,1),(1,2) and (2,0). For 1.x answer `pmi_version=1 pmi_subversion=1`; else `rc=-1` with our
/// version." Whether it is accepted, too.
fn version_response(version: u32, subversion: u32, values: Option<BString>) -> (Response, bool) {
    let (version, subversion, rc) = match (version, subversion) {
        (1, 0..=2) => (1, 1, 0),
        (2, 0) => (2, 0, 0),
        _ => (1, 1, -1),
    };
    let response = Response::Init {
        version,
        subversion,
        rc: Some(rc),
        values: values.filter(|values| values == "whole"),
    };
    (response, rc == 0)
}

fn refuse_put(reason: &str) -> Response {
    Response::Put {
        rc: Some(-1),
        message: Some(reason.into()),
    }
}
