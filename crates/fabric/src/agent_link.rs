//! The messages between a rank and the agent of its host, over an inherited socketpair.
//!
//! The agent gives each rank one end of an `AF_UNIX` `SOCK_SEQPACKET` pair, whose number stands in
//! [`AgentLink::VARIABLE`]. Inheritance is the authentication. A program that knows of this asks who it is
//! ([`AgentLink::join`]), and the answer, [`Welcome`], carries its key. A program that wants to be told of
//! departures and to have its data kept then says [`ToAgent::Attach`]. To programs that know nothing of it
//! nothing is said. A message is one packet, at most [`AgentLink::MESSAGE_SIZE_MAX`] bytes of postcard.
//!
//! [`ToAgent::Hold`] travels with a [`WritableMemfd`](crate::memfd::WritableMemfd). From the moment that the
//! packet is sent the kernel keeps the memory for the agent: a rank may be killed right after it and its data
//! is still there. When a rank is gone the agent exposes what it held for it and tells every attached rank,
//! first one [`FromAgent::Inherited`] for each memfd, then [`FromAgent::Departed`].

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    time::{Duration, Instant},
};

use ropewalk_membership::Departure;
use ropewalk_names::{Held, HoldId, Incarnation, JobId, Rank, TraceEvent};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{FlockOperation, fcntl_lock},
    io::{Errno, FdFlags, fcntl_setfd, ioctl_fionread},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg,
        socketpair,
    },
    time::Timespec,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

use crate::{Address, MemberKey, RegionHandle};

/// The agent's answer to [`ToAgent::Join`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The job.
    pub job: JobId,
    /// Who the receiver is, and by what it proves that.
    pub key: MemberKey,
    /// How many ranks the job has.
    pub size: u32,
    /// Where the agent serves the memory of ranks that are gone.
    pub agent: Address,
    /// True if the job encrypts its traffic from host to host:
    /// [`EndpointOptions::of_welcome`](crate::EndpointOptions::of_welcome) goes by it, and so has every
    /// endpoint of the job to do.
    pub encrypt: bool,
    /// How long a silent process or host of the job is waited for, as its user has said.
    pub detect: Duration,
}

/// From a rank to its agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAgent {
    /// The rank reads its link: tell it who is gone, now and later.
    Attach,
    /// Keep the memory behind the descriptor that comes with this packet, a
    /// [`WritableMemfd`](crate::memfd::WritableMemfd). Its content when the rank is gone is the one that
    /// counts.
    Hold(Held),
    /// Keep the memory behind the descriptor that comes with this packet, a
    /// [`LabelledMemfd`](crate::LabelledMemfd), for all that will be in it. When the rank is gone it says if it counts.
    HoldLabelled(HoldId),
    /// The memory is needed no longer.
    Release(HoldId),
    /// Something for whoever watches the job.
    Trace(TraceEvent),
    /// The program knows of its agent, and asks who it is: [`FromAgent::Welcome`] says so.
    Join,
    /// The others have taken in this process, which replaces earlier ones of its rank: nobody needs any more what those
    /// have left.
    Admitted,
}

/// From an agent to a rank of its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromAgent {
    /// A rank is gone.
    Departed(Departure),
    /// The memory of a rank that is gone is served under this handle from now on.
    Inherited {
        /// Whose it was.
        rank: Rank,
        /// Which life of that rank.
        incarnation: Incarnation,
        /// The name and the label that the rank gave it.
        held: Held,
        /// Where it is read.
        handle: RegionHandle,
    },
    /// The answer to [`ToAgent::Join`].
    Welcome(Welcome),
    /// The other answer: a program of this rank has attached before.
    Taken,
}

/// One end of the link.
#[derive(Debug)]
pub struct AgentLink {
    socket: OwnedFd,
}

impl AgentLink {
    /// The environment variable with the number of the inherited descriptor.
    pub const VARIABLE: &str = "ROPEWALK_AGENT_FD";
    /// The largest message, in bytes.
    pub const MESSAGE_SIZE_MAX: usize = 16 << 10;
    /// The largest label of held memory, in bytes.
    pub const LABEL_SIZE_MAX: usize = Held::LABEL_SIZE_MAX;
    /// An agent that starts a thousand processes beside other people's takes some seconds.
    const ANSWER_TIME: Duration = Duration::from_secs(30);

    /// Both ends of a new link, closed on exec: (the agent's, the rank's).
    ///
    /// # Errors
    /// If the system is out of descriptors.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (agent, rank) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Self { socket: agent }, Self { socket: rank }))
    }

    /// The link that this process inherited, if it was started by an agent; `None` otherwise. Takes the
    /// descriptor over: call it once in a process. Processes that this one starts do not inherit it.
    ///
    /// # Errors
    /// If the variable is set but names no open descriptor.
    pub fn from_env() -> Result<Option<Self>, AgentLinkError> {
        let Some(text) = std::env::var_os(Self::VARIABLE) else {
            return Ok(None);
        };
        let text = text.to_string_lossy().into_owned();
        let number: RawFd = match text.parse() {
            Ok(number) if number > 2 => number,
            _ => return Err(AgentLinkError::Variable { text }),
        };
        // SAFETY: the agent opened this descriptor for us and named it in the variable, and the contract of
        // this function is to be called once, so that nobody else owns it.
        let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
        fcntl_setfd(borrowed, FdFlags::CLOEXEC).map_err(|_| AgentLinkError::Variable { text })?;
        // SAFETY: as above; the call before it has shown that the descriptor is open.
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        Ok(Some(Self { socket }))
    }

    /// Asks the agent who this process is, and waits for the answer. To be called before anything else is sent.
    ///
    /// The link of a rank is for one program: of two that read it neither would hear all. Other programs of
    /// the rank, as those that a script starts, may have inherited it too.
    ///
    /// # Errors
    /// [`AgentLinkError::Taken`] if another program of this rank has joined and lives, or has attached,
    /// [`AgentLinkError::Closed`] if the agent is gone, [`AgentLinkError::NoWelcome`] if it says nothing
    /// within half a minute.
    pub fn join(&self) -> Result<Welcome, AgentLinkError> {
        // It would read the answer in this one's place. The lock is of the process, and goes with it
        // (fcntl_locking(2)).
        if let Err(Errno::AGAIN | Errno::ACCESS) =
            fcntl_lock(&self.socket, FlockOperation::NonBlockingLockExclusive)
        {
            return Err(AgentLinkError::Taken);
        }
        self.send(&ToAgent::Join, None)?;
        let deadline = Instant::now() + Self::ANSWER_TIME;
        loop {
            match self.receive()? {
                Some((FromAgent::Welcome(welcome), _)) => return Ok(welcome),
                // News is for who has attached.
                Some((FromAgent::Departed(_) | FromAgent::Inherited { .. } | FromAgent::Taken, _)) => {
                    return Err(AgentLinkError::Taken);
                }
                None => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).ok();
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], timeout.as_ref()) {
                Ok(0) => return Err(AgentLinkError::NoWelcome),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Sends one message, with a descriptor if there is one to hand over. Never blocks.
    ///
    /// # Errors
    /// [`AgentLinkError::Full`] if the other side does not read fast enough, [`AgentLinkError::Closed`] if it is
    /// gone, [`AgentLinkError::TooLarge`] if the message is.
    pub fn send<M: Serialize>(
        &self,
        message: &M,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), AgentLinkError> {
        let bytes = postcard::to_allocvec(message).map_err(AgentLinkError::Encoding)?;
        if bytes.len() > Self::MESSAGE_SIZE_MAX {
            return Err(AgentLinkError::TooLarge { size: bytes.len() });
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = descriptor.map(|descriptor| [descriptor]);
        if let Some(descriptors) = &descriptors {
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            match sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut ancillary, flags) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes the next message, if there is one, with the descriptor that came with it. Never blocks.
    ///
    /// # Errors
    /// [`AgentLinkError::Closed`] if the other side is gone and all was read, [`AgentLinkError::Encoding`] if
    /// what came is no message.
    pub fn receive<M: DeserializeOwned>(&self) -> Result<Option<(M, Option<OwnedFd>)>, AgentLinkError> {
        let mut bytes = [0; Self::MESSAGE_SIZE_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = loop {
            match recvmsg(
                &self.socket,
                &mut [IoSliceMut::new(&mut bytes)],
                &mut ancillary,
                flags,
            ) {
                Ok(received) => break received,
                Err(Errno::INTR) => {}
                // The other side died with unread messages. The kernel tells so once, before the packets that it
                // had sent, and those count; after them comes the end.
                Err(Errno::CONNRESET) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        };
        // A packet may be empty too, and is then no message.
        if received.bytes == 0 && self.is_ended()? {
            return Err(AgentLinkError::Closed);
        }
        if received.flags.contains(ReturnFlags::TRUNC) {
            return Err(AgentLinkError::Encoding(postcard::Error::DeserializeBadEncoding));
        }
        let descriptor = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        let message = postcard::from_bytes(&bytes[..received.bytes]).map_err(AgentLinkError::Encoding)?;
        Ok(Some((message, descriptor)))
    }

    /// Returns true if the other side is gone and all that it sent was read.
    fn is_ended(&self) -> Result<bool, AgentLinkError> {
        let mut ready = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let gone = loop {
            match poll(&mut ready, Some(&at_once)) {
                Err(Errno::INTR) => {}
                other => break other? > 0,
            }
        };
        // In this order, so that nothing more can come once it is known that the other side is gone.
        Ok(gone && ioctl_fionread(&self.socket)? == 0)
    }
}

impl AsFd for AgentLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl From<AgentLink> for OwnedFd {
    fn from(link: AgentLink) -> Self {
        link.socket
    }
}

/// The errors of the link.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AgentLinkError {
    /// The other side is gone.
    #[error("the other end of the link between rank and agent is closed")]
    Closed,
    /// A message could not be encoded, or what came is none.
    #[error("a message on the link between rank and agent is malformed")]
    Encoding(#[source] postcard::Error),
    /// The other side does not read.
    #[error("the link between rank and agent is full: the other end does not read it")]
    Full,
    /// The operating system refused.
    #[error("the link between rank and agent failed")]
    Io(#[source] io::Error),
    /// The agent does not say who this process is.
    #[error(
        "the agent does not say which rank of which job this is: it is stalled, or of another version than this program"
    )]
    NoWelcome,
    /// The rank has another program that does.
    #[error(
        "another program of this rank has joined the job before: a rank joins it with one program, so start this one \
         as a rank of its own or without {}",
        AgentLink::VARIABLE
    )]
    Taken,
    /// The message is larger than [`AgentLink::MESSAGE_SIZE_MAX`].
    #[error(
        "a message of {size} bytes is larger than the largest on this link, {}",
        AgentLink::MESSAGE_SIZE_MAX
    )]
    TooLarge {
        /// Its size in bytes.
        size: usize,
    },
    /// [`AgentLink::VARIABLE`] does not name an open descriptor.
    #[error(
        "{}={text:?} does not name an open descriptor; it is set by `ropewalk run`, do not set it by hand",
        AgentLink::VARIABLE
    )]
    Variable {
        /// The variable's content.
        text: String,
    },
}

impl From<Errno> for AgentLinkError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::AGAIN | Errno::NOBUFS => Self::Full,
            Errno::PIPE | Errno::CONNRESET => Self::Closed,
            other => Self::Io(other.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memfd::{HeldMemfd, WritableMemfd};

    /// A memfd sent before the sender is gone is whole at the receiver.
    #[test]
    fn held_memory_survives_its_sender() {
        let (agent, rank) = AgentLink::pair().unwrap();
        let memory = WritableMemfd::with("test", &[&[3; 100]], 100).unwrap();
        let held = Held {
            id: HoldId(1),
            label: b"x".to_vec(),
        };
        rank.send(&ToAgent::Hold(held.clone()), Some(memory.as_fd()))
            .unwrap();
        drop((rank, memory));

        let (message, descriptor) = agent.receive::<ToAgent>().unwrap().unwrap();
        assert_eq!(message, ToAgent::Hold(held));
        let bytes = HeldMemfd::of(descriptor.unwrap()).unwrap().into_bytes().unwrap();
        assert_eq!(bytes, &[3; 100][..]);
        assert!(matches!(agent.receive::<ToAgent>(), Err(AgentLinkError::Closed)));
    }

    /// Who asks is answered, also later; news for another program, or no answer because the agent is gone, is an error.
    #[test]
    fn a_program_asks_who_it_is() {
        let identity = crate::Identity {
            role: crate::Role::Rank,
            rank: Rank(7),
            incarnation: Incarnation(1),
        };
        let welcome = Welcome {
            job: JobId([1; 16]),
            key: crate::JobKey::from_bytes([2; 32]).key_of(identity),
            size: 9,
            agent: "tcp://127.0.0.1:1".parse().unwrap(),
            encrypt: false,
            detect: Duration::from_secs(3),
        };
        let departure = Departure {
            rank: Rank(0),
            incarnation: Incarnation(0),
            epoch: ropewalk_names::Epoch(1),
            cause: ropewalk_membership::Cause::Exited(0),
        };
        let answers = [
            FromAgent::Welcome(welcome.clone()),
            FromAgent::Departed(departure),
            FromAgent::Taken,
        ];
        for (index, answer) in answers.into_iter().enumerate() {
            let (agent, rank) = AgentLink::pair().unwrap();
            let joins = std::thread::spawn(move || rank.join());
            let asked = std::iter::repeat_with(|| {
                std::thread::sleep(Duration::from_millis(1));
                agent.receive::<ToAgent>().unwrap()
            });
            assert_eq!(asked.flatten().next().unwrap().0, ToAgent::Join);
            agent.send(&answer, None).unwrap();
            match (index, joins.join().unwrap()) {
                (0, Ok(found)) => assert_eq!(found, welcome),
                (1 | 2, Err(AgentLinkError::Taken)) => {}
                (_, other) => panic!("{other:?}"),
            }
        }
        let (agent, rank) = AgentLink::pair().unwrap();
        drop(agent);
        assert!(matches!(rank.join(), Err(AgentLinkError::Closed)));
    }

    /// A message counts also if its sender is gone without having read what was sent to it.
    #[test]
    fn messages_of_a_sender_that_did_not_read_count() {
        let (agent, rank) = AgentLink::pair().unwrap();
        agent.send(&ToAgent::Attach, None).unwrap();
        rank.send(&ToAgent::Release(HoldId(7)), None).unwrap();
        drop(rank);
        assert_eq!(
            agent.receive::<ToAgent>().unwrap().unwrap().0,
            ToAgent::Release(HoldId(7))
        );
        assert!(matches!(agent.receive::<ToAgent>(), Err(AgentLinkError::Closed)));
    }

    /// An empty packet hides nothing that was sent after it, also by a sender that is gone.
    #[test]
    fn empty_packets_are_not_the_end() {
        let (agent, rank) = AgentLink::pair().unwrap();
        rustix::net::send(&rank.socket, &[], SendFlags::empty()).unwrap();
        rank.send(&ToAgent::Attach, None).unwrap();
        drop(rank);
        assert!(matches!(
            agent.receive::<ToAgent>(),
            Err(AgentLinkError::Encoding(_))
        ));
        assert_eq!(agent.receive::<ToAgent>().unwrap().unwrap().0, ToAgent::Attach);
        assert!(matches!(agent.receive::<ToAgent>(), Err(AgentLinkError::Closed)));
    }

    /// A packet that is no message is an error, not a panic, and nothing is waited for.
    #[test]
    fn garbage_is_an_error_and_silence_is_none() {
        let (agent, rank) = AgentLink::pair().unwrap();
        assert!(agent.receive::<ToAgent>().unwrap().is_none());
        let valid = postcard::to_allocvec(&ToAgent::Attach).unwrap();
        let mut too_long = vec![0; AgentLink::MESSAGE_SIZE_MAX + 1];
        too_long[..valid.len()].copy_from_slice(&valid);
        for garbage in [&[0xff; 40][..], &[], &too_long] {
            rustix::net::send(&rank.socket, garbage, SendFlags::empty()).unwrap();
            assert!(matches!(
                agent.receive::<ToAgent>(),
                Err(AgentLinkError::Encoding(_))
            ));
        }
    }
}
