//! The measurements, one file for each kind.

mod bulk_pipelined;
mod bulk_pull;
mod encoding;
mod idle_connections;
mod many_clients;
mod null_call;
mod peer_death;
pub(super) mod points;

use clap::ValueEnum;
use ropewalk_rpc::JobKey;

use self::points::Points;
use super::{origin::Origin, provider::Provider, rows::Rows, timing::Pace};

/// A kind of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(super) enum Case {
    /// The round trip of a call of nothing, spinning and after a pause
    NullCall,
    /// Null calls, several in flight
    CallsPerSecond,
    /// One-sided reads, one at a time
    BulkPull,
    /// From the SIGKILL of the target until all calls to it have ended
    PeerKilled,
    /// From the SIGSTOP of the target until all calls to it have ended
    PeerStopped,
    /// The processor time of a target with 1,000 connections that do nothing
    IdleConnections,
    /// Writes of 16 MiB: a call, in which the target pulls buffer by buffer, several in flight
    BulkPipelined,
    /// Calls and writes of many clients at once, the target's memory, and how even it serves
    ManyClients,
    /// Bytes and time of typed arguments, beside raw bytes
    Encoding,
}

impl Case {
    /// Those that are measured if nothing else is asked for.
    pub(super) const DEFAULT: [Self; 6] = [
        Self::NullCall,
        Self::CallsPerSecond,
        Self::BulkPull,
        Self::PeerKilled,
        Self::PeerStopped,
        Self::IdleConnections,
    ];

    /// As it stands in the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::NullCall => "null_call",
            Self::CallsPerSecond => "calls_per_second",
            Self::BulkPull => "bulk_pull",
            Self::PeerKilled => "peer_killed",
            Self::PeerStopped => "peer_stopped",
            Self::IdleConnections => "idle_connections",
            Self::BulkPipelined => "bulk_pipelined",
            Self::ManyClients => "many_clients",
            Self::Encoding => "encoding",
        }
    }

    /// Returns true if it needs a target that the bench may stop and kill.
    pub(super) fn needs_own_target(self) -> bool {
        matches!(self, Self::PeerKilled | Self::PeerStopped | Self::IdleConnections)
    }

    /// How many measurements it takes, or others would be made in the time.
    pub(super) fn measurements(self, provider: &Provider, points: &Points) -> u32 {
        match self {
            Self::NullCall | Self::PeerKilled => 2,
            Self::CallsPerSecond => 3,
            Self::BulkPull => match provider {
                Provider::Auto | Provider::Shm => 14,
                Provider::Ofi(_) | Provider::Tcp | Provider::TcpEncrypted => 7,
            },
            // The limit of heartbeats, and connections to make.
            Self::PeerStopped | Self::IdleConnections => 5,
            Self::BulkPipelined => points.pipelines().count() as u32,
            Self::ManyClients => 4 * points.clients(provider).count() as u32,
            Self::Encoding => 4,
        }
    }

    /// Measures with the target that there is.
    pub(super) fn measure(
        self,
        origin: &mut Origin,
        pace: &Pace,
        points: &Points,
        rows: &mut Rows,
    ) -> anyhow::Result<()> {
        match self {
            Self::NullCall => {
                rows.add(null_call::spinning(origin, pace)?);
                rows.add(null_call::sleeping(origin, pace)?);
                Ok(())
            }
            Self::CallsPerSecond => null_call::per_second(origin, pace, rows),
            Self::BulkPull => bulk_pull::of_all_sizes(origin, pace, rows),
            Self::BulkPipelined => bulk_pipelined::at_all_points(origin, pace, points, rows),
            Self::ManyClients => many_clients::of_all_counts(origin, pace, points, rows),
            Self::Encoding => encoding::of_all_kinds(origin, pace, rows),
            Self::PeerKilled | Self::PeerStopped | Self::IdleConnections => Ok(()),
        }
    }

    /// Measures with targets of its own.
    pub(super) fn measure_own(
        self,
        key: &JobKey,
        provider: &Provider,
        pace: &Pace,
        rows: &mut Rows,
    ) -> anyhow::Result<()> {
        match self {
            Self::PeerKilled => peer_death::killed(key, provider, pace, rows),
            Self::PeerStopped => peer_death::stopped(key, provider, rows),
            Self::IdleConnections => idle_connections::watched(key, provider, pace, rows),
            _ => Ok(()),
        }
    }
}
