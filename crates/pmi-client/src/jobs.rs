//! Other jobs: starting them, and reading what they put.

use bstr::ByteSlice;

use ropewalk_pmi::{Dialect, Pairs, Request, Response, Spawn, SpawnBlocks, SpawnCommands, Spawned};

use crate::{Client, ClientError};

impl Client {
    /// Allows [`get_bytes`](Self::get_bytes) from the key-value space of another job. PMI-2 only, and of the process
    /// managers we know only under ours.
    ///
    /// # Errors
    /// If there is no such job.
    pub fn connect_job(&self, job: &[u8]) -> Result<(), ClientError> {
        match self.ask(Request::JobConnect { job: job.into() })? {
            Response::JobConnect { rc, message, .. } => self.check("job-connect", rc, message),
            answer => Err(self.unexpected("job-connect", &answer)),
        }
    }

    /// The end of [`connect_job`](Self::connect_job).
    ///
    /// # Errors
    /// If there was no connection.
    pub fn disconnect_job(&self, job: &[u8]) -> Result<(), ClientError> {
        match self.ask(Request::JobDisconnect { job: job.into() })? {
            Response::JobDisconnect { rc, message } => self.check("job-disconnect", rc, message),
            answer => Err(self.unexpected("job-disconnect", &answer)),
        }
    }

    /// Starts more processes, as a job of their own.
    ///
    /// # Errors
    /// If they cannot be started.
    pub fn spawn(&self, spawn: &Spawn) -> Result<Spawned, ClientError> {
        let response = match self.connection.dialect() {
            Dialect::Pmi1 => {
                let blocks: Vec<Request> = SpawnBlocks::of(spawn).collect();
                self.connection.ask(&blocks)?
            }
            Dialect::Pmi2 => self.ask(Request::Spawn {
                count: u32::try_from(spawn.commands.len()).unwrap_or(u32::MAX),
                preput: Pairs(spawn.preput.clone()),
                commands: SpawnCommands(spawn.commands.clone()),
            })?,
        };
        let Response::Spawn {
            rc,
            message,
            errcodes,
            job,
            ..
        } = response
        else {
            return Err(self.unexpected("spawn", &response));
        };
        self.check("spawn", rc, message)?;
        let codes = errcodes.as_ref().and_then(|codes| codes.to_str().ok());
        let codes = codes.map_or_else(Vec::new, |codes| {
            codes.split(',').filter_map(|code| code.parse().ok()).collect()
        });
        Ok(Spawned {
            kvsname: job.unwrap_or_default(),
            errcodes: codes,
        })
    }
}
