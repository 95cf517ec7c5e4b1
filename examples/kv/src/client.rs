//! A client with blocking calls.

use std::time::{Duration, Instant};

use bytes::Bytes;
use ropewalk_rpc::{
    AccessError, Address, BindError, Buffer, BulkHandle, CallError, Endpoint, Engine, JobKey, Procedure,
    TransferError,
};
use thiserror::Error;

use crate::{
    Delete, Get, INLINE_MAX, List, ListPage, Listed, Put, PutRequest, Refusal, Value, endpoint_options,
};

/// A client of one server.
#[derive(Debug)]
pub struct Client {
    engine: Engine,
    server: Address,
    timeout: Duration,
}

/// Why something could not be put or got.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The client could not be made.
    #[error("cannot make an endpoint")]
    Bind(#[from] BindError),
    /// The call failed.
    #[error("the server was not reached, or could not answer")]
    Call(#[from] CallError),
    /// The server does not store the value.
    #[error("the server refused the value")]
    Refused(#[from] Refusal),
    /// The value did not come.
    #[error("the value did not come")]
    Transfer(#[from] TransferError),
}

impl Client {
    /// A client of the server at this address, each of whose calls takes no longer than `timeout`.
    ///
    /// # Errors
    /// If the operating system refuses an endpoint.
    pub fn new(key: JobKey, server: Address, timeout: Duration) -> Result<Self, ClientError> {
        Ok(Self {
            engine: Engine::new(Endpoint::bind(endpoint_options(key))?),
            server,
            timeout,
        })
    }

    /// Memory for a large value, from where the server can take it without a copy if it is on this host.
    pub fn allocate(&mut self, length: usize) -> Buffer {
        self.engine.allocate(length)
    }

    /// Stores a value, in place of an earlier one.
    ///
    /// # Errors
    /// If the server is not reached, or refuses the value. After a time-out it may have stored it.
    pub fn put(&mut self, key: &str, value: Bytes) -> Result<(), ClientError> {
        let key = key.to_owned();
        if value.len() <= INLINE_MAX {
            let value = Value::Inline(value);
            return Ok(self.call::<Put>(&PutRequest { key, value })??);
        }
        let region = self.engine.expose(value);
        let value = Value::Exposed(BulkHandle::from(region.clone()));
        let stored = self.call::<Put>(&PutRequest { key, value });
        self.engine.withdraw(&region);
        Ok(stored??)
    }

    /// The value of a key, if it has one.
    ///
    /// # Errors
    /// If the server is not reached, or the value does not come in time.
    pub fn get(&mut self, key: &str) -> Result<Option<Bytes>, ClientError> {
        let start = Instant::now();
        loop {
            let handle = match self.call::<Get>(&key.to_owned())? {
                None => return Ok(None),
                Some(Value::Inline(value)) => return Ok(Some(value)),
                Some(Value::Exposed(handle)) => handle,
            };
            let left = self.timeout.saturating_sub(start.elapsed());
            let into = self
                .engine
                .allocate(usize::try_from(handle.len()).unwrap_or(usize::MAX));
            let pull = self.engine.pull_bulk(&handle, 0, into, left)?;
            match self.engine.block_on(pull) {
                // Somebody has put another value since, and the old one is gone.
                Err(TransferError::Access {
                    source: AccessError::Unknown,
                    ..
                }) => {}
                pulled => return Ok(Some(Bytes::from(pulled?))),
            }
        }
    }

    /// Forgets a key and its value. Returns whether there was one.
    ///
    /// # Errors
    /// If the server is not reached.
    pub fn delete(&mut self, key: &str) -> Result<bool, ClientError> {
        self.call::<Delete>(&key.to_owned())
    }

    /// The keys that begin with `prefix`, in order.
    ///
    /// # Errors
    /// If the server is not reached.
    pub fn list(&mut self, prefix: &str) -> Result<Vec<Listed>, ClientError> {
        let mut all: Vec<Listed> = Vec::new();
        loop {
            let page = self.call::<List>(&ListPage {
                prefix: prefix.to_owned(),
                after: all.last().map(|last| last.key.clone()),
            })?;
            let is_last = page.len() < ListPage::LENGTH_MAX;
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }

    fn call<P: Procedure>(&mut self, input: &P::Input) -> Result<P::Output, ClientError> {
        let call = self.engine.call::<P>(&self.server, input, self.timeout)?;
        Ok(self.engine.block_on(call)?)
    }
}
