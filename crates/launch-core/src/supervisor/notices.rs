//! Ends that are announced to advisors of checkpoints, and the words of advisors and stores.
//!
//! A job with an advisor that is to end is first asked to save. It is ended when the save is committed, or
//! when its grace is nearly over. A job without an advisor is ended at once.

use std::{collections::BTreeMap, time::Duration};

use ropewalk_names::{HostId, Rank};

use super::ground::Ground;
use crate::{
    event::JobEvent,
    job::JobSpec,
    protocol::{AnnouncedEnd, Down, LinkNews, Order},
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
    /// The time that the job may take.
    pub(super) limit: Option<Duration>,
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

impl Notices {
    /// Nobody is known yet; the job may take until `limit`.
    pub(super) fn new(limit: Option<Duration>) -> Self {
        Self {
            grace: JobSpec::GRACE,
            limit,
            allocation_end: None,
            links: BTreeMap::new(),
            under_way: None,
            is_saved: false,
        }
    }

    /// How long ranks have to end, and how long the batch system gives the job.
    pub(super) fn set(&mut self, grace: Duration, allocation: Option<Duration>) {
        self.grace = grace;
        self.allocation_end = allocation.map(|left| {
            // Who has hardly any time has at least half of it.
            left - (grace + SCRIPT).min(left / 2)
        });
    }

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

    /// An advisor or a store says something. Returns why the job is to end, if all has been saved for that.
    pub(super) fn handle_link(
        &mut self,
        now: Duration,
        ground: &mut Ground,
        (host, rank, link): (HostId, Rank, u32),
        news: LinkNews,
    ) -> Option<Ending> {
        let newest_of_rank = || self.newest_of(rank);
        match (news, self.links.get(&(host, link)).map(|link| &link.kind)) {
            (LinkNews::Advisor, None) => {
                let kind = Kind::Advisor { saved: None };
                self.links.insert((host, link), Link { rank, kind });
                self.announce_to(now, ground, host, link);
            }
            (LinkNews::Store { directory }, None) => {
                let newest = None;
                let kind = Kind::Store { directory, newest };
                self.links.insert((host, link), Link { rank, kind });
            }
            (LinkNews::Committed { generation }, Some(&Kind::Store { directory, newest })) => {
                let newest = newest.max(Some(generation));
                let kind = Kind::Store { directory, newest };
                self.links.insert((host, link), Link { rank, kind });
            }
            (LinkNews::Saved, Some(Kind::Advisor { .. })) => {
                let saved = Some(newest_of_rank());
                let kind = Kind::Advisor { saved };
                self.links.insert((host, link), Link { rank, kind });
            }
            (LinkNews::Gone, _) => {
                self.links.remove(&(host, link));
                let has_time = self.under_way.as_ref();
                if has_time.is_some_and(|notice| notice.end_at.is_none()) && !self.has_advisor() {
                    // Nobody is left who could save, and nobody ends the job by force.
                    self.under_way = None;
                }
            }
            _ => {}
        }
        if !ground.is_running() || !self.have_all_saved() {
            return None;
        }
        self.is_saved = true;
        Some(self.under_way.as_ref()?.ending.clone())
    }

    /// SIGUSR1 says that the end comes, but not when: the job saves at the end of its step, however long that
    /// is, and then ends.
    pub(super) fn is_notice(&mut self, now: Duration, ground: &mut Ground, signal: i32) -> bool {
        signal == SIGUSR1 && self.give(now, ground, &Ending::Interrupted(signal), None)
    }

    /// Asks the job to save before it is ended, with SIGKILL at `kill_at` if that is known. Nothing happens,
    /// and `false` is returned, if there is nobody to be asked, or the job is being ended.
    pub(super) fn give(
        &mut self,
        now: Duration,
        ground: &mut Ground,
        ending: &Ending,
        kill_at: Option<Duration>,
    ) -> bool {
        if !ground.is_running() || !self.has_advisor() {
            return false;
        }
        let before = self.under_way.take();
        let is_news = before
            .as_ref()
            .is_none_or(|before| match (before.kill_at, kill_at) {
                (None, Some(_)) => true,
                (Some(before), Some(kill_at)) => kill_at < before,
                (_, None) => false,
            });
        self.under_way = match before {
            Some(before) if !is_news => Some(before),
            _ => Some(Notice {
                ending: ending.clone(),
                end_at: kill_at.map(|at| at.saturating_sub(self.grace / REST_PART).max(now)),
                kill_at,
            }),
        };
        if is_news {
            self.is_saved = false;
            for link in self.links.values_mut() {
                if let Kind::Advisor { saved } = &mut link.kind {
                    *saved = None;
                }
            }
            if let Some(end) = self.announced(now) {
                let link = None;
                ground.send(Down::Order(Order::Announce { link, end }));
            }
            let left = kill_at.map(|at| at.saturating_sub(now));
            let ending = ending.clone();
            ground.tell(JobEvent::EndAnnounced { ending, left });
        }
        true
    }

    /// The job is being ended: says why and when its ranks are killed. If it was asked to save, that was the reason.
    pub(super) fn take(&mut self, now: Duration, ending: Ending) -> (Ending, Duration) {
        let grace_end = now + self.grace;
        match self.under_way.take() {
            Some(notice) => {
                let kill_at = notice.kill_at.map_or(grace_end, |at| at.min(grace_end));
                (notice.ending, kill_at.max(now))
            }
            None => (ending, grace_end),
        }
    }

    /// When the job is ended or asked to save.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let notice = self.under_way.as_ref().and_then(|notice| notice.end_at);
        notice.into_iter().chain(self.known_end()).min()
    }

    /// Asks the job to save when its time is over, or returns why it is to end now.
    pub(super) fn handle_timeout(&mut self, now: Duration, ground: &mut Ground) -> Option<Ending> {
        let due = |at: Option<Duration>| at.is_some_and(|at| at <= now);
        if let Some(notice) = self.under_way.as_ref().filter(|notice| due(notice.end_at)) {
            return Some(notice.ending.clone());
        }
        let ending = match self.limit {
            Some(limit) if limit <= now => Ending::TimedOut(limit),
            _ if due(self.allocation_end()) => Ending::AllocationOver,
            _ => return None,
        };
        (self.limit, self.allocation_end) = (None, None);
        // It knew when that would be, and may have saved.
        let kill_at = now + self.grace;
        let waits = !self.is_saved && self.give(now, ground, &ending, Some(kill_at));
        (!waits).then_some(ending)
    }

    /// Only a job that can be started again from what it saved is ended before the batch system does it.
    fn allocation_end(&self) -> Option<Duration> {
        self.allocation_end.filter(|_| self.has_advisor())
    }

    fn known_end(&self) -> Option<Duration> {
        self.limit.into_iter().chain(self.allocation_end()).min()
    }

    /// Tells an advisor that has just come what the others know.
    fn announce_to(&self, now: Duration, ground: &mut Ground, host: HostId, link: u32) {
        let known = self.known_end().map(|end| AnnouncedEnd::Known {
            left_ms: milliseconds(end.saturating_sub(now)),
        });
        for end in known.into_iter().chain(self.announced(now)) {
            let link = Some(link);
            ground.order(host, Order::Announce { link, end });
        }
    }

    fn announced(&self, now: Duration) -> Option<AnnouncedEnd> {
        let notice = self.under_way.as_ref()?;
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
