//! Texts that processes log: they come out one after the other, as the agent takes them.

use std::io;

use ropewalk_launch_core::pmix::FromHelper;

use super::{Helper, Waiting};
use crate::{logs::Log, sys::types::status};

/// How many calls may wait until their texts have come out.
const LOGS_MAX: usize = 1024;

impl Helper {
    /// Hands on the next text of a call, or answers the call.
    pub(super) fn log(&mut self, mut log: Log) -> io::Result<()> {
        let Some((stream, lines)) = log.poll() else {
            log.answer();
            return Ok(());
        };
        let is_log = |waiting: &&Waiting| matches!(waiting, Waiting::Log(_));
        if self.waiting.values().filter(is_log).count() >= LOGS_MAX {
            log.refuse(status::RESOURCE_BUSY);
            return Ok(());
        }
        let from = log.from.clone();
        let token = self.keep(Waiting::Log(log));
        self.tell(&FromHelper::Log {
            token,
            from,
            stream,
            lines,
        })
    }
}
