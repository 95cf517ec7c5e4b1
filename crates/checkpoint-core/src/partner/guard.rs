//! The copies that one host makes, and the generations that it lets go.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use super::{
    Part,
    protection::Protection,
    ring::{guarded_by, partner_of, without_ranks},
    whole::whole_on,
};
use crate::generation::{Held, KEEP_MIN};

/// Decides for one host, again and again, what it asks, copies and removes.
///
/// Tell it with [`handle_own`](Self::handle_own) the parts in the own directory, then take actions with
/// [`poll`](Self::poll) until there is none. Actions that take time are only begun then: tell once the
/// outcome of each [`Ask`](Action::Ask) with [`handle_parts`](Self::handle_parts) or
/// [`handle_silence`](Self::handle_silence), and that of each [`Copy`](Action::Copy) with
/// [`handle_copied`](Self::handle_copied) or [`handle_not_copied`](Self::handle_not_copied), whenever it is
/// known. [Retired](Action::Retire) generations have to be gone before the next call. Then wait for one of
/// these outcomes, or until [`next_deadline`](Self::next_deadline). Times are since any fixed moment.
#[derive(Clone, Debug)]
pub struct Guard {
    options: GuardOptions,
    others: BTreeMap<usize, Other>,
    own: BTreeSet<Part>,
    protection: Protection,
    without_ranks: BTreeSet<usize>,
    /// Whose parts this host copies while none is gone.
    guarded_at_first: Option<usize>,
    /// The part that is being copied.
    copying: Option<Part>,
    /// Parts that could not be copied, and when to try again.
    put_off: BTreeMap<Part, (Duration, u32)>,
    notices: Vec<Action>,
    /// Since when this host has waited for others to copy what is pending, and what that was.
    held: Option<(Duration, BTreeSet<u64>)>,
    is_behind_told: bool,
}

/// The facts that a guard knows from the start.
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
    /// The older generations that are left if a host is lost
    /// ([`Recovery::fallbacks`](super::Recovery::fallbacks)).
    pub fallbacks: BTreeSet<u64>,
    /// The number from which on they save. What is between the two, or older, is not copied.
    pub next: u64,
}

/// An action that a guard wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask a host which parts it has. It is not asked again before its answer, or silence, is told.
    Ask {
        /// Which host.
        host: usize,
    },
    /// Copy a part from a host. There is one such at a time, and its generation stays meanwhile.
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
    /// A host has not copied for long what the others have. The others go on without it, and the saves made
    /// now may not outlive the loss of a host.
    Behind {
        /// Which host.
        host: usize,
    },
}

#[derive(Clone, Debug, Default)]
struct Other {
    parts: BTreeSet<Part>,
    ask_at: Duration,
    is_asked: bool,
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
        let mut guard = Self {
            others: others.map(|host| (host, Other::default())).collect(),
            own: BTreeSet::new(),
            protection: Protection::new(&options),
            without_ranks: without_ranks(options.hosts, &options.host_of_rank),
            guarded_at_first: None,
            copying: None,
            put_off: BTreeMap::new(),
            notices: Vec::new(),
            held: None,
            is_behind_told: false,
            options,
        };
        guard.guarded_at_first = guard.guarded();
        guard
    }

    /// The own directory has these parts now.
    pub fn handle_own(&mut self, parts: BTreeSet<Part>) {
        self.own = parts;
        self.protection.learn(self.options.host, &self.own);
    }

    /// A host has said which parts it has.
    pub fn handle_parts(&mut self, now: Duration, host: usize, parts: BTreeSet<Part>) {
        let period = self.period(host);
        let before = self.guarded();
        let Some(other) = self.others.get_mut(&host) else {
            return;
        };
        // A part that is gone, should it come back, is tried at once.
        self.put_off
            .retain(|part, _| parts.contains(part) || !other.parts.contains(part));
        other.parts = parts;
        other.silences = 0;
        other.is_asked = false;
        other.ask_at = now + period;
        self.protection.learn(host, &other.parts);
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
        other.is_asked = false;
        other.ask_at = now + if other.is_gone() { ASK_GONE } else { ASK_AGAIN };
        let guarded = self.guarded();
        // Of many hosts one says it.
        if guarded != before {
            self.notices.push(Action::Lost { host, guarded });
        }
    }

    /// A part was copied, and is in the own directory.
    pub fn handle_copied(&mut self, part: Part) {
        self.copying = None;
        self.put_off.remove(&part);
        self.own.insert(part);
        self.protection.learn(self.options.host, &self.own);
    }

    /// A part could not be copied: it is gone, or torn, or there is no room.
    pub fn handle_not_copied(&mut self, now: Duration, part: Part) {
        self.copying = None;
        let (again, failures) = self.put_off.entry(part).or_default();
        *again = now + COPY_AGAIN * 2u32.saturating_pow((*failures).min(DOUBLINGS_MAX));
        *failures = failures.saturating_add(1);
    }

    /// The next thing to do; nothing for now if `None`.
    pub fn poll(&mut self, now: Duration) -> Option<Action> {
        if !self.notices.is_empty() {
            return Some(self.notices.remove(0));
        }
        if let Some(host) = self.due(now) {
            return Some(Action::Ask { host });
        }
        let generations = self.retirement();
        if !generations.is_empty() {
            self.own.retain(|part| !generations.contains(&part.generation));
            self.protection.learn(self.options.host, &self.own);
            return Some(Action::Retire { generations });
        }
        let is_held = self.is_held(now);
        if let Some(notice) = self.notices.pop() {
            return Some(notice);
        }
        if self.copying.is_some() {
            return None;
        }
        let (from, part) = self.next_copy(now, is_held)?;
        self.copying = Some(part);
        Some(Action::Copy { from, part })
    }

    /// A host that is to be asked now. A host that is gone takes long to be silent again, and does not keep
    /// the others waiting.
    fn due(&mut self, now: Duration) -> Option<usize> {
        let (gone, there): (Vec<_>, Vec<_>) = self.others.iter_mut().partition(|(_, other)| other.is_gone());
        let due = |others: Vec<(&usize, &mut Other)>| {
            let asked = others.iter().filter(|(_, other)| other.is_asked).count();
            let mut others = others.into_iter().filter(|_| asked < ASKED_MAX);
            let (&host, other) = others.find(|(_, other)| !other.is_asked && other.ask_at <= now)?;
            other.is_asked = true;
            Some(host)
        };
        due(there).or_else(|| due(gone))
    }

    /// Returns true if this host waits for others to copy the pending generations. If that lasts, it goes on
    /// as well as it can.
    fn is_held(&mut self, now: Duration) -> bool {
        if !self.protection.is_full() {
            self.held = None;
            return false;
        }
        let pending = self.protection.pending();
        let held = self.held.take().filter(|(_, held)| *held == pending);
        let (since, pending) = held.unwrap_or((now, pending));
        self.held = Some((since, pending));
        let is_held = now.saturating_sub(since) < HELD_MAX;
        let awaited = self.protection.awaited();
        // Of many hosts one says it, and once.
        let partner = partner_of(self.options.host, self.options.hosts, &self.without_ranks);
        if let Some(host) = awaited.filter(|&host| !is_held && !self.is_behind_told && Some(host) == partner)
        {
            self.is_behind_told = true;
            self.notices.push(Action::Behind { host });
        }
        is_held
    }

    /// When there may be something to do again, if nothing is told before.
    pub fn next_deadline(&self, now: Duration) -> Duration {
        // Who should have been asked by now waits for the answers of others.
        let others = self
            .others
            .values()
            .filter(|other| !other.is_asked && other.ask_at > now);
        let asks = others.map(|other| other.ask_at);
        asks.chain([now + ASK_GUARDED]).min().unwrap_or(now)
    }

    /// The host whose parts this one copies now.
    pub fn guarded(&self) -> Option<usize> {
        let Self { options, .. } = self;
        let is_in_ring = !self.without_ranks.contains(&options.host);
        let guarded = || guarded_by(options.host, options.hosts, &self.outside());
        is_in_ring.then(guarded).flatten()
    }

    /// The newest generation of which each rank's part is on some host that is not gone.
    pub fn newest(&self) -> Option<Held> {
        let others = self.others.values().filter(|other| !other.is_gone());
        let others = others.map(|other| &other.parts);
        let whole = whole_on(others.chain([&self.own]), self.ranks());
        whole.into_iter().next_back().map(|(_, held)| held)
    }

    /// The newest generation of which each rank's part is known to be on two hosts, or on one if no other is left.
    pub fn protected(&self) -> Option<u64> {
        let is_alone = self.others.values().all(Other::is_gone);
        match is_alone {
            true => self.newest().map(|held| held.generation),
            false => self.protection.protected().last().copied(),
        }
    }

    /// The own generations that may go: those older than the newest protected one, except the protected one
    /// before it, and most of the others, so that the disk does not fill. Of the others go fast ones, which
    /// are copied only if ranks have started from one, and those with copies if the copies lag far behind.
    ///
    /// Pending generations stay, see [`Protection`]. So do the newest that are whole by the last answers of
    /// all hosts: they are enough if no host is lost. The generation that is being copied stays as well: a
    /// copy is of use only beside the saves of the own ranks.
    ///
    /// The generation that ranks started from stays until it or a newer one is protected. So do the
    /// generations that are left without one of the hosts.
    fn retirement(&self) -> BTreeSet<u64> {
        let protected = self.protection.protected();
        let newest_protected = protected.last().copied();
        let has_enough = protected.len() == KEEP_MIN;
        let mut kept = protected | &self.protection.pending();
        kept.extend(self.copying.map(|part| part.generation));
        let all = self.others.values().map(|other| &other.parts).chain([&self.own]);
        let whole = whole_on(all, self.ranks()).into_keys().rev().take(KEEP_MIN);
        let Self { options, .. } = self;
        let before = options.base.iter().chain(&options.fallbacks).copied();
        let before = before.filter(|_| newest_protected < options.base);
        let last_resort: BTreeSet<u64> = whole.chain(before).collect();

        let is_copied = |part: &Part| self.protection.is_copied(part);
        let own: BTreeMap<u64, bool> = (self.own.iter())
            .map(|part| (part.generation, is_copied(part)))
            .collect();
        let (mut copied, mut fast, mut first) = (0, 0, None);
        let newest_first = own.into_iter().rev();
        let may_go = newest_first.filter(|&(generation, is_copied)| {
            if kept.contains(&generation) {
                return false;
            }
            if has_enough && Some(generation) < newest_protected {
                return true;
            }
            let is_beyond = if is_copied {
                // To copy it may take as long as it takes to save many others.
                let precedence = Some(precedence(generation));
                let is_first = precedence > first;
                first = first.max(precedence);
                copied += 1;
                copied > NEWEST_KEPT && !is_first
            } else {
                fast += 1;
                fast > FAST_MAX
            };
            is_beyond && !last_resort.contains(&generation)
        });
        may_go.map(|(generation, _)| generation).collect()
    }

    fn ranks(&self) -> u32 {
        self.options.host_of_rank.len() as u32
    }

    /// A part of the guarded host's ranks that is not here: of the generation that has precedence, newest
    /// first. A guard that falls behind then leaves out the same generations as all others that do, so that
    /// there are always some of which nobody has left out a part.
    fn next_copy(&self, now: Duration, is_held: bool) -> Option<(usize, Part)> {
        let from = self.guarded()?;
        let Self { options, .. } = self;
        let of_host = |part: &&Part| options.host_of_rank.get(part.rank as usize) == Some(&from);
        let mut theirs: BTreeMap<u64, Vec<Part>> = BTreeMap::new();
        for part in self.others[&from].parts.iter().filter(of_host) {
            theirs.entry(part.generation).or_default().push(*part);
        }
        let ranks = options.host_of_rank.iter().filter(|&&host| host == from).count();
        theirs.retain(|_, parts| parts.len() == ranks);
        let is_here = |parts: &[Part]| parts.iter().all(|part| self.own.contains(part));
        // What is older than one that is here as a whole is not worth the way.
        let newest_here = theirs.iter().rev().find(|(_, parts)| is_here(parts));
        let newest_here = newest_here.map(|(&generation, _)| generation);
        // What the ranks started from is copied, of whatever level it is: the time to the next copy is counted from
        // there.
        let is_wanted = |generation: u64, parts: &[Part]| {
            let is_new = generation >= options.next || options.base == Some(generation);
            is_new && parts.iter().all(|part| self.protection.is_copied(part))
        };
        // In place of a host that is gone anything is copied: that protects nothing, which is for all hosts to do.
        let is_let_in = |generation| {
            self.guarded_at_first != Some(from) || (!is_held && self.protection.lets_in(generation))
        };
        let missing = theirs
            .into_iter()
            .filter(|(generation, parts)| Some(*generation) > newest_here && is_wanted(*generation, parts))
            .filter(|(generation, _)| is_let_in(*generation))
            .filter_map(|(generation, parts)| {
                let missing = parts.into_iter().find(|part| !self.own.contains(part))?;
                let is_put_off = self.put_off.get(&missing).is_some_and(|(again, _)| *again > now);
                (!is_put_off).then_some((generation, missing))
            });
        let (_, part) = missing.max_by_key(|(generation, _)| (precedence(*generation), *generation))?;
        Some((from, part))
    }

    /// The hosts that the ring goes past.
    fn outside(&self) -> BTreeSet<usize> {
        &self.gone() | &self.without_ranks
    }

    fn gone(&self) -> BTreeSet<usize> {
        let gone = self.others.iter().filter(|(_, other)| other.is_gone());
        gone.map(|(&host, _)| host).collect()
    }

    fn period(&self, host: usize) -> Duration {
        let Self { options, .. } = self;
        let is_partner = partner_of(options.host, options.hosts, &self.outside()) == Some(host);
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

/// The time until a host that is gone is asked again, since it may be back.
const ASK_GONE: Duration = Duration::from_secs(10);

/// So many hosts are asked at once, and so many that are gone.
const ASKED_MAX: usize = 32;

/// As many questions in a row go unanswered until a host counts as gone.
const SILENCES_MAX: u32 = 2;

/// Until the first second try of a copy; each further one is twice as late.
const COPY_AGAIN: Duration = Duration::from_secs(1);
const DOUBLINGS_MAX: u32 = 6;

/// The number of the newest generations to be copied that are kept beside the pending ones. Of older ones
/// each is kept that has precedence over all newer ones.
const NEWEST_KEPT: usize = 4;

/// The precedence of a generation if there are more than can be copied, the same on all hosts. One in 2^n of
/// the copied generations has a precedence of at least n, evenly spread, whatever steps their numbers take
/// (multiplicative hashing by the golden ratio; Knuth, The Art of Computer Programming, volume 3, section
/// 6.4).
fn precedence(generation: u64) -> u32 {
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    generation
        .wrapping_mul(GOLDEN)
        .leading_zeros()
        .min(PRECEDENCE_MAX)
}

const PRECEDENCE_MAX: u32 = 8;

/// So long a host waits for others to copy what is pending.
const HELD_MAX: Duration = Duration::from_secs(60);

/// So many fast ones are kept: the newest may not be there on all hosts yet, and the one before it may turn out torn.
const FAST_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn part(generation: u64, rank: u32) -> Part {
        Part::of_two(generation, rank)
    }

    /// The parts of host 1: all of its own rank's up to `upto`, and copies of the other's.
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
            fallbacks: BTreeSet::new(),
            next: 1,
        })
    }

    /// A host copies a generation and is lost with its disk before this host hears of that copy. This host
    /// keeps the generation, however many it saves until it knows of the loss: the generation is whole here,
    /// and those that look newer are not.
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
        assert_eq!(guard.protected(), Some(2));
        let generations = [1].into();
        assert_eq!(guard.poll(ms(250)), Some(Action::Retire { generations }));
        assert_eq!(guard.poll(ms(250)), copy(5));
        guard.handle_copied(part(5, 0));
        // Host 0 copies part(5, 1) now, and is lost.
        assert_eq!(guard.poll(ms(250)), copy(6));
        guard.handle_not_copied(ms(250), part(6, 0));
        assert_eq!(guard.poll(ms(250)), None);

        guard.handle_own(own(14, &[2, 5]));
        assert_eq!(guard.poll(ms(700)), Some(Action::Ask { host: 0 }));
        guard.handle_silence(ms(700), 0);
        // The sixth is whole too, by what host 0 has last said.
        let generations = [1, 3, 4, 7, 8, 9, 10].into();
        assert_eq!(guard.poll(ms(700)), Some(Action::Retire { generations }));
        assert_eq!(guard.poll(ms(700)), None);
    }

    /// Pulled generations that may be protected stay, however many more the own rank saves.
    #[test]
    fn own_saves_do_not_push_out_copies() {
        let mut guard = guard_of_two();
        guard.handle_silence(ms(0), 0);
        guard.handle_own(own(20, &[2, 4, 6]));
        // Beside the newest four the thirteenth has precedence.
        let generations = [1, 3, 5].into_iter().chain(7..=12).chain(14..=16).collect();
        assert_eq!(guard.poll(ms(0)), Some(Action::Retire { generations }));
        assert_eq!(guard.poll(ms(0)), None);
    }

    /// While the other host copies nothing, this host pulls no more than it can keep, but not for ever. It
    /// pulls at once when the other has copied something.
    #[test]
    fn a_host_waits_for_one_that_does_not_copy() {
        let theirs = |copied: Option<u64>| -> BTreeSet<Part> {
            let copied = copied.map(|generation| part(generation, 1));
            (1..=16)
                .map(|generation| part(generation, 0))
                .chain(copied)
                .collect()
        };
        let hear = |guard: &mut Guard, now, copied| {
            assert_eq!(guard.poll(now), Some(Action::Ask { host: 0 }));
            guard.handle_parts(now, 0, theirs(copied));
        };
        let copy = Some(Action::Copy {
            from: 0,
            part: part(13, 0),
        });
        let mut guard = guard_of_two();
        guard.handle_own(own(16, &[1, 2, 3, 4, 5, 6, 7, 8]));
        hear(&mut guard, ms(0), None);
        assert!(matches!(guard.poll(ms(0)), Some(Action::Retire { .. })));
        assert_eq!(guard.poll(ms(0)), None);
        hear(&mut guard, ms(59_000), None);
        assert_eq!(guard.poll(ms(59_000)), None);
        let mut patient = guard.clone();

        hear(&mut guard, ms(60_000), None);
        assert_eq!(guard.poll(ms(60_000)), Some(Action::Behind { host: 0 }));
        assert_eq!(guard.poll(ms(60_000)), copy);
        guard.handle_copied(part(13, 0));
        let next = guard.poll(ms(60_000));
        assert!(
            matches!(next, Some(Action::Copy { .. })),
            "what it has waited for stays: {next:?}"
        );

        hear(&mut patient, ms(59_500), Some(8));
        assert_eq!(patient.protected(), Some(8));
        let passed_over = (1..8).collect();
        let retire = Action::Retire {
            generations: passed_over,
        };
        assert_eq!(patient.poll(ms(59_500)), Some(retire));
        assert_eq!(patient.poll(ms(59_500)), copy);
    }
}
