//! The command's ear for its workers.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::anyhow;
use ropewalk_launch::{JobEvent, Launcher, OutputStream, Verdict};
use ropewalk_names::Rank;

use super::{arrays::Kind, word::Word};
use ropewalk_output_file::OutputFile;

/// Listens to workers, and ends those that are silent.
pub(super) struct Watch<'a> {
    output: &'a OutputFile,
    silence_max: Duration,
    /// The ranks that live, and when each was heard last; one that has not said a word may take a while.
    heard: BTreeMap<Rank, Instant>,
    /// Those that wait for a file.
    slow: BTreeSet<Rank>,
    /// How much each rank has sent of the result, and of how much.
    results: BTreeMap<Rank, (u64, u64)>,
    told: Told,
}

impl<'a> Watch<'a> {
    pub(super) fn new(output: &'a OutputFile, silence_max: Duration) -> Self {
        Self {
            output,
            silence_max,
            heard: BTreeMap::new(),
            slow: BTreeSet::new(),
            results: BTreeMap::new(),
            told: Told::default(),
        }
    }

    /// Listens until all are gone.
    ///
    /// # Errors
    /// If the launcher fails, or what workers send of the result cannot be written.
    pub(super) fn follow(mut self, launcher: &mut Launcher) -> anyhow::Result<(Told, Verdict)> {
        let patience = self.silence_max / 4;
        let mut looked = Instant::now();
        let mut wait = Duration::ZERO;
        loop {
            match launcher.next_event(Some(wait))? {
                Some(JobEvent::Finished(outcome)) => return Ok((self.told, outcome.verdict)),
                Some(event) => {
                    self.handle(event, launcher)?;
                    wait = Duration::ZERO;
                }
                // All that was said until now was heard.
                None => {
                    let since = looked.elapsed();
                    if since >= patience {
                        match since < self.silence_max {
                            true => self.end_silent(launcher)?,
                            // This process stood still, and the others perhaps too.
                            false => self
                                .heard
                                .values_mut()
                                .for_each(|heard| *heard = (*heard).max(Instant::now())),
                        }
                        looked = Instant::now();
                    }
                    wait = patience;
                }
            }
        }
    }

    fn handle(&mut self, event: JobEvent, launcher: &Launcher) -> anyhow::Result<()> {
        match event {
            JobEvent::Started { rank, .. } => {
                self.heard
                    .insert(rank, Instant::now() + self.silence_max * START_FACTOR);
            }
            JobEvent::Departed { departure, .. } => {
                self.heard.remove(&departure.rank);
                self.slow.remove(&departure.rank);
            }
            JobEvent::Output {
                rank,
                stream: OutputStream::Stdout,
                line,
            } => {
                if let Some(heard) = self.heard.get_mut(&rank) {
                    *heard = Instant::now();
                }
                if let Some(word) = Word::decode(&line) {
                    self.hear(rank, word, launcher)?;
                }
            }
            // Panics, perhaps. If nobody reads them the reduction goes on.
            JobEvent::Output { line, .. } => drop(io::stderr().write_all(&line)),
            _ => {}
        }
        Ok(())
    }

    fn hear(&mut self, rank: Rank, word: Word, launcher: &Launcher) -> anyhow::Result<()> {
        let told = &mut self.told;
        match word {
            Word::Beat => {}
            Word::Begin { length } => drop(self.results.insert(rank, (0, length))),
            Word::Data(bytes) => {
                if let Some((at, _)) = self.results.get_mut(&rank) {
                    let content = self.output.content();
                    let written = content.write_all_at(&bytes, *at);
                    written.map_err(|error| anyhow!("cannot write the result: {error}"))?;
                    *at += bytes.len() as u64;
                }
            }
            Word::Error(error) => drop(told.error.get_or_insert(error)),
            Word::Fault(fault) => drop(told.fault.get_or_insert(fault)),
            Word::Kind(kind) => drop(told.kind.get_or_insert(kind)),
            Word::Missing { files, reasons } => {
                told.missing.insert(rank, files.into_iter().collect());
                told.reason = told.reason.take().or(reasons.into_iter().next());
            }
            Word::Slow(path) => {
                self.slow.insert(rank);
                let after = self.silence_max.as_secs_f64();
                let text = format!("it has waited for {path} for {after} s");
                if self.heard.keys().any(|other| !self.slow.contains(other)) {
                    end(rank, &text, launcher)?;
                } else {
                    eprintln!("ropewalk reduce: rank {rank}: {text}; there is nobody else who could read it");
                }
            }
            // All who write one write the same.
            Word::Written => told.is_written = true,
        }
        Ok(())
    }

    /// Ends the workers of which nothing is heard: the agents end those that a signal has stopped, but others are
    /// frozen, or get no time.
    fn end_silent(&mut self, launcher: &Launcher) -> anyhow::Result<()> {
        // So that agents come first, who know more.
        let silence_max = self.silence_max * 2;
        let silent = self
            .heard
            .iter()
            .filter(|(_, heard)| heard.elapsed() > silence_max);
        let silent: Vec<_> = silent.map(|(rank, _)| *rank).collect();
        for rank in silent {
            let text = format!("it said nothing for {} s", silence_max.as_secs_f64());
            self.heard.remove(&rank);
            end(rank, &text, launcher)?;
        }
        Ok(())
    }
}

/// All that the workers have told.
#[derive(Default)]
pub(super) struct Told {
    pub(super) is_written: bool,
    pub(super) error: Option<String>,
    fault: Option<String>,
    pub(super) kind: Option<Kind>,
    /// For each rank the files that it cannot open, and a reason.
    missing: BTreeMap<Rank, BTreeSet<u32>>,
    reason: Option<String>,
}

impl Told {
    /// The fault of a file, if there is one.
    pub(super) fn fault(&self, inputs: &[PathBuf], verdict: &Verdict) -> Option<String> {
        if self.fault.is_some() {
            return self.fault.clone();
        }
        // A rank that has not said it can open them all, or died before.
        let missing = (0..verdict.ranks).map(|rank| self.missing.get(&Rank(rank)));
        let missing = missing.collect::<Option<Vec<_>>>()?;
        let nobodys = missing
            .into_iter()
            .cloned()
            .reduce(|nobodys, missing| &nobodys & &missing)?;
        let path = &inputs[*nobodys.first()? as usize];
        let reason = self.reason.as_deref().unwrap_or("it cannot be read");
        Some(format!("{}: no host can open it: {reason}", path.display()))
    }
}

fn end(rank: Rank, why: &str, launcher: &Launcher) -> anyhow::Result<()> {
    const SIGKILL: i32 = 9;
    let host = launcher.host_of(rank).unwrap_or_default();
    eprintln!("ropewalk reduce: rank {rank} on host {host} is ended: {why}");
    Ok(launcher.signal(rank, SIGKILL)?)
}

/// How many times as long a process may take for its first word.
const START_FACTOR: u32 = 10;
