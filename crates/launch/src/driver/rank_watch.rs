//! Watching one rank: what it says to PMI and to its agent, and that it is gone.

use std::{
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::Arc,
};

use ropewalk_fabric::{AgentLink, AgentLinkError, ToAgent, memfd::HeldMemfd};
use ropewalk_group::{Cause, Rank};
use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
    process::{WaitId, WaitIdOptions, waitid},
    time::{ClockId, clock_gettime},
};
use tokio::sync::mpsc::Sender;

use super::{agent::AgentEvent, watched::Watched};

/// What happened with a rank.
#[derive(Debug)]
pub(super) enum RankEvent {
    Exited { cause: Cause, at_ns: u64 },
    Link(ToAgent, Option<HeldMemfd>),
    LinkBroken(AgentLinkError),
    Pmi(Vec<u8>),
    PmiClosed,
}

/// The descriptors by which a rank is watched.
pub(super) struct RankWatch {
    pub(super) pidfd: Watched<OwnedFd>,
    pub(super) pmi: Arc<Watched<UnixStream>>,
    pub(super) link: Arc<Watched<AgentLink>>,
}

impl RankWatch {
    /// Tells what the rank does until it is gone. Its exit comes last: what a process sent before it died
    /// counts. An error means that the rank cannot be watched.
    pub(super) async fn run(self, rank: Rank, events: Sender<AgentEvent>) -> std::io::Result<()> {
        // Without a receiver the agent itself is at its end.
        let tell = async |event| {
            let _ = events.send(AgentEvent::Rank(rank, event)).await;
        };
        let (mut pmi_open, mut link_open) = (true, true);
        loop {
            tokio::select! {
                ready = self.link.readable(), if link_open => {
                    let mut ready = ready?;
                    match self.read_link() {
                        Reading::Drained => ready.clear_ready(),
                        Reading::Event(event) => tell(event).await,
                        Reading::Over(event) => {
                            link_open = false;
                            if let Some(event) = event {
                                tell(event).await;
                            }
                        }
                    }
                }
                ready = self.pmi.readable(), if pmi_open => {
                    let mut ready = ready?;
                    match self.read_pmi() {
                        Reading::Drained => ready.clear_ready(),
                        Reading::Event(event) => tell(event).await,
                        Reading::Over(event) => {
                            pmi_open = false;
                            if let Some(event) = event {
                                tell(event).await;
                            }
                        }
                    }
                }
                ready = self.pidfd.readable() => {
                    let mut ready = ready?;
                    // The kernel is asked again: the rank may have written between our last look and its death.
                    while link_open && let Reading::Event(event) = self.read_link() {
                        tell(event).await;
                    }
                    while pmi_open && let Reading::Event(event) = self.read_pmi() {
                        tell(event).await;
                    }
                    let Some(cause) = self.reap()? else {
                        ready.clear_ready();
                        continue;
                    };
                    tell(RankEvent::Exited { cause, at_ns: monotonic_ns() }).await;
                    return Ok(());
                }
            }
        }
    }

    fn read_link(&self) -> Reading {
        match self.link.get_ref().receive() {
            Ok(None) => Reading::Drained,
            Ok(Some((message, memfd))) => {
                let memory = memfd.and_then(|memfd| HeldMemfd::of(memfd).ok());
                Reading::Event(RankEvent::Link(message, memory))
            }
            Err(AgentLinkError::Closed) => Reading::Over(None),
            Err(error) => Reading::Over(Some(RankEvent::LinkBroken(error))),
        }
    }

    fn read_pmi(&self) -> Reading {
        let mut bytes = [0; 4096];
        loop {
            match recv(&**self.pmi.get_ref(), &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok((length, _)) if length > 0 => {
                    return Reading::Event(RankEvent::Pmi(bytes[..length].to_vec()));
                }
                // The rank died with unread answers: told once, before what it had sent.
                Err(Errno::CONNRESET) => {}
                Err(Errno::AGAIN | Errno::INTR) => return Reading::Drained,
                Ok(_) | Err(_) => return Reading::Over(Some(RankEvent::PmiClosed)),
            }
        }
    }

    fn reap(&self) -> std::io::Result<Option<Cause>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let Some(status) = waitid(WaitId::PidFd(self.pidfd.get_ref().as_fd()), options)? else {
            return Ok(None);
        };
        Ok(match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Some(Cause::Exited(code)),
            (None, Some(signal)) => Some(Cause::Signalled(signal)),
            (None, None) => None,
        })
    }
}

/// One look at a descriptor that does not block.
enum Reading {
    Drained,
    Event(RankEvent),
    Over(Option<RankEvent>),
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
