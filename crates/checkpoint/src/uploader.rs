//! Uploading in the background.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use ropewalk_checkpoint_core::{UploadAction, Uploads, partner::Part};

use super::{
    archive::{Archive, ArchiveError},
    depot::Lister,
};

/// A thread that uploads each newest generation of a directory, beside a program that saves into it and never waits for
/// it.
#[derive(Debug)]
pub struct Uploader {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Until when what is there is still uploaded, once the job is over.
    end: Mutex<Option<Instant>>,
    told: Condvar,
}

impl Uploader {
    /// Starts to upload. `say` is told once when it fails, and once when it goes on.
    ///
    /// # Errors
    /// If the operating system gives no thread.
    pub fn start(
        archive: Archive,
        directory: impl Into<PathBuf>,
        say: impl Fn(String) + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let work = Work {
            archive,
            directory: directory.into(),
            shared: Arc::clone(&shared),
            say: Box::new(say),
        };
        let thread = thread::Builder::new()
            .name("ropewalk-upload".to_owned())
            .spawn(move || work.run())?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Uploads what is saved by now, for as long as is given, and stops. A piece that is on its way is waited for.
    pub fn finish(mut self, patience: Duration) {
        self.stop(patience);
    }

    fn stop(&mut self, patience: Duration) {
        let Some(thread) = self.thread.take() else { return };
        let mut end = self.shared.end.lock().unwrap_or_else(PoisonError::into_inner);
        *end = Some(Instant::now() + patience);
        drop(end);
        self.shared.told.notify_all();
        // If it panicked it uploads no more.
        let _ = thread.join();
    }
}

impl Drop for Uploader {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

struct Work {
    archive: Archive,
    directory: PathBuf,
    shared: Arc<Shared>,
    say: Box<dyn Fn(String) + Send>,
}

impl Work {
    fn run(&self) {
        let origin = Instant::now();
        let mut lister = Lister::new(self.directory.clone());
        let mut uploads = Uploads::default();
        loop {
            // What cannot be read now may be the next time.
            let parts = lister.readable_parts().unwrap_or_default();
            uploads.handle_local(&parts);
            let end = *self.shared.end.lock().unwrap_or_else(PoisonError::into_inner);
            if end.is_some_and(|end| uploads.is_done() || Instant::now() >= end) {
                if !uploads.is_done() {
                    (self.say)("the last checkpoint is not uploaded".to_owned());
                }
                return;
            }
            let Some(action) = uploads.poll(origin.elapsed()) else {
                self.pause();
                continue;
            };
            let done = match action {
                UploadAction::List => (self.archive.generations()).map(|found| uploads.handle_listed(found)),
                UploadAction::Remove(generation) => {
                    (self.archive.remove(generation)).map(|()| uploads.handle_done(action))
                }
                UploadAction::Upload(generation) => {
                    let of_generation = parts.iter().filter(|part| part.generation == generation);
                    let parts: Vec<Part> = of_generation.copied().collect();
                    let uploaded = self.archive.upload(&self.directory, &parts);
                    uploaded.map(|()| uploads.handle_done(action))
                }
            };
            match done {
                Ok(true) => (self.say)("checkpoints are uploaded again".to_owned()),
                Ok(false) => {}
                Err(error) => self.failed(uploads.handle_failed(origin.elapsed()), &error),
            }
        }
    }

    fn failed(&self, is_first: bool, error: &ArchiveError) {
        if is_first {
            let mut text = format!("checkpoints are not uploaded, it is tried again: {error}");
            let mut source = std::error::Error::source(error);
            while let Some(cause) = source {
                text.push_str(": ");
                text.push_str(&cause.to_string());
                source = cause.source();
            }
            (self.say)(text);
        }
    }

    fn pause(&self) {
        let end = self.shared.end.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever wakes it up changes what is looked at.
        let _ = self.shared.told.wait_timeout(end, PAUSE);
    }
}

/// Until the directory is looked at again.
const PAUSE: Duration = Duration::from_millis(300);
