//! The objects of libfabric that make an endpoint, and the memory it works on.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    ffi::{c_int, c_void},
    mem,
    net::SocketAddr,
    os::fd::{BorrowedFd, RawFd},
    ptr::{self, NonNull},
};

use super::{OfiError, info::Info};
use crate::sys::{self as ofi, Library, calls};

/// Open objects; dropped, they are closed.
pub(super) struct Objects {
    library: &'static Library,
    info: Info,
    fabric: *mut ofi::fid_fabric,
    domain: *mut ofi::fid_domain,
    pub(super) queue: *mut ofi::fid_cq,
    pub(super) addresses: *mut ofi::fid_av,
    pub(super) endpoint: *mut ofi::fid_ep,
    registration: *mut ofi::fid_mr,
    memory: Memory,
    /// Readable when there may be something in the queue; the provider may have none.
    descriptor: Option<RawFd>,
    name: Vec<u8>,
}

// SAFETY: libfabric's objects belong to no thread. `FI_THREAD_DOMAIN` asks that those of one domain are not
// used by two at once: `Rdm` calls them through `&mut self` only, and there is one `Rdm` for each.
unsafe impl Send for Objects {}
// SAFETY: as above; what others may do with a reference is to look at the name.
unsafe impl Sync for Objects {}

impl Objects {
    /// How many buffers there are.
    pub(super) const SLOTS: usize = Self::RECEIVES + Self::SENDS;
    /// How many of them, the first ones, wait for messages.
    pub(super) const RECEIVES: usize = 64;
    /// How many of them, the others, are sent from.
    pub(super) const SENDS: usize = 192;
    /// The size of a buffer in bytes.
    pub(super) const SLOT_SIZE: usize = 64 << 10;
    /// The longest name of an endpoint that an address has room for, in bytes.
    const NAME_SIZE_MAX: usize = 100;

    pub(super) fn open(
        library: &'static Library,
        provider: &str,
        bind: SocketAddr,
    ) -> Result<Self, OfiError> {
        let mut objects = Self {
            library,
            info: Info::find(library, provider, bind)?,
            fabric: ptr::null_mut(),
            domain: ptr::null_mut(),
            queue: ptr::null_mut(),
            addresses: ptr::null_mut(),
            endpoint: ptr::null_mut(),
            registration: ptr::null_mut(),
            memory: Memory::new(),
            descriptor: None,
            name: Vec::new(),
        };
        objects.open_all()?;
        objects.name = objects.read_name()?;
        Ok(objects)
    }

    fn open_all(&mut self) -> Result<(), OfiError> {
        let library = self.library;
        let info = self.info.as_ptr();
        // SAFETY: `info` is what `fi_getinfo` found, whole and alive as long as `self`; each object is made
        // from those before it, which live until `drop`.
        unsafe {
            let attributes = (*info).fabric_attr;
            check(
                library,
                "fi_fabric",
                (self.library.fabric)(attributes, &raw mut self.fabric, ptr::null_mut()),
            )?;
            check(
                library,
                "fi_domain",
                calls::fi_domain(self.fabric, info, &raw mut self.domain, ptr::null_mut()),
            )?;
            let mut attributes: ofi::fi_av_attr = mem::zeroed();
            attributes.type_ = ofi::FI_AV_UNSPEC;
            check(
                library,
                "fi_av_open",
                calls::fi_av_open(
                    self.domain,
                    &raw mut attributes,
                    &raw mut self.addresses,
                    ptr::null_mut(),
                ),
            )?;
            self.open_queue()?;
            check(
                library,
                "fi_endpoint",
                calls::fi_endpoint(self.domain, info, &raw mut self.endpoint, ptr::null_mut()),
            )?;
            let (queue, addresses) = (&raw mut (*self.queue).fid, &raw mut (*self.addresses).fid);
            let both = ofi::FI_TRANSMIT | ofi::FI_RECV;
            check(
                library,
                "fi_ep_bind",
                calls::fi_ep_bind(self.endpoint, queue, both),
            )?;
            check(
                library,
                "fi_ep_bind",
                calls::fi_ep_bind(self.endpoint, addresses, 0),
            )?;
            check(library, "fi_enable", calls::fi_enable(self.endpoint))?;
            if (*(*info).domain_attr).mr_mode & ofi::FI_MR_LOCAL != 0 {
                let start = self.memory.slot(0).cast::<c_void>();
                let access = ofi::FI_SEND | ofi::FI_RECV;
                let registered = calls::fi_mr_reg(
                    self.domain,
                    start,
                    Self::SLOTS * Self::SLOT_SIZE,
                    access,
                    0,
                    0,
                    0,
                    &raw mut self.registration,
                    ptr::null_mut(),
                );
                check(library, "fi_mr_reg", registered)?;
            }
        }
        Ok(())
    }

    /// With a descriptor, if the provider has such queues.
    fn open_queue(&mut self) -> Result<(), OfiError> {
        let library = self.library;
        // SAFETY: the domain is open. Of the structure, zero is every field's default.
        unsafe {
            let mut attributes: ofi::fi_cq_attr = mem::zeroed();
            attributes.size = 2 * Self::SLOTS;
            attributes.format = ofi::FI_CQ_FORMAT_MSG;
            attributes.wait_obj = ofi::FI_WAIT_FD;
            let queue = &raw mut self.queue;
            if calls::fi_cq_open(self.domain, &raw mut attributes, queue, ptr::null_mut()) == 0 {
                let mut descriptor: c_int = -1;
                let argument = (&raw mut descriptor).cast();
                let got = calls::fi_control(&raw mut (*self.queue).fid, ofi::FI_GETWAIT, argument);
                self.descriptor = (got == 0 && descriptor >= 0).then_some(descriptor);
                return Ok(());
            }
            attributes.wait_obj = ofi::FI_WAIT_NONE;
            let opened = calls::fi_cq_open(self.domain, &raw mut attributes, queue, ptr::null_mut());
            check(library, "fi_cq_open", opened)
        }
    }

    fn read_name(&mut self) -> Result<Vec<u8>, OfiError> {
        let mut name = vec![0u8; Self::NAME_SIZE_MAX];
        let mut length = name.len();
        // SAFETY: the endpoint is enabled; the name has room for `length` bytes.
        let got = unsafe { calls::fi_getname(self.endpoint, name.as_mut_ptr().cast(), &raw mut length) };
        check(self.library, "fi_getname", got)?;
        name.truncate(length);
        Ok(name)
    }

    /// How others name the endpoint.
    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    /// The descriptor to poll before sleeping, if the provider has one.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: it is the queue's and open as long as that, which is as long as `self`.
        (self.descriptor).map(|descriptor| unsafe { BorrowedFd::borrow_raw(descriptor) })
    }

    /// Returns true if one may sleep on the descriptor now: anything that comes from now on makes it
    /// readable.
    pub(super) fn arm(&self) -> bool {
        // SAFETY: both are open.
        unsafe { calls::fi_trywait(self.fabric, &raw mut (*self.queue).fid) == 0 }
    }

    /// By what libfabric knows that the buffers are registered, if it wants that.
    pub(super) fn local_descriptor(&self) -> *mut c_void {
        if self.registration.is_null() {
            return ptr::null_mut();
        }
        // SAFETY: it is open if it is not null.
        unsafe { (*self.registration).mem_desc }
    }

    /// The start of a buffer.
    pub(super) fn slot(&self, index: usize) -> *mut u8 {
        self.memory.slot(index)
    }

    /// The context of a buffer: memory that libfabric uses while it has the buffer.
    pub(super) fn context(&self, index: usize) -> *mut c_void {
        self.memory.context(index)
    }

    /// The buffer whose context this is.
    pub(super) fn index(&self, context: *mut c_void) -> Option<usize> {
        let offset = (context as usize).checked_sub(self.memory.context(0) as usize)?;
        Some(offset / Memory::CONTEXT_SIZE).filter(|&index| index < Self::SLOTS)
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        let objects = [
            self.endpoint.cast::<ofi::fid>(),
            self.registration.cast(),
            self.queue.cast(),
            self.addresses.cast(),
            self.domain.cast(),
            self.fabric.cast(),
        ];
        for (index, object) in objects.into_iter().enumerate() {
            // SAFETY: an object that is not null is open, and those made from it were closed before.
            let closed = object.is_null() || unsafe { calls::fi_close(object) } == 0;
            if !closed && index == 0 {
                // libfabric may still write to it.
                self.memory.leak();
            }
        }
    }
}

/// One allocation for all buffers, and for the contexts behind them.
struct Memory(NonNull<u8>);

impl Memory {
    const CONTEXT_SIZE: usize = size_of::<ofi::fi_context2>();
    const SIZE: usize = Objects::SLOTS * (Objects::SLOT_SIZE + Self::CONTEXT_SIZE);

    fn new() -> Self {
        let layout = Self::layout();
        // SAFETY: the layout is not empty.
        match NonNull::new(unsafe { alloc_zeroed(layout) }) {
            Some(start) => Self(start),
            None => handle_alloc_error(layout),
        }
    }

    fn layout() -> Layout {
        Layout::from_size_align(Self::SIZE, 4096).expect("a constant that is small and aligned")
    }

    fn slot(&self, index: usize) -> *mut u8 {
        assert!(index < Objects::SLOTS, "there is no buffer {index}");
        // SAFETY: it lies inside the allocation.
        unsafe { self.0.as_ptr().add(index * Objects::SLOT_SIZE) }
    }

    fn context(&self, index: usize) -> *mut c_void {
        assert!(index < Objects::SLOTS, "there is no buffer {index}");
        let offset = Objects::SLOTS * Objects::SLOT_SIZE + index * Self::CONTEXT_SIZE;
        // SAFETY: it lies inside the allocation.
        unsafe { self.0.as_ptr().add(offset).cast() }
    }

    fn leak(&mut self) {
        mem::forget(mem::replace(self, Self::new()));
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and is used through its owner only.
        unsafe { dealloc(self.0.as_ptr(), Self::layout()) };
    }
}

fn check(library: &Library, call: &'static str, result: c_int) -> Result<(), OfiError> {
    if result == 0 {
        return Ok(());
    }
    let message = library.message(result);
    Err(OfiError::Call { call, message })
}
