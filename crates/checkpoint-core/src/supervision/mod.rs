//! The supervision of a job that saves: numbers its starts, judges its attempts and sums up what saving cost.

mod account;
mod reached;
#[cfg(test)]
mod tests;

use core::time::Duration;

pub use account::{Account, LastWord, LastWords};
pub use reached::Progress;

use crate::{COMMAND_BITS, Held, History, MTBF_AT_FIRST, Mtbf, Record, Totals};
use reached::Reached;

/// Decides what the journal of a supervised job notes, how far its attempts came and what they cost.
///
/// Events come in through `handle_*`; the records that they return are to be written to the journal. For each attempt
/// the order is [`handle_preparing`](Self::handle_preparing), [`handle_started`](Self::handle_started), then as often
/// as wanted [`handle_saved`](Self::handle_saved). An attempt that another follows ends with
/// [`progress`](Self::progress) and [`handle_failed`](Self::handle_failed). The last one ends with
/// [`last_records`](Self::last_records) and [`handle_over`](Self::handle_over); then [`account`](Self::account) sums
/// the job up. Times are since the start of the command.
#[derive(Clone, Debug)]
pub struct Supervision {
    options: SupervisionOptions,
    /// The same for all attempts of this command but for the attempt's number in the low bits.
    base: u64,
    current: Current,
    past: PastAttempts,
    reached: Reached,
    before: Totals,
    before_elsewhere: Option<Totals>,
    quarantined: u64,
}

/// The user's wishes about a supervised job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SupervisionOptions {
    /// The mean time between failures; learned from a default guess if `None`.
    pub mtbf: Option<Mtbf>,
    /// The mean time between losses of a host, for which copies are made; learned from a default guess if `None`.
    pub host_mtbf: Option<Mtbf>,
    /// Each host has a directory of its own, and hosts copy what others save.
    pub has_partners: bool,
}

/// The attempt that runs or is being prepared.
#[derive(Clone, Copy, Debug, Default)]
struct Current {
    number: u32,
    start: u64,
    began: Duration,
    from: Option<Held>,
    newest: Option<Held>,
    default_mtbf: f64,
}

/// Attempts that are over: the first ones, and sums over all.
#[derive(Clone, Debug, Default)]
struct PastAttempts {
    first: Vec<PastAttempt>,
    count: u64,
    failures: u64,
    repeated: u64,
    lasted: Duration,
}

/// An attempt that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastAttempt {
    /// When it began.
    pub began: Duration,
    /// How long it lasted.
    pub lasted: Duration,
    /// It did not end as planned.
    pub failed: bool,
    /// The step from which it began.
    pub from_step: u64,
    /// The newest step that was saved at its end.
    pub to_step: u64,
}

/// The end of an attempt, as far as it matters for checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptEnd {
    /// A rank failed.
    Failed,
    /// A host was lost.
    HostLost,
    /// The job was done, or ended because somebody wanted it to.
    Planned,
    /// The same failed again at the same step, which says nothing about how often the machine fails.
    Repeated,
}

impl AttemptEnd {
    /// Returns the same for an attempt that another follows, which is a failure in any case.
    fn of_failure(self) -> Self {
        match self {
            Self::Planned => Self::Failed,
            end => end,
        }
    }

    /// Returns the records of a failure after `ran` seconds.
    fn records(self, ran: f64) -> Vec<Record> {
        match self {
            Self::Failed | Self::Planned => vec![Record::Failed { ran }],
            Self::HostLost => vec![Record::Failed { ran }, Record::HostLost],
            Self::Repeated => vec![Record::Repeated { ran }],
        }
    }
}

impl Supervision {
    /// The number of attempts whose times are kept.
    pub const ATTEMPTS_KEPT_MAX: usize = 200;

    /// Begins the supervision by a command. `command` differs from that of every other command of the job, such as the
    /// nanoseconds since 1970; its highest bits are not used.
    pub fn new(command: u64, options: SupervisionOptions) -> Self {
        Self {
            options,
            base: command << COMMAND_BITS,
            current: Current::default(),
            past: PastAttempts::default(),
            reached: Reached::default(),
            before: Totals::default(),
            before_elsewhere: None,
            quarantined: 0,
        }
    }

    /// Attempt `number`, from 1, is prepared for so many hosts: returns the number of its start.
    pub fn handle_preparing(&mut self, number: u32, hosts: usize) -> u64 {
        let start = self.base | (u64::from(number) & ((1 << COMMAND_BITS) - 1));
        self.current = Current {
            number,
            start,
            default_mtbf: MTBF_AT_FIRST / hosts.max(1) as f64,
            // Until it starts, what is known is of the attempt before.
            ..self.current
        };
        start
    }

    /// The guess of the mean time between failures in seconds that follows from the number of hosts.
    pub fn default_mtbf(&self) -> f64 {
        self.current.default_mtbf
    }

    /// The user's wishes.
    pub fn options(&self) -> &SupervisionOptions {
        &self.options
    }

    /// The mean time between losses of a host in seconds, to judge by the journal.
    pub fn host_mtbf(&self, history: &History) -> f64 {
        let told = self.options.host_mtbf;
        history.believed_host_mtbf(told.unwrap_or(Mtbf::Learned(self.current.default_mtbf)))
    }

    /// The journal on rank 0's host says this of the time before the attempt; that of the first one is kept.
    pub fn handle_before_elsewhere(&mut self, before: Option<Totals>) {
        if self.current.number == 1 {
            self.before_elsewhere = before;
        }
    }

    /// The prepared attempt begins from a save, or from the beginning; so many parts of saves were put aside for that.
    pub fn handle_started(&mut self, now: Duration, from: Option<Held>, quarantined: u64) -> Vec<Record> {
        self.current.began = now;
        self.current.from = from;
        self.current.newest = from;
        self.quarantined += quarantined;
        let start = self.current.start;
        vec![Record::Start { start }]
    }

    /// The journal here, once the start of an attempt is in it: the first one's says what happened before this command.
    pub fn handle_journal(&mut self, history: &History) {
        if self.current.number == 1 {
            self.before = *history.totals();
        }
    }

    /// All ranks have saved this.
    pub fn handle_saved(&mut self, held: Held) {
        self.current.newest = Some(held);
    }

    /// The newest save of all ranks, if `on_disk` is the newest that lies here.
    pub fn newest(&self, on_disk: Option<Held>) -> Option<Held> {
        let told = self.current.newest;
        [told, on_disk]
            .into_iter()
            .flatten()
            .max_by_key(|held| held.generation)
    }

    /// The attempt has failed: judges how far it came by the newest save here and the journal. Called once per attempt.
    pub fn progress(&mut self, on_disk: Option<Held>, journal: Option<&History>) -> Progress {
        let step = |held: Held| held.step;
        let (from, newest) = (self.current.from.map(step), self.newest(on_disk).map(step));
        let done = journal.and_then(History::open_steps).and_then(|(start, steps)| {
            // Without an advisor nobody has told any.
            (start >> COMMAND_BITS == self.base >> COMMAND_BITS && steps > 0).then_some(steps)
        });
        self.reached.ended(from, newest, done)
    }

    /// An attempt that another follows has ended.
    pub fn handle_failed(
        &mut self,
        began: Duration,
        lasted: Duration,
        end: AttemptEnd,
        on_disk: Option<Held>,
    ) -> Vec<Record> {
        let end = end.of_failure();
        self.note_end(began, lasted, end, on_disk);
        end.records(lasted.as_secs_f64())
    }

    /// The records that a journal lacks when the job is over at `now`: the program need not have one of its own.
    pub fn last_records(&self, now: Duration, end: AttemptEnd, history: &History) -> Vec<Record> {
        let lasted = now.saturating_sub(self.current.began).as_secs_f64();
        match (history.open_ran(), end) {
            (None, _) => Vec::new(),
            (Some(ran), AttemptEnd::Planned) => {
                let seconds = (lasted - ran).max(0.0);
                vec![Record::Ran { seconds }, Record::Ended]
            }
            (Some(_), end) => end.records(lasted),
        }
    }

    /// The job is over, and no attempt follows.
    pub fn handle_over(&mut self, now: Duration, end: AttemptEnd, on_disk: Option<Held>) {
        let began = self.current.began;
        self.note_end(began, now.saturating_sub(began), end, on_disk);
    }

    fn note_end(&mut self, began: Duration, lasted: Duration, end: AttemptEnd, on_disk: Option<Held>) {
        let newest = self.newest(on_disk);
        let failed = end != AttemptEnd::Planned;
        let from_step = self.current.from.map_or(0, |held| held.step);
        let past = &mut self.past;
        past.count += 1;
        past.lasted += lasted;
        past.repeated += u64::from(end == AttemptEnd::Repeated);
        past.failures += u64::from(failed);
        if past.first.len() < Self::ATTEMPTS_KEPT_MAX {
            past.first.push(PastAttempt {
                began,
                lasted,
                failed,
                from_step,
                to_step: newest.map_or(0, |held| held.step).max(from_step),
            });
        }
    }
}
