//! The points at which pipelines and crowds are measured.

use crate::provider::Provider;

/// Points of bulk_pipelined and many_clients.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Points of bulk_pipelined and many_clients")]
pub(crate) struct Points {
    /// Buffers in flight; may be repeated [default: 1,2,4,8,16]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    depth: Vec<u32>,
    /// Bytes of each buffer; may be repeated [default: 4096,65536,262144,1048576]
    #[arg(
        long,
        value_name = "BYTES",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=1 << 26)
    )]
    buffer: Vec<u32>,
    /// Segments of the memory that is written, 1 if it is contiguous; may be repeated [default: 1,256]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    segments: Vec<u32>,
    /// Clients at once; may be repeated [default: 1,4,16,64,256,1000; over libfabric up to 16]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=100_000))]
    clients: Vec<u32>,
    /// Processes among which the clients are divided
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    client_processes: u32,
    #[arg(skip)]
    is_quick: bool,
}

/// A point of bulk_pipelined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PipelinePoint {
    pub(super) segments: u32,
    pub(super) buffer: u32,
    pub(super) depth: u32,
}

impl Points {
    /// Few points, but for those that were asked for.
    pub(crate) fn quick(&self) -> Self {
        Self {
            is_quick: true,
            ..self.clone()
        }
    }

    pub(super) fn buffers(&self) -> &[u32] {
        self.chosen(
            &self.buffer,
            &[4 << 10, 64 << 10, 256 << 10, 1 << 20],
            &[64 << 10, 256 << 10],
        )
    }

    pub(super) fn segments(&self) -> &[u32] {
        self.chosen(&self.segments, &[1, 256], &[1, 256])
    }

    /// All points of pipelines, in the order of their rows.
    pub(super) fn pipelines(&self) -> impl Iterator<Item = PipelinePoint> {
        let depths = self.chosen(&self.depth, &[1, 2, 4, 8, 16], &[1, 4]);
        self.segments().iter().flat_map(move |&segments| {
            self.buffers().iter().flat_map(move |&buffer| {
                depths.iter().map(move |&depth| PipelinePoint {
                    segments,
                    buffer,
                    depth,
                })
            })
        })
    }

    /// The numbers of clients: if nothing else is asked for, those for which there is memory.
    pub(super) fn clients(&self, provider: &Provider) -> impl Iterator<Item = u32> {
        let counts = self.chosen(&self.clients, &[1, 4, 16, 64, 256, 1000], &[1, 16, 64]);
        let most = match self.clients.is_empty() {
            true => provider.connections_max(),
            false => u32::MAX,
        };
        counts.iter().copied().filter(move |clients| *clients <= most)
    }

    pub(super) fn client_processes(&self) -> u32 {
        self.client_processes.max(1)
    }

    fn chosen<'a>(&self, asked: &'a [u32], default: &'a [u32], few: &'a [u32]) -> &'a [u32] {
        match asked {
            [] if self.is_quick => few,
            [] => default,
            _ => asked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Points that were asked for are taken as they are, also by a quick measurement, which has few others.
    #[test]
    fn points_that_are_asked_for_are_taken() {
        let asked = Points {
            depth: vec![3],
            ..Points::default()
        };
        assert_eq!(asked.pipelines().count(), 8);
        assert_eq!(asked.quick().pipelines().count(), 4);
        assert!(asked.quick().pipelines().all(|point| point.depth == 3));
        assert_eq!(asked.clients(&Provider::Tcp).last(), Some(1000));
        let ofi = Provider::Ofi("tcp".to_owned());
        assert_eq!(asked.clients(&ofi).last(), Some(16));
        assert_eq!(asked.quick().clients(&ofi).last(), Some(16));
        let many = Points {
            clients: vec![100],
            ..asked
        };
        assert_eq!(many.clients(&ofi).last(), Some(100));
    }
}
