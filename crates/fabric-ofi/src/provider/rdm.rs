//! An endpoint of libfabric's, of type RDM: messages of bounded size to and from any other, without connections.

use std::{ffi::c_int, io, mem, net::SocketAddr, os::fd::BorrowedFd, ptr, sync::Arc};

use super::{OfiError, objects::Objects, parked};
use crate::sys::{self as ofi, Library, calls};

/// An opened endpoint with its buffers. One thread at a time drives it.
pub(super) struct Rdm {
    library: &'static Library,
    objects: Arc<Objects>,
    /// Which buffers libfabric has.
    lent: Box<[bool]>,
    /// Buffers that are free to send from.
    free: Vec<usize>,
    is_shm: bool,
}

/// How libfabric names another endpoint once it was told the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remote(ofi::fi_addr_t);

/// A buffer that nobody but its holder uses; to be given back by `send`, `post` or `release`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot(usize);

/// An operation that has ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// A message came, of this length.
    Received(Slot, usize),
    /// A message was sent, or could not be.
    Sent(Slot, io::Result<()>),
    /// A posted buffer came back without a message.
    NotReceived(Slot),
}

impl Slot {
    /// Which buffer it is.
    pub(super) fn index(&self) -> usize {
        self.0
    }
}

impl Rdm {
    /// The size of a buffer in bytes.
    pub(super) const SLOT_SIZE: usize = Objects::SLOT_SIZE;
    /// How many completions are read at once.
    const BATCH: usize = 16;

    /// Opens an endpoint of the provider that libfabric calls `provider`. If that provider goes by IP addresses,
    /// it is bound to `bind`.
    pub(super) fn open(provider: &str, bind: SocketAddr) -> Result<Self, OfiError> {
        let library = Library::load()?;
        let objects = Arc::new(Objects::open(library, provider, bind)?);
        let is_shm = provider == parked::SHM;
        if is_shm {
            parked::park(objects.clone());
        }
        let mut rdm = Self {
            library,
            objects,
            lent: vec![false; Objects::SLOTS].into(),
            free: (Objects::RECEIVES..Objects::SLOTS).rev().collect(),
            is_shm,
        };
        for index in 0..Objects::RECEIVES {
            rdm.post(Slot(index)).map_err(|_| OfiError::Call {
                call: "fi_recv",
                message: "no room for buffers".to_owned(),
            })?;
        }
        Ok(rdm)
    }

    /// How others name this endpoint.
    pub(super) fn name(&self) -> &[u8] {
        self.objects.name()
    }

    /// The descriptor to poll before sleeping, if the provider has one.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.objects.descriptor()
    }

    /// Returns true if one may sleep on the descriptor now: anything that comes from now on makes it
    /// readable.
    pub(super) fn arm(&mut self) -> bool {
        self.objects.arm()
    }

    /// Makes a name known.
    pub(super) fn resolve(&mut self, name: &[u8]) -> io::Result<Remote> {
        // A provider reads as many bytes as its names have, or to the end of a string.
        let mut whole = [0u8; 256];
        if name.is_empty() || name.len() >= whole.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        whole[..name.len()].copy_from_slice(name);
        if self.is_shm {
            parked::check(name)?;
        }
        let mut remote = ofi::FI_ADDR_UNSPEC;
        // SAFETY: the name is whole and, if it is a string, ends; providers copy it.
        let inserted =
            unsafe { calls::fi_av_insert(self.objects.addresses, whole.as_ptr().cast(), &raw mut remote) };
        if inserted != 1 || remote == ofi::FI_ADDR_UNSPEC {
            return Err(self.error(inserted.min(-1)));
        }
        Ok(Remote(remote))
    }

    /// Lets go of a name; what is on its way to it may be lost.
    pub(super) fn forget(&mut self, remote: Remote) {
        // libfabric's `shm` (1.17) mixes up those that get a place which was another's before. It has 256.
        if self.is_shm {
            return;
        }
        // SAFETY: the address is one of `resolve`, which its owner forgets once.
        // A provider that keeps it costs memory only.
        let _ = unsafe { calls::fi_av_remove(self.objects.addresses, remote.0) };
    }

    /// Returns true if a message to a process that died may never end: libfabric's `shm` (1.17) takes a spin
    /// lock in memory that both see, and the dead process may have held it.
    pub(super) fn may_hang_on_the_dead(&self) -> bool {
        self.is_shm
    }

    /// A buffer to send from, if there is a free one.
    pub(super) fn take(&mut self) -> Option<Slot> {
        self.free.pop().map(Slot)
    }

    /// Gives back a buffer that was taken to be sent from.
    pub(super) fn release(&mut self, slot: Slot) {
        self.free.push(slot.0);
    }

    /// Returns true if there is a free buffer to send from.
    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// How many messages libfabric has that are not sent.
    pub(super) fn leaving(&self) -> usize {
        self.lent[Objects::RECEIVES..]
            .iter()
            .filter(|&&lent| lent)
            .count()
    }

    /// The memory of a buffer.
    pub(super) fn memory(&mut self, slot: &Slot) -> &mut [u8] {
        assert!(!self.lent[slot.0], "libfabric has this buffer");
        // SAFETY: the slot lies inside the allocation, and whoever holds a `Slot` has it alone: libfabric
        // does not have it, see above, and the lifetime is that of `&mut self`.
        unsafe { std::slice::from_raw_parts_mut(self.objects.slot(slot.0), Self::SLOT_SIZE) }
    }

    /// Sends the first `length` bytes of the buffer; [`Ended::Sent`] gives it back.
    ///
    /// # Errors
    /// With the buffer if nothing was sent: `WouldBlock` if it is to be tried later.
    pub(super) fn send(&mut self, slot: Slot, length: usize, to: Remote) -> Result<(), (Slot, io::Error)> {
        assert!(length <= Self::SLOT_SIZE && !self.lent[slot.0]);
        let (start, descriptor) = (self.objects.slot(slot.0), self.objects.local_descriptor());
        let context = self.objects.context(slot.0);
        // SAFETY: buffer and context stay in place and untouched until the completion, `lent` sees to that.
        let sent = unsafe {
            calls::fi_send(
                self.objects.endpoint,
                start.cast(),
                length,
                descriptor,
                to.0,
                context,
            )
        };
        if sent != 0 {
            return Err((slot, self.error(sent as c_int)));
        }
        self.lent[slot.0] = true;
        Ok(())
    }

    /// Lets the buffer wait for a message; [`Ended::Received`] gives it back.
    ///
    /// # Errors
    /// With the buffer if libfabric does not take it now.
    pub(super) fn post(&mut self, slot: Slot) -> Result<(), Slot> {
        assert!(!self.lent[slot.0]);
        let (start, descriptor) = (self.objects.slot(slot.0), self.objects.local_descriptor());
        let context = self.objects.context(slot.0);
        let (length, from) = (Self::SLOT_SIZE, ofi::FI_ADDR_UNSPEC);
        // SAFETY: as for `send`.
        let posted = unsafe {
            calls::fi_recv(
                self.objects.endpoint,
                start.cast(),
                length,
                descriptor,
                from,
                context,
            )
        };
        if posted != 0 {
            return Err(slot);
        }
        self.lent[slot.0] = true;
        Ok(())
    }

    /// The buffer whose operation had this context, if libfabric has it.
    fn take_back(&mut self, context: *mut std::ffi::c_void) -> Option<Slot> {
        let index = self.objects.index(context)?;
        mem::take(&mut self.lent[index]).then_some(Slot(index))
    }

    /// Lets libfabric progress, and appends what has ended, at most a batch. Returns whether there may be more.
    ///
    /// # Errors
    /// If the queue itself is broken.
    pub(super) fn poll(&mut self, ended: &mut Vec<Ended>) -> io::Result<bool> {
        let nothing = ofi::fi_cq_msg_entry {
            op_context: ptr::null_mut(),
            flags: 0,
            len: 0,
        };
        let mut entries = [nothing; Self::BATCH];
        // SAFETY: the queue is open and of this format.
        let count = unsafe { calls::fi_cq_read(self.objects.queue, entries.as_mut_ptr(), entries.len()) };
        if count >= 0 {
            let came = &entries[..count as usize];
            for entry in came {
                let Some(slot) = self.take_back(entry.op_context) else {
                    continue;
                };
                ended.push(match slot.0 < Objects::RECEIVES {
                    true => Ended::Received(slot, entry.len.min(Self::SLOT_SIZE)),
                    false => Ended::Sent(slot, Ok(())),
                });
            }
            return Ok(came.len() == entries.len());
        }
        match -(count as c_int) {
            ofi::FI_EAGAIN => Ok(false),
            ofi::FI_EAVAIL => {
                self.poll_error(ended);
                Ok(true)
            }
            _ => Err(self.error(count as c_int)),
        }
    }

    fn poll_error(&mut self, ended: &mut Vec<Ended>) {
        // SAFETY: the queue is open. Of the entry, zero says that there is no room for a provider's own data.
        let entry = unsafe {
            let mut entry: ofi::fi_cq_err_entry = mem::zeroed();
            if calls::fi_cq_readerr(self.objects.queue, &raw mut entry) <= 0 {
                return;
            }
            entry
        };
        let Some(slot) = self.take_back(entry.op_context) else {
            return;
        };
        ended.push(match slot.0 < Objects::RECEIVES {
            true => Ended::NotReceived(slot),
            false => Ended::Sent(slot, Err(self.error(-entry.err))),
        });
    }

    /// libfabric's numbers up to 255 are those of the operating system.
    fn error(&self, result: c_int) -> io::Error {
        match -result {
            number @ 1..256 => io::Error::from_raw_os_error(number),
            _ => io::Error::other(self.library.message(result)),
        }
    }
}

impl Drop for Rdm {
    fn drop(&mut self) {
        if self.is_shm {
            parked::leave(&self.objects);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    const PROVIDERS: [&str; 3] = ["shm", "tcp;ofi_rxm", "sockets"];

    fn open(provider: &str) -> Option<Rdm> {
        match Rdm::open(provider, "127.0.0.1:0".parse().unwrap()) {
            Ok(rdm) => Some(rdm),
            Err(error @ (OfiError::Load(_) | OfiError::Unavailable { .. })) => {
                eprintln!("skipped: {error}");
                None
            }
            Err(error) => panic!("{provider}: {error}"),
        }
    }

    /// Sends `count` messages and returns their lengths as they came.
    fn exchange(sender: &mut Rdm, receiver: &mut Rdm, count: usize) -> Vec<usize> {
        let to = sender.resolve(receiver.name()).unwrap();
        let (mut sent, mut received) = (0, Vec::new());
        let mut ended = Vec::new();
        let start = Instant::now();
        while received.len() < count {
            if sent < count
                && let Some(slot) = sender.take()
            {
                sender.memory(&slot)[..length(sent)].fill(length(sent) as u8);
                match sender.send(slot, length(sent), to) {
                    Ok(()) => sent += 1,
                    Err((slot, error)) => {
                        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                        sender.release(slot);
                    }
                }
            }
            sender.poll(&mut ended).unwrap();
            for end in ended.drain(..) {
                match end {
                    Ended::Sent(slot, Ok(())) => sender.release(slot),
                    other => panic!("{other:?}"),
                }
            }
            receiver.poll(&mut ended).unwrap();
            for end in ended.drain(..) {
                let (slot, length) = match end {
                    Ended::Received(slot, length) => (slot, length),
                    // It has sent before, to one that is gone, and hears of that when it may.
                    Ended::Sent(slot, _) => {
                        receiver.release(slot);
                        continue;
                    }
                    other => panic!("{other:?}"),
                };
                let content = &receiver.memory(&slot)[..length];
                assert!(content.iter().all(|&byte| byte == length as u8));
                receiver.post(slot).unwrap();
                received.push(length);
            }
            assert!(
                start.elapsed() < Duration::from_secs(30),
                "{received:?} of {sent}"
            );
        }
        received
    }

    fn length(number: usize) -> usize {
        1 + number * 4001 % Rdm::SLOT_SIZE
    }

    /// Messages of every size up to a whole buffer arrive whole, also more of them than there are buffers.
    #[test]
    fn ofi_messages_arrive() {
        for provider in PROVIDERS {
            let (Some(mut sender), Some(mut receiver)) = (open(provider), open(provider)) else {
                continue;
            };
            assert_ne!(sender.name(), receiver.name());
            let mut received = exchange(&mut sender, &mut receiver, 300);
            let mut sent: Vec<_> = (0..300).map(length).collect();
            received.sort_unstable();
            sent.sort_unstable();
            assert_eq!(received, sent, "{provider}");
        }
    }

    /// An endpoint that is gone is no reason to crash for those that talked to it, nor for later ones.
    #[test]
    fn ofi_endpoints_outlive_each_other() {
        for provider in PROVIDERS {
            let (Some(mut first), Some(mut second)) = (open(provider), open(provider)) else {
                continue;
            };
            exchange(&mut first, &mut second, 10);
            let to = first.resolve(second.name()).unwrap();
            drop(second);
            if let Some(slot) = first.take()
                && let Err((slot, _)) = first.send(slot, 10, to)
            {
                first.release(slot);
            }
            first.poll(&mut Vec::new()).unwrap();
            let mut third = open(provider).unwrap();
            exchange(&mut third, &mut first, 10);
        }
    }

    /// A provider that does not exist is named, with what libfabric says.
    #[test]
    fn unknown_ofi_providers_are_named() {
        let Err(error) = Rdm::open("no such thing", "127.0.0.1:0".parse().unwrap()) else {
            panic!("there is such a provider");
        };
        assert!(error.to_string().contains("libfabric"), "{error}");
    }
}
