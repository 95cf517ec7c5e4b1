//! An engine's metrics as text for Prometheus.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet, text::encode},
    metrics::MetricType,
    registry::{Registry, Unit},
};

use crate::{FailureCounts, LatencyHistogram, Metrics, ProcedureMetrics, TransferCounts};

type Labels<'a> = &'a [(&'a str, &'a str)];

impl Metrics {
    /// The metrics as OpenMetrics text, which Prometheus reads; their names begin with `ropewalk_rpc`.
    pub fn to_openmetrics(&self) -> String {
        let mut registry = Registry::with_prefix("ropewalk_rpc");
        registry.register_collector(Box::new(Snapshot(self.clone())));
        let mut text = String::new();
        encode(&mut text, &registry).expect("a string takes all that is written to it");
        text
    }
}

#[derive(Debug)]
struct Snapshot(Metrics);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self(metrics) = self;
        encode_counts(metrics, &mut encoder)?;
        encode_failures(metrics, &mut encoder)?;
        encode_bytes(metrics, &mut encoder)?;
        encode_gauges(metrics, &mut encoder)?;
        encode_procedures(metrics, &mut encoder)
    }
}

fn encode_counts(metrics: &Metrics, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    for (name, help, value) in [
        ("calls", "Calls that were sent", metrics.calls.sent),
        (
            "call_retries",
            "Calls that were tried again",
            metrics.calls.retries,
        ),
        (
            "notifications",
            "Notifications that were sent",
            metrics.notifications.sent,
        ),
        (
            "requests",
            "Calls and notifications that a handler was given",
            metrics.requests.started,
        ),
        ("peers_lost", "Peers that were lost", metrics.peers_lost),
        (
            "heartbeats_asked",
            "Questions to silent peers for a sign of life",
            metrics.heartbeats.asked,
        ),
        (
            "heartbeats_answered",
            "Signs of life to peers that asked",
            metrics.heartbeats.answered,
        ),
        (
            "peers_silent",
            "Peers that were taken for dead because they stayed silent",
            metrics.heartbeats.silent,
        ),
    ] {
        encode_counter(encoder, name, help, &[(&[], value)])?;
    }
    Ok(())
}

fn encode_failures(metrics: &Metrics, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let kinds: [(_, _, &FailureCounts); 3] = [
        ("call_failures", "Calls that failed", &metrics.calls.failures),
        (
            "notification_failures",
            "Notifications that are known to have failed",
            &metrics.notifications.failures,
        ),
        (
            "request_failures",
            "Calls by others that failed here",
            &metrics.requests.failures,
        ),
    ];
    for (name, help, counts) in kinds {
        let counts = counts
            .by_reason()
            .map(|(reason, count)| ([("reason", reason)], count));
        let samples: Vec<_> = counts
            .iter()
            .map(|(labels, count)| (&labels[..], *count))
            .collect();
        encode_counter(encoder, name, help, &samples)?;
    }
    Ok(())
}

fn encode_bytes(metrics: &Metrics, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let directions: [(Labels<'_>, u64); 2] = [
        (&[("direction", "sent")], metrics.message_bytes.sent),
        (&[("direction", "received")], metrics.message_bytes.received),
    ];
    encode_counter(
        encoder,
        "message_bytes",
        "Bytes of requests and replies",
        &directions,
    )?;
    type Count = fn(&TransferCounts) -> u64;
    let kinds: [(_, _, Count); 3] = [
        ("transfers", "Transfers that were started", |counts| {
            counts.started
        }),
        (
            "transfer_failures",
            "Transfers that failed or were cancelled",
            |counts| counts.failed,
        ),
        (
            "transferred_bytes",
            "Bytes of transfers that ended well",
            |counts| counts.bytes,
        ),
    ];
    for (name, help, count) in kinds {
        let samples: [(Labels<'_>, u64); 2] = [
            (&[("kind", "pull")], count(&metrics.pulls)),
            (&[("kind", "push")], count(&metrics.pushes)),
        ];
        encode_counter(encoder, name, help, &samples)?;
    }
    Ok(())
}

fn encode_counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: &[(Labels<'_>, u64)],
) -> fmt::Result {
    let mut encoder = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, count) in samples {
        if labels.is_empty() {
            encoder.encode_counter::<NoLabelSet, _, f64>(count, None)?;
        } else {
            let mut encoder = encoder.encode_family(labels)?;
            encoder.encode_counter::<NoLabelSet, _, f64>(count, None)?;
        }
    }
    Ok(())
}

fn encode_gauges(metrics: &Metrics, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    for (name, help, value) in [
        (
            "calls_in_progress",
            "Calls that have not ended",
            metrics.calls.in_progress,
        ),
        (
            "requests_in_progress",
            "Calls that handlers have not answered",
            metrics.requests.in_progress,
        ),
        (
            "replies_waiting",
            "Replies that wait for their callers to read",
            metrics.requests.replies_waiting,
        ),
        (
            "tasks",
            "Asynchronous handlers that have not ended",
            metrics.tasks,
        ),
    ] {
        let mut encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        encoder.encode_gauge(&i64::try_from(value).unwrap_or(i64::MAX))?;
    }
    Ok(())
}

fn encode_procedures(metrics: &Metrics, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    type Histogram = fn(&ProcedureMetrics) -> &LatencyHistogram;
    let kinds: [(_, _, Histogram); 2] = [
        (
            "call",
            "How long calls took that ended with an output",
            |counts| &counts.calls,
        ),
        (
            "request",
            "How long requests were handled until they were answered",
            |counts| &counts.requests,
        ),
    ];
    for (name, help, histogram) in kinds {
        let mut encoder =
            encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for (procedure, counts) in &metrics.procedures {
            let histogram = histogram(counts);
            if histogram.count() > 0 {
                encoder
                    .encode_family(&[("procedure", *procedure)])?
                    .encode_histogram::<NoLabelSet>(
                        histogram.sum().as_secs_f64(),
                        histogram.count(),
                        &coarse(histogram),
                        None,
                    )?;
            }
        }
    }
    Ok(())
}

/// The same few buckets for each histogram at each time, as Prometheus wants them: the ends in seconds, by
/// powers of four from 256 ns to 69 s.
fn coarse(histogram: &LatencyHistogram) -> Vec<(f64, u64)> {
    let mut fine = histogram.buckets().peekable();
    let mut coarse: Vec<_> = (8..=36)
        .step_by(2)
        .map(|power| {
            let end = std::time::Duration::from_nanos(1 << power);
            let mut count = 0;
            while let Some((_, more)) = fine.next_if(|&(fine_end, _)| fine_end <= end) {
                count += more;
            }
            (end.as_secs_f64(), count)
        })
        .collect();
    coarse.push((f64::INFINITY, fine.map(|(_, count)| count).sum()));
    coarse
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Each line of the text is a comment or a sample, no name comes twice with the same labels, histograms
    /// count up to all, and the text ends as it has to.
    #[test]
    fn the_text_is_valid() {
        let mut metrics = Metrics::default();
        metrics.calls.sent = 7;
        metrics.message_bytes.sent = 1 << 40;
        metrics.calls.failures.peer_died = 3;
        for micros in [1, 10, 100, 200_000_000] {
            metrics.record_call("test.\"odd\" name\n", Ok(Duration::from_micros(micros)));
        }
        let text = metrics.to_openmetrics();
        assert!(text.ends_with("# EOF\n"), "{text}");
        let mut seen = std::collections::BTreeSet::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with("ropewalk_rpc_"), "{line}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(seen.insert(name.to_owned()), "twice: {line}");
        }
        for line in [
            "ropewalk_rpc_calls_total 7",
            "ropewalk_rpc_call_failures_total{reason=\"peer_died\"} 3",
            "ropewalk_rpc_message_bytes_total{direction=\"sent\"} 1099511627776",
            "ropewalk_rpc_call_seconds_count{procedure=\"test.\\\"odd\\\" name\\n\"} 4",
            "ropewalk_rpc_call_seconds_bucket{le=\"+Inf\",procedure=\"test.\\\"odd\\\" name\\n\"} 4",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is not in\n{text}"
            );
        }
    }

    /// The few buckets hold what the many hold, each where it belongs.
    #[test]
    fn coarse_buckets_hold_all() {
        let mut histogram = LatencyHistogram::default();
        for nanos in [0, 255, 256, 1_000_000, u64::MAX] {
            histogram.record(Duration::from_nanos(nanos));
        }
        let coarse = coarse(&histogram);
        let counts: Vec<_> = coarse.iter().filter(|&&(_, count)| count > 0).collect();
        assert_eq!(
            counts,
            [
                &(256e-9, 2),
                &(1.024e-6, 1),
                &(1.048_576e-3, 1),
                &(f64::INFINITY, 1)
            ]
        );
    }
}
