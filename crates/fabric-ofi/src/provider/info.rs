//! The offers of libfabric, as `fi_getinfo` finds them.

use std::{
    ffi::{CStr, CString, c_int},
    net::SocketAddr,
    ptr,
};

use super::{OfiError, objects::Objects};
use crate::sys::{self as ofi, Library, calls};

/// The result of `fi_getinfo`.
pub(super) struct Info(*mut ofi::fi_info, &'static Library);

impl Info {
    /// Our version of libfabric's interface: the oldest that has all we ask for.
    const VERSION: u32 = ofi::fi_version(1, 14);

    /// The best that libfabric has for reliable messages over the provider that it calls `provider`. If that
    /// goes by IP addresses, it is bound to `bind`.
    pub(super) fn find(
        library: &'static Library,
        provider: &str,
        bind: SocketAddr,
    ) -> Result<Self, OfiError> {
        let unknown = |message: String| OfiError::Unavailable {
            provider: provider.to_owned(),
            message,
        };
        let name = CString::new(provider).map_err(|_| unknown("a name has no zero byte".to_owned()))?;
        let hints = Self::hints(library, &name);
        let failed = |number| unknown(library.message(number));
        let found = hints.query(None).map_err(failed)?;
        // SAFETY: it is what `fi_getinfo` found.
        let format = unsafe { (*found.0).addr_format };
        let by_ip = [ofi::FI_SOCKADDR, ofi::FI_SOCKADDR_IN, ofi::FI_SOCKADDR_IN6].contains(&format);
        match by_ip {
            true => hints.query(Some(bind)).map_err(failed),
            false => Ok(found),
        }
    }

    /// The hints with all that we need of an endpoint.
    fn hints(library: &'static Library, provider: &CStr) -> Self {
        // SAFETY: `fi_dupinfo` of null is a whole structure of defaults, with all attributes; libfabric frees
        // the name with it, by `free`.
        unsafe {
            let hints = (library.dupinfo)(ptr::null());
            assert!(!hints.is_null(), "out of memory");
            (*hints).caps = ofi::FI_MSG;
            (*hints).mode = ofi::FI_CONTEXT | ofi::FI_CONTEXT2;
            (*(*hints).ep_attr).type_ = ofi::FI_EP_RDM;
            (*(*hints).tx_attr).msg_order = ofi::FI_ORDER_SAS;
            (*(*hints).tx_attr).size = Objects::SENDS;
            (*(*hints).rx_attr).msg_order = ofi::FI_ORDER_SAS;
            (*(*hints).rx_attr).size = Objects::RECEIVES;
            (*(*hints).domain_attr).threading = ofi::FI_THREAD_DOMAIN;
            (*(*hints).domain_attr).resource_mgmt = ofi::FI_RM_ENABLED;
            (*(*hints).domain_attr).mr_mode =
                ofi::FI_MR_LOCAL | ofi::FI_MR_VIRT_ADDR | ofi::FI_MR_ALLOCATED | ofi::FI_MR_PROV_KEY;
            (*(*hints).fabric_attr).prov_name = calls::duplicate(provider);
            Self(hints, library)
        }
    }

    /// The structure, alive as long as this.
    pub(super) fn as_ptr(&self) -> *mut ofi::fi_info {
        self.0
    }

    /// The offer that fits these hints. The error is the number of libfabric's.
    fn query(&self, bind: Option<SocketAddr>) -> Result<Self, c_int> {
        let node = bind.and_then(|bind| CString::new(bind.ip().to_string()).ok());
        let port = bind.map(|bind| bind.port()).filter(|&port| port != 0);
        let service = port.and_then(|port| CString::new(port.to_string()).ok());
        let pointer = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        let flags = if node.is_some() { ofi::FI_SOURCE } else { 0 };
        let mut found = ptr::null_mut();
        // SAFETY: the strings end and live until it returns, and the hints are whole.
        let got = unsafe {
            (self.1.getinfo)(
                Self::VERSION,
                pointer(&node),
                pointer(&service),
                flags,
                self.0,
                &raw mut found,
            )
        };
        if got != 0 || found.is_null() {
            return Err(got);
        }
        Ok(Self(found, self.1))
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: it is one of libfabric's and nobody else's.
        unsafe { (self.1.freeinfo)(self.0) };
    }
}
