//! The descriptors that an agent waits for.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use ropewalk_launch_core::OutputStream;
use rustix::{
    event::{Timespec, epoll},
    io::Errno,
};

/// Waits for many descriptors at once; each is registered with its source.
pub(super) struct Poller {
    descriptor: OwnedFd,
}

/// The meaning of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The link to an advisor or store, by its number.
    Advised(u32),
    /// The listener for advisors and stores.
    Advisors,
    Branch,
    Children,
    /// The PMIx server of the host.
    Helper,
    /// The poller of the pipes that ranks write to.
    Outputs,
    /// A rank, by its number on this host.
    Rank(usize, Channel),
}

/// One of the connections to a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    Link,
    Pmi,
    Stderr,
    Stdin,
    Stdout,
}

/// How many descriptors are found ready at once.
const EVENTS_MAX: usize = 64;

impl Poller {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            descriptor: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        })
    }

    /// Waits for a descriptor from now on.
    pub(super) fn add(
        &self,
        descriptor: impl AsFd,
        source: Source,
        flags: epoll::EventFlags,
    ) -> io::Result<()> {
        Ok(epoll::add(&self.descriptor, descriptor, source.data(), flags)?)
    }

    /// Waits for other events of a descriptor.
    pub(super) fn modify(
        &self,
        descriptor: impl AsFd,
        source: Source,
        flags: epoll::EventFlags,
    ) -> io::Result<()> {
        Ok(epoll::modify(&self.descriptor, descriptor, source.data(), flags)?)
    }

    /// Waits for a descriptor no more. One that was never waited for is left alone.
    pub(super) fn delete(&self, descriptor: impl AsFd) {
        let _ = epoll::delete(&self.descriptor, descriptor);
    }

    /// Waits until a descriptor is ready, a signal comes, or the time is over. Without a time it has no end.
    pub(super) fn wait(&self, timeout: Option<Duration>) -> io::Result<Vec<(Source, epoll::EventFlags)>> {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut events = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        match epoll::wait(&self.descriptor, &mut events, timeout.as_ref()) {
            Ok((events, _)) => Ok(events
                .iter()
                .map(|event| (Source::of(event.data), event.flags))
                .collect()),
            Err(Errno::INTR) => Ok(Vec::new()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Source {
    /// The number of a channel is in the lowest bits, and that of its rank above them.
    const CHANNEL_BITS: u32 = 3;
    const CHANNEL_MASK: u64 = (1 << Self::CHANNEL_BITS) - 1;
    /// With the number of an advisor's link.
    const ADVISED: u64 = 1 << 63;
    const BRANCH: u64 = u64::MAX;
    const CHILDREN: u64 = u64::MAX - 1;
    const OUTPUTS: u64 = u64::MAX - 2;
    const ADVISORS: u64 = u64::MAX - 3;
    const HELPER: u64 = u64::MAX - 4;

    fn data(self) -> epoll::EventData {
        epoll::EventData::new_u64(match self {
            Self::Advised(number) => Self::ADVISED | u64::from(number),
            Self::Advisors => Self::ADVISORS,
            Self::Branch => Self::BRANCH,
            Self::Children => Self::CHILDREN,
            Self::Helper => Self::HELPER,
            Self::Outputs => Self::OUTPUTS,
            Self::Rank(index, channel) => (index as u64) << Self::CHANNEL_BITS | channel.number(),
        })
    }

    fn of(data: epoll::EventData) -> Self {
        match data.u64() {
            Self::ADVISORS => Self::Advisors,
            Self::BRANCH => Self::Branch,
            Self::CHILDREN => Self::Children,
            Self::HELPER => Self::Helper,
            Self::OUTPUTS => Self::Outputs,
            data if data & Self::ADVISED != 0 => Self::Advised(data as u32),
            data => Self::Rank(
                (data >> Self::CHANNEL_BITS) as usize,
                Channel::of(data & Self::CHANNEL_MASK),
            ),
        }
    }
}

impl Channel {
    /// The two that a rank writes its output to.
    pub(super) const OUTPUTS: [Self; 2] = [Self::Stdout, Self::Stderr];

    /// The stream that a rank writes to this channel.
    pub(super) fn stream(self) -> OutputStream {
        match self {
            Self::Stderr => OutputStream::Stderr,
            _ => OutputStream::Stdout,
        }
    }

    /// The place of an output in [`OUTPUTS`](Self::OUTPUTS).
    pub(super) fn output_index(self) -> usize {
        usize::from(self == Self::Stderr)
    }

    fn number(self) -> u64 {
        match self {
            Self::Pmi => 0,
            Self::Link => 1,
            Self::Stdin => 2,
            Self::Stdout => 3,
            Self::Stderr => 4,
        }
    }

    fn of(number: u64) -> Self {
        match number {
            0 => Self::Pmi,
            1 => Self::Link,
            2 => Self::Stdin,
            3 => Self::Stdout,
            _ => Self::Stderr,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A descriptor that is ready is found with the source that it was registered with, whatever that is.
    #[test]
    fn sources_are_found_again() {
        let channels = [
            Channel::Link,
            Channel::Pmi,
            Channel::Stderr,
            Channel::Stdin,
            Channel::Stdout,
        ];
        let of_ranks = channels
            .into_iter()
            .flat_map(|channel| [0, 7, u32::MAX as usize].map(|index| Source::Rank(index, channel)));
        let others = [
            Source::Advised(0),
            Source::Advised(u32::MAX),
            Source::Advisors,
            Source::Branch,
            Source::Children,
            Source::Helper,
            Source::Outputs,
        ];
        let poller = Poller::new().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&writer, b"x").unwrap();
        for source in of_ranks.chain(others) {
            poller.add(&reader, source, epoll::EventFlags::IN).unwrap();
            let ready = poller.wait(Some(Duration::ZERO)).unwrap();
            assert_eq!(ready, [(source, epoll::EventFlags::IN)]);
            poller.delete(&reader);
            assert_eq!(poller.wait(Some(Duration::ZERO)).unwrap(), []);
        }
    }
}
