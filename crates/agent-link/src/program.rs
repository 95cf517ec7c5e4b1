//! The program's end of an advisor link.

use std::{collections::VecDeque, env, io, os::fd::OwnedFd, time::Duration};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with,
        sockopt::{Timeout, set_socket_timeout},
    },
};

use crate::{
    agent::address,
    message::{Kind, MESSAGE_SIZE, ToAgent, ToProgram},
};

/// The variable that says how a rank reaches the agent of its host: a name, a colon, and the rank in the job.
pub const VARIABLE: &str = "ROPEWALK_ADVISOR_LINK";

/// How long a program waits for an agent that has thousands of others to accept first.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many messages are kept for an agent that takes none at the moment. Steps are not kept.
const UNSENT_MAX: usize = 16;

/// A link to the agent of the host.
#[derive(Debug)]
pub struct ProgramLink {
    /// Nothing once the link is broken.
    socket: Option<OwnedFd>,
    unsent: VecDeque<ToAgent>,
}

impl ProgramLink {
    /// The link of this rank; nothing outside a job, or if the agent cannot be reached.
    pub fn from_env(kind: Kind) -> Option<Self> {
        Self::connect(&env::var(VARIABLE).ok()?, kind).ok()
    }

    /// Connects as [`VARIABLE`] says.
    ///
    /// # Errors
    /// If the value is none, or the agent cannot be reached.
    pub fn connect(value: &str, kind: Kind) -> io::Result<Self> {
        let no_value = || {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{value:?} names no advisor link"),
            )
        };
        let (name, rank) = value.split_once(':').ok_or_else(no_value)?;
        let rank = rank.parse().map_err(|_| no_value())?;
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
        connect(&socket, &address(name)?)?;
        let mut link = Self {
            socket: Some(socket),
            unsent: VecDeque::new(),
        };
        link.tell(ToAgent::Hello { rank, kind });
        Ok(link)
    }

    /// Tells the agent something. What cannot be sent now is sent later, apart from steps.
    pub fn tell(&mut self, message: ToAgent) {
        if matches!(message, ToAgent::Steps(_)) {
            if self.unsent.is_empty() {
                self.send(message);
            }
            return;
        }
        if self.unsent.len() == UNSENT_MAX {
            self.unsent.pop_front();
        }
        self.unsent.push_back(message);
        self.send_unsent();
    }

    /// The next message of the agent; nothing if none has come. Also sends what could not be sent before.
    pub fn receive(&mut self) -> Option<ToProgram> {
        self.send_unsent();
        let mut bytes = [0; MESSAGE_SIZE + 1];
        loop {
            let received = match recv(self.socket.as_ref()?, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((length, _)) => ToProgram::parse(&bytes[..length]).ok(),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return None,
                Err(_) => None,
            };
            if received.is_none() {
                self.socket = None;
            }
            return received;
        }
    }

    fn send_unsent(&mut self) {
        while let Some(&message) = self.unsent.front() {
            if !self.send(message) {
                return;
            }
            self.unsent.pop_front();
        }
    }

    /// True if the message is gone, also because nobody will ever take it.
    fn send(&mut self, message: ToAgent) -> bool {
        let Some(socket) = &self.socket else { return true };
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            return match send(socket, &message.encode(), flags) {
                Ok(_) => true,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => false,
                Err(_) => {
                    self.socket = None;
                    true
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Listener, agent::Connection};

    fn pair(name: &str) -> (Connection, ProgramLink) {
        let listener = Listener::bind(format!("{name}-{}", std::process::id())).unwrap();
        let program = ProgramLink::connect(&listener.value_for(7), Kind::Store { directory: 1 }).unwrap();
        let agent = listener.accept().unwrap();
        let hello = ToAgent::Hello {
            rank: 7,
            kind: Kind::Store { directory: 1 },
        };
        assert_eq!(agent.receive().unwrap(), Some(hello));
        (agent, program)
    }

    /// A program that reads nothing and an agent that takes nothing keep nobody waiting, and what matters is
    /// sent later.
    #[test]
    fn nobody_waits() {
        let (agent, mut program) = pair("nobody-waits");
        for step in 0..100_000 {
            program.tell(ToAgent::Steps(step));
        }
        program.tell(ToAgent::Saved);
        let mut last = None;
        for _ in 0..2 {
            while let Some(message) = agent.receive().unwrap() {
                last = Some(message);
            }
            assert_eq!(program.receive(), None);
        }
        assert_eq!(last, Some(ToAgent::Saved));
        while agent.send(ToProgram::Notice { left_ms: 1 }).is_ok() {}
        assert_eq!(program.receive(), Some(ToProgram::Notice { left_ms: 1 }));
    }

    /// A program goes on when its agent is gone, and an agent sees that the program is.
    #[test]
    fn each_survives_the_other() {
        let (agent, mut program) = pair("gone-agent");
        drop(agent);
        assert_eq!(program.receive(), None);
        program.tell(ToAgent::Saved);
        let (agent, program) = pair("gone-program");
        drop(program);
        assert!(agent.receive().is_err());
        assert!(agent.send(ToProgram::Notice { left_ms: 1 }).is_err());
    }

    /// Values that name no link are errors.
    #[test]
    fn odd_values_are_errors() {
        for value in ["", "name", "name:", "name:-1", "nobody-listens-here:1"] {
            assert!(ProgramLink::connect(value, Kind::Advisor).is_err(), "{value}");
        }
    }
}
