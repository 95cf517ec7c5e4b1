//! How two processes tell each other that there is something in their rings.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use rustix::{
    event::{EventfdFlags, eventfd},
    fs::{FileType, fstat},
    io::{Errno, write},
    process::{Resource, getrlimit},
};

/// The doorbells of both ends of a connection. Each is an eventfd that is watched for edges: the end that is
/// rung hears it once for each time and need not read it.
#[derive(Debug)]
pub(crate) struct Bells {
    own: OwnedFd,
    peers: OwnedFd,
}

impl Bells {
    /// How many descriptors the other end gets.
    pub(super) const DESCRIPTORS: usize = 2;
    /// Of all descriptors that this process may have, the part below which a connection gets bells.
    const SHARE: u64 = 4;

    /// Makes both, and what the other end gets: its own and ours.
    ///
    /// # Errors
    /// If so many descriptors are in use that they had better be kept for connections.
    pub(super) fn new() -> io::Result<(Self, [OwnedFd; Self::DESCRIPTORS])> {
        let made = Self::pair()?;
        // The kernel gives the lowest number that is free.
        let number = u64::from(made.0.own.as_raw_fd().unsigned_abs());
        let limit = getrlimit(Resource::Nofile).current;
        if limit.is_some_and(|limit| number > limit / Self::SHARE) {
            return Err(Errno::MFILE.into());
        }
        Ok(made)
    }

    fn pair() -> io::Result<(Self, [OwnedFd; Self::DESCRIPTORS])> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let (own, peers) = (eventfd(0, flags)?, eventfd(0, flags)?);
        let theirs = [peers.try_clone()?, own.try_clone()?];
        Ok((Self { own, peers }, theirs))
    }

    /// The bells that the other end made.
    ///
    /// # Errors
    /// If writing to one might be taken for something else: an eventfd is a file of no type, as others to
    /// which nothing can be written.
    pub(super) fn of([own, peers]: [OwnedFd; Self::DESCRIPTORS]) -> Result<Self, Errno> {
        for bell in [&own, &peers] {
            if FileType::from_raw_mode(fstat(bell)?.st_mode) != FileType::Unknown {
                return Err(Errno::INVAL);
            }
        }
        Ok(Self { own, peers })
    }

    /// The one that the other end rings, to be watched for edges.
    pub(crate) fn own(&self) -> BorrowedFd<'_> {
        self.own.as_fd()
    }

    /// Rings the other end's. Returns false if that cannot be.
    pub(super) fn ring(&self) -> bool {
        write(&self.peers, &1u64.to_ne_bytes()).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::event::epoll::EventFlags;

    use super::*;
    use crate::poller::{Poller, Ready, Source};

    /// Each ring is heard once at the other end, without being read, and none at one's own.
    #[test]
    fn each_ring_is_heard_once() {
        let (here, theirs) = Bells::pair().unwrap();
        let there = Bells::of(theirs).unwrap();
        let poller = Poller::new(Source::Bell).unwrap();
        for (key, bells) in [(0, &here), (1, &there)] {
            poller
                .add(key, bells.own(), EventFlags::IN | EventFlags::ET)
                .unwrap();
        }
        let mut ready = Ready::default();
        let mut heard = || {
            ready.sleep(&poller, Duration::from_millis(2));
            let heard: Vec<u64> = ready.of(Source::Bell).map(|(key, _)| key).collect();
            ready.clear();
            heard
        };
        assert!(heard().is_empty());
        for _ in 0..3 {
            assert!(here.ring());
            assert_eq!(heard(), [1]);
            assert!(heard().is_empty());
            assert!(there.ring());
            assert_eq!(heard(), [0]);
        }
    }

    /// A descriptor of another file is no bell.
    #[test]
    fn other_files_are_no_bells() {
        let (pipe, other) = rustix::pipe::pipe().unwrap();
        assert!(Bells::of([pipe, other]).is_err());
    }
}
