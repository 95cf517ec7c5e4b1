//! Which names libfabric was told.

use std::{
    collections::BTreeMap,
    io,
    time::{Duration, Instant},
};

use super::rdm::{Rdm, Remote};

/// The names in use, and those that were until a moment ago: what is on its way to them shall still get there.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: BTreeMap<Box<[u8]>, Known>,
    /// How many of them nobody uses.
    unused: usize,
}

#[derive(Debug)]
struct Known {
    remote: Remote,
    users: usize,
    unused_since: Option<Instant>,
}

impl Names {
    /// How long a name is known after its last use.
    const LINGER: Duration = Duration::from_secs(1);
    /// How many names may linger.
    const LINGERING_MAX: usize = 256;

    /// The remote that libfabric knows by the name, for one user more.
    pub(super) fn resolve(&mut self, name: &[u8], rdm: &mut Rdm) -> io::Result<Remote> {
        if let Some(known) = self.known.get_mut(name) {
            self.unused -= usize::from(known.unused_since.take().is_some());
            known.users += 1;
            return Ok(known.remote);
        }
        let remote = rdm.resolve(name)?;
        let known = Known {
            remote,
            users: 1,
            unused_since: None,
        };
        self.known.insert(name.into(), known);
        Ok(remote)
    }

    /// Ends one use of the name.
    pub(super) fn release(&mut self, name: &[u8], now: Instant) {
        let Some(known) = self.known.get_mut(name) else {
            return;
        };
        known.users -= 1;
        if known.users == 0 {
            known.unused_since = Some(now);
            self.unused += 1;
        }
    }

    /// Lets go of the names that have lingered long enough, or are too many.
    pub(super) fn purge(&mut self, now: Instant, rdm: &mut Rdm) {
        if self.unused == 0 {
            return;
        }
        let too_many = self.unused > Self::LINGERING_MAX;
        self.known.retain(|_, known| {
            let over = known
                .unused_since
                .is_some_and(|since| too_many || now.saturating_duration_since(since) >= Self::LINGER);
            if over {
                rdm.forget(known.remote);
            }
            !over
        });
        self.unused = self.known.values().filter(|known| known.users == 0).count();
    }
}
