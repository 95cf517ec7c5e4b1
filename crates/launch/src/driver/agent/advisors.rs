//! Advisors and stores of checkpoints on this host, and the signals that are for the job.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use ropewalk_agent_link::{Connection, Kind, Listener, NO_END, ToAgent, ToProgram};
use ropewalk_launch_core::protocol::{AnnouncedEnd, LinkNews, Report};
use ropewalk_names::Rank;
use rustix::event::epoll::EventFlags;

use super::{
    Agent,
    poller::{Poller, Source},
};

const SIGTERM: i32 = 15;

/// The links to them.
pub(super) struct Advisors {
    /// Nothing if the system refuses one: then they go without.
    listener: Option<Listener>,
    links: BTreeMap<u32, Advised>,
    next: u32,
    /// When the agent was first told to end by a signal, and handed that on.
    terminated: Option<Instant>,
    /// It was told so when nobody was there to hear of it.
    is_terminated: bool,
}

/// An advisor or store at the other end of a link.
struct Advised {
    connection: Connection,
    /// Who it is, once it has said so.
    known: Option<(Rank, Kind)>,
    /// When its steps were reported last.
    told: Option<Instant>,
}

impl Advisors {
    /// How many links there may be, for each rank of the host and besides.
    const LINKS_PER_RANK: usize = 8;
    /// How many messages of one link are taken before it is looked what else happens.
    const MESSAGES_PER_TURN: usize = 16;
    /// How often the steps of one link are reported.
    const STEPS: Duration = Duration::from_millis(200);
    /// How long after the first the same signal is the same: batch systems send it to several processes of a step.
    const SAME: Duration = Duration::from_secs(1);

    pub(super) fn listen(poller: &Poller) -> Self {
        let mut random = [0; 8];
        let listener = getrandom::fill(&mut random).ok().and_then(|()| {
            let listener = Listener::bind(format!("{:016x}", u64::from_le_bytes(random))).ok()?;
            poller.add(&listener, Source::Advisors, EventFlags::IN).ok()?;
            Some(listener)
        });
        Self {
            listener,
            links: BTreeMap::new(),
            next: 0,
            terminated: None,
            is_terminated: false,
        }
    }

    /// The variable by which a rank finds its agent.
    pub(super) fn value_for(&self, rank: Rank) -> Option<String> {
        Some(self.listener.as_ref()?.value_for(rank.0))
    }

    pub(super) fn is_terminated(&self) -> bool {
        self.is_terminated
    }

    pub(super) fn announce(&self, link: Option<u32>, end: AnnouncedEnd) {
        let message = match end {
            AnnouncedEnd::Notice { left_ms } => ToProgram::Notice {
                left_ms: left_ms.unwrap_or(NO_END),
            },
            AnnouncedEnd::Known { left_ms } => ToProgram::KnownEnd { left_ms },
        };
        for (number, advised) in &self.links {
            let is_meant = link.is_none_or(|link| link == *number);
            if is_meant && matches!(advised.known, Some((_, Kind::Advisor))) {
                // One that is gone is told of otherwise.
                let _ = advised.connection.send(message);
            }
        }
    }
}

impl Agent {
    pub(super) fn accept_advisors(&mut self) {
        let most = Advisors::LINKS_PER_RANK * (self.ranks.ios.len() + 1);
        while let Some(connection) = self.advisors.listener.as_ref().and_then(Listener::accept) {
            let number = self.advisors.next;
            let source = Source::Advised(number);
            let is_added = self.advisors.links.len() < most
                && self.poller.add(&connection, source, EventFlags::IN).is_ok();
            if is_added {
                self.advisors.next = number.wrapping_add(1);
                let advised = Advised {
                    connection,
                    known: None,
                    told: None,
                };
                self.advisors.links.insert(number, advised);
                // What it says first has come with it.
                self.read_advised(number);
            }
        }
    }

    /// Takes what came over a link. Returns whether there may be more.
    pub(super) fn read_advised(&mut self, number: u32) -> bool {
        for _ in 0..Advisors::MESSAGES_PER_TURN {
            let Some(advised) = self.advisors.links.get_mut(&number) else {
                return false;
            };
            let message = match advised.connection.receive() {
                Ok(Some(message)) => message,
                Ok(None) => return false,
                Err(_) => {
                    self.forget_advised(number);
                    return false;
                }
            };
            let (rank, news) = match (message, advised.known) {
                (ToAgent::Hello { rank, kind }, None) if self.ranks.indices.contains_key(&Rank(rank)) => {
                    advised.known = Some((Rank(rank), kind));
                    let news = match kind {
                        Kind::Advisor => LinkNews::Advisor,
                        Kind::Store { directory } => LinkNews::Store { directory },
                    };
                    (Rank(rank), news)
                }
                (ToAgent::Steps(steps), Some((rank, _))) => {
                    let now = Instant::now();
                    if advised.told.is_some_and(|told| now < told + Advisors::STEPS) {
                        continue;
                    }
                    advised.told = Some(now);
                    (rank, LinkNews::Steps(steps))
                }
                (ToAgent::Committed { generation }, Some((rank, Kind::Store { .. }))) => {
                    (rank, LinkNews::Committed { generation })
                }
                (ToAgent::Saved, Some((rank, Kind::Advisor))) => (rank, LinkNews::Saved),
                // Whoever says something else is none of ours.
                _ => {
                    self.forget_advised(number);
                    return false;
                }
            };
            self.report_link(rank, number, news);
        }
        true
    }

    /// A rank is gone: what it said last counts.
    pub(super) fn close_advised(&mut self, rank: Rank) {
        self.accept_advisors();
        let is_of_rank = |advised: &Advised| advised.known.is_some_and(|(known, _)| known == rank);
        let links = self.advisors.links.iter();
        let links: Vec<u32> = links
            .filter(|(_, advised)| is_of_rank(advised))
            .map(|(number, _)| *number)
            .collect();
        for number in links {
            while self.read_advised(number) {}
            self.forget_advised(number);
        }
    }

    fn forget_advised(&mut self, number: u32) {
        if let Some(Advised {
            known: Some((rank, _)),
            ..
        }) = self.advisors.links.remove(&number)
        {
            self.report_link(rank, number, LinkNews::Gone);
        }
    }

    fn report_link(&mut self, rank: Rank, link: u32, news: LinkNews) {
        self.branch.report(Report::Link { rank, link, news });
    }

    /// Handles a signal for the job that somebody sent to this process: the launcher decides what comes of
    /// it. An agent without a launcher, or one that ends its ranks anyway, ends.
    pub(super) fn handle_signal_for_job(&mut self, signal: i32) {
        if signal == SIGTERM {
            let now = Instant::now();
            let first = *self.advisors.terminated.get_or_insert(now);
            if !self.branch.is_connected() || (self.mind.is_ending() && now > first + Advisors::SAME) {
                self.advisors.is_terminated = true;
                return;
            }
        }
        self.branch.report(Report::Signalled { signal });
    }
}
