//! Ends that are announced: what advisors of checkpoints are told, and what they and stores say.
//!
//! A job with an advisor that is to end is first asked to save. It is ended when the save is committed, or when its grace is
//! nearly over. A job without an advisor is ended at once.

use std::{collections::BTreeMap, time::Duration};

use ropewalk_names::{HostId, Rank};

use super::{Action, Phase, SIGTERM, Supervisor};
use crate::{
    event::JobEvent,
    job::JobSpec,
    protocol::{AnnouncedEnd, Down, LinkNews, Order},
    tree::NodeId,
    verdict::Ending,
};

const SIGUSR1: i32 = 10;

/// Between SIGTERM and SIGKILL ranks have at least this part of the grace, when a notice has led to no save.
const REST_PART: u32 = 10;
/// A batch script has this time to start the job again, before its allocation is over.
const SCRIPT: Duration = Duration::from_secs(5);

/// The known advisors and stores, and the end that was announced.
#[derive(Debug)]
pub(super) struct Notices {
    pub(super) grace: Duration,
    /// When the job ends if it has an advisor, since the batch system will end it.
    allocation_end: Option<Duration>,
    /// By the host, and the number there.
    links: BTreeMap<(HostId, u32), Link>,
    under_way: Option<Notice>,
    is_saved: bool,
}

#[derive(Debug)]
struct Link {
    rank: Rank,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// With the newest generations of its rank's stores when it had saved.
    Advisor { saved: Option<BTreeMap<u16, u64>> },
    /// With its newest generation.
    Store { directory: u16, newest: Option<u64> },
}

/// The job was asked to save.
#[derive(Debug)]
struct Notice {
    ending: Ending,
    /// It is ended then without a save; if `None`, it has the time that it needs.
    end_at: Option<Duration>,
    kill_at: Option<Duration>,
}

impl Default for Notices {
    fn default() -> Self {
        Self {
            grace: JobSpec::GRACE,
            allocation_end: None,
            links: BTreeMap::new(),
            under_way: None,
            is_saved: false,
        }
    }
}

impl Notices {
    /// True if a checkpoint was committed for the end.
    pub(super) fn is_saved(&self) -> bool {
        self.is_saved
    }

    /// A rank is gone, and whatever it had.
    pub(super) fn forget_rank(&mut self, rank: Rank) {
        self.links.retain(|_, link| link.rank != rank);
    }

    /// The clock stood still while the job was suspended, but that of the batch system did not.
    pub(super) fn handle_resumed(&mut self, suspended: Duration) {
        self.allocation_end = self.allocation_end.map(|end| end.saturating_sub(suspended));
    }

    fn has_advisor(&self) -> bool {
        self.links
            .values()
            .any(|link| matches!(link.kind, Kind::Advisor { .. }))
    }

    /// True if all advisors have saved, and all stores have committed the same generations.
    fn have_all_saved(&self) -> bool {
        let mut targets: BTreeMap<u16, u64> = BTreeMap::new();
        for link in self.links.values() {
            match &link.kind {
                Kind::Advisor { saved: Some(saved) } => {
                    for (&directory, &generation) in saved {
                        let target = targets.entry(directory).or_default();
                        *target = generation.max(*target);
                    }
                }
                Kind::Advisor { saved: None } => return false,
                Kind::Store { .. } => {}
            }
        }
        self.has_advisor()
            && self.links.values().all(|link| match link.kind {
                Kind::Store { directory, newest } => targets
                    .get(&directory)
                    .is_none_or(|&target| newest >= Some(target)),
                Kind::Advisor { .. } => true,
            })
    }

    /// The newest generations of a rank's stores.
    fn newest_of(&self, of: Rank) -> BTreeMap<u16, u64> {
        let links = self.links.values().filter(|link| link.rank == of);
        let newest = links.filter_map(|link| match link.kind {
            Kind::Store { directory, newest } => Some((directory, newest?)),
            Kind::Advisor { .. } => None,
        });
        newest.collect()
    }
}

impl Supervisor {
    /// How long ranks have to end, and how long the batch system gives the job.
    pub fn set_notices(&mut self, grace: Duration, allocation: Option<Duration>) {
        self.notices.grace = grace;
        self.notices.allocation_end = allocation.map(|left| {
            // Who has hardly any time has at least half of it.
            left - (grace + SCRIPT).min(left / 2)
        });
    }

    /// An advisor or a store says something.
    pub(super) fn handle_link(&mut self, now: Duration, host: HostId, rank: Rank, link: u32, news: LinkNews) {
        let newest_of_rank = || self.notices.newest_of(rank);
        match (news, self.notices.links.get(&(host, link)).map(|link| &link.kind)) {
            (LinkNews::Advisor, None) => {
                let kind = Kind::Advisor { saved: None };
                self.notices.links.insert((host, link), Link { rank, kind });
                self.announce_to(now, host, link);
            }
            (LinkNews::Store { directory }, None) => {
                let newest = None;
                let kind = Kind::Store { directory, newest };
                self.notices.links.insert((host, link), Link { rank, kind });
            }
            (LinkNews::Committed { generation }, Some(&Kind::Store { directory, newest })) => {
                let newest = newest.max(Some(generation));
                let kind = Kind::Store { directory, newest };
                self.notices.links.insert((host, link), Link { rank, kind });
            }
            (LinkNews::Saved, Some(Kind::Advisor { .. })) => {
                let saved = Some(newest_of_rank());
                let kind = Kind::Advisor { saved };
                self.notices.links.insert((host, link), Link { rank, kind });
            }
            (LinkNews::Gone, _) => {
                self.notices.links.remove(&(host, link));
                let has_time = self.notices.under_way.as_ref();
                if has_time.is_some_and(|notice| notice.end_at.is_none()) && !self.notices.has_advisor() {
                    // Nobody is left who could save, and nobody ends the job by force.
                    self.notices.under_way = None;
                }
            }
            _ => {}
        }
        if self.phase == Phase::Running && self.notices.have_all_saved() {
            self.notices.is_saved = true;
            if let Some(notice) = &self.notices.under_way {
                let ending = notice.ending.clone();
                self.end(now, ending, SIGTERM);
            }
        }
    }

    /// A signal for the ranks came, which is a notice if it is SIGUSR1 and somebody can save.
    pub fn handle_user_signal(&mut self, now: Duration, signal: i32) {
        let forward = Order::Forward { signal };
        if !self.is_notice(now, signal) {
            self.actions.push_back(Action::Send(Down::Order(forward)));
        }
    }

    /// The agent of a host was sent a signal.
    pub(super) fn handle_agent_signalled(&mut self, now: Duration, host: HostId, signal: i32) {
        match signal {
            SIGTERM => self.handle_interrupt(now, signal),
            _ if self.is_notice(now, signal) => {}
            _ => {
                let forward = Order::Forward { signal };
                let node = NodeId::of(host);
                self.actions.push_back(Action::Send(Down::To(node, forward)));
            }
        }
    }

    /// SIGUSR1 says that the end comes, but not when: the job saves at the end of its step, however long that is, and then ends.
    fn is_notice(&mut self, now: Duration, signal: i32) -> bool {
        signal == SIGUSR1 && self.notice(now, &Ending::Interrupted(signal), None)
    }

    /// Asks the job to save before it is ended, with SIGKILL at `kill_at` if that is known. Nothing happens, and `false` is
    /// returned, if there is nobody to be asked, or the job is being ended.
    pub(super) fn notice(&mut self, now: Duration, ending: &Ending, kill_at: Option<Duration>) -> bool {
        if self.phase != Phase::Running || !self.notices.has_advisor() {
            return false;
        }
        let before = self.notices.under_way.take();
        let is_news = before
            .as_ref()
            .is_none_or(|before| match (before.kill_at, kill_at) {
                (None, Some(_)) => true,
                (Some(before), Some(kill_at)) => kill_at < before,
                (_, None) => false,
            });
        self.notices.under_way = match before {
            Some(before) if !is_news => Some(before),
            _ => Some(Notice {
                ending: ending.clone(),
                end_at: kill_at.map(|at| at.saturating_sub(self.notices.grace / REST_PART).max(now)),
                kill_at,
            }),
        };
        if is_news {
            self.notices.is_saved = false;
            for link in self.notices.links.values_mut() {
                if let Kind::Advisor { saved } = &mut link.kind {
                    *saved = None;
                }
            }
            let end = self.announced_notice(now);
            self.actions.extend(end.map(|end| {
                let link = None;
                Action::Send(Down::Order(Order::Announce { link, end }))
            }));
            let left = kill_at.map(|at| at.saturating_sub(now));
            let ending = ending.clone();
            self.tell(JobEvent::EndAnnounced { ending, left });
        }
        true
    }

    /// The job is being ended: says why and when its ranks are killed. If it was asked to save, that was the reason.
    pub(super) fn take_notice(&mut self, now: Duration, ending: Ending) -> (Ending, Duration) {
        let grace_end = now + self.notices.grace;
        match self.notices.under_way.take() {
            Some(notice) => {
                let kill_at = notice.kill_at.map_or(grace_end, |at| at.min(grace_end));
                (notice.ending, kill_at.max(now))
            }
            None => (ending, grace_end),
        }
    }

    /// When the job is ended or asked to save.
    pub(super) fn end_deadline(&self) -> Option<Duration> {
        let notice = self.notices.under_way.as_ref().and_then(|notice| notice.end_at);
        notice.into_iter().chain(self.known_end()).min()
    }

    /// Ends the job, or asks it to save, when the time has come.
    pub(super) fn look_for_end(&mut self, now: Duration) {
        let due = |at: Option<Duration>| at.is_some_and(|at| at <= now);
        if let Some(notice) = self
            .notices
            .under_way
            .as_ref()
            .filter(|notice| due(notice.end_at))
        {
            let ending = notice.ending.clone();
            return self.end(now, ending, SIGTERM);
        }
        let ending = match self.limit {
            Some(limit) if limit <= now => Ending::TimedOut(limit),
            _ if due(self.allocation_end()) => Ending::AllocationOver,
            _ => return,
        };
        (self.limit, self.notices.allocation_end) = (None, None);
        // It knew when that would be, and may have saved.
        let kill_at = now + self.notices.grace;
        if self.notices.is_saved || !self.notice(now, &ending, Some(kill_at)) {
            self.end(now, ending, SIGTERM);
        }
    }

    /// Only a job that can be started again from what it saved is ended before the batch system does it.
    fn allocation_end(&self) -> Option<Duration> {
        self.notices.allocation_end.filter(|_| self.notices.has_advisor())
    }

    fn known_end(&self) -> Option<Duration> {
        self.limit.into_iter().chain(self.allocation_end()).min()
    }

    /// Tells an advisor that has just come what the others know.
    fn announce_to(&mut self, now: Duration, host: HostId, link: u32) {
        let known = self.known_end().map(|end| AnnouncedEnd::Known {
            left_ms: milliseconds(end.saturating_sub(now)),
        });
        for end in known.into_iter().chain(self.announced_notice(now)) {
            let link = Some(link);
            let order = Order::Announce { link, end };
            self.actions
                .push_back(Action::Send(Down::To(NodeId::of(host), order)));
        }
    }

    fn announced_notice(&self, now: Duration) -> Option<AnnouncedEnd> {
        let notice = self.notices.under_way.as_ref()?;
        // Without a time of its own a notice leaves no more time than there is.
        let end = notice.end_at.or_else(|| self.known_end());
        let left_ms = end.map(|end| milliseconds(end.saturating_sub(now)));
        Some(AnnouncedEnd::Notice { left_ms })
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
