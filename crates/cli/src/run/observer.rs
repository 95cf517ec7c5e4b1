//! Remembers a job for whoever asked for metrics or a report.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context;
use ropewalk_launch::{JobEvent, JobSpec, Launcher};
use ropewalk_output_file::OutputFile;

use super::{
    metrics::to_openmetrics, metrics_server::MetricsServer, record::Record, report::report, saving::Saving,
    say,
};
use crate::watcher::Watcher;

/// The observation of a job for its metrics and its report, if anybody asked for one of them.
pub(super) struct Observer {
    /// `None` if nobody asked.
    record: Option<Arc<Mutex<Record>>>,
    started: Instant,
    /// Where the page goes, and what it calls the job.
    report: Option<(OutputFile, String)>,
    /// Serves until it is dropped.
    _metrics: Option<MetricsServer>,
}

impl Observer {
    /// Begins to serve metrics at an address, and makes sure that the report can be written.
    pub(super) fn start(
        metrics: Option<SocketAddr>,
        report: Option<PathBuf>,
        spec: &JobSpec,
    ) -> anyhow::Result<Self> {
        if metrics.is_none() && report.is_none() {
            return Ok(Self {
                record: None,
                started: Instant::now(),
                report: None,
                _metrics: None,
            });
        }
        Self::observe(metrics, report, spec)
    }

    fn observe(metrics: Option<SocketAddr>, report: Option<PathBuf>, spec: &JobSpec) -> anyhow::Result<Self> {
        let started = Instant::now();
        let record = Arc::<Mutex<Record>>::default();
        let server = match metrics {
            Some(address) => {
                let record = record.clone();
                let server = MetricsServer::serve(address, move || {
                    // Copied, so that the job does not wait for whoever reads.
                    let record = record.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    to_openmetrics(&record, started.elapsed())
                })
                .with_context(|| format!("cannot serve metrics at {address}"))?;
                if address.port() == 0 {
                    say(&format!("metrics at http://{}/metrics", server.address()));
                }
                Some(server)
            }
            None => None,
        };
        // Hours later it would be too late to say that it cannot be.
        let report = report.as_deref().map(OutputFile::prepare).transpose();
        let report = report.context(REFUSED)?;
        let words = std::iter::once(&spec.first.program).chain(&spec.first.arguments);
        let command: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        Ok(Self {
            record: Some(record),
            started,
            report: report.map(|file| (file, command.join(" "))),
            _metrics: server,
        })
    }

    /// Writes the report of a job that is over, with a section about what only this command knows.
    pub(super) fn finish(self, section: &str) -> anyhow::Result<()> {
        if let (Some(record), Some((file, command))) = (self.record, self.report) {
            let record = record.lock().unwrap_or_else(PoisonError::into_inner);
            file.write(report(&record, &command, section)).context(REFUSED)?;
        }
        Ok(())
    }
}

impl Watcher for Observer {
    fn handle(&mut self, event: &JobEvent, launcher: &Launcher) -> anyhow::Result<()> {
        if let Some(record) = &self.record {
            let host = match event {
                JobEvent::Started { rank, .. } => launcher.host_of(*rank).unwrap_or_default(),
                _ => "",
            };
            let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
            record.job.get_or_insert_with(|| launcher.job());
            record.handle(self.started.elapsed(), event, host);
        }
        Ok(())
    }

    fn handle_saving(&mut self, saving: Saving, _turned: Option<Duration>) {
        if let Some(record) = &self.record {
            record.lock().unwrap_or_else(PoisonError::into_inner).saving = Some(saving);
        }
    }
}

const REFUSED: &str = "cannot write the report";
