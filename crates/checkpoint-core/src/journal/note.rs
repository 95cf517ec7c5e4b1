//! Records that change nothing of what happened, but say how to read it.

use crate::advisor::Mtbf;

use super::{History, SECONDS_MAX, lines::seconds};

/// A remark in a journal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Note {
    /// The mean time between failures by which the program's advisor decides.
    Told(Mtbf),
    /// The process of this start had run for so many seconds when its advisor began.
    Began {
        /// The number of the start.
        start: u64,
        /// Seconds.
        seconds: f64,
    },
}

impl Note {
    /// Its words.
    pub(super) fn encode(&self) -> String {
        match *self {
            Self::Told(Mtbf::Known(seconds)) => format!("mtbf-known {seconds}"),
            Self::Told(Mtbf::Learned(seconds)) => format!("mtbf-guess {seconds}"),
            Self::Began { start, seconds } => format!("began {start} {seconds}"),
        }
    }

    /// The note that begins with this word, of which these are the others.
    pub(super) fn parse<'a>(word: &str, mut next: impl FnMut() -> Option<&'a str>) -> Option<Self> {
        Some(match word {
            "mtbf-known" => Self::Told(Mtbf::Known(seconds(next()?)?)),
            "mtbf-guess" => Self::Told(Mtbf::Learned(seconds(next()?)?)),
            "began" => Self::Began {
                start: next()?.parse().ok()?,
                seconds: seconds(next()?)?,
            },
            _ => return None,
        })
    }
}

/// The notes of a journal, in short.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Notes {
    told: Option<Mtbf>,
    /// The command to which the last starts belonged, and how many seconds these took until their advisors began.
    command: u64,
    starting: f64,
}

impl Notes {
    pub(super) fn add(&mut self, note: Note) {
        match note {
            Note::Told(mtbf) => self.told = Some(mtbf),
            Note::Began { start, seconds } => {
                if start >> COMMAND_BITS != self.command {
                    self.command = start >> COMMAND_BITS;
                    self.starting = 0.0;
                }
                self.starting = (self.starting + seconds).min(SECONDS_MAX);
            }
        }
    }

    /// Notes that say the same.
    pub(super) fn notes(self) -> impl Iterator<Item = Note> {
        let began = (self.starting > 0.0).then_some(Note::Began {
            start: self.command << COMMAND_BITS,
            seconds: self.starting,
        });
        [self.told.map(Note::Told), began].into_iter().flatten()
    }
}

impl History {
    pub(super) fn note(&mut self, note: Note) {
        self.notes.add(note);
        if let (Note::Began { start, seconds }, Some(open)) = (note, &mut self.open) {
            open.ran += if open.start == start { seconds } else { 0.0 };
        }
    }

    /// The mean time between failures by which the program decided last, if it has an advisor.
    pub fn told(&self) -> Option<Mtbf> {
        self.notes.told
    }

    /// How many seconds the starts took until their advisors began, of the command to which this start belongs.
    pub fn starting(&self, start: u64) -> f64 {
        match self.notes.command == start >> COMMAND_BITS {
            true => self.notes.starting,
            false => 0.0,
        }
    }
}

/// All starts of a command have the same number but for so many bits, in which it counts its attempts.
pub const COMMAND_BITS: u32 = 20;

#[cfg(test)]
mod tests {
    use super::{super::Record, *};

    /// Notes survive that a journal is made short, and only the starts of the last command are summed up.
    #[test]
    fn notes_are_kept() {
        let mut history = History::default();
        let start = |command: u64, attempt| command << COMMAND_BITS | attempt;
        let records = [
            Record::Note(Note::Told(Mtbf::Learned(25.0))),
            Record::Note(Note::Began {
                start: start(1, 1),
                seconds: 9.0,
            }),
            Record::Note(Note::Began {
                start: start(2, 1),
                seconds: 2.0,
            }),
            Record::Start { start: start(2, 2) },
            Record::Note(Note::Began {
                start: start(2, 2),
                seconds: 3.0,
            }),
            Record::Note(Note::Told(Mtbf::Known(7.5))),
        ];
        for record in records {
            let line = record.encode();
            assert_eq!(Record::parse(line.trim_end().as_bytes()), Some(record), "{line}");
            history.add(record);
        }
        for history in [History::read(history.encode().as_bytes()), history] {
            assert_eq!(history.told(), Some(Mtbf::Known(7.5)));
            assert_eq!(history.starting(start(2, 9)), 5.0);
            assert_eq!(history.starting(start(1, 1)), 0.0);
            assert_eq!(history.open_ran(), Some(3.0));
        }
    }

    /// The time until a program's advisor begins is part of its run, but no lost work.
    #[test]
    fn starting_is_no_lost_work() {
        let mut history = History::default();
        let (start, seconds) = (1 << COMMAND_BITS, 2.0);
        history.add(Record::Start { start });
        history.add(Record::Note(Note::Began { start, seconds }));
        history.add(Record::Step { seconds: 3.0 });
        history.add(Record::Failed { ran: 6.0 });
        let totals = history.totals();
        assert_eq!((totals.exposure, totals.lost), (6.0, 4.0));
    }
}
