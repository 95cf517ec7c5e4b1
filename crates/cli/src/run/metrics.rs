//! The metrics of a job in the form that Prometheus reads.

use std::{collections::BTreeMap, fmt, time::Duration};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet, text::encode},
    metrics::MetricType,
    registry::Registry,
};

use super::{record::Record, reductions::HostCounters};

/// A job's record as OpenMetrics text; the names begin with `ropewalk_job`, and the label `job_id` has the identity of
/// the job. Prometheus has a label `job` of its own.
pub(super) fn to_openmetrics(record: &Record, now: Duration) -> String {
    let job = record.job.map(|job| ("job_id".into(), job.to_string().into()));
    let mut registry = Registry::with_prefix_and_labels("ropewalk_job", job.into_iter());
    let record = record.clone();
    registry.register_collector(Box::new(Snapshot { record, now }));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes all that is written to it");
    text
}

#[derive(Debug)]
struct Snapshot {
    record: Record,
    now: Duration,
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self { record, now } = self;
        encode_states(&mut encoder, record)?;
        let (name, help) = ("elapsed_seconds", "Time since the start");
        let mut gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        gauge.encode_gauge(&now.as_secs_f64())?;
        let fences = &record.fences;
        for (name, help, value) in [
            (
                "ranks_started",
                "Processes that were started",
                record.lives.len() as f64,
            ),
            (
                "restarts",
                "How often the whole job was started again",
                record.restarts.len() as f64,
            ),
            (
                "respawns",
                "How often a failed rank was to get another process",
                record.respawns as f64,
            ),
            ("fences", "Fences that are over", fences.count as f64),
            (
                "fences_failed",
                "Fences that a lost rank made fail",
                fences.failed as f64,
            ),
            (
                "fence_wait_seconds",
                "Time between the first rank in a fence and its end, all together",
                fences.waited.as_secs_f64(),
            ),
            (
                "notices",
                "Oddities that did not end the job",
                record.notice_count as f64,
            ),
        ] {
            let mut encoder = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            encoder.encode_counter::<NoLabelSet, _, f64>(&value, None)?;
        }
        if let Some(saving) = record.saving {
            let since = saving.unprotected_since;
            let unprotected = since.map_or(0.0, |since| now.saturating_sub(since).as_secs_f64());
            let name = "unprotected_seconds";
            let help = "Time since the last save, if saves fail since then";
            let mut gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            gauge.encode_gauge(&unprotected)?;
            let name = "checkpoint_age_seconds";
            let help = "Time since the last save, once there is one";
            let mut gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            if let Some(saved_at) = saving.saved_at {
                gauge.encode_gauge(&now.saturating_sub(saved_at).as_secs_f64())?;
            }
            for (name, help, count) in [
                ("saves", "Saves that were made", saving.saves),
                ("saves_failed", "Saves that failed", saving.failed),
            ] {
                let mut encoder = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
                encoder.encode_counter::<NoLabelSet, _, f64>(&(count as f64), None)?;
            }
        }
        if let Some(total) = record.reductions.total() {
            encode_reductions(&mut encoder, &total, &record.reductions.by_host())?;
        }
        let endings: Vec<_> = record.endings().into_iter().collect();
        encode_family(
            &mut encoder,
            "ranks_ended",
            "Processes that are gone",
            "how",
            &endings,
        )?;
        let [stdout, stderr] = &record.output;
        for (name, help, values) in [
            (
                "output_bytes",
                "Bytes that ranks wrote",
                [stdout.bytes, stderr.bytes],
            ),
            (
                "output_lines",
                "Lines that ranks wrote",
                [stdout.lines, stderr.lines],
            ),
        ] {
            let values = [("stdout", values[0]), ("stderr", values[1])];
            encode_family(&mut encoder, name, help, "stream", &values)?;
        }
        Ok(())
    }
}

fn encode_reductions(
    encoder: &mut DescriptorEncoder<'_>,
    total: &HostCounters,
    hosts: &BTreeMap<&str, HostCounters>,
) -> fmt::Result {
    for (name, help, value) in [
        (
            "reduction_ends",
            "Ends of reductions, each on each rank that took part",
            total.ends as f64,
        ),
        (
            "reduction_chunks",
            "Chunks of reductions that arrived at other ranks",
            total.chunks as f64,
        ),
        (
            "reduction_chunk_bytes",
            "Bytes of these chunks",
            total.chunk_bytes as f64,
        ),
        (
            "reduction_send_seconds",
            "Time from the beginning of each chunk to its answer, all together",
            total.send_time.as_secs_f64(),
        ),
        (
            "reduction_wait_seconds",
            "The part of that time in which chunks waited behind others",
            total.wait_time.as_secs_f64(),
        ),
    ] {
        let mut encoder = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        encoder.encode_counter::<NoLabelSet, _, f64>(&value, None)?;
    }
    for (name, help, value) in [
        (
            "reduction_queue_max",
            "The largest number of chunks of a rank that were on their way at once",
            f64::from(total.queue_max),
        ),
        (
            "reduction_last_send_seconds",
            "Time of the last chunk of the rank for which it was longest",
            total.last_send_time.as_secs_f64(),
        ),
    ] {
        let mut encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        encoder.encode_gauge(&value)?;
    }
    encode_rates(
        encoder,
        "reduction_send_rate_bytes",
        "Bytes per second that the ranks of a host send while they have chunks to send",
        hosts.iter().map(|(host, counters)| (*host, counters.send_rate)),
    )?;
    encode_rates(
        encoder,
        "reduction_receive_rate_bytes",
        "Bytes per second of chunks that the ranks of a host receive",
        hosts
            .iter()
            .map(|(host, counters)| (*host, counters.receive_rate)),
    )?;
    let load = total.scheduler;
    for (name, help, values) in [
        (
            "scheduler_messages",
            "Messages between the scheduler of reductions and the other ranks",
            [load.received, load.sent],
        ),
        (
            "scheduler_bytes",
            "Bytes of these messages",
            [load.received_bytes, load.sent_bytes],
        ),
    ] {
        let values = [("received", values[0]), ("sent", values[1])];
        encode_family(encoder, name, help, "direction", &values)?;
    }
    Ok(())
}

fn encode_rates<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rates: impl Iterator<Item = (&'a str, u64)>,
) -> fmt::Result {
    let mut encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (host, rate) in rates {
        let labels = [("host", host)];
        let mut encoder = encoder.encode_family(&labels)?;
        encoder.encode_gauge(&(rate as f64))?;
    }
    Ok(())
}

fn encode_states(encoder: &mut DescriptorEncoder<'_>, record: &Record) -> fmt::Result {
    let help = "Ranks by the state of their last process";
    let mut encoder = encoder.encode_descriptor("ranks", help, None, MetricType::Gauge)?;
    for ((host, state), count) in record.states() {
        let labels = [("host", host), ("state", state)];
        encoder.encode_family(&labels)?.encode_gauge(&count)?;
    }
    Ok(())
}

fn encode_family(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &str,
    values: &[(&str, u64)],
) -> fmt::Result {
    let mut encoder = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (value_of_label, count) in values {
        let labels = [(label, *value_of_label)];
        let mut encoder = encoder.encode_family(&labels)?;
        encoder.encode_counter::<NoLabelSet, _, f64>(count, None)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ropewalk_launch::{JobEvent, OutputStream};
    use ropewalk_names::{JobId, Rank, ReductionCounters, SchedulerLoad, TraceEvent};

    use super::{super::saving::Saving, *};

    /// The text tells the events of the record, in the form that Prometheus reads.
    #[test]
    fn the_text_tells_the_record() {
        let mut record = Record::default();
        record.job = Some(JobId([0x2a; 16]));
        let rank = Rank(0);
        record.handle(Duration::ZERO, &JobEvent::Started { rank, pid: 1 }, "node");
        let line = b"hello\n".to_vec();
        let stream = OutputStream::Stderr;
        record.handle(Duration::ZERO, &JobEvent::Output { rank, stream, line }, "node");
        record.saving = Some(Saving {
            saves: 2,
            failed: 3,
            saved_at: Some(Duration::from_millis(500)),
            unprotected_since: Some(Duration::from_millis(1_000)),
        });
        let text = to_openmetrics(&record, Duration::from_millis(2_500));
        assert!(
            !text.contains("reduction"),
            "no rank has told of reductions: {text}"
        );
        let counters = ReductionCounters {
            chunks: 4,
            wait_time: Duration::from_millis(250),
            send_rate: 1_000,
            scheduler: SchedulerLoad {
                sent: 7,
                ..SchedulerLoad::default()
            },
            ..ReductionCounters::default()
        };
        let event = TraceEvent::Counters(counters);
        record.handle(Duration::ZERO, &JobEvent::Trace { rank, event }, "");
        let text = to_openmetrics(&record, Duration::from_millis(2_500));
        assert!(text.ends_with("\n# EOF\n"), "{text}");
        let job = format!("job_id=\"{}\"", "2a".repeat(16));
        for (name, labels, value) in [
            ("ranks", ",host=\"node\",state=\"running\"", "1"),
            ("ranks", ",host=\"node\",state=\"failed\"", "0"),
            ("elapsed_seconds", "", "2.5"),
            ("ranks_started_total", "", "1.0"),
            ("respawns_total", "", "0.0"),
            ("ranks_ended_total", ",how=\"signal\"", "0"),
            ("output_bytes_total", ",stream=\"stderr\"", "6"),
            ("saves_total", "", "2.0"),
            ("saves_failed_total", "", "3.0"),
            ("unprotected_seconds", "", "1.5"),
            ("reduction_chunks_total", "", "4.0"),
            ("reduction_wait_seconds_total", "", "0.25"),
            ("reduction_send_rate_bytes", ",host=\"node\"", "1000.0"),
            ("scheduler_messages_total", ",direction=\"sent\"", "7"),
            ("checkpoint_age_seconds", "", "2.0"),
        ] {
            let line = format!("ropewalk_job_{name}{{{job}{labels}}} {value}");
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
