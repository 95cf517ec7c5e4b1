//! The process beside the agent: hands on what libpmix wants, and what the agent answers.

mod names;
mod texts;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    io::{self, Write},
    os::{
        fd::AsFd,
        unix::{fs::DirBuilderExt, net::UnixStream},
    },
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use ropewalk_launch_core::pmix::{FenceEnd, FromHelper, Incoming, Process, ToHelper, Wish, encode};
use ropewalk_pmi as pmi;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use crate::{
    construction::Construction,
    known::Known,
    logs::Log,
    lookups::{Lookup, Reader},
    meetings::{Meeting, MeetingReply},
    namespace,
    queries::{self, Query},
    sys::{
        Server,
        replies::{InfoReply, ModexReply, OpReply, SpawnReply},
        types::{Status, status},
        upcalls::{Queue, Upcall},
        values::{Infos, Item},
    },
    wishes::{published, spawn_of},
};

/// The PMIx server of a host, for the agent at the other end of standard input. `words` are the folder for its files
/// and those of its clients, and the files that libpmix may be in. Nobody starts it by hand.
pub fn helper_main(words: impl Iterator<Item = OsString>) -> ExitCode {
    let mut words = words.map(PathBuf::from);
    let directory = words.next().unwrap_or_default();
    let candidates: Vec<_> = words.collect();
    match serve(&directory, &candidates) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ropewalk agent pmix: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(directory: &Path, candidates: &[PathBuf]) -> io::Result<()> {
    let stdin = rustix::stdio::stdin().try_clone_to_owned()?;
    let mut socket = UnixStream::from(stdin);
    let queue = Queue::start()?;
    let directory = directory.to_string_lossy().into_owned();
    // What is there already, and may not be used, libpmix tells.
    let _ = fs::DirBuilder::new().mode(0o700).create(&directory);
    let options = [
        (
            "pmix.srv.nspace",
            Item::Text(format!("ropewalk-{}", std::process::id())),
        ),
        ("pmix.srv.rank", Item::Rank(0)),
        ("pmix.srvr.tmpdir", Item::Text(directory.clone())),
        ("pmix.sys.tmpdir", Item::Text(directory.clone())),
        ("pmix.srvr.tool", Item::Bool(false)),
        ("pmix.srvr.remote", Item::Bool(false)),
    ];
    let server = match Server::start(candidates, &options) {
        Ok(server) => server,
        Err(error) => {
            let reason = error.to_string();
            return socket.write_all(&encode(&FromHelper::Failed { reason }));
        }
    };
    let version = server.version();
    socket.write_all(&encode(&FromHelper::Ready { version }))?;
    let mut helper = Helper {
        socket,
        queue,
        server,
        directory,
        waiting: BTreeMap::new(),
        lookups: BTreeMap::new(),
        groups: BTreeMap::new(),
        meetings: BTreeMap::new(),
        met: BTreeMap::new(),
        next: 0,
    };
    helper.work()
}

/// Who waits for the agent.
enum Waiting {
    Fence(ModexReply),
    Log(Log),
    Query {
        from: Process,
        queries: Vec<Query>,
        reply: InfoReply,
    },
    Modex(ModexReply, Instant),
    /// A question for one key of a lookup.
    Key {
        lookup: u64,
        key: String,
    },
    /// Nobody: the answer says nothing new.
    Nobody,
    Publish {
        reply: OpReply,
        rest: Vec<(String, Vec<u8>)>,
        from: Process,
    },
    Unpublish {
        reply: OpReply,
        rest: Vec<String>,
        from: Process,
    },
    Spawn(SpawnReply),
    /// The members of a group that is constructed or destructed.
    Group(Construction),
    /// The members of a process group that take part in a meeting.
    Part {
        meeting: u64,
    },
}

struct Helper {
    socket: UnixStream,
    queue: &'static Queue,
    server: Server,
    directory: String,
    /// By the numbers of their requests.
    waiting: BTreeMap<u64, Waiting>,
    lookups: BTreeMap<u64, Lookup>,
    /// The process groups, by their names.
    groups: BTreeMap<String, Known>,
    /// Connections of several groups that are being made or ended, by their numbers.
    meetings: BTreeMap<u64, Meeting>,
    /// How often the same processes have met, by the word for them.
    met: BTreeMap<String, u64>,
    next: u64,
}

/// How long a process waits for the data of another that has not put it.
const MODEX_PATIENCE: Duration = Duration::from_secs(600);
/// How long nothing is looked at if nothing comes.
const IDLE: Duration = Duration::from_secs(60);

impl Helper {
    /// Works until the agent is gone.
    fn work(&mut self) -> io::Result<()> {
        let mut incoming = Incoming::default();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let ready = self.wait()?;
            if ready {
                match rustix::io::read(&self.socket, &mut buffer) {
                    Ok(0) | Err(Errno::CONNRESET) => {
                        // An agent that was killed removes nothing.
                        self.end();
                        let _ = fs::remove_dir_all(&self.directory);
                        return Ok(());
                    }
                    Ok(length) => incoming.push(&buffer[..length]),
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    Err(errno) => return Err(errno.into()),
                }
                while let Some(message) = incoming.next_message().map_err(io::Error::other)? {
                    if message == ToHelper::End {
                        self.end();
                        return Ok(());
                    }
                    self.handle_message(message)?;
                }
            }
            for call in self.queue.take() {
                self.handle_call(call)?;
            }
            self.handle_time(Instant::now())?;
        }
    }

    /// Has libpmix remove the files that processes registered for their end.
    fn end(&mut self) {
        for name in self.groups.keys() {
            self.server.deregister(name);
        }
    }

    /// Waits until something is to be done. Returns whether the agent says something.
    fn wait(&self) -> io::Result<bool> {
        let now = Instant::now();
        let lookups = self.lookups.values().filter_map(Lookup::due);
        let modexes = self.waiting.values().filter_map(|waiting| match waiting {
            Waiting::Modex(_, deadline) => Some(*deadline),
            _ => None,
        });
        let due = lookups.chain(modexes).min().unwrap_or(now + IDLE);
        let timeout = Timespec::try_from(due.saturating_duration_since(now)).ok();
        let mut polled = [
            PollFd::new(&self.socket, PollFlags::IN),
            PollFd::from_borrowed_fd(self.queue.as_fd(), PollFlags::IN),
        ];
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) => Ok(!polled[0].revents().is_empty()),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    fn tell(&mut self, message: &FromHelper) -> io::Result<()> {
        self.socket.write_all(&encode(message))
    }

    fn keep(&mut self, waiting: Waiting) -> u64 {
        self.next += 1;
        self.waiting.insert(self.next, waiting);
        self.next
    }

    fn ask(&mut self, from: Process, wish: Wish, waiting: Waiting) -> io::Result<()> {
        let token = self.keep(waiting);
        self.tell(&FromHelper::Ask { token, from, wish })
    }

    fn handle_message(&mut self, message: ToHelper) -> io::Result<()> {
        match message {
            ToHelper::Register(namespace) => {
                let group = namespace.group;
                let registered = namespace::register(&self.server, &namespace, &self.directory);
                let environments = registered.map_err(io::Error::other)?;
                self.groups.insert(namespace.name.clone(), Known::new(*namespace));
                self.tell(&FromHelper::Registered { group, environments })
            }
            ToHelper::Forget(name) => {
                self.groups.remove(&name);
                self.server.deregister(&name);
                Ok(())
            }
            ToHelper::FenceEnded { token, end } => self.handle_fence_end(token, end),
            ToHelper::Answered { token, answer } => self.handle_answer(token, answer),
            ToHelper::Logged { token } => match self.waiting.remove(&token) {
                Some(Waiting::Log(log)) => self.log(log),
                _ => Ok(()),
            },
            ToHelper::ModexWanted { asker, process } => {
                if self.server.request_modex(asker, &process).is_err() {
                    return self.tell(&FromHelper::ModexFound { asker, data: None });
                }
                Ok(())
            }
            ToHelper::ModexAnswered { token, data } => {
                if let Some(Waiting::Modex(reply, _)) = self.waiting.remove(&token) {
                    match data {
                        Some(data) => reply.send(status::SUCCESS, data),
                        None => reply.send(status::NOT_FOUND, Vec::new()),
                    }
                }
                Ok(())
            }
            ToHelper::Refreshed { token, running } => {
                if let Some(Waiting::Query { from, queries, reply }) = self.waiting.remove(&token) {
                    let (status, found) = queries::answers((&self.groups, &running), &from, &queries);
                    let found = found.iter().map(|(key, item)| (key.as_str(), item.clone()));
                    reply.send(status, Infos::new(&found.collect::<Vec<_>>()));
                }
                Ok(())
            }
            ToHelper::Lives { process, pid } => {
                let group = self.groups.get_mut(&process.namespace);
                if let (Some(group), Some(rank)) = (group, process.rank) {
                    group.handle_life(rank, pid);
                }
                Ok(())
            }
            ToHelper::Departed(process) => {
                self.server.notify_failure(&process);
                Ok(())
            }
            ToHelper::End => Ok(()),
        }
    }

    fn handle_fence_end(&mut self, token: u64, end: FenceEnd) -> io::Result<()> {
        let mut context = None;
        let (status, data) = match end {
            FenceEnd::Complete { data, context: found } => {
                context = found;
                (status::SUCCESS, data)
            }
            FenceEnd::Gone => (status::LOST_CONNECTION, Vec::new()),
            FenceEnd::Lost => (status::UNREACH, Vec::new()),
            FenceEnd::TooLarge => (status::NO_MEMORY, Vec::new()),
            FenceEnd::Unknown => (status::NOT_SUPPORTED, Vec::new()),
        };
        match self.waiting.remove(&token) {
            Some(Waiting::Fence(reply)) => reply.send(status, data),
            Some(Waiting::Group(group)) => group.answer(status, &data, context),
            Some(Waiting::Part { meeting }) => return self.handle_group_met(meeting, status, &data),
            _ => {}
        }
        Ok(())
    }

    fn handle_answer(&mut self, token: u64, answer: pmi::Answer) -> io::Result<()> {
        let is_done = matches!(answer, pmi::Answer::Done { done: true });
        match self.waiting.remove(&token) {
            Some(Waiting::Key { lookup, key }) => self.handle_value(lookup, &key, answer)?,
            Some(Waiting::Publish { reply, .. }) if !is_done => reply.send(match answer {
                pmi::Answer::Done { .. } => status::DUPLICATE_KEY,
                _ => status::ERROR,
            }),
            Some(Waiting::Publish { reply, rest, from }) => self.publish(from, rest, reply)?,
            Some(Waiting::Unpublish { reply, rest, from }) => self.unpublish(from, rest, reply)?,
            Some(Waiting::Spawn(reply)) => match answer {
                pmi::Answer::Spawned(Ok(spawned)) => {
                    reply.send(status::SUCCESS, &spawned.kvsname.to_string())
                }
                _ => reply.send(status::ERROR, ""),
            },
            _ => {}
        }
        Ok(())
    }

    fn handle_time(&mut self, now: Instant) -> io::Result<()> {
        let due: Vec<_> = self
            .lookups
            .iter()
            .filter(|(_, lookup)| lookup.is_over(now) || lookup.due().is_some_and(|due| due <= now))
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            let is_over = self.lookups.get(&id).is_some_and(|lookup| lookup.is_over(now));
            if is_over {
                if let Some(lookup) = self.lookups.remove(&id) {
                    lookup.answer();
                }
                continue;
            }
            let Some(lookup) = self.lookups.get_mut(&id) else {
                continue;
            };
            let (from, keys) = (lookup.from.clone(), lookup.ask_again());
            self.ask_for_keys(id, &from, keys)?;
        }
        let late = |waiting: &mut Waiting| matches!(waiting, Waiting::Modex(_, deadline) if *deadline <= now);
        let late: Vec<_> = self
            .waiting
            .iter_mut()
            .filter_map(|(token, waiting)| late(waiting).then_some(*token))
            .collect();
        for token in late {
            if let Some(Waiting::Modex(reply, _)) = self.waiting.remove(&token) {
                reply.send(status::TIMEOUT, Vec::new());
            }
        }
        Ok(())
    }

    fn handle_call(&mut self, call: Upcall) -> io::Result<()> {
        match call {
            Upcall::Connected(process, reply) => {
                self.note_connected(&process);
                self.tell(&FromHelper::Connected(process))?;
                reply.send(status::SUCCESS);
            }
            // The agent knows before the process goes on.
            Upcall::Finalized(process, reply) => {
                self.tell(&FromHelper::Finalized(process))?;
                reply.send(status::SUCCESS);
            }
            Upcall::Aborted {
                process,
                exit_code,
                message,
                reply,
            } => {
                self.tell(&FromHelper::Aborted {
                    process,
                    exit_code,
                    message,
                })?;
                reply.send(status::SUCCESS);
            }
            Upcall::Fence { members, data, reply } => self.fence(members, data, reply)?,
            Upcall::Modex(process, reply) => {
                let deadline = Instant::now() + MODEX_PATIENCE;
                let token = self.keep(Waiting::Modex(reply, deadline));
                self.tell(&FromHelper::Modex { token, process })?;
            }
            Upcall::Query { from, queries, reply } => {
                let all_hosts = queries::ask_all_hosts(&self.groups, &from, &queries);
                let token = self.keep(Waiting::Query { from, queries, reply });
                self.tell(&FromHelper::Refresh { token, all_hosts })?;
            }
            Upcall::Log {
                from,
                data,
                directives,
                reply,
            } => self.log(Log::new(from, data, &directives, reply))?,
            Upcall::Group {
                constructs,
                name,
                members,
                directives,
                reply,
            } => {
                if are_of_several_namespaces(&members) {
                    reply.send(status::NOT_SUPPORTED, Infos::default());
                    return Ok(());
                }
                let verb = if constructs { "construct" } else { "destruct" };
                let tag = format!("-{verb}-{name}");
                let (group, data) = Construction::new(members.clone(), directives, reply);
                self.enter_fence(Waiting::Group(group), members, tag, data, constructs)?;
            }
            Upcall::ModexFound(asker, data) => self.tell(&FromHelper::ModexFound { asker, data })?,
            Upcall::Publish { from, items, reply } => match published(&from, items) {
                Ok(pairs) => self.publish(from, pairs, reply)?,
                Err(status) => reply.send(status),
            },
            Upcall::Lookup {
                from,
                keys,
                options,
                reply,
            } => {
                self.next += 1;
                let id = self.next;
                let reader = Reader::Process(reply);
                let lookup = Lookup::new(from, keys, &options, reader, Instant::now());
                self.look_up(id, lookup)?;
            }
            Upcall::Unpublish { from, keys, reply } => self.unpublish(from, keys, reply)?,
            Upcall::Spawn { from, apps, reply } => {
                let spawn = spawn_of(apps);
                self.ask(from, Wish::Spawn(spawn), Waiting::Spawn(reply))?;
            }
            Upcall::Connect {
                members,
                disconnects,
                reply,
            } => {
                let tag = match disconnects {
                    true => "-disconnect",
                    false => "-connect",
                };
                self.meet(tag, members, MeetingReply::Op(reply), &[])?;
            }
        }
        Ok(())
    }

    fn note_connected(&mut self, process: &Process) {
        let group = self.groups.get_mut(&process.namespace);
        if let (Some(group), Some(rank)) = (group, process.rank) {
            group.connected.insert(rank);
        }
    }

    /// Processes meet in a fence, and learn what all of them have put.
    fn fence(&mut self, members: Vec<Process>, data: Vec<u8>, reply: ModexReply) -> io::Result<()> {
        if are_of_several_namespaces(&members) {
            let reply = MeetingReply::Fence(reply, Vec::new());
            return self.meet("-fence", members, reply, &data);
        }
        self.enter_fence(Waiting::Fence(reply), members, String::new(), data, false)
    }

    /// Asks the agent for a fence among processes of one namespace.
    fn enter_fence(
        &mut self,
        waiting: Waiting,
        members: Vec<Process>,
        tag: String,
        data: Vec<u8>,
        constructs_group: bool,
    ) -> io::Result<()> {
        let token = self.keep(waiting);
        self.tell(&FromHelper::Fence {
            token,
            members,
            tag,
            data,
            constructs_group,
        })
    }

    /// Processes connect or disconnect: all members of each group meet in a fence, and then the groups.
    fn meet(&mut self, tag: &str, members: Vec<Process>, reply: MeetingReply, data: &[u8]) -> io::Result<()> {
        let meeting = Meeting::new(tag, members, &self.groups, reply);
        let parts = meeting.parts();
        let tag = meeting.tag();
        self.next += 1;
        let id = self.next;
        self.meetings.insert(id, meeting);
        if parts.is_empty() {
            return self.handle_group_met(id, status::NOT_SUPPORTED, &[]);
        }
        for (index, members) in parts.into_iter().enumerate() {
            let token = self.keep(Waiting::Part { meeting: id });
            // The data of all processes here goes with one of their groups.
            let data = if index == 0 { data.to_vec() } else { Vec::new() };
            let tag = tag.clone();
            self.tell(&FromHelper::Fence {
                token,
                members,
                tag,
                data,
                constructs_group: false,
            })?;
        }
        Ok(())
    }

    fn handle_group_met(&mut self, id: u64, status: Status, data: &[u8]) -> io::Result<()> {
        let Some(meeting) = self.meetings.get_mut(&id) else {
            return Ok(());
        };
        if !meeting.is_whole(status, data) {
            return Ok(());
        }
        let Some(meeting) = self.meetings.remove(&id) else {
            return Ok(());
        };
        let count = self.met.entry(meeting.tag()).or_default();
        *count += 1;
        let signs = match meeting.signs(*count) {
            Ok(signs) if signs.expected.len() > 1 => signs,
            Ok(_) => {
                meeting.reply.send(status::SUCCESS);
                return Ok(());
            }
            Err(status) => {
                meeting.reply.send(status);
                return Ok(());
            }
        };
        for name in signs.own {
            let value = Vec::new();
            self.ask(signs.from.clone(), Wish::Publish { name, value }, Waiting::Nobody)?;
        }
        let reader = Reader::Meeting(meeting.reply);
        let lookup = Lookup::new(signs.from, signs.expected, &[], reader, Instant::now());
        self.look_up(id, lookup)
    }
}

fn are_of_several_namespaces(members: &[Process]) -> bool {
    members
        .windows(2)
        .any(|pair| pair[0].namespace != pair[1].namespace)
}
