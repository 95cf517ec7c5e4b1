//! The sum of a supervised job.

use core::time::Duration;

use super::{AttemptEnd, PastAttempt, Supervision};
use crate::{Failing, History, Level, Mtbf, Totals};

/// A supervised job, seen from its end. Times are in seconds unless they are durations.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// The sums of the journal over this command, if it could be had.
    pub totals: Option<Totals>,
    /// Saves failed at the end.
    pub failing: Option<Failing>,
    /// How long all attempts took together.
    pub attempts_lasted: Duration,
    /// How long programs took to start, until their advisors began.
    pub starting: f64,
    /// The mean time between failures that the program believed in at the end.
    pub mtbf: f64,
    /// It was given, and not learned.
    pub mtbf_is_known: bool,
    /// The mean time between failures by which the program decided.
    pub cautious_mtbf: f64,
    /// How long a save took on average, if the program measured any.
    pub save: Option<f64>,
    /// How long the last restore took.
    pub restore: Option<f64>,
    /// How many parts of saves were put aside.
    pub quarantined: u64,
    /// The first attempts.
    pub attempts: Vec<PastAttempt>,
    /// How many attempts there were.
    pub attempt_count: u64,
    /// How many of them failed.
    pub failures: u64,
    /// How many of those were the same again, and no event of the mean time between failures.
    pub repeated: u64,
}

/// The journals that hosts tell when a job is over, of which one is chosen.
#[derive(Clone, Debug)]
pub struct LastWords {
    writer: usize,
    best: Option<History>,
}

/// The journal of a job as another host has it.
#[derive(Clone, Debug)]
pub enum LastWord {
    /// The copy that knows most: the host that wrote the journal does not answer.
    Copy(History),
    /// From the host that wrote it.
    Own(History),
}

impl LastWords {
    /// Waits for the journals of a job whose journal is written on the host `writer`.
    pub fn of_writer(writer: usize) -> Self {
        Self { writer, best: None }
    }

    /// A host tells its journal. Returns the writer's own, after which no other matters.
    pub fn handle_told(&mut self, host: usize, history: History) -> Option<LastWord> {
        if host == self.writer {
            return Some(LastWord::Own(history));
        }
        let best = self.best.as_ref();
        if best.is_none_or(|best| history.knowledge() > best.knowledge()) {
            self.best = Some(history);
        }
        None
    }

    /// No other host tells in time: the copy that knows most, if there is any.
    pub fn into_best(self) -> Option<LastWord> {
        self.best.map(LastWord::Copy)
    }
}

impl Supervision {
    /// Sums up a job that is over at `now`. `here` is the journal here with its last records, `told` what a host told.
    pub fn account(&self, now: Duration, end: AttemptEnd, here: &History, told: Option<LastWord>) -> Account {
        let told = told.map(|word| self.completed(word, now, end));
        let measured = self.measured(told, here);
        let history = measured.as_ref().map_or(here, |(history, _)| history);
        let mut saves = history.saves(Level::Full).to_vec();
        if self.options.has_partners {
            // What is copied is saved in the same way as what is not.
            saves.extend(history.saves(Level::Fast));
        }
        let save = (!saves.is_empty()).then(|| saves.iter().sum::<f64>() / saves.len() as f64);
        // The program decided by what it was told itself.
        let told = history.told().or(self.options.mtbf);
        let told = told.unwrap_or(Mtbf::Learned(self.current.default_mtbf));
        let totals = measured
            .as_ref()
            .map(|(history, before)| history.totals().since(before));
        Account {
            totals,
            failing: history.failing(),
            attempts_lasted: self.past.lasted,
            starting: history.starting(self.current.start),
            mtbf: history.believed_mtbf(told),
            mtbf_is_known: matches!(told, Mtbf::Known(_)),
            cautious_mtbf: history.cautious_mtbf(told, save.unwrap_or(1.0)),
            save,
            restore: history.restore(),
            quarantined: self.quarantined,
            attempts: self.past.first.clone(),
            attempt_count: self.past.count,
            failures: self.past.failures,
            repeated: self.past.repeated,
        }
    }

    /// Adds to a journal from elsewhere the records that it lacks.
    fn completed(&self, word: LastWord, now: Duration, end: AttemptEnd) -> LastWord {
        let add = |mut history: History| {
            let last = self.last_records(now, end, &history);
            last.into_iter().for_each(|record| history.add(record));
            history
        };
        match word {
            LastWord::Copy(history) => LastWord::Copy(add(history)),
            LastWord::Own(history) => LastWord::Own(add(history)),
        }
    }

    /// The journal with what saving cost, and what it said before this command. Rank 0 writes it on its host; with
    /// partners that need not be this one, whose journal says only how long attempts took.
    fn measured(&self, told: Option<LastWord>, here: &History) -> Option<(History, Totals)> {
        match told {
            Some(LastWord::Own(history)) => Some((history, self.before_elsewhere?)),
            Some(LastWord::Copy(history)) if history.knowledge() > here.knowledge() => {
                Some((history, self.before_elsewhere?))
            }
            _ => {
                let saved_here = here.totals().since(&self.before).saves > 0;
                let is_measured = !self.options.has_partners || saved_here;
                is_measured.then(|| (here.clone(), self.before))
            }
        }
    }
}
