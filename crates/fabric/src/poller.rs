//! The one descriptor on which an endpoint sleeps.

use std::{
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use rustix::{
    event::{
        PollFd, PollFlags, Timespec,
        epoll::{self, Event, EventData, EventFlags},
        poll,
    },
    io::Errno,
};

/// Watches descriptors of one part of an endpoint, which all parts do with the same epoll instance: each level more
/// would cost microseconds of each waking.
#[derive(Clone, Debug)]
pub(crate) struct Poller {
    epoll: Arc<OwnedFd>,
    source: Source,
}

/// Which part of an endpoint a descriptor is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Source {
    /// Descriptors that are watched for edges: what was found of them is kept until it is [cleared](Ready::clear).
    Bell,
    /// A provider of another crate.
    External,
    Shm,
    Tcp,
    Waker,
}

/// The descriptors of an endpoint that were found ready.
#[derive(Default)]
pub struct Ready {
    found: Vec<(u64, EventFlags)>,
}

impl Poller {
    /// The largest key of a descriptor.
    pub(crate) const KEY_MAX: u64 = (1 << Self::KEY_BITS) - 1;
    const KEY_BITS: u32 = 56;

    /// # Errors
    /// If the system is out of descriptors.
    pub(crate) fn new(source: Source) -> Result<Self, Errno> {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        Ok(Self { epoll, source })
    }

    /// The same for another part.
    pub(crate) fn of(&self, source: Source) -> Self {
        let epoll = self.epoll.clone();
        Self { epoll, source }
    }

    /// Watches a descriptor, which is called `key`.
    ///
    /// # Errors
    /// If the system is out of memory or allows no more.
    pub(crate) fn add(&self, key: u64, descriptor: impl AsFd, flags: EventFlags) -> Result<(), Errno> {
        epoll::add(&self.epoll, descriptor, self.data(key), flags)
    }

    /// Watches a descriptor for something else than before.
    ///
    /// # Errors
    /// If it is not watched.
    pub(crate) fn modify(&self, key: u64, descriptor: impl AsFd, flags: EventFlags) -> Result<(), Errno> {
        epoll::modify(&self.epoll, descriptor, self.data(key), flags)
    }

    /// # Errors
    /// If it is not watched.
    pub(crate) fn delete(&self, descriptor: impl AsFd) -> Result<(), Errno> {
        epoll::delete(&self.epoll, descriptor)
    }

    fn data(&self, key: u64) -> EventData {
        assert!(key <= Self::KEY_MAX, "{key} is no key");
        EventData::new_u64(u64::from(self.source as u8) << Self::KEY_BITS | key)
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Ready {
    /// How many descriptors are found at once; the others are found the next time.
    const MAX: usize = 128;

    /// Finds what is ready now.
    pub(crate) fn look(&mut self, poller: &Poller) {
        self.find(poller, Duration::ZERO);
    }

    /// Sleeps until something is ready, but not longer than `timeout`, maybe a millisecond shorter. Returns whether
    /// it also found what it is. An interrupting signal may end it early.
    pub(crate) fn sleep(&mut self, poller: &Poller, timeout: Duration) -> bool {
        if self.of(Source::Bell).next().is_some() {
            self.look(poller);
            return true;
        }
        // The time-outs of epoll_wait(2) are in milliseconds; epoll_pwait2(2) is not everywhere.
        let milliseconds = Duration::from_millis(timeout.as_millis().min(Self::TIMEOUT_MAX) as u64);
        if !milliseconds.is_zero() {
            self.find(poller, milliseconds);
            return true;
        }
        let mut descriptor = [PollFd::new(poller, PollFlags::IN)];
        // An interruption is for the caller's next look at the world.
        let _ = poll(&mut descriptor, timespec(timeout).as_ref());
        false
    }

    /// The keys of the descriptors of one part, and what they are ready for.
    pub(crate) fn of(&self, source: Source) -> impl Iterator<Item = (u64, EventFlags)> {
        self.found.iter().filter_map(move |&(data, flags)| {
            let of_it = data >> Poller::KEY_BITS == u64::from(source as u8);
            of_it.then_some((data & Poller::KEY_MAX, flags))
        })
    }

    /// Forgets what was found, once it has been seen to.
    pub(crate) fn clear(&mut self) {
        self.found.clear();
    }

    /// A day, in milliseconds.
    const TIMEOUT_MAX: u128 = 24 * 3600 * 1000;

    fn find(&mut self, poller: &Poller, timeout: Duration) {
        let mut events = [MaybeUninit::uninit(); Self::MAX];
        let found = epoll::wait(poller, &mut events[..], timespec(timeout).as_ref());
        // An edge is told of once.
        self.found
            .retain(|&(data, _)| data >> Poller::KEY_BITS == Source::Bell as u64);
        let kept = self.found.len();
        // What cannot be found now is found later.
        if let Ok((events, _)) = found {
            for &Event { flags, data } in events.iter() {
                let found = (data.u64(), flags);
                if !self.found[..kept].contains(&found) {
                    self.found.push(found);
                }
            }
        }
    }
}

fn timespec(duration: Duration) -> Option<Timespec> {
    duration.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    /// Each part finds its own descriptors by their keys, and no longer those that it does not watch any more.
    #[test]
    fn parts_find_their_own() {
        let tcp = Poller::new(Source::Tcp).unwrap();
        let shm = tcp.of(Source::Shm);
        let [one, other] = [(); 2].map(|()| eventfd(1, EventfdFlags::NONBLOCK).unwrap());
        tcp.add(Poller::KEY_MAX, &one, EventFlags::IN).unwrap();
        shm.add(0, &other, EventFlags::IN).unwrap();
        let mut ready = Ready::default();
        let found = |ready: &Ready, source| ready.of(source).map(|(key, _)| key).collect::<Vec<_>>();
        assert!(ready.sleep(&tcp, Duration::from_secs(10)));
        assert_eq!(found(&ready, Source::Tcp), [Poller::KEY_MAX]);
        assert_eq!(found(&ready, Source::Shm), [0]);
        assert!(found(&ready, Source::Waker).is_empty());
        shm.modify(0, &other, EventFlags::IN | EventFlags::OUT).unwrap();
        tcp.delete(&one).unwrap();
        ready.look(&shm);
        assert!(found(&ready, Source::Tcp).is_empty());
        let (_, flags) = ready.of(Source::Shm).next().unwrap();
        assert_eq!(flags, EventFlags::IN | EventFlags::OUT);
    }

    /// Without anything to find it sleeps for its time, less a millisecond; shorter times are kept too.
    #[test]
    fn sleeps_end() {
        let poller = Poller::new(Source::Waker).unwrap();
        let mut ready = Ready::default();
        for (microseconds, found) in [(300, false), (2500, true)] {
            let start = Instant::now();
            let timeout = Duration::from_micros(microseconds);
            assert_eq!(ready.sleep(&poller, timeout), found);
            assert!(start.elapsed() + Duration::from_millis(1) > timeout);
            assert_eq!(ready.of(Source::Waker).count(), 0);
        }
    }
}
