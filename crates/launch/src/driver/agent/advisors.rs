//! Advisors and stores of checkpoints on this host.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use ropewalk_agent_link::{Connection, Kind, Listener, NO_END, ToAgent, ToProgram};
use ropewalk_launch_core::protocol::{AnnouncedEnd, LinkNews, Report};
use ropewalk_names::Rank;
use rustix::event::epoll::EventFlags;

use super::{
    poller::{Poller, Source},
    rank_table::RankTable,
};
use crate::driver::branch::Branch;

/// The links to them.
pub(super) struct Advisors {
    /// Nothing if the system refuses one: then they go without.
    listener: Option<Listener>,
    links: BTreeMap<u32, Advised>,
    next: u32,
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
        }
    }

    /// The variable by which a rank finds its agent.
    pub(super) fn value_for(&self, rank: Rank) -> Option<String> {
        Some(self.listener.as_ref()?.value_for(rank.0))
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

    /// Takes new links, and what came over them.
    pub(super) fn accept(&mut self, ranks: &RankTable, poller: &Poller, branch: &mut Branch) {
        let most = Self::LINKS_PER_RANK * (ranks.ios.len() + 1);
        while let Some(connection) = self.listener.as_ref().and_then(Listener::accept) {
            let number = self.next;
            let source = Source::Advised(number);
            let is_added = self.links.len() < most && poller.add(&connection, source, EventFlags::IN).is_ok();
            if is_added {
                self.next = number.wrapping_add(1);
                let advised = Advised {
                    connection,
                    known: None,
                    told: None,
                };
                self.links.insert(number, advised);
                // What it says first has come with it.
                self.read(number, ranks, branch);
            }
        }
    }

    /// Takes what came over a link. Returns whether there may be more.
    pub(super) fn read(&mut self, number: u32, ranks: &RankTable, branch: &mut Branch) -> bool {
        for _ in 0..Self::MESSAGES_PER_TURN {
            let Some(advised) = self.links.get_mut(&number) else {
                return false;
            };
            let message = match advised.connection.receive() {
                Ok(Some(message)) => message,
                Ok(None) => return false,
                Err(_) => {
                    self.forget(number, branch);
                    return false;
                }
            };
            let (rank, news) = match (message, advised.known) {
                (ToAgent::Hello { rank, kind }, None) if ranks.indices.contains_key(&Rank(rank)) => {
                    advised.known = Some((Rank(rank), kind));
                    let news = match kind {
                        Kind::Advisor => LinkNews::Advisor,
                        Kind::Store { directory } => LinkNews::Store { directory },
                    };
                    (Rank(rank), news)
                }
                (ToAgent::Steps(steps), Some((rank, _))) => {
                    let now = Instant::now();
                    if advised.told.is_some_and(|told| now < told + Self::STEPS) {
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
                    self.forget(number, branch);
                    return false;
                }
            };
            branch.report(Report::Link {
                rank,
                link: number,
                news,
            });
        }
        true
    }

    /// A rank is gone: what it said last counts.
    pub(super) fn close(&mut self, rank: Rank, ranks: &RankTable, poller: &Poller, branch: &mut Branch) {
        self.accept(ranks, poller, branch);
        let is_of_rank = |advised: &Advised| advised.known.is_some_and(|(known, _)| known == rank);
        let links = self.links.iter();
        let links: Vec<u32> = links
            .filter(|(_, advised)| is_of_rank(advised))
            .map(|(number, _)| *number)
            .collect();
        for number in links {
            while self.read(number, ranks, branch) {}
            self.forget(number, branch);
        }
    }

    fn forget(&mut self, number: u32, branch: &mut Branch) {
        if let Some(Advised {
            known: Some((rank, _)),
            ..
        }) = self.links.remove(&number)
        {
            branch.report(Report::Link {
                rank,
                link: number,
                news: LinkNews::Gone,
            });
        }
    }
}
