//! Runs whose state is saved by name.

mod buffer;
mod decisions;
mod error;
mod options;
mod restoring;
mod state;
mod state_file;
mod writer;

use ropewalk_checkpoint_core::{Level, Reason};

use decisions::Decisions;
use restoring::{Begun, restore};
use state::{copy_out, header_of};
use writer::Writer;

use crate::{
    background::Ended,
    coordination::{Alone, SharedDirectory},
    run_advisor::RunAdvisor,
    store::Store,
};

pub use error::RunError;
pub use options::RunOptions;
pub(crate) use state_file::is_partitioned;

pub use state::{Named, SavedValue, StateElement};

/// A run of steps that continues after each failure where its last save was.
///
/// The state is restored before the first step and saved when the advisor says so and after the last step. A save
/// copies the state and returns; a thread hashes and writes the copy, which needs as much memory as the state. After a
/// crash in that time the save before is restored.
///
/// All ranks of a job call the same functions, each with its own state. Rank 0 decides when to save; the ranks have
/// to see one directory.
///
/// A job restarts with as many ranks as saved it. With arrays that are marked as [`partitioned`](Named::partitioned) it
/// may go on with another number.
///
/// # Examples
/// ```
/// use ropewalk_checkpoint::{Named, RunOptions, SavedRun};
///
/// let folder = tempfile::tempdir()?;
/// let (mut heat, mut time) = (vec![0.0_f64; 100], 0.0_f64);
/// let mut run = SavedRun::open(RunOptions::of_job(Some(folder.path()))?)?;
/// while let Some(step) = run.step(1000, &mut [Named::array("heat", &mut heat), Named::number("time", &mut time)])? {
///     heat[step as usize % 100] += 1.0;
///     time += 0.5;
/// }
/// run.close(true)?;
/// # assert_eq!((heat[7], time), (10.0, 500.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SavedRun {
    options: RunOptions,
    phase: Phase,
    /// In rank 0, until the end.
    advisor: Option<RunAdvisor>,
    decisions: Option<Decisions>,
    /// How many steps are done.
    step: u64,
    is_in_step: bool,
    saves_begun: u64,
    failure: Option<RunError>,
}

#[derive(Debug)]
enum Phase {
    /// Nothing was restored or saved yet.
    Begun(Box<Store>),
    Running(Writer),
    /// It cannot restore.
    Refused,
}

impl SavedRun {
    /// Opens the directory. Nothing is read or moved.
    ///
    /// # Errors
    /// If the directory or the journal cannot be used, or options are missing.
    pub fn open(options: RunOptions) -> Result<Self, RunError> {
        let options = options.checked()?;
        let store = Store::open(options.store.clone())?;
        let advisor = match options.store.rank {
            0 => Some(options.advisor()?),
            _ => None,
        };
        Ok(Self {
            options,
            phase: Phase::Begun(Box::new(store)),
            advisor,
            decisions: None,
            step: 0,
            is_in_step: false,
            saves_begun: 0,
            failure: None,
        })
    }

    /// Restores the state from the newest save that all ranks have whole, and returns the number of steps that it had
    /// done: 0, with the state as it is, if there is no save. Another call only returns the number of steps done.
    ///
    /// # Errors
    /// If the save has other names, elements or shapes than the state, on this rank or another one, or cannot be
    /// distributed over these ranks: neither the state nor the save is changed then. If the directory cannot be used,
    /// or the ranks cannot agree.
    pub fn restore(&mut self, state: &mut [Named<'_>]) -> Result<u64, RunError> {
        let mut store = match std::mem::replace(&mut self.phase, Phase::Refused) {
            Phase::Begun(store) => store,
            Phase::Refused => return Err(RunError::Refused),
            running @ Phase::Running(_) => {
                self.phase = running;
                return Ok(self.step);
            }
        };
        let restored = self.restore_with(&mut store, state);
        if restored.as_ref().is_err_and(RunError::is_mismatch)
            && let Some(advisor) = self.advisor.take()
        {
            // The program is another one, and has not failed.
            advisor.finish();
        }
        let Begun { step, more } = restored?;
        let bytes = header_of(state)?.offsets().pop().unwrap_or_default();
        self.phase = Phase::Running(Writer::start(*store, more, bytes as usize));
        if let Some(step) = step {
            self.step = step;
            if let Some(advisor) = &mut self.advisor {
                advisor.restored();
            }
        }
        if self.options.store.ranks > 1 {
            let (store, start) = (&self.options.store, self.options.start()?);
            let decisions = Decisions::open(&store.directory, &start, store.rank, self.options.patience)?;
            self.decisions = Some(decisions);
        }
        Ok(self.step)
    }

    /// Ends the step that the last call has begun, if any, and begins the next of so many: returns its number, counted
    /// from 0, or `None` after the last. The first call restores the state; the last one waits until it is saved.
    ///
    /// A save that fails does not end the run: see [`take_failure`](Self::take_failure).
    ///
    /// # Errors
    /// Those of [`restore`](Self::restore), and if the last state could not be saved or rank 0 has ended.
    pub fn step(&mut self, steps: u64, state: &mut [Named<'_>]) -> Result<Option<u64>, RunError> {
        self.restore(state)?;
        if self.is_in_step {
            self.is_in_step = false;
            self.step += 1;
            self.end_step(steps, state)?;
        }
        if self.step < steps {
            self.is_in_step = true;
            return Ok(Some(self.step));
        }
        self.wait()?;
        self.failure.take().map_or(Ok(None), Err)
    }

    /// How many steps are done.
    pub fn steps_done(&self) -> u64 {
        self.step
    }

    /// How many saves this start of the program has begun.
    pub fn saves_begun(&self) -> u64 {
        self.saves_begun
    }

    /// The error of a save that failed since the last call. Saves made before stay as they are.
    pub fn take_failure(&mut self) -> Option<RunError> {
        self.failure.take()
    }

    /// Waits until no save is under way, and tells the advisor how it ended.
    ///
    /// # Errors
    /// If the thread that writes has ended.
    pub fn wait(&mut self) -> Result<(), RunError> {
        if let Phase::Running(writer) = &mut self.phase {
            let ended = writer.wait()?;
            self.hear(ended);
        }
        Ok(())
    }

    /// Ends the run after the save under way. `finished` says that it is done or was ended on purpose; otherwise the
    /// advisor counts a failure.
    ///
    /// # Errors
    /// If the last save failed and that was not told yet.
    pub fn close(mut self, finished: bool) -> Result<(), RunError> {
        let waited = self.wait();
        if let Some(advisor) = self.advisor.take().filter(|_| finished) {
            advisor.finish();
        }
        waited?;
        self.failure.take().map_or(Ok(()), Err)
    }

    fn restore_with(&self, store: &mut Store, state: &mut [Named<'_>]) -> Result<Begun, RunError> {
        let own = &self.options.store;
        if own.ranks == 1 {
            return restore(store, &mut Alone, state);
        }
        let (start, patience) = (self.options.start()?, self.options.patience);
        let mut others = SharedDirectory::new(&own.directory, &start, own.rank, own.ranks, patience);
        restore(store, &mut others, state)
    }

    fn end_step(&mut self, steps: u64, state: &mut [Named<'_>]) -> Result<(), RunError> {
        let Phase::Running(writer) = &mut self.phase else {
            return Err(RunError::Refused);
        };
        let ended = writer.look()?;
        self.hear(ended);
        let is_last = self.step >= steps;
        let (mut level, mut is_urgent) = (is_last.then_some(Level::Full), false);
        if let Some(advisor) = &mut self.advisor {
            advisor.set_remaining_steps(Some(steps.saturating_sub(self.step)));
            let advice = advisor.step_end();
            if advice.decision.save {
                level = Some(advice.level);
                is_urgent = matches!(
                    advice.decision.reason,
                    Reason::EndIsAnnounced | Reason::LimitIsNear
                );
            }
        }
        if let Some(decisions) = &mut self.decisions {
            match self.advisor {
                Some(_) => decisions.publish(self.step, level)?,
                None => level = decisions.wait(self.step)?,
            }
        }
        if let Some(level) = level {
            self.save(level, state)?;
            if is_urgent {
                self.wait()?;
            }
        }
        Ok(())
    }

    fn save(&mut self, level: Level, state: &[Named<'_>]) -> Result<(), RunError> {
        self.wait()?;
        if let Some(advisor) = &mut self.advisor {
            advisor.save_begin(level);
        }
        let Phase::Running(writer) = &mut self.phase else {
            return Err(RunError::Refused);
        };
        self.saves_begun += 1;
        let sent = writer.save(self.step, level, |buffer| copy_out(state, buffer));
        if let Some(advisor) = &mut self.advisor {
            match sent {
                Ok(()) => advisor.save_copied(level),
                Err(_) => advisor.save_failed(level),
            }
        }
        sent
    }

    /// Takes note of the end of a save.
    fn hear(&mut self, ended: Option<Ended>) {
        let Some(ended) = ended else { return };
        if let Some(advisor) = &mut self.advisor {
            advisor.save_ended(&ended);
            if let Some(source) = advisor.take_failure() {
                let path = self.options.journal();
                self.failure = Some(RunError::Journal { path, source });
            }
        }
        if let Err(error) = ended.saved.and(ended.retired) {
            self.failure = Some(error.into());
        }
    }
}
