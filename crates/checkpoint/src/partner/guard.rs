//! What one host copies, and what it lets go.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use super::{
    Part,
    holders::Holders,
    ring::{guarded_by, partner_of},
};
use crate::{
    advisor::Level,
    generation::{Held, KEEP_MIN},
};

/// Decides for one host, again and again, what it asks, copies and removes.
///
/// Tell it with [`handle_own`](Self::handle_own) what is in the own directory, then take actions with
/// [`poll`](Self::poll) until there is none, and tell what became of each before the next: of an
/// [`Ask`](Action::Ask) with [`handle_parts`](Self::handle_parts) or [`handle_silence`](Self::handle_silence), of a
/// [`Copy`](Action::Copy) with [`handle_copied`](Self::handle_copied) or
/// [`handle_not_copied`](Self::handle_not_copied). Then wait until [`next_deadline`](Self::next_deadline). Times are
/// since any fixed moment.
#[derive(Clone, Debug)]
pub struct Guard {
    options: GuardOptions,
    others: BTreeMap<usize, Other>,
    own: BTreeSet<Part>,
    /// The newest that ever were safe. Where a host is lost with its disk they are no more, but there is nothing better.
    known_safe: BTreeSet<u64>,
    /// Parts that could not be copied, and when to try again.
    put_off: BTreeMap<Part, (Duration, u32)>,
    notices: Vec<Action>,
}

/// What a guard knows from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardOptions {
    /// Which of the hosts this one is.
    pub host: usize,
    /// How many hosts there are.
    pub hosts: usize,
    /// On which host each rank runs.
    pub host_of_rank: Vec<usize>,
    /// The generation that the ranks started from.
    pub base: Option<u64>,
    /// The number from which on they save. What is between the two, or older, is not copied.
    pub next: u64,
}

/// What a guard wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask a host which parts it has.
    Ask {
        /// Which host.
        host: usize,
    },
    /// Copy a part from a host.
    Copy {
        /// From which host.
        from: usize,
        /// Which part.
        part: Part,
    },
    /// Remove the parts of these generations from the own directory, whosever they are.
    Retire {
        /// The generations.
        generations: BTreeSet<u64>,
    },
    /// A host does not answer any more, and this one takes its place as a partner.
    Lost {
        /// Which host.
        host: usize,
        /// Whose parts this one copies now; nobody's if it is alone.
        guarded: Option<usize>,
    },
    /// A host answers again, and what it saves is copied here again, or what the one before it saves is not any more.
    Found {
        /// Which host.
        host: usize,
    },
}

#[derive(Clone, Debug, Default)]
struct Other {
    parts: BTreeSet<Part>,
    ask_at: Duration,
    silences: u32,
}

impl Other {
    fn is_gone(&self) -> bool {
        self.silences >= SILENCES_MAX
    }
}

impl Guard {
    /// The guard of a host whose job has just started.
    pub fn new(options: GuardOptions) -> Self {
        let others = (0..options.hosts).filter(|&host| host != options.host);
        Self {
            others: others.map(|host| (host, Other::default())).collect(),
            options,
            own: BTreeSet::new(),
            known_safe: BTreeSet::new(),
            put_off: BTreeMap::new(),
            notices: Vec::new(),
        }
    }

    /// What is in the own directory now.
    pub fn handle_own(&mut self, parts: BTreeSet<Part>) {
        self.own = parts;
        self.learn_safe();
    }

    /// A host has said which parts it has.
    pub fn handle_parts(&mut self, now: Duration, host: usize, parts: BTreeSet<Part>) {
        let period = self.period(host);
        let before = self.guarded();
        let Some(other) = self.others.get_mut(&host) else {
            return;
        };
        // A part that is back, or new, is no longer one that could not be had.
        self.put_off
            .retain(|part, _| parts.contains(part) || !other.parts.contains(part));
        other.parts = parts;
        other.silences = 0;
        other.ask_at = now + period;
        self.learn_safe();
        if self.guarded() != before {
            self.notices.push(Action::Found { host });
        }
    }

    /// A host has not answered, or not in time.
    pub fn handle_silence(&mut self, now: Duration, host: usize) {
        let before = self.guarded();
        let Some(other) = self.others.get_mut(&host) else {
            return;
        };
        other.silences = other.silences.saturating_add(1);
        other.ask_at = now + if other.is_gone() { ASK_GONE } else { ASK_AGAIN };
        let guarded = self.guarded();
        // Of many hosts one says it.
        if guarded != before {
            self.notices.push(Action::Lost { host, guarded });
        }
    }

    /// A part was copied, and is in the own directory.
    pub fn handle_copied(&mut self, part: Part) {
        self.put_off.remove(&part);
        self.own.insert(part);
        self.learn_safe();
    }

    /// A part could not be copied: it is gone, or torn, or there is no room.
    pub fn handle_not_copied(&mut self, now: Duration, part: Part) {
        let (again, failures) = self.put_off.entry(part).or_default();
        *again = now + COPY_AGAIN * 2u32.saturating_pow((*failures).min(DOUBLINGS_MAX));
        *failures = failures.saturating_add(1);
    }

    /// The next thing to do; nothing for now if `None`.
    pub fn poll(&mut self, now: Duration) -> Option<Action> {
        if !self.notices.is_empty() {
            return Some(self.notices.remove(0));
        }
        let due = self.others.iter().find(|(_, other)| other.ask_at <= now);
        if let Some((&host, _)) = due {
            return Some(Action::Ask { host });
        }
        if let Some((from, part)) = self.next_copy(now) {
            return Some(Action::Copy { from, part });
        }
        let generations = self.retirement();
        if generations.is_empty() {
            return None;
        }
        self.own.retain(|part| !generations.contains(&part.generation));
        Some(Action::Retire { generations })
    }

    /// When there may be something to do again.
    pub fn next_deadline(&self, now: Duration) -> Duration {
        let asks = self.others.values().map(|other| other.ask_at);
        asks.chain([now + ASK_GUARDED]).min().unwrap_or(now)
    }

    /// The host whose parts this one copies now.
    pub fn guarded(&self) -> Option<usize> {
        guarded_by(self.options.host, self.options.hosts, &self.gone())
    }

    /// The newest generation of which each rank's part is on some host.
    pub fn newest(&self) -> Option<Held> {
        self.on_hosts(1).into_iter().next_back().map(|(_, held)| held)
    }

    /// The generations of which each rank's part is on two hosts, or on one if no other is left.
    pub fn safe(&self) -> BTreeSet<u64> {
        let hosts = if self.guarded().is_some() { 2 } else { 1 };
        self.on_hosts(hosts).into_keys().collect()
    }

    /// The own generations that may go: those older than the newest safe one, but for the newest safe ones before it, and of
    /// those that are not safe all but the newest, so that the disk does not fill: fast ones never are, and of the others
    /// there are many if copies lag far behind. Those with copies are counted apart, or what the own ranks save would push
    /// out what another host is just about to have. The newest that are whole, or would be without any one of the others,
    /// stay in any case: when a host is lost with its disk, none is safe any more, and before that is known what it had last
    /// said it has is gone, while the ranks of the others may go on saving what is of no use until the job is ended.
    fn retirement(&self) -> BTreeSet<u64> {
        let outliving = self.holders().outliving(self.options.host);
        let kept = &self.known_safe;
        let newest_safe = kept.last().copied().unwrap_or(0);
        let has_enough = kept.len() == KEEP_MIN;
        let own: BTreeSet<u64> = self.own.iter().map(|part| part.generation).collect();
        let old = own
            .range(..newest_safe)
            .filter(|&generation| has_enough && !kept.contains(generation));
        let is_base = |part: &Part| Some(part.generation) == self.options.base;
        let copied: BTreeSet<u64> = (self.own.iter())
            .filter(|part| part.level == Level::Full || is_base(part))
            .map(|part| part.generation)
            .collect();
        let newer = own.range(newest_safe + 1..).rev();
        let lagging = newer.filter(|&generation| copied.contains(generation));
        let with_copies = self.pulled();
        let (pulled, own_only): (Vec<&u64>, Vec<&u64>) =
            lagging.partition(|generation| with_copies.contains(generation));
        let lagging = [pulled, own_only].into_iter();
        let beyond_lag = lagging.flat_map(|newest_first| newest_first.into_iter().skip(LAG_MAX));
        let fast = own.iter().rev();
        let fast = fast.filter(|&generation| !copied.contains(generation) && !kept.contains(generation));
        let beyond = beyond_lag.chain(fast.skip(FAST_MAX));
        let beyond = beyond.filter(|&generation| !outliving.contains(generation));
        old.chain(beyond).copied().collect()
    }

    fn learn_safe(&mut self) {
        let safe = &self.safe() | &self.known_safe;
        self.known_safe = safe.into_iter().rev().take(KEEP_MIN).collect();
    }

    fn on_hosts(&self, enough: usize) -> BTreeMap<u64, Held> {
        self.holders().on_hosts(enough)
    }

    fn holders(&self) -> Holders<'_> {
        let others = self.others.iter().filter(|(_, other)| !other.is_gone());
        let others = others.map(|(&host, other)| (host, &other.parts));
        Holders::new(
            others.chain([(self.options.host, &self.own)]),
            self.options.host_of_rank.len(),
        )
    }

    /// The generations of which the parts of all ranks of some other host are here.
    fn pulled(&self) -> BTreeSet<u64> {
        let Self { options, .. } = self;
        let mut ranks_of: BTreeMap<usize, usize> = BTreeMap::new();
        for &host in &options.host_of_rank {
            *ranks_of.entry(host).or_default() += 1;
        }
        let mut copies: BTreeMap<(u64, usize), usize> = BTreeMap::new();
        for part in &self.own {
            let host = options.host_of_rank.get(part.rank as usize);
            if let Some(&host) = host.filter(|&&host| host != options.host) {
                *copies.entry((part.generation, host)).or_default() += 1;
            }
        }
        let all_here = copies
            .into_iter()
            .filter(|((_, host), count)| ranks_of.get(host) == Some(count));
        all_here.map(|((generation, _), _)| generation).collect()
    }

    /// A part of the guarded host's ranks that is not here: of the generation with the roundest number, newest first.
    /// A guard that falls behind then leaves out the same generations as all others that do, so that there are always some
    /// of which nobody has left out a part.
    fn next_copy(&self, now: Duration) -> Option<(usize, Part)> {
        let from = self.guarded()?;
        let of_host = |part: &&Part| self.options.host_of_rank.get(part.rank as usize) == Some(&from);
        let theirs: BTreeSet<&Part> = self.others[&from].parts.iter().filter(of_host).collect();
        // What the ranks started from is copied, of whatever level it is: the time to the next copy is counted from there.
        let wanted = |generation: u64, parts: &[Part]| {
            let is_new =
                generation >= self.options.next && parts.iter().all(|part| part.level == Level::Full);
            is_new || self.options.base == Some(generation)
        };
        let mut generations: BTreeMap<u64, Vec<Part>> = BTreeMap::new();
        for &&part in &theirs {
            generations.entry(part.generation).or_default().push(part);
        }
        let is_here = |parts: &[Part]| parts.iter().all(|part| self.own.contains(part));
        let ranks = self.options.host_of_rank.iter().filter(|&&host| host == from);
        let ranks = ranks.count();
        // What is older than one that is here as a whole is not worth the way.
        let newest_here = generations
            .iter()
            .rev()
            .find(|(_, parts)| parts.len() == ranks && is_here(parts))
            .map(|(&generation, _)| generation);
        let missing = generations
            .into_iter()
            .filter(|(generation, parts)| wanted(*generation, parts) && Some(*generation) > newest_here)
            .filter(|(_, parts)| parts.len() == ranks)
            .filter_map(|(generation, parts)| {
                let missing = parts.into_iter().find(|part| !self.own.contains(part))?;
                let is_put_off = self.put_off.get(&missing).is_some_and(|(again, _)| *again > now);
                (!is_put_off).then_some((generation, missing))
            });
        let (_, part) = missing.max_by_key(|(generation, _)| (generation.trailing_zeros(), *generation))?;
        Some((from, part))
    }

    fn gone(&self) -> BTreeSet<usize> {
        let gone = self.others.iter().filter(|(_, other)| other.is_gone());
        gone.map(|(&host, _)| host).collect()
    }

    fn period(&self, host: usize) -> Duration {
        let gone = self.gone();
        let Self { options, .. } = self;
        let is_partner = partner_of(options.host, options.hosts, &gone) == Some(host);
        if is_partner || self.guarded() == Some(host) {
            ASK_GUARDED
        } else {
            // All ask all: not so often that the answers cost something.
            ASK_OTHERS.max(ASK_OTHERS_OF_MANY * self.options.hosts as u32)
        }
    }
}

/// How long a part may wait until it is seen, and its copy until that is. To ask costs a message each way.
const ASK_GUARDED: Duration = Duration::from_millis(250);

/// Only what may be removed depends on the others.
const ASK_OTHERS: Duration = Duration::from_secs(1);

const ASK_OTHERS_OF_MANY: Duration = Duration::from_millis(20);

/// After a question without an answer.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Whether a host that did not answer is back.
const ASK_GONE: Duration = Duration::from_secs(10);

/// As many questions in a row go unanswered until a host counts as gone.
const SILENCES_MAX: u32 = 2;

/// Until the first second try of a copy; each further one is twice as late.
const COPY_AGAIN: Duration = Duration::from_secs(1);
const DOUBLINGS_MAX: u32 = 6;

/// So many generations that are to be copied may lie on their own hosts only, and so many more with copies here.
const LAG_MAX: usize = 8;

/// So many fast ones are kept: the newest may not be there on all hosts yet, and the one before it may turn out torn.
const FAST_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn part(generation: u64, rank: u32) -> Part {
        Part {
            generation,
            rank,
            step: generation,
            ranks: 2,
            level: Level::Full,
        }
    }

    /// What host 1 has: all of its own rank's up to one, and copies of the other's.
    fn own(upto: u64, copies: &[u64]) -> BTreeSet<Part> {
        let copies = copies.iter().map(|&generation| part(generation, 0));
        (1..=upto)
            .map(|generation| part(generation, 1))
            .chain(copies)
            .collect()
    }

    fn guard_of_two() -> Guard {
        Guard::new(GuardOptions {
            host: 1,
            hosts: 2,
            host_of_rank: vec![0, 1],
            base: None,
            next: 1,
        })
    }

    /// A host copies a generation and is lost with its disk before this one hears of that copy: this one keeps the generation,
    /// however many it saves until it knows of the loss, for it is whole here and what looks newer is not.
    #[test]
    fn what_is_whole_here_stays_when_a_host_falls_silent() {
        let mut guard = guard_of_two();
        guard.handle_own(own(2, &[]));
        assert_eq!(guard.poll(ms(0)), Some(Action::Ask { host: 0 }));
        guard.handle_parts(ms(0), 0, [part(1, 0), part(2, 0)].into());
        let copy = |generation| {
            Some(Action::Copy {
                from: 0,
                part: part(generation, 0),
            })
        };
        assert_eq!(guard.poll(ms(0)), copy(2));
        guard.handle_copied(part(2, 0));
        assert_eq!(guard.poll(ms(0)), None);

        guard.handle_own(own(6, &[2]));
        assert_eq!(guard.poll(ms(250)), Some(Action::Ask { host: 0 }));
        let theirs = (1..=6).map(|generation| part(generation, 0));
        guard.handle_parts(ms(250), 0, theirs.chain([part(2, 1)]).collect());
        assert_eq!(guard.safe(), [2].into());
        assert_eq!(guard.poll(ms(250)), copy(4));
        guard.handle_copied(part(4, 0));
        // Host 0 copies part(4, 1) now, and is lost.
        for generation in [6, 5] {
            assert_eq!(guard.poll(ms(250)), copy(generation));
            guard.handle_not_copied(ms(250), part(generation, 0));
        }
        assert_eq!(guard.poll(ms(250)), None);

        guard.handle_own(own(14, &[2, 4]));
        assert_eq!(guard.poll(ms(700)), Some(Action::Ask { host: 0 }));
        guard.handle_silence(ms(700), 0);
        let generations = [3].into();
        assert_eq!(guard.poll(ms(700)), Some(Action::Retire { generations }));
        assert_eq!(guard.poll(ms(700)), None);
    }

    /// What was pulled is counted apart from what only the own rank has saved: more of that does not push it out, though
    /// two that are newer were pulled too.
    #[test]
    fn own_saves_do_not_push_out_copies() {
        let mut guard = guard_of_two();
        guard.handle_silence(ms(0), 0);
        guard.handle_own(own(20, &[2, 4, 6]));
        let generations = [1, 3, 5].into_iter().chain(7..=12).collect();
        assert_eq!(guard.poll(ms(0)), Some(Action::Retire { generations }));
        assert_eq!(guard.poll(ms(0)), None);
    }
}
