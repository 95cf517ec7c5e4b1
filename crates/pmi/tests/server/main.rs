//! The rules for a PMI server, each as measured on Hydra, Slurm and their clients, played against ours.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bridged;
mod frames;
mod limits;
mod lines;
mod listed;
mod names;
mod singleton;
mod slurm;
mod spawn;
mod tree;

use ropewalk_pmi::{
    AbsentMembers, Action, ConnectionId, GroupId, GroupOptions, LINE_SIZE_MAX, PAIR_LINE_SIZE_MAX, Peer,
    Process, Server,
};

const GROUP: GroupId = GroupId(0);

fn process(rank: u32) -> Process {
    Process { group: GROUP, rank }
}

fn connection(rank: u32) -> ConnectionId {
    ConnectionId(rank.into())
}

fn server(size: u32, absent: AbsentMembers) -> Server {
    server_of(GroupOptions {
        absent,
        ..GroupOptions::one_host(GROUP, "kvs", size)
    })
}

fn server_of(group: GroupOptions) -> Server {
    let mut server = Server::root();
    let size = group.size;
    server.add_group(group);
    for rank in 0..size {
        server.open(connection(rank), Peer::Process(process(rank)));
    }
    server
}

/// The messages and actions of the server, one line for each, without its notices about fences and
/// overwritten keys. The length of a frame is checked and taken off.
fn drain(server: &mut Server) -> Vec<String> {
    let mut lines = Vec::new();
    while let Some(action) = server.poll_action() {
        match action {
            Action::Abort {
                process, exit_code, ..
            } => {
                lines.push(format!("{} aborts with {exit_code}", process.rank));
            }
            Action::Close { connection } => lines.push(format!("{} closed", connection.0)),
            Action::Misbehaved { connection, .. } => lines.push(format!("{} misbehaved", connection.0)),
            Action::FenceBegan { .. } | Action::FenceEnded { .. } | Action::Overwritten { .. } => {}
            Action::Send { connection, bytes } => {
                let sent = messages(&bytes);
                lines.extend(sent.into_iter().map(|text| format!("{} {text}", connection.0)));
            }
            Action::Spawn { id, spawn, .. } => lines.push(format!("spawn {} {spawn:?}", id.0)),
            Action::AskNames { id, question } => lines.push(format!("names {} {question:?}", id.0)),
            Action::BridgedAnswer { token, answer } => lines.push(format!("answer {} {answer:?}", token.0)),
            Action::BridgedFenceEnded { token, end } => lines.push(format!("fence {} {end:?}", token.0)),
            other @ (Action::ToChild { .. } | Action::ToParent { .. }) => panic!("{other:?}"),
        }
    }
    lines
}

fn messages(bytes: &[u8]) -> Vec<String> {
    let mut texts = Vec::new();
    let mut rest = std::str::from_utf8(bytes).unwrap();
    while !rest.is_empty() {
        if rest.starts_with("cmd=") {
            let (line, tail) = rest.split_once('\n').unwrap();
            let size_max = match line.starts_with("cmd=get_result ") {
                true => PAIR_LINE_SIZE_MAX,
                false => LINE_SIZE_MAX,
            };
            assert!(line.len() < size_max, "{} bytes", line.len());
            texts.push(line.to_owned());
            rest = tail;
        } else {
            let length: usize = rest[..6].trim().parse().unwrap();
            texts.push(rest[6..6 + length].to_owned());
            rest = &rest[6 + length..];
        }
    }
    texts
}

fn say(server: &mut Server, rank: u32, line: &str) -> Vec<String> {
    server.handle_bytes(connection(rank), format!("{line}\n").as_bytes());
    drain(server)
}

/// A process says a frame.
fn say_frame(server: &mut Server, rank: u32, body: &str) -> Vec<String> {
    server.handle_bytes(connection(rank), format!("{:<6}{body}", body.len()).as_bytes());
    drain(server)
}

/// A process asks and the server answers it, and nobody else.
fn ask(server: &mut Server, rank: u32, line: &str) -> String {
    one_answer(rank, say(server, rank, line))
}

fn ask_frame(server: &mut Server, rank: u32, body: &str) -> String {
    one_answer(rank, say_frame(server, rank, body))
}

fn one_answer(rank: u32, answers: Vec<String>) -> String {
    let prefix = format!("{rank} ");
    let [answer] = &answers[..] else {
        panic!("{answers:?}")
    };
    answer.strip_prefix(&prefix).unwrap().to_owned()
}

fn initialize(server: &mut Server, ranks: impl IntoIterator<Item = u32>) {
    for rank in ranks {
        let answer = ask(server, rank, "cmd=init pmi_version=1 pmi_subversion=1");
        assert_eq!(answer, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
    }
}

/// As transcript 8.3 begins.
fn initialize_frames(server: &mut Server, size: u32) {
    for rank in 0..size {
        let answer = ask(server, rank, "cmd=init pmi_version=2 pmi_subversion=0");
        assert_eq!(answer, "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0");
        let answer = ask_frame(
            server,
            rank,
            &format!("cmd=fullinit;pmirank={rank};threaded=FALSE;"),
        );
        assert_eq!(
            answer,
            format!(
                "cmd=fullinit-response;pmi-version=2;pmi-subversion=0;rank={rank};size={size};appnum=0;\
                 debugged=FALSE;pmiverbose=FALSE;rc=0;"
            )
        );
    }
}
