//! Another process's memory by way of the kernel, where it lets us.

use std::{io, num::NonZeroU32};

/// Random bytes of ours that a peer reads to find out whether it can read our memory.
#[derive(Debug)]
pub(super) struct OwnProbe(Box<[u8; Probe::LENGTH]>);

/// Where a peer's probe is, and what is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Probe {
    /// In the peer's memory.
    pub(crate) address: u64,
    /// Known to nobody else by chance.
    pub(crate) content: [u8; Self::LENGTH],
}

impl Probe {
    /// How long it is, in bytes.
    pub(crate) const LENGTH: usize = 16;
}

/// A process whose memory was found to be reachable.
#[derive(Debug)]
pub(super) struct PeerProcess {
    pid: libc::pid_t,
    probe: Probe,
}

impl OwnProbe {
    /// # Errors
    /// If the system has no random numbers.
    pub(super) fn create() -> io::Result<Self> {
        let mut content = Box::new([0; Probe::LENGTH]);
        getrandom::fill(&mut content[..]).map_err(io::Error::other)?;
        Ok(Self(content))
    }

    /// The probe's address and content, for peers to know. They are true as long as `self` lives.
    pub(super) fn probe(&self) -> Probe {
        Probe {
            address: self.0.as_ptr() as u64,
            content: *self.0,
        }
    }
}

impl PeerProcess {
    /// The process of this number, if it is the one that has the probe and the kernel lets us read its memory.
    pub(super) fn reach(process: NonZeroU32, probe: Probe) -> Option<Self> {
        let pid = process.get().try_into().ok()?;
        let process = Self { pid, probe };
        process.read(probe.address, &mut []).is_ok().then_some(process)
    }

    /// Copies out of its memory.
    ///
    /// # Errors
    /// If not all of it is there, the kernel forbids it, or the process is another one by now.
    pub(super) fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        let mut found = [0; Probe::LENGTH];
        let expected = into.len() + found.len();
        let local = [part_of(into), part_of(&mut found)];
        // In the same call, so that it is in the same memory: the number of a dead process may be another's.
        let remote = [
            part_at(address, into.len()),
            part_at(self.probe.address, found.len()),
        ];
        // SAFETY: the local parts are exclusive borrows of that many bytes; the remote ones are looked at by the
        // kernel alone, which answers with an error if they are not there.
        let count = unsafe { libc::process_vm_readv(self.pid, local.as_ptr(), 2, remote.as_ptr(), 2, 0) };
        check(count, expected)?;
        if found != self.probe.content {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("process {} is not the one that it was", self.pid),
            ));
        }
        Ok(())
    }

    /// Copies into its memory.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub(super) fn write(&self, address: u64, from: &[u8]) -> io::Result<()> {
        // One call cannot both look and write. A process that dies between the two, and whose number goes to another
        // before the next instruction, is none that exists.
        self.read(self.probe.address, &mut [])?;
        let local = libc::iovec {
            iov_base: from.as_ptr().cast_mut().cast(),
            iov_len: from.len(),
        };
        let remote = part_at(address, from.len());
        // SAFETY: the local part is a borrow of that many bytes, which this call only reads; the remote one is looked
        // at by the kernel alone.
        let count = unsafe { libc::process_vm_writev(self.pid, &local, 1, &remote, 1, 0) };
        check(count, from.len())
    }
}

fn part_of(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    }
}

fn part_at(address: u64, length: usize) -> libc::iovec {
    libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address as usize),
        iov_len: length,
    }
}

fn check(count: isize, expected: usize) -> io::Result<()> {
    match usize::try_from(count) {
        Ok(count) if count == expected => Ok(()),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_pid() -> NonZeroU32 {
        std::process::id().try_into().unwrap()
    }

    /// Memory of a process that has the probe is read and written; what is not there is an error.
    #[test]
    fn reaches_memory_by_the_kernel() {
        let own = OwnProbe::create().unwrap();
        let process = PeerProcess::reach(own_pid(), own.probe()).unwrap();
        let mut theirs = [1_u8, 2, 3, 4];
        let mut into = [0; 3];
        process.read(theirs.as_ptr() as u64 + 1, &mut into).unwrap();
        assert_eq!(into, [2, 3, 4]);
        process.write(theirs.as_mut_ptr() as u64, &[9]).unwrap();
        assert_eq!(theirs, [9, 2, 3, 4]);
        for address in [8, u64::MAX - 1] {
            assert!(process.read(address, &mut into).is_err());
            assert!(process.write(address, &into).is_err());
        }
    }

    /// A process without the probe is not touched, even if its number is right; nor is one that is not there.
    #[test]
    fn other_processes_are_not_reached() {
        let own = OwnProbe::create().unwrap();
        let mut other = own.probe();
        other.content[0] ^= 1;
        assert!(PeerProcess::reach(own_pid(), other).is_none());
        for nobody in [i32::MAX as u32, u32::MAX] {
            assert!(PeerProcess::reach(nobody.try_into().unwrap(), own.probe()).is_none());
        }
        let mut moved = PeerProcess::reach(own_pid(), own.probe()).unwrap();
        moved.probe = other;
        let mut byte = [5];
        assert!(moved.read(byte.as_mut_ptr() as u64, &mut [0]).is_err());
        assert!(moved.write(byte.as_mut_ptr() as u64, &[6]).is_err());
        assert_eq!(byte, [5]);
    }
}
