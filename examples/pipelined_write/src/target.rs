//! The side that pulls and writes.

use std::{
    collections::VecDeque,
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use ropewalk_rpc::{Engine, Pipeline, Responder, TransferError};
use thiserror::Error;

use crate::{Write, WriteRequest, Written, fault};

/// Serves [`Write`] with the files of one folder, one request after the other.
#[derive(Debug)]
pub struct WriteServer {
    engine: Engine,
    folder: PathBuf,
    requests: Arc<Mutex<VecDeque<Request>>>,
}

#[derive(Debug)]
struct Request {
    request: WriteRequest,
    deadline: Option<Instant>,
    responder: Responder<Written>,
}

/// Why something was not written.
#[derive(Debug, Error)]
pub enum WriteServerError {
    /// The name could lead out of the folder.
    #[error("{name:?} is no name for a file in one folder")]
    Name {
        /// The name.
        name: String,
    },
    /// The data did not come.
    #[error("the data did not come")]
    Transfer(#[from] TransferError),
    /// The file could not be written.
    #[error("the file could not be written")]
    File(#[from] io::Error),
}

impl WriteServer {
    /// A server on this engine whose files are in this folder.
    pub fn new(mut engine: Engine, folder: PathBuf) -> Self {
        let requests = Arc::<Mutex<VecDeque<Request>>>::default();
        let queue = requests.clone();
        // A handler must not wait; what it leaves is done by `progress`.
        engine.serve_later::<Write>(move |_, caller, request, responder| {
            let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.push_back(Request {
                request,
                deadline: caller.deadline(),
                responder,
            });
        });
        Self {
            engine,
            folder,
            requests,
        }
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Waits for something to do, but not longer than `timeout`, and does it.
    pub fn progress(&mut self, timeout: Duration) {
        self.engine.wait(timeout);
        loop {
            let next = self
                .requests
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_front();
            let Some(Request {
                request,
                deadline,
                responder,
            }) = next
            else {
                return;
            };
            let left = deadline.map_or(Duration::MAX, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            let written = self.write(&request, left);
            responder.answer(written.map_err(|error| fault(&error)));
        }
    }

    fn write(&mut self, request: &WriteRequest, timeout: Duration) -> Result<Written, WriteServerError> {
        let name = &request.name;
        if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
            return Err(WriteServerError::Name { name: name.clone() });
        }
        let file = File::create(self.folder.join(name))?;
        let start = Instant::now();
        let chosen = match request.stages.pipeline() {
            Some(pipeline) => Some(self.write_pipelined(request, pipeline, &file, timeout)?),
            None => {
                let length = usize::try_from(request.data.len()).unwrap_or(usize::MAX);
                let into = self.engine.allocate(length);
                let pull = self.engine.pull_bulk(&request.data, 0, into, timeout)?;
                let pulled = self.engine.block_on(pull)?;
                file.write_all_at(&pulled, 0)?;
                None
            }
        };
        Ok(Written {
            bytes: request.data.len(),
            seconds: start.elapsed().as_secs_f64(),
            chosen,
        })
    }

    /// The paper's loop: while a chunk is written the next ones come.
    fn write_pipelined(
        &mut self,
        request: &WriteRequest,
        pipeline: Pipeline,
        file: &File,
        timeout: Duration,
    ) -> Result<(usize, usize), WriteServerError> {
        let engine = &mut self.engine;
        let all = 0..request.data.len();
        let mut chunks = engine.pull_pipelined(&request.data, all, pipeline, timeout)?;
        while let Some(chunk) = chunks.next_blocking(engine) {
            let chunk = chunk?;
            file.write_all_at(&chunk, chunk.offset())?;
        }
        Ok(chunks.pipeline())
    }
}
