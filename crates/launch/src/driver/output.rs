//! Reading what the ranks write, no faster than the launcher takes it.

use std::{io, sync::Arc, time::Duration};

use ropewalk_group::Rank;
use tokio::{
    net::unix::pipe,
    sync::{Semaphore, mpsc::UnboundedSender, watch},
    task::JoinSet,
    time::sleep,
};

use crate::{
    event::OutputStream,
    lines::WholeLines,
    protocol::{OUTPUT_WINDOW, Report},
};

/// The output of all ranks of a host.
pub(super) struct Outputs {
    readers: JoinSet<()>,
    over: watch::Sender<bool>,
    sink: Sink,
}

/// Where output goes to. A permit of the window is a byte that may be under way.
#[derive(Clone)]
struct Sink {
    window: Arc<Semaphore>,
    reports: UnboundedSender<Report>,
}

/// How long a pipe may stay silent once all ranks are gone and yet be held open by somebody.
const IDLE_MAX: Duration = Duration::from_millis(500);

impl Outputs {
    /// No output yet.
    pub(super) fn new(reports: UnboundedSender<Report>) -> Self {
        let window = Arc::new(Semaphore::new(OUTPUT_WINDOW));
        Self {
            readers: JoinSet::new(),
            over: watch::Sender::new(false),
            sink: Sink { window, reports },
        }
    }

    /// Grows when the launcher has taken bytes; closed when there is no launcher any more.
    pub(super) fn window(&self) -> Arc<Semaphore> {
        self.sink.window.clone()
    }

    /// Reads one stream of a rank from now on.
    pub(super) fn read(&mut self, rank: Rank, stream: OutputStream, pipe: pipe::Receiver) {
        let (sink, over) = (self.sink.clone(), self.over.subscribe());
        self.readers.spawn(sink.fill(rank, stream, pipe, over));
    }

    /// Waits until all is read that processes which are gone by now have written.
    pub(super) async fn finish(mut self) {
        self.over.send_replace(true);
        while self.readers.join_next().await.is_some() {}
    }
}

impl Sink {
    async fn fill(
        self,
        rank: Rank,
        stream: OutputStream,
        pipe: pipe::Receiver,
        mut over: watch::Receiver<bool>,
    ) {
        let mut lines = WholeLines::default();
        loop {
            let idle_and_over = async {
                let _ = over.wait_for(|over| *over).await;
                sleep(IDLE_MAX).await;
            };
            tokio::select! {
                ready = pipe.readable() => if ready.is_err() { break },
                () = idle_and_over => break,
            }
            match read_some(&pipe, &mut lines) {
                Ok((0, _)) => break,
                Ok((_, Some(whole))) => self.send(rank, stream, whole).await,
                Ok((_, None)) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
        if let Some(rest) = lines.finish() {
            self.send(rank, stream, rest).await;
        }
    }

    async fn send(&self, rank: Rank, stream: OutputStream, lines: Vec<u8>) {
        // Closed means that nobody is there to read it.
        if let Ok(permits) = self.window.acquire_many(lines.len() as u32).await {
            permits.forget();
            let _ = self.reports.send(Report::Output { rank, stream, lines });
        }
    }
}

/// The buffer is on the stack for this moment only: a thousand ranks have two thousand streams.
fn read_some(pipe: &pipe::Receiver, lines: &mut WholeLines) -> io::Result<(usize, Option<Vec<u8>>)> {
    let mut bytes = [0; 64 << 10];
    let length = pipe.try_read(&mut bytes)?;
    Ok((length, lines.push(&bytes[..length])))
}
