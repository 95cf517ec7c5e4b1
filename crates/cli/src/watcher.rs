//! Following a job.

use std::time::Duration;

use ropewalk_launch::{JobEvent, Launcher};

use crate::run::Saving;

/// Follows a job by its events: for a log, a line on a terminal, metrics, a report.
pub(crate) trait Watcher {
    /// Takes the next event of the job that `launcher` runs.
    ///
    /// # Errors
    /// If the job cannot be followed any further.
    fn handle(&mut self, event: &JobEvent, launcher: &Launcher) -> anyhow::Result<()>;

    /// Takes the state of the job's saves after each look at them. `turned` is the time since the start of the command
    /// if saves began to fail, or to work again, since the look before.
    fn handle_saving(&mut self, _saving: Saving, _turned: Option<Duration>) {}
}

impl<W: Watcher> Watcher for Option<W> {
    fn handle(&mut self, event: &JobEvent, launcher: &Launcher) -> anyhow::Result<()> {
        self.as_mut()
            .map_or(Ok(()), |watcher| watcher.handle(event, launcher))
    }

    fn handle_saving(&mut self, saving: Saving, turned: Option<Duration>) {
        if let Some(watcher) = self {
            watcher.handle_saving(saving, turned);
        }
    }
}
